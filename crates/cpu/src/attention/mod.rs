//! Attention of query rows over paged keys.
//!
//! A *query* is one head of one row. Its keys are taken page by page in ascending order with a running maximum and a
//! running sum; keys at or beyond its limit are never multiplied, so that whatever stands there has no influence. The
//! queries of some neighbouring rows and of all heads that share a K/V head run together, only to read K and V once:
//! each query's arithmetic is its own.

mod kernel;

use demask_tensor::{AttentionShape, Dtype, PAGE};

use crate::{
    elementwise::{Element, Shared, dispatch},
    isa::Isa,
    kv::{KvStore, Tensor},
    pool::Pool,
};
use kernel::Batch;

/// Queries that one task takes through the pages together.
const BATCH: usize = 32;

/// Neighbouring rows with one page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBlock {
    /// First of the rows: an index into the list of rows.
    first: u32,
    /// How many.
    count: u32,
    /// Their segment.
    segment: u32,
}

/// Cuts a list of rows into blocks of one segment each. Allocates nothing if `blocks` has room for one per row.
pub(crate) fn cut_blocks(shape: &AttentionShape, segments: impl Iterator<Item = u32>, blocks: &mut Vec<RowBlock>) {
    let group = shape.heads / shape.kv_heads;
    let most = (BATCH / group).max(4) as u32;
    blocks.clear();
    for (index, segment) in segments.enumerate() {
        match blocks.last_mut() {
            Some(block) if block.segment == segment && block.count < most => block.count += 1,
            _ => blocks.push(RowBlock { first: index as u32, count: 1, segment }),
        }
    }
}

/// The queries of one call, and how to find their keys.
pub(crate) struct Attend<'a> {
    pub(crate) isa: Isa,
    pub(crate) layer: usize,
    pub(crate) kv: &'a KvStore,
    pub(crate) blocks: &'a [RowBlock],
    /// Launch row of each query row.
    pub(crate) rows: &'a [u32],
    /// `[launch rows]`: visible keys.
    pub(crate) limits: &'a [u32],
    /// Page table of a segment.
    pub(crate) table: &'a (dyn Fn(u32) -> &'a [u32] + Sync),
    /// `[query rows, heads, head_dim]`.
    pub(crate) queries: &'a [f32],
}

impl Attend<'_> {
    /// Fills `out`, `[query rows, heads, head_dim]`.
    pub(crate) fn run(&self, pool: &Pool, out: &mut [f32]) {
        match self.kv.dtype() {
            Dtype::Bf16 => self.run_on::<u16>(pool, out),
            _ => self.run_on::<f32>(pool, out),
        }
    }

    fn run_on<T: Element>(&self, pool: &Pool, out: &mut [f32]) {
        let kv_heads = self.kv.shape().kv_heads;
        let (out, blocks) = (Shared::new(out), self.blocks.len());
        // Head after head: what one block has read of a head is still near when the next one reads it.
        pool.run(blocks * kv_heads, &|task| self.block::<T>(self.blocks[task % blocks], task / blocks, &out));
    }

    /// All queries of one block that share a K/V head, some at a time.
    fn block<T: Element>(&self, block: RowBlock, kv_head: usize, out: &Shared<'_, f32>) {
        let shape = self.kv.shape();
        let group = shape.heads / shape.kv_heads;
        let table = (self.table)(block.segment);
        let mut batch = Batch::<T>::new(shape.head_dim);
        for index in block.first as usize..(block.first + block.count) as usize {
            let limit = self.limits[self.rows[index] as usize] as usize;
            for head in kv_head * group..(kv_head + 1) * group {
                let start = (index * shape.heads + head) * shape.head_dim;
                let range = start..start + shape.head_dim;
                // SAFETY: each row and head is a query of exactly one task, and comes once in it.
                batch.push(&self.queries[range.clone()], limit, unsafe { out.part(range) });
                if batch.is_full() {
                    self.through_pages(&mut batch, table, kv_head);
                }
            }
        }
        self.through_pages(&mut batch, table, kv_head);
    }

    /// Takes a batch through its pages and empties it.
    fn through_pages<T: Element>(&self, batch: &mut Batch<'_, T>, table: &[u32], kv_head: usize) {
        for (index, &page) in table[..batch.largest_limit().div_ceil(PAGE)].iter().enumerate() {
            let keys = self.kv.head::<T>(page, self.layer, Tensor::Key, kv_head);
            let values = self.kv.head::<T>(page, self.layer, Tensor::Value, kv_head);
            dispatch(self.isa, batch.page(index * PAGE, keys, values));
        }
        batch.finish();
    }
}

#[cfg(test)]
mod tests;
