//! Products of bytes with AVX-VNNI's dot products: the tiles of AVX2, with four products of each word at a time.

use std::arch::x86_64::__m256i;

use super::{
    Code, Coding,
    avx2::{LANES, Unsigned},
    avx2_tiles::{Inputs, Lines, Products, Totals, dots, starts, tile},
    codings,
    prepared::{kernel, unit},
};
use crate::{
    isa::Tier,
    linear::{
        int8::{QUAD, QUAD_BYTES, QUADS},
        kernel::{Instructions, Kernel},
    },
};

/// Kernels of a software twin of the dot products, for tests.
pub(in crate::linear) const EMULATED: [Kernel; Coding::ALL.len()] = codings!(kernel::<Emulated>, "emulatedavxvnni_i8");
/// Kernels of the dot products.
pub(in crate::linear) const DOTS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Hardware>, "avxvnni_i8");

/// Instructions of the software twin.
const TWIN: Instructions = Instructions { executes: Tier::Avx2, ..Instructions::of(Tier::AvxVnni) };

unit!(Emulated, TWIN, "avx2,fma,f16c", Unsigned, tile: 1 2 3 4 5 6);
unit!(Hardware, Instructions::of(Tier::AvxVnni), "avx2,fma,f16c,avxvnni", Unsigned, tile: 1 2 3 4 5 6);

impl Products for Hardware {
    const WORDS: bool = false;
    const EVENLY: bool = false;

    #[inline(always)]
    unsafe fn totals<C: Code, const ROWS: usize>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        _: Option<Lines>,
    ) -> Totals<ROWS> {
        let count = QUADS / C::CODING.halves();
        // SAFETY: the caller's promise.
        unsafe {
            let (quads, inputs) = (quads.add(half * count * QUAD_BYTES), inputs.skip(half * count * QUAD));
            dots::<ROWS, false>(starts::<C, ROWS>(groups, half), quads, count, inputs, Lines::NONE)
        }
    }
}

impl Products for Emulated {
    const WORDS: bool = false;
    const EVENLY: bool = false;

    #[inline(always)]
    unsafe fn totals<C: Code, const ROWS: usize>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        _: Option<Lines>,
    ) -> Totals<ROWS> {
        let count = QUADS / C::CODING.halves();
        // SAFETY: the caller vouches for processor, weights and rows.
        unsafe {
            let mut totals = starts::<C, ROWS>(groups, half);
            for quad in half * count..(half + 1) * count {
                for (row, totals) in totals.iter_mut().enumerate() {
                    let four = *inputs.row(row).add(quad * QUAD).cast::<[i8; QUAD]>();
                    for (lanes, total) in totals.iter_mut().enumerate() {
                        let weights = quads.add(quad * QUAD_BYTES + lanes * size_of::<__m256i>());
                        *total = dot(*total, *weights.cast::<[[u8; QUAD]; LANES]>(), four);
                    }
                }
            }
            totals
        }
    }
}

/// Adds dot products of four bytes to 32-bit sums.
#[inline(always)]
fn dot(sums: __m256i, weights: [[u8; QUAD]; LANES], inputs: [i8; QUAD]) -> __m256i {
    // SAFETY: the register is an array of its words, and back.
    unsafe {
        let mut sums = std::mem::transmute::<__m256i, [i32; LANES]>(sums);
        for lane in 0..LANES {
            for k in 0..QUAD {
                sums[lane] += i32::from(weights[lane][k]) * i32::from(inputs[k]);
            }
        }
        std::mem::transmute::<[i32; LANES], __m256i>(sums)
    }
}
