//! Attention on products of bf16 pairs.
//!
//! Both products have the form of a linear layer's: rows of pairs (queries, then weights) times woven rows of pairs
//! (K, then V), twelve rows and 32 columns at a time in 24 registers of sums.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_ps, _mm512_and_si512, _mm512_cvtne2ps_pbh,
    _mm512_cvtss_f32, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_max_ps, _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_reduce_add_ps, _mm512_reduce_max_ps,
    _mm512_reduce_ps, _mm512_scalef_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    _mm512_storeu_si512,
};

use demask_tensor::PAGE;

use super::woven::{Batch, MOST_AT_A_TIME, STRIDE, State, Stride};

/// Queries that are multiplied at a time.
const TILE: usize = 12;
/// Queries whose largest scores are found side by side.
const TOGETHER: usize = 4;
/// Numbers in a vector.
const VECTOR: usize = 16;
/// The polynomial of degree 4 that is nearest to `2^r` for `r` from 0 to 1, relative to it, the highest power first. It is
/// 2.6e-6 off at most, where rounding a weight to bf16 moves it by 2e-3.
const EXP2: [f32; 5] = [0.013_534_168, 0.052_011_46, 0.241_442_76, 0.693_003_83, 1.000_002_6];
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

/// Turns a stride of scores of some queries into weights relative to the new largest scores; those of masked keys are exactly
/// 0. All largest scores are found first: each crosses lanes, which takes long, and weights would wait for it.
///
/// # Safety
/// There are as many queries as states, [`STRIDE`] after each other. Scores can be read and weights written up to the end of
/// the page of the last visible key. The processor has AVX-512 and its products of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
pub(super) unsafe fn weigh_all(
    states: &mut [State],
    (scores, weights): (*const f32, *mut u16),
    scale: f32,
    visible: usize,
) {
    // SAFETY: as our caller promises.
    unsafe {
        let (many, rest) = states.as_chunks_mut::<TOGETHER>();
        let first = many.len() * TOGETHER;
        for (index, states) in many.iter_mut().enumerate() {
            find_largest(states, scores.add(index * TOGETHER * STRIDE), scale, visible);
        }
        for (index, state) in rest.iter_mut().enumerate() {
            find_largest(std::array::from_mut(state), scores.add((first + index) * STRIDE), scale, visible);
        }
        for (query, state) in states.iter_mut().enumerate() {
            weigh(state, (scores.add(query * STRIDE), weights.add(query * STRIDE)), scale, visible);
        }
    }
}

/// Finds the largest scores so far, and the factors of what is relative to those before.
///
/// # Safety
/// As [`weigh_all`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn find_largest<const Q: usize>(states: &mut [State; Q], scores: *const f32, scale: f32, visible: usize) {
    let mut most = states.each_ref().map(|state| _mm512_set1_ps(state.largest));
    // SAFETY: as our caller promises: vectors go up to the end of a page.
    unsafe {
        for vector in 0..visible / VECTOR {
            for query in 0..Q {
                let score = _mm512_loadu_ps(scores.add(query * STRIDE + vector * VECTOR));
                most[query] = _mm512_max_ps(most[query], score);
            }
        }
        if !visible.is_multiple_of(VECTOR) {
            let vector = visible / VECTOR;
            for query in 0..Q {
                let score = _mm512_loadu_ps(scores.add(query * STRIDE + vector * VECTOR));
                most[query] = _mm512_mask_max_ps(most[query], seen(visible, vector), most[query], score);
            }
        }
    }
    for (state, most) in states.iter_mut().zip(most) {
        let largest = _mm512_reduce_max_ps(most);
        let apart = state.largest * scale - largest * scale;
        // Without a key so far there is nothing to scale.
        let as_before = state.largest == largest || state.weight == 0.0;
        state.decay = if as_before { 1.0 } else { _mm512_cvtss_f32(exp2(_mm512_set1_ps(apart))) };
        state.largest = largest;
    }
}

/// Turns a stride of one query's scores into weights, and sums them.
///
/// # Safety
/// As [`weigh_all`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
unsafe fn weigh(state: &mut State, (scores, weights): (*const f32, *mut u16), scale: f32, visible: usize) {
    let (factor, shift) = (_mm512_set1_ps(scale), _mm512_set1_ps(state.largest * scale));
    let ones = bf16(_mm512_set1_epi32(ONES));
    let mut sums = [_mm512_setzero_ps(); 2];
    for page in 0..visible.div_ceil(PAGE) {
        let is_whole = (page + 1) * PAGE <= visible;
        // SAFETY: as our caller promises: vectors go up to the end of a page. The two register types are the same 64 bytes.
        unsafe {
            let weigh = |half: usize| {
                let score = _mm512_loadu_ps(scores.add(page * PAGE + half * VECTOR));
                let weight = exp2(_mm512_fmsub_ps(score, factor, shift));
                if is_whole { weight } else { _mm512_maskz_mov_ps(seen(visible, 2 * page + half), weight) }
            };
            let pairs = _mm512_cvtne2ps_pbh(weigh(1), weigh(0));
            _mm512_storeu_si512(weights.add(page * PAGE).cast(), std::mem::transmute::<__m512bh, __m512i>(pairs));
            sums[page % 2] = _mm512_dpbf16_ps(sums[page % 2], pairs, ones);
        }
    }
    state.weight = state.weight * state.decay + _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
}

/// Bits of the numbers of a vector that belong to visible keys.
#[inline(always)]
fn seen(visible: usize, vector: usize) -> u16 {
    let count = visible.saturating_sub(vector * VECTOR).min(VECTOR);
    ((1u32 << count) - 1) as u16
}

/// `2^x` as near as [`EXP2`] is, 0 far below 0: a power of the fraction of `x`, scaled by the integer below.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn exp2(x: __m512) -> __m512 {
    // Less the next integer below: of infinity 0, and no number stays none.
    let fraction = _mm512_reduce_ps::<1>(x);
    let mut value = _mm512_set1_ps(EXP2[0]);
    for term in &EXP2[1..] {
        value = _mm512_fmadd_ps(value, fraction, _mm512_set1_ps(*term));
    }
    _mm512_scalef_ps(value, x)
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
    use crate::{
        isa::{Isa, Tier},
        linear::activation::round_bf16,
    };

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
            assert!((f64::from(power(x)) / exact - 1.0).abs() < 2.8e-6, "{x}");
        }
        assert_eq!([power(-160.0), power(-1e30), power(f32::NEG_INFINITY)], [0.0; 3]);
        // The largest weight is 1.
        assert_eq!(round_bf16(power(0.0)), 0x3f80);
        assert!(power(f32::NAN).is_nan());
    }
}
