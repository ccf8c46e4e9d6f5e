//! Block formats: rows cut into blocks of quantised numbers, each block with its own scales, as ggml defines them.
//!
//! Blocks run along a row and never cross into the next, so rows can be taken in any order. This module is the
//! reference: one block to f32, in the order of operations of ggml's own reference code.

use std::fmt;

/// A block format of ggml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// 4 bits and one scale for 32 numbers.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 numbers.
    Q4_1,
    /// 5 bits and one scale for 32 numbers.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 numbers.
    Q5_1,
    /// 8 bits and one scale for 32 numbers.
    Q8_0,
    /// 2 bits, and 4 bits of scale and of minimum for each 16 of 256 numbers.
    Q2K,
    /// 3 bits, and 6 bits of scale for each 16 of 256 numbers.
    Q3K,
    /// 4 bits, and 6 bits of scale and of minimum for each 32 of 256 numbers.
    Q4K,
    /// 5 bits, and 6 bits of scale and of minimum for each 32 of 256 numbers.
    Q5K,
    /// 6 bits, and 8 bits of scale for each 16 of 256 numbers.
    Q6K,
    /// One of 16 uneven steps for each number, and one scale for 32.
    Iq4Nl,
    /// One of 16 uneven steps for each number, and 6 bits of scale for each 32 of 256.
    Iq4Xs,
    /// -1, 0 or 1, five of which share a byte, and one scale for 256 numbers.
    Tq1_0,
    /// -1, 0 or 1 in 2 bits, and one scale for 256 numbers.
    Tq2_0,
    /// Floats of 4 bits, and a power of 2 for 32 of them.
    Mxfp4,
}

/// Bytes of the scales and minima of the formats that pack eight pairs of 6 bits.
const SCALES: usize = 12;
/// Numbers in the largest block.
const LARGEST: usize = 256;

impl BlockFormat {
    /// All block formats.
    pub const ALL: [Self; 15] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Tq1_0,
        Self::Tq2_0,
        Self::Mxfp4,
    ];

    /// Numbers in a block.
    pub const fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Iq4Nl | Self::Mxfp4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs | Self::Tq1_0 | Self::Tq2_0 => {
                LARGEST
            }
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 | Self::Iq4Nl => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q2K => 16 + 64 + 2 + 2,
            Self::Q3K => 32 + 64 + SCALES + 2,
            Self::Q4K => 2 + 2 + SCALES + 128,
            Self::Q5K => 2 + 2 + SCALES + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
            Self::Iq4Xs => 2 + 2 + 4 + 128,
            Self::Tq1_0 => 48 + 4 + 2,
            Self::Tq2_0 => 64 + 2,
            Self::Mxfp4 => 1 + 16,
        }
    }

    /// Where a block has its halves, scales before minima: of all its bits, these alone can make a number that is none.
    pub const fn halves_at(self) -> &'static [usize] {
        match self {
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Iq4Nl | Self::Iq4Xs => &[0],
            Self::Q2K => &[80, 82],
            Self::Q3K => &[108],
            Self::Q6K => &[208],
            Self::Tq1_0 => &[52],
            Self::Tq2_0 => &[64],
            Self::Mxfp4 => &[],
        }
    }

    /// The format as which [`take_apart`](Self::take_apart) gives the numbers of a block: its own, or one that has room for
    /// them all, to the bit. Nothing, where none has.
    pub const fn parts_as(self) -> Option<Self> {
        match self {
            Self::Q3K | Self::Tq1_0 | Self::Tq2_0 => Some(Self::Q6K),
            Self::Iq4Nl => Some(Self::Q8_0),
            Self::Q2K | Self::Mxfp4 => None,
            _ => Some(self),
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
            Self::Q2K => q2_k,
            Self::Q4K => q4_k,
            Self::Q5K => q5_k,
            Self::Q6K => q6_k,
            Self::Mxfp4 => mxfp4,
            Self::Q4_1 | Self::Q5_1 | Self::Q3K | Self::Iq4Nl | Self::Iq4Xs | Self::Tq1_0 | Self::Tq2_0 => {
                return self.widen_parts(blocks, out);
            }
        };
        for (block, out) in blocks.chunks_exact(self.bytes()).zip(out.chunks_exact_mut(self.elements())) {
            widen(block, out);
        }
    }

    /// Widens blocks by their parts, one half of which every number is multiplied with.
    fn widen_parts(self, blocks: &[u8], out: &mut [f32]) {
        let mut parts = BlockParts::ZERO;
        for (block, out) in blocks.chunks_exact(self.bytes()).zip(out.chunks_exact_mut(self.elements())) {
            self.take_apart(block, &mut parts);
            let [scale, minimum] = parts.halves.map(widen_f16);
            for (index, out) in out.iter_mut().enumerate() {
                let (byte, of_part) = (parts.integers[index], f32::from(parts.scales[index / 16] as i8));
                *out = match self {
                    Self::Q4_1 | Self::Q5_1 => scale * f32::from(byte) - minimum,
                    Self::Iq4Nl => scale * f32::from(byte as i8),
                    Self::Iq4Xs => scale * of_part * f32::from(byte as i8),
                    _ => scale * of_part * (f32::from(byte) - 32.0),
                };
            }
        }
    }
}

