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
    marker::PhantomData,
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
/// Integer sums of a panel, of each row.
pub(super) type Totals<const ROWS: usize> = [[__m256i; HALVES]; ROWS];

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

/// A number of rows whose products are dot products of four bytes, which AVX-VNNI has.
pub(super) struct Dots<R>(PhantomData<R>);

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

/// Lines that products ask for, evenly.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Address that the first quad asks for, anywhere.
    first: *const u8,
    /// Bytes from quad to quad.
    step: usize,
}

/// Nothing to ask for.
const NO_LINES: Lines = Lines { first: std::ptr::null(), step: 0 };

impl Lines {
    /// Returns the lines from some quads on.
    #[inline(always)]
    fn skip(self, quads: usize) -> Self {
        Self { first: self.first.wrapping_add(quads * self.step), ..self }
    }
}

/// Number of rows, and their products.
pub(super) trait Rows {
    /// Number of rows, at most [`ROWS`].
    const ROWS: usize;
    /// Records whether weights of eight bits meet words.
    const WORDS: bool;
    /// Records whether the products ask for lines as they go.
    const EVENLY: bool;
    /// A register for either half of a panel, of each row.
    type Sums: AsRef<[[__m256i; HALVES]]>;

    /// Returns 32-bit sums of the products of a part of each row, or of a half of it, and a panel's weights, which have no
    /// sign. Sums begin where those of `groups` do. Lines are asked for as `lines` says, if there is something to ask for and
    /// the products do that ([`EVENLY`](Rows::EVENLY)).
    ///
    /// # Safety
    /// The processor has the instructions; `quads` points to a panel's bytes, `groups` to an [`InputGroup`] of each row, and
    /// `inputs` to its integers: widened, for eight bits and [`WORDS`](Rows::WORDS).
    unsafe fn totals<C: Code>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        lines: Option<Lines>,
    ) -> Self::Sums;
}

/// Mask of the even bytes.
#[repr(align(32))]
struct Even([u16; PANEL]);
static EVEN: Even = Even([255; PANEL]);

/// Instructions of a row: its inputs, and their products with both halves of a panel.
macro_rules! step {
    ($multiply:literal, $add:literal, $place:literal $behind:literal, $low:literal $high:literal) => {
        concat!(
            concat!("vpbroadcastd ymm14, dword ptr [", $place, $behind, "]\n"),
            concat!($multiply, " ymm15, ymm12, ymm14\n"),
            concat!($multiply, " ymm14, ymm13, ymm14\n"),
            concat!($add, " ", $low, ", ", $low, ", ymm15\n"),
            concat!($add, " ", $high, ", ", $high, ", ymm14"),
        )
    };
    (dots, $place:literal, $low:literal $high:literal) => {
        concat!(
            concat!("vpbroadcastd ymm14, dword ptr [", $place, "]\n"),
            concat!("{{vex}} vpdpbusd ", $low, ", ymm12, ymm14\n"),
            concat!("{{vex}} vpdpbusd ", $high, ", ymm13, ymm14"),
        )
    };
}

