//! Products of bytes with NEON, and with ARM's dot products of bytes where a processor has them.
//!
//! Weights are prepared as bytes with a sign, which is what ARM's dot products take: of fewer than eight bits they are
//! positive, of eight bits the integers themselves. A tile multiplies a few rows with half a panel, so that integer sums have
//! the registers to themselves; sums rest in memory.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::aarch64::{
        float32x4_t, int8x16_t, int32x4_t, vaddq_s32, vdupq_laneq_s32, vdupq_n_f32, vdupq_n_s8, vdupq_n_s32, vfmaq_f32,
        vfmsq_f32, vget_low_s8, vld1q_f32, vld1q_s8, vmull_high_s8, vmull_s8, vmulq_f32, vpadalq_s16, vpaddq_s16,
        vreinterpretq_f32_s32, vreinterpretq_s8_s32, vreinterpretq_s32_s8, vst1q_f32,
    },
    ops::Range,
};

use super::{
    Code, Coding, INPUTS, begin, codings,
    numbers::{Arrays, Quad, Read},
    prepared::{Ahead, Preparation, Weights, kernel, unit},
};
use crate::{
    fetch,
    instructions::sdot,
    isa::Tier,
    linear::{
        int8::{COUNTER, InputGroup, QUAD_BYTES, ZERO},
        kernel::{Block, Instructions, Kernel, LINE},
        packed::{GROUP, PANEL},
    },
};

/// The kernels of NEON alone.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Widened>, "neon_i8");
/// The kernels of dot products.
pub(in crate::linear) const DOTS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Dots>, "dotprod_i8");

/// Numbers of 32 bits in a register.
const LANES: usize = 4;
/// Bytes in a register.
pub(super) const BYTES: usize = 16;
/// Registers of half a panel.
pub(super) const REGISTERS: usize = PANEL / 2 / LANES;

/// Sums of half a panel's outputs.
pub(super) type Totals<const ROWS: usize> = [[int32x4_t; REGISTERS]; ROWS];

/// Unit of ARM, whose tiles are this module's.
pub(super) trait Short {
    /// Sums of the products of a group of each row, or of half `half` of it where the coding has two, and half `lanes` of the
    /// panel whose prepared integers begin at `integers`.
    ///
    /// # Safety
    /// The processor has the unit's tier; `input` points to a group in each of `ROWS` rows, `stride` bytes apart.
    unsafe fn totals<C: Code, const ROWS: usize>(
        integers: *const u8,
        lanes: usize,
        half: usize,
        input: *const u8,
        stride: usize,
    ) -> Totals<ROWS>;
}

unit!(Widened, Instructions::of(Tier::Neon), "neon", Signed, tile: 1 2 3 4 5 6 7 8);
unit!(Dots, Instructions::of(Tier::Dotprod), "neon,dotprod", Signed, tile: 1 2 3 4 5 6 7 8);

/// Weights as bytes with a sign, in the order in which they are packed.
pub(super) struct Signed;

impl Preparation for Signed {
    type Read = Arrays;
    const AS_PACKED: bool = false;

    #[inline(always)]
    unsafe fn write_quads<C: Code>(integers: *const u8, quad: usize, out: *mut Quad) {
        // SAFETY: the caller's promise.
        unsafe { out.cast::<[Quad; 2]>().write([signed::<C>(integers, quad), signed::<C>(integers, quad + 1)]) }
    }
}

/// A quad of a panel's integers, as bytes with a sign: those of eight bits lose their offset.
///
/// # Safety
/// As [`Read::quad`].
#[inline(always)]
pub(super) unsafe fn signed<C: Code>(integers: *const u8, quad: usize) -> Quad {
    // SAFETY: the caller's promise.
    let mut words = unsafe { Arrays::quad::<C>(integers, quad) };
    if C::CODING.bytes() {
        for word in &mut words {
            *word ^= 0x8080_8080;
        }
    }
    words
}

/// Dot products of four bytes each.
trait Dot {
    /// Adds to each sum the dot product of four weights and the four inputs in lane `LANE`.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn add<const LANE: i32>(sums: int32x4_t, weights: int8x16_t, inputs: int8x16_t) -> int32x4_t;
}

impl Dot for Widened {
    #[inline(always)]
    unsafe fn add<const LANE: i32>(sums: int32x4_t, weights: int8x16_t, inputs: int8x16_t) -> int32x4_t {
        // SAFETY: the caller's promise. Two products of bytes fit into 16 bits, as inputs are -127 at least.
        unsafe {
            let four = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(inputs)));
            let low = vmull_s8(vget_low_s8(weights), vget_low_s8(four));
            vpadalq_s16(sums, vpaddq_s16(low, vmull_high_s8(weights, four)))
        }
    }
}

impl Dot for Dots {
    #[inline(always)]
    unsafe fn add<const LANE: i32>(sums: int32x4_t, weights: int8x16_t, inputs: int8x16_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { sdot::<LANE>(sums, weights, inputs) }
    }
}

