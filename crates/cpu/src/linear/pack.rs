//! Weights on their way into panels: one function for each format, which writes a pair of panels.
//!
//! A panel takes sixteen rows of a weight, and what stands together in it are the numbers of all sixteen at the same
//! inputs: packing is transposition. Rows are read a strip at a time, which stays in the first-level cache until its
//! words stand in their new order; then the strip is a few whole cache lines of the panel. Rows and inputs that the
//! weight does not have are zeros.

#![expect(clippy::inline_always, reason = "what runs under `dispatch` is compiled for the caller's instructions")]

use demask_tensor::{Dtype, TensorView};

use super::{
    activation::round_bf16,
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, Quantisation},
};
use crate::{
    elementwise::{Lanes, Operation, dispatch},
    isa::Isa,
};

/// Inputs that are read of a row at a time: whole blocks of every stored format, and whole cache lines. Sixteen rows of
/// them in f32 take half of a 32 KiB first-level cache.
const STRIP: usize = 256;

/// Rows of a weight that become a panel: up to [`PANEL`], from `first` on.
#[derive(Clone, Copy)]
pub(super) struct PanelRows<'a> {
    pub(super) weight: TensorView<'a>,
    pub(super) first: usize,
}

/// Sixteen words of each of sixteen rows.
type Words = [[u32; PANEL]; PANEL];

/// Writes a pair of panels, `group`, from the rows of each.
pub(super) fn write_group(isa: Isa, format: WeightFormat, rows: [PanelRows<'_>; GROUP], group: &mut [u8]) {
    dispatch(isa, WriteGroup { format, rows, group });
}

struct WriteGroup<'a> {
    format: WeightFormat,
    rows: [PanelRows<'a>; GROUP],
    group: &'a mut [u8],
}

impl Operation for WriteGroup<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let half = self.group.len() / GROUP;
        for (panel, rows) in self.rows.iter().enumerate() {
            match self.format {
                WeightFormat::F32 => write_f32(rows, &mut self.group[panel * half..][..half]),
                WeightFormat::Bf16Pairs => write_bf16_pairs(rows, &mut self.group[panel * half..][..half]),
                WeightFormat::Quantised(to) => write_quantised(rows, to, self.group, panel),
            }
        }
    }
}

impl PanelRows<'_> {
    /// Rows that there are.
    #[inline(always)]
    fn count(&self) -> usize {
        PANEL.min(self.weight.rows().saturating_sub(self.first))
    }

    /// Widens the inputs from `start` on, as far as they go, to f32.
    #[inline(always)]
    fn read(&self, start: usize, strip: &mut [[f32; STRIP]; PANEL]) {
        let width = STRIP.min(self.weight.columns() - start);
        for (lane, row) in strip.iter_mut().enumerate().take(self.count()) {
            self.weight.read_part(self.first + lane, start, &mut row[..width]);
            row[width..].fill(0.0);
        }
    }

    /// The same, to bf16.
    #[inline(always)]
    fn read_bf16(&self, start: usize, strip: &mut [[u16; STRIP]; PANEL]) {
        let width = STRIP.min(self.weight.columns() - start);
        let mut wide = [0.0; STRIP];
        for (lane, row) in strip.iter_mut().enumerate().take(self.count()) {
            if self.weight.dtype() == Dtype::Bf16 {
                let raw = &self.weight.row_bytes(self.first + lane)[2 * start..][..2 * width];
                for (out, raw) in row.iter_mut().zip(raw.chunks_exact(2)) {
                    *out = u16::from_le_bytes([raw[0], raw[1]]);
                }
            } else {
                self.weight.read_part(self.first + lane, start, &mut wide[..width]);
                for (out, &value) in row.iter_mut().zip(&wide) {
                    *out = round_bf16(value);
                }
            }
            row[width..].fill(0);
        }
    }
}

/// Sixteen words of each row from word `start` on become those of each column.
#[inline(always)]
fn transposed(words: impl Fn(usize, usize) -> u32) -> Words {
    std::array::from_fn(|word| std::array::from_fn(|lane| words(lane, word)))
}

/// Writes words to memory.
#[inline(always)]
fn store(words: &[[u32; PANEL]], out: &mut [u8]) {
    for (words, out) in words.iter().zip(out.chunks_exact_mut(PANEL * 4)) {
        for (word, out) in words.iter().zip(out.chunks_exact_mut(4)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// `[in][16]` in f32.
#[inline(always)]
fn write_f32(rows: &PanelRows<'_>, panel: &mut [u8]) {
    let mut strip = [[0.0; STRIP]; PANEL];
    for (index, panel) in panel.chunks_mut(STRIP * PANEL * 4).enumerate() {
        rows.read(index * STRIP, &mut strip);
        for (block, out) in panel.chunks_mut(PANEL * PANEL * 4).enumerate() {
            store(&transposed(|lane, word| strip[lane][block * PANEL + word].to_bits()), out);
        }
    }
}

/// `[in / 2][16][2]` in bf16: words of two inputs.
#[inline(always)]
fn write_bf16_pairs(rows: &PanelRows<'_>, panel: &mut [u8]) {
    let mut strip = [[0; STRIP]; PANEL];
    for (index, panel) in panel.chunks_mut(STRIP * PANEL * 2).enumerate() {
        rows.read_bf16(index * STRIP, &mut strip);
        for (block, out) in panel.chunks_mut(PANEL * PANEL * 4).enumerate() {
            let word = |lane: usize, word: usize| {
                let place = 2 * (block * PANEL + word);
                u32::from(strip[lane][place]) | u32::from(strip[lane][place + 1]) << 16
            };
            store(&transposed(word), out);
        }
    }
}

/// Blocks of 32 inputs of a pair of panels, of which this is number `panel`.
#[inline(always)]
fn write_quantised(rows: &PanelRows<'_>, to: Quantisation, group: &mut [u8], panel: usize) {
    let mut strip = [[0.0; STRIP]; PANEL];
    for (index, blocks) in group.chunks_mut(STRIP / quantised::INPUTS * to.block_bytes()).enumerate() {
        rows.read(index * STRIP, &mut strip);
        for (block, out) in blocks.chunks_exact_mut(to.block_bytes()).enumerate() {
            let mut values = [[0.0; PANEL]; quantised::INPUTS];
            for (half, values) in values.chunks_exact_mut(PANEL).enumerate() {
                let start = block * quantised::INPUTS + half * PANEL;
                let words = transposed(|lane, word| strip[lane][start + word].to_bits());
                values.iter_mut().zip(words).for_each(|(values, words)| *values = words.map(f32::from_bits));
            }
            quantised::write_panel(to, &values, out, panel);
        }
    }
}

#[cfg(test)]
mod tests;
