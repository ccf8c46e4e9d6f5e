//! Products of bytes in plain Rust: multiplications, then additions, in vectors of whatever width the target has.

#![expect(clippy::cast_ptr_alignment, reason = "rows and sums begin on cache lines; elements follow each other")]

use demask_tensor::widen_f16;

use super::{Code, codings};
use crate::linear::{
    input::InputFormat,
    int8::{InputGroup, QUAD, QUAD_BYTES, QUADS},
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    portable,
    quantised::INPUTS,
};

/// The kernels.
pub(in crate::linear) const KERNELS: [Kernel; 6] = codings!(kernel, "portable_i8");

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
    quads: [[u8; QUAD_BYTES]; QUADS],
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
            let factors = factors::<C>(head, part, panel);
            Self { factors, quads: std::array::from_fn(|quad| bytes::<C>(integers, quad)) }
        }
    }

    fn add_products<C: Code>(&self, input: &InputGroup, sums: &mut [f32; PANEL]) {
        const { assert!(C::CODING.factors() <= 2) };
        let quads = QUADS / C::CODING.halves();
        for half in 0..C::CODING.halves() {
            let mut totals = [-C::CODING.middle() * input.sum(half, C::CODING.halves()); PANEL];
            for quad in half * quads..(half + 1) * quads {
                for (lane, total) in totals.iter_mut().enumerate() {
                    for k in 0..QUAD {
                        let weight = i32::from(self.quads[quad][lane * QUAD + k]);
                        *total += weight * i32::from(input.integers[quad * QUAD + k]);
                    }
                }
            }
            for lane in 0..PANEL {
                sums[lane] += totals[lane] as f32 * (input.scale * self.factors[half][lane]);
            }
        }
        if C::CODING.minima() {
            for lane in 0..PANEL {
                sums[lane] -= input.weighted * self.factors[1][lane];
            }
        }
    }
}

/// The factors of a panel in a part that begins at `part`, of the block that begins at `head`.
///
/// # Safety
/// Both are a pair's.
unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [[f32; PANEL]; 2] {
    let coding = C::CODING;
    let halves = |which: usize| {
        // SAFETY: the caller vouches for the block, which begins with its halves.
        let halves = unsafe { head.add((which * GROUP + panel) * PANEL * 2).cast::<[[u8; 2]; PANEL]>().read() };
        halves.map(|half| widen_f16(u16::from_le_bytes(half)))
    };
    let of_scales = halves(0);
    if !coding.part_scales() {
        return [of_scales, [0.0; PANEL]];
    }
    // SAFETY: the caller vouches for the part, which begins with its scales.
    let bytes = unsafe { part.add(panel * 2 * PANEL).cast::<[[u8; PANEL]; 2]>().read() };
    let product = |halves: [f32; PANEL], which: usize| -> [f32; PANEL] {
        let wide = |byte: u8| if coding.minima() { f32::from(byte) } else { f32::from(byte as i8) };
        std::array::from_fn(|lane| halves[lane] * wide(bytes[which][lane]))
    };
    [product(of_scales, 0), product(if coding.minima() { halves(1) } else { of_scales }, 1)]
}

/// A quad of a panel's integers, without a sign.
///
/// # Safety
/// `integers` points to those of a panel in a part; `quad` is less than 8.
unsafe fn bytes<C: Code>(integers: *const u8, quad: usize) -> [u8; QUAD_BYTES] {
    let coding = C::CODING;
    // SAFETY: the caller vouches for the lines.
    let line = |index: usize| unsafe { integers.add(index * QUAD_BYTES).cast::<[u8; QUAD_BYTES]>().read() };
    if coding.bytes() {
        return line(quad);
    }
    let upper_lines = coding.upper_bytes() / QUAD_BYTES;
    let lower = line(upper_lines + quad / 2).map(|byte| byte >> (quad % 2 * 4) & 15);
    if upper_lines == 0 {
        return lower;
    }
    let bits = coding.upper_bits();
    let (upper, shift) = (line(quad * upper_lines / QUADS), quad % (QUADS / upper_lines) * bits);
    std::array::from_fn(|place| lower[place] | (upper[place] >> shift & ((1 << bits) - 1)) << 4)
}
