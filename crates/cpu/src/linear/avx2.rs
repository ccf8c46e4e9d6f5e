//! AVX2 and FMA: six rows times one panel at a time, or three times both, which is twelve of the sixteen registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::{
    asm,
    x86_64::{
        __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_and_si256, _mm256_castsi256_ps, _mm256_loadu_ps,
        _mm256_loadu_si256, _mm256_set1_epi32, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
    },
};

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Kernel, TileFn},
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
    const TILES: [TileFn; 6] =
        [f32_tile::<1, 2>, f32_tile::<2, 2>, f32_tile::<3, 2>, f32_tile::<4, 1>, f32_tile::<5, 1>, f32_tile::<6, 1>];
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx2_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 6] = [
        bf16_tile::<1, 2>,
        bf16_tile::<2, 2>,
        bf16_tile::<3, 2>,
        bf16_tile::<4, 1>,
        bf16_tile::<5, 1>,
        bf16_tile::<6, 1>,
    ];
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 2) }
}

/// Multiplies `TOGETHER` panels of the pair at a time: both, where their sums fit into the registers.
///
/// # Safety
/// The processor has AVX2 and FMA; the block keeps its promises and has `ROWS` rows and one pair of panels.
#[target_feature(enable = "avx2,fma")]
unsafe fn f32_tile<const ROWS: usize, const TOGETHER: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels. What is
    // fetched may lie anywhere.
    unsafe {
        for first in (0..GROUP).step_by(TOGETHER) {
            let mut sums = load_sums::<ROWS, TOGETHER>(block, first);
            let mut weight = block.weight.add(first * block.panel_stride).cast::<f32>();
            let mut input = block.input.cast::<f32>();
            let mut ahead = ahead::<TOGETHER>(block, first);
            for _ in 0..block.depth {
                fetch(&mut ahead, block.ahead_step);
                for (panel, sums) in sums.iter_mut().enumerate() {
                    let weight = weight.byte_add(panel * block.panel_stride);
                    let weights = [_mm256_loadu_ps(weight), _mm256_loadu_ps(weight.add(LANES))];
                    add_products(sums, input, block.input_stride, weights);
                }
                weight = weight.add(PANEL);
                input = input.add(1);
            }
            store_sums(block, first, &sums);
        }
    }
}

/// As [`f32_tile`], with weights of bf16.
///
/// # Safety
/// As [`f32_tile`]; the depth is even.
#[target_feature(enable = "avx2,fma")]
unsafe fn bf16_tile<const ROWS: usize, const TOGETHER: usize>(block: &Block) {
    // SAFETY: as in `f32_tile`; a panel holds pairs of bf16.
    unsafe {
        let odd = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        for first in (0..GROUP).step_by(TOGETHER) {
            let mut sums = load_sums::<ROWS, TOGETHER>(block, first);
            let mut weight = block.weight.add(first * block.panel_stride).cast::<__m256i>();
            let mut input = block.input.cast::<f32>();
            let mut ahead = ahead::<TOGETHER>(block, first);
            for _ in 0..block.depth / 2 {
                fetch(&mut ahead, block.ahead_step);
                for (panel, sums) in sums.iter_mut().enumerate() {
                    let weight = weight.byte_add(panel * block.panel_stride);
                    let pairs = [_mm256_loadu_si256(weight), _mm256_loadu_si256(weight.add(1))];
                    let even = pairs.map(|pairs| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)));
                    add_products(sums, input, block.input_stride, even);
                    let odd = pairs.map(|pairs| _mm256_castsi256_ps(_mm256_and_si256(pairs, odd)));
                    add_products(sums, input.add(1), block.input_stride, odd);
                }
                weight = weight.add(PARTS);
                input = input.add(2);
            }
            store_sums(block, first, &sums);
        }
    }
}

/// Sums of a panel: `ROWS` rows of two registers.
type PanelSums<const ROWS: usize> = [[__m256; PARTS]; ROWS];

/// Adds the products of one input of each row.
///
/// # Safety
/// `input` points to a float in each of `ROWS` rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_products<const ROWS: usize>(
    sums: &mut PanelSums<ROWS>,
    input: *const f32,
    stride: usize,
    [low, high]: [__m256; PARTS],
) {
    for (row, [low_sum, high_sum]) in sums.iter_mut().enumerate() {
        let input = input.wrapping_byte_add(row * stride);
        // In one piece: the compiler would read the inputs of all rows first, and has no registers for them.
        // SAFETY: the caller vouches for the rows.
        unsafe {
            asm!(
                "vbroadcastss {x}, dword ptr [{input}]",
                "vfmadd231ps {low_sum}, {x}, {low}",
                "vfmadd231ps {high_sum}, {x}, {high}",
                x = out(ymm_reg) _,
                input = in(reg) input,
                low_sum = inout(ymm_reg) *low_sum,
                high_sum = inout(ymm_reg) *high_sum,
                low = in(ymm_reg) low,
                high = in(ymm_reg) high,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }
}

/// Addresses that a tile fetches from for panels `first` and following ones: each panel its own, or the share of both
/// where panels are multiplied one after the other.
#[inline]
fn ahead<const TOGETHER: usize>(block: &Block, first: usize) -> [*const u8; TOGETHER] {
    std::array::from_fn(|panel| block.ahead[first + panel])
}

/// Fetches a line of each panel to come.
#[inline]
#[target_feature(enable = "avx2")]
fn fetch<const TOGETHER: usize>(ahead: &mut [*const u8; TOGETHER], step: usize) {
    for next in ahead {
        _mm_prefetch::<_MM_HINT_T0>(next.cast());
        *next = next.wrapping_add(step);
    }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load_sums<const ROWS: usize, const TOGETHER: usize>(
    block: &Block,
    first: usize,
) -> [PanelSums<ROWS>; TOGETHER] {
    let mut sums = [[[_mm256_setzero_ps(); PARTS]; ROWS]; TOGETHER];
    for panel in 0..TOGETHER {
        for row in 0..ROWS {
            for part in 0..PARTS {
                // SAFETY: the block promises initialised sums of two panels in each row.
                sums[panel][row][part] = unsafe { _mm256_loadu_ps(place(block, row, first + panel, part)) };
            }
        }
    }
    sums
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store_sums<const ROWS: usize, const TOGETHER: usize>(
    block: &Block,
    first: usize,
    sums: &[PanelSums<ROWS>; TOGETHER],
) {
    for panel in 0..TOGETHER {
        for row in 0..ROWS {
            for part in 0..PARTS {
                // SAFETY: the block promises sums of two panels in each row, which nobody else accesses.
                unsafe { _mm256_storeu_ps(place(block, row, first + panel, part), sums[panel][row][part]) }
            }
        }
    }
}

/// Place of a register of sums.
#[inline(always)]
fn place(block: &Block, row: usize, panel: usize, part: usize) -> *mut f32 {
    block.sums.wrapping_add(row * block.sums_stride + panel * PANEL + part * LANES)
}
