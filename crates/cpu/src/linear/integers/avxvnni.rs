//! Products of bytes with AVX-VNNI's dot products: the tiles of AVX2, with four products of each word at a time.

use std::arch::x86_64::__m256i;

use super::{
    Code,
    avx2::{LANES, Unsigned},
    avx2_tiles::{self, Dots, Inputs, Lines, Rows, Totals},
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
pub(in crate::linear) const EMULATED: [Kernel; 6] = codings!(kernel::<Emulated>, "emulatedavxvnni_i8");
/// Kernels of the dot products.
pub(in crate::linear) const DOTS: [Kernel; 6] = codings!(kernel::<Hardware>, "avxvnni_i8");

/// A number of rows, with dot products in software.
struct Twin<const ROWS: usize>;

impl<const ROWS: usize> Rows for Twin<ROWS> {
    const ROWS: usize = ROWS;
    const WORDS: bool = false;
    const EVENLY: bool = false;
    type Sums = Totals<ROWS>;

    #[inline(always)]
    unsafe fn totals<C: Code>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        _: Option<Lines>,
    ) -> Self::Sums {
        let count = QUADS / C::CODING.halves();
        // SAFETY: the caller vouches for processor, weights and rows.
        unsafe {
            let mut totals = avx2_tiles::starts::<C, ROWS>(groups, half);
            for quad in half * count..(half + 1) * count {
                for (row, totals) in totals.iter_mut().enumerate() {
                    let four = *inputs.first.add(row * inputs.stride + quad * QUAD).cast::<[i8; QUAD]>();
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

/// Names a unit: its tiers and features, and its numbers of rows.
macro_rules! unit {
    ($name:ident, $tier:expr, $features:literal, $($rows:ty),+) => {
        struct $name;

        impl<C: Code> Unit<C> for $name {
            const TIER: (Tier, Tier, bool) = $tier;
            type Preparation = Unsigned;
            const TILES: &'static [Tile] = {
                /// # Safety
                /// As [`avx2_tiles::tile`].
                #[target_feature(enable = $features)]
                unsafe fn compiled<C: Code, R: Rows>(block: &Block, weights: &Weights, ahead: Ahead) {
                    // SAFETY: the caller's promise.
                    unsafe { avx2_tiles::tile::<C, R>(block, weights, ahead) }
                }
                &[$(compiled::<C, $rows>),+]
            };
        }
    };
}

unit!(
    Emulated,
    (Tier::AvxVnni, Tier::Avx2, false),
    "avx2,fma,f16c",
    Twin<1>,
    Twin<2>,
    Twin<3>,
    Twin<4>,
    Twin<5>,
    Twin<6>
);
unit!(
    Hardware,
    (Tier::AvxVnni, Tier::AvxVnni, false),
    "avx2,fma,f16c,avxvnni",
    Dots<avx2_tiles::One>,
    Dots<avx2_tiles::Two>,
    Dots<avx2_tiles::Three>,
    Dots<avx2_tiles::Four>,
    Dots<avx2_tiles::Five>,
    Dots<avx2_tiles::Six>
);
