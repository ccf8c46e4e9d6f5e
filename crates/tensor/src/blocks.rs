//! Block formats: rows cut into blocks of quantised numbers, each block with its own scales, as ggml defines them.
//!
//! Blocks run along a row and never cross into the next, so rows can be taken in any order. What is here is the
//! reference: one block to f32, in the order of operations of ggml's own reference code.

use std::fmt;

/// A block format of ggml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// 4 bits and one scale for 32 numbers.
    Q4_0,
    /// 5 bits and one scale for 32 numbers.
    Q5_0,
    /// 8 bits and one scale for 32 numbers.
    Q8_0,
    /// 4 bits, and 6 bits of scale and of minimum for each 32 of 256 numbers.
    Q4K,
    /// 5 bits, and 6 bits of scale and of minimum for each 32 of 256 numbers.
    Q5K,
    /// 6 bits, and 8 bits of scale for each 16 of 256 numbers.
    Q6K,
}

/// Bytes of the scales and minima of the formats that pack eight pairs of 6 bits.
const SCALES: usize = 12;
/// Numbers in the largest block.
const LARGEST: usize = 256;

impl BlockFormat {
    /// All block formats.
    pub const ALL: [Self; 6] = [Self::Q4_0, Self::Q5_0, Self::Q8_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// Numbers in a block.
    pub const fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 2 + 2 + SCALES + 128,
            Self::Q5K => 2 + 2 + SCALES + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Widens whole blocks to f32.
    ///
    /// # Panics
    /// If `out` is not as long as the blocks need.
    pub fn widen(self, blocks: &[u8], out: &mut [f32]) {
        assert_eq!(blocks.len() / self.bytes() * self.elements(), out.len(), "blocks and numbers differ in count");
        let widen = match self {
            Self::Q4_0 => q4_0,
            Self::Q5_0 => q5_0,
            Self::Q8_0 => q8_0,
            Self::Q4K => q4_k,
            Self::Q5K => q5_k,
            Self::Q6K => q6_k,
        };
        for (block, out) in blocks.chunks_exact(self.bytes()).zip(out.chunks_exact_mut(self.elements())) {
            widen(block, out);
        }
    }
}

/// A block taken apart: its scales and its integers as they are stored, before anything is multiplied or subtracted. What
/// a format lacks, and what is behind its [`BlockFormat::elements`], is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockParts {
    /// Bits of the IEEE halves that everything is multiplied with: scales, then minima.
    pub halves: [u16; 2],
    /// Scales of the parts: bytes that are unsigned for 32 numbers each, signed (Q6_K) for 16 numbers each.
    pub scales: [u8; 16],
    /// Minima of the parts of 32 numbers.
    pub minima: [u8; 8],
    /// The integers; from those of Q4_0, Q5_0 and Q6_K the middle of their range is not yet taken away.
    pub integers: [u8; LARGEST],
}

impl BlockParts {
    /// Parts that are all zero.
    pub const ZERO: Self = Self { halves: [0; 2], scales: [0; 16], minima: [0; 8], integers: [0; LARGEST] };
}

impl BlockFormat {
    /// Takes a block apart.
    ///
    /// # Panics
    /// If it is not one block long.
    pub fn take_apart(self, block: &[u8], parts: &mut BlockParts) {
        assert_eq!(block.len(), self.bytes(), "length of a block");
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        *parts = BlockParts::ZERO;
        match self {
            Self::Q8_0 => {
                parts.halves[0] = half(0);
                parts.integers[..32].copy_from_slice(&block[2..]);
            }
            Self::Q4_0 | Self::Q5_0 => {
                parts.halves[0] = half(0);
                let bytes = &block[block.len() - 16..];
                for (index, &byte) in bytes.iter().enumerate() {
                    parts.integers[index] = byte & 15;
                    parts.integers[index + 16] = byte >> 4;
                }
                if self == Self::Q5_0 {
                    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
                    let integers = parts.integers[..32].iter_mut();
                    integers.enumerate().for_each(|(index, integer)| *integer |= ((high >> index & 1) << 4) as u8);
                }
            }
            Self::Q4K | Self::Q5K => {
                parts.halves = [half(0), half(2)];
                parts.take_six_bits(&block[4..4 + SCALES]);
                let (high, bytes) = block[4 + SCALES..].split_at(if self == Self::Q5K { 32 } else { 0 });
                for (pair, bytes) in bytes.chunks_exact(32).enumerate() {
                    for (index, &byte) in bytes.iter().enumerate() {
                        parts.integers[pair * 64 + index] = byte & 15;
                        parts.integers[pair * 64 + 32 + index] = byte >> 4;
                    }
                }
                for (index, &high) in high.iter().enumerate() {
                    (0..8).for_each(|part| parts.integers[part * 32 + index] |= (high >> part & 1) << 4);
                }
            }
            Self::Q6K => {
                parts.halves[0] = half(208);
                parts.scales.copy_from_slice(&block[192..208]);
                for part in 0..2 {
                    let (low, high) = (&block[part * 64..][..64], &block[128 + part * 32..][..32]);
                    let out = &mut parts.integers[part * 128..][..128];
                    for lane in 0..32 {
                        out[lane] = low[lane] & 15 | (high[lane] & 3) << 4;
                        out[lane + 32] = low[lane + 32] & 15 | (high[lane] >> 2 & 3) << 4;
                        out[lane + 64] = low[lane] >> 4 | (high[lane] >> 4 & 3) << 4;
                        out[lane + 96] = low[lane + 32] >> 4 | high[lane] >> 6 << 4;
                    }
                }
            }
        }
    }
}

