//! Tiles of products of bytes in registers of 32: up to six rows times one panel at a time.
//!
//! The sums of six rows, two weights and two products fill the registers.
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
            __m256i, _mm_cvtsi32_si128, _mm256_add_epi32, _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps,
            _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_mul_ps, _mm256_set1_epi16,
            _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_sra_epi32,
            _mm256_srai_epi16, _mm256_store_si256, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps,
        },
    },
    mem::MaybeUninit,
};

use super::{
    Code, INPUTS,
    avx2::LANES,
    prepared::{Ahead, PARTS, Weights},
};
use crate::{
    fetch,
    linear::{
        int8::{COUNTER, InputGroup, QUAD, QUAD_BYTES, QUADS, SHIFT, ZERO},
        kernel::{Block, LINE},
        packed::{GROUP, PANEL},
    },
};

/// Registers of sums in a panel.
pub(super) const HALVES: usize = PANEL / LANES;
/// Integer sums of a panel, of each row.
pub(super) type Totals<const ROWS: usize> = [[__m256i; HALVES]; ROWS];

/// A group of inputs as words: pairs of even bytes, then of odd ones, a pair for each quad.
type Group = [__m256i; 2];
/// Words of a tile's inputs.
type Widened<const ROWS: usize> = [[MaybeUninit<Group>; PARTS]; ROWS];

/// Inputs of a tile's rows.
#[derive(Clone, Copy)]
pub(super) struct Inputs {
    /// Start of the first row's inputs.
    pub(super) first: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
}

impl Inputs {
    /// Address of a row's inputs, which may lie after the last one's.
    #[inline(always)]
    pub(super) fn row(self, row: usize) -> *const u8 {
        self.first.wrapping_add(row * self.stride)
    }