impl<D: Dot> Short for D {
    #[inline(always)]
    unsafe fn totals<C: Code, const ROWS: usize>(
        integers: *const u8,
        lanes: usize,
        half: usize,
        input: *const u8,
        stride: usize,
    ) -> Totals<ROWS> {
        // SAFETY: the caller vouches for weights and rows. A register holds the inputs of four quads.
        unsafe {
            let mut totals = [[vdupq_n_s32(0); REGISTERS]; ROWS];
            for sixteen in sixteens::<C>(half) {
                let mut inputs = [vdupq_n_s8(0); ROWS];
                for row in 0..ROWS {
                    inputs[row] = vld1q_s8(input.add(row * stride + sixteen * BYTES).cast());
                }
                let weights = integers.add(sixteen * BYTES * PANEL + lanes * REGISTERS * BYTES);
                add_quad::<Self, 0, ROWS>(&mut totals, weights, &inputs);
                add_quad::<Self, 1, ROWS>(&mut totals, weights, &inputs);
                add_quad::<Self, 2, ROWS>(&mut totals, weights, &inputs);
                add_quad::<Self, 3, ROWS>(&mut totals, weights, &inputs);
            }
            totals
        }
    }
}

/// Sixteens of a group's inputs that share a scale.
#[inline(always)]
pub(super) fn sixteens<C: Code>(half: usize) -> Range<usize> {
    let count = INPUTS / BYTES / C::CODING.halves();
    half * count..(half + 1) * count
}

/// Adds the products of quad `LANE` of four.
///
/// # Safety
/// The processor has the instructions; `weights` points to half a panel's place in the first of the four quads.
#[inline(always)]
unsafe fn add_quad<D: Dot, const LANE: i32, const ROWS: usize>(
    totals: &mut Totals<ROWS>,
    weights: *const u8,
    inputs: &[int8x16_t; ROWS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let weights = weights.add(LANE as usize * QUAD_BYTES);
        let weights = [vld1q_s8(weights.cast()), vld1q_s8(weights.add(BYTES).cast())];
        for row in 0..ROWS {
            for register in 0..REGISTERS {
                totals[row][register] = D::add::<LANE>(totals[row][register], weights[register], inputs[row]);
            }
        }
    }
}

/// # Safety
/// The processor has the unit's tier; the block keeps its promises and has `ROWS` rows and one pair of panels, whose prepared
/// parts are `weights`.
#[inline(always)]
pub(super) unsafe fn tile<U: Short, C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    let coding = C::CODING;
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let mut next = ahead.start;
        for part in 0..block.depth / INPUTS {
            for line in 0..ahead.step.div_ceil(LINE) {
                let line = next.wrapping_add(line * LINE);
                if ahead.alone { fetch::stream(line) } else { fetch::near(line) }
            }
            next = next.wrapping_add(ahead.step);
            let input = block.input.add(part * size_of::<InputGroup>());
            for panel in 0..GROUP {
                let integers = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
                let factors = weights.factors.add((part * GROUP + panel) * coding.factors() * PANEL);
                for lanes in 0..PANEL / LANES / REGISTERS {
                    for half in 0..coding.halves() {
                        let totals = U::totals::<C, ROWS>(integers, lanes, half, input, block.input_stride);
                        let first = lanes * REGISTERS * LANES;
                        for row in 0..ROWS {
                            let group = &*input.add(row * block.input_stride).cast::<InputGroup>();
                            let sums = block.sums.add(row * block.sums_stride + panel * PANEL + first);
                            finish::<C>(sums, totals[row], group, (factors.add(first), half));
                        }
                    }
                }
            }
        }
    }
}

/// Adds a row's integer sums of half a panel, times their scales, to its sums.
///
/// # Safety
/// The processor has NEON; sums and factors have half a panel.
#[inline(always)]
unsafe fn finish<C: Code>(
    sums: *mut f32,
    totals: [int32x4_t; REGISTERS],
    group: &InputGroup,
    (factors, half): (*const f32, usize),
) {
    let coding = C::CODING;
    // SAFETY: the caller's promise.
    unsafe {
        // Products of eight bits are those of the integers themselves.
        let start = vdupq_n_s32(if coding.bytes() { ZERO } else { begin::<C>(group, half) });
        for register in 0..REGISTERS {
            let load = |which: usize| -> float32x4_t { vld1q_f32(factors.add(which * PANEL + register * LANES)) };
            let place = sums.add(register * LANES);
            let total = vreinterpretq_f32_s32(vaddq_s32(totals[register], start));
            let product = vfmaq_f32(vmulq_f32(vdupq_n_f32(-COUNTER), load(half)), total, load(half));
            let mut sum = vfmaq_f32(vld1q_f32(place), product, vdupq_n_f32(group.scale));
            if coding.minima() {
                sum = vfmsq_f32(sum, vdupq_n_f32(group.weighted), load(1));
            }
            vst1q_f32(place, sum);
        }
    }
}

const _: () = assert!(PANEL.is_multiple_of(LANES * REGISTERS));
