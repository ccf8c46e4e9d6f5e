//! Attention on products of bf16 pairs.
//!
//! Both products have the form of a linear layer's: rows of pairs (queries, then weights) times woven rows of pairs
//! (K, then V), twelve rows and 32 columns at a time in 24 registers of sums.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_and_si512, _mm512_cvtne2ps_pbh, _mm512_cvtss_f32,
    _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_max_ps,
    _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_reduce_add_ps, _mm512_reduce_max_ps,
    _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_sub_ps,
};

use demask_tensor::PAGE;

use super::woven::{Batch, EXP2, MOST_AT_A_TIME, STRIDE, State, Stride};

/// Queries that are multiplied at a time.
const TILE: usize = 12;
/// Queries whose scores become weights side by side.
const TOGETHER: usize = 2;
/// Numbers in a vector.
const VECTOR: usize = 16;
/// Below this, `2^x` is 0 in f32.
const LOWEST: f32 = -160.0;
/// bf16 of 1, twice.
const ONES: i32 = 0x3f80_3f80;

const _: () = assert!(TILE <= MOST_AT_A_TIME);

/// Takes all queries of a batch through a stride.
///
/// # Safety
/// The processor has AVX-512 and its products of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn take(batch: &mut Batch, stride: &Stride<'_>) {
    const TILES: [TileFn; TILE] = [
        tile::<1>, tile::<2>, tile::<3>, tile::<4>, tile::<5>, tile::<6>, tile::<7>, tile::<8>, tile::<9>, tile::<10>,
        tile::<11>, tile::<12>,
    ];
    let mut next = 0;
    while let Some(set) = batch.next_set(next, stride) {
        next = set.first + set.count;
        let tiles = set.count.div_ceil(TILE);
        for index in 0..tiles {
            let first = set.count * index / tiles;
            let taken = set.count * (index + 1) / tiles - first;
            // SAFETY: as our caller promises; the queries are the batch's, which has checked the pages.
            unsafe { TILES[taken - 1](batch, set.first + first, stride, set.visible) }
        }
    }
}

/// Takes a number of queries, from one on, through the first visible keys of a stride.
type TileFn = unsafe fn(&mut Batch, usize, &Stride<'_>, usize);

/// # Safety
/// The processor has what [`take`] needs; there are `Q` queries from `first` on; `visible` is from 1 to
/// [`STRIDE`], and its pages are there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn tile<const Q: usize>(batch: &mut Batch, first: usize, stride: &Stride<'_>, visible: usize) {
    let head_dim = batch.head_dim;
    // SAFETY: as our caller promises: queries and sums have `head_dim` numbers for each of `Q` queries, scores and
    // weights a stride for each; a page has `head_dim / 2` or `PAGE / 2` rows of pairs; columns go up to `head_dim` in
    // steps of one or two vectors.
    unsafe {
        let queries = batch.queries.as_ptr().cast::<u16>().add(first * head_dim);
        for page in 0..visible.div_ceil(PAGE) {
            let mut sums = [[_mm512_setzero_ps(); 2]; Q];
            let keys = stride.pages[page].0.as_ptr();
            // While these keys are multiplied, the caches fetch their values and the next keys: as long.
            let next = stride.pages.get(page + 1).map_or(stride.next, |page| page.0);
            for pair in 0..head_dim / 2 {
                fetch(stride.pages[page].1.as_ptr().wrapping_add(pair * 2 * PAGE));
                fetch(next.as_ptr().wrapping_add(pair * 2 * PAGE));
                let row = (queries.add(2 * pair), head_dim);
                multiply::<Q, 2>(&mut sums, row, (keys.add(pair * 2 * PAGE), 0), 1);
            }
            let scores = batch.scores.as_mut_ptr().cast::<f32>().add(page * PAGE);
            for query in 0..Q {
                _mm512_storeu_ps(scores.add(query * STRIDE), sums[query][0]);
                _mm512_storeu_ps(scores.add(query * STRIDE + VECTOR), sums[query][1]);
            }
        }
        let places = (batch.scores.as_ptr().cast(), batch.weights.as_mut_ptr().cast());
        weigh_all(&mut batch.states[first..first + Q], places, batch.scale, visible);
        let mut column = 0;
        while column + 2 * VECTOR <= head_dim {
            add_values::<Q, 2>(batch, first, stride, (column, visible));
            column += 2 * VECTOR;
        }
        if column < head_dim {
            add_values::<Q, 1>(batch, first, stride, (column, visible));
        }
    }
}

