//! Products of bytes with AVX2: the form of weights that AVX2 and AVX-512 take, and their way to numbers.
//!
//! Weights are prepared as bytes without a sign; eight bits are multiplied as they were packed.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256, __m256i, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm256_and_si256,
        _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_loadu_ps,
        _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_slli_epi32,
        _mm256_srl_epi32, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps,
    },
    ops::Range,
};

use super::{
    Code, Coding,
    avx2_tiles::{Inputs, Lines, Products, Totals, starts, tile, totals_of_pairs, words},
    codings,
    numbers::{Quad, Read},
    prepared::{self, Preparation, Prepared, Weights, kernel, unit},
};
use crate::{
    isa::Tier,
    linear::{
        int8::{QUAD, QUAD_BYTES, QUADS},
        kernel::{Instructions, Kernel},
        packed::{GROUP, PANEL},
    },
};

/// The kernels of AVX2.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Pairs>, "avx2_i8");

/// Floats in a register.
pub(super) const LANES: usize = 8;
/// Bytes in a register.
const BYTES: usize = 32;

// Products of neighbouring bytes and words.
unit!(Pairs, Instructions::of(Tier::Avx2), "avx2,fma,f16c", Unsigned, tile: 1 2 3 4 5 6);

impl Products for Pairs {
    const WORDS: bool = true;
    const EVENLY: bool = true;

    #[inline(always)]
    unsafe fn totals<C: Code, const ROWS: usize>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        lines: Option<Lines>,
    ) -> Totals<ROWS> {
        // SAFETY: the caller's promise.
        unsafe {
            match (C::CODING.bytes(), lines) {
                (true, None) => {
                    words::<ROWS, false>(starts::<C, ROWS>(groups, half), quads, QUADS, inputs, Lines::NONE)
                }
                (true, Some(lines)) => {
                    words::<ROWS, true>(starts::<C, ROWS>(groups, half), quads, QUADS, inputs, lines)
                }
                (false, None) => totals_of_pairs::<C, ROWS, false>(quads, half, inputs, groups, Lines::NONE),
                (false, Some(lines)) => totals_of_pairs::<C, ROWS, true>(quads, half, inputs, groups, lines),
            }
        }
    }
}

/// Weights in the form that AVX2 and AVX-512 take: bytes without a sign.
pub(super) struct Unsigned;

impl Preparation for Unsigned {
    const AS_PACKED: bool = true;

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prepare<C: Code>(start: *const u8, parts: Range<usize>, prepared: &mut Prepared) -> Weights {
        // SAFETY: the caller's promise.
        unsafe { prepared::prepare::<Self, C>(start, parts, prepared) }
    }

    type Read = Vectors;
}

/// Vectors of 256 bits: of arrays, the compiler gathers a fifth bit and a sixth word by word.
pub(in crate::linear) struct Vectors;

impl Read for Vectors {
    #[inline(always)]
    unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [[f32; PANEL]; 2] {
        let coding = C::CODING;
        let mut factors = [[0.0; PANEL]; 2];
        for lanes in 0..PANEL / LANES {
            // SAFETY: the caller vouches for processor and block.
            unsafe {
                let [first_out, second_out] = &mut factors;
                let (first_out, second_out) =
                    (first_out.as_mut_ptr().add(lanes * LANES), second_out.as_mut_ptr().add(lanes * LANES));
                let of_scales = halves(head, panel, lanes);
                if !coding.part_scales() {
                    _mm256_storeu_ps(first_out, of_scales);
                    if coding.minima() {
                        _mm256_storeu_ps(second_out, halves(head, GROUP + panel, lanes));
                    }
                    continue;
                }
                let bytes = part.add(panel * 2 * PANEL + lanes * LANES);
                let first = _mm_loadl_epi64(bytes.cast::<__m128i>());
                let second = _mm_loadl_epi64(bytes.add(PANEL).cast::<__m128i>());
                let (first, second, of_second) = if coding.minima() {
                    (_mm256_cvtepu8_epi32(first), _mm256_cvtepu8_epi32(second), halves(head, GROUP + panel, lanes))
                } else {
                    (_mm256_cvtepi8_epi32(first), _mm256_cvtepi8_epi32(second), of_scales)
                };
                _mm256_storeu_ps(first_out, _mm256_mul_ps(of_scales, _mm256_cvtepi32_ps(first)));
                _mm256_storeu_ps(second_out, _mm256_mul_ps(of_second, _mm256_cvtepi32_ps(second)));
            }
        }
        factors
    }