/// A block taken apart: its scales and its integers as they are stored, before anything is multiplied or subtracted.
/// Parts that a format lacks, and integers after its [`BlockFormat::elements`], are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockParts {
    /// Bits of the IEEE halves that everything is multiplied with: scales, then minima.
    pub halves: [u16; 2],
    /// Scales of the parts: bytes that are unsigned for 32 numbers each, signed (Q6_K, IQ4_XS) for 16 numbers each.
    pub scales: [u8; 16],
    /// Minima of the parts of 32 numbers.
    pub minima: [u8; 8],
    /// The integers: with a sign in Q8_0 and IQ4_XS; from those of Q4_0, Q5_0 and Q6_K the middle of their range is not yet
    /// taken away.
    pub integers: [u8; LARGEST],
}

impl BlockParts {
    /// Parts that are all zero.
    pub const ZERO: Self = Self { halves: [0; 2], scales: [0; 16], minima: [0; 8], integers: [0; LARGEST] };
}

impl BlockFormat {
    /// Takes a block apart, into the parts of [`parts_as`](Self::parts_as).
    ///
    /// # Panics
    /// If it is not one block long, or no format has room for it.
    pub fn take_apart(self, block: &[u8], parts: &mut BlockParts) {
        assert_eq!(block.len(), self.bytes(), "length of a block");
        *parts = BlockParts::ZERO;
        for (half, &at) in parts.halves.iter_mut().zip(self.halves_at()) {
            *half = u16::from_le_bytes([block[at], block[at + 1]]);
        }
        match self {
            Self::Q8_0 => parts.integers[..32].copy_from_slice(&block[2..]),
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Iq4Nl => {
                if matches!(self, Self::Q4_1 | Self::Q5_1) {
                    // Added there, subtracted here.
                    parts.halves[1] ^= 0x8000;
                }
                let (front, bytes) = block.split_at(block.len() - 16);
                take_halves(bytes, &mut parts.integers);
                if matches!(self, Self::Q5_0 | Self::Q5_1) {
                    let high = front.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    let integers = parts.integers[..32].iter_mut();
                    integers.enumerate().for_each(|(index, integer)| *integer |= ((high >> index & 1) << 4) as u8);
                }
                if self == Self::Iq4Nl {
                    parts.integers[..32].iter_mut().for_each(|integer| *integer = uneven(*integer));
                }
            }
            Self::Q3K => parts.take_three_bits(block),
            Self::Iq4Xs => parts.take_uneven(block),
            Self::Tq1_0 | Self::Tq2_0 => {
                parts.scales = [1; 16];
                if self == Self::Tq1_0 {
                    take_fives(block, &mut parts.integers);
                } else {
                    take_twos(block, &mut parts.integers);
                }
                parts.integers.iter_mut().for_each(|integer| *integer += 31);
            }
            Self::Q2K | Self::Mxfp4 => panic!("no format has room for the numbers of {self}"),
            Self::Q4K | Self::Q5K => {
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

    /// Third bits, two bits, scales of 6 bits, their scale: the parts of Q6_K, whose middle is 28 above this one's.
    fn take_three_bits(&mut self, block: &[u8]) {
        let (high, rest) = block.split_at(32);
        let (low, rest) = rest.split_at(64);
        let scales = &rest[..SCALES];
        for (part, scale) in self.scales.iter_mut().enumerate() {
            let low = scales[part % 8] >> (part / 8 * 4) & 15;
            *scale = (low | (scales[8 + part % 4] >> (part / 4 * 2) & 3) << 4).wrapping_sub(32);
        }
        take_twos(low, &mut self.integers);
        for (index, integer) in self.integers.iter_mut().enumerate() {
            *integer = (*integer | (high[index % 32] >> (index / 32) & 1) << 2) + 28;
        }
    }

    /// Scale of the scales, upper 2 bits of the scales, their lower 4 bits, then 16 bytes of steps for each 32 numbers.
    fn take_uneven(&mut self, block: &[u8]) {
        let (high, low) = (u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
        for (index, scale) in self.scales.iter_mut().enumerate() {
            let part = index / 2;
            let upper = (high >> (2 * part) & 3) as u8;
            *scale = (low[part / 2] >> (part % 2 * 4) & 15 | upper << 4).wrapping_sub(32);
        }
        for (bytes, integers) in block[8..].chunks_exact(16).zip(self.integers.chunks_exact_mut(32)) {
            take_halves(bytes, integers);
        }
        self.integers.iter_mut().for_each(|integer| *integer = uneven(*integer));
    }
}

/// The lower halves of 16 bytes, then their upper halves.
fn take_halves(bytes: &[u8], integers: &mut [u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        (integers[index], integers[index + 16]) = (byte & 15, byte >> 4);
    }
}

/// Integers of two bits: the lowest of 32 bytes, then the next, and the same of 32 bytes more.
fn take_twos(bytes: &[u8], integers: &mut [u8; LARGEST]) {
    for (index, integer) in integers.iter_mut().enumerate() {
        *integer = bytes[index / 128 * 32 + index % 32] >> (index % 128 / 32 * 2) & 3;
    }
}

/// Integers of base 3, five in a byte, as the fraction of 256 that they are: of 32 bytes, of 16, and four each of 4 bytes.
fn take_fives(bytes: &[u8], integers: &mut [u8; LARGEST]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    for (index, integer) in integers.iter_mut().enumerate() {
        let (start, width, first) = if index < 160 {
            (0, 32, 0)
        } else if index < 240 {
            (32, 16, 160)
        } else {
            (48, 4, 240)
        };
        let digit = (index - first) / width;
        let fraction = bytes[start + (index - first) % width].wrapping_mul(POWERS[digit]);
        *integer = ((u16::from(fraction) * 3) >> 8) as u8;
    }
}

/// The step of a number of IQ4_NL and IQ4_XS, as a byte with a sign: close together around zero, where most weights are.
const fn uneven(number: u8) -> u8 {
    const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    STEPS[(number & 15) as usize] as u8
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
            Self::Iq4Nl => "iq4_nl",
            Self::Iq4Xs => "iq4_xs",
            Self::Tq1_0 => "tq1_0",
            Self::Tq2_0 => "tq2_0",
            Self::Mxfp4 => "mxfp4",
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

/// Scales below and minima above in a byte for each 16 numbers, two bits of each number, scale of the scales, scale of the
/// minima.
fn q2_k(block: &[u8], out: &mut [f32]) {
    let (of_scales, of_minima) = (half(&block[80..]), half(&block[82..]));
    let mut integers = [0; LARGEST];
    take_twos(&block[16..80], &mut integers);
    for (index, (out, integer)) in out.iter_mut().zip(integers).enumerate() {
        let both = block[index / 16];
        *out = of_scales * f32::from(both & 15) * f32::from(integer) - of_minima * f32::from(both >> 4);
    }
}

/// Exponent of 2, then floats of 4 bits: a sign, two bits of exponent, one of fraction. The numbers here are twice theirs, the
/// power of 2 half of it.
fn mxfp4(block: &[u8], out: &mut [f32]) {
    const TWICE: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
    let exponent = u32::from(block[0]);
    let scale = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    let number = |four: u8| {
        let magnitude = TWICE[usize::from(four & 7)];
        scale * if four & 8 == 0 { magnitude } else { 0.0 - magnitude }
    };
    for (index, &byte) in block[1..].iter().enumerate() {
        (out[index], out[index + 16]) = (number(byte & 15), number(byte >> 4));
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

/// Decodes a block like [`q4_k`], with the fifth bits between: bit `part` of byte `i` is the fifth bit of number `i` of
/// the part.
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

/// Widens a half without branches. Its bits, moved to where an f32 has them, need 112 more in the exponent. A denormal
/// half is given the exponent of the smallest normal one, and that number taken away: nothing on the way is a denormal
/// f32, which would be slow.
#[inline(always)]
pub fn widen_f16(half: u16) -> f32 {
    const SMALLEST: u32 = 113 << 23;
    let magnitude = u32::from(half & 0x7fff) << 13;
    let normal = magnitude + (112 << 23);
    let denormal = (f32::from_bits(magnitude + SMALLEST) - f32::from_bits(SMALLEST)).to_bits();
    let infinite = magnitude | 0x7f80_0000;
    let finite = if half & 0x7c00 == 0 { denormal } else { normal };
    let bits = if half & 0x7c00 == 0x7c00 { infinite } else { finite };
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}