/// Adds the products of `pairs` pairs of `Q` rows and `C` vectors of columns. Rows are `stride` bf16 apart, the woven
/// rows of the other side too.
///
/// # Safety
/// All of them are readable, and the processor has products of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn multiply<const Q: usize, const C: usize>(
    sums: &mut [[__m512; C]; Q],
    (rows, row_stride): (*const u16, usize),
    (woven, woven_stride): (*const u16, usize),
    pairs: usize,
) {
    for pair in 0..pairs {
        // SAFETY: the caller vouches for the memory; pairs of rows need not be aligned.
        unsafe {
            let columns: [__m512i; C] =
                std::array::from_fn(|column| load(woven.add(pair * woven_stride + column * 2 * VECTOR)));
            for query in 0..Q {
                let row = _mm512_set1_epi32(rows.add(query * row_stride + 2 * pair).cast::<i32>().read_unaligned());
                for column in 0..C {
                    sums[query][column] = _mm512_dpbf16_ps(sums[query][column], bf16(row), bf16(columns[column]));
                }
            }
        }
    }
}

/// `sums = sums * decay + sum of weight * value` for `C` vectors of columns from `column` on.
///
/// # Safety
/// As [`tile`], and there are as many columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn add_values<const Q: usize, const C: usize>(
    batch: &mut Batch,
    first: usize,
    stride: &Stride<'_>,
    (column, visible): (usize, usize),
) {
    let head_dim = batch.head_dim;
    // SAFETY: as our caller promises; pairs of keys are all visible but the last one, of which one may not be.
    unsafe {
        let totals = batch.sums.as_mut_ptr().cast::<f32>().add(first * head_dim + column);
        let mut sums = [[_mm512_setzero_ps(); C]; Q];
        for query in 0..Q {
            let decay = _mm512_set1_ps(batch.states[first + query].decay);
            for part in 0..C {
                let total = _mm512_loadu_ps(totals.add(query * head_dim + part * VECTOR));
                sums[query][part] = _mm512_mul_ps(total, decay);
            }
        }
        for page in 0..visible.div_ceil(PAGE) {
            let pairs = (visible - page * PAGE).min(PAGE) / 2;
            let weights = batch.weights.as_ptr().cast::<u16>().add(page * PAGE);
            let values = stride.pages[page].1.as_ptr().add(2 * column);
            multiply::<Q, C>(&mut sums, (weights, STRIDE), (values, 2 * head_dim), pairs);
        }
        if visible % 2 == 1 {
            let at = visible - 1;
            let values = stride.pages[at / PAGE].1.as_ptr().add(at % PAGE * head_dim + 2 * column);
            // The other one's values are not looked at: 0 times infinity would not be 0.
            let lower = _mm512_set1_epi32(0xffff);
            for part in 0..C {
                let values = _mm512_and_si512(load(values.add(part * 2 * VECTOR)), lower);
                for query in 0..Q {
                    let weight = i32::from(batch.weights[query * STRIDE + at].assume_init());
                    sums[query][part] =
                        _mm512_dpbf16_ps(sums[query][part], bf16(_mm512_set1_epi32(weight)), bf16(values));
                }
            }
        }
        for query in 0..Q {
            for part in 0..C {
                _mm512_storeu_ps(totals.add(query * head_dim + part * VECTOR), sums[query][part]);
            }
        }
    }
}

/// Turns a stride of scores of some queries into weights, [`weigh`] for each of them.
///
/// # Safety
/// As [`weigh`], for as many queries as there are states.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn weigh_all(
    states: &mut [State],
    (scores, weights): (*const f32, *mut u16),
    scale: f32,
    visible: usize,
) {
    let (many, rest) = states.as_chunks_mut::<TOGETHER>();
    let start = many.len() * TOGETHER * STRIDE;
    // SAFETY: as our caller promises.
    unsafe {
        for (index, states) in many.iter_mut().enumerate() {
            let start = index * TOGETHER * STRIDE;
            weigh(states, (scores.add(start), weights.add(start)), scale, visible);
        }
        for (index, state) in rest.iter_mut().enumerate() {
            let start = start + index * STRIDE;
            weigh(std::array::from_mut(state), (scores.add(start), weights.add(start)), scale, visible);
        }
    }
}

