//! Loops around the multiply instructions of ARM.

use std::{
    arch::{
        aarch64::{vdupq_n_f32, vdupq_n_s8, vdupq_n_s32, vdupq_n_u32, vfmaq_f32},
        asm,
    },
    hint::black_box,
};

use demask_cpu::isa::{Isa, Tier};

use super::Unit;

/// Number of independent sums that hides the latency of an instruction, and fits into the 32 registers.
const SUMS: usize = 24;
/// bf16 of 0.5, twice.
const HALVES: u32 = 0x3f00_3f00;

/// The best instruction for products of bf16, or of f32.
pub(super) fn unit(isa: Isa, bf16: bool) -> Option<Unit> {
    if bf16 && isa.has(Tier::Bf16I8mm) {
        return Some(Unit { operations: (SUMS * 32) as u64, rounds: bf16_matrices });
    }
    isa.has(Tier::Neon).then_some(Unit { operations: (SUMS * 8) as u64, rounds: floats })
}

/// The best instruction for products of bytes: NEON alone widens them, which is no instruction's rate.
pub(super) fn byte_unit(isa: Isa) -> Option<Unit> {
    if isa.has(Tier::Bf16I8mm) {
        return Some(Unit { operations: (SUMS * 64) as u64, rounds: byte_matrices });
    }
    isa.has(Tier::Dotprod).then_some(Unit { operations: (SUMS * 32) as u64, rounds: dots })
}

/// Adds products to a sum by an instruction for which the standard library has no stable function.
macro_rules! add {
    ($instruction:literal, $sum:ident, $x:ident, $y:ident) => {
        // SAFETY: the caller of the loop vouches for the instruction, which reads and writes registers alone.
        unsafe {
            asm!(
                $instruction,
                sum = inout(vreg) *$sum,
                x = in(vreg) $x,
                y = in(vreg) $y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    };
}

/// # Safety
/// NEON must be there.
#[target_feature(enable = "neon")]
unsafe fn floats(rounds: u64) {
    let (x, y) = (vdupq_n_f32(black_box(0.5)), vdupq_n_f32(black_box(0.5)));
    let mut sums = [vdupq_n_f32(0.0); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = vfmaq_f32(*sum, x, y);
        }
    }
    black_box(sums);
}

/// # Safety
/// Dot products of bytes must be there.
#[target_feature(enable = "neon,dotprod")]
unsafe fn dots(rounds: u64) {
    let (x, y) = (vdupq_n_s8(black_box(3)), vdupq_n_s8(black_box(3)));
    let mut sums = [vdupq_n_s32(0); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            add!("sdot {sum:v}.4s, {x:v}.16b, {y:v}.4b[0]", sum, x, y);
        }
    }
    black_box(sums);
}

/// # Safety
/// Matrix products of bytes must be there.
#[target_feature(enable = "neon,i8mm")]
unsafe fn byte_matrices(rounds: u64) {
    let (x, y) = (vdupq_n_s8(black_box(3)), vdupq_n_s8(black_box(3)));
    let mut sums = [vdupq_n_s32(0); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            add!("smmla {sum:v}.4s, {x:v}.16b, {y:v}.16b", sum, x, y);
        }
    }
    black_box(sums);
}

/// # Safety
/// Matrix products of bf16 must be there.
#[target_feature(enable = "neon,bf16")]
unsafe fn bf16_matrices(rounds: u64) {
    let (x, y) = (vdupq_n_u32(black_box(HALVES)), vdupq_n_u32(black_box(HALVES)));
    let mut sums = [vdupq_n_f32(0.0); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            add!("bfmmla {sum:v}.4s, {x:v}.8h, {y:v}.8h", sum, x, y);
        }
    }
    black_box(sums);
}
