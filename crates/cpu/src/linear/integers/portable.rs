//! Products of bytes in plain Rust: multiplications, then additions, in vectors of whatever width the target has.

#![expect(clippy::cast_ptr_alignment, reason = "rows and sums begin on cache lines; elements follow each other")]

use super::{
    Code, Coding, INPUTS, begin, codings,
    numbers::{Arrays, Quad, Read},
};
use crate::linear::{
    input::InputFormat,
    int8::{COUNTER, InputGroup, QUAD, QUADS},
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    portable,
};

/// The kernels.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel, "portable_i8");

const fn kernel<C: Code>(name: &'static str) -> Kernel {
    Kernel {
        name,
        input: InputFormat::Int8,
        weight: WeightFormat::Integers(C::CODING),
        accumulate: accumulate::<C>,
        ..portable::F32
    }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<C: Code>(block: &Block) {
    for group in 0..block.groups {
        for part in 0..block.depth / INPUTS {
            for panel in 0..GROUP {
                // SAFETY: the block promises these rows, blocks of weights and sums.
                unsafe {
                    let pair = block.part(0, block.rows, group);
                    let weights = Weights::read::<C>(pair.weight, part, panel);
                    for row in 0..block.rows {
                        let input = &*pair.input.add(row * block.input_stride).cast::<InputGroup>().add(part);
                        let sums = pair.sums.add(row * block.sums_stride + panel * PANEL).cast::<[f32; PANEL]>();
                        weights.add_products::<C>(input, &mut *sums);
                    }
                }
            }
        }
    }
}

/// One panel's part of a block: two factors of each output, and integers without a sign.
struct Weights {
    factors: [[f32; PANEL]; 2],
    quads: [Quad; QUADS],
}

impl Weights {
    /// # Safety
    /// `start` points to blocks of a pair of panels that have part `part`.
    unsafe fn read<C: Code>(start: *const u8, part: usize, panel: usize) -> Self {
        let coding = C::CODING;
        // SAFETY: the caller vouches for the blocks.
        unsafe {
            let head = start.add(coding.block_offset(part));
            let part = start.add(coding.part_offset(part));
            let integers = part.add(coding.scale_bytes() + panel * coding.panel_bytes());
            let factors = Arrays::factors::<C>(head, part, panel);
            Self { factors, quads: std::array::from_fn(|quad| Arrays::quad::<C>(integers, quad)) }
        }
    }

    fn add_products<C: Code>(&self, input: &InputGroup, sums: &mut [f32; PANEL]) {
        const { assert!(C::CODING.factors() <= 2) };
        let quads = QUADS / C::CODING.halves();
        for half in 0..C::CODING.halves() {
            let mut totals = [begin::<C>(input, half); PANEL];
            for quad in half * quads..(half + 1) * quads {
                for (lane, total) in totals.iter_mut().enumerate() {
                    for k in 0..QUAD {
                        let weight = (self.quads[quad][lane] >> (8 * k) & 255) as i32;
                        *total += weight * i32::from(input.integers[quad * QUAD + k]);
                    }
                }
            }
            for lane in 0..PANEL {
                let total = f32::from_bits(totals[lane] as u32) - COUNTER;
                sums[lane] += total * self.factors[half][lane] * input.scale;
            }
        }
        if C::CODING.minima() {
            for lane in 0..PANEL {
                sums[lane] -= input.weighted * self.factors[1][lane];
            }
        }
    }
}
