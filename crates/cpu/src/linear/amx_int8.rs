//! Tile products of bytes: 16 rows times 16 outputs over a group of 32 inputs in one instruction.
//!
//! A group's sixteen rows are a tile of inputs as they lie, 16 rows of 32 bytes; a panel's part of a block is a tile of
//! weights as it was packed, 8 quads of 64 bytes. Each group has scales of its own: tiles of integer sums begin at 0,
//! are stored after one product, and are added to the sums as all kernels of bytes add them. Inputs have a sign and
//! weights none, as the instruction wants it.
//!
//! Part of a pair of panels is prepared for all rows: its scales are widened, and weights of four bits are unpacked.
//! Rows beyond the block's are multiplied, and never looked at.

#![expect(clippy::cast_ptr_alignment, reason = "groups and sums begin on words and cache lines")]

use std::mem::MaybeUninit;

use super::{
    input::InputFormat,
    int8::{InputGroup, QUAD_BYTES, QUADS, scale_factor},
    integers::Coding,
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, INPUTS, SCALES},
    unpacked::{PANEL_BYTES, Panels, format},
};
use crate::tiles::{ROW_BYTES, ROWS, TileUnit, twin};
#[cfg(target_arch = "x86_64")]
use crate::{isa::Tier, tiles::hardware};

/// The software twin of eight bits, for tests.
pub(super) const EMULATED_Q8: Kernel = Kernel {
    name: "emulatedamx_i8xq8_f32",
    input: InputFormat::Int8,
    weight: WeightFormat::Integers(Coding::Q8),
    depth_block: DEPTH,
    deep_block: DEPTH,
    accumulate: accumulate::<twin::Tiles, 8>,
    // As with all kernels of bytes, so that any finds its like.
    dtype: super::portable::F32.dtype,
    ..super::amx::EMULATED_BF16
};
/// The software twin of four bits, for tests.
pub(super) const EMULATED_Q4: Kernel = Kernel {
    name: "emulatedamx_i8xq4_f32",
    weight: WeightFormat::Integers(Coding::Q4),
    accumulate: accumulate::<twin::Tiles, 4>,
    ..EMULATED_Q8
};
/// Eight bits.
#[cfg(target_arch = "x86_64")]
pub(super) const Q8: Kernel =
    Kernel { name: "amx_i8xq8_f32", executes: Tier::Amx, accumulate: amx_i8xq_f32::<8>, ..EMULATED_Q8 };
/// Four bits.
#[cfg(target_arch = "x86_64")]
pub(super) const Q4: Kernel =
    Kernel { name: "amx_i8xq4_f32", executes: Tier::Amx, accumulate: amx_i8xq_f32::<4>, ..EMULATED_Q4 };

/// Bytes of a tile of weights.
const TILE_BYTES: usize = QUADS * QUAD_BYTES;
/// Inputs that are prepared for all rows: so many that their bytes fill half of a 32 KiB first-level cache.
const DEPTH: usize = (16 << 10) / (GROUP * PANEL);

const _: () = assert!(QUAD_BYTES == ROW_BYTES && DEPTH.is_multiple_of(INPUTS));
const _: () = assert!(DEPTH * GROUP * PANEL <= PANEL_BYTES);

/// Scales of a pair of panels.
type Scales = [[f32; PANEL]; GROUP];

/// Tiles of integer sums, as they are stored: rows of a pair of panels.
#[repr(align(64))]
struct Totals([[[i32; PANEL]; GROUP]; 2 * ROWS]);

/// Tiles of weights of a pair of panels, and their scales.
struct Weights<'a> {
    start: *const u8,
    /// Bytes from one panel's tile to the other's.
    panel: usize,
    /// Bytes from group to group.
    step: usize,
    /// Scales of each group.
    scales: &'a [Scales],
}

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn amx_i8xq_f32<const BITS: usize>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { accumulate::<hardware::Tiles, BITS>(block) }
}

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
#[inline(always)]
unsafe fn accumulate<U: TileUnit, const BITS: usize>(block: &Block) {
    let mut bytes = Panels(MaybeUninit::uninit());
    let bytes = bytes.0.as_mut_ptr().cast::<u8>();
    let mut scales = [[[0.0; PANEL]; GROUP]; DEPTH / INPUTS];
    let mut totals = Totals([[[0; PANEL]; GROUP]; 2 * ROWS]);
    // SAFETY: the kernel executes on a tier that has the unit; this function is the only one here that configures tiles,
    // and calls nothing that does. Parts lie inside the block, whose depth is a multiple of a group; `bytes` has room for
    // the tiles of `DEPTH` inputs.
    unsafe {
        // In each call anew, as for products of bf16, whose tiles have other shapes.
        let mut unit = U::configure::<QUADS>();
        for group in 0..block.groups {
            for start in (0..block.depth).step_by(DEPTH) {
                let pair = block.part(0, block.rows, group);
                let blocks = pair.weight.add(start / INPUTS * quantised::block_bytes(format::<BITS>()));
                let scales = &mut scales[..DEPTH.min(block.depth - start) / INPUTS];
                let weights = prepare::<BITS>(blocks, scales, bytes);
                for row in (0..block.rows).step_by(2 * ROWS) {
                    let rows = (block.rows - row).min(2 * ROWS);
                    let part = block.part(row, rows, group);
                    let part = Block { input: part.input.add(InputFormat::Int8.offset(start)), ..part };
                    if rows > ROWS {
                        multiply::<U, true>(&mut unit, &part, &weights, &mut totals);
                    } else {
                        multiply::<U, false>(&mut unit, &part, &weights, &mut totals);
                    }
                }
            }
        }
    }
}

