//! Packing of blocks as files have them into blocks of a pair of panels.

use demask_tensor::BlockParts;

use super::{Coding, LOWER_LINES};
use crate::linear::{
    int8::{QUAD, QUAD_BYTES, QUADS, SHIFT},
    packed::{GROUP, PANEL},
    quantised::INPUTS,
};

/// Writes one panel of a pair: `rows` are the blocks of up to [`PANEL`] outputs, in the format that the coding keeps,
/// `group` the zeroed pair.
pub(in crate::linear) fn write_panel(coding: Coding, rows: &[&[u8]], group: &mut [u8], panel: usize) {
    let format = coding.format();
    let mut parts = [BlockParts::ZERO; PANEL];
    for (block, out) in group.chunks_exact_mut(coding.block_bytes()).enumerate() {
        for (row, parts) in rows.iter().zip(&mut parts) {
            format.take_apart(&row[block * format.bytes()..][..format.bytes()], parts);
        }
        write_block(coding, &parts, out, panel);
    }
}

fn write_block(coding: Coding, parts: &[BlockParts; PANEL], out: &mut [u8], panel: usize) {
    let (head, out) = out.split_at_mut(coding.head_bytes());
    for (which, halves) in head.chunks_exact_mut(GROUP * PANEL * 2).enumerate() {
        for (out, parts) in halves[panel * PANEL * 2..].chunks_exact_mut(2).zip(parts) {
            out.copy_from_slice(&parts.halves[which].to_le_bytes());
        }
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
        for (lane, parts) in parts.iter().enumerate() {
            write_integers(coding, &parts.integers[part * INPUTS..][..INPUTS], out, lane);
        }
    }
}

/// The integers of one output of a part.
fn write_integers(coding: Coding, integers: &[u8], out: &mut [u8], lane: usize) {
    let (upper, lower) = out.split_at_mut(coding.upper_bytes());
    for (input, &integer) in integers.iter().enumerate() {
        let (quad, place) = (input / QUAD, lane * QUAD + input % QUAD);
        if coding.bytes() {
            // From a sign to none.
            lower[quad * QUAD_BYTES + place] = integer ^ SHIFT as u8;
            continue;
        }
        debug_assert_eq!(lower.len(), LOWER_LINES * QUAD_BYTES);
        lower[quad / 2 * QUAD_BYTES + place] |= (integer & 15) << (quad % 2 * 4);
        let bits = coding.upper_bits();
        if bits > 0 {
            let lines = upper.len() / QUAD_BYTES;
            let (line, quad) = (quad * lines / QUADS, quad % (QUADS / lines));
            upper[line * QUAD_BYTES + place] |= integer >> 4 << (quad * bits);
        }
    }
}
