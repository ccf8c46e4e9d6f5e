//! Weights of small integers in the order of byte dot products: those that weights are rounded to, and those of ggml's
//! blocks.
//!
//! A weight is `scale * (integer - middle) - minimum`. Integers have four bits and up to two more, or eight. Formats of
//! files that these have room for are kept as them.
//!
//! # Layout
//!
//! The blocks of a pair of panels at the same inputs stand together. They begin with the halves that everything is
//! multiplied with, of scales and then, where there are any, of minima: 16 of the first panel, 16 of the second. Parts
//! of [`INPUTS`] inputs follow, each with its scales, the upper bits and lower bits of the first panel's integers, those
//! of the second's. The scales of a panel are two times 16 bytes: scales and minima, or the scales of either half of
//! the inputs. The six bits that scales and minima take in `Q4_K` and `Q5_K` become bytes, which is 4 bytes more for 256
//! inputs. The uneven steps of `IQ4_XS` become the bytes that they are, which is twice as much.
//!
//! Integers form quads, lines of 64 bytes: four inputs of the first output, of the second, and so on. Eight bits are
//! lines as they are. The lower half of a byte of four bits has the quads 0, 2, 4 and 6, the upper half those between.
//! Of a fifth bit, bit `n` of a byte belongs to quad `n`. Two upper bits fill two lines, those of quad `n` from bit
//! `2 * (n % 4)` of line `n / 4` on.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_tiles;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod avxvnni;
#[cfg(target_arch = "aarch64")]
pub(super) mod i8mm;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod numbers;
mod pack;
pub(super) mod portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod prepared;

use demask_tensor::{BlockFormat, Dtype, Quantisation};

use super::{
    int8::{InputGroup, QUAD_BYTES, SHIFT, ZERO},
    packed::{GROUP, PANEL},
};
pub(super) use demask_tensor::GROUP_INPUTS as INPUTS;
pub(super) use pack::{write_kept, write_rounded};

/// Coding of the integers of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Q8,
    Q4,
    Q4_1,
    Q5_0,
    Q5_1,
    Q4K,
    Q5K,
    Q6K,
    Iq4Xs,
}

/// Lines of a panel's four lower bits in a part.
const LOWER_LINES: usize = INPUTS * PANEL / 2 / QUAD_BYTES;

impl Coding {
    /// All codings.
    pub(super) const ALL: [Self; 9] =
        [Self::Q8, Self::Q4, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q4K, Self::Q5K, Self::Q6K, Self::Iq4Xs];

    /// The coding of weights that are rounded.
    pub(super) const fn rounded(to: Quantisation) -> Self {
        match to {
            Quantisation::Q8 => Self::Q8,
            Quantisation::Q4 => Self::Q4,
        }
    }

    /// Quantisation of weights that are rounded to it.
    pub(super) fn quantisation(self) -> Option<Quantisation> {
        Quantisation::ALL.into_iter().find(|&to| Self::rounded(to) == self)
    }

    /// The coding that keeps the numbers of a tensor of a type: in its own blocks, or in those that have room for them.
    pub(super) fn keeping(dtype: Dtype) -> Option<Self> {
        let Dtype::Block(format) = dtype else { return None };
        let kept = format.parts_as()?;
        Self::ALL.into_iter().find(|coding| coding.format() == kept)
    }

    /// ggml's format with these integers.
    pub(super) const fn format(self) -> BlockFormat {
        match self {
            Self::Q8 => BlockFormat::Q8_0,
            Self::Q4 => BlockFormat::Q4_0,
            Self::Q4_1 => BlockFormat::Q4_1,
            Self::Q5_0 => BlockFormat::Q5_0,
            Self::Q5_1 => BlockFormat::Q5_1,
            Self::Q4K => BlockFormat::Q4K,
            Self::Q5K => BlockFormat::Q5K,
            Self::Q6K => BlockFormat::Q6K,
            Self::Iq4Xs => BlockFormat::Iq4Xs,
        }
    }

    /// Reports whether integers are whole bytes.
    pub(super) const fn bytes(self) -> bool {
        matches!(self, Self::Q8 | Self::Iq4Xs)
    }

    /// Bits of an integer above the lower four, where it is no byte.
    pub(super) const fn upper_bits(self) -> usize {
        match self {
            Self::Q8 | Self::Q4 | Self::Q4_1 | Self::Q4K | Self::Iq4Xs => 0,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => 1,
            Self::Q6K => 2,
        }
    }

    /// Number that is subtracted from an integer before it is multiplied.
    pub(super) const fn middle(self) -> i32 {
        match self {
            Self::Q8 | Self::Iq4Xs => SHIFT,
            Self::Q4 => 8,
            Self::Q5_0 => 16,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => 0,
        }
    }

