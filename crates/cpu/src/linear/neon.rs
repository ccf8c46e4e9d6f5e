//! NEON: up to eight rows times eight outputs at a time, which is sixteen of the 32 registers. Fewer rows meet more outputs,
//! so that there are always enough sums under way to hide the latency of a multiplication.
//!
//! Four inputs of a row are read at once and multiplied lane by lane: no number is spread over a register of its own.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::aarch64::{
    float32x4_t, vandq_u32, vdupq_n_f32, vdupq_n_u32, vfmaq_laneq_f32, vld1q_f32, vld1q_u32, vreinterpretq_f32_u32,
    vshlq_n_u32,
};

use super::{
    kernel::{Block, Instructions, Kernel, LINE, tiles},
    packed::{GROUP, PANEL},
    portable,
};
use crate::{fetch, isa::Tier};

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "neon_f32xf32_f32",
    instructions: Instructions::of(Tier::Neon),
    row_tile: WHOLE_ROWS,
    accumulate: accumulate::<Floats>,
    ..portable::F32
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "neon_bf16xbf16_f32",
    instructions: F32.instructions,
    row_tile: F32.row_tile,
    accumulate: accumulate::<Pairs>,
    ..portable::BF16
};

/// Rows up to which a tile goes through a panel once. More rows go through it twice, so that the second time it must still be
/// in the first-level cache: a block of the depth has to be short.
pub(super) const WHOLE_ROWS: usize = 4;
/// Numbers in a register.
pub(super) const LANES: usize = 4;
/// Registers in a panel.
pub(super) const PANEL_REGISTERS: usize = PANEL / LANES;
/// Registers in a pair of panels.
const PAIR_REGISTERS: usize = GROUP * PANEL_REGISTERS;
/// Inputs that are read at once.
const INPUTS: usize = 4;

/// Registers of outputs that a tile of some rows multiplies at a time: as many as leave registers for the rest.
pub(super) const fn registers(rows: usize) -> usize {
    match rows {
        1 | 2 => 8,
        3 | 4 => 4,
        _ => 2,
    }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<W: Weights>(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(const { &tiles!((tile, W), registers: 1 2 3 4 5 6 7 8) }, W::LINE_INPUTS) }
}

/// Weights of a register's outputs in a panel.
trait Weights {
    /// Inputs of a cache line of a panel.
    const LINE_INPUTS: usize;

    /// Widens the weights of two inputs; `at` is the first one's.
    ///
    /// # Safety
    /// The panel has both inputs.
    unsafe fn two(at: *const u8) -> [float32x4_t; 2];

    /// Widens the weights of one input.
    ///
    /// # Safety
    /// The panel has the input.
    unsafe fn one(at: *const u8) -> float32x4_t;
}

/// f32.
struct Floats;

impl Weights for Floats {
    const LINE_INPUTS: usize = 1;

    #[inline(always)]
    unsafe fn two(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller vouches for both inputs, a line apart.
        unsafe { [vld1q_f32(at.cast()), vld1q_f32(at.add(LINE).cast())] }
    }

    #[inline(always)]
    unsafe fn one(at: *const u8) -> float32x4_t {
        // SAFETY: the caller vouches for the input.
        unsafe { vld1q_f32(at.cast()) }
    }
}

/// Pairs of bf16.
struct Pairs;

impl Weights for Pairs {
    const LINE_INPUTS: usize = 2;

    #[inline(always)]
    unsafe fn two(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller vouches for both inputs, of which each word has two halves.
        unsafe {
            let pairs = vld1q_u32(at.cast());
            let odd = vandq_u32(pairs, vdupq_n_u32(0xffff_0000));
            [vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs)), vreinterpretq_f32_u32(odd)]
        }
    }

    #[inline(always)]
    unsafe fn one(at: *const u8) -> float32x4_t {
        // SAFETY: a panel of pairs has whole pairs.
        unsafe { Self::two(at)[0] }
    }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows and one pair of panels, whose format is `W`.
