//! Products of bytes with AVX2, and with its dot products of bytes where a processor has them.
//!
//! Weights are prepared as bytes without a sign; eight bits are multiplied as they were packed. A tile multiplies a few rows
//! with half a panel, so that integer sums have the registers to themselves; sums rest in memory.
//!
//! AVX2 adds neighbouring products of bytes in 16 bits, and saturates: 16 products of four bits with inputs of at most 127
//! fit, 8 of five bits, 4 of six. Of eight bits two fit, if the weights are magnitudes and the inputs have their signs.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256, __m256i, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm256_abs_epi8,
        _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
        _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_sign_epi8,
        _mm256_slli_epi32, _mm256_srl_epi32, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps, _mm256_xor_si256,
    },
    marker::PhantomData,
    ops::Range,
};

use super::{
    Code, INPUTS, begin, codings,
    prepared::{self, Ahead, Preparation, Prepared, Tile, Unit, Weights, kernel},
};
use crate::{
    fetch,
    isa::Tier,
    linear::{
        int8::{InputGroup, QUAD, QUAD_BYTES, QUADS, SHIFT},
        kernel::{Block, Kernel, LINE},
        packed::{GROUP, PANEL},
        unpacked::{Dequant, Pair},
    },
};

/// The kernels of AVX2.
pub(in crate::linear) const KERNELS: [Kernel; 6] = codings!(kernel::<Pairs>, "avx2_i8");
/// Kernels of a software twin of the dot products, for tests.
pub(in crate::linear) const EMULATED: [Kernel; 6] = codings!(kernel::<Twin>, "emulatedavxvnni_i8");
/// Kernels of the dot products.
pub(in crate::linear) const DOTS: [Kernel; 6] = codings!(kernel::<Dots>, "avxvnni_i8");

/// Floats in a register.
const LANES: usize = 8;
/// Bytes in a register.
const BYTES: usize = 32;

/// Unit of 32 bytes, whose tiles are this module's.
trait Short: Unit {
    /// Records whether it has dot products of bytes without a sign and bytes with one.
    const DOTS: bool;

    /// Adds dot products of four bytes, `weights` without a sign, to 32-bit sums.
    ///
    /// # Safety
    /// The processor has the instructions; the unit has [`DOTS`](Short::DOTS).
    unsafe fn dot(sums: __m256i, weights: __m256i, inputs: __m256i) -> __m256i;
}

/// Names a unit: its tiers and features, and its dot product, if it has one.
macro_rules! unit {
    ($name:ident, $tier:expr, $features:literal, $dots:literal, |$sums:ident, $weights:ident, $inputs:ident| $dot:expr) => {
        pub(super) struct $name;

        impl Unit for $name {
            const TIER: (Tier, Tier, bool) = $tier;
            type Preparation = Unsigned;

            fn tiles<C: Code>() -> &'static [Tile] {
                /// # Safety
                /// As [`tile`].
                #[target_feature(enable = $features)]
                unsafe fn compiled<C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
                    // SAFETY: the caller's promise.
                    unsafe { tile::<$name, C, ROWS>(block, weights, ahead) }
                }
                const {
                    &[
                        compiled::<C, 1>,
                        compiled::<C, 2>,
                        compiled::<C, 3>,
                        compiled::<C, 4>,
                        compiled::<C, 5>,
                        compiled::<C, 6>,
                        compiled::<C, 7>,
                        compiled::<C, 8>,
                    ]
                }
            }
        }

        impl Short for $name {
            const DOTS: bool = $dots;

            #[inline(always)]
            unsafe fn dot($sums: __m256i, $weights: __m256i, $inputs: __m256i) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { $dot }
            }
        }
    };
}

unit!(Pairs, (Tier::Avx2, Tier::Avx2, false), "avx2,fma,f16c", false, |_sums, _weights, _inputs| {
    std::hint::unreachable_unchecked()
});
unit!(Twin, (Tier::AvxVnni, Tier::Avx2, false), "avx2,fma,f16c", true, |sums, weights, inputs| {
    twin_dot(sums, weights, inputs)
});
unit!(Dots, (Tier::AvxVnni, Tier::AvxVnni, false), "avx2,fma,f16c,avxvnni", true, |sums, weights, inputs| {
    _mm256_dpbusd_avx_epi32(sums, weights, inputs)
});

/// Computes the dot product: four products of each word, in 32 bits.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn twin_dot(sums: __m256i, weights: __m256i, inputs: __m256i) -> __m256i {
    // SAFETY: the caller's promise. The registers are arrays of their bytes.
    unsafe {
        let mut sums = std::mem::transmute::<__m256i, [i32; LANES]>(sums);
        let weights = std::mem::transmute::<__m256i, [[u8; QUAD]; LANES]>(weights);
        let inputs = std::mem::transmute::<__m256i, [[i8; QUAD]; LANES]>(inputs);
        for lane in 0..LANES {
            for k in 0..QUAD {
                sums[lane] += i32::from(weights[lane][k]) * i32::from(inputs[lane][k]);
            }
        }
        std::mem::transmute::<[i32; LANES], __m256i>(sums)
    }
}

