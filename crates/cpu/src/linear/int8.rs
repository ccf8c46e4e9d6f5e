//! Products of integers: inputs rounded to bytes as they are written, weights in the order of byte dot products.
//!
//! # Inputs
//!
//! A row's inputs are cut into the same groups of [`INPUTS`] as the weights. Of each group the largest magnitude is
//! spread over 127, and its inputs become the nearest integers, ties to even. A row depends on no other row. A NaN or
//! an infinity makes the scale of its group one, and so the row's sums; a group of numbers so small that their inverse
//! is no number is 0.
//!
//! # Products
//!
//! For each group, in ascending order, the sum of the integers' products, which is exact whatever its order, is
//! multiplied with both scales and added to the row's sum. Integer sums begin at the bits of [`COUNTER`], and end as floats.
//! Where registers are many, one fused operation, `(COUNTER + sum) * scale - COUNTER * scale`, converts them and multiplies
//! with the weight's scale. It rounds once, as `COUNTER * scale` is exact: scales have at most 19 bits. AVX2 takes
//! [`COUNTER`] away and multiplies with the product of both scales.
//!
//! # Weights
//!
//! Byte dot products multiply bytes without a sign with bytes that have one. Weights are the former, as
//! [`integers`](super::integers) lays them out: eight bits are the integer plus 128. Each group of inputs stores -128
//! times their sum, from [`ZERO`] on: integer sums begin there, and the offset of the weights costs nothing.

use std::fmt;

use super::{integers::INPUTS, packed::PANEL};

/// Rounding of the inputs of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activations {
    /// The type of the products.
    #[default]
    Plain,
    /// Eight bits, and a scale for each 32 inputs of a row. The weights they meet are quantised too.
    Int8,
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Int8 => "int8",
        })
    }
}

/// Number that is added to a weight's integer, so that it has no sign.
pub(super) const SHIFT: i32 = 128;
/// Number in whose lowest bits integers count: its bits plus `n` are the bits of it plus `n`, for magnitudes of `n` below 2^22.
pub(super) const COUNTER: f32 = 12_582_912.0;
/// Integer sum of 0: the bits of [`COUNTER`], so that a sum is a float as it is.
pub(super) const ZERO: i32 = COUNTER.to_bits() as i32;
/// Inputs that a byte dot product takes at a time.
pub(super) const QUAD: usize = 4;
/// Quads in a group.
pub(super) const QUADS: usize = INPUTS / QUAD;
/// Bytes of a quad of sixteen outputs.
pub(super) const QUAD_BYTES: usize = QUAD * PANEL;

/// A group of inputs.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct InputGroup {
    /// Integers from -127 to 127.
    pub(super) integers: [i8; INPUTS],
    /// Factor of the integers.
    pub(super) scale: f32,
    /// Start of integer sums: [`ZERO`] minus [`SHIFT`] times the sum of the integers.
    pub(super) start: i32,
    /// Minus [`SHIFT`] times the sum of the first half of the integers.
    pub(super) first: i32,
    /// The scale times the sum of the integers: the factor of a minimum.
    pub(super) weighted: f32,
}

/// Groups whose largest magnitude is less are 0: their inverse might be infinite.
const TINY: f32 = f32::MIN_POSITIVE * (1 << 10) as f32;

impl InputGroup {
    /// Rounds a group. Written for vectors of any width, with the same bits for all of them.
    #[inline(always)]
    fn new(values: &[f32; INPUTS]) -> Self {
        // Bits of magnitudes ascend with them, and end with infinity and NaN.
        let largest = f32::from_bits(values.iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff)));
        let tiny = largest < TINY;
        let inverse = if tiny { 0.0 } else { 127.0 / largest };
        let mut rounded = [0i32; INPUTS];
        for (rounded, value) in rounded.iter_mut().zip(values) {
            // The nearest integer, and the sign of its byte: the bits above are those of `COUNTER`.
            *rounded = ((value * inverse + COUNTER).to_bits() as i32) << 24 >> 24;
        }
        let (first, second) = rounded.split_at(INPUTS / 2);
        let first: i32 = first.iter().sum();
        let sum: i32 = first + second.iter().sum::<i32>();
        let scale = if tiny { 0.0 } else { largest / 127.0 };
        Self {
            integers: rounded.map(|integer| integer as i8),
            scale,
            start: ZERO - SHIFT * sum,
            first: -SHIFT * first,
            weighted: scale * sum as f32,
        }
    }
}