#[target_feature(enable = "neon")]
unsafe fn tile<W: Weights, const ROWS: usize, const REGISTERS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels.
    unsafe {
        for first in (0..PAIR_REGISTERS).step_by(REGISTERS) {
            let mut sums = block.load_sums::<float32x4_t, ROWS, REGISTERS>(first);
            let mut ahead = Ahead::new(block, first, REGISTERS, INPUTS / W::LINE_INPUTS);
            let mut weight = place(block, first);
            let mut input = block.input.cast::<f32>();
            for _ in 0..block.depth / INPUTS {
                ahead.fetch();
                let mut inputs = [vdupq_n_f32(0.0); ROWS];
                for row in 0..ROWS {
                    inputs[row] = vld1q_f32(input.byte_add(row * block.input_stride));
                }
                let mut weights = [[vdupq_n_f32(0.0); 2]; REGISTERS];
                for register in 0..REGISTERS {
                    weights[register] = W::two(weight.add(apart(block, register)));
                }
                add_products::<0, 0, ROWS, REGISTERS>(&mut sums, &inputs, &weights);
                add_products::<1, 1, ROWS, REGISTERS>(&mut sums, &inputs, &weights);
                weight = weight.add(2 / W::LINE_INPUTS * LINE);
                for register in 0..REGISTERS {
                    weights[register] = W::two(weight.add(apart(block, register)));
                }
                add_products::<2, 0, ROWS, REGISTERS>(&mut sums, &inputs, &weights);
                add_products::<3, 1, ROWS, REGISTERS>(&mut sums, &inputs, &weights);
                weight = weight.add(2 / W::LINE_INPUTS * LINE);
                input = input.add(INPUTS);
            }
            // Panels of f32 end with the last input.
            for _ in 0..block.depth % INPUTS {
                let mut inputs = [vdupq_n_f32(0.0); ROWS];
                for row in 0..ROWS {
                    inputs[row] = vdupq_n_f32(*input.byte_add(row * block.input_stride));
                }
                let mut weights = [[vdupq_n_f32(0.0); 2]; REGISTERS];
                for register in 0..REGISTERS {
                    weights[register][0] = W::one(weight.add(apart(block, register)));
                }
                add_products::<0, 0, ROWS, REGISTERS>(&mut sums, &inputs, &weights);
                weight = weight.add(LINE);
                input = input.add(1);
            }
            block.store_sums(first, &sums);
        }
    }
}

/// Adds the products of one input of each row: lane `LANE` of those that were read, and number `WHICH` of two weights.
#[inline]
#[target_feature(enable = "neon")]
fn add_products<const LANE: i32, const WHICH: usize, const ROWS: usize, const REGISTERS: usize>(
    sums: &mut [[float32x4_t; REGISTERS]; ROWS],
    inputs: &[float32x4_t; ROWS],
    weights: &[[float32x4_t; 2]; REGISTERS],
) {
    for row in 0..ROWS {
        for register in 0..REGISTERS {
            sums[row][register] = vfmaq_laneq_f32::<LANE>(sums[row][register], weights[register][WHICH], inputs[row]);
        }
    }
}

/// Place of register `first` of a pair of panels in the line of their first input.
///
/// # Safety
/// The block keeps its promises.
#[inline(always)]
pub(super) unsafe fn place(block: &Block, first: usize) -> *const u8 {
    // SAFETY: inside the first line of one of the pair's panels.
    unsafe { block.weight.add(first / PANEL_REGISTERS * block.panel_stride + first % PANEL_REGISTERS * LANES * 4) }
}

/// Bytes from a tile's first register to another: tiles of more registers than a panel begin with the first panel.
#[inline(always)]
pub(super) fn apart(block: &Block, register: usize) -> usize {
    register / PANEL_REGISTERS * block.panel_stride + register % PANEL_REGISTERS * LANES * 4
}

/// Lines that are fetched while a tile goes through its panels for the first time.
pub(super) struct Ahead {
    /// Next line of the first panel, and the bytes from there to the next panel's.
    next: *const u8,
    apart: usize,
    panels: usize,
    step: usize,
}

impl Ahead {
    /// Fetches for a tile of registers from `first` on, in whose steps are `lines` cache lines of each panel.
    #[inline(always)]
    pub(super) fn new(block: &Block, first: usize, registers: usize, lines: usize) -> Self {
        let panel = first / PANEL_REGISTERS;
        let begins = first.is_multiple_of(PANEL_REGISTERS);
        let panels = if begins { registers.div_ceil(PANEL_REGISTERS) } else { 0 };
        let next = block.ahead[panel.min(GROUP - 1)];
        let apart = block.ahead[GROUP - 1].addr().wrapping_sub(block.ahead[0].addr());
        Self { next, apart, panels, step: lines * block.ahead_step }
    }

    /// Fetches a step's share.
    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        for panel in 0..self.panels {
            for line in (0..self.step).step_by(LINE) {
                fetch::near(self.next.wrapping_add(panel.wrapping_mul(self.apart).wrapping_add(line)));
            }
        }
        self.next = self.next.wrapping_add(self.step);
    }
}