/// Weights in the form that AVX2 and AVX-512 take: bytes without a sign.
pub(super) struct Unsigned;

impl Preparation for Unsigned {
    const AS_PACKED: bool = true;

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prepare<C: Code>(start: *const u8, parts: Range<usize>, prepared: &mut Prepared, few: bool) -> Weights {
        // SAFETY: the caller's promise.
        unsafe { prepared::prepare::<Self, C>(start, parts, prepared, few) }
    }

    #[inline(always)]
    unsafe fn write_factors<C: Code>(head: *const u8, part: *const u8, panel: usize, out: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { write_factors::<C>(head, part, panel, out) }
    }
}

/// The factors of a panel in the part at `part`, of the block at `head`.
///
/// # Safety
/// The processor has AVX2 and F16C; the block has the part, and `out` room for all factors.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn write_factors<C: Code>(head: *const u8, part: *const u8, panel: usize, out: *mut f32) {
    let coding = C::CODING;
    for lanes in 0..PANEL / LANES {
        // SAFETY: the caller vouches for block, part and room.
        unsafe {
            let out = out.add(lanes * LANES);
            let of_scales = halves(head, panel, lanes);
            if !coding.part_scales() {
                _mm256_storeu_ps(out, of_scales);
                continue;
            }
            let bytes = part.add(panel * 2 * PANEL + lanes * LANES);
            let [first, second] =
                [_mm_loadl_epi64(bytes.cast::<__m128i>()), _mm_loadl_epi64(bytes.add(PANEL).cast::<__m128i>())];
            let (first, second, of_second) = if coding.minima() {
                (_mm256_cvtepu8_epi32(first), _mm256_cvtepu8_epi32(second), halves(head, GROUP + panel, lanes))
            } else {
                (_mm256_cvtepi8_epi32(first), _mm256_cvtepi8_epi32(second), of_scales)
            };
            _mm256_storeu_ps(out, _mm256_mul_ps(of_scales, _mm256_cvtepi32_ps(first)));
            _mm256_storeu_ps(out.add(PANEL), _mm256_mul_ps(of_second, _mm256_cvtepi32_ps(second)));
        }
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

/// Integers of one panel's part of a block, on their way to numbers.
pub(in crate::linear) struct Floats<C> {
    factors: [[f32; PANEL]; 2],
    integers: *const u8,
    code: PhantomData<C>,
}

impl<C: Code> Dequant<[f32; PANEL]> for Floats<C> {
    fn offset(part: usize) -> usize {
        C::CODING.part_offset(part)
    }

    #[inline(always)]
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self {
        let coding = C::CODING;
        let mut factors = [[0.0; PANEL]; 2];
        // SAFETY: the caller vouches for the processor and the part; there is room for two factors of each output.
        unsafe {
            let head = pair.start.add(coding.block_offset(part));
            let part = pair.start.add(coding.part_offset(part));
            write_factors::<C>(head, part, panel, factors.as_mut_ptr().cast());
            Self { factors, integers: part.add(coding.scale_bytes() + panel * coding.panel_bytes()), code: PhantomData }
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, quad: usize) -> [[f32; PANEL]; QUAD] {
        let coding = C::CODING;
        let mut weights = [[0.0f32; PANEL]; QUAD];
        for half in 0..PANEL / LANES {
            // SAFETY: the caller vouches for processor and integers; factors and weights have two registers each.
            unsafe {
                let words = words_of::<C>(self.integers.add(half * BYTES), quad);
                let scales = _mm256_loadu_ps(self.factors[quad * coding.halves() / QUADS].as_ptr().add(half * LANES));
                let minima = _mm256_loadu_ps(self.factors[1].as_ptr().add(half * LANES));
                for (input, weights) in weights.iter_mut().enumerate() {
                    let bytes = _mm256_srl_epi32(words, _mm_cvtsi32_si128(8 * input as i32));
                    let bytes = _mm256_and_si256(bytes, _mm256_set1_epi32(255));
                    let integers = _mm256_sub_epi32(bytes, _mm256_set1_epi32(coding.middle()));
                    let product = _mm256_mul_ps(scales, _mm256_cvtepi32_ps(integers));
                    let numbers = if coding.minima() { _mm256_sub_ps(product, minima) } else { product };
                    _mm256_storeu_ps(weights.as_mut_ptr().add(half * LANES), numbers);
                }
            }
        }
        weights
    }
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
/// The processor has AVX2; there are so many lines behind `half`.
#[inline(always)]
unsafe fn line(half: *const u8, index: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(half.add(index * QUAD_BYTES).cast()) }
}

/// Four inputs of a group, as often as a register holds them.
///
/// # Safety
/// The processor has AVX2; `group` points to a group.
#[inline(always)]
unsafe fn four(group: *const u8, quad: usize) -> __m256i {
    // SAFETY: the group begins with its integers, and is aligned for words.
    unsafe { _mm256_set1_epi32(*group.add(quad * QUAD).cast::<i32>()) }
}

/// # Safety
/// The processor has the unit's features; the block keeps its promises and has `ROWS` rows and one pair of panels, whose
/// prepared parts are `weights`.
#[inline(always)]
unsafe fn tile<U: Short, C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    let coding = C::CODING;
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let mut next = ahead.start;
        for part in 0..block.depth / INPUTS {
            for line in 0..ahead.step.div_ceil(LINE) {
                fetch::near(next.wrapping_add(line * LINE));
            }
            next = next.wrapping_add(ahead.step);
            let input = block.input.add(part * size_of::<InputGroup>());
            for panel in 0..GROUP {
                let place = part * GROUP + panel;
                let quads = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
                for lanes in 0..PANEL / LANES {
                    let quads = quads.add(lanes * BYTES);
                    let factors = weights.factors.add(place * coding.factors() * PANEL + lanes * LANES);
                    let sums = block.sums.add(panel * PANEL + lanes * LANES);
                    for half in 0..coding.halves() {
                        let mut totals = totals::<U, C, ROWS>(quads, half, input, block.input_stride);
                        // Products with signs are those of the integers themselves.
                        if U::DOTS || !coding.bytes() {
                            for row in 0..ROWS {
                                let group = input.add(row * block.input_stride).cast::<InputGroup>();
                                totals[row] =
                                    _mm256_add_epi32(totals[row], _mm256_set1_epi32(begin::<C>(&*group, half)));
                            }
                        }
                        let scales = _mm256_loadu_ps(factors.add(half * PANEL));
                        for row in 0..ROWS {
                            let group = input.add(row * block.input_stride).cast::<InputGroup>();
                            let scale = _mm256_mul_ps(_mm256_set1_ps((*group).scale), scales);
                            let place = sums.add(row * block.sums_stride);
                            let mut sum = _mm256_loadu_ps(place);
                            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[row]), scale, sum);
                            if coding.minima() {
                                let minima = _mm256_loadu_ps(factors.add(PANEL));
                                sum = _mm256_fnmadd_ps(_mm256_set1_ps((*group).weighted), minima, sum);
                            }
                            _mm256_storeu_ps(place, sum);
                        }
                    }
                }
            }
        }
    }
}

