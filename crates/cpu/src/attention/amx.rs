//! Attention on tile products of bf16.
//!
//! Both products are of 16 queries times 16 columns over a depth of 32. Scores are rows of queries times woven rows of
//! K: sixteen of these are a tile of sixteen keys. Sums are rows of weights times the sixteen woven rows of V that are a
//! page. Two tiles of queries meet two tiles of keys, then of columns.
//!
//! Tiles are always whole: missing queries are zeros, and what becomes of them is never looked at. Where a page is seen in
//! part, V is copied, with zeros for the keys that are not: weights of 0 alone would not silence infinity and NaN.
//! Scores become weights as those of [`pairs`](super::pairs) do.

use std::mem::MaybeUninit;

use demask_tensor::PAGE;

use super::{
    pairs::weigh_all,
    woven::{Batch, MOST_AT_A_TIME, STRIDE, STRIDE_PAGES, Set, Stride},
};
use crate::{
    kv::MOST_PAIRED,
    tiles::{DEPTH, Places, ROW_BYTES, ROWS, TileUnit, WORDS},
};

/// Bytes of a pair of bf16.
const PAIR: usize = 4;
/// Bytes of the pairs of all keys of a page.
const KEYS_BYTES: usize = PAGE * PAIR;
// A page is two tiles of keys, and the depth of a product; two tiles of queries run together.
const _: () = assert!(KEYS_BYTES == 2 * ROW_BYTES && PAGE == DEPTH && MOST_AT_A_TIME == 2 * ROWS);

/// Scratch memory of a set of queries.
#[repr(align(64))]
struct Scratch {
    /// `[MOST_AT_A_TIME, head_dim]`: sums while values are added to them.
    sums: [MaybeUninit<f32>; MOST_AT_A_TIME * MOST_PAIRED],
    /// Woven V of a page that is seen in part.
    values: [MaybeUninit<u16>; PAGE * MOST_PAIRED],
}

/// Reports whether heads of a width are whole tiles.
pub(crate) fn fits(head_dim: usize) -> bool {
    head_dim.is_multiple_of(DEPTH) && head_dim <= MOST_PAIRED
}

/// Takes all queries of a batch, padded and of a width that [`fits`], through a stride.
///
/// # Safety
/// The processor has the tier AMX; this thread has no other unit.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn take(batch: &mut Batch, stride: &Stride<'_>) {
    assert!(fits(batch.head_dim), "heads of {} are no whole tiles", batch.head_dim);
    #[expect(
        clippy::large_stack_arrays,
        reason = "on a thread's stack, where allocating is ruled out; not written here"
    )]
    let mut scratch = Scratch {
        sums: [MaybeUninit::uninit(); MOST_AT_A_TIME * MOST_PAIRED],
        values: [MaybeUninit::uninit(); PAGE * MOST_PAIRED],
    };
    // SAFETY: as our caller promises; nothing that is called here configures another.
    let mut unit = unsafe { TileUnit::configure() };
    let mut next = 0;
    while let Some(set) = batch.next_set(next, stride) {
        next = set.first + set.count;
        let values = seen_values(stride, (batch.head_dim, set.visible), &mut scratch.values);
        for first in (0..set.count).step_by(2 * ROWS) {
            let count = (set.count - first).min(2 * ROWS);
            let is_last = set.is_last && first + count == set.count;
            let part = Set { first: set.first + first, count, is_last, ..set };
            // SAFETY: parts have at most 32 queries of the batch, and 16 if they are not tall; the batch has checked the
            // pages, and is padded.
            unsafe {
                if part.count > ROWS {
                    take_set::<true>(&mut unit, batch, (stride, &values), part, &mut scratch.sums);
                } else {
                    take_set::<false>(&mut unit, batch, (stride, &values), part, &mut scratch.sums);
                }
            }
        }
    }
}