/// Turns a stride of scores into weights relative to the new largest scores; those of masked keys are exactly 0. A query's
/// largest score and its sum cross lanes, which takes long: those of `Q` queries do so side by side.
///
/// # Safety
/// Scores can be read and weights written up to the end of the page of the last visible key, [`STRIDE`] after each other;
/// the processor has AVX-512 and its products of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn weigh<const Q: usize>(
    states: &mut [State; Q],
    (scores, weights): (*const f32, *mut u16),
    scale: f32,
    visible: usize,
) {
    // SAFETY: as our caller promises: vectors go up to the end of a page.
    unsafe {
        let vectors = visible.div_ceil(PAGE) * PAGE / VECTOR;
        let mut most = states.each_ref().map(|state| _mm512_set1_ps(state.largest));
        for vector in 0..vectors {
            let seen = seen(visible, vector);
            for query in 0..Q {
                let score = _mm512_loadu_ps(scores.add(query * STRIDE + vector * VECTOR));
                most[query] = _mm512_mask_max_ps(most[query], seen, most[query], score);
            }
        }
        let largest = most.map(|most| _mm512_reduce_max_ps(most));
        let (factor, shifts) = (_mm512_set1_ps(scale), largest.map(|largest| _mm512_set1_ps(largest * scale)));
        let ones = bf16(_mm512_set1_epi32(ONES));
        let mut sums = [_mm512_setzero_ps(); Q];
        for vector in (0..vectors).step_by(2) {
            let masks = [seen(visible, vector), seen(visible, vector + 1)];
            for query in 0..Q {
                let place = query * STRIDE + vector * VECTOR;
                let weigh = |half: usize| {
                    let score = _mm512_loadu_ps(scores.add(place + half * VECTOR));
                    _mm512_maskz_mov_ps(masks[half], exp2(_mm512_fmsub_ps(score, factor, shifts[query])))
                };
                let pairs = _mm512_cvtne2ps_pbh(weigh(1), weigh(0));
                _mm512_storeu_si512(weights.add(place).cast(), std::mem::transmute::<__m512bh, __m512i>(pairs));
                sums[query] = _mm512_dpbf16_ps(sums[query], pairs, ones);
            }
        }
        let sums = sums.map(|sum| _mm512_reduce_add_ps(sum));
        for (query, state) in states.iter_mut().enumerate() {
            let old = _mm512_set1_ps(state.largest);
            state.decay = _mm512_cvtss_f32(exp2(_mm512_fmsub_ps(old, factor, shifts[query])));
            state.weight = state.weight * state.decay + sums[query];
            state.largest = largest[query];
        }
    }
}

/// Bits of the numbers of a vector that belong to visible keys.
#[inline(always)]
fn seen(visible: usize, vector: usize) -> u16 {
    let count = visible.saturating_sub(vector * VECTOR).min(VECTOR);
    ((1u32 << count) - 1) as u16
}

/// `2^x` to within a few units in the last place, 0 far below 0.
///
/// `x = n + r` with the integer `n` nearest to `x`, as in [`EXP2`].
#[inline]
#[target_feature(enable = "avx512f")]
fn exp2(x: __m512) -> __m512 {
    // The second operand is the result if one is not a number: it stays so.
    let x = _mm512_max_ps(_mm512_set1_ps(LOWEST), x);
    // To the nearest integer.
    let n = _mm512_roundscale_ps::<0>(x);
    let r = _mm512_sub_ps(x, n);
    let mut value = _mm512_set1_ps(EXP2[0]);
    for term in &EXP2[1..] {
        value = _mm512_fmadd_ps(value, r, _mm512_set1_ps(*term));
    }
    _mm512_scalef_ps(value, n)
}

/// # Safety
/// 64 bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(from: *const u16) -> __m512i {
    // SAFETY: as our caller promises.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

/// Asks the caches for 128 bytes.
#[inline(always)]
fn fetch(from: *const u16) {
    // SAFETY: a prefetch reads nothing, wherever it points.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
        _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(64));
    }
}

/// Words as pairs of bf16.
#[inline(always)]
fn bf16(words: __m512i) -> __m512bh {
    // SAFETY: the two register types are the same 64 bytes.
    unsafe { std::mem::transmute(words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Tier};

    #[test]
    fn powers_of_two_are_exact_enough_and_end_at_zero() {
        if !Isa::best().has(Tier::Avx512) {
            return;
        }
        // SAFETY: the processor has AVX-512.
        let power = |x: f32| unsafe { _mm512_cvtss_f32(exp2(_mm512_set1_ps(x))) };
        for step in 0..100_000 {
            let x = -125.9 * step as f32 / 100_000.0 + 0.01;
            let exact = f64::from(x).exp2();
            assert!((f64::from(power(x)) / exact - 1.0).abs() < 4e-7, "{x}");
        }
        assert_eq!([power(0.0), power(-1.0), power(-160.0), power(f32::NEG_INFINITY)], [1.0, 0.5, 0.0, 0.0]);
        assert!(power(f32::NAN).is_nan());
    }
}
