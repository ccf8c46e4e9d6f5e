//! Packing of blocks as files have them into blocks of a pair of panels.

use demask_tensor::{BlockFormat, BlockParts};

use super::{Coding, LOWER};
use crate::linear::{
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, INPUTS, Quantisation},
};

/// Integers of a part of one panel.
type Integers = [[u8; INPUTS]; PANEL];

/// Writes one panel of a pair: `rows` are the blocks of up to [`PANEL`] outputs, `group` the zeroed pair in a format
/// that keeps them.
pub(in crate::linear) fn write_panel(
    format: BlockFormat,
    to: WeightFormat,
    rows: &[&[u8]],
    group: &mut [u8],
    panel: usize,
) {
    assert_eq!(super::keeping(demask_tensor::Dtype::Block(format)), Some(to), "{format} is not kept in this format");
    let mut parts = [BlockParts::ZERO; PANEL];
    let blocks = rows.first().map_or(0, |row| row.len() / format.bytes());
    let block_bytes = group.len() / blocks.max(1);
    for (block, out) in group.chunks_exact_mut(block_bytes.max(1)).enumerate() {
        for (row, parts) in rows.iter().zip(&mut parts) {
            format.take_apart(&row[block * format.bytes()..][..format.bytes()], parts);
        }
        match to {
            WeightFormat::Blocks(coding) => write_block(coding, &parts, out, panel),
            WeightFormat::Quantised(to) => write_quantised(to, &parts, out, panel),
            WeightFormat::F32 | WeightFormat::Bf16Pairs | WeightFormat::Integers(_) => {
                unreachable!("these formats keep no blocks")
            }
        }
    }
}

/// The integers of part `part` of a panel's blocks.
fn integers(parts: &[BlockParts; PANEL], part: usize) -> Integers {
    let mut integers = [[0; INPUTS]; PANEL];
    for (integers, parts) in integers.iter_mut().zip(parts) {
        integers.copy_from_slice(&parts.integers[part * INPUTS..][..INPUTS]);
    }
    integers
}

/// Halves of a panel's sixteen outputs.
fn write_halves(parts: &[BlockParts; PANEL], which: usize, out: &mut [u8]) {
    for (out, parts) in out.chunks_exact_mut(2).zip(parts) {
        out.copy_from_slice(&parts.halves[which].to_le_bytes());
    }
}

/// One panel of a block of [`Quantisation`]: the same integers and scales, not rounded anew.
fn write_quantised(to: Quantisation, parts: &[BlockParts; PANEL], out: &mut [u8], panel: usize) {
    let (scales, out) = out.split_at_mut(quantised::SCALES);
    write_halves(parts, 0, &mut scales[panel * PANEL * 2..][..PANEL * 2]);
    let (integers, out) =
        (integers(parts, 0), &mut out[panel * quantised::panel_bytes(to)..][..quantised::panel_bytes(to)]);
    match to {
        Quantisation::Q8 => {
            for (step, out) in out.chunks_exact_mut(PANEL).enumerate() {
                out.iter_mut().enumerate().for_each(|(word, out)| *out = at(&integers, step, word));
            }
        }
        Quantisation::Q4 => write_bits::<4>(&integers, 0, out),
    }
}

/// One panel of a block of the other formats.
fn write_block(coding: Coding, parts: &[BlockParts; PANEL], out: &mut [u8], panel: usize) {
    let (head, out) = out.split_at_mut(coding.head_bytes());
    for (which, halves) in head.chunks_exact_mut(GROUP * PANEL * 2).enumerate() {
        write_halves(parts, which, &mut halves[panel * PANEL * 2..][..PANEL * 2]);
    }
    for (part, out) in out.chunks_exact_mut(coding.part_bytes()).enumerate() {
        let (scales, out) = out.split_at_mut(coding.scale_bytes());
        if coding.part_scales() {
            let (first, second) = scales[panel * 2 * PANEL..][..2 * PANEL].split_at_mut(PANEL);
            for (lane, parts) in parts.iter().enumerate() {
                (first[lane], second[lane]) = if coding.minima() {
                    (parts.scales[part], parts.minima[part])
                } else {
                    (parts.scales[2 * part], parts.scales[2 * part + 1])
                };
            }
        }
        let out = &mut out[panel * coding.panel_bytes()..][..coding.panel_bytes()];
        let (upper, lower) = out.split_at_mut(coding.upper_bytes());
        let integers = integers(parts, part);
        match coding.upper_bits() {
            0 => {}
            1 => write_bits::<1>(&integers, 4, upper),
            _ => write_bits::<2>(&integers, 4, upper),
        }
        debug_assert_eq!(lower.len(), LOWER);
        write_bits::<4>(&integers, 0, lower);
    }
}

/// The integer at place `step * 16 + word` in the order of bf16 pairs.
#[inline(always)]
fn at(integers: &Integers, step: usize, word: usize) -> u8 {
    integers[step % 2 * (PANEL / 2) + word / 2][step / 2 * 2 + word % 2]
}

/// `BITS` bits of each integer, from bit `first` on, as words.
#[inline(always)]
fn write_bits<const BITS: usize>(integers: &Integers, first: usize, out: &mut [u8]) {
    let steps = 32 / BITS;
    for (line, out) in out.chunks_exact_mut(PANEL * 4).enumerate() {
        let mut words = [0u32; PANEL];
        for step in 0..steps {
            for (word, bits) in words.iter_mut().enumerate() {
                let integer = at(integers, line * steps + step, word) >> first & ((1 << BITS) - 1);
                *bits |= u32::from(integer) << (step * BITS);
            }
        }
        out.chunks_exact_mut(4).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
    }
}