/// Addresses of V of each page; a copy for a page that is seen in part.
#[inline(always)]
fn seen_values(
    stride: &Stride<'_>,
    (head_dim, visible): (usize, usize),
    copy: &mut [MaybeUninit<u16>; PAGE * MOST_PAIRED],
) -> [*const u8; STRIDE_PAGES] {
    let mut starts = stride.pages.map(|(_, values)| values.as_ptr().cast::<u8>());
    let (page, seen) = (visible / PAGE, visible % PAGE);
    if seen > 0 {
        // Rows of pairs of keys, a pair for each column: whole pairs, perhaps half a one, then none.
        let (copy, values) = (&mut copy[..PAGE * head_dim], &stride.pages[page].1[..PAGE * head_dim]);
        let (whole, seen_values) = (seen / 2 * 2 * head_dim, (seen.div_ceil(2)) * 2 * head_dim);
        copy[..whole].write_copy_of_slice(&values[..whole]);
        let pairs = copy[whole..seen_values].as_chunks_mut::<2>().0.iter_mut().zip(values[whole..].as_chunks::<2>().0);
        pairs.for_each(|(copy, pair)| *copy = [MaybeUninit::new(pair[0]), MaybeUninit::new(0)]);
        copy[seen_values..].fill(MaybeUninit::new(0));
        starts[page] = copy.as_ptr().cast();
    }
    starts
}

/// Takes some queries through the keys that they see.
///
/// # Safety
/// The unit is configured for full tiles. There are at most 16 queries, or 32 if `TALL`, all of the batch, which is
/// padded; the stride has the pages that they see, K at its place and V at `values`.
#[inline(always)]
unsafe fn take_set<const TALL: bool>(
    unit: &mut TileUnit,
    batch: &mut Batch,
    (stride, values): (&Stride<'_>, &[*const u8; STRIDE_PAGES]),
    set: Set,
    sums: &mut [MaybeUninit<f32>],
) {
    let (head_dim, pages) = (batch.head_dim, set.visible.div_ceil(PAGE));
    let rows = if TALL { 2 * ROWS } else { ROWS };
    let queries = batch.queries.as_ptr().wrapping_add(set.first * head_dim).cast::<u8>();
    // SAFETY: as our caller promises: queries, scores, weights and sums have room for whole tiles of rows, padded with
    // zeros; K of a page has `head_dim / 2` rows of 128 bytes, V sixteen rows of `head_dim` pairs, and a head is whole
    // tiles wide. All memory that tiles are loaded from was written before.
    unsafe {
        let places = Places {
            sums: batch.scores.as_mut_ptr().cast(),
            sums_stride: STRIDE * size_of::<f32>(),
            input: queries,
            input_stride: head_dim * size_of::<u16>(),
            weight_stride: KEYS_BYTES,
            weight_right: ROW_BYTES,
            ahead: queries,
            ahead_lines: 0,
            rows_ahead: queries,
            fresh: true,
        };
        for page in 0..pages {
            let keys = stride.pages[page].0.as_ptr().cast::<u8>();
            let mut steps = [keys; MOST_PAIRED / DEPTH];
            for (step, start) in steps.iter_mut().enumerate() {
                *start = keys.wrapping_add(step * ROWS * KEYS_BYTES);
            }
            let places = Places { sums: places.sums.add(page * PAGE * size_of::<f32>()), ..places };
            unit.multiply(TALL, true, &places, &steps[..head_dim / DEPTH]);
        }
        batch.weights[set.count * STRIDE..rows * STRIDE].fill(MaybeUninit::new(0));
        let weighed = (batch.scores.as_ptr().cast(), batch.weights.as_mut_ptr().cast());
        weigh_all(&mut batch.states[set.first..][..set.count], weighed, batch.scale, set.visible);
        batch.decay(set);
        // Rows after the last query have no reader. Rows of queries that see other keys must not be multiplied.
        let own = &mut batch.sums[set.first * head_dim..];
        let in_place = rows == set.count || set.is_last;
        if !in_place {
            sums[..set.count * head_dim].copy_from_slice(&own[..set.count * head_dim]);
            sums[set.count * head_dim..rows * head_dim].fill(MaybeUninit::new(0.0));
        }
        let places = Places {
            sums: if in_place { own.as_mut_ptr() } else { sums.as_mut_ptr() }.cast(),
            sums_stride: head_dim * size_of::<f32>(),
            input: batch.weights.as_ptr().cast(),
            input_stride: STRIDE * size_of::<u16>(),
            weight_stride: head_dim * PAIR,
            fresh: false,
            ..places
        };
        for column in (0..head_dim).step_by(2 * WORDS) {
            let steps = values.map(|values| values.wrapping_add(column * PAIR));
            let places = Places { sums: places.sums.add(column * size_of::<f32>()), ..places };
            unit.multiply(TALL, true, &places, &steps[..pages]);
        }
        if !in_place {
            batch.sums[set.first * head_dim..][..set.count * head_dim].copy_from_slice(&sums[..set.count * head_dim]);
        }
    }
}