/// Names numbers of rows: with each its rows, the places of their inputs, and the registers of both halves' sums.
///
/// The loops are in one piece: they take all 16 registers, and the compiler, which would read inputs and weights earlier,
/// keeps sums in memory then.
macro_rules! rows {
    ($name:ident $rows:tt: $($row:tt $place:tt $low:tt $high:tt),+) => {
        pub(super) struct $name;

        impl Rows for $name {
            const ROWS: usize = $rows;
            const WORDS: bool = true;
            const EVENLY: bool = true;
            type Sums = Totals<$rows>;

            #[inline(always)]
            unsafe fn totals<C: Code>(
                quads: *const u8,
                half: usize,
                inputs: Inputs,
                groups: Inputs,
                lines: Option<Lines>,
            ) -> Self::Sums {
                // SAFETY: the caller's promise.
                unsafe {
                    match (C::CODING.bytes(), lines) {
                        (true, None) => Self::words(starts::<C, $rows>(groups, half), quads, QUADS, inputs, NO_LINES),
                        (true, Some(lines)) => {
                            Self::words_alone(starts::<C, $rows>(groups, half), quads, QUADS, inputs, lines)
                        }
                        (false, None) => pairs::<C, $rows>(Self::pairs, quads, half, inputs, groups, NO_LINES),
                        (false, Some(lines)) => {
                            pairs::<C, $rows>(Self::pairs_alone, quads, half, inputs, groups, lines)
                        }
                    }
                }
            }
        }

        impl Rows for Dots<$name> {
            const ROWS: usize = $rows;
            const WORDS: bool = false;
            const EVENLY: bool = false;
            type Sums = Totals<$rows>;

            #[inline(always)]
            unsafe fn totals<C: Code>(
                quads: *const u8,
                half: usize,
                inputs: Inputs,
                groups: Inputs,
                _: Option<Lines>,
            ) -> Self::Sums {
                let count = QUADS / C::CODING.halves();
                // SAFETY: the caller's promise.
                unsafe {
                    let (quads, inputs) = (quads.add(half * count * QUAD_BYTES), inputs.skip(half * count * QUAD));
                    $name::dots(starts::<C, $rows>(groups, half), quads, count, inputs, NO_LINES)
                }
            }
        }

        impl $name {
            quads! {
                /// Adds the products of some quads to 16-bit sums: so few quads that they fit.
                pairs pairs_alone $rows "avx2" [$($row $low $high),+]
                "vmovdqu ymm12, ymmword ptr [{quads}]",
                "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
                $(step!("vpmaddubsw", "vpaddw", $place "", $low $high),)+
            }

            quads! {
                /// Adds the products of quads of eight bits with widened inputs to 32-bit sums.
                words words_alone $rows "avx2" [$($row $low $high),+]
                "vmovdqa ymm12, ymmword ptr [{even}]",
                "vmovdqa ymm13, ymm12",
                "vpand ymm12, ymm12, ymmword ptr [{quads}]",
                "vpand ymm13, ymm13, ymmword ptr [{quads} + 32]",
                $(step!("vpmaddwd", "vpaddd", $place "", $low $high),)+
                "vmovdqu ymm12, ymmword ptr [{quads}]",
                "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
                "vpsrlw ymm12, ymm12, 8",
                "vpsrlw ymm13, ymm13, 8",
                $(step!("vpmaddwd", "vpaddd", $place " + 32", $low $high),)+
            }

            quads! {
                /// Adds dot products of some quads to 32-bit sums.
                dots $rows "avx2,avxvnni" [$($row $low $high),+]
                "vmovdqu ymm12, ymmword ptr [{quads}]",
                "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
                $(step!(dots, $place, $low $high),)+
            }
        }
    };
}

