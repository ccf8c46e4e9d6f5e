//! Products of bytes on every architecture: weights are prepared a few parts at a time, and tiles of rows meet them while they
//! are in the first-level cache.
//!
//! Integers of fewer than eight bits become bytes, and scales floats. What else a preparation does, and how a tile multiplies,
//! is each unit's own.

use std::{mem::MaybeUninit, ops::Range};

use super::{
    Code, INPUTS,
    numbers::{Quad, Read},
};
use crate::linear::{
    input::InputFormat,
    int8::{InputGroup, QUAD_BYTES, QUADS},
    kernel::{Block, Instructions, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    portable,
};

/// Parts that are prepared for many rows: their bytes fill half of a 32 KiB first-level cache.
pub(super) const PARTS: usize = 16;
/// Number of parts for a single tile of rows: so few that memory is read while they are multiplied.
const FEW_PARTS: usize = 2;
/// Bytes of a panel in a prepared part.
pub(super) const PANEL_BYTES: usize = QUADS * QUAD_BYTES;

/// A tile of a fixed number of rows.
pub(super) type Tile = unsafe fn(&Block, &Weights, Ahead);

/// Unit that multiplies bytes with weights of a coding.
pub(super) trait Unit<C: Code> {
    /// Instructions of its kernels.
    const INSTRUCTIONS: Instructions;
    /// Form in which tiles take weights.
    type Preparation: Preparation;
    /// Tiles of each number of rows from [`FEWEST`](Unit::FEWEST) on, for prepared weights.
    const TILES: &'static [Tile];
    /// Rows of the smallest tile: [`DIRECT`](Unit::DIRECT) has those of fewer.
    const FEWEST: usize = 1;
    /// Rows of the largest tile.
    const MOST: usize = Self::FEWEST + Self::TILES.len() - 1;
    /// Tiles that are alone, where these take weights as they are packed.
    const DIRECT: &'static [Tile] = &[];
}

/// Names a unit: its instructions, those of its tiles, the form of their weights, and a function that is a tile for each
/// number of rows.
macro_rules! unit {
    ($name:ident, $instructions:expr, $features:literal, $preparation:ty, $tile:ident: $($rows:literal)+) => {
        pub(super) struct $name;

        impl<C: $crate::linear::integers::Code> $crate::linear::integers::prepared::Unit<C> for $name {
            const INSTRUCTIONS: $crate::linear::kernel::Instructions = $instructions;
            type Preparation = $preparation;
            const TILES: &'static [$crate::linear::integers::prepared::Tile] = {
                /// # Safety
                /// As the unit's tile.
                #[target_feature(enable = $features)]
                unsafe fn compiled<C: $crate::linear::integers::Code, const ROWS: usize>(
                    block: &$crate::linear::kernel::Block,
                    weights: &$crate::linear::integers::prepared::Weights,
                    ahead: $crate::linear::integers::prepared::Ahead,
                ) {
                    // SAFETY: the caller's promise.
                    unsafe { $tile::<$name, C, ROWS>(block, weights, ahead) }
                }
                &$crate::linear::kernel::tiles!((compiled, C): $($rows)+)
            };
        }
    };
}
pub(super) use unit;

/// Form in which tiles take weights.
pub(super) trait Preparation: Sized {
    /// Instructions that read factors and integers.
    type Read: Read;
    /// Records whether integers of eight bits are multiplied as they were packed, where nothing is between them.
    const AS_PACKED: bool;

    /// Prepares parts of the pair of panels at `start`: [`prepare`], to be compiled with the tier's instructions where they
    /// are not those of the architecture.
    ///
    /// # Safety
    /// The processor has the tier; `start` points to blocks with these parts, of which there is memory for.
    unsafe fn prepare<C: Code>(start: *const u8, parts: Range<usize>, prepared: &mut Prepared) -> Weights {
        // SAFETY: the caller's promise.
        unsafe { prepare::<Self, C>(start, parts, prepared) }
    }

    /// Writes the factors of a panel's part.
    ///
    /// # Safety
    /// The processor has the tier; `head` and `part` are those of [`Read::factors`], and `out` has room for the coding's.
    #[inline(always)]
    unsafe fn write_factors<C: Code>(head: *const u8, part: *const u8, panel: usize, out: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let factors = Self::Read::factors::<C>(head, part, panel);
            for (index, factor) in factors.iter().take(C::CODING.factors()).enumerate() {
                out.add(index * PANEL).cast::<[f32; PANEL]>().write(*factor);
            }
        }
    }

    /// Writes two quads of a panel's part, the first of which is number `quad`: as bytes without a sign, unless tiles take
    /// them in another form.
    ///
    /// # Safety
    /// The processor has the tier; `integers` points to those of a panel in a part, and `out` has room for both.
    #[inline(always)]
    unsafe fn write_quads<C: Code>(integers: *const u8, quad: usize, out: *mut Quad) {
        // SAFETY: the caller's promise.
        unsafe {
            let quads = [Self::Read::quad::<C>(integers, quad), Self::Read::quad::<C>(integers, quad + 1)];
            out.cast::<[Quad; 2]>().write(quads);
        }
    }
}

/// The kernel of a unit for a coding.
pub(super) const fn kernel<U: Unit<C>, C: Code>(name: &'static str) -> Kernel {
    Kernel {
        name,
        instructions: U::INSTRUCTIONS,
        input: InputFormat::Int8,
        weight: WeightFormat::Integers(C::CODING),
        row_tile: if U::DIRECT.is_empty() { U::MOST } else { U::DIRECT.len() },
        depth_block: PARTS * INPUTS,
        deep_block: PARTS * INPUTS,
        accumulate: accumulate::<U, C>,
        ..portable::F32
    }
}

