//! Matrix products of bf16 on ARM: two rows times two outputs over four inputs in one instruction.
//!
//! Up to eight rows meet eight outputs at a time, in sixteen registers of sums; fewer rows meet more outputs. Rows come
//! in pairs; the last of an odd number is paired with itself, and the second result is never read. The instruction
//! rounds each pair of products, and flushes numbers below the normal range to zero.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::aarch64::{
    float32x4_t, vdupq_n_f32, vdupq_n_u32, vld1q_u32, vreinterpretq_f32_f64, vreinterpretq_f64_f32,
    vreinterpretq_u32_u64, vreinterpretq_u64_u32, vzip1q_f64, vzip1q_u32, vzip1q_u64, vzip2q_f64, vzip2q_u32,
    vzip2q_u64,
};

use super::{
    input::InputFormat,
    kernel::{Block, Instructions, Kernel, LINE, tiles},
    neon::{Ahead, WHOLE_ROWS, apart, place, registers},
    packed::{GROUP, PANEL},
    portable,
};
use crate::{instructions::bfmmla, isa::Tier};

/// bf16 weights.
pub(super) const BF16: Kernel = Kernel {
    name: "bf16i8mm_bf16xbf16_f32",
    instructions: Instructions::of(Tier::Bf16I8mm),
    input: InputFormat::Bf16,
    row_tile: WHOLE_ROWS,
    depth_block: 512,
    deep_block: 512,
    accumulate: bf16i8mm_bf16xbf16_f32,
    ..portable::BF16
};

/// Registers of four outputs in a pair of panels.
const PAIR_REGISTERS: usize = GROUP * PANEL / 4;
/// Inputs that are read at once.
const INPUTS: usize = 8;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn bf16i8mm_bf16xbf16_f32(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&tiles!((tile), registers: 1 2 3 4 5 6 7 8), 2) }
}

/// # Safety
/// The processor has NEON and matrix products of bf16; the block keeps its promises, has `ROWS` rows and one pair of panels,
/// and its depth is a multiple of [`INPUTS`].
#[target_feature(enable = "neon,bf16")]
unsafe fn tile<const ROWS: usize, const REGISTERS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels.
    unsafe {
        for first in (0..PAIR_REGISTERS).step_by(REGISTERS) {
            let mut sums = load_sums::<ROWS, REGISTERS>(block, first);
            let mut ahead = Ahead::new(block, first, REGISTERS, INPUTS / 2);
            let mut weight = place(block, first);
            let mut input = block.input.cast::<u16>();
            for _ in 0..block.depth / INPUTS {
                ahead.fetch();
                let mut rows = [[vdupq_n_u32(0); 2]; ROWS];
                for pair in 0..ROWS.div_ceil(2) {
                    let row = |row: usize| vld1q_u32(input.byte_add(row * block.input_stride).cast());
                    let row = |index: usize| vreinterpretq_u64_u32(row(index));
                    let (upper, lower) = (row(2 * pair), row((2 * pair + 1).min(ROWS - 1)));
                    rows[pair][0] = vreinterpretq_u32_u64(vzip1q_u64(upper, lower));
                    rows[pair][1] = vreinterpretq_u32_u64(vzip2q_u64(upper, lower));
                }
                for four in 0..2 {
                    for register in 0..REGISTERS {
                        // Two pairs of inputs become four inputs of one output after the other.
                        let pairs = weight.add(2 * four * LINE + apart(block, register));
                        let (even, odd) = (vld1q_u32(pairs.cast()), vld1q_u32(pairs.add(LINE).cast()));
                        let outputs = [vzip1q_u32(even, odd), vzip2q_u32(even, odd)];
                        for pair in 0..ROWS.div_ceil(2) {
                            for two in 0..2 {
                                let sum = &mut sums[pair][register][two];
                                *sum = bfmmla(*sum, rows[pair][four], outputs[two]);
                            }
                        }
                    }
                }
                weight = weight.add(INPUTS / 2 * LINE);
                input = input.add(INPUTS);
            }
            store_sums(block, first, &sums);
        }
    }
}

/// Sums of pairs of rows, of which there are half as many as rows: for each two outputs the first row's, then the second's.
type Pairs<const ROWS: usize, const REGISTERS: usize> = [[[float32x4_t; 2]; REGISTERS]; ROWS];

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_sums<const ROWS: usize, const REGISTERS: usize>(block: &Block, first: usize) -> Pairs<ROWS, REGISTERS> {
    // SAFETY: the caller's promise.
    let rows = unsafe { block.load_sums::<float32x4_t, ROWS, REGISTERS>(first) };
    let mut sums = [[[vdupq_n_f32(0.0); 2]; REGISTERS]; ROWS];
    for pair in 0..ROWS.div_ceil(2) {
        for register in 0..REGISTERS {
            let row = |row: usize| vreinterpretq_f64_f32(rows[row][register]);
            let (upper, lower) = (row(2 * pair), row((2 * pair + 1).min(ROWS - 1)));
            sums[pair][register][0] = vreinterpretq_f32_f64(vzip1q_f64(upper, lower));
            sums[pair][register][1] = vreinterpretq_f32_f64(vzip2q_f64(upper, lower));
        }
    }
    sums
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_sums<const ROWS: usize, const REGISTERS: usize>(
    block: &Block,
    first: usize,
    sums: &Pairs<ROWS, REGISTERS>,
) {
    let mut rows = [[vdupq_n_f32(0.0); REGISTERS]; ROWS];
    for row in 0..ROWS {
        for register in 0..REGISTERS {
            let [low, high] = sums[row / 2][register];
            let (low, high) = (vreinterpretq_f64_f32(low), vreinterpretq_f64_f32(high));
            let values = if row % 2 == 0 { vzip1q_f64(low, high) } else { vzip2q_f64(low, high) };
            rows[row][register] = vreinterpretq_f32_f64(values);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { block.store_sums(first, &rows) }
}
