//! Products of bytes with AVX-512's dot products of bytes.
//!
//! Integers are spread over a byte: four bits are multiplied by 16, and their scale is divided by it, so that every coding is
//! `scale * (byte - 128) - minimum`. Up to twelve rows, a single tile, take the integers as they stand in their blocks. More
//! find them prepared, and come in tiles of five to seven, whose sums stay in registers. Both give the same bits.

#![expect(clippy::cast_ptr_alignment, reason = "blocks and sums begin on cache lines; elements follow each other")]

use std::{
    arch::{
        asm,
        x86_64::{
            __m512, __m512i, _mm_cvtsi32_si128, _mm512_add_epi32, _mm512_and_si512, _mm512_castsi512_ps,
            _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_fnmadd_ps, _mm512_loadu_si512, _mm512_mul_ps,
            _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512,
            _mm512_sll_epi16, _mm512_slli_epi16, _mm512_srl_epi16, _mm512_srli_epi16, _mm512_storeu_ps,
            _mm512_storeu_si512, _mm512_sub_epi32,
        },
    },
    mem::offset_of,
    ops::Range,
};

use super::{
    Code, Coding, INPUTS,
    avx2::Vectors,
    avx2_tiles::Inputs,
    codings,
    numbers::Quad,
    prepared::{self, Ahead, PANEL_BYTES, Preparation, Prepared, Tile, Unit, Weights, kernel},
};
use crate::{
    fetch::stream,
    isa::Tier,
    linear::{
        avx512_dequant,
        int8::{COUNTER, InputGroup, QUAD, QUAD_BYTES, QUADS, SHIFT, ZERO},
        kernel::{Block, Instructions, Kernel, LINE, tiles},
        packed::{GROUP, PANEL},
    },
};

/// The kernels.
pub(in crate::linear) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(kernel::<Wide>, "avx512vnni_i8");

/// Dot products of bytes in registers of 64.
pub(super) struct Wide;

impl<C: Code> Unit<C> for Wide {
    const INSTRUCTIONS: Instructions = Instructions { vnni: true, ..Instructions::of(Tier::Avx512) };
    type Preparation = Spread;
    const FEWEST: usize = 5;
    const TILES: &'static [Tile] = &tiles!((prepared_tile, C): 5 6 7);
    const DIRECT: &'static [Tile] = &tiles!((direct_tile, C): 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// Weights as bytes over which their integers are spread.
pub(super) struct Spread;

impl Preparation for Spread {
    const AS_PACKED: bool = true;
    type Read = Vectors;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn prepare<C: Code>(start: *const u8, parts: Range<usize>, prepared: &mut Prepared) -> Weights {
        // SAFETY: the caller's promise.
        unsafe { prepared::prepare::<Self, C>(start, parts, prepared) }
    }

    #[inline(always)]
    unsafe fn write_factors<C: Code>(head: *const u8, part: *const u8, panel: usize, out: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            for (index, factor) in factors::<C>(head, part, panel).into_iter().take(C::CODING.factors()).enumerate() {
                _mm512_storeu_ps(out.add(index * PANEL), factor);
            }
        }
    }

    #[inline(always)]
    unsafe fn write_quads<C: Code>(integers: *const u8, quad: usize, out: *mut Quad) {
        // SAFETY: the caller's promise.
        unsafe {
            for next in 0..2 {
                _mm512_storeu_si512(out.add(next).cast(), quad_of::<C>(integers, quad + next));
            }
        }
    }
}

/// Requests for weights in each part.
const REQUESTS: usize = 2;

/// Constants of the tiles in memory.
#[repr(C)]
struct Constants {
    zero: i32,
    minus_counter: f32,
}
static CONSTANTS: Constants = Constants { zero: ZERO, minus_counter: -COUNTER };

