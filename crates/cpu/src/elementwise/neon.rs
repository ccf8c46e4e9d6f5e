//! Tiles in the vectors of NEON, which every 64-bit ARM processor has.

use std::arch::aarch64::{
    float32x4_t, uint16x4_t, vadd_f32, vaddq_f32, vdupq_n_f32, vfmaq_n_f32, vget_high_f32, vget_low_f32, vld1_u16,
    vld1q_f32, vmaxnmq_f32, vmaxnmvq_f32, vmulq_n_f32, vpadds_f32, vreinterpretq_f32_u32, vshll_n_u16, vst1q_f32,
};

use super::{
    LANES,
    lanes::{Lanes, Operation},
};
use crate::{fetch, linear::pack};

/// Numbers in a vector.
const VECTOR: usize = 4;
/// Vectors of a tile.
const VECTORS: usize = LANES / VECTOR;

/// # Safety
/// NEON must be there.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<O: Operation>(operation: O) -> O::Output {
    operation.run::<Neon>()
}

/// Eight vectors of 4. Methods are reached through [`run`] alone, with an [`Isa`](crate::isa::Isa) in hand.
pub(super) struct Neon;

/// Adds vector by vector, or takes the larger: each with the one half of them away, and so on.
#[inline(always)]
fn folded(tile: [float32x4_t; VECTORS], fold: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> float32x4_t {
    let [a, b, c, d, e, f, g, h] = tile;
    let [a, b, c, d] = [fold(a, e), fold(b, f), fold(c, g), fold(d, h)];
    fold(fold(a, c), fold(b, d))
}

impl Lanes for Neon {
    type Tile = [float32x4_t; VECTORS];
    type Packing = pack::Portable;
    const SUMS: usize = 2;

    #[inline(always)]
    fn zero() -> Self::Tile {
        // SAFETY: reached through `run` alone.
        [unsafe { vdupq_n_f32(0.0) }; VECTORS]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Tile {
        // SAFETY: reached through `run` alone; the numbers are readable, as our caller promises.
        std::array::from_fn(|part| unsafe { vld1q_f32(from.add(VECTOR * part)) })
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::Tile {
        // SAFETY: reached through `run` alone; the numbers are readable, as our caller promises.
        std::array::from_fn(|part| unsafe {
            let raw: uint16x4_t = vld1_u16(from.add(VECTOR * part));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(raw))
        })
    }

    #[inline(always)]
    unsafe fn store(tile: Self::Tile, to: *mut f32) {
        for (part, values) in tile.into_iter().enumerate() {
            // SAFETY: reached through `run` alone; the numbers are writable, as our caller promises.
            unsafe { vst1q_f32(to.add(VECTOR * part), values) }
        }
    }

    #[inline(always)]
    fn scale(tile: Self::Tile, factor: f32) -> Self::Tile {
        // SAFETY: reached through `run` alone.
        tile.map(|values| unsafe { vmulq_n_f32(values, factor) })
    }

    #[inline(always)]
    fn scale_add(sum: Self::Tile, tile: Self::Tile, factor: f32) -> Self::Tile {
        // SAFETY: reached through `run` alone.
        std::array::from_fn(|part| unsafe { vfmaq_n_f32(sum[part], tile[part], factor) })
    }

    #[inline(always)]
    fn scale_add_one(sum: f32, value: f32, factor: f32) -> f32 {
        value.mul_add(factor, sum)
    }

    #[inline(always)]
    fn sum(tile: Self::Tile) -> f32 {
        // SAFETY: reached through `run` alone.
        unsafe {
            let four = folded(tile, |a, b| vaddq_f32(a, b));
            vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }

    #[inline(always)]
    fn most(tile: Self::Tile) -> f32 {
        // SAFETY: reached through `run` alone.
        unsafe { vmaxnmvq_f32(folded(tile, |a, b| vmaxnmq_f32(a, b))) }
    }

    #[inline(always)]
    fn fetch(line: *const u8) {
        fetch::near(line);
    }
}