    #[inline(always)]
    unsafe fn quad<C: Code>(integers: *const u8, quad: usize) -> Quad {
        let mut words = [0; PANEL];
        for half in 0..PANEL / LANES {
            // SAFETY: the caller vouches for the processor and the panel's integers.
            unsafe {
                let half_of = words_of::<C>(integers.add(half * BYTES), quad);
                _mm256_storeu_si256(words.as_mut_ptr().cast::<__m256i>().add(half), half_of);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn numbers<C: Code>(quad: Quad, scales: &[f32; PANEL], minima: &[f32; PANEL]) -> [[f32; PANEL]; QUAD] {
        let coding = C::CODING;
        let mut weights = [[0.0f32; PANEL]; QUAD];
        for half in (0..PANEL).step_by(LANES) {
            // SAFETY: the caller vouches for the processor; every array has two registers.
            unsafe {
                let words = _mm256_loadu_si256(quad.as_ptr().add(half).cast());
                let (scales, minima) =
                    (_mm256_loadu_ps(scales.as_ptr().add(half)), _mm256_loadu_ps(minima.as_ptr().add(half)));
                for (input, weights) in weights.iter_mut().enumerate() {
                    let bytes = _mm256_srl_epi32(words, _mm_cvtsi32_si128(8 * input as i32));
                    let bytes = _mm256_and_si256(bytes, _mm256_set1_epi32(255));
                    let integers = _mm256_sub_epi32(bytes, _mm256_set1_epi32(coding.middle()));
                    let product = _mm256_mul_ps(scales, _mm256_cvtepi32_ps(integers));
                    let numbers = if coding.minima() { _mm256_sub_ps(product, minima) } else { product };
                    _mm256_storeu_ps(weights.as_mut_ptr().add(half), numbers);
                }
            }
        }
        weights
    }
}

/// Eight halves of a block's head, of its sixteen number `which`.
///
/// # Safety
/// The processor has F16C; the head has these halves.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves(head: *const u8, which: usize, lanes: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(head.add((which * PANEL + lanes * LANES) * 2).cast::<__m128i>())) }
}

/// A quad of half a panel's integers, without a sign.
///
/// # Safety
/// The processor has AVX2; `half` points to the half's place in the first line of a panel's part.
#[inline(always)]
unsafe fn words_of<C: Code>(half: *const u8, quad: usize) -> __m256i {
    let (coding, bits) = (C::CODING, C::CODING.upper_bits());
    // SAFETY: the caller vouches for processor and lines.
    unsafe {
        if coding.bytes() {
            return line(half, quad);
        }
        let lower = line(half, coding.upper_bytes() / QUAD_BYTES + quad / 2);
        let lower =
            _mm256_and_si256(_mm256_srl_epi32(lower, _mm_cvtsi32_si128((quad % 2 * 4) as i32)), _mm256_set1_epi8(15));
        if bits == 0 {
            return lower;
        }
        let upper = _mm256_srl_epi32(line(half, quad * bits / 8), _mm_cvtsi32_si128((quad * bits % 8) as i32));
        _mm256_or_si256(lower, _mm256_slli_epi32::<4>(_mm256_and_si256(upper, _mm256_set1_epi8((1 << bits) - 1))))
    }
}

/// Half of line `index`.
///
/// # Safety
/// The processor has AVX2, and memory has this number of lines after `half`.
#[inline(always)]
unsafe fn line(half: *const u8, index: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(half.add(index * QUAD_BYTES).cast()) }
}
