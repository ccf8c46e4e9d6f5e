//! Unpacking of blocks to panels of f32 or of bf16 pairs, in code that the compiler turns into vectors of each tier's
//! width.

#![expect(clippy::cast_ptr_alignment, reason = "panels begin on cache lines; elements follow each other")]

use std::ops::Range;

use super::Code;
use crate::linear::{
    activation::round_bf16,
    packed::{GROUP, PANEL},
    quantised::{INPUTS, each, scales as halves},
};

/// Parts of panels that have scales of their own.
const HALVES: usize = 2;

/// One panel's numbers in a part.
struct Numbers {
    /// The scales of either half of the inputs.
    scales: [[f32; PANEL]; HALVES],
    /// The minima, or zeros.
    minima: [f32; PANEL],
    /// The upper bits, where there are any, then the lower.
    integers: *const u8,
}

impl Numbers {
    /// # Safety
    /// `start` points to blocks of a pair of panels with part `part`.
    #[inline(always)]
    unsafe fn new<C: Code>(start: *const u8, part: usize, panel: usize) -> Self {
        let coding = C::CODING;
        // SAFETY: the caller vouches for the block, which begins with its halves, and for the part, which begins with
        // its scales.
        unsafe {
            let block = start.add(part / coding.parts() * coding.block_bytes());
            let bytes = start.add(coding.part_offset(part));
            let integers = bytes.add(coding.scale_bytes() + panel * coding.panel_bytes());
            let of_scales = halves(block, panel);
            if !coding.part_scales() {
                return Self { scales: [of_scales; HALVES], minima: [0.0; PANEL], integers };
            }
            let bytes = bytes.add(panel * 2 * PANEL).cast::<[[u8; PANEL]; 2]>().read();
            if coding.minima() {
                let scales = times(&of_scales, each(bytes[0], f32::from));
                let minima = times(&halves(block, GROUP + panel), each(bytes[1], f32::from));
                return Self { scales: [scales; HALVES], minima, integers };
            }
            let signed = |bytes| each(bytes, |byte: u8| f32::from(byte as i8));
            let scales = [times(&of_scales, signed(bytes[0])), times(&of_scales, signed(bytes[1]))];
            Self { scales, minima: [0.0; PANEL], integers }
        }
    }

    /// The integers of step `step`, sixteen in the order of bf16 pairs, their middle taken away.
    ///
    /// # Safety
    /// As [`Numbers::new`]; `step` is less than 32.
    #[inline(always)]
    unsafe fn sixteen<C: Code>(&self, step: usize) -> [f32; PANEL] {
        let (bits, middle) = (C::CODING.upper_bits(), i32::from(C::CODING.middle()));
        // SAFETY: a panel's part has 32 steps of lower bits and of upper bits.
        unsafe {
            let lower = line(self.integers.add(C::CODING.upper_bytes()), step / 8);
            let lower = each(lower, |word| word >> (step % 8 * 4) & 15);
            if bits == 0 {
                return each(lower, |integer| integer as i32 as f32);
            }
            let upper = line(self.integers, step * bits / 32);
            std::array::from_fn(|word| {
                let upper = upper[word] >> (step * bits % 32) & ((1 << bits) - 1);
                ((lower[word] | upper << 4) as i32 - middle) as f32
            })
        }
    }

    /// The weight of an integer of lane `lane`, in half `half` of the part.
    #[inline(always)]
    fn weight<C: Code>(&self, half: usize, lane: usize, integer: f32) -> f32 {
        let product = self.scales[half][lane] * integer;
        if C::CODING.minima() { product - self.minima[lane] } else { product }
    }
}

#[inline(always)]
fn times(left: &[f32; PANEL], right: [f32; PANEL]) -> [f32; PANEL] {
    std::array::from_fn(|lane| left[lane] * right[lane])
}

/// Sixteen words.
///
/// # Safety
/// `start` points to more than `index` lines.
#[inline(always)]
unsafe fn line(start: *const u8, index: usize) -> [u32; PANEL] {
    // SAFETY: the caller vouches for the line.
    let bytes = unsafe { start.add(index * PANEL * 4).cast::<[[u8; 4]; PANEL]>().read() };
    each(bytes, u32::from_le_bytes)
}

/// Unpacks some parts to two panels of f32, `stride` bytes apart.
///
/// # Safety
/// `start` points to blocks of a pair of panels that have these parts, `panels` to two panels of 32 inputs for each.
#[inline(always)]
pub(super) unsafe fn to_f32<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
    for (index, part) in parts.enumerate() {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for blocks and panels.
            unsafe {
                let numbers = Numbers::new::<C>(start, part, panel);
                let out = panels.add(panel * stride + index * INPUTS * PANEL * 4).cast::<[f32; PANEL]>();
                for half in 0..HALVES {
                    for pair in half * (INPUTS / 4)..(half + 1) * (INPUTS / 4) {
                        let (low, high) = (numbers.sixteen::<C>(2 * pair), numbers.sixteen::<C>(2 * pair + 1));
                        for input in 0..2 {
                            let of = |lane: usize| {
                                let place = 2 * lane + input;
                                if place < PANEL { low[place] } else { high[place - PANEL] }
                            };
                            let weights = std::array::from_fn(|lane| numbers.weight::<C>(half, lane, of(lane)));
                            out.add(2 * pair + input).write(weights);
                        }
                    }
                }
            }
        }
    }
}

/// Unpacks some parts to two panels of bf16 pairs, `stride` bytes apart: the weights rounded to bf16.
///
/// # Safety
/// As [`to_f32`].
#[inline(always)]
pub(super) unsafe fn to_bf16<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
    for (index, part) in parts.enumerate() {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for blocks and panels.
            unsafe {
                let numbers = Numbers::new::<C>(start, part, panel);
                let out = panels.add(panel * stride + index * INPUTS * PANEL * 2).cast::<[u16; PANEL]>();
                for half in 0..HALVES {
                    for step in half * (INPUTS / 2)..(half + 1) * (INPUTS / 2) {
                        let integers = numbers.sixteen::<C>(step);
                        let first = step % 2 * (PANEL / 2);
                        out.add(step).write(std::array::from_fn(|place| {
                            round_bf16(numbers.weight::<C>(half, first + place / 2, integers[place]))
                        }));
                    }
                }
            }
        }
    }
}