/// Rounds a row's inputs, or a part of them that begins with a group; the last group is filled with zeros. In code that is
/// compiled for an instruction set already.
///
/// # Safety
/// `out` points to as many groups as the values fill, which nobody else accesses.
#[inline(always)]
pub(super) unsafe fn write(values: &[f32], out: *mut InputGroup) {
    let (groups, rest) = values.as_chunks::<INPUTS>();
    for (index, values) in groups.iter().enumerate() {
        // SAFETY: the caller vouches for the groups.
        unsafe { out.add(index).write(InputGroup::new(values)) }
    }
    if !rest.is_empty() {
        let mut last = [0.0; INPUTS];
        last[..rest.len()].copy_from_slice(rest);
        // SAFETY: the caller vouches for the groups.
        unsafe { out.add(groups.len()).write(InputGroup::new(&last)) }
    }
}

/// Reads a row of groups back as f32.
pub(super) fn read(row: &[u8], out: &mut [f32]) {
    for (group, out) in row.chunks(size_of::<InputGroup>()).zip(out.chunks_mut(INPUTS)) {
        let (integers, rest) = group.split_at(INPUTS);
        let scale = f32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = f32::from(integer as i8) * scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        elementwise::{Lanes, Operation, dispatch},
        isa::Isa,
        linear::integers::{Q4, Q6K, Q8, begin},
    };

    /// A group on its way.
    struct Written<'a>(&'a [f32; INPUTS]);

    impl Operation for Written<'_> {
        type Output = InputGroup;

        #[inline(always)]
        fn run<L: Lanes>(self) -> InputGroup {
            let mut group =
                InputGroup { integers: [1; INPUTS], scale: f32::NAN, start: 1, first: 1, weighted: f32::NAN };
            // SAFETY: one group.
            unsafe { write(self.0, &raw mut group) }
            group
        }
    }

    fn written(isa: Isa, values: &[f32; INPUTS]) -> InputGroup {
        dispatch(isa, Written(values))
    }

    #[test]
    fn a_group_is_spread_over_its_largest_magnitude() {
        let mut values = [0.0; INPUTS];
        (values[0], values[1], values[30], values[31]) = (-254.0, 5.0, 7.0, 3.1);
        for isa in Isa::available() {
            let group = written(isa, &values);
            // 2.5 and 3.5 are ties.
            assert_eq!([0, 1, 30, 31].map(|k| group.integers[k]), [-127, 2, 4, 2], "{isa:?}");
            assert_eq!((group.scale, group.start - ZERO, group.weighted), (2.0, 119 * SHIFT, -238.0));
            assert_eq!(group.first, 125 * SHIFT);
            assert_eq!([begin::<Q8>(&group, 0), begin::<Q4>(&group, 0)].map(|sum| sum - ZERO), [119 * 128, 119 * 8]);
            assert_eq!([0, 1].map(|half| begin::<Q6K>(&group, half) - ZERO), [125 * 32, -6 * 32]);
        }
    }

    #[test]
    fn extremes_stay_in_their_groups() {
        for isa in Isa::available() {
            let mut values = [0.5; INPUTS];
            for extreme in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                values[17] = extreme;
                assert!(!written(isa, &values).scale.is_finite());
            }
            for largest in [f32::MAX, f32::MIN, TINY] {
                let mut values = [0.5 * largest; INPUTS];
                values[17] = largest;
                let group = written(isa, &values);
                assert!(group.scale.is_finite() && group.scale > 0.0, "{largest}");
            }
            for tiny in [0.0, -0.0, 1e-45, TINY * 0.99] {
                let group = written(isa, &[tiny; INPUTS]);
                assert_eq!((group.integers, group.scale, group.start), ([0; INPUTS], 0.0, ZERO));
            }
            let group = written(isa, &[f32::MIN; INPUTS]);
            assert_eq!((group.integers, group.start - ZERO), ([-127; INPUTS], 127 * 32 * SHIFT));
        }
    }

    #[test]
    fn every_width_of_vectors_rounds_alike() {
        for seed in 0..200 {
            let values: [f32; INPUTS] = std::array::from_fn(|k| ((seed * INPUTS + k) as f32 * 0.7).sin() * 3.0);
            let expected = written(Isa::available()[0], &values);
            for isa in Isa::available() {
                let found = written(isa, &values);
                assert_eq!(found.integers, expected.integers);
                assert_eq!((found.scale.to_bits(), found.start), (expected.scale.to_bits(), expected.start));
            }
        }
    }
}
