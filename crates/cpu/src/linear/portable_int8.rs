//! Products of integers in plain Rust: a multiplication, then an addition, in vectors of whatever width the target has.

#![expect(clippy::cast_ptr_alignment, reason = "rows and sums begin on cache lines; elements follow each other")]

use super::{
    input::InputFormat,
    int8::{InputGroup, QUAD, QUADS, scale_factor},
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, INPUTS, Quantisation, SCALES},
    unpacked::format,
};

/// Eight bits.
pub(super) const Q8: Kernel = Kernel {
    name: "portable_i8xq8_f32",
    input: InputFormat::Int8,
    weight: WeightFormat::Quads(Quantisation::Q8),
    accumulate: portable_i8xq_f32::<8>,
    ..super::portable::F32
};
/// Four bits.
pub(super) const Q4: Kernel = Kernel {
    name: "portable_i8xq4_f32",
    weight: WeightFormat::Quads(Quantisation::Q4),
    accumulate: portable_i8xq_f32::<4>,
    ..Q8
};

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn portable_i8xq_f32<const BITS: usize>(block: &Block) {
    for group in 0..block.groups {
        for index in 0..block.depth / INPUTS {
            for panel in 0..GROUP {
                // SAFETY: the block promises these rows, blocks of weights and sums.
                unsafe {
                    let part = block.part(0, block.rows, group);
                    let weights =
                        Weights::read::<BITS>(part.weight.add(index * quantised::block_bytes(format::<BITS>())), panel);
                    for row in 0..block.rows {
                        let input = &*part.input.add(row * block.input_stride).cast::<InputGroup>().add(index);
                        let sums = part.sums.add(row * block.sums_stride + panel * PANEL).cast::<[f32; PANEL]>();
                        weights.add_products(input, &mut *sums);
                    }
                }
            }
        }
    }
}

/// One panel's part of a block.
struct Weights {
    scales: [f32; PANEL],
    quads: [[[u8; QUAD]; PANEL]; QUADS],
}

impl Weights {
    /// # Safety
    /// `start` points to a block of integers of `BITS` bits.
    #[inline(always)]
    unsafe fn read<const BITS: usize>(start: *const u8, panel: usize) -> Self {
        // SAFETY: the caller vouches for the block: scales, then the integers of either panel.
        let (scales, lines) = unsafe {
            let lines =
                start.add(SCALES + panel * quantised::panel_bytes(format::<BITS>())).cast::<[[u8; QUAD]; PANEL]>();
            (quantised::scales(start, panel), lines)
        };
        let quads = std::array::from_fn(|quad| {
            // SAFETY: eight lines of bytes, or four of halves.
            let line = unsafe { lines.add(if BITS == 8 { quad } else { quad / 2 }).read() };
            match (BITS, quad % 2) {
                (8, _) => line,
                (_, 0) => line.map(|bytes| bytes.map(|byte| byte << 4)),
                _ => line.map(|bytes| bytes.map(|byte| byte & 0xf0)),
            }
        });
        Self { scales: scales.map(|scale| scale * scale_factor::<BITS>()), quads }
    }

    #[inline(always)]
    fn add_products(&self, input: &InputGroup, sums: &mut [f32; PANEL]) {
        let mut totals = [input.start; PANEL];
        for (quad, weights) in self.quads.iter().enumerate() {
            for lane in 0..PANEL {
                for k in 0..QUAD {
                    totals[lane] += i32::from(weights[lane][k]) * i32::from(input.integers[quad * QUAD + k]);
                }
            }
        }
        for lane in 0..PANEL {
            sums[lane] += totals[lane] as f32 * (input.scale * self.scales[lane]);
        }
    }
}
