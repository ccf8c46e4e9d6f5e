//! Products of bytes with AVX2, and with its dot products of bytes where a processor has them.
//!
//! A pair of panels is prepared a few inputs at a time: integers become bytes without a sign and scales floats, in the
//! first-level cache, where all tiles of rows find them. Bytes are multiplied as they were packed. A tile multiplies a
//! few rows with half a panel, so that integer sums have the registers to themselves; sums rest in memory.
//!
//! AVX2 adds neighbouring products of bytes in 16 bits, and saturates: 16 products of four bits with inputs of at most 127
//! fit, 8 of five bits, 4 of six. Of eight bits two fit, if the weights are magnitudes and the inputs have their signs.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
        _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi8_epi32,
        _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32,
        _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
        _mm256_set1_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_sll_epi16, _mm256_slli_epi32, _mm256_srai_epi32,
        _mm256_srl_epi16, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_xor_si256,
    },
    mem::MaybeUninit,
};

use super::{Code, codings};
use crate::{
    isa::Tier,
    linear::{
        avx2,
        input::InputFormat,
        int8::{InputGroup, QUAD, QUAD_BYTES, QUADS, SHIFT},
        kernel::{Block, Kernel, LINE},
        packed::{GROUP, PANEL, WeightFormat},
        quantised::INPUTS,
    },
};

/// The kernels of AVX2.
pub(in crate::linear) const KERNELS: [Kernel; 6] = codings!(kernel::<Pairs>, "avx2_i8");
/// Kernels of a software twin of the dot products, for tests.
pub(in crate::linear) const EMULATED: [Kernel; 6] = codings!(kernel::<Twin>, "emulatedavxvnni_i8");
/// Kernels of the dot products.
pub(in crate::linear) const DOTS: [Kernel; 6] = codings!(kernel::<Dots>, "avxvnni_i8");
/// Kernels of the dot products in AVX-512's encoding.
pub(in crate::linear) const SHORT_DOTS: [Kernel; 6] = codings!(kernel::<ShortDots>, "avx512vnni256_i8");

/// Rows of a tile.
const ROWS: usize = 8;
/// Floats in a register.
const LANES: usize = 8;
/// Bytes in a register.
const BYTES: usize = 32;
/// Parts that are prepared for many rows: their bytes fill half of a 32 KiB first-level cache.
const PARTS: usize = 16;
/// Number of parts for a single tile of rows: so few that memory is read while they are multiplied.
const FEW_PARTS: usize = 2;
/// Bytes that weights are asked for ahead of their use where there is a single tile of rows.
const AHEAD: usize = 4096;

/// Unit that multiplies bytes.
trait Unit {
    /// Tier of its kernels, the tier that they execute, and whether they execute AVX-512's dot products of bytes too.
    const TIER: (Tier, Tier, bool);
    /// Records whether it has dot products of bytes without a sign and bytes with one.
    const DOTS: bool;
    /// Tiles of each number of rows.
    fn tiles<C: Code>() -> [Tile; ROWS];

    /// Adds dot products of four bytes, `weights` without a sign, to 32-bit sums.
    ///
    /// # Safety
    /// The processor has the instructions; the unit has [`DOTS`](Unit::DOTS).
    unsafe fn dot(sums: __m256i, weights: __m256i, inputs: __m256i) -> __m256i;
}

/// A tile of a fixed number of rows.
type Tile = unsafe fn(&Block, &Weights, Ahead);

