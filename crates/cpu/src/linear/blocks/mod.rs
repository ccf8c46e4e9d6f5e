//! Weights that stay in the blocks of ggml's formats: the numbers of a file, in another order.
//!
//! `Q8_0` and `Q4_0` are what [`Quantisation`] has, so that its kernels multiply them; this module has the others. Their
//! integers are four bits and up to two more; a weight is `scale * (integer - middle) - minimum`, rounded after each
//! operation as ggml's own code rounds, then rounded to bf16 where a kernel takes bf16: to the bit the numbers that
//! [`BlockFormat::widen`] gives.
//!
//! # Layout
//!
//! The blocks of a pair of panels at the same inputs stand together. They begin with the halves that everything is
//! multiplied with, of scales and then, where there are any, of minima: 16 of the first panel, 16 of the second. Parts
//! of [`INPUTS`] inputs follow, each with its scales, the upper bits and lower bits of the first panel's integers, those
//! of the second's. The scales of a panel are two times 16 bytes: scales and minima, or the scales of either half of
//! the inputs. The six bits that scales and minima take in `Q4_K` and `Q5_K` become bytes, which is 4 bytes more for 256
//! inputs.
//!
//! Bits stand in words as the halves of [`quantised`](super::quantised) do: with `b` bits in an integer, word `lane` of
//! line `line` has integer `(32 / b * line + n) * 16 + lane` of the order of bf16 pairs at bit `n * b`, so that one
//! shift yields sixteen neighbours.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod kernels;
mod pack;
mod unpack;

use demask_tensor::{BlockFormat, Dtype};

use super::{
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{INPUTS, Quantisation},
};
pub(super) use kernels::KERNELS;
pub(super) use pack::write_panel;

/// The format that keeps a tensor of this type in its blocks, if it has any.
pub(super) fn keeping(dtype: Dtype) -> Option<WeightFormat> {
    let Dtype::Block(format) = dtype else { return None };
    Some(match format {
        BlockFormat::Q8_0 => WeightFormat::Quantised(Quantisation::Q8),
        BlockFormat::Q4_0 => WeightFormat::Quantised(Quantisation::Q4),
        BlockFormat::Q5_0 => WeightFormat::Blocks(Coding::Q5_0),
        BlockFormat::Q4K => WeightFormat::Blocks(Coding::Q4K),
        BlockFormat::Q5K => WeightFormat::Blocks(Coding::Q5K),
        BlockFormat::Q6K => WeightFormat::Blocks(Coding::Q6K),
        _ => return None,
    })
}

/// Coding of the integers of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Q5_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Coding {
    /// All codings.
    pub(super) const ALL: [Self; 4] = [Self::Q5_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// ggml's format.
    pub(super) const fn format(self) -> BlockFormat {
        match self {
            Self::Q5_0 => BlockFormat::Q5_0,
            Self::Q4K => BlockFormat::Q4K,
            Self::Q5K => BlockFormat::Q5K,
            Self::Q6K => BlockFormat::Q6K,
        }
    }

    /// Bits of an integer above the lower four.
    pub(super) const fn upper_bits(self) -> usize {
        match self {
            Self::Q4K => 0,
            Self::Q5_0 | Self::Q5K => 1,
            Self::Q6K => 2,
        }
    }

    /// Number that is subtracted from an integer before it is multiplied.
    pub(super) const fn middle(self) -> u8 {
        match self {
            Self::Q4K | Self::Q5K => 0,
            Self::Q5_0 => 16,
            Self::Q6K => 32,
        }
    }

    /// Reports whether numbers have minima.
    pub(super) const fn minima(self) -> bool {
        matches!(self, Self::Q4K | Self::Q5K)
    }

    /// Reports whether parts have scales of their own.
    pub(super) const fn part_scales(self) -> bool {
        !matches!(self, Self::Q5_0)
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
        halves * GROUP * PANEL * size_of::<half::f16>()
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
        self.upper_bytes() + LOWER
    }

    /// Bytes of a part.
    pub(super) const fn part_bytes(self) -> usize {
        self.scale_bytes() + GROUP * self.panel_bytes()
    }

    /// Bytes of a block of a pair of panels.
    pub(super) const fn block_bytes(self) -> usize {
        self.head_bytes() + self.parts() * self.part_bytes()
    }

    /// Bytes from the start of a pair of panels to part `part` of all their parts.
    pub(super) const fn part_offset(self, part: usize) -> usize {
        part / self.parts() * self.block_bytes() + self.head_bytes() + part % self.parts() * self.part_bytes()
    }
}

/// Bytes of the lower four bits of one panel in a part.
const LOWER: usize = INPUTS * PANEL / 2;

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
codes!(Q5_0 Q4K Q5K Q6K);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_lines_and_hardly_larger_than_in_files() {
        for coding in Coding::ALL {
            assert_eq!(coding.block_bytes() % 64 + coding.part_bytes() % 64 + coding.head_bytes() % 64, 0);
            let more = if coding.minima() { 4 } else { 0 };
            assert_eq!(coding.block_bytes(), GROUP * PANEL * (coding.format().bytes() + more), "{coding:?}");
        }
    }
}