/// Code of each row of a tile: `$code!(place of its inputs, integer sums, sums, a free register)`.
macro_rules! rows {
    ($code:ident) => {
        concat!(
            $code!("{first}", "zmm0" "zmm1", "zmm14" "zmm15", "zmm30"),
            $code!("{first} + {stride}", "zmm2" "zmm3", "zmm16" "zmm17", "zmm31"),
            $code!("{first} + 2 * {stride}", "zmm4" "zmm5", "zmm18" "zmm19", "zmm30"),
            $code!("{fourth}", "zmm6" "zmm7", "zmm20" "zmm21", "zmm31"),
            $code!("{fourth} + {stride}", "zmm8" "zmm9", "zmm22" "zmm23", "zmm30"),
            ".if {rows} > 5\n",
            $code!("{fourth} + 2 * {stride}", "zmm10" "zmm11", "zmm24" "zmm25", "zmm31"),
            ".endif\n.if {rows} > 6\n",
            $code!("{seventh}", "zmm12" "zmm13", "zmm26" "zmm27", "zmm30"),
            ".endif\n",
        )
    };
}

/// Integer sums begin: of the whole group, of its first half, or of its second.
macro_rules! begin {
    ($place:literal, $left:literal $right:literal, $($_sum:literal)+, $_free:literal) => {
        concat!(
            ".if \\half == 1\n",
            concat!("vpbroadcastd ", $left, ", dword ptr [", $place, " + {first_start}]\n"),
            concat!("vpaddd ", $left, ", ", $left, ", dword ptr [rip + {constants}]{{1to16}}\n"),
            ".else\n",
            concat!("vpbroadcastd ", $left, ", dword ptr [", $place, " + {start}]\n"),
            ".endif\n.if \\half == 2\n",
            concat!("vpsubd ", $left, ", ", $left, ", dword ptr [", $place, " + {first_start}]{{1to16}}\n"),
            ".endif\n",
            concat!("vmovdqa64 ", $right, ", ", $left, "\n"),
        )
    };
}

/// Four inputs meet a quad of either panel.
macro_rules! multiply {
    ($place:literal, $left:literal $right:literal, $($_sum:literal)+, $free:literal) => {
        concat!(
            concat!("vpbroadcastd ", $free, ", dword ptr [", $place, " + 4 * \\quad]\n"),
            concat!("vpdpbusd ", $left, ", zmm28, ", $free, "\n"),
            concat!("vpdpbusd ", $right, ", zmm29, ", $free, "\n"),
        )
    };
}

/// Integer sums become numbers, and are added to the row's sums.
macro_rules! finish {
    ($place:literal, $left:literal $right:literal, $left_sum:literal $right_sum:literal, $_free:literal) => {
        concat!(
            concat!("vfmadd213ps ", $left, ", zmm28, zmm30\n"),
            concat!("vfmadd213ps ", $right, ", zmm29, zmm31\n"),
            concat!("vfmadd231ps ", $left_sum, ", ", $left, ", dword ptr [", $place, " + {scale}]{{1to16}}\n"),
            concat!("vfmadd231ps ", $right_sum, ", ", $right, ", dword ptr [", $place, " + {scale}]{{1to16}}\n"),
        )
    };
}

/// Minima are subtracted from the row's sums.
macro_rules! subtract {
    ($place:literal, $($_total:literal)+, $left:literal $right:literal, $_free:literal) => {
        concat!(
            concat!("vfnmadd231ps ", $left, ", zmm28, dword ptr [", $place, " + {weighted}]{{1to16}}\n"),
            concat!("vfnmadd231ps ", $right, ", zmm29, dword ptr [", $place, " + {weighted}]{{1to16}}\n"),
        )
    };
}

/// Products of a quad. Two of eight ask for weights to come, four lines at once: each request takes the place of a load, and
/// each address that moves takes the place of a product.
macro_rules! quad {
    () => {
        concat!(
            ".if \\quad % (8 / {requests}) == 0\n",
            "prefetcht0 byte ptr [{line}]\n",
            "prefetcht0 byte ptr [{line} + 64]\n",
            "prefetcht0 byte ptr [{line} + 128]\n",
            "prefetcht0 byte ptr [{line} + 192]\n",
            "add {line}, {step}\n",
            ".endif\n",
            "vmovdqu64 zmm28, zmmword ptr [{quads} + 64 * \\quad]\n",
            "vmovdqu64 zmm29, zmmword ptr [{quads} + 64 * \\quad + {panel_quads}]\n",
            rows!(multiply),
        )
    };
}

