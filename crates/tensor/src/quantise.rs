//! Rounding weights to small integers in groups of inputs that share a scale: what all devices have in common, so that
//! a model has the same weights on each of them. Where the integers stand is each device's own affair.
//!
//! A group is [`GROUP_INPUTS`] inputs of one output; its weights are `scale * q`, the scale an IEEE half and `q` from
//! -127 to 127 or from -8 to 7. These are the values that GGUF's types `Q8_0` and `Q4_0` stand for, so that such tensors
//! need another order of their numbers and no other numbers.

use std::fmt;

use crate::widen_f16;

/// Integers that weights are rounded to when they are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantisation {
    /// Eight bits, and a scale for each 32 inputs: 8.5 bits for a weight.
    Q8,
    /// Four bits, and a scale for each 32 inputs: 4.5 bits for a weight.
    Q4,
}

/// Inputs that share a scale.
pub const GROUP_INPUTS: usize = 32;

impl Quantisation {
    /// All quantisations.
    pub const ALL: [Self; 2] = [Self::Q8, Self::Q4];

    /// Bits that an integer takes.
    pub const fn bits(self) -> usize {
        match self {
            Self::Q8 => 8,
            Self::Q4 => 4,
        }
    }

    /// Bytes that a weight of a shape takes, without padding.
    pub const fn bytes(self, rows: usize, columns: usize) -> usize {
        rows * columns.div_ceil(GROUP_INPUTS) * (GROUP_INPUTS * self.bits() / 8 + size_of::<u16>())
    }

    /// The least and the largest integer.
    #[inline(always)]
    pub const fn limits(self) -> (f32, f32) {
        match self {
            Self::Q8 => (-127.0, 127.0),
            Self::Q4 => (-8.0, 7.0),
        }
    }

    /// The scale of a group, a half, from its number of the largest magnitude, and what its weights are multiplied with
    /// to become integers. Eight bits spread the group's largest magnitude over 127; four bits put the largest, with its
    /// sign, at -8, the one end that reaches further.
    #[inline(always)]
    pub fn choose_scale(self, largest: f32) -> (u16, f32) {
        let exact = match self {
            Self::Q8 => largest.abs() / 127.0,
            Self::Q4 => largest / -8.0,
        };
        let scale = narrow_f16(exact.clamp(-MOST, MOST));
        // By the scale as it is kept: its own rounding then costs nothing.
        let kept = widen_f16(scale);
        (scale, if kept == 0.0 { 0.0 } else { kept.recip() })
    }

    /// The integer of `value * inverse`: halves are rounded away from zero, a NaN is 0.
    #[inline(always)]
    pub fn integer(self, value: f32, inverse: f32) -> i32 {
        round_within(value * inverse, self.limits())
    }

    /// Rounds a group to integers and its scale, a half.
    pub fn round(self, values: &[f32; GROUP_INPUTS]) -> (u16, [i8; GROUP_INPUTS]) {
        let (scale, inverse) = self.choose_scale(values.iter().fold(0.0, |most, &value| larger(most, value)));
        (scale, values.map(|value| self.integer(value, inverse) as i8))
    }
}

/// The number of two that is larger in magnitude, with its sign; the first of equals.
#[inline(always)]
pub fn larger(most: f32, value: f32) -> f32 {
    if value.abs() > most.abs() { value } else { most }
}

/// The nearest integer within limits: halves are rounded away from zero, a NaN is 0.
#[inline(always)]
pub fn round_within(value: f32, (least, most): (f32, f32)) -> i32 {
    let value = value.clamp(least, most);
    (value + BELOW_HALF.copysign(value)) as i32
}

impl fmt::Display for Quantisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Q8 => "q8",
            Self::Q4 => "q4",
        })
    }
}

/// The largest number below a half: added before the fraction is cut off, it rounds halves away from zero, and does not
/// lift itself to 1 as a half would.
pub const BELOW_HALF: f32 = 0.499_999_97;