/// Names a unit: its tiers and features, and its dot product, if it has one.
macro_rules! unit {
    ($name:ident, $tier:expr, $features:literal, $dots:literal, |$sums:ident, $weights:ident, $inputs:ident| $dot:expr) => {
        pub(super) struct $name;

        impl Unit for $name {
            const TIER: (Tier, Tier, bool) = $tier;
            const DOTS: bool = $dots;

            fn tiles<C: Code>() -> [Tile; ROWS] {
                /// # Safety
                /// As [`tile`].
                #[target_feature(enable = $features)]
                unsafe fn compiled<C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
                    // SAFETY: the caller's promise.
                    unsafe { tile::<$name, C, ROWS>(block, weights, ahead) }
                }
                [
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
unit!(
    ShortDots,
    (Tier::Avx512, Tier::Avx512, true),
    "avx2,fma,f16c,avx512f,avx512vl,avx512vnni",
    true,
    |sums, weights, inputs| _mm256_dpbusd_epi32(sums, weights, inputs)
);

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

const fn kernel<U: Unit, C: Code>(name: &'static str) -> Kernel {
    let (tier, executes, vnni) = U::TIER;
    Kernel {
        name,
        tier,
        executes,
        vnni,
        input: InputFormat::Int8,
        weight: WeightFormat::Integers(C::CODING),
        row_tile: ROWS,
        depth_block: PARTS * INPUTS,
        deep_block: PARTS * INPUTS,
        accumulate: accumulate::<U, C>,
        ..avx2::F32
    }
}

/// Parts of a pair of panels that are ready to be multiplied.
struct Weights {
    /// Bytes of the first panel's first part.
    bytes: *const u8,
    /// Stride from one panel's part to the other's, and from part to part.
    panel_stride: usize,
    part_stride: usize,
    /// Factors of each part and panel: its scales, then its minima.
    factors: *const f32,
}

/// Memory of prepared parts, on the stack of their thread.
#[repr(align(64))]
struct Prepared {
    bytes: MaybeUninit<[u8; PARTS * GROUP * QUADS * QUAD_BYTES]>,
    factors: MaybeUninit<[f32; PARTS * GROUP * 2 * PANEL]>,
}

/// Weights that are asked for while a tile multiplies: so many bytes for each part.
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    step: usize,
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<U: Unit, C: Code>(block: &Block) {
    let coding = C::CODING;
    let mut prepared = Prepared { bytes: MaybeUninit::uninit(), factors: MaybeUninit::uninit() };
    let tiles = U::tiles::<C>();
    let count = block.rows.div_ceil(ROWS);
    let parts = block.depth / INPUTS;
    let most = if count == 1 { FEW_PARTS } else { PARTS };
    for group in 0..block.groups {
        for start in (0..parts).step_by(most) {
            let end = parts.min(start + most);
            // SAFETY: the caller vouches for the processor and the block; parts are the pair's, and there is memory for
            // as many as are prepared.
            unsafe {
                let pair = block.part(0, block.rows, group);
                let weights = prepare::<C>(pair.weight, (start, end), &mut prepared, count == 1);
                let (next, bytes) = if end < parts {
                    (pair.weight.wrapping_add(coding.part_offset(end)), coding.part_bytes() * (end - start))
                } else {
                    (following(block, group), coding.part_bytes() * parts.min(most))
                };
                let input = pair.input.add(start * size_of::<InputGroup>());
                let mut row = 0;
                for index in 0..count {
                    let rows = (block.rows - row).div_ceil(count - index);
                    let share = bytes.div_ceil(count);
                    let step = if count == 1 { 0 } else { share.div_ceil(end - start) };
                    let tile = Block {
                        input: input.add(row * block.input_stride),
                        rows,
                        depth: (end - start) * INPUTS,
                        sums: pair.sums.add(row * block.sums_stride),
                        ..pair
                    };
                    tiles[rows - 1](&tile, &weights, Ahead { start: next.wrapping_add(index * share), step });
                    row += rows;
                }
            }
        }
    }
}

/// Address after a pair of panels: the next pair of the block, or the data behind the last one.
fn following(block: &Block, group: usize) -> *const u8 {
    if group + 1 < block.groups {
        block.weight.wrapping_add((group + 1) * GROUP * block.panel_stride)
    } else {
        block.ahead[0]
    }
}

/// Prepares the parts from `first` to `end` (exclusive) of the pair of panels at `start`.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; `start` points to blocks with these parts, of which there is memory for.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn prepare<C: Code>(
    start: *const u8,
    (first, end): (usize, usize),
    prepared: &mut Prepared,
    few: bool,
) -> Weights {
    const { assert!(C::CODING.factors() <= 2) };
    let coding = C::CODING;
    let bytes = prepared.bytes.as_mut_ptr().cast::<u8>();
    let factors = prepared.factors.as_mut_ptr().cast::<f32>();
    let panel_bytes = QUADS * QUAD_BYTES;
    // SAFETY: the caller vouches for blocks and memory. What is asked for ahead may lie anywhere.
    unsafe {
        for part in first..end {
            let source = start.add(coding.part_offset(part));
            let lines = if few { coding.part_bytes() / LINE } else { 0 };
            for line in 0..lines {
                _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(AHEAD + line * LINE).cast());
            }
            let head = start.add(coding.block_offset(part));
            for panel in 0..GROUP {
                let place = (part - first) * GROUP + panel;
                write_factors::<C>(head, source, panel, factors.add(place * coding.factors() * PANEL));
                let integers = source.add(coding.scale_bytes() + panel * coding.panel_bytes());
                if !coding.bytes() {
                    write_bytes::<C>(integers, bytes.add(place * panel_bytes));
                }
            }
        }
        let (bytes, panel_stride, part_stride) = if coding.bytes() {
            let source = start.add(coding.part_offset(first));
            (source, coding.panel_bytes(), coding.part_bytes() + coding.head_bytes())
        } else {
            (bytes.cast_const(), panel_bytes, GROUP * panel_bytes)
        };
        Weights { bytes, panel_stride, part_stride, factors }
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

/// The integers of a panel's part as bytes without a sign.
///
/// # Safety
/// The processor has AVX2; `integers` points to a panel's part, `out` to room for its quads.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn write_bytes<C: Code>(integers: *const u8, out: *mut u8) {
    let (bits, upper_bytes) = (C::CODING.upper_bits(), C::CODING.upper_bytes());
    let low = _mm256_set1_epi8(15);
    let high = _mm256_set1_epi8((((1 << bits) - 1) << 4) as i8);
    for half in 0..QUAD_BYTES / BYTES {
        // SAFETY: the caller vouches for lines and room.
        unsafe {
            let integers = integers.add(half * BYTES);
            for quad in 0..QUADS {
                let lower = line(integers, upper_bytes / QUAD_BYTES + quad / 2);
                let lower = _mm256_and_si256(shifted(lower, quad as i32 % 2 * 4), low);
                let whole = if bits == 0 {
                    lower
                } else {
                    let (upper, place) = if bits == 1 { (0, quad) } else { (quad / 4, quad % 4) };
                    let shift = (place * bits) as i32 - 4;
                    _mm256_or_si256(lower, _mm256_and_si256(shifted(line(integers, upper), shift), high))
                };
                _mm256_storeu_si256(out.add(quad * QUAD_BYTES + half * BYTES).cast(), whole);
            }
        }
    }
}

/// Bits moved down, or up where the shift is negative; those of a neighbouring byte come in.
#[inline]
#[target_feature(enable = "avx2")]
fn shifted(bytes: __m256i, shift: i32) -> __m256i {
    if shift < 0 {
        _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(-shift))
    } else {
        _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift))
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
unsafe fn tile<U: Unit, C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    let coding = C::CODING;
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let mut next = ahead.start;
        for part in 0..block.depth / INPUTS {
            for line in 0..ahead.step.div_ceil(LINE) {
                _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line * LINE).cast());
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
                                totals[row] = _mm256_add_epi32(totals[row], begin::<C>(group, half));
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

/// Start of the integer sums of a group: minus the middle times the sum of the inputs.
///
/// # Safety
/// The processor has AVX2; there is a group.
#[inline(always)]
unsafe fn begin<C: Code>(group: *const InputGroup, half: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let start = _mm256_set1_epi32((*group).start);
        match C::CODING.middle() {
            0 => _mm256_setzero_si256(),
            SHIFT => start,
            8 => _mm256_srai_epi32::<4>(start),
            16 => _mm256_srai_epi32::<3>(start),
            _ => {
                const { assert!(C::CODING.halves() == 1 || C::CODING.middle() == 32) };
                let first = _mm256_set1_epi32((*group).first);
                let sum = if half == 0 { first } else { _mm256_sub_epi32(_mm256_srai_epi32::<7>(start), first) };
                _mm256_slli_epi32::<5>(sum)
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
unsafe fn totals<U: Unit, C: Code, const ROWS: usize>(
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