/// Adds the products of some parts to the sums: of a group at once, or (`half` 1 and 2) of its halves, whose scales differ. It
/// is in one piece because it takes all 32 registers.
macro_rules! products {
    ($sums:ident $place:ident $C:ident $ROWS:ident: $($row:literal $left:tt $right:tt),*) => {
        asm!(
            "2:",
            ".irp half, 0, 1, 2\n.if ({halves} == 1) == (\\half == 0)",
            rows!(begin),
            ".irp quad, 0, 1, 2, 3, 4, 5, 6, 7\n.if (\\half == 0) || ((\\half == 2) == (\\quad > 3))",
            quad!(),
            ".endif\n.endr",
            "vmovups zmm28, zmmword ptr [{factors} + 64 * (\\half / 2)]",
            "vmovups zmm29, zmmword ptr [{factors} + {panel_factors} + 64 * (\\half / 2)]",
            "vmulps zmm30, zmm28, dword ptr [rip + {constants} + 4]{{1to16}}",
            "vmulps zmm31, zmm29, dword ptr [rip + {constants} + 4]{{1to16}}",
            rows!(finish),
            ".endif\n.endr",
            ".if {minima}",
            "vmovups zmm28, zmmword ptr [{factors} + 64]",
            "vmovups zmm29, zmmword ptr [{factors} + {panel_factors} + 64]",
            rows!(subtract),
            ".endif",
            "add {first}, {group}",
            "add {fourth}, {group}",
            "add {seventh}, {group}",
            "add {quads}, {part_stride}",
            "add {factors}, 2 * {panel_factors}",
            "dec {parts}",
            "jne 2b",
            rows = const $ROWS,
            requests = const REQUESTS,
            halves = const $C::CODING.halves(),
            minima = const $C::CODING.minima() as usize,
            panel_quads = const PANEL_BYTES,
            panel_factors = const $C::CODING.factors() * size_of::<__m512>(),
            group = const size_of::<InputGroup>(),
            start = const offset_of!(InputGroup, start),
            first_start = const offset_of!(InputGroup, first),
            scale = const offset_of!(InputGroup, scale),
            weighted = const offset_of!(InputGroup, weighted),
            constants = sym CONSTANTS,
            stride = in(reg) $place.inputs.stride,
            part_stride = in(reg) $place.part_stride,
            step = in(reg) $place.step,
            first = inout(reg) $place.inputs.first => _,
            fourth = inout(reg) $place.inputs.row(3) => _,
            seventh = inout(reg) $place.inputs.row(6) => _,
            quads = inout(reg) $place.quads => _,
            factors = inout(reg) $place.factors => _,
            parts = inout(reg) $place.parts => _,
            line = inout(reg) $place.line => _,
            $(inout($left) $sums[$row][0], inout($right) $sums[$row][1],)*
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
            out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _, out("zmm12") _,
            out("zmm13") _, out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(readonly, nostack),
        )
    };
}

/// Parts that a tile multiplies.
struct Place {
    /// The rows' first groups.
    inputs: Inputs,
    /// Number of parts, at least 1.
    parts: usize,
    /// Prepared bytes of the first panel; those of the second are [`PANEL_BYTES`] on.
    quads: *const u8,
    /// Bytes from part to part.
    part_stride: usize,
    /// Prepared factors of the first panel's first part, then of the second's.
    factors: *const f32,
    /// Place that the first request asks for, anywhere, and the bytes to the next request's.
    line: *const u8,
    step: usize,
}

/// Adds the products of parts to the sums.
///
/// # Safety
/// As [`prepared_tile`].
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn add_products<C: Code, const ROWS: usize>(sums: &mut [[__m512; GROUP]; ROWS], place: &Place) {
    const { assert!(5 <= ROWS && ROWS <= 7, "tiles of five to seven rows") };
    // SAFETY: the caller vouches for weights and rows; of 7 rows' places those beyond `ROWS` are not read.
    unsafe {
        match ROWS {
            5 => products!(sums place C ROWS: 0 "zmm14" "zmm15", 1 "zmm16" "zmm17", 2 "zmm18" "zmm19",
                3 "zmm20" "zmm21", 4 "zmm22" "zmm23"),
            6 => products!(sums place C ROWS: 0 "zmm14" "zmm15", 1 "zmm16" "zmm17", 2 "zmm18" "zmm19",
                3 "zmm20" "zmm21", 4 "zmm22" "zmm23", 5 "zmm24" "zmm25"),
            _ => products!(sums place C ROWS: 0 "zmm14" "zmm15", 1 "zmm16" "zmm17", 2 "zmm18" "zmm19",
                3 "zmm20" "zmm21", 4 "zmm22" "zmm23", 5 "zmm24" "zmm25", 6 "zmm26" "zmm27"),
        }
    }
}

