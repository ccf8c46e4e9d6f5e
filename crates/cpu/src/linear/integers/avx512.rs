//! Products of bytes with AVX-512's dot products of bytes: eight rows times a pair of panels at a time, or twelve where
//! there are no more.
//!
//! Integer sums have the registers to themselves. Sums rest in memory between two groups: that costs less than weights
//! that are read, and unpacked, more often. A single tile of rows takes the integers as they stand in their blocks; more
//! of them find them prepared. Integer sums are exact, so that both give the same bits.

#![expect(clippy::cast_ptr_alignment, reason = "blocks and sums begin on cache lines; elements follow each other")]

use std::{
    arch::{
        asm,
        x86_64::{
            __m512, __m512i, _mm_cvtsi32_si128, _mm512_and_si512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
            _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_or_si512,
            _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_sll_epi16,
            _mm512_srai_epi32, _mm512_srl_epi16, _mm512_srli_epi16,
        },
    },
    ops::Range,
};

use super::{
    Code, Coding, INPUTS,
    avx2::Unsigned,
    avx2_tiles::Inputs,
    begin, codings,
    prepared::{Ahead, Tile, Unit, Weights, kernel},
};
use crate::{
    fetch::near,
    isa::Tier,
    linear::{
        avx512_dequant,
        int8::{InputGroup, QUAD, QUAD_BYTES, QUADS},
        kernel::{Block, Instructions, Kernel, LINE, tiles},
        packed::{GROUP, PANEL},
    },
};

/// The kernels.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Wide>, "avx512vnni_i8");

/// Dot products of bytes in registers of 64.
pub(super) struct Wide;

/// Reports whether rows meet one panel after the other: few of them wait for weights, which arrive sooner in the order of
/// their places.
const fn in_turns<C: Code, const DIRECT: bool, const ROWS: usize>() -> bool {
    DIRECT && ROWS <= 2
}

/// Reports whether lines are asked for evenly, not for a part at once: a core keeps track of few, and waits where more are
/// asked for. Three and four rows do not gain by it, nor do more of fewer bits.
const fn evenly<C: Code, const DIRECT: bool, const ROWS: usize>() -> bool {
    in_turns::<C, DIRECT, ROWS>() || DIRECT && C::CODING.bytes() && ROWS > 4
}

impl<C: Code> Unit<C> for Wide {
    const INSTRUCTIONS: Instructions = Instructions { vnni: true, ..Instructions::of(Tier::Avx512) };
    type Preparation = Unsigned;
    const TILES: &'static [Tile] = &tiles!((compiled, C, false): 1 2 3 4 5 6 7 8);
    const DIRECT: &'static [Tile] = &tiles!((compiled, C, true): 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn compiled<C: Code, const DIRECT: bool, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    // SAFETY: the caller's promise.
    unsafe { tile::<C, DIRECT, ROWS>(block, weights, ahead) }
}

/// # Safety
/// The processor has AVX-512 with VNNI; the block keeps its promises and has `ROWS` rows and one pair of panels, whose
/// weights are prepared or, if `DIRECT`, begin with its first part.
#[inline(always)]
unsafe fn tile<C: Code, const DIRECT: bool, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    // SAFETY: every access is inside what the block and its maker promise. Four inputs are one word, aligned because rows
    // begin on cache lines and groups take twelve words. What is asked for ahead may lie anywhere.
    unsafe {
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
        let mut next = ahead.start;
        let mut input = Inputs { first: block.input, stride: block.input_stride };
        for part in 0..block.depth / INPUTS {
            if !evenly::<C, DIRECT, ROWS>() {
                fetch(next, 0..ahead.step.div_ceil(LINE));
            }
            // The next tile's inputs of this group: rows lie pages apart, where no processor looks ahead by itself.
            for row in ROWS..2 * ROWS {
                near(input.row(row));
            }
            let panels = [place::<C, DIRECT>(weights, part, 0), place::<C, DIRECT>(weights, part, 1)];
            if in_turns::<C, DIRECT, ROWS>() {
                add::<C, DIRECT, ROWS, 1>(&mut sums, &panels, 0, input, next);
                add::<C, DIRECT, ROWS, 1>(&mut sums, &panels, 1, input, next);
            } else {
                add::<C, DIRECT, ROWS, GROUP>(&mut sums, &panels, 0, input, next);
            }
            next = next.wrapping_add(ahead.step);
            input.first = input.first.add(size_of::<InputGroup>());
        }
        block.store_sums(0, &sums);
    }
}

