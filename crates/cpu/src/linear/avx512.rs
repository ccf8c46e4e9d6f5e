//! AVX-512: twelve rows times a pair of panels at a time, which is 24 of the 32 registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Kernel, TileFn, tiles},
    packed::{GROUP, PANEL, WeightFormat},
    unpacked,
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
    depth_block: 128,
    deep_block: 512,
    accumulate: avx512_f32xf32_f32,
};

/// f32 weights and inputs that hold values rounded to bf16: what unpacked weights become. Its deep blocks are those that
/// are unpacked at once.
pub(super) const ROUNDED_F32: Kernel = Kernel {
    dtype: Dtype::Bf16,
    input: InputFormat::RoundedF32,
    deep_block: unpacked::PANEL_BYTES / (GROUP * PANEL * 4),
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
    deep_block: 512,
    accumulate: avx512bf16_bf16xbf16_f32,
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512_f32xf32_f32(block: &Block) {
    const TILES: [TileFn; 12] = tiles!(f32_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512bf16_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 12] = tiles!(bf16_pairs_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 2) }
}

/// Inputs of a cache line.
const LINE_INPUTS: usize = 16;
/// Bytes by which inputs are fetched ahead of their use: each row is a stream of its own, pages away from the next one,
/// which no processor looks ahead in by itself.
const INPUTS_AHEAD: usize = 128;

/// # Safety
/// The processor has AVX-512; the block keeps its promises and has `ROWS` rows and one pair of panels.
#[target_feature(enable = "avx512f")]
unsafe fn f32_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels. What is
    // fetched may lie anywhere.
    unsafe {
        let mut sums = load_sums::<ROWS>(block);
        let mut ahead = block.ahead;
        let mut weight = block.weight.cast::<f32>();
        let mut input = block.input.cast::<f32>();
        for depth in 0..block.depth {
            // One row's line in a step: rows are fewer than the inputs of a line.
            let row = depth % LINE_INPUTS;
            if row < ROWS {
                let line = input.wrapping_byte_add(row * block.input_stride + INPUTS_AHEAD);
                _mm_prefetch::<_MM_HINT_T0>(line.cast());
            }
            let weights = [_mm512_loadu_ps(weight), _mm512_loadu_ps(weight.byte_add(block.panel_stride))];
            fetch(&mut ahead, block.ahead_step);
            add_products(&mut sums, input, block.input_stride, weights);
            weight = weight.add(PANEL);
            input = input.add(1);
        }
        store_sums(block, &sums);
    }
}

/// # Safety
/// As [`f32_tile`], with bf16 inputs; the depth is even, and the processor has bf16 dot products.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16_pairs_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: as in `f32_tile`; a panel holds pairs of bf16. A pair of inputs is one word, aligned because rows begin on cache lines. The two
    // register types are the same 64 bytes.
    unsafe {
        let bf16 = |words: __m512i| std::mem::transmute::<__m512i, __m512bh>(words);
        let mut sums = load_sums::<ROWS>(block);
        let mut ahead = block.ahead;
        let mut weight = block.weight.cast::<__m512i>();
        let mut input = block.input.cast::<i32>();
        for _ in 0..block.depth / 2 {
            let weights = [_mm512_loadu_si512(weight), _mm512_loadu_si512(weight.byte_add(block.panel_stride))];
            fetch(&mut ahead, block.ahead_step);
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

/// Fetches a line of either panel to come.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn fetch(ahead: &mut [*const u8; GROUP], step: usize) {
    for next in ahead {
        _mm_prefetch::<_MM_HINT_T0>(next.cast());
        *next = next.wrapping_add(step);
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
