//! Weights on their way into panels: one function for each format, which writes a pair of panels.
//!
//! A panel takes sixteen rows of a weight, and what stands together in it are the numbers of all sixteen at the same
//! inputs: packing is transposition. Rows are read a strip at a time, which stays in the first-level cache until its
//! words stand in their new order; then the strip is a few whole cache lines of the panel. Rows and inputs that the
//! weight does not have are zeros.

mod vectors;

use demask_tensor::{Dtype, Quantisation, TensorView};

use super::{
    activation::round_bf16,
    integers::{Coding, INPUTS, write_kept, write_rounded},
    packed::{GROUP, PANEL, WeightFormat},
};
use crate::{
    elementwise::{Lanes, Operation, dispatch},
    isa::Isa,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use vectors::Avx512;
pub(crate) use vectors::{Portable, Vectors};

/// Inputs that are read of a row at a time: whole blocks of every stored format, and whole cache lines. Sixteen rows of
/// them in f32 take half of a 32 KiB first-level cache.
const STRIP: usize = 256;

/// Rows of a weight that become a panel: up to [`PANEL`], from `first` on.
#[derive(Clone, Copy)]
pub(super) struct PanelRows<'a> {
    pub(super) weight: TensorView<'a>,
    pub(super) first: usize,
}

/// Words of sixteen rows: one input in f32 or, in half as many, two in bf16.
type Strip<const WORDS: usize> = [[u32; WORDS]; PANEL];

/// Writes a pair of panels, `group`, from the rows of each. Reports whether it did: numbers have to be finite, for integers
/// would hide it, and all others would spoil every answer.
pub(super) fn write_group(isa: Isa, format: WeightFormat, rows: [PanelRows<'_>; GROUP], group: &mut [u8]) -> bool {
    dispatch(isa, WriteGroup { format, rows, group })
}

struct WriteGroup<'a> {
    format: WeightFormat,
    rows: [PanelRows<'a>; GROUP],
    group: &'a mut [u8],
}

impl Operation for WriteGroup<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        let half = self.group.len() / GROUP;
        for (panel, rows) in self.rows.iter().enumerate() {
            if rows.write_kept(self.format, self.group, panel) {
                continue;
            }
            let are_finite = match self.format {
                WeightFormat::F32 => write_f32::<L::Packing>(rows, &mut self.group[panel * half..][..half]),
                WeightFormat::Bf16Pairs => {
                    write_bf16_pairs::<L::Packing>(rows, &mut self.group[panel * half..][..half])
                }
                WeightFormat::Integers(coding) => {
                    let Some(to) = coding.quantisation() else {
                        panic!("{} does not pack as {coding:?}", rows.weight.dtype())
                    };
                    write_quantised::<L::Packing>(rows, to, (self.group, panel))
                }
            };
            if !are_finite {
                return false;
            }
        }
        true
    }
}

impl PanelRows<'_> {
    /// Writes rows in blocks that a format keeps as they are; tells whether it does.
    #[inline(always)]
    fn write_kept(&self, to: WeightFormat, group: &mut [u8], panel: usize) -> bool {
        let kept = Coding::keeping(self.weight.dtype()).filter(|&coding| to == WeightFormat::Integers(coding));
        let (Some(coding), Dtype::Block(format)) = (kept, self.weight.dtype()) else { return false };
        let mut rows = [&[][..]; PANEL];
        let mut count = 0;
        for (lane, row) in self.lanes() {
            rows[lane] = self.weight.row_bytes(row);
            count = lane + 1;
        }
        // A panel without rows stays zero.
        if count > 0 {
            write_kept(coding, (format, &rows[..count]), group, panel);
        }
        true
    }

    /// Rows that there are, each with its number in the panel.
    #[inline(always)]
    fn lanes(&self) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.first..self.weight.rows().min(self.first + PANEL);
        rows.enumerate()
    }

    /// Inputs of a strip that begins at `start`.
    #[inline(always)]
    fn width(&self, start: usize) -> usize {
        STRIP.min(self.weight.columns() - start)
    }

    /// Inputs from `start` on as f32.
    #[inline(always)]
    fn read_f32(&self, start: usize, strip: &mut Strip<STRIP>) {
        let mut wide = [0.0f32; STRIP];
        for (lane, row) in self.lanes() {
            self.weight.read_part(row, start, &mut wide[..self.width(start)]);
            strip[lane].iter_mut().zip(&wide).for_each(|(word, value)| *word = value.to_bits());
        }
    }

    /// Inputs from `start` on as bf16.
    #[inline(always)]
    fn read_bf16(&self, start: usize, strip: &mut Strip<{ STRIP / 2 }>) {
        let width = self.width(start);
        let mut narrow = [0u16; STRIP];
        let mut wide = [0.0f32; STRIP];
        for (lane, row) in self.lanes() {
            if self.weight.dtype() == Dtype::Bf16 {
                let raw = &self.weight.row_bytes(row)[2 * start..][..2 * width];
                for (narrow, raw) in narrow.iter_mut().zip(raw.chunks_exact(2)) {
                    *narrow = u16::from_le_bytes([raw[0], raw[1]]);
                }
            } else {
                self.weight.read_part(row, start, &mut wide[..width]);
                for (narrow, &wide) in narrow.iter_mut().zip(&wide) {
                    *narrow = round_bf16(wide);
                }
            }
            for (word, pair) in strip[lane].iter_mut().zip(narrow.chunks_exact(2)) {
                *word = u32::from(pair[0]) | u32::from(pair[1]) << 16;
            }
        }
    }
}

