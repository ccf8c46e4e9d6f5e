//! Tiles of products of bytes in registers of 32: up to six rows times one panel at a time.
//!
//! AVX2 adds neighbouring products of bytes in 16 bits, and saturates: 16 products of four bits with inputs of at most 127
//! fit, 8 of five bits, 4 of six. Weights of eight bits are multiplied as words of 16 instead: the even bytes of each word
//! are cut out by a mask, the odd ones by a shift, and inputs are widened in the same order, once for all that a tile takes.
//! Either way weights have no sign.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, blocks and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::{
        asm,
        x86_64::{
            __m256i, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps,
            _mm256_loadu_si256, _mm256_madd_epi16, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
            _mm256_setzero_si256, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_store_si256, _mm256_storeu_ps,
        },
    },
    mem::MaybeUninit,
};

use super::{
    Code, INPUTS,
    avx2::LANES,
    begin,
    prepared::{Ahead, PARTS, Tile, Weights},
};
use crate::{
    fetch,
    linear::{
        int8::{InputGroup, QUAD, QUAD_BYTES, QUADS},
        kernel::{Block, LINE},
        packed::{GROUP, PANEL},
    },
};

/// Most rows of a tile: sums of a panel, two weights and two products fill the registers.
pub(super) const ROWS: usize = 6;
/// Registers of sums in a panel.
pub(super) const HALVES: usize = PANEL / LANES;

/// Tiles of each number of rows.
pub(super) const fn tiles<C: Code>() -> &'static [Tile] {
    /// # Safety
    /// As [`tile`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn compiled<C: Code, R: Rows>(block: &Block, weights: &Weights, ahead: Ahead) {
        // SAFETY: the caller's promise.
        unsafe { tile::<C, R>(block, weights, ahead) }
    }
    &[
        compiled::<C, One>,
        compiled::<C, Two>,
        compiled::<C, Three>,
        compiled::<C, Four>,
        compiled::<C, Five>,
        compiled::<C, Six>,
    ]
}

/// A group of inputs as words: pairs of even bytes, then of odd ones, a pair for each quad.
type Group = [__m256i; 2];
/// Words of a tile's inputs.
type Widened = [[MaybeUninit<Group>; PARTS]; ROWS];

/// Inputs of a tile's rows.
#[derive(Clone, Copy)]
pub(super) struct Inputs {
    /// Start of the first row's inputs.
    pub(super) first: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
}

impl Inputs {
    /// Returns the inputs some bytes on.
    #[inline(always)]
    fn skip(self, bytes: usize) -> Self {
        Self { first: self.first.wrapping_add(bytes), ..self }
    }
}

/// Number of rows, and their products.
pub(super) trait Rows {
    /// Number of rows, at most [`ROWS`].
    const ROWS: usize;
    /// Records whether weights of eight bits meet words.
    const WORDS: bool;
    /// A register for either half of a panel, of each row.
    type Sums: AsRef<[[__m256i; HALVES]]>;

    /// Returns 32-bit sums of the products of a part of each row, or of a half of it, and a panel's weights, which have no
    /// sign.
    ///
    /// # Safety
    /// The processor has the instructions; `quads` points to a panel's bytes, `inputs` to a group of each row: widened, for
    /// eight bits and [`WORDS`](Rows::WORDS).
    unsafe fn totals<C: Code>(quads: *const u8, half: usize, inputs: Inputs) -> Self::Sums;
}

/// Mask of the even bytes.
#[repr(align(32))]
struct Even([u16; PANEL]);
static EVEN: Even = Even([255; PANEL]);

