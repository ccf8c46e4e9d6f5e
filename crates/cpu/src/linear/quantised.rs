//! Quantised weights: small integers in groups of inputs that share a scale.
//!
//! Groups, their integers and their scales are those of [`Quantisation`], which knows how they are rounded.
//!
//! # Layout
//!
//! The groups of a pair of panels at the same inputs stand together in a block of whole cache lines: 16 scales of
//! either panel, then the integers of the first panel, then those of the second. Bytes stand in the order of a panel of
//! bf16 pairs. Of halves, eight make a word: the half `n` of word `lane` in line `line` is integer
//! `(8 * line + n) * 16 + lane` of that order, plus 8, so that one shift yields sixteen neighbours.

#![expect(clippy::cast_ptr_alignment, reason = "panels begin on cache lines; elements follow each other")]

pub(super) use demask_tensor::{GROUP_INPUTS as INPUTS, Quantisation};
use demask_tensor::{larger, widen_f16};

use super::{
    activation::round_bf16,
    pack::Vectors,
    packed::{GROUP, PANEL},
};

/// Bytes of a block.
pub(super) const fn block_bytes(of: Quantisation) -> usize {
    SCALES + GROUP * panel_bytes(of)
}

/// Bytes of one panel's integers in a block.
pub(super) const fn panel_bytes(of: Quantisation) -> usize {
    INPUTS * PANEL * of.bits() / 8
}

/// Bytes of a block's scales.
pub(super) const SCALES: usize = GROUP * PANEL * size_of::<u16>();
/// Halves of bytes in a word.
const HALVES: usize = 8;

/// Integers of two inputs of sixteen lanes each, the first in the lower byte: the order of pairs.
pub(super) type Pairs = [[u16; PANEL]; INPUTS / 2];

/// Quantises the groups of a panel, `[in][16]`: the scales are written to their place in a block, as `panel` of the
/// pair; `zero` is added to the integers.
#[inline(always)]
pub(super) fn quantise<V: Vectors>(
    to: Quantisation,
    values: &[[f32; PANEL]; INPUTS],
    (scales, panel): (&mut [u8], usize),
    zero: i32,
) -> Pairs {
    let (halves, inverses) = choose_scales(to, largest(values));
    for (scale, place) in halves.iter().zip(scales[panel * PANEL * 2..].chunks_exact_mut(2)) {
        place.copy_from_slice(&scale.to_le_bytes());
    }
    let mut pairs = [[0; PANEL]; INPUTS / 2];
    for (pair, inputs) in pairs.iter_mut().zip(values.chunks_exact(2)) {
        *pair = V::integers([&inputs[0], &inputs[1]], &inverses, to.limits(), zero);
    }
    pairs
}