impl BlockParts {
    fn take_six_bits(&mut self, packed: &[u8]) {
        for part in 0..8 {
            let (scale, minimum) = scale_and_minimum(packed, part);
            (self.scales[part], self.minima[part]) = (scale, minimum);
        }
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Q4_0 => "q4_0",
            Self::Q5_0 => "q5_0",
            Self::Q8_0 => "q8_0",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        })
    }
}

fn half(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Scale, then 16 bytes: number `i` in the low half of byte `i`, number `i + 16` in the high half.
fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block);
    for (index, &byte) in block[2..].iter().enumerate() {
        out[index] = (i32::from(byte & 15) - 8) as f32 * scale;
        out[index + 16] = (i32::from(byte >> 4) - 8) as f32 * scale;
    }
}

/// Decodes a block like [`q4_0`], with the fifth bits of all 32 numbers between the scale and the bytes.
fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    let fifth = |index: usize| ((high >> index & 1) << 4) as i32;
    for (index, &byte) in block[6..].iter().enumerate() {
        out[index] = ((i32::from(byte & 15) | fifth(index)) - 16) as f32 * scale;
        out[index + 16] = ((i32::from(byte >> 4) | fifth(index + 16)) - 16) as f32 * scale;
    }
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block);
    for (out, &byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(byte as i8) * scale;
    }
}

/// Scale and minimum of part `part` of eight. The first four have 6 bits of a byte each; the last four have 4 bits in
/// the third group of bytes and their upper 2 where the first four leave room.
fn scale_and_minimum(scales: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        (scales[part] & 63, scales[part + 4] & 63)
    } else {
        let low = scales[part + 4];
        (low & 15 | scales[part - 4] >> 6 << 4, low >> 4 | scales[part] >> 6 << 4)
    }
}

/// Scale of the scales, scale of the minima, scales; then 32 bytes for each 64 numbers, low halves first.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scales, bytes) = block[4..].split_at(SCALES);
    fours_of_256(block, scales, bytes, out, |_, _| 0);
}

/// Decodes a block like [`q4_k`], with the fifth bits between: bit `part` of byte `i` is that of number `i` of the
/// part.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scales, rest) = block[4..].split_at(SCALES);
    let (high, bytes) = rest.split_at(32);
    fours_of_256(block, scales, bytes, out, |part, index| (high[index] >> part & 1) << 4);
}

fn fours_of_256(block: &[u8], scales: &[u8], bytes: &[u8], out: &mut [f32], fifth: impl Fn(usize, usize) -> u8) {
    let (of_scales, of_minima) = (half(block), half(&block[2..]));
    for (part, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(scales, part);
        let (scale, minimum) = (of_scales * f32::from(scale), of_minima * f32::from(minimum));
        let bytes = &bytes[part / 2 * 32..][..32];
        for (index, (out, &byte)) in out.iter_mut().zip(bytes).enumerate() {
            let low = if part % 2 == 0 { byte & 15 } else { byte >> 4 };
            *out = scale * f32::from(low | fifth(part, index)) - minimum;
        }
    }
}

/// Lower 4 bits, upper 2 bits, scales, scale of the scales. Each 128 numbers take 64 bytes of lower bits, low halves
/// first, and 32 bytes of upper bits, two bits for each quarter.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, of_scales) = rest.split_at(16);
    let of_scales = half(of_scales);
    for (index, out) in out.iter_mut().enumerate() {
        let (part, quarter, lane) = (index / 128, index % 128 / 32, index % 32);
        let byte = low[part * 64 + quarter % 2 * 32 + lane];
        let lower = if quarter < 2 { byte & 15 } else { byte >> 4 };
        let upper = high[part * 32 + lane] >> (2 * quarter) & 3;
        let number = i32::from(lower | upper << 4) - 32;
        *out = of_scales * f32::from(scales[index / 16] as i8) * number as f32;
    }
}
