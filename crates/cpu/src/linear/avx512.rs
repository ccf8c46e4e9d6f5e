//! AVX-512: twelve rows times a pair of panels at a time, which is 24 of the 32 registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_set1_ps,
};

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Instructions, Kernel, tiles},
    packed::{GROUP, PANEL},
    portable, unpacked,
};
use crate::{fetch::near, isa::Tier};

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "avx512_f32xf32_f32",
    instructions: Instructions::of(Tier::Avx512),
    row_tile: 12,
    depth_block: 128,
    deep_block: 512,
    accumulate: avx512_f32xf32_f32,
    ..portable::F32
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
    instructions: Instructions::of(Tier::Avx512Bf16),
    input: InputFormat::Bf16,
    row_tile: 12,
    depth_block: 512,
    deep_block: 512,
    accumulate: avx512bf16_bf16xbf16_f32,
    ..portable::BF16
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512_f32xf32_f32(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&tiles!((f32_tile): 1 2 3 4 5 6 7 8 9 10 11 12), 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512bf16_bf16xbf16_f32(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&tiles!((bf16_pairs_tile): 1 2 3 4 5 6 7 8 9 10 11 12), 2) }
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
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
        let mut ahead = block.ahead;
        let mut weight = block.weight.cast::<f32>();
        let mut input = block.input.cast::<f32>();
        for depth in 0..block.depth {
            // One row's line in a step: rows are fewer than the inputs of a line.
            let row = depth % LINE_INPUTS;
            if row < ROWS {
                near(input.wrapping_byte_add(row * block.input_stride + INPUTS_AHEAD).cast());
            }
            let weights = [_mm512_loadu_ps(weight), _mm512_loadu_ps(weight.byte_add(block.panel_stride))];
            fetch(&mut ahead, block.ahead_step);
            for row in 0..ROWS {
                let x = _mm512_set1_ps(*input.byte_add(row * block.input_stride));
                for panel in 0..GROUP {
                    sums[row][panel] = _mm512_fmadd_ps(x, weights[panel], sums[row][panel]);
                }
            }
            weight = weight.add(PANEL);
            input = input.add(1);
        }
        block.store_sums(0, &sums);
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
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
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
        block.store_sums(0, &sums);
    }
}

/// Fetches a line of either panel to come.
#[inline(always)]
fn fetch(ahead: &mut [*const u8; GROUP], step: usize) {
    for next in ahead {
        near(*next);
        *next = next.wrapping_add(step);
    }
}
