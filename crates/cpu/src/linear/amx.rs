//! Tile products of bf16: 16 rows times 16 outputs over a depth of 32 in one instruction.
//!
//! Bytes are multiplied by dot products on this tier too: each group of 32 inputs, half of a tile's, has its own
//! scales, and integer sums would leave the tiles after each group.
//!
//! Four tiles of sums (two of rows times a pair of panels) stay in registers while two tiles of inputs and two of
//! weights pass by. Inputs are tiles as they lie, 16 rows of 64 bytes; panels are tiles as they were packed, 16 pairs
//! of inputs of 64 bytes. Rows are always multiplied by the sixteen; those beyond the block's are never looked at.

use super::{
    input::InputFormat,
    kernel::{Block, Instructions, Kernel, LINE},
    packed::{GROUP, PANEL},
    portable,
};
use crate::{
    isa::Tier,
    tiles::{DEPTH, Places, ROW_BYTES, ROWS, ROWS_AHEAD, TileUnit},
};

/// Inputs of a block of the depth: so many that a pair of panels stays in a first-level cache of 48 KiB while all rows
/// meet it, and that sums rest in memory seldom.
const DEPTH_BLOCK: usize = 512;
/// Inputs of a block where a single tile of rows meets the panels: sums that rest in memory are waited for.
const SINGLE_BLOCK: usize = 4096;
/// Bytes of an input of a panel.
const PANEL_ROW: usize = PANEL * size_of::<u16>();
/// Bytes of a panel that a product takes.
const STEP_BYTES: usize = DEPTH * PANEL_ROW;
/// Bytes by which a single tile of rows fetches either panel ahead: a step and a half.
const SINGLE_AHEAD: usize = STEP_BYTES + STEP_BYTES / 2;

const _: () = assert!(PANEL * size_of::<f32>() == ROW_BYTES);

/// The tile instructions.
pub(super) const BF16: Kernel = Kernel {
    name: "amx_bf16xbf16_f32",
    instructions: Instructions::of(Tier::Amx),
    input: InputFormat::Bf16,
    row_tile: 2 * ROWS,
    depth_block: DEPTH_BLOCK,
    deep_block: DEPTH_BLOCK,
    accumulate,
    ..portable::BF16
};

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
unsafe fn accumulate(block: &Block) {
    // SAFETY: as the caller promises.
    unsafe {
        if block.rows <= 2 * ROWS {
            accumulate_in::<SINGLE_BLOCK>(block);
        } else {
            accumulate_in::<DEPTH_BLOCK>(block);
        }
    }
}

/// Adds a block's products, so many inputs after so many.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn accumulate_in<const MOST: usize>(block: &Block) {
    let tiles = block.rows.div_ceil(2 * ROWS);
    // SAFETY: the kernel executes on a tier that has the unit; this function configures it, and calls nothing that
    // does. Parts lie inside the block, which promises sums and inputs for whole tiles of rows, and a depth of whole ones.
    unsafe {
        // In each call anew: which thread runs a task is chance, and the configuration is the thread's.
        let mut unit = TileUnit::configure();
        for group in 0..block.groups {
            for start in (0..block.depth).step_by(MOST) {
                let pair = block.part(0, block.rows, group);
                let weight = pair.weight.add(start * PANEL_ROW);
                let count = (block.depth - start).min(MOST) / DEPTH;
                let mut steps = [weight; SINGLE_BLOCK / DEPTH];
                for (step, weight) in steps[..count].iter_mut().enumerate() {
                    *weight = weight.wrapping_add(step * STEP_BYTES);
                }
                let (ahead, ahead_lines) = ahead(block, group, start, tiles);
                // The groups of a wide task together fetch the inputs of the next block of the depth.
                let rows_ahead = block.input_ahead.wrapping_add(group * ROWS_AHEAD * block.input_stride);
                for tile in 0..tiles {
                    let row = tile * 2 * ROWS;
                    let part = block.part(row, (block.rows - row).min(2 * ROWS), group);
                    let places = Places {
                        sums: part.sums.cast(),
                        sums_stride: part.sums_stride * size_of::<f32>(),
                        input: part.input.add(start * size_of::<u16>()),
                        input_stride: part.input_stride,
                        weight_stride: ROW_BYTES,
                        weight_right: part.panel_stride,
                        ahead: ahead.wrapping_add(tile * count * ahead_lines * LINE),
                        ahead_lines,
                        rows_ahead: rows_ahead.wrapping_add(row * block.input_stride),
                        fresh: block.fresh && start == 0,
                    };
                    unit.multiply(part.rows > ROWS, tiles == 1, &places, &steps[..count]);
                }
            }
        }
    }
}

/// Place in a pair of panels that is read next after a block of the depth, and how many lines of either panel each step
/// fetches of it: all tiles of rows together as much as they multiply. A single tile, which reads weights at the pace
/// of memory, fetches the weights that it reads itself a little later: a block ahead, a stream stops and starts again.
#[inline(always)]
fn ahead(block: &Block, group: usize, start: usize, tiles: usize) -> (*const u8, usize) {
    let pair =
        |group: usize, depth: usize| block.weight.wrapping_add(group * GROUP * block.panel_stride + depth * PANEL_ROW);
    let next = start + DEPTH_BLOCK;
    let place = if tiles == 1 {
        pair(group, start).wrapping_add(SINGLE_AHEAD)
    } else if next < block.depth {
        pair(group, next)
    } else if group + 1 < block.groups {
        pair(group + 1, 0)
    } else {
        block.ahead[0]
    };
    (place, (STEP_BYTES / LINE).div_ceil(tiles))
}
