//! Plain Rust: a multiplication, then an addition, in vectors of whatever width the target has.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Instructions, Kernel, tiles},
    packed::{GROUP, PANEL, WeightFormat},
};
use crate::isa::Tier;

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "portable_f32xf32_f32",
    instructions: Instructions::of(Tier::Portable),
    dtype: Dtype::F32,
    input: InputFormat::F32,
    weight: WeightFormat::F32,
    row_tile: 2,
    depth_block: 256,
    deep_block: 256,
    accumulate: accumulate::<false>,
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "portable_bf16xbf16_f32",
    dtype: Dtype::Bf16,
    input: InputFormat::RoundedF32,
    weight: WeightFormat::Bf16Pairs,
    accumulate: accumulate::<true>,
    ..F32
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<const BF16: bool>(block: &Block) {
    // SAFETY: the caller vouches for the block.
    unsafe { block.for_tiles(const { &tiles!((tile, BF16): 1 2) }, line_inputs(BF16)) }
}

/// Inputs of a cache line of a panel.
pub(super) const fn line_inputs(bf16: bool) -> usize {
    if bf16 { 2 } else { 1 }
}

/// # Safety
/// The block keeps its promises and has `ROWS` rows and one pair of panels; weights are pairs of bf16 if `BF16`.
unsafe fn tile<const BF16: bool, const ROWS: usize>(block: &Block) {
    // SAFETY: rows, panels and sums are as long as the block promises; elements are aligned as in their buffers.
    unsafe {
        let rows: [&[f32]; ROWS] = input_rows(block);
        for panel in 0..GROUP {
            let start = block.weight.add(panel * block.panel_stride).cast::<[u32; PANEL]>();
            let lines = std::slice::from_raw_parts(start, block.depth / line_inputs(BF16));
            let mut sums = block.load_sums::<[f32; PANEL], ROWS, 1>(panel);
            for (index, line) in lines.iter().enumerate() {
                for input in 0..line_inputs(BF16) {
                    let bits = |word: u32| if BF16 { word >> (16 * input) << 16 } else { word };
                    let weights = std::array::from_fn(|lane| f32::from_bits(bits(line[lane])));
                    for row in 0..ROWS {
                        let x = *rows[row].get_unchecked(index * line_inputs(BF16) + input);
                        add_product(&mut sums[row][0], x, &weights);
                    }
                }
            }
            block.store_sums(panel, &sums);
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