/// Names numbers of rows: with each its rows, the places of their inputs, and the registers of both halves' sums.
///
/// The loops are in one piece: they take all 16 registers, and the compiler, which would read inputs and weights earlier,
/// keeps sums in memory then.
macro_rules! rows {
    ($name:ident $rows:tt: $($row:tt $place:tt $low:tt $high:tt),+) => {
        struct $name;

        impl Rows for $name {
            const ROWS: usize = $rows;
            const WORDS: bool = true;
            type Sums = [[__m256i; HALVES]; $rows];

            #[inline(always)]
            unsafe fn totals<C: Code>(quads: *const u8, half: usize, inputs: Inputs) -> Self::Sums {
                // SAFETY: the caller's promise.
                unsafe {
                    if C::CODING.bytes() {
                        Self::words(quads, inputs)
                    } else {
                        pairs::<C, $rows>(Self::pairs, quads, half, inputs)
                    }
                }
            }
        }

        impl $name {
            /// Returns 16-bit sums of the products of some quads, at least one, and so few that they fit.
            ///
            /// # Safety
            /// The processor has AVX2; `quads` points to so many quads of a panel, `inputs` to the bytes that they meet.
            #[inline(always)]
            unsafe fn pairs(quads: *const u8, count: usize, inputs: Inputs) -> [[__m256i; HALVES]; $rows] {
                rows!(@ $rows, (quads, count, inputs), $([$row $place $low $high "" "vpmaddubsw" "vpaddw"])+ {
                    "vmovdqu ymm12, ymmword ptr [{quads}]",
                    "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
                })
            }

            /// Returns 32-bit sums of the products of a part of eight bits with widened inputs.
            ///
            /// # Safety
            /// As `pairs`.
            #[inline(always)]
            unsafe fn words(quads: *const u8, inputs: Inputs) -> [[__m256i; HALVES]; $rows] {
                rows!(@ $rows, (quads, QUADS, inputs), $([$row $place $low $high "" "vpmaddwd" "vpaddd"])+ {
                    "vmovdqa ymm12, ymmword ptr [{even}]",
                    "vmovdqa ymm13, ymm12",
                    "vpand ymm12, ymm12, ymmword ptr [{quads}]",
                    "vpand ymm13, ymm13, ymmword ptr [{quads} + 32]",
                } $([$row $place $low $high " + 32" "vpmaddwd" "vpaddd"])+ {
                    "vmovdqu ymm12, ymmword ptr [{quads}]",
                    "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
                    "vpsrlw ymm12, ymm12, 8",
                    "vpsrlw ymm13, ymm13, 8",
                })
            }
        }
    };
    (@ $rows:tt, ($quads:expr, $count:expr, $inputs:expr),
        $([$row:tt $place:tt $low:tt $high:tt $behind:tt $multiply:tt $add:tt])+ { $($load:literal,)+ }
        $($([$later_row:tt $later_place:tt $later_low:tt $later_high:tt $later_behind:tt $later_multiply:tt $later_add:tt])+
        { $($later_load:literal,)+ })?
    ) => {{
        /// # Safety
        /// As [`Rows::totals`].
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn sums(quads: *const u8, count: usize, inputs: Inputs) -> [[__m256i; HALVES]; $rows] {
            let mut sums = [[_mm256_setzero_si256(); HALVES]; $rows];
            // SAFETY: the caller vouches for weights and rows.
            unsafe {
                asm!(
                    "2:",
                    $($load,)+
                    $(
                        concat!("vpbroadcastd ymm14, dword ptr [", $place, $behind, "]"),
                        concat!($multiply, " ymm15, ymm12, ymm14"),
                        concat!($multiply, " ymm14, ymm13, ymm14"),
                        concat!($add, " ", $low, ", ", $low, ", ymm15"),
                        concat!($add, " ", $high, ", ", $high, ", ymm14"),
                    )+
                    $(
                        $($later_load,)+
                        $(
                            concat!("vpbroadcastd ymm14, dword ptr [", $later_place, $later_behind, "]"),
                            concat!($later_multiply, " ymm15, ymm12, ymm14"),
                            concat!($later_multiply, " ymm14, ymm13, ymm14"),
                            concat!($later_add, " ", $later_low, ", ", $later_low, ", ymm15"),
                            concat!($later_add, " ", $later_high, ", ", $later_high, ", ymm14"),
                        )+
                    )?
                    "add {first}, 4",
                    "add {fourth}, 4",
                    "add {quads}, {quad_bytes}",
                    "cmp {quads}, {end}",
                    "jne 2b",
                    "/* {even} {stride} */",
                    quad_bytes = const QUAD_BYTES,
                    even = in(reg) EVEN.0.as_ptr(),
                    stride = in(reg) inputs.stride,
                    end = in(reg) quads.wrapping_add(count * QUAD_BYTES),
                    quads = inout(reg) quads => _,
                    first = inout(reg) inputs.first => _,
                    fourth = inout(reg) inputs.first.wrapping_add(3 * inputs.stride) => _,
                    $(inout($low) sums[$row][0], inout($high) sums[$row][1],)+
                    out("ymm12") _,
                    out("ymm13") _,
                    out("ymm14") _,
                    out("ymm15") _,
                    options(pure, readonly, nostack),
                );
            }
            sums
        }
        // SAFETY: the caller's promise.
        unsafe { sums($quads, $count, $inputs) }
    }};
}

rows!(One 1: 0 "{first}" "ymm0" "ymm1");
rows!(Two 2: 0 "{first}" "ymm0" "ymm1", 1 "{first} + {stride}" "ymm2" "ymm3");
rows!(Three 3:
    0 "{first}" "ymm0" "ymm1", 1 "{first} + {stride}" "ymm2" "ymm3", 2 "{first} + 2 * {stride}" "ymm4" "ymm5");
rows!(Four 4:
    0 "{first}" "ymm0" "ymm1", 1 "{first} + {stride}" "ymm2" "ymm3", 2 "{first} + 2 * {stride}" "ymm4" "ymm5",
    3 "{fourth}" "ymm6" "ymm7");
rows!(Five 5:
    0 "{first}" "ymm0" "ymm1", 1 "{first} + {stride}" "ymm2" "ymm3", 2 "{first} + 2 * {stride}" "ymm4" "ymm5",
    3 "{fourth}" "ymm6" "ymm7", 4 "{fourth} + {stride}" "ymm8" "ymm9");