/// A loop over quads, and the registers of its rows' sums. Under a second name the same loop asks for a line with each quad.
macro_rules! quads {
    (
        $(#[$doc:meta])+
        $name:ident $alone:ident $rows:tt $features:literal [$($row:tt $low:tt $high:tt),+] $($body:expr,)+
    ) => {
        quads! { $(#[$doc])+ $name $rows $features [$($row $low $high),+] $($body,)+ }
        quads! {
            $(#[$doc])+
            $alone $rows $features [$($row $low $high),+]
            "prefetcht0 byte ptr [{line}]",
            "add {line}, {line_step}",
            $($body,)+
        }
    };
    (
        $(#[$doc:meta])+
        $name:ident $rows:tt $features:literal [$($row:tt $low:tt $high:tt),+] $($body:expr,)+
    ) => {
        $(#[$doc])+
        ///
        /// # Safety
        /// The processor has the instructions; `quads` points to so many quads of a panel, at least one, `inputs` to the
        /// inputs that they meet.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name(
            mut sums: Totals<$rows>,
            quads: *const u8,
            count: usize,
            inputs: Inputs,
            lines: Lines,
        ) -> Totals<$rows> {
            // SAFETY: the caller vouches for weights and rows. A line that is asked for may lie anywhere.
            unsafe {
                asm!(
                    "2:",
                    $($body,)+
                    "add {first}, 4",
                    "add {fourth}, 4",
                    "add {quads}, {quad_bytes}",
                    "cmp {quads}, {end}",
                    "jne 2b",
                    "/* {even} {stride} {line} {line_step} */",
                    quad_bytes = const QUAD_BYTES,
                    even = in(reg) EVEN.0.as_ptr(),
                    stride = in(reg) inputs.stride,
                    end = in(reg) quads.wrapping_add(count * QUAD_BYTES),
                    line = inout(reg) lines.first => _,
                    line_step = in(reg) lines.step,
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
    };
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
        let evenly = R::EVENLY && ahead.alone;
        for part in 0..parts {
            let next = ahead.start.wrapping_add(part * ahead.step);
            let lines = Lines { first: next, step: ahead.step / (GROUP * QUADS) };
            for line in 0..if evenly { 0 } else { ahead.step.div_ceil(LINE) } {
                fetch::near(next.wrapping_add(line * LINE));
            }
            for panel in 0..GROUP {
                let quads = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
                let factors = weights.factors.add((part * GROUP + panel) * coding.factors() * PANEL);
                for half in 0..coding.halves() {
                    let groups = bytes.skip(part * size_of::<InputGroup>());
                    let inputs = if in_words { words.skip(part * size_of::<Group>()) } else { groups };
                    let lines = lines.skip(panel * QUADS + half * QUADS / coding.halves());
                    let totals = R::totals::<C>(quads, half, inputs, groups, evenly.then_some(lines));
                    for (row, totals) in totals.as_ref().iter().enumerate() {
                        let group = &*group(row, part);
                        for (lanes, &total) in totals.iter().enumerate() {
                            let place = block.sums.add(row * block.sums_stride + panel * PANEL + lanes * LANES);
                            let factors = factors.add(lanes * LANES);
                            let total = _mm256_cvtepi32_ps(total);
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

/// Sums of each row as they begin, for both halves of a panel.
///
/// # Safety
/// The processor has AVX2; `groups` points to an [`InputGroup`] of each row.
#[inline(always)]
pub(super) unsafe fn starts<C: Code, const ROWS: usize>(groups: Inputs, half: usize) -> Totals<ROWS> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut starts = [[_mm256_setzero_si256(); HALVES]; ROWS];
        for (row, starts) in starts.iter_mut().enumerate() {
            let group = &*groups.first.add(row * groups.stride).cast::<InputGroup>();
            *starts = [_mm256_set1_epi32(begin::<C>(group, half)); HALVES];
        }
        starts
    }
}

/// Sums of the products of a part of less than eight bits, or of a half of it, from those that fit into 16 bits.
///
/// # Safety
/// As [`Rows::totals`]; `pairs` are the products of so many rows.
#[inline(always)]
unsafe fn pairs<C: Code, const ROWS: usize>(
    pairs: unsafe fn(Totals<ROWS>, *const u8, usize, Inputs, Lines) -> Totals<ROWS>,
    quads: *const u8,
    half: usize,
    inputs: Inputs,
    groups: Inputs,
    lines: Lines,
) -> Totals<ROWS> {
    let count = QUADS / C::CODING.halves();
    // As many quads as 16 bits have room for.
    let together = count.min(8 >> C::CODING.upper_bits());
    // SAFETY: the caller vouches for weights and rows.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let mut totals = [[_mm256_setzero_si256(); HALVES]; ROWS];
        for start in (half * count..(half + 1) * count).step_by(together) {
            let zeros = [[_mm256_setzero_si256(); HALVES]; ROWS];
            let lines = lines.skip(start - half * count);
            let pairs = pairs(zeros, quads.add(start * QUAD_BYTES), together, inputs.skip(start * QUAD), lines);
            for row in 0..ROWS {
                for lanes in 0..HALVES {
                    let sums = _mm256_madd_epi16(pairs[row][lanes], ones);
                    totals[row][lanes] = _mm256_add_epi32(totals[row][lanes], sums);
                }
            }
        }
        // Not at the start: they would take registers from the products.
        let starts = starts::<C, ROWS>(groups, half);
        for row in 0..ROWS {
            for lanes in 0..HALVES {
                totals[row][lanes] = _mm256_add_epi32(totals[row][lanes], starts[row][lanes]);
            }
        }
        totals
    }
}