/// Widens the scales of as many blocks as `scales` has room for, and unpacks weights of four bits to `bytes`.
///
/// # Safety
/// `blocks` points to as many blocks of integers of `BITS` bits, `bytes` to room for as many pairs of tiles.
#[inline(always)]
unsafe fn prepare<const BITS: usize>(blocks: *const u8, scales: &mut [Scales], bytes: *mut u8) -> Weights<'_> {
    let (block_bytes, panel_bytes) =
        (quantised::block_bytes(format::<BITS>()), quantised::panel_bytes(format::<BITS>()));
    for (index, scales) in scales.iter_mut().enumerate() {
        for (panel, scales) in scales.iter_mut().enumerate() {
            // SAFETY: the caller vouches for blocks and bytes.
            unsafe {
                let block = blocks.add(index * block_bytes);
                *scales = quantised::each(quantised::scales(block, panel), |scale| scale * scale_factor::<BITS>());
                if BITS == 4 {
                    let tile = bytes.add((index * GROUP + panel) * TILE_BYTES);
                    unpack(block.add(SCALES + panel * panel_bytes), tile);
                }
            }
        }
    }
    if BITS == 4 {
        Weights { start: bytes, panel: TILE_BYTES, step: GROUP * TILE_BYTES, scales }
    } else {
        Weights { start: blocks.wrapping_add(SCALES), panel: panel_bytes, step: block_bytes, scales }
    }
}

/// Unpacks a panel's integers of four bits to a tile: each half of a byte becomes the upper half of one.
///
/// # Safety
/// `lines` points to the four lines of a panel's part of a block, `tile` to room for its eight quads.
#[inline(always)]
unsafe fn unpack(lines: *const u8, tile: *mut u8) {
    for index in 0..QUADS / 2 {
        // SAFETY: the caller vouches for both.
        unsafe {
            let line = lines.cast::<[u8; QUAD_BYTES]>().add(index).read();
            let quads = tile.cast::<[u8; QUAD_BYTES]>().add(2 * index);
            quads.write(line.map(|halves| halves << 4));
            quads.add(1).write(line.map(|halves| halves & 0xf0));
        }
    }
}

/// One or two tiles of rows times a pair of panels.
///
/// # Safety
/// The block keeps its promises, and has one pair of panels and at most 16 rows, or 32 if `TALL`; the weights are the
/// pair's, from the block's inputs on.
#[inline(always)]
unsafe fn multiply<U: TileUnit, const TALL: bool>(unit: &mut U, block: &Block, weights: &Weights, totals: &mut Totals) {
    let place = (&raw mut totals.0).cast::<u8>();
    let stride = GROUP * ROW_BYTES;
    for (index, scales) in weights.scales.iter().enumerate() {
        // SAFETY: the block promises inputs for whole tiles of rows, and these weights; `totals` has room for all
        // tiles. Sums are the block's, for its own rows.
        unsafe {
            let input = block.input.add(index * size_of::<InputGroup>());
            let weight = weights.start.add(index * weights.step);
            unit.load::<4>(input, block.input_stride);
            unit.load::<6>(weight, ROW_BYTES);
            unit.load::<7>(weight.add(weights.panel), ROW_BYTES);
            unit.zero::<0>();
            unit.zero::<1>();
            unit.dot_bytes::<0, 4, 6>();
            unit.dot_bytes::<1, 4, 7>();
            if TALL {
                unit.load::<5>(input.add(ROWS * block.input_stride), block.input_stride);
                unit.zero::<2>();
                unit.zero::<3>();
                unit.dot_bytes::<2, 5, 6>();
                unit.dot_bytes::<3, 5, 7>();
            }
            unit.store::<0>(place, stride);
            unit.store::<1>(place.add(ROW_BYTES), stride);
            if TALL {
                unit.store::<2>(place.add(ROWS * stride), stride);
                unit.store::<3>(place.add(ROWS * stride + ROW_BYTES), stride);
            }
            for row in 0..block.rows {
                let group = &*input.add(row * block.input_stride).cast::<InputGroup>();
                let totals = place.add(row * stride).cast::<[[i32; PANEL]; GROUP]>().read();
                let sums = &mut *block.sums.add(row * block.sums_stride).cast::<Scales>();
                add_products(group, &totals, scales, sums);
            }
        }
    }
}

/// Adds a row's integer sums of a group to its sums.
#[inline(always)]
fn add_products(group: &InputGroup, totals: &[[i32; PANEL]; GROUP], scales: &Scales, sums: &mut Scales) {
    for panel in 0..GROUP {
        for lane in 0..PANEL {
            let total = (totals[panel][lane] + group.start) as f32;
            sums[panel][lane] = total.mul_add(group.scale * scales[panel][lane], sums[panel][lane]);
        }
    }
}
