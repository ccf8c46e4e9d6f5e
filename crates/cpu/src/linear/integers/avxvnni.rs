//! Products of bytes with AVX-VNNI's dot products: the tiles of AVX2, with four products of each word at a time.

use std::{
    arch::x86_64::{__m256i, _mm256_dpbusd_avx_epi32, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_setzero_si256},
    marker::PhantomData,
};

use super::{
    Code,
    avx2::{LANES, Unsigned},
    avx2_tiles::{self, HALVES, Inputs, Rows},
    codings,
    prepared::{Ahead, Tile, Unit, Weights, kernel},
};
use crate::{
    isa::Tier,
    linear::{
        int8::{QUAD, QUAD_BYTES, QUADS},
        kernel::{Block, Kernel},
    },
};

/// Kernels of a software twin of the dot products, for tests.
pub(in crate::linear) const EMULATED: [Kernel; 6] = codings!(kernel::<Twin>, "emulatedavxvnni_i8");
/// Kernels of the dot products.
pub(in crate::linear) const DOTS: [Kernel; 6] = codings!(kernel::<Dots>, "avxvnni_i8");

/// Dot products of four bytes.
trait Dot {
    /// Adds dot products, `weights` without a sign, to 32-bit sums.
    ///
    /// # Safety
    /// The processor has AVX2 and the instruction.
    unsafe fn dot(sums: __m256i, weights: __m256i, inputs: __m256i) -> __m256i;
}

/// A number of rows.
struct Dotted<D, const ROWS: usize>(PhantomData<D>);

impl<D: Dot, const ROWS: usize> Rows for Dotted<D, ROWS> {
    const ROWS: usize = ROWS;
    const WORDS: bool = false;
    type Sums = [[__m256i; HALVES]; ROWS];

    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "groups begin on words, quads follow each other")]
    unsafe fn totals<C: Code>(quads: *const u8, half: usize, inputs: Inputs) -> Self::Sums {
        let count = QUADS / C::CODING.halves();
        // SAFETY: the caller vouches for processor, weights and rows.
        unsafe {
            let mut totals = [[_mm256_setzero_si256(); HALVES]; ROWS];
            for quad in half * count..(half + 1) * count {
                let line = quads.add(quad * QUAD_BYTES).cast::<__m256i>();
                let weights = [_mm256_loadu_si256(line), _mm256_loadu_si256(line.add(1))];
                for row in 0..ROWS {
                    let input = inputs.first.add(row * inputs.stride + quad * QUAD).cast::<i32>();
                    for lanes in 0..HALVES {
                        totals[row][lanes] = D::dot(totals[row][lanes], weights[lanes], _mm256_set1_epi32(*input));
                    }
                }
            }
            totals
        }
    }
}

/// Names a unit: its tiers and features, and its dot product.
macro_rules! unit {
    ($name:ident, $tier:expr, $features:literal, |$sums:ident, $weights:ident, $inputs:ident| $dot:expr) => {
        struct $name;

        impl<C: Code> Unit<C> for $name {
            const TIER: (Tier, Tier, bool) = $tier;
            type Preparation = Unsigned;
            const TILES: &'static [Tile] = {
                /// # Safety
                /// As [`avx2_tiles::tile`].
                #[target_feature(enable = $features)]
                unsafe fn compiled<C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
                    // SAFETY: the caller's promise.
                    unsafe { avx2_tiles::tile::<C, Dotted<$name, ROWS>>(block, weights, ahead) }
                }
                &[
                    compiled::<C, 1>,
                    compiled::<C, 2>,
                    compiled::<C, 3>,
                    compiled::<C, 4>,
                    compiled::<C, 5>,
                    compiled::<C, { avx2_tiles::ROWS }>,
                ]
            };
        }

        impl Dot for $name {
            #[inline(always)]
            unsafe fn dot($sums: __m256i, $weights: __m256i, $inputs: __m256i) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { $dot }
            }
        }
    };
}

unit!(Twin, (Tier::AvxVnni, Tier::Avx2, false), "avx2,fma,f16c", |sums, weights, inputs| {
    twin_dot(sums, weights, inputs)
});
unit!(Dots, (Tier::AvxVnni, Tier::AvxVnni, false), "avx2,fma,f16c,avxvnni", |sums, weights, inputs| {
    _mm256_dpbusd_avx_epi32(sums, weights, inputs)
});

/// Computes the dot product: four products of each word, in 32 bits.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn twin_dot(sums: __m256i, weights: __m256i, inputs: __m256i) -> __m256i {
    // SAFETY: the caller's promise. The registers are arrays of their bytes.
    unsafe {
        let mut sums = std::mem::transmute::<__m256i, [i32; LANES]>(sums);
        let weights = std::mem::transmute::<__m256i, [[u8; QUAD]; LANES]>(weights);
        let inputs = std::mem::transmute::<__m256i, [[i8; QUAD]; LANES]>(inputs);
        for lane in 0..LANES {
            for k in 0..QUAD {
                sums[lane] += i32::from(weights[lane][k]) * i32::from(inputs[lane][k]);
            }
        }
        std::mem::transmute::<[i32; LANES], __m256i>(sums)
    }
}