/// Adds the products of a part with `PANELS` panels from `first` on.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn add<C: Code, const DIRECT: bool, const ROWS: usize, const PANELS: usize>(
    sums: &mut [[__m512; GROUP]; ROWS],
    places: &[(*const u8, [__m512; 2]); GROUP],
    first: usize,
    input: Inputs,
    next: *const u8,
) {
    let coding = C::CODING;
    // SAFETY: the caller's promise.
    unsafe {
        let group = |row: usize| input.row(row).cast::<InputGroup>();
        for half in 0..coding.halves() {
            let mut totals = [[_mm512_setzero_si512(); PANELS]; ROWS];
            for row in 0..ROWS {
                totals[row] = [starts::<C>(&*group(row), half); PANELS];
            }
            let count = QUADS / coding.halves();
            for two in (half * count..(half + 1) * count).step_by(2) {
                for quad in [two, two + 1] {
                    if evenly::<C, DIRECT, ROWS>() {
                        let lines = (coding.block_bytes() / coding.parts()).div_ceil(LINE);
                        let turn = first * QUADS + quad * PANELS;
                        let lines = turn * lines / (GROUP * QUADS)..(turn + PANELS) * lines / (GROUP * QUADS);
                        if in_turns::<C, DIRECT, ROWS>() { fetch_here(next, lines) } else { fetch(next, lines) }
                    }
                    let mut quads = [_mm512_setzero_si512(); PANELS];
                    for panel in 0..PANELS {
                        quads[panel] = quad_of::<C, DIRECT>(places[first + panel].0, quad);
                    }
                    for row in 0..ROWS {
                        let four = _mm512_set1_epi32(*input.row(row).add(quad * QUAD).cast::<i32>());
                        for panel in 0..PANELS {
                            totals[row][panel] = _mm512_dpbusd_epi32(totals[row][panel], quads[panel], four);
                        }
                    }
                }
            }
            for row in 0..ROWS {
                let scale = _mm512_set1_ps((*group(row)).scale);
                for panel in 0..PANELS {
                    let (sum, factors) = (&mut sums[row][first + panel], &places[first + panel].1);
                    let total = _mm512_cvtepi32_ps(totals[row][panel]);
                    *sum = _mm512_fmadd_ps(total, _mm512_mul_ps(scale, factors[half]), *sum);
                    if coding.minima() {
                        let weighted = _mm512_set1_ps((*group(row)).weighted);
                        *sum = _mm512_fnmadd_ps(weighted, factors[1], *sum);
                    }
                }
            }
        }
    }
}

/// Asks the first-level cache for lines after `start`, which may lie anywhere.
#[inline(always)]
fn fetch(start: *const u8, lines: Range<usize>) {
    for line in lines {
        near(start.wrapping_add(line * LINE));
    }
}

/// [`fetch`], at this very place: the compiler gathers prefetches at the end of a loop, where they wait for each other.
#[inline(always)]
fn fetch_here(start: *const u8, lines: Range<usize>) {
    for line in lines {
        let line = start.wrapping_add(line * LINE);
        // SAFETY: a prefetch reads nothing, wherever it points.
        unsafe { asm!("prefetcht0 byte ptr [{line}]", line = in(reg) line, options(nostack, preserves_flags)) }
    }
}

/// Where a panel's integers of a part begin, and its factors: scales of either half, or the scales and the minima.
///
/// # Safety
/// As [`tile`]; the block has the part.
#[inline(always)]
unsafe fn place<C: Code, const DIRECT: bool>(weights: &Weights, part: usize, panel: usize) -> (*const u8, [__m512; 2]) {
    let coding = C::CODING;
    // SAFETY: the caller vouches for processor and weights.
    unsafe {
        if DIRECT {
            let head = weights.bytes.add(coding.block_offset(part));
            let start = weights.bytes.add(coding.part_offset(part));
            let integers = start.add(coding.scale_bytes() + panel * coding.panel_bytes());
            return (integers, avx512_dequant::factors::<C>(head, start, panel));
        }
        let factors = weights.factors.add((part * GROUP + panel) * coding.factors() * PANEL);
        let second = factors.add((coding.factors() - 1) * PANEL);
        let quads = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
        (quads, [_mm512_loadu_ps(factors), _mm512_loadu_ps(second)])
    }
}

/// [`begin`] for all outputs. A number in memory is shifted after it is spread: that keeps it out of the general registers.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn starts<C: Code>(group: &InputGroup, half: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let start = _mm512_set1_epi32(group.start);
        match C::CODING.middle() {
            8 => _mm512_srai_epi32::<4>(start),
            16 => _mm512_srai_epi32::<3>(start),
            _ => _mm512_set1_epi32(begin::<C>(group, half)),
        }
    }
}

/// Four weights of each output of a panel, as bytes without a sign.
///
/// # Safety
/// The processor has AVX-512 F and BW; `integers` points to a panel's part, as it is packed if `DIRECT`, else prepared.
#[inline(always)]
pub(in crate::linear) unsafe fn quad_of<C: Code, const DIRECT: bool>(integers: *const u8, quad: usize) -> __m512i {
    let (coding, bits) = (C::CODING, C::CODING.upper_bits());
    // SAFETY: the caller vouches for processor and lines.
    unsafe {
        let line = |index: usize| _mm512_loadu_si512(integers.add(index * QUAD_BYTES).cast());
        if coding.bytes() || !DIRECT {
            return line(quad);
        }
        let lower = line(coding.upper_bytes() / QUAD_BYTES + quad / 2);
        let lower = if quad.is_multiple_of(2) { lower } else { _mm512_srli_epi16::<4>(lower) };
        let lower = _mm512_and_si512(lower, _mm512_set1_epi8(15));
        if bits == 0 {
            return lower;
        }
        let upper = line(quad * bits / 8);
        let shift = (quad * bits % 8) as i32 - 4;
        let upper = if shift < 0 {
            _mm512_sll_epi16(upper, _mm_cvtsi32_si128(-shift))
        } else {
            _mm512_srl_epi16(upper, _mm_cvtsi32_si128(shift))
        };
        _mm512_or_si512(lower, _mm512_and_si512(upper, _mm512_set1_epi8((((1 << bits) - 1) << 4) as i8)))
    }
}