/// The largest half.
const MOST: f32 = 65504.0;

/// Rounds a number of at most [`MOST`] to a half, ties to even, without branches. Below the smallest normal half, the
/// addition of a half leaves the bits of a denormal half at the end of the sum.
#[inline(always)]
fn narrow_f16(value: f32) -> u16 {
    const SMALLEST: f32 = 1.0 / 16384.0;
    let (magnitude, sign) = (value.abs(), value.to_bits() >> 16 & 0x8000);
    let bits = magnitude.to_bits();
    let normal = bits.wrapping_add(0xfff + (bits >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    let denormal = (magnitude + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    ((if magnitude < SMALLEST { denormal } else { normal }) | sign) as u16
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn numbers_are_rounded_to_halves_as_by_a_second_implementation() {
        // Miri takes a thousand times as long for each.
        let step = if cfg!(miri) { 1001 } else { 1 };
        let small = (0..5000).step_by(step).chain((0..1 << 16).step_by(step).map(|upper| upper << 13));
        let all = (0..=MOST.to_bits()).step_by(97 * step).chain(small);
        for value in all.map(f32::from_bits).filter(|value| value.abs() <= MOST) {
            for value in [value, -value] {
                assert_eq!(narrow_f16(value), f16::from_f32(value).to_bits(), "{value:e}");
            }
        }
    }

    fn round_trip(to: Quantisation, values: &[f32; GROUP_INPUTS]) -> [f32; GROUP_INPUTS] {
        let (scale, integers) = to.round(values);
        integers.map(|integer| widen_f16(scale) * f32::from(integer))
    }

    #[test]
    fn integers_times_a_half_come_back_as_they_were() {
        let values: [f32; GROUP_INPUTS] = std::array::from_fn(|k| (k as f32 * 8.0 - 127.0) * 0.125);
        assert_eq!(round_trip(Quantisation::Q8, &values), values);
        let values: [f32; GROUP_INPUTS] = std::array::from_fn(|k| ((k % 16) as f32 - 8.0) * 0.125);
        assert_eq!(round_trip(Quantisation::Q4, &values), values);
        let values = values.map(|value| -value);
        assert_eq!(round_trip(Quantisation::Q4, &values), values);
    }

    #[test]
    fn no_integer_is_further_than_half_a_step() {
        let values: [f32; GROUP_INPUTS] = std::array::from_fn(|k| ((k * 37 % 32) as f32 - 15.3) * 0.017);
        for (to, integers) in [(Quantisation::Q8, 127.0), (Quantisation::Q4, 8.0)] {
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            // A half keeps 11 bits of the scale, and four bits end at 7 where the other end is 8.
            let step = largest / integers * if to == Quantisation::Q4 { 2.0 } else { 1.0 };
            for (found, value) in round_trip(to, &values).iter().zip(values) {
                assert!((found - value).abs() <= step * 0.51, "{to}: {found} for {value}");
            }
        }
    }

    #[test]
    fn groups_of_zeros_and_of_huge_numbers_stay_finite() {
        for to in Quantisation::ALL {
            assert_eq!(round_trip(to, &[0.0; GROUP_INPUTS]), [0.0; GROUP_INPUTS]);
            assert_eq!(round_trip(to, &[1e-9; GROUP_INPUTS]), [0.0; GROUP_INPUTS]);
            assert!(round_trip(to, &[f32::MAX; GROUP_INPUTS]).iter().all(|value| value.is_finite() && *value > 1e5));
        }
    }

    #[test]
    fn halves_go_away_from_zero_and_nothing_is_lifted_to_one() {
        let limits = Quantisation::Q8.limits();
        for (value, integer) in [(0.5, 1), (-0.5, -1), (0.499_999_97, 0), (126.5, 127), (1e9, 127), (f32::NAN, 0)] {
            assert_eq!(round_within(value, limits), integer, "{value}");
        }
        assert_eq!(Quantisation::Q4.bytes(3, 33), 3 * 2 * 18);
    }
}