/// Sums of the products of a group of each row, or of a half of it, and half a panel's weights: without a sign, but for
/// bytes without dot products.
///
/// # Safety
/// The processor has the unit's features; `quads` points to the bytes of a panel's half, `input` to a group in each of
/// `ROWS` rows, `stride` bytes apart.
#[inline(always)]
unsafe fn totals<U: Short, C: Code, const ROWS: usize>(
    quads: *const u8,
    half: usize,
    input: *const u8,
    stride: usize,
) -> [__m256i; ROWS] {
    let coding = C::CODING;
    let count = QUADS / coding.halves();
    let first = half * count;
    // SAFETY: the caller vouches for weights and rows.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let mut totals = [_mm256_setzero_si256(); ROWS];
        if U::DOTS {
            for quad in first..first + count {
                let weights = line(quads, quad);
                for row in 0..ROWS {
                    totals[row] = U::dot(totals[row], weights, four(input.add(row * stride), quad));
                }
            }
        } else if coding.bytes() {
            for quad in first..first + count {
                let weights = _mm256_xor_si256(line(quads, quad), _mm256_set1_epi8(SHIFT as u8 as i8));
                let magnitudes = _mm256_abs_epi8(weights);
                for row in 0..ROWS {
                    let inputs = _mm256_sign_epi8(four(input.add(row * stride), quad), weights);
                    let pairs = _mm256_maddubs_epi16(magnitudes, inputs);
                    totals[row] = _mm256_add_epi32(totals[row], _mm256_madd_epi16(pairs, ones));
                }
            }
        } else {
            // As many quads as 16 bits have room for.
            let together = count.min(8 >> coding.upper_bits());
            for start in (first..first + count).step_by(together) {
                let mut pairs = [_mm256_setzero_si256(); ROWS];
                for quad in start..start + together {
                    let weights = line(quads, quad);
                    for row in 0..ROWS {
                        let products = _mm256_maddubs_epi16(weights, four(input.add(row * stride), quad));
                        pairs[row] = _mm256_add_epi16(pairs[row], products);
                    }
                }
                for row in 0..ROWS {
                    totals[row] = _mm256_add_epi32(totals[row], _mm256_madd_epi16(pairs[row], ones));
                }
            }
        }
        totals
    }
}
