//! Plain Rust: a multiplication, then an addition, in vectors of whatever width the target has.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use demask_tensor::Dtype;

use super::{
    activation::widen_bf16,
    input::InputFormat,
    kernel::{Block, Kernel, TileFn, tiles},
    packed::{GROUP, PANEL, WeightFormat},
};
use crate::isa::Tier;

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "portable_f32xf32_f32",
    tier: Tier::Portable,
    executes: Tier::Portable,
    vnni: false,
    dtype: Dtype::F32,
    input: InputFormat::F32,
    weight: WeightFormat::F32,
    row_tile: 2,
    depth_block: 256,
    deep_block: 256,
    accumulate: portable_f32xf32_f32,
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "portable_bf16xbf16_f32",
    dtype: Dtype::Bf16,
    input: InputFormat::RoundedF32,
    weight: WeightFormat::Bf16Pairs,
    accumulate: portable_bf16xbf16_f32,
    ..F32
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn portable_f32xf32_f32(block: &Block) {
    const TILES: [TileFn; 2] = tiles!(f32_tile: 1 2);
    // SAFETY: the caller vouches for the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn portable_bf16xbf16_f32(block: &Block) {
    const TILES: [TileFn; 2] = tiles!(bf16_tile: 1 2);
    // SAFETY: the caller vouches for the block.
    unsafe { block.for_tiles(&TILES, 2) }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows and one pair of panels.
unsafe fn f32_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: rows, panels and sums are as long as the block promises; elements are aligned as in their buffers.
    unsafe {
        let rows: [&[f32]; ROWS] = input_rows(block);
        for panel in 0..GROUP {
            let start = block.weight.add(panel * block.panel_stride).cast::<[f32; PANEL]>();
            let weights = std::slice::from_raw_parts(start, block.depth);
            let mut sums = load_sums::<ROWS>(block, panel);
            for (k, weight) in weights.iter().enumerate() {
                for row in 0..ROWS {
                    add_product(&mut sums[row], *rows[row].get_unchecked(k), weight);
                }
            }
            store_sums(block, panel, &sums);
        }
    }
}

/// # Safety
/// As [`f32_tile`]; the depth is even.
unsafe fn bf16_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: as in `f32_tile`, for pairs of bf16.
    unsafe {
        let rows: [&[f32]; ROWS] = input_rows(block);
        for panel in 0..GROUP {
            let start = block.weight.add(panel * block.panel_stride).cast::<[[u16; 2]; PANEL]>();
            let weights = std::slice::from_raw_parts(start, block.depth / 2);
            let mut sums = load_sums::<ROWS>(block, panel);
            for (pair, weight) in weights.iter().enumerate() {
                for half in 0..2 {
                    let wide = std::array::from_fn(|lane| widen_bf16(weight[lane][half]));
                    for row in 0..ROWS {
                        add_product(&mut sums[row], *rows[row].get_unchecked(2 * pair + half), &wide);
                    }
                }
            }
            store_sums(block, panel, &sums);
        }
    }
}

/// `sums += x * weights`.
#[inline(always)]
fn add_product(sums: &mut [f32; PANEL], x: f32, weights: &[f32; PANEL]) {
    for lane in 0..PANEL {
        sums[lane] += x * weights[lane];
    }
}

/// # Safety
/// The block keeps its promises, has `ROWS` rows, and its inputs are f32.
#[inline(always)]
unsafe fn input_rows<'a, const ROWS: usize>(block: &Block) -> [&'a [f32]; ROWS] {
    std::array::from_fn(|row| {
        // SAFETY: the block promises `depth` readable elements in each row.
        unsafe { std::slice::from_raw_parts(block.input.add(row * block.input_stride).cast(), block.depth) }
    })
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline(always)]
unsafe fn load_sums<const ROWS: usize>(block: &Block, panel: usize) -> [[f32; PANEL]; ROWS] {
    std::array::from_fn(|row| {
        // SAFETY: the block promises initialised sums of two panels in each row.
        unsafe { block.sums.add(row * block.sums_stride + panel * PANEL).cast::<[f32; PANEL]>().read() }
    })
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows.
#[inline(always)]
unsafe fn store_sums<const ROWS: usize>(block: &Block, panel: usize, sums: &[[f32; PANEL]; ROWS]) {
    for row in 0..ROWS {
        // SAFETY: the block promises sums of two panels in each row, which nobody else accesses.
        unsafe { block.sums.add(row * block.sums_stride + panel * PANEL).cast::<[f32; PANEL]>().write(sums[row]) }
    }
}