/// # Safety
/// The processor has AVX-512 with VNNI; the block keeps its promises and has `ROWS` rows, five to seven, and one pair of panels,
/// whose prepared parts are `weights`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn prepared_tile<C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    // SAFETY: every access is inside what the block and its maker promise. What is asked for ahead may lie anywhere.
    unsafe {
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
        let place = Place {
            inputs: Inputs { first: block.input, stride: block.input_stride },
            parts: block.depth / INPUTS,
            quads: weights.bytes,
            part_stride: weights.part_stride,
            factors: weights.factors,
            line: ahead.start,
            step: ahead.step / REQUESTS,
        };
        if place.parts > 0 {
            add_products::<C, ROWS>(&mut sums, &place);
        }
        block.store_sums(0, &sums);
    }
}

/// Reports whether rows meet one panel after the other: few of them wait for weights, which arrive sooner in the order of
/// their places.
const fn in_turns<const ROWS: usize>() -> bool {
    ROWS <= 3
}

/// # Safety
/// The processor has AVX-512 with VNNI; the block keeps its promises and has `ROWS` rows and one pair of panels, which
/// begins with the first part of `weights`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn direct_tile<C: Code, const ROWS: usize>(block: &Block, weights: &Weights, ahead: Ahead) {
    // SAFETY: every access is inside what the block and its maker promise. Four inputs are one word, aligned because rows
    // begin on cache lines and groups take twelve words.
    unsafe {
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
        let mut next = ahead.start;
        let mut input = Inputs { first: block.input, stride: block.input_stride };
        for part in 0..block.depth / INPUTS {
            let panels = [direct::<C>(weights, part, 0), direct::<C>(weights, part, 1)];
            if in_turns::<ROWS>() {
                add::<C, ROWS, 1>(&mut sums, &panels, 0, input, next);
                add::<C, ROWS, 1>(&mut sums, &panels, 1, input, next);
            } else {
                add::<C, ROWS, GROUP>(&mut sums, &panels, 0, input, next);
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
/// As [`direct_tile`].
#[inline(always)]
unsafe fn add<C: Code, const ROWS: usize, const PANELS: usize>(
    sums: &mut [[__m512; GROUP]; ROWS],
    places: &[(*const u8, [__m512; 2]); GROUP],
    first: usize,
    input: Inputs,
    next: *const u8,
) {
    let coding = C::CODING;
    let lines = (coding.block_bytes() / coding.parts()).div_ceil(LINE);
    // SAFETY: the caller's promise.
    unsafe {
        let group = |row: usize| input.row(row).cast::<InputGroup>();
        for half in 0..coding.halves() {
            let mut totals = [[_mm512_setzero_si512(); PANELS]; ROWS];
            for row in 0..ROWS {
                totals[row] = [starts::<C>(&*group(row), half); PANELS];
            }
            let count = QUADS / coding.halves();
            for quad in half * count..(half + 1) * count {
                let turn = first * QUADS + quad * PANELS;
                for line in turn * lines / (GROUP * QUADS)..(turn + PANELS) * lines / (GROUP * QUADS) {
                    stream(next.wrapping_add(line * LINE));
                }
                let mut quads = [_mm512_setzero_si512(); PANELS];
                for panel in 0..PANELS {
                    quads[panel] = quad_of::<C>(places[first + panel].0, quad);
                }
                for row in 0..ROWS {
                    let four = _mm512_set1_epi32(*input.row(row).add(quad * QUAD).cast::<i32>());
                    for panel in 0..PANELS {
                        totals[row][panel] = _mm512_dpbusd_epi32(totals[row][panel], quads[panel], four);
                    }
                }
            }
            for panel in 0..PANELS {
                let factors = &places[first + panel].1;
                let counters = _mm512_mul_ps(factors[half], _mm512_set1_ps(COUNTER));
                for row in 0..ROWS {
                    let sum = &mut sums[row][first + panel];
                    let total = _mm512_castsi512_ps(totals[row][panel]);
                    let product = _mm512_fmsub_ps(total, factors[half], counters);
                    *sum = _mm512_fmadd_ps(product, _mm512_set1_ps((*group(row)).scale), *sum);
                    if coding.minima() {
                        *sum = _mm512_fnmadd_ps(_mm512_set1_ps((*group(row)).weighted), factors[1], *sum);
                    }
                }
            }
        }
    }
}

/// Where a panel's integers of a part begin, as they are packed, and its [`factors`].
///
/// # Safety
/// As [`direct_tile`]; the block has the part.
#[inline(always)]
unsafe fn direct<C: Code>(weights: &Weights, part: usize, panel: usize) -> (*const u8, [__m512; 2]) {
    let coding = C::CODING;
    // SAFETY: the caller vouches for processor and weights.
    unsafe {
        let head = weights.bytes.add(coding.block_offset(part));
        let start = weights.bytes.add(coding.part_offset(part));
        let integers = start.add(coding.scale_bytes() + panel * coding.panel_bytes());
        (integers, factors::<C>(head, start, panel))
    }
}

/// Factors of bytes over which integers are spread: scales of either half, or the scales and the minima.
///
/// # Safety
/// As [`avx512_dequant::factors`].
#[inline(always)]
pub(in crate::linear) unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [__m512; 2] {
    let coding = C::CODING;
    // SAFETY: the caller's promise.
    unsafe {
        let [scales, second] = avx512_dequant::factors::<C>(head, part, panel);
        // Exact, as a power of two is.
        let spread = _mm512_set1_ps(1.0 / (1 << spread_bits(coding)) as f32);
        let scales = _mm512_mul_ps(scales, spread);
        if coding.minima() {
            return [scales, _mm512_fnmadd_ps(scales, _mm512_set1_ps(SHIFT as f32), second)];
        }
        [scales, _mm512_mul_ps(second, spread)]
    }
}

/// Bits by which an integer is moved up in its byte.
const fn spread_bits(coding: Coding) -> usize {
    if coding.bytes() { 0 } else { 4 - coding.upper_bits() }
}

/// Start of the integer sums of a group, or of a half of it, for all outputs.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn starts<C: Code>(group: &InputGroup, half: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let [all, first] = [_mm512_set1_epi32(group.start), _mm512_set1_epi32(group.first)];
        match (C::CODING.halves(), half) {
            (1, _) => all,
            (_, 0) => _mm512_add_epi32(first, _mm512_set1_epi32(ZERO)),
            _ => _mm512_sub_epi32(all, first),
        }
    }
}

/// Four weights of each output of a panel, as bytes over which integers are spread.
///
/// # Safety
/// The processor has AVX-512 F and BW; `integers` points to a panel's part as it is packed.
#[inline(always)]
pub(in crate::linear) unsafe fn quad_of<C: Code>(integers: *const u8, quad: usize) -> __m512i {
    let (coding, bits, spread) = (C::CODING, C::CODING.upper_bits(), spread_bits(C::CODING));
    // SAFETY: the caller vouches for processor and lines.
    unsafe {
        let line = |index: usize| _mm512_loadu_si512(integers.add(index * QUAD_BYTES).cast());
        if coding.bytes() {
            return line(quad);
        }
        let lower = line(coding.upper_bytes() / QUAD_BYTES + quad / 2);
        let lower = match (quad % 2, spread) {
            (0, 4) => _mm512_slli_epi16::<4>(lower),
            (0, 3) => _mm512_slli_epi16::<3>(lower),
            (0, _) => _mm512_slli_epi16::<2>(lower),
            (_, 4) => lower,
            (_, 3) => _mm512_srli_epi16::<1>(lower),
            _ => _mm512_srli_epi16::<2>(lower),
        };
        let lower = _mm512_and_si512(lower, _mm512_set1_epi8((15 << spread) as i8));
        if bits == 0 {
            return lower;
        }
        let (upper, shift) = (line(quad * bits / 8), 8 - bits as i32 - (quad * bits % 8) as i32);
        let upper = if shift >= 0 {
            _mm512_sll_epi16(upper, _mm_cvtsi32_si128(shift))
        } else {
            _mm512_srl_epi16(upper, _mm_cvtsi32_si128(-shift))
        };
        _mm512_or_si512(lower, _mm512_and_si512(upper, _mm512_set1_epi8((255 << (8 - bits)) as i8)))
    }
}