rows!(Six 6:
    0 "{first}" "ymm0" "ymm1", 1 "{first} + {stride}" "ymm2" "ymm3", 2 "{first} + 2 * {stride}" "ymm4" "ymm5",
    3 "{fourth}" "ymm6" "ymm7", 4 "{fourth} + {stride}" "ymm8" "ymm9", 5 "{fourth} + 2 * {stride}" "ymm10" "ymm11");

/// # Safety
/// The processor has AVX2, FMA, F16C and what `R` needs; the block keeps its promises and has `R::ROWS` rows and one pair of panels, whose
/// prepared parts, at most [`PARTS`], are `weights`.
#[inline(always)]
pub(super) unsafe fn tile<C: Code, R: Rows>(block: &Block, weights: &Weights, ahead: Ahead) {
    let coding = C::CODING;
    let parts = block.depth / INPUTS;
    // No check that may panic: its call would stand in the way of registers.
    debug_assert!(parts <= PARTS, "{parts} parts of a tile");
    let mut widened: Widened = [[MaybeUninit::uninit(); PARTS]; ROWS];
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let group = |row: usize, part: usize| {
            block.input.add(row * block.input_stride + part * size_of::<InputGroup>()).cast::<InputGroup>()
        };
        let in_words = coding.bytes() && R::WORDS;
        if in_words {
            for (row, widened) in widened.iter_mut().take(R::ROWS).enumerate() {
                for (part, widened) in widened.iter_mut().take(parts).enumerate() {
                    widen((*group(row, part)).integers.as_ptr().cast(), widened.as_mut_ptr());
                }
            }
        }
        let words = Inputs { first: widened.as_ptr().cast(), stride: PARTS * size_of::<Group>() };
        let bytes = Inputs { first: block.input, stride: block.input_stride };
        let mut next = ahead.start;
        for part in 0..parts {
            for line in 0..ahead.step.div_ceil(LINE) {
                fetch::near(next.wrapping_add(line * LINE));
            }
            next = next.wrapping_add(ahead.step);
            for panel in 0..GROUP {
                let quads = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
                let factors = weights.factors.add((part * GROUP + panel) * coding.factors() * PANEL);
                for half in 0..coding.halves() {
                    let inputs = if in_words {
                        words.skip(part * size_of::<Group>())
                    } else {
                        bytes.skip(part * size_of::<InputGroup>())
                    };
                    let totals = R::totals::<C>(quads, half, inputs);
                    for (row, totals) in totals.as_ref().iter().enumerate() {
                        let group = &*group(row, part);
                        let start = _mm256_set1_epi32(begin::<C>(group, half));
                        for (lanes, &total) in totals.iter().enumerate() {
                            let place = block.sums.add(row * block.sums_stride + panel * PANEL + lanes * LANES);
                            let factors = factors.add(lanes * LANES);
                            let total = _mm256_cvtepi32_ps(_mm256_add_epi32(total, start));
                            let scales = _mm256_loadu_ps(factors.add(half * PANEL));
                            let scale = _mm256_mul_ps(_mm256_set1_ps(group.scale), scales);
                            let mut sum = _mm256_fmadd_ps(total, scale, _mm256_loadu_ps(place));
                            if coding.minima() {
                                let minima = _mm256_loadu_ps(factors.add(PANEL));
                                sum = _mm256_fnmadd_ps(_mm256_set1_ps(group.weighted), minima, sum);
                            }
                            _mm256_storeu_ps(place, sum);
                        }
                    }
                }
            }
        }
    }
}

/// Widens a group of inputs.
///
/// # Safety
/// The processor has AVX2; `group` points to 32 bytes, and there is room at `out`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widen(group: *const u8, out: *mut Group) {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = _mm256_loadu_si256(group.cast());
        let out = out.cast::<__m256i>();
        _mm256_store_si256(out, _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)));
        _mm256_store_si256(out.add(1), _mm256_srai_epi16::<8>(bytes));
    }
}

/// Sums of products of less than eight bits, from those that fit into 16 bits.
///
/// # Safety
/// As [`Rows::totals`]; `pairs` are the products of so many rows.
#[inline(always)]
unsafe fn pairs<C: Code, const ROWS: usize>(
    pairs: unsafe fn(*const u8, usize, Inputs) -> [[__m256i; HALVES]; ROWS],
    quads: *const u8,
    half: usize,
    inputs: Inputs,
) -> [[__m256i; HALVES]; ROWS] {
    let count = QUADS / C::CODING.halves();
    // As many quads as 16 bits have room for.
    let together = count.min(8 >> C::CODING.upper_bits());
    // SAFETY: the caller vouches for weights and rows.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let mut totals = [[_mm256_setzero_si256(); HALVES]; ROWS];
        for start in (half * count..(half + 1) * count).step_by(together) {
            let pairs = pairs(quads.add(start * QUAD_BYTES), together, inputs.skip(start * QUAD));
            for row in 0..ROWS {
                for lanes in 0..HALVES {
                    let sums = _mm256_madd_epi16(pairs[row][lanes], ones);
                    totals[row][lanes] = _mm256_add_epi32(totals[row][lanes], sums);
                }
            }
        }
        totals
    }
}
