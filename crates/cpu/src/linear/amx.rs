//! Tile products of bf16: 16 rows times 16 outputs over a depth of 32 in one instruction. Those of bytes are
//! [`amx_int8`](super::amx_int8)'s.
//!
//! Four tiles of sums (two of rows times a pair of panels) stay in registers while two tiles of inputs and two of
//! weights pass by. Inputs are tiles as they lie, 16 rows of 64 bytes; panels are tiles as they were packed, 16 pairs
//! of inputs of 64 bytes. Rows are always multiplied by the sixteen; those beyond the block's are never looked at.

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Kernel},
    packed::{PANEL, WeightFormat},
};
#[cfg(target_arch = "x86_64")]
use crate::tiles::hardware;
use crate::{
    isa::Tier,
    tiles::{DEPTH, Places, ROW_BYTES, ROWS, TileUnit, WORDS, multiply, twin},
};

const _: () = assert!(PANEL * size_of::<f32>() == ROW_BYTES);

/// The tile instructions.
#[cfg(target_arch = "x86_64")]
pub(super) const BF16: Kernel = Kernel {
    name: "amx_bf16xbf16_f32",
    tier: Tier::Amx,
    executes: Tier::Amx,
    vnni: false,
    dtype: Dtype::Bf16,
    input: InputFormat::Bf16,
    weight: WeightFormat::Bf16Pairs,
    row_tile: 2 * ROWS,
    depth_block: 2048,
    deep_block: 2048,
    accumulate: accumulate::<hardware::Tiles>,
};

/// Kernel of their software twin, for tests.
pub(super) const EMULATED_BF16: Kernel = Kernel {
    name: "emulatedamx_bf16xbf16_f32",
    tier: Tier::Amx,
    executes: Tier::Portable,
    vnni: false,
    dtype: Dtype::Bf16,
    input: InputFormat::Bf16,
    weight: WeightFormat::Bf16Pairs,
    row_tile: 2 * ROWS,
    depth_block: 2048,
    deep_block: 2048,
    accumulate: accumulate::<twin::Tiles>,
};

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
unsafe fn accumulate<U: TileUnit>(block: &Block) {
    // SAFETY: the kernel executes on a tier that has the unit; this function configures tiles, and calls nothing that
    // does. Parts lie inside the block, which promises sums and inputs for whole tiles of rows, and a depth of whole ones.
    unsafe {
        // In each call anew: which thread runs a task is chance, and the configuration is the thread's.
        let mut unit = U::configure::<WORDS>();
        for group in 0..block.groups {
            for row in (0..block.rows).step_by(2 * ROWS) {
                let rows = (block.rows - row).min(2 * ROWS);
                let part = block.part(row, rows, group);
                let places = Places {
                    sums: part.sums.cast(),
                    sums_stride: part.sums_stride * size_of::<f32>(),
                    input_stride: part.input_stride,
                    weight_stride: ROW_BYTES,
                    weight_right: part.panel_stride,
                    fresh: false,
                };
                let panel = DEPTH * PANEL * size_of::<u16>();
                let steps = (0..part.depth / DEPTH)
                    .map(|step| (part.input.wrapping_add(step * ROW_BYTES), part.weight.wrapping_add(step * panel)));
                if rows > ROWS {
                    multiply::<U, true>(&mut unit, &places, steps);
                } else {
                    multiply::<U, false>(&mut unit, &places, steps);
                }
            }
        }
    }
}