    /// Reports whether numbers have minima.
    pub(super) const fn minima(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K)
    }

    /// Reports whether parts have scales of their own.
    pub(super) const fn part_scales(self) -> bool {
        matches!(self, Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs)
    }

    /// Scales of an output in a part: one, or one for either half of the inputs.
    pub(super) const fn halves(self) -> usize {
        if matches!(self, Self::Q6K) { 2 } else { 1 }
    }

    /// Factors of an output in a part: scales, then the minimum if there is one.
    pub(super) const fn factors(self) -> usize {
        if self.minima() { 2 } else { self.halves() }
    }

    /// Inputs of a block.
    pub(super) const fn inputs(self) -> usize {
        self.format().elements()
    }

    /// Parts of a block.
    pub(super) const fn parts(self) -> usize {
        self.inputs() / INPUTS
    }

    /// Bytes of a block's halves.
    pub(super) const fn head_bytes(self) -> usize {
        let halves = if self.minima() { 2 } else { 1 };
        halves * GROUP * PANEL * size_of::<u16>()
    }

    /// Bytes of a part's scales.
    pub(super) const fn scale_bytes(self) -> usize {
        if self.part_scales() { GROUP * 2 * PANEL } else { 0 }
    }

    /// Bytes of the upper bits of one panel in a part.
    pub(super) const fn upper_bytes(self) -> usize {
        INPUTS * PANEL * self.upper_bits() / 8
    }

    /// Bytes of one panel in a part, scales apart.
    pub(super) const fn panel_bytes(self) -> usize {
        if self.bytes() { INPUTS * PANEL } else { self.upper_bytes() + LOWER_LINES * QUAD_BYTES }
    }

    /// Bytes of a part.
    pub(super) const fn part_bytes(self) -> usize {
        self.scale_bytes() + GROUP * self.panel_bytes()
    }

    /// Bytes of a block of a pair of panels.
    pub(super) const fn block_bytes(self) -> usize {
        self.head_bytes() + self.parts() * self.part_bytes()
    }

    /// Bytes from the start of a pair of panels to the block of part `part` of all their parts.
    #[inline(always)]
    pub(super) const fn block_offset(self, part: usize) -> usize {
        part / self.parts() * self.block_bytes()
    }

    /// Bytes from the start of a pair of panels to part `part` of all their parts.
    #[inline(always)]
    pub(super) const fn part_offset(self, part: usize) -> usize {
        self.block_offset(part) + self.head_bytes() + part % self.parts() * self.part_bytes()
    }
}

/// Start of the integer sums of a group of inputs, or of half number `half` of it where the coding has two: [`ZERO`] minus the
/// middle times the sum of the integers.
#[inline(always)]
pub(super) fn begin<C: Code>(group: &InputGroup, half: usize) -> i32 {
    let middle = C::CODING.middle();
    let all = group.start - ZERO;
    let shifted = match (C::CODING.halves(), half) {
        _ if middle == 0 => return ZERO,
        (1, _) => all,
        (_, 0) => group.first,
        _ => all - group.first,
    };
    ZERO + (shifted >> (SHIFT / middle).ilog2())
}

/// A [`Coding`] as a type.
pub(super) trait Code {
    const CODING: Coding;
}

/// Names the type of a coding.
macro_rules! codes {
    ($($name:ident)+) => {$(
        pub(super) struct $name;

        impl Code for $name {
            const CODING: Coding = Coding::$name;
        }
    )+};
}
codes!(Q8 Q4 Q4_1 Q5_0 Q5_1 Q4K Q5K Q6K Iq4Xs);

/// The kernels of bytes of a tier, one for each coding: `kernel::<Code>(name)` makes one.
macro_rules! codings {
    ($kernel:ident $(::<$unit:ty>)?, $prefix:literal) => {
        [
            $kernel::<$($unit,)? $crate::linear::integers::Q8>(concat!($prefix, "xq8_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q4>(concat!($prefix, "xq4_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q4_1>(concat!($prefix, "xq4_1_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q5_0>(concat!($prefix, "xq5_0_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q5_1>(concat!($prefix, "xq5_1_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q4K>(concat!($prefix, "xq4_k_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q5K>(concat!($prefix, "xq5_k_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Q6K>(concat!($prefix, "xq6_k_f32")),
            $kernel::<$($unit,)? $crate::linear::integers::Iq4Xs>(concat!($prefix, "xiq4_xs_f32")),
        ]
    };
}
pub(super) use codings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_lines_and_hardly_larger_than_in_files() {
        for coding in Coding::ALL {
            assert_eq!(coding.block_bytes() % 64 + coding.part_bytes() % 64 + coding.head_bytes() % 64, 0);
            let more = match coding {
                Coding::Q4K | Coding::Q5K => 4,
                // Bytes for steps of 4 bits, and two for the scale of each part.
                Coding::Iq4Xs => 128 + 10,
                _ => 0,
            };
            assert_eq!(coding.block_bytes(), GROUP * PANEL * (coding.format().bytes() + more), "{coding:?}");
            assert_eq!(Coding::keeping(Dtype::Block(coding.format())), Some(coding));
        }
    }
}