/// Quantises the groups of a panel, `[in][16]`, written to their places in a block: `panel` of the pair.
#[inline(always)]
pub(super) fn write_panel<V: Vectors>(
    to: Quantisation,
    values: &[[f32; PANEL]; INPUTS],
    block: &mut [u8],
    panel: usize,
) {
    let (scales, integers) = block.split_at_mut(SCALES);
    let integers = &mut integers[panel * panel_bytes(to)..][..panel_bytes(to)];
    let zero = match to {
        Quantisation::Q8 => 0,
        Quantisation::Q4 => 8,
    };
    let pairs = quantise::<V>(to, values, (scales, panel), zero);
    match to {
        Quantisation::Q8 => {
            for (word, out) in pairs.as_flattened().iter().zip(integers.chunks_exact_mut(2)) {
                out.copy_from_slice(&word.to_le_bytes());
            }
        }
        Quantisation::Q4 => {
            let lines = pairs.as_chunks::<{ HALVES / 2 }>().0.iter();
            for (line, out) in lines.zip(integers.chunks_exact_mut(PANEL * 4)) {
                for (word, out) in V::halves(line).iter().zip(out.chunks_exact_mut(4)) {
                    out.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
}

/// The number of each lane's group that is largest in magnitude, with its sign; the first of several.
#[inline(always)]
fn largest(values: &[[f32; PANEL]; INPUTS]) -> [f32; PANEL] {
    let mut most = [0.0f32; PANEL];
    for values in values {
        for (most, &value) in most.iter_mut().zip(values) {
            *most = larger(*most, value);
        }
    }
    most
}

/// The scales of groups, halves, from their largest numbers, and what their weights are multiplied with to become
/// integers.
#[inline(always)]
fn choose_scales(to: Quantisation, largest: [f32; PANEL]) -> ([u16; PANEL], [f32; PANEL]) {
    let (mut scales, mut inverses) = ([0; PANEL], [0.0; PANEL]);
    for ((scale, inverse), largest) in scales.iter_mut().zip(&mut inverses).zip(largest) {
        (*scale, *inverse) = to.choose_scale(largest);
    }
    (scales, inverses)
}

/// A function of each number of a panel: an array's own `map` is not always put in its place, and a call inside a kernel
/// costs more than all that it computes.
#[inline(always)]
pub(super) fn each<T: Copy, U: Copy + Default>(values: [T; PANEL], function: impl Fn(T) -> U) -> [U; PANEL] {
    let mut out = [U::default(); PANEL];
    for lane in 0..PANEL {
        out[lane] = function(values[lane]);
    }
    out
}

/// Integers of a panel as f32, sixteen at a time in the order of bf16 pairs: two steps for each pair of inputs.
///
/// # Safety
/// `integers` points to a panel's part of a block with integers of `BITS` bits; `step` is less than 32.
#[inline(always)]
unsafe fn sixteen<const BITS: usize>(integers: *const u8, step: usize) -> [f32; PANEL] {
    // SAFETY: the caller vouches for a panel's integers, which end with step 31.
    unsafe {
        if BITS == 8 {
            each(integers.add(step * PANEL).cast::<[i8; PANEL]>().read(), f32::from)
        } else {
            let words = integers.add(step / HALVES * PANEL * 4).cast::<[[u8; 4]; PANEL]>().read();
            each(words, |word| {
                let half = u32::from_le_bytes(word) >> (step % HALVES * 4) & 15;
                (half as i32 - 8) as f32
            })
        }
    }
}

/// Scales of one panel of a block.
///
/// # Safety
/// `block` points to a block.
#[inline(always)]
pub(super) unsafe fn scales(block: *const u8, panel: usize) -> [f32; PANEL] {
    // SAFETY: the caller vouches for the block, which begins with its scales.
    let halves = unsafe { block.add(panel * PANEL * 2).cast::<[[u8; 2]; PANEL]>().read() };
    each(halves, |half| widen_f16(u16::from_le_bytes(half)))
}

/// Unpacks `count` blocks to two panels of f32, `stride` bytes apart.
///
/// # Safety
/// `blocks` points to `count` blocks of integers of `BITS` bits, `panels` to two panels of 32 inputs for each.
#[inline(always)]
pub(super) unsafe fn to_f32<const BITS: usize>(blocks: *const u8, count: usize, panels: *mut u8, stride: usize) {
    let format = if BITS == 8 { Quantisation::Q8 } else { Quantisation::Q4 };
    for block in 0..count {
        // SAFETY: the caller vouches for blocks and panels.
        unsafe {
            let source = blocks.add(block * block_bytes(format));
            for panel in 0..GROUP {
                let scales = scales(source, panel);
                let integers = source.add(SCALES + panel * panel_bytes(format));
                let out = panels.add(panel * stride + block * INPUTS * PANEL * 4).cast::<[f32; PANEL]>();
                for pair in 0..INPUTS / 2 {
                    let low = sixteen::<BITS>(integers, 2 * pair);
                    let high = sixteen::<BITS>(integers, 2 * pair + 1);
                    for half in 0..2 {
                        let of = |lane: usize| {
                            let place = 2 * lane + half;
                            if place < PANEL { low[place] } else { high[place - PANEL] }
                        };
                        let weights = std::array::from_fn(|lane| scales[lane] * of(lane));
                        out.add(2 * pair + half).write(weights);
                    }
                }
            }
        }
    }
}

/// Unpacks `count` blocks to two panels of bf16 pairs, `stride` bytes apart: the weights rounded to bf16.
///
/// # Safety
/// As [`to_f32`].
#[inline(always)]
pub(super) unsafe fn to_bf16<const BITS: usize>(blocks: *const u8, count: usize, panels: *mut u8, stride: usize) {
    let format = if BITS == 8 { Quantisation::Q8 } else { Quantisation::Q4 };
    for block in 0..count {
        // SAFETY: the caller vouches for blocks and panels.
        unsafe {
            let source = blocks.add(block * block_bytes(format));
            for panel in 0..GROUP {
                let scales = scales(source, panel);
                let integers = source.add(SCALES + panel * panel_bytes(format));
                let out = panels.add(panel * stride + block * INPUTS * PANEL * 2).cast::<[u16; PANEL]>();
                for half in 0..2 {
                    let twice: [f32; PANEL] = std::array::from_fn(|place| scales[half * (PANEL / 2) + place / 2]);
                    for pair in 0..INPUTS / 2 {
                        let step = 2 * pair + half;
                        let integers = sixteen::<BITS>(integers, step);
                        out.add(step).write(std::array::from_fn(|place| round_bf16(twice[place] * integers[place])));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::pack::Portable;

    /// A group in one lane of a panel whose others are zero.
    fn in_lane(values: &[f32; INPUTS], lane: usize) -> [[f32; PANEL]; INPUTS] {
        values.map(|value| std::array::from_fn(|other| if other == lane { value } else { 0.0 }))
    }

    /// A group in the last lane of the second panel, and what it comes back as, unpacked to f32.
    fn round_trip(to: Quantisation, values: &[f32; INPUTS]) -> Vec<f32> {
        let mut block = vec![0u8; block_bytes(to)];
        write_panel::<Portable>(to, &in_lane(values, 15), &mut block, 1);
        let mut panels = vec![0f32; GROUP * PANEL * INPUTS];
        let stride = PANEL * INPUTS * 4;
        // SAFETY: one block and its panels.
        unsafe {
            match to {
                Quantisation::Q8 => to_f32::<8>(block.as_ptr(), 1, panels.as_mut_ptr().cast(), stride),
                Quantisation::Q4 => to_f32::<4>(block.as_ptr(), 1, panels.as_mut_ptr().cast(), stride),
            }
        }
        (0..INPUTS).map(|k| panels[PANEL * INPUTS + k * PANEL + 15]).collect()
    }

    #[test]
    fn integers_times_a_half_come_back_as_they_were() {
        let values: [f32; INPUTS] = std::array::from_fn(|k| (k as f32 * 8.0 - 127.0) * 0.125);
        assert_eq!(round_trip(Quantisation::Q8, &values), values);
        let values: [f32; INPUTS] = std::array::from_fn(|k| ((k % 16) as f32 - 8.0) * 0.125);
        assert_eq!(round_trip(Quantisation::Q4, &values), values);
        let values = values.map(|value| -value);
        assert_eq!(round_trip(Quantisation::Q4, &values), values);
    }

    #[test]
    fn groups_of_zeros_and_of_huge_numbers_stay_finite() {
        for to in Quantisation::ALL {
            assert_eq!(round_trip(to, &[0.0; INPUTS]), [0.0; INPUTS]);
            assert_eq!(round_trip(to, &[1e-9; INPUTS]), [0.0; INPUTS]);
            assert!(round_trip(to, &[f32::MAX; INPUTS]).iter().all(|value| value.is_finite() && *value > 1e5));
        }
    }

    #[test]
    fn the_order_of_integers_is_that_of_pairs() {
        let mut block = vec![0u8; block_bytes(Quantisation::Q4)];
        let mut values = [0.0; INPUTS];
        (values[0], values[19]) = (-8.0, 3.0);
        write_panel::<Portable>(Quantisation::Q4, &in_lane(&values, 9), &mut block, 0);
        // Input 19 of lane 9 is number (9 * 16 + 9) * 2 + 1 = 307 = 19 * 16 + 3 in the order of pairs.
        let word = &block[SCALES + 2 * 64 + 3 * 4..][..4];
        assert_eq!(word[1] >> 4, 11);
        assert_eq!(block_bytes(Quantisation::Q4) % 64 + block_bytes(Quantisation::Q8) % 64, 0);
    }
}
