//! AVX-512: twelve rows times a pair of panels at a time, which is 24 of the 32 registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_and_si512, _mm512_castsi512_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_sllv_epi32,
    _mm512_storeu_ps, _mm512_xor_si512,
};

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Kernel, TileFn, tiles},
    packed::{GROUP, PANEL, WeightFormat},
};
use crate::isa::Tier;

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "avx512_f32xf32_f32",
    tier: Tier::Avx512,
    executes: Tier::Avx512,
    vnni: false,
    dtype: Dtype::F32,
    input: InputFormat::F32,
    weight: WeightFormat::F32,
    row_tile: 12,
    depth_block: 256,
    accumulate: avx512_f32xf32_f32,
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "avx512_bf16xbf16_f32",
    dtype: Dtype::Bf16,
    input: InputFormat::RoundedF32,
    weight: WeightFormat::Bf16Pairs,
    accumulate: avx512_bf16xbf16_f32,
    ..F32
};

/// bf16 weights, multiplied in pairs.
pub(super) const BF16_PAIRS: Kernel = Kernel {
    name: "avx512bf16_bf16xbf16_f32",
    tier: Tier::Avx512Bf16,
    executes: Tier::Avx512Bf16,
    vnni: false,
    dtype: Dtype::Bf16,
    input: InputFormat::Bf16,
    weight: WeightFormat::Bf16Pairs,
    row_tile: 12,
    depth_block: 512,
    accumulate: avx512bf16_bf16xbf16_f32,
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512_f32xf32_f32(block: &Block) {
    const TILES: [TileFn; 12] = tiles!(f32_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 12] = tiles!(bf16_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512bf16_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 12] = tiles!(bf16_pairs_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES) }
}

/// # Safety
/// The processor has AVX-512; the block keeps its promises and has `ROWS` rows and one pair of panels.
#[target_feature(enable = "avx512f")]
unsafe fn f32_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels.
    unsafe {
        let mut sums = load_sums::<ROWS>(block);
        let mut weight = block.weight.cast::<f32>();
        let mut input = block.input.cast::<f32>();
        for _ in 0..block.depth {
            let weights = [_mm512_loadu_ps(weight), _mm512_loadu_ps(weight.byte_add(block.panel_stride))];
            add_products(&mut sums, input, block.input_stride, weights);
            weight = weight.add(PANEL);
            input = input.add(1);
        }
        store_sums(block, &sums);
    }
}

/// # Safety
/// As [`f32_tile`]; the depth is even.
#[target_feature(enable = "avx512f")]
unsafe fn bf16_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: as in `f32_tile`; a panel holds pairs of bf16.
    unsafe {
        let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let sixteen = _mm512_set1_epi32(16);
        // The first of a pair must be shifted up, the second is there: one loop body serves both in turn, because two
        // bodies need more registers than there are.
        let mut shift = sixteen;
        let mut sums = load_sums::<ROWS>(block);
        let mut input = block.input.cast::<f32>();
        for k in 0..block.depth {
            let pairs = block.weight.cast::<__m512i>().add(k / 2);
            let weights = [pairs, pairs.byte_add(block.panel_stride)].map(|pairs| {
                let shifted = _mm512_sllv_epi32(_mm512_loadu_si512(pairs), shift);
                _mm512_castsi512_ps(_mm512_and_si512(shifted, upper))
            });
            add_products(&mut sums, input, block.input_stride, weights);
            shift = _mm512_xor_si512(shift, sixteen);
            input = input.add(1);
        }
        store_sums(block, &sums);
    }
}

/// # Safety
/// As [`bf16_tile`], with bf16 inputs, and the processor has bf16 dot products.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16_pairs_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: as in `bf16_tile`; a pair of inputs is one word, aligned because rows begin on cache lines. The two
    // register types are the same 64 bytes.
    unsafe {
        let bf16 = |words: __m512i| std::mem::transmute::<__m512i, __m512bh>(words);
        let mut sums = load_sums::<ROWS>(block);
        let mut weight = block.weight.cast::<__m512i>();
        let mut input = block.input.cast::<i32>();
        for _ in 0..block.depth / 2 {
            let weights = [_mm512_loadu_si512(weight), _mm512_loadu_si512(weight.byte_add(block.panel_stride))];
            for row in 0..ROWS {
                let pair = _mm512_set1_epi32(*input.byte_add(row * block.input_stride));
                for panel in 0..GROUP {
                    sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], bf16(pair), bf16(weights[panel]));
                }
            }
            weight = weight.add(1);
            input = input.add(1);
        }
        store_sums(block, &sums);
    }
}

/// Adds the products of one input of each row.
///
/// # Safety
/// `input` points to a float in each of `ROWS` rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_products<const ROWS: usize>(
    sums: &mut [[__m512; GROUP]; ROWS],
    input: *const f32,
    stride: usize,
    weights: [__m512; GROUP],
) {
    for row in 0..ROWS {
        // SAFETY: the caller vouches for the rows.
        let x = unsafe { _mm512_set1_ps(*input.byte_add(row * stride)) };
        for panel in 0..GROUP {
            sums[row][panel] = _mm512_fmadd_ps(x, weights[panel], sums[row][panel]);
        }
    }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_sums<const ROWS: usize>(block: &Block) -> [[__m512; GROUP]; ROWS] {
    let mut sums = [[_mm512_setzero_ps(); GROUP]; ROWS];
    for row in 0..ROWS {
        for panel in 0..GROUP {
            // SAFETY: the block promises initialised sums of two panels in each row.
            sums[row][panel] = unsafe { _mm512_loadu_ps(block.sums.add(row * block.sums_stride + panel * PANEL)) };
        }
    }
    sums
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_sums<const ROWS: usize>(block: &Block, sums: &[[__m512; GROUP]; ROWS]) {
    for row in 0..ROWS {
        for panel in 0..GROUP {
            // SAFETY: the block promises sums of two panels in each row, which nobody else accesses.
            unsafe { _mm512_storeu_ps(block.sums.add(row * block.sums_stride + panel * PANEL), sums[row][panel]) }
        }
    }
}
