//! Attention of query rows over paged keys.
//!
//! A *query* is one head of one row. Its keys are taken some pages at a time in ascending order with a running maximum and a
//! running sum; keys at or beyond its limit are never multiplied, so that whatever stands there has no influence. The
//! queries of some neighbouring rows and of all heads that share a K/V head run together, only to read K and V once:
//! each query's arithmetic is its own. Where the processor multiplies pairs of bf16, heads of the usual widths take
//! [`amx`] or [`pairs`], over pages whose rows are [`woven`] in pairs; everything else takes [`kernel`], in f32 sums of
//! widened numbers.

#[cfg(target_arch = "x86_64")]
mod amx;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pairs;
#[cfg(target_arch = "x86_64")]
mod woven;

use demask_tensor::{Dtype, PAGE};

use crate::{
    elementwise::{Element, Shared, dispatch},
    isa::Isa,
    kv::{KvStore, Tensor},
    pool::Pool,
};
#[cfg(target_arch = "x86_64")]
use crate::{isa::Tier, kv::Weave};
#[cfg(target_arch = "x86_64")]
pub(crate) use amx::fits as fits_tiles;
use kernel::Batch;

/// Queries that one task takes through the pages together.
const BATCH: usize = 48;
/// Queries that one task takes through woven pages together, at most: whole pairs of tiles.
#[cfg(target_arch = "x86_64")]
const WOVEN_BATCH: usize = 128;
/// Tasks of each thread, at least, before a task takes the most queries: half of them read K and V twice as often.
#[cfg(target_arch = "x86_64")]
const TASKS: usize = 4;

/// Bytes of K and V of all heads that stay in a second-level cache while one block's heads read them.
const NEAR: usize = 512 << 10;

/// Takes a padded batch through a stride of woven pages.
///
/// # Safety
/// The processor has the kernel's tier; on tier AMX, the thread has no unit of tiles.
#[cfg(target_arch = "x86_64")]
type Take = unsafe fn(&mut woven::Batch, &woven::Stride<'_>);

/// Neighbouring rows with one page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBlock {
    /// First of the rows: an index into the list of rows.
    first: u32,
    /// Number of rows.
    count: u32,
    /// Index of their segment.
    segment: u32,
}

/// Returns the queries that one of some threads takes through these pages together, of `rows` rows.
fn batch_of(kv: &KvStore, rows: usize, threads: usize) -> usize {
    match kv.weave() {
        #[cfg(target_arch = "x86_64")]
        Some(Weave::Tiles) if rows * kv.shape().heads >= TASKS * threads * WOVEN_BATCH => WOVEN_BATCH,
        #[cfg(target_arch = "x86_64")]
        Some(Weave::Tiles) => WOVEN_BATCH / 2,
        _ => BATCH,
    }
}

