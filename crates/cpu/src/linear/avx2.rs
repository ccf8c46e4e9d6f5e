//! AVX2 and FMA: six rows times one panel at a time, which is twelve of the sixteen registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
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
    name: "avx2_f32xf32_f32",
    tier: Tier::Avx2,
    executes: Tier::Avx2,
    vnni: false,
    dtype: Dtype::F32,
    input: InputFormat::F32,
    weight: WeightFormat::F32,
    row_tile: 6,
    depth_block: 256,
    deep_block: 256,
    accumulate: avx2_f32xf32_f32,
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "avx2_bf16xbf16_f32",
    dtype: Dtype::Bf16,
    input: InputFormat::RoundedF32,
    weight: WeightFormat::Bf16Pairs,
    accumulate: avx2_bf16xbf16_f32,
    ..F32
};

/// Registers in a panel.
const PARTS: usize = 2;
/// Floats in a register.
const LANES: usize = 8;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx2_f32xf32_f32(block: &Block) {
    const TILES: [TileFn; 6] = tiles!(f32_tile: 1 2 3 4 5 6);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx2_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 6] = tiles!(bf16_tile: 1 2 3 4 5 6);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 2) }
}

/// # Safety
/// The processor has AVX2 and FMA; the block keeps its promises and has `ROWS` rows and one pair of panels.
#[target_feature(enable = "avx2,fma")]
unsafe fn f32_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels.
    unsafe {
        for panel in 0..GROUP {
            let mut sums = load_sums::<ROWS>(block, panel);
            let mut weight = block.weight.add(panel * block.panel_stride).cast::<f32>();
            let mut input = block.input.cast::<f32>();
            for _ in 0..block.depth {
                let weights = [_mm256_loadu_ps(weight), _mm256_loadu_ps(weight.add(LANES))];
                add_products(&mut sums, input, block.input_stride, weights);
                weight = weight.add(PANEL);
                input = input.add(1);
            }
            store_sums(block, panel, &sums);
        }
    }
}

/// # Safety
/// As [`f32_tile`]; the depth is even.
#[target_feature(enable = "avx2,fma")]
unsafe fn bf16_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: as in `f32_tile`; a panel holds pairs of bf16.
    unsafe {
        let odd = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        for panel in 0..GROUP {
            let mut sums = load_sums::<ROWS>(block, panel);
            let mut weight = block.weight.add(panel * block.panel_stride).cast::<__m256i>();
            let mut input = block.input.cast::<f32>();
            for _ in 0..block.depth / 2 {
                let pairs = [_mm256_loadu_si256(weight), _mm256_loadu_si256(weight.add(1))];
                let first = pairs.map(|pairs| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)));
                add_products(&mut sums, input, block.input_stride, first);
                let second = pairs.map(|pairs| _mm256_castsi256_ps(_mm256_and_si256(pairs, odd)));
                add_products(&mut sums, input.add(1), block.input_stride, second);
                weight = weight.add(PARTS);
                input = input.add(2);
            }
            store_sums(block, panel, &sums);
        }
    }
}

/// Adds the products of one input of each row.
///
/// # Safety
/// `input` points to a float in each of `ROWS` rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_products<const ROWS: usize>(
    sums: &mut [[__m256; PARTS]; ROWS],
    input: *const f32,
    stride: usize,
    weights: [__m256; PARTS],
) {
    for row in 0..ROWS {
        // SAFETY: the caller vouches for the rows.
        let x = unsafe { _mm256_set1_ps(*input.byte_add(row * stride)) };
        for part in 0..PARTS {
            sums[row][part] = _mm256_fmadd_ps(x, weights[part], sums[row][part]);
        }
    }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load_sums<const ROWS: usize>(block: &Block, panel: usize) -> [[__m256; PARTS]; ROWS] {
    let mut sums = [[_mm256_setzero_ps(); PARTS]; ROWS];
    for row in 0..ROWS {
        for part in 0..PARTS {
            // SAFETY: the block promises initialised sums of two panels in each row.
            sums[row][part] =
                unsafe { _mm256_loadu_ps(block.sums.add(row * block.sums_stride + panel * PANEL + part * LANES)) };
        }
    }
    sums
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store_sums<const ROWS: usize>(block: &Block, panel: usize, sums: &[[__m256; PARTS]; ROWS]) {
    for row in 0..ROWS {
        for part in 0..PARTS {
            // SAFETY: the block promises sums of two panels in each row, which nobody else accesses.
            unsafe {
                let start = block.sums.add(row * block.sums_stride + panel * PANEL + part * LANES);
                _mm256_storeu_ps(start, sums[row][part]);
            }
        }
    }
}
