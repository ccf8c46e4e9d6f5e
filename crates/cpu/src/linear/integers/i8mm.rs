//! Products of bytes with ARM's matrix products: two rows times two outputs over eight inputs in one instruction.
//!
//! Weights are prepared as bytes with a sign, eight inputs of an output together. Rows come in pairs; the last of an
//! odd number is paired with itself, and the second result is never read.

use std::arch::aarch64::{
    vdupq_n_s32, vld1q_s8, vreinterpretq_s8_s32, vreinterpretq_s8_s64, vreinterpretq_s32_s64, vreinterpretq_s64_s8,
    vreinterpretq_s64_s32, vzip1q_s64, vzip2q_s64,
};

use super::{
    Code, Coding, codings,
    neon::{BYTES, REGISTERS, Short, Totals, signed, sixteens, tile},
    numbers::{Arrays, Quad},
    prepared::{Preparation, kernel, unit},
};
use crate::{
    instructions::smmla,
    isa::Tier,
    linear::{
        kernel::{Instructions, Kernel},
        packed::PANEL,
    },
};

/// The kernels.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Matrices>, "bf16i8mm_i8");

unit!(Matrices, Instructions::of(Tier::Bf16I8mm), "neon,i8mm", SignedEights, tile: 1 2 3 4 5 6 7 8);

/// Weights as bytes with a sign, eight inputs of an output together.
pub(super) struct SignedEights;

impl Preparation for SignedEights {
    type Read = Arrays;
    const AS_PACKED: bool = false;

    #[inline(always)]
    unsafe fn write_quads<C: Code>(integers: *const u8, quad: usize, out: *mut Quad) {
        // SAFETY: the caller's promise: two quads take the room of two.
        unsafe {
            let [first, second] = [signed::<C>(integers, quad), signed::<C>(integers, quad + 1)];
            let mut words = [[0; 2]; PANEL];
            for lane in 0..PANEL {
                words[lane] = [first[lane], second[lane]];
            }
            out.cast::<[[u32; 2]; PANEL]>().write(words);
        }
    }
}

impl Short for Matrices {
    #[inline(always)]
    unsafe fn totals<C: Code, const ROWS: usize>(
        integers: *const u8,
        lanes: usize,
        half: usize,
        input: *const u8,
        stride: usize,
    ) -> Totals<ROWS> {
        /// Registers of two outputs.
        const TWOS: usize = 2 * REGISTERS;
        // SAFETY: the caller vouches for weights and rows.
        unsafe {
            // Of each pair of rows: for each two outputs the first row's sums, then the second's.
            let mut pairs = [[vdupq_n_s32(0); TWOS]; ROWS];
            for sixteen in sixteens::<C>(half) {
                let mut inputs = [[vreinterpretq_s8_s32(vdupq_n_s32(0)); 2]; ROWS];
                for pair in 0..ROWS.div_ceil(2) {
                    let load =
                        |row: usize| vreinterpretq_s64_s8(vld1q_s8(input.add(row * stride + sixteen * BYTES).cast()));
                    let (first, second) = (load(2 * pair), load((2 * pair + 1).min(ROWS - 1)));
                    inputs[pair] =
                        [vzip1q_s64(first, second), vzip2q_s64(first, second)].map(|rows| vreinterpretq_s8_s64(rows));
                }
                for eight in 0..2 {
                    let weights = integers.add((2 * sixteen + eight) * 8 * PANEL + lanes * TWOS * BYTES);
                    for two in 0..TWOS {
                        let outputs = vld1q_s8(weights.add(two * BYTES).cast());
                        for pair in 0..ROWS.div_ceil(2) {
                            pairs[pair][two] = smmla(pairs[pair][two], inputs[pair][eight], outputs);
                        }
                    }
                }
            }
            let mut totals = [[vdupq_n_s32(0); REGISTERS]; ROWS];
            for row in 0..ROWS {
                for register in 0..REGISTERS {
                    let two = |index: usize| vreinterpretq_s64_s32(pairs[row / 2][2 * register + index]);
                    let halves = if row % 2 == 0 { vzip1q_s64(two(0), two(1)) } else { vzip2q_s64(two(0), two(1)) };
                    totals[row][register] = vreinterpretq_s32_s64(halves);
                }
            }
            totals
        }
    }
}
