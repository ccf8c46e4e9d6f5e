//! Byte products of AVX2: four rows times one panel at a time, integer sums in eight of the sixteen registers.
//!
//! AVX2 adds neighbouring products of bytes in 16 bits, and saturates. With eight bits the two factors therefore are
//! the weight's magnitude and the input with the weight's sign: both are at most 127, and two products fit. With four
//! bits the halves are small enough for the sums of a whole group.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_slli_epi32, _mm256_srli_epi16, _mm256_storeu_ps, _mm256_xor_si256,
};

use super::{
    input::InputFormat,
    int8::{InputGroup, QUAD, QUAD_BYTES, QUADS, SHIFT, scale_factor},
    kernel::{Block, Kernel, TileFn, tiles},
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, INPUTS, Quantisation, SCALES},
    unpacked::format,
};

/// Eight bits.
pub(super) const Q8: Kernel = Kernel {
    name: "avx2_i8xq8_f32",
    input: InputFormat::Int8,
    weight: WeightFormat::Quads(Quantisation::Q8),
    row_tile: ROWS,
    depth_block: 512,
    deep_block: 512,
    accumulate: avx2_i8xq8_f32,
    ..super::avx2::F32
};
/// Four bits.
pub(super) const Q4: Kernel =
    Kernel { name: "avx2_i8xq4_f32", weight: WeightFormat::Quads(Quantisation::Q4), accumulate: avx2_i8xq4_f32, ..Q8 };

/// Rows of a tile.
const ROWS: usize = 4;
/// Registers in a panel.
const PARTS: usize = 2;
/// Floats in a register.
const LANES: usize = 8;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx2_i8xq8_f32(block: &Block) {
    const TILES: [TileFn; ROWS] = tiles!(eight_tile: 1 2 3 4);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx2_i8xq4_f32(block: &Block) {
    const TILES: [TileFn; ROWS] = tiles!(four_tile: 1 2 3 4);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(&TILES, 1) }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx2,fma")]
unsafe fn eight_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { tile::<8, ROWS>(block) }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx2,fma")]
unsafe fn four_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { tile::<4, ROWS>(block) }
}

/// # Safety
/// The processor has AVX2 and FMA; the block keeps its promises and has `ROWS` rows and one pair of panels in blocks of
/// integers of `BITS` bits.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const BITS: usize, const ROWS: usize>(block: &Block) {
    for index in 0..block.depth / INPUTS {
        for panel in 0..GROUP {
            // SAFETY: every access is inside what the block promises; groups of inputs take whole words.
            unsafe {
                let start = block.weight.add(index * quantised::block_bytes(format::<BITS>()));
                let weights = start.add(SCALES + panel * quantised::panel_bytes(format::<BITS>()));
                let inputs = block.input.cast::<InputGroup>().add(index);
                let totals = if BITS == 8 {
                    eight_totals::<ROWS>(weights, inputs, block.input_stride)
                } else {
                    four_totals::<ROWS>(weights, inputs, block.input_stride)
                };
                let scales = quantised::scales(start, panel).map(|scale| scale * scale_factor::<BITS>());
                for row in 0..ROWS {
                    let scale = _mm256_set1_ps((*inputs.byte_add(row * block.input_stride)).scale);
                    for part in 0..PARTS {
                        let sums = block.sums.add(row * block.sums_stride + panel * PANEL + part * LANES);
                        let scale = _mm256_mul_ps(scale, _mm256_loadu_ps(scales.as_ptr().add(part * LANES)));
                        let total: __m256 = _mm256_cvtepi32_ps(totals[row][part]);
                        _mm256_storeu_ps(sums, _mm256_fmadd_ps(total, scale, _mm256_loadu_ps(sums)));
                    }
                }
            }
        }
    }
}

/// Sums of the products of one group of each row and one panel's weights of eight bits.
///
/// # Safety
/// The processor has AVX2; `weights` points to a panel's integers, `inputs` to a group in each of `ROWS` rows, `stride`
/// bytes apart.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight_totals<const ROWS: usize>(
    weights: *const u8,
    inputs: *const InputGroup,
    stride: usize,
) -> [[__m256i; PARTS]; ROWS] {
    let ones = _mm256_set1_epi16(1);
    let mut totals = [[_mm256_setzero_si256(); PARTS]; ROWS];
    for quad in 0..QUADS {
        for part in 0..PARTS {
            // SAFETY: the caller vouches for the weights and the rows.
            unsafe {
                let bytes = _mm256_loadu_si256(weights.add(quad * QUAD_BYTES).cast::<__m256i>().add(part));
                let signed = _mm256_xor_si256(bytes, _mm256_set1_epi8(SHIFT as u8 as i8));
                let magnitudes = _mm256_abs_epi8(signed);
                for row in 0..ROWS {
                    let pairs =
                        _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(four(inputs, row * stride, quad), signed));
                    totals[row][part] = _mm256_add_epi32(totals[row][part], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
    }
    totals
}

/// The same for weights of four bits: 16 times the sums, as these weights' scales expect.
///
/// # Safety
/// As [`eight_totals`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four_totals<const ROWS: usize>(
    weights: *const u8,
    inputs: *const InputGroup,
    stride: usize,
) -> [[__m256i; PARTS]; ROWS] {
    // Sixteen products of at most 15 and 127 fit into 16 bits.
    const { assert!(QUADS * 2 * 15 * 127 <= i16::MAX as usize) };
    let mask = _mm256_set1_epi8(0x0f);
    let mut pairs = [[_mm256_setzero_si256(); PARTS]; ROWS];
    for line in 0..QUADS / 2 {
        for part in 0..PARTS {
            // SAFETY: the caller vouches for the weights and the rows.
            unsafe {
                let bytes = _mm256_loadu_si256(weights.add(line * QUAD_BYTES).cast::<__m256i>().add(part));
                let halves = [bytes, _mm256_srli_epi16::<4>(bytes)].map(|bytes| _mm256_and_si256(bytes, mask));
                for row in 0..ROWS {
                    for (half, weights) in halves.into_iter().enumerate() {
                        let products = _mm256_maddubs_epi16(weights, four(inputs, row * stride, 2 * line + half));
                        pairs[row][part] = _mm256_add_epi16(pairs[row][part], products);
                    }
                }
            }
        }
    }
    let ones = _mm256_set1_epi16(1);
    let mut totals = [[_mm256_setzero_si256(); PARTS]; ROWS];
    for row in 0..ROWS {
        // SAFETY: the caller vouches for the rows.
        let start = _mm256_set1_epi32(unsafe { (*inputs.byte_add(row * stride)).start });
        for part in 0..PARTS {
            let sixteenfold = _mm256_slli_epi32::<4>(_mm256_madd_epi16(pairs[row][part], ones));
            totals[row][part] = _mm256_add_epi32(sixteenfold, start);
        }
    }
    totals
}

/// Four inputs of a row, as often as a register holds them.
///
/// # Safety
/// The processor has AVX2; `offset` bytes behind `inputs` there is a group.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four(inputs: *const InputGroup, offset: usize, quad: usize) -> __m256i {
    // SAFETY: the caller vouches for the group, which begins with its integers and is aligned for words.
    unsafe { _mm256_set1_epi32(*inputs.cast::<i32>().byte_add(offset + quad * QUAD)) }
}
