//! Packing into blocks of a pair of panels: of blocks as files have them, and of weights that are rounded.

use demask_tensor::{BlockFormat, BlockParts, Quantisation, larger};

use super::{Coding, INPUTS};
use crate::linear::{
    int8::{QUAD, QUAD_BYTES, QUADS, SHIFT},
    pack::Vectors,
    packed::{GROUP, PANEL},
};

/// A part's integers of one panel without a sign: four bytes of each output in each quad.
type Quads = [[u32; PANEL]; QUADS];

/// Writes one panel of a pair: `rows` are the blocks of up to [`PANEL`] outputs, in a format that the coding keeps, `group`
/// the zeroed pair.
pub(in crate::linear) fn write_kept(
    coding: Coding,
    (format, rows): (BlockFormat, &[&[u8]]),
    group: &mut [u8],
    panel: usize,
) {
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
        let mut quads = [[0; PANEL]; QUADS];
        for (lane, parts) in parts.iter().enumerate() {
            let integers = parts.integers[part * INPUTS..][..INPUTS].as_chunks::<QUAD>().0;
            for (quad, &integers) in quads.iter_mut().zip(integers) {
                // Bytes lose their sign.
                quad[lane] = u32::from_le_bytes(integers) ^ if coding.bytes() { 0x8080_8080 } else { 0 };
            }
        }
        write_quads(coding, &quads, &mut out[panel * coding.panel_bytes()..][..coding.panel_bytes()]);
    }
}

/// Rounds a panel's part, `[in][16]`, and writes it to its place in a block: `panel` of the pair.
#[inline(always)]
pub(in crate::linear) fn write_rounded<V: Vectors>(
    to: Quantisation,
    values: &[[f32; PANEL]; INPUTS],
    block: &mut [u8],
    panel: usize,
) {
    let coding = Coding::rounded(to);
    let (scales, integers) = block.split_at_mut(coding.head_bytes());
    let largest = largest(values);
    let mut inverses = [0.0; PANEL];
    for (lane, place) in scales[panel * PANEL * 2..][..PANEL * 2].chunks_exact_mut(2).enumerate() {
        let scale;
        (scale, inverses[lane]) = to.choose_scale(largest[lane]);
        place.copy_from_slice(&scale.to_le_bytes());
    }
    let mut quads = [[0; PANEL]; QUADS];
    for (quad, inputs) in quads.iter_mut().zip(values.as_chunks::<QUAD>().0) {
        let low = V::integers([&inputs[0], &inputs[1]], &inverses, to.limits(), coding.middle());
        let high = V::integers([&inputs[2], &inputs[3]], &inverses, to.limits(), coding.middle());
        for lane in 0..PANEL {
            quad[lane] = u32::from(low[lane]) | u32::from(high[lane]) << 16;
        }
    }
    write_quads(coding, &quads, &mut integers[panel * coding.panel_bytes()..][..coding.panel_bytes()]);
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

/// Writes the integers of one panel of a part: the upper bits, then the lower.
#[inline(always)]
fn write_quads(coding: Coding, quads: &Quads, out: &mut [u8]) {
    let (upper, lower) = out.split_at_mut(coding.upper_bytes());
    if coding.bytes() {
        for (quad, line) in quads.iter().zip(lower.chunks_exact_mut(QUAD_BYTES)) {
            write_line(quad, line);
        }
        return;
    }
    let each = |byte: u32| byte * 0x0101_0101;
    for (two, line) in quads.as_chunks::<2>().0.iter().zip(lower.chunks_exact_mut(QUAD_BYTES)) {
        let mut words = [0; PANEL];
        for lane in 0..PANEL {
            words[lane] = two[0][lane] & each(15) | (two[1][lane] & each(15)) << 4;
        }
        write_line(&words, line);
    }
    let bits = coding.upper_bits();
    for (quads, line) in quads.chunks(8 / bits.max(1)).zip(upper.chunks_exact_mut(QUAD_BYTES)) {
        let mut words = [0; PANEL];
        for (index, quad) in quads.iter().enumerate() {
            for lane in 0..PANEL {
                words[lane] |= (quad[lane] >> 4 & each((1 << bits) - 1)) << (index * bits);
            }
        }
        write_line(&words, line);
    }
}

#[inline(always)]
fn write_line(words: &[u32; PANEL], line: &mut [u8]) {
    for (word, out) in words.iter().zip(line.chunks_exact_mut(QUAD)) {
        out.copy_from_slice(&word.to_le_bytes());
    }
}

const _: () = assert!(Coding::Q8.middle() == SHIFT);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{
        integers::{Q4, Q8, numbers::Numbers},
        pack::Portable,
        unpacked::{Dequant, Pair},
    };

    /// A group in one lane of a panel whose others are zero.
    fn in_lane(values: &[f32; INPUTS], lane: usize) -> [[f32; PANEL]; INPUTS] {
        values.map(|value| std::array::from_fn(|other| if other == lane { value } else { 0.0 }))
    }

    /// A group in one lane of a pair of panels, rounded.
    fn block(to: Quantisation, values: &[f32; INPUTS], panel: usize, lane: usize) -> Vec<u8> {
        let mut block = vec![0u8; Coding::rounded(to).block_bytes()];
        write_rounded::<Portable>(to, &in_lane(values, lane), &mut block, panel);
        block
    }

    /// A group in the last lane of the second panel, and its unpacked value.
    fn round_trip(to: Quantisation, values: &[f32; INPUTS]) -> Vec<f32> {
        fn read<D: Dequant<[f32; PANEL]>>(block: &[u8]) -> Vec<f32> {
            // SAFETY: a block has one part and two panels.
            unsafe {
                let mut weights = D::new(Pair { start: block.as_ptr(), stride: 0 }, 0, 1);
                (0..QUADS).flat_map(|quad| weights.next(quad).map(|weights| weights[15])).collect()
            }
        }
        let block = block(to, values, 1, 15);
        match to {
            Quantisation::Q8 => read::<Numbers<Q8>>(&block),
            Quantisation::Q4 => read::<Numbers<Q4>>(&block),
        }
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
    fn weights_stand_in_quads_without_a_sign() {
        let values: [f32; INPUTS] = std::array::from_fn(|k| (k as f32 - 8.0) * if k < 16 { 1.0 } else { 0.0 });
        let four = block(Quantisation::Q4, &values, 1, 9);
        let integers = &four[Coding::Q4.head_bytes() + Coding::Q4.panel_bytes()..];
        let at = |quad: usize, k: usize| integers[quad / 2 * QUAD_BYTES + 9 * QUAD + k] >> (quad % 2 * 4) & 15;
        for (k, value) in values.iter().enumerate() {
            assert_eq!(f32::from(at(k / QUAD, k % QUAD)) - 8.0, *value);
        }
        let eight = block(Quantisation::Q8, &values.map(|value| value * 127.0 / 8.0), 0, 3);
        let bytes = &eight[Coding::Q8.head_bytes() + QUAD_BYTES + 3 * QUAD..][..QUAD];
        assert_eq!(
            bytes,
            [4, 5, 6, 7].map(|k| ((f64::from(k) - 8.0) * 127.0 / 8.0).round() as i32 + 128).map(|b| b as u8)
        );
    }
}