/// Cuts a list of rows into blocks of one segment each, for some threads. Allocates nothing if `blocks` has room for one per
/// row.
pub(crate) fn cut_blocks(
    kv: &KvStore,
    threads: usize,
    segments: impl ExactSizeIterator<Item = u32>,
    blocks: &mut Vec<RowBlock>,
) {
    let shape = kv.shape();
    let most = (batch_of(kv, segments.len(), threads) * shape.kv_heads / shape.heads).max(4) as u32;
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
        match (self.kv.weave(), self.kv.dtype()) {
            #[cfg(target_arch = "x86_64")]
            (Some(weave), _) => self.run_on_woven(pool, self.kernel_of(weave), out),
            (None, Dtype::Bf16) => self.run_on::<u16>(pool, out),
            (None, _) => self.run_on::<f32>(pool, out),
        }
    }

    /// The kernel for woven pages.
    #[cfg(target_arch = "x86_64")]
    fn kernel_of(&self, weave: Weave) -> Take {
        let lacks = || -> ! { panic!("K and V are woven for products that this processor lacks") };
        match weave {
            Weave::Tiles if self.isa.has(Tier::Amx) => amx::take,
            Weave::Pairs if self.isa.has(Tier::Avx512Bf16) => pairs::take,
            _ => lacks(),
        }
    }

    fn run_on<T: Element>(&self, pool: &Pool, out: &mut [f32]) {
        let out = Shared::new(out);
        self.for_tasks(pool, |block, head| self.block::<T>(block, head, &out));
    }

    /// Runs attention over woven pages.
    #[cfg(target_arch = "x86_64")]
    fn run_on_woven(&self, pool: &Pool, take: Take, out: &mut [f32]) {
        let out = Shared::new(out);
        self.for_tasks(pool, |block, head| self.woven_block(block, head, take, &out));
    }

    /// Runs a task for each block and each of its K/V heads.
    fn for_tasks(&self, pool: &Pool, task: impl Fn(RowBlock, usize) + Sync) {
        let (shape, blocks) = (self.kv.shape(), self.blocks.len());
        let keys = self.rows.iter().map(|&row| self.limits[row as usize] as usize).max().unwrap_or(0);
        let bytes = 2 * keys * shape.kv_heads * shape.head_dim * self.kv.dtype().size();
        if bytes <= NEAR {
            // Block after block: a thread keeps the rows that it has in its cache.
            pool.run(blocks * shape.kv_heads, &|index| {
                task(self.blocks[index / shape.kv_heads], index % shape.kv_heads);
            });
        } else {
            // Head after head: what one block has read of a head is still near when the next one reads it.
            pool.run(blocks * shape.kv_heads, &|index| task(self.blocks[index % blocks], index / blocks));
        }
    }

    /// All queries of one block that share a K/V head, some at a time.
    #[cfg(target_arch = "x86_64")]
    fn woven_block(&self, block: RowBlock, kv_head: usize, take: Take, out: &Shared<'_, f32>) {
        let shape = self.kv.shape();
        let (group, head_dim) = (shape.heads / shape.kv_heads, shape.head_dim);
        let table = (self.table)(block.segment);
        let mut batch = woven::Batch::new(head_dim);
        let queries = block.count as usize * group;
        let start = |query: usize| {
            let (index, head) = (block.first as usize + query / group, kv_head * group + query % group);
            (index * shape.heads + head) * head_dim
        };
        for first in (0..queries).step_by(WOVEN_BATCH) {
            for query in first..queries.min(first + WOVEN_BATCH) {
                let row = self.rows[block.first as usize + query / group];
                batch.push(self.isa, &self.queries[start(query)..][..head_dim], self.limits[row as usize] as usize);
            }
            batch.pad();
            self.through_strides(&mut batch, table, kv_head, take);
            // SAFETY: each row and head is a query of exactly one task, and comes once in it.
            batch.finish(self.isa, |query| unsafe { out.part(start(first + query)..start(first + query) + head_dim) });
        }
    }

    /// Takes a batch through its pages, a stride at a time.
    #[cfg(target_arch = "x86_64")]
    fn through_strides(&self, batch: &mut woven::Batch, table: &[u32], kv_head: usize, take: Take) {
        let table = &table[..batch.largest_limit().div_ceil(PAGE)];
        for (index, numbers) in table.chunks(woven::STRIDE_PAGES).enumerate() {
            let mut pages = [(&[][..], &[][..]); woven::STRIDE_PAGES];
            for (page, &number) in pages.iter_mut().zip(numbers) {
                let head = |tensor| self.kv.head::<u16>(number, self.layer, tensor, kv_head);
                *page = (head(Tensor::Key), head(Tensor::Value));
            }
            let behind = table.get((index + 1) * woven::STRIDE_PAGES);
            let next = behind.map_or(&[][..], |&page| self.kv.head::<u16>(page, self.layer, Tensor::Key, kv_head));
            let stride = woven::Stride { first: index * woven::STRIDE_PAGES * PAGE, pages, next };
            // SAFETY: the `Isa` was asked for the tier when the kernel was chosen; kernels leave no tiles behind, the
            // thread has no others, and the batch is padded.
            unsafe { take(batch, &stride) }
        }
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

    /// Pages and head of the keys that come after a stride: those of the next stride, or of the next head, which is most
    /// often this thread's next task.
    fn keys_behind<'t>(&self, table: &'t [u32], stride: usize, head: usize) -> impl Iterator<Item = (u32, usize)> + 't {
        let next = (stride + 1) * kernel::STRIDE_PAGES;
        let heads = self.kv.shape().kv_heads;
        let (pages, head) = if next < table.len() {
            (&table[next..], head)
        } else {
            (&table[..if head + 1 < heads { table.len() } else { 0 }], head + 1)
        };
        pages.iter().map(move |&page| (page, head))
    }

    /// Takes a batch through its pages, a stride at a time, and empties it.
    fn through_pages<T: Element>(&self, batch: &mut Batch<'_, T>, table: &[u32], kv_head: usize) {
        let table = &table[..batch.largest_limit().div_ceil(PAGE)];
        for (index, numbers) in table.chunks(kernel::STRIDE_PAGES).enumerate() {
            let mut pages = [(&[][..], &[][..]); kernel::STRIDE_PAGES];
            for (page, &number) in pages.iter_mut().zip(numbers) {
                let head = |tensor| self.kv.head::<T>(number, self.layer, tensor, kv_head);
                *page = (head(Tensor::Key), head(Tensor::Value));
            }
            let first = index * kernel::STRIDE_PAGES * PAGE;
            let mut ahead = [&[][..]; kernel::STRIDE_PAGES];
            for (ahead, (number, head)) in ahead.iter_mut().zip(self.keys_behind(table, index, kv_head)) {
                *ahead = self.kv.head::<T>(number, self.layer, Tensor::Key, head);
            }
            dispatch(self.isa, batch.stride(first, &pages[..numbers.len()], &ahead));
        }
        batch.finish(self.isa);
    }
}

#[cfg(test)]
mod tests;