    /// Returns the inputs some bytes on.
    #[inline(always)]
    pub(super) fn skip(self, bytes: usize) -> Self {
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

impl Lines {
    /// Nothing to ask for.
    pub(super) const NONE: Self = Self { first: std::ptr::null(), step: 0 };

    /// Returns the lines from some quads on.
    #[inline(always)]
    fn skip(self, quads: usize) -> Self {
        Self { first: self.first.wrapping_add(quads * self.step), ..self }
    }
}

/// Products of a tile's rows with a panel.
pub(super) trait Products {
    /// Records whether weights of eight bits meet words.
    const WORDS: bool;
    /// Records whether the products ask for lines as they go.
    const EVENLY: bool;

    /// Returns 32-bit sums of the products of a part of each row, or of a half of it, and a panel's weights, which have no
    /// sign. Sums begin where those of `groups` do. Lines are asked for as `lines` says, if there is something to ask for and
    /// the products do that ([`EVENLY`](Products::EVENLY)).
    ///
    /// # Safety
    /// The processor has the instructions; `quads` points to a panel's bytes, `groups` to an [`InputGroup`] of each row, and
    /// `inputs` to its integers: widened, for eight bits and [`WORDS`](Products::WORDS).
    unsafe fn totals<C: Code, const ROWS: usize>(
        quads: *const u8,
        half: usize,
        inputs: Inputs,
        groups: Inputs,
        lines: Option<Lines>,
    ) -> Totals<ROWS>;
}

/// Mask of the even bytes.
#[repr(align(32))]
struct Even([u16; PANEL]);
static EVEN: Even = Even([255; PANEL]);

/// Instructions of a row: its inputs, and their products with both halves of a panel, which are added to its sums.
macro_rules! row {
    (($multiply:literal, $add:literal), $place:expr, $low:literal $high:literal) => {
        concat!(
            concat!("vpbroadcastd ymm14, dword ptr [", $place, "]\n"),
            concat!($multiply, " ymm15, ymm12, ymm14\n"),
            concat!($multiply, " ymm14, ymm13, ymm14\n"),
            concat!($add, " ", $low, ", ", $low, ", ymm15\n"),
            concat!($add, " ", $high, ", ", $high, ", ymm14\n"),
        )
    };
    (dots, $place:expr, $low:literal $high:literal) => {
        concat!(
            concat!("vpbroadcastd ymm14, dword ptr [", $place, "]\n"),
            concat!("{{vex}} vpdpbusd ", $low, ", ymm12, ymm14\n"),
            concat!("{{vex}} vpdpbusd ", $high, ", ymm13, ymm14\n"),
        )
    };
}

/// Instructions of each row that a tile has, with inputs some bytes after the first.
macro_rules! rows {
    ($products:tt $behind:literal) => {
        concat!(
            row!($products, concat!("{first}", $behind), "ymm0" "ymm1"),
            ".if {rows} > 1\n",
            row!($products, concat!("{first} + {stride}", $behind), "ymm2" "ymm3"),
            ".endif\n.if {rows} > 2\n",
            row!($products, concat!("{first} + 2 * {stride}", $behind), "ymm4" "ymm5"),
            ".endif\n.if {rows} > 3\n",
            row!($products, concat!("{fourth}", $behind), "ymm6" "ymm7"),
            ".endif\n.if {rows} > 4\n",
            row!($products, concat!("{fourth} + {stride}", $behind), "ymm8" "ymm9"),
            ".endif\n.if {rows} > 5\n",
            row!($products, concat!("{fourth} + 2 * {stride}", $behind), "ymm10" "ymm11"),
            ".endif",
        )
    };
}

/// A loop over quads, with the registers of the sums of each row. It is in one piece: it takes all 16 registers, and the
/// compiler, which would read inputs and weights earlier, keeps sums in memory then.
macro_rules! looped {
    (
        [$($body:expr,)+] $sums:ident $quads:ident $count:ident $inputs:ident $lines:ident:
        $($row:literal $low:tt $high:tt),+
    ) => {
        asm!(
            "2:",
            ".if {alone}",
            "prefetcht0 byte ptr [{line} + {near}]",
            "prefetcht1 byte ptr [{line} + {far}]",
            "add {line}, {line_step}",
            ".endif",
            $($body,)+
            "add {first}, 4",
            "add {fourth}, 4",
            "add {quads}, {quad_bytes}",
            "cmp {quads}, {end}",
            "jne 2b",
            "/* {even} */",
            rows = const ROWS,
            alone = const ALONE as usize,
            near = const fetch::NEAR,
            far = const fetch::FAR,
            quad_bytes = const QUAD_BYTES,
            even = in(reg) EVEN.0.as_ptr(),
            stride = in(reg) $inputs.stride,
            end = in(reg) $quads.wrapping_add($count * QUAD_BYTES),
            line = inout(reg) $lines.first => _,
            line_step = in(reg) $lines.step,
            quads = inout(reg) $quads => _,
            first = inout(reg) $inputs.first => _,
            fourth = inout(reg) $inputs.first.wrapping_add(3 * $inputs.stride) => _,
            $(inout($low) $sums[$row][0], inout($high) $sums[$row][1],)+
            out("ymm12") _,
            out("ymm13") _,
            out("ymm14") _,
            out("ymm15") _,
            options(pure, readonly, nostack),
        )
    };
}

/// Names a function of such a loop, which adds the products of quads to the sums of each row. If `ALONE`, it asks for a line
/// with each quad.
macro_rules! quads {
    ($(#[$doc:meta])+ $name:ident $features:literal: $($body:expr,)+) => {
        $(#[$doc])+
        ///
        /// # Safety
        /// The processor has the instructions; `quads` points to so many quads of a panel, at least one, `inputs` to the
        /// inputs that they meet.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const ROWS: usize, const ALONE: bool>(
            mut sums: Totals<ROWS>,
            quads: *const u8,
            count: usize,
            inputs: Inputs,
            lines: Lines,
        ) -> Totals<ROWS> {
            // SAFETY: the caller vouches for weights and rows. A line that is asked for may lie anywhere.
            unsafe {
                match ROWS {
                    1 => looped!([$($body,)+] sums quads count inputs lines: 0 "ymm0" "ymm1"),
                    2 => looped!([$($body,)+] sums quads count inputs lines: 0 "ymm0" "ymm1", 1 "ymm2" "ymm3"),
                    3 => looped!([$($body,)+] sums quads count inputs lines:
                        0 "ymm0" "ymm1", 1 "ymm2" "ymm3", 2 "ymm4" "ymm5"),
                    4 => looped!([$($body,)+] sums quads count inputs lines:
                        0 "ymm0" "ymm1", 1 "ymm2" "ymm3", 2 "ymm4" "ymm5", 3 "ymm6" "ymm7"),
                    5 => looped!([$($body,)+] sums quads count inputs lines:
                        0 "ymm0" "ymm1", 1 "ymm2" "ymm3", 2 "ymm4" "ymm5", 3 "ymm6" "ymm7", 4 "ymm8" "ymm9"),
                    _ => looped!([$($body,)+] sums quads count inputs lines:
                        0 "ymm0" "ymm1", 1 "ymm2" "ymm3", 2 "ymm4" "ymm5", 3 "ymm6" "ymm7", 4 "ymm8" "ymm9",
                        5 "ymm10" "ymm11"),
                }
            }
            sums
        }
    };
}

quads! {
    /// Adds the products of some quads to 16-bit sums: so few quads that they fit.
    pairs "avx2":
    "vmovdqu ymm12, ymmword ptr [{quads}]",
    "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
    rows!(("vpmaddubsw", "vpaddw") ""),
}

quads! {
    /// Adds the products of quads of eight bits with widened inputs to 32-bit sums.
    words "avx2":
    "vmovdqa ymm12, ymmword ptr [{even}]",
    "vmovdqa ymm13, ymm12",
    "vpand ymm12, ymm12, ymmword ptr [{quads}]",
    "vpand ymm13, ymm13, ymmword ptr [{quads} + 32]",
    rows!(("vpmaddwd", "vpaddd") ""),
    "vmovdqu ymm12, ymmword ptr [{quads}]",
    "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
    "vpsrlw ymm12, ymm12, 8",
    "vpsrlw ymm13, ymm13, 8",
    rows!(("vpmaddwd", "vpaddd") " + 32"),
}

quads! {
    /// Adds dot products of some quads to 32-bit sums.
    dots "avx2,avxvnni":
    "vmovdqu ymm12, ymmword ptr [{quads}]",
    "vmovdqu ymm13, ymmword ptr [{quads} + 32]",
    rows!(dots ""),
}

/// # Safety
/// The processor has AVX2, FMA, F16C and what `P` needs; the block keeps its promises and has `ROWS` rows and one pair of
/// panels, whose prepared parts, at most [`PARTS`], are `weights`.
#[inline(always)]
pub(super) unsafe fn tile<P: Products, C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    let coding = C::CODING;
    let parts = block.depth / INPUTS;
    // No check that may panic: its call would stand in the way of registers.
    debug_assert!(parts <= PARTS, "{parts} parts of a tile");
    let mut widened: Widened<ROWS> = [[MaybeUninit::uninit(); PARTS]; ROWS];
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let group = |row: usize, part: usize| {
            block.input.add(row * block.input_stride + part * size_of::<InputGroup>()).cast::<InputGroup>()
        };
        let in_words = coding.bytes() && P::WORDS;
        if in_words {
            for (row, widened) in widened.iter_mut().enumerate() {
                for (part, widened) in widened.iter_mut().take(parts).enumerate() {
                    widen((*group(row, part)).integers.as_ptr().cast(), widened.as_mut_ptr());
                }
            }
        }
        let words = Inputs { first: widened.as_ptr().cast(), stride: PARTS * size_of::<Group>() };
        let bytes = Inputs { first: block.input, stride: block.input_stride };
        let evenly = P::EVENLY && ahead.alone;
        for part in 0..parts {
            let next = ahead.start.wrapping_add(part * ahead.step);
            let lines = Lines { first: next, step: ahead.step / (GROUP * QUADS) };
            for line in 0..if evenly { 0 } else { ahead.step.div_ceil(LINE) } {
                let line = next.wrapping_add(line * LINE);
                if ahead.alone { fetch::stream(line) } else { fetch::near(line) }
            }
            for panel in 0..GROUP {
                let quads = weights.bytes.add(part * weights.part_stride + panel * weights.panel_stride);
                let factors = weights.factors.add((part * GROUP + panel) * coding.factors() * PANEL);
                for half in 0..coding.halves() {
                    let groups = bytes.skip(part * size_of::<InputGroup>());
                    let inputs = if in_words { words.skip(part * size_of::<Group>()) } else { groups };
                    let lines = lines.skip(panel * QUADS + half * QUADS / coding.halves());
                    let totals = P::totals::<C, ROWS>(quads, half, inputs, groups, evenly.then_some(lines));
                    for (row, totals) in totals.iter().enumerate() {
                        let group = &*group(row, part);
                        for (lanes, &total) in totals.iter().enumerate() {
                            let place = block.sums.add(row * block.sums_stride + panel * PANEL + lanes * LANES);
                            let factors = factors.add(lanes * LANES);
                            let scales = _mm256_loadu_ps(factors.add(half * PANEL));
                            let total = _mm256_sub_ps(_mm256_castsi256_ps(total), _mm256_set1_ps(COUNTER));
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

/// Sums of each row as they begin, for both halves of a panel: [`begin`](super::begin) in vectors, which numbers in memory
/// reach without the general registers.
///
/// # Safety
/// The processor has AVX2; `groups` points to an [`InputGroup`] of each row.
#[inline(always)]
pub(super) unsafe fn starts<C: Code, const ROWS: usize>(groups: Inputs, half: usize) -> Totals<ROWS> {
    let coding = C::CODING;
    // SAFETY: the caller's promise.
    unsafe {
        let mut starts = [[_mm256_set1_epi32(ZERO); HALVES]; ROWS];
        if coding.middle() == 0 {
            return starts;
        }
        let bits = (SHIFT / coding.middle()).ilog2();
        for (row, starts) in starts.iter_mut().enumerate() {
            let group = &*groups.row(row).cast::<InputGroup>();
            let [all, first] = [_mm256_set1_epi32(group.start), _mm256_set1_epi32(group.first)];
            let (sum, zero) = match (coding.halves(), half) {
                (1, _) => (all, ZERO),
                (_, 0) => (first, 0),
                _ => (_mm256_sub_epi32(all, first), ZERO),
            };
            let moved = _mm256_sra_epi32(sum, _mm_cvtsi32_si128(bits as i32));
            *starts = [_mm256_add_epi32(moved, _mm256_set1_epi32(ZERO - (zero >> bits))); HALVES];
        }
        starts
    }
}

/// Sums of the products of a part of less than eight bits, or of a half of it, from those that fit into 16 bits.
///
/// # Safety
/// As [`Products::totals`].
#[inline(always)]
pub(super) unsafe fn totals_of_pairs<C: Code, const ROWS: usize, const ALONE: bool>(
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
            let pairs =
                pairs::<ROWS, ALONE>(zeros, quads.add(start * QUAD_BYTES), together, inputs.skip(start * QUAD), lines);
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