/// Parts of a pair of panels that are ready to be multiplied.
pub(super) struct Weights {
    /// Bytes of the first panel's first part; the pair's blocks for a tile that takes them as they are packed.
    pub(super) bytes: *const u8,
    /// Stride from one panel's part to the other's, and from part to part.
    pub(super) panel_stride: usize,
    pub(super) part_stride: usize,
    /// Factors of each part and panel: its scales, then its minima.
    pub(super) factors: *const f32,
}

/// Memory of prepared parts, on the stack of their thread.
#[repr(align(64))]
pub(super) struct Prepared {
    bytes: MaybeUninit<[u8; PARTS * GROUP * QUADS * QUAD_BYTES]>,
    factors: MaybeUninit<[f32; PARTS * GROUP * 2 * PANEL]>,
}

/// Weights that are asked for while a tile multiplies: so many bytes for each part.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) start: *const u8,
    pub(super) step: usize,
    /// Records whether the tile is the only one, which waits for its weights: `start` is their place then, from which
    /// [`fetch::stream`](crate::fetch::stream) counts.
    pub(super) alone: bool,
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<U: Unit<C>, C: Code>(block: &Block) {
    let coding = C::CODING;
    let mut prepared = Prepared { bytes: MaybeUninit::uninit(), factors: MaybeUninit::uninit() };
    if block.rows <= U::DIRECT.len() {
        for group in 0..block.groups {
            // SAFETY: the caller vouches for the processor and the block.
            unsafe {
                let pair = block.part(0, block.rows, group);
                let weights =
                    Weights { bytes: pair.weight, panel_stride: 0, part_stride: 0, factors: std::ptr::null() };
                let step = coding.block_bytes() / coding.parts();
                let ahead = Ahead { start: pair.weight, step, alone: true };
                U::DIRECT[block.rows - 1](&pair, &weights, ahead);
            }
        }
        return;
    }
    let count = block.rows.div_ceil(U::MOST);
    let parts = block.depth / INPUTS;
    let most = if count == 1 { FEW_PARTS } else { PARTS };
    for group in 0..block.groups {
        for start in (0..parts).step_by(most) {
            let end = parts.min(start + most);
            let depth = end - start;
            // SAFETY: the caller vouches for the processor and the block; parts are the pair's, and there is memory for
            // as many as are prepared.
            unsafe {
                let pair = block.part(0, block.rows, group);
                let weights = U::Preparation::prepare::<C>(pair.weight, start..end, &mut prepared);
                let (next, bytes) = if count == 1 {
                    (pair.weight.wrapping_add(coding.part_offset(start)), coding.part_bytes() * depth)
                } else if end < parts {
                    (pair.weight.wrapping_add(coding.part_offset(end)), coding.part_bytes() * depth)
                } else {
                    (following(block, group), coding.part_bytes() * parts.min(most))
                };
                let input = pair.input.add(start * size_of::<InputGroup>());
                let mut row = 0;
                for index in 0..count {
                    let rows = (block.rows - row).div_ceil(count - index);
                    let share = bytes.div_ceil(count);
                    let start = next.wrapping_add(index * share);
                    let ahead = Ahead { start, step: share.div_ceil(depth), alone: count == 1 };
                    let tile = Block {
                        input: input.add(row * block.input_stride),
                        rows,
                        depth: depth * INPUTS,
                        sums: pair.sums.add(row * block.sums_stride),
                        ..pair
                    };
                    U::TILES[rows - U::FEWEST](&tile, &weights, ahead);
                    row += rows;
                }
            }
        }
    }
}

/// Address after a pair of panels: the next pair of the block, or the data after the last one.
fn following(block: &Block, group: usize) -> *const u8 {
    if group + 1 < block.groups {
        block.weight.wrapping_add((group + 1) * GROUP * block.panel_stride)
    } else {
        block.ahead[0]
    }
}

/// Prepares parts of the pair of panels at `start`.
///
/// # Safety
/// As [`Preparation::prepare`], in code that is compiled with the tier's instructions.
#[inline(always)]
pub(super) unsafe fn prepare<P: Preparation, C: Code>(
    start: *const u8,
    parts: Range<usize>,
    prepared: &mut Prepared,
) -> Weights {
    const { assert!(C::CODING.factors() <= 2) };
    // Scales between the parts are in the way.
    let (coding, as_packed) = (C::CODING, P::AS_PACKED && C::CODING.bytes() && !C::CODING.part_scales());
    let bytes = prepared.bytes.as_mut_ptr().cast::<u8>();
    let factors = prepared.factors.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller vouches for blocks and memory.
    unsafe {
        for part in parts.clone() {
            let source = start.add(coding.part_offset(part));
            let head = start.add(coding.block_offset(part));
            for panel in 0..GROUP {
                let place = (part - parts.start) * GROUP + panel;
                P::write_factors::<C>(head, source, panel, factors.add(place * coding.factors() * PANEL));
                let integers = source.add(coding.scale_bytes() + panel * coding.panel_bytes());
                for quad in (0..if as_packed { 0 } else { QUADS }).step_by(2) {
                    P::write_quads::<C>(integers, quad, bytes.add(place * PANEL_BYTES + quad * QUAD_BYTES).cast());
                }
            }
        }
        let (bytes, panel_stride, part_stride) = if as_packed {
            let source = start.add(coding.part_offset(parts.start));
            (source, coding.panel_bytes(), coding.part_bytes() + coding.head_bytes())
        } else {
            (bytes.cast_const(), PANEL_BYTES, GROUP * PANEL_BYTES)
        };
        Weights { bytes, panel_stride, part_stride, factors }
    }
}