/// Sixteen words of each row, from word `start` on, as those of each word.
#[inline(always)]
fn transposed<V: Vectors, const WORDS: usize>(strip: &Strip<WORDS>, start: usize) -> [[u32; PANEL]; PANEL] {
    V::transposed(std::array::from_fn(|lane| {
        strip[lane][start..].first_chunk().unwrap_or_else(|| unreachable!("strips are whole blocks of words"))
    }))
}

/// Transposes as much of a strip as `panel` has room for.
#[inline(always)]
fn write_words<V: Vectors, const WORDS: usize>(strip: &Strip<WORDS>, panel: &mut [u8]) {
    for (block, out) in panel.chunks_mut(PANEL * PANEL * 4).enumerate() {
        let words = transposed::<V, _>(strip, block * PANEL);
        for (words, out) in words.iter().zip(out.chunks_exact_mut(PANEL * 4)) {
            for (word, out) in words.iter().zip(out.chunks_exact_mut(4)) {
                out.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// `[in][16]` in f32; whether all numbers are finite.
#[inline(always)]
fn write_f32<V: Vectors>(rows: &PanelRows<'_>, panel: &mut [u8]) -> bool {
    let mut strip = [[0; STRIP]; PANEL];
    for (index, panel) in panel.chunks_mut(STRIP * PANEL * 4).enumerate() {
        rows.read_f32(index * STRIP, &mut strip);
        if !are_finite(&strip, INFINITE) {
            return false;
        }
        write_words::<V, _>(&strip, panel);
    }
    true
}

/// `[in / 2][16][2]` in bf16; whether all numbers are finite.
#[inline(always)]
fn write_bf16_pairs<V: Vectors>(rows: &PanelRows<'_>, panel: &mut [u8]) -> bool {
    let mut strip = [[0; STRIP / 2]; PANEL];
    for (index, panel) in panel.chunks_mut(STRIP * PANEL * 2).enumerate() {
        rows.read_bf16(index * STRIP, &mut strip);
        if !are_finite(&strip, INFINITE) || !are_finite(&strip, INFINITE >> 16) {
            return false;
        }
        write_words::<V, _>(&strip, panel);
    }
    true
}

/// Blocks of 32 inputs of a pair of panels, of which this is number `panel`; whether all numbers are finite.
#[inline(always)]
fn write_quantised<V: Vectors>(rows: &PanelRows<'_>, to: Quantisation, (group, panel): (&mut [u8], usize)) -> bool {
    let block_bytes = Coding::rounded(to).block_bytes();
    let mut strip = [[0; STRIP]; PANEL];
    for (index, blocks) in group.chunks_mut(STRIP / INPUTS * block_bytes).enumerate() {
        rows.read_f32(index * STRIP, &mut strip);
        if !are_finite(&strip, INFINITE) {
            return false;
        }
        for (block, out) in blocks.chunks_exact_mut(block_bytes).enumerate() {
            let mut values = [[0.0; PANEL]; INPUTS];
            for (half, values) in values.chunks_exact_mut(PANEL).enumerate() {
                let words = transposed::<V, _>(&strip, block * INPUTS + half * PANEL);
                values.iter_mut().zip(words).for_each(|(values, words)| *values = words.map(f32::from_bits));
            }
            write_rounded::<V>(to, &values, out, panel);
        }
    }
    true
}

/// Exponent of numbers that are infinite or none: the largest one.
const INFINITE: u32 = 0x7f80_0000;

/// Reports whether no number has a largest exponent: `exponent` are its bits in a word.
#[inline(always)]
fn are_finite<const WORDS: usize>(strip: &Strip<WORDS>, exponent: u32) -> bool {
    strip.iter().all(|row| row.iter().fold(0, |most, &word| (word & exponent).max(most)) < exponent)
}

#[cfg(test)]
mod tests;
