//! Products of bytes with AVX2, and what all units of products of bytes share.
//!
//! A pair of panels is prepared a few inputs at a time: integers become bytes without a sign and scales floats, in the
//! first-level cache, where all tiles of rows find them. Bytes are multiplied as they were packed. A tile multiplies a
//! few rows with a panel, so that integer sums have the registers to themselves; sums rest in memory.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
        _mm256_and_si256, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi32,
        _mm256_slli_epi32, _mm256_srl_epi32, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps,
    },
    marker::PhantomData,
    mem::MaybeUninit,
};

use super::{
    Code, INPUTS, avx2_tiles, codings,
    numbers::{Quad, quad_of},
};
use crate::{
    isa::Tier,
    linear::{
        avx2,
        input::InputFormat,
        int8::{InputGroup, QUAD, QUAD_BYTES, QUADS},
        kernel::{Block, Kernel, LINE},
        packed::{GROUP, PANEL, WeightFormat},
        unpacked::{Dequant, Pair},
    },
};

/// The kernels of AVX2.
pub(in crate::linear) const KERNELS: [Kernel; 6] = codings!(kernel::<Pairs>, "avx2_i8");

/// Floats in a register.
pub(super) const LANES: usize = 8;
/// Bytes in a register.
const BYTES: usize = 32;
/// Parts that are prepared for many rows: their bytes fill half of a 32 KiB first-level cache.
pub(super) const PARTS: usize = 16;
/// Number of parts for a single tile of rows: so few that memory is read while they are multiplied.
const FEW_PARTS: usize = 2;
/// Bytes that weights are asked for ahead of their use where there is a single tile of rows.
const AHEAD: usize = 4096;

/// Unit that multiplies bytes with weights of a coding.
pub(super) trait Unit<C: Code> {
    /// Tier of its kernels, the tier that they execute, and whether they execute AVX-512's dot products of bytes too.
    const TIER: (Tier, Tier, bool);
    /// Tiles of each number of rows, for prepared weights.
    const TILES: &'static [Tile];
    /// Tiles that are alone, where these take weights as they are packed.
    const DIRECT: &'static [Tile] = &[];
}

/// A tile of a fixed number of rows.
pub(super) type Tile = unsafe fn(&Block, &Weights, Ahead);

/// Products of neighbouring bytes and words.
struct Pairs;

impl<C: Code> Unit<C> for Pairs {
    const TIER: (Tier, Tier, bool) = (Tier::Avx2, Tier::Avx2, false);
    const TILES: &'static [Tile] = avx2_tiles::tiles::<C>();
}

pub(super) const fn kernel<U: Unit<C>, C: Code>(name: &'static str) -> Kernel {
    let (tier, executes, vnni) = U::TIER;
    Kernel {
        name,
        tier,
        executes,
        vnni,
        input: InputFormat::Int8,
        weight: WeightFormat::Integers(C::CODING),
        row_tile: if U::DIRECT.is_empty() { U::TILES.len() } else { U::DIRECT.len() },
        depth_block: PARTS * INPUTS,
        deep_block: PARTS * INPUTS,
        accumulate: accumulate::<U, C>,
        ..avx2::F32
    }
}

/// Parts of a pair of panels that are ready to be multiplied.
pub(super) struct Weights {
    /// Bytes of the first panel's first part; the pair's blocks for a tile that takes them as they are packed.
    pub(super) bytes: *const u8,
    /// Stride from one panel's part to the other's, and from part to part.
    pub(super) panel_stride: usize,
    pub(super) part_stride: usize,
    /// Factors of each part and panel: its scales, then its minima.
    pub(super) factors: *const f32,
}

/// Memory of prepared parts, on the stack of their thread.
#[repr(align(64))]
struct Prepared {
    bytes: MaybeUninit<[u8; PARTS * GROUP * QUADS * QUAD_BYTES]>,
    factors: MaybeUninit<[f32; PARTS * GROUP * 2 * PANEL]>,
}

/// Weights that are asked for while a tile multiplies: so many bytes for each part.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) start: *const u8,
    pub(super) step: usize,
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<U: Unit<C>, C: Code>(block: &Block) {
    let coding = C::CODING;
    let mut prepared = Prepared { bytes: MaybeUninit::uninit(), factors: MaybeUninit::uninit() };
    if block.rows <= U::DIRECT.len() {
        for group in 0..block.groups {
            // SAFETY: the caller vouches for the processor and the block.
            unsafe {
                let pair = block.part(0, block.rows, group);
                let weights =
                    Weights { bytes: pair.weight, panel_stride: 0, part_stride: 0, factors: std::ptr::null() };
                let ahead =
                    Ahead { start: pair.weight.wrapping_add(AHEAD), step: coding.block_bytes() / coding.parts() };
                U::DIRECT[block.rows - 1](&pair, &weights, ahead);
            }
        }
        return;
    }
    let count = block.rows.div_ceil(U::TILES.len());
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
                    U::TILES[rows - 1](&tile, &weights, Ahead { start: next.wrapping_add(index * share), step });
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
                    for quad in 0..QUADS {
                        bytes.add(place * panel_bytes).cast::<Quad>().add(quad).write(quad_of::<C>(integers, quad));
                    }
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

/// Integers of one panel's part of a block, on their way to numbers.
pub(in crate::linear) struct Floats<C> {
    factors: [[f32; PANEL]; 2],
    integers: *const u8,
    code: PhantomData<C>,
}

impl<C: Code> Dequant<[f32; PANEL]> for Floats<C> {
    const FORMAT: WeightFormat = WeightFormat::Integers(C::CODING);

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
