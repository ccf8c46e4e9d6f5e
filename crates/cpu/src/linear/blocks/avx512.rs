//! Blocks with bf16 dot products, and their unpacking on every tier with AVX-512.
//!
//! Few rows are multiplied as the weights leave their registers; for more, panels are unpacked once and read again by
//! all tiles of rows. Both take the same numbers in the same order: a row has the same bits on either way.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks, panels and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256i, __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256,
        _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtne2ps_pbh,
        _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutex2var_ps,
        _mm512_permutexvar_ps, _mm512_rol_epi32, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setr_epi32, _mm512_setr_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_srli_epi32,
        _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps, _mm512_ternarylogic_epi32,
    },
    ops::Range,
};

use super::{
    Code, Coding, Q4K, Q5_0, Q5K, Q6K,
    kernels::{self, Unpack, of},
};
use crate::linear::{
    amx, avx512,
    avx512_widened::round_bf16,
    kernel::{Block, Kernel, TileFn},
    packed::{GROUP, PANEL},
    quantised::INPUTS,
};

/// Multiplied as they are unpacked, where rows are few.
pub(super) const DIRECT: [Kernel; Coding::ALL.len()] = [
    direct::<Q5_0>("avx512bf16_bf16xq5_0_f32"),
    direct::<Q4K>("avx512bf16_bf16xq4_k_f32"),
    direct::<Q5K>("avx512bf16_bf16xq5_k_f32"),
    direct::<Q6K>("avx512bf16_bf16xq6_k_f32"),
];

const fn direct<C: Code>(name: &'static str) -> Kernel {
    Kernel { accumulate: accumulate::<C>, ..of::<Pairs, C>(name) }
}

/// Unpacks for dot products of pairs.
struct Pairs;
/// Unpacks for tile products, whose tier includes these instructions.
pub(super) struct Amx;
/// Unpacks to f32 rounded to bf16.
pub(super) struct Rounded;
/// Unpacks to f32.
pub(super) struct Wide;

impl Unpack for Pairs {
    const KERNEL: Kernel = avx512::BF16_PAIRS;

    unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<C>(start, parts, panels, stride) }
    }
}

impl Unpack for Amx {
    const KERNEL: Kernel = amx::BF16;

    unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<C>(start, parts, panels, stride) }
    }
}

impl Unpack for Rounded {
    const KERNEL: Kernel = avx512::ROUNDED_F32;

    unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack_wide::<C, true>(start, parts, panels, stride) }
    }
}

impl Unpack for Wide {
    const KERNEL: Kernel = avx512::F32;

    unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack_wide::<C, false>(start, parts, panels, stride) }
    }
}

/// Rows up to which weights are multiplied as they are unpacked: one tile. More would leave no registers.
const DIRECT_ROWS: usize = 8;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<C: Code>(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe {
        if block.rows > DIRECT_ROWS {
            kernels::accumulate::<Pairs, C>(block);
        } else {
            block.for_tiles(&Tiles::<C>::ALL, 1);
        }
    }
}

/// The tiles of a coding.
struct Tiles<C>(std::marker::PhantomData<C>);

impl<C: Code> Tiles<C> {
    const ALL: [TileFn; DIRECT_ROWS] = [
        tile::<C, 1>,
        tile::<C, 2>,
        tile::<C, 3>,
        tile::<C, 4>,
        tile::<C, 5>,
        tile::<C, 6>,
        tile::<C, 7>,
        tile::<C, 8>,
    ];
}

/// # Safety
/// The processor has AVX-512 with bf16 dot products; the block keeps its promises and has `ROWS` rows and one pair of
/// panels in blocks of the coding.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<C: Code, const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises. A pair of inputs is one word, aligned because rows begin
    // on cache lines. The two register types are the same 64 bytes.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); GROUP]; ROWS];
        for row in 0..ROWS {
            for panel in 0..GROUP {
                sums[row][panel] = _mm512_loadu_ps(block.sums.add(row * block.sums_stride + panel * PANEL));
            }
        }
        let mut input = block.input.cast::<i32>();
        for part in 0..block.depth / INPUTS {
            let mut panels = [Numbers::<C>::new(block.weight, part, 0), Numbers::<C>::new(block.weight, part, 1)];
            for line in 0..LINES {
                panels[0].load(line);
                panels[1].load(line);
                for _ in 0..PAIRS {
                    let weights = [panels[0].next(), panels[1].next()];
                    for row in 0..ROWS {
                        let pair = _mm512_set1_epi32(*input.byte_add(row * block.input_stride));
                        let pair = std::mem::transmute::<__m512i, __m512bh>(pair);
                        for panel in 0..GROUP {
                            sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], pair, weights[panel]);
                        }
                    }
                    input = input.add(1);
                }
            }
        }
        for row in 0..ROWS {
            for panel in 0..GROUP {
                _mm512_storeu_ps(block.sums.add(row * block.sums_stride + panel * PANEL), sums[row][panel]);
            }
        }
    }
}

/// # Safety
/// As [`Unpack::unpack`], on a processor that has AVX-512 with bf16 conversions.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
    for (index, part) in parts.enumerate() {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for blocks and panels.
            unsafe {
                let mut out = panels.add(panel * stride + index * INPUTS * PANEL * 2).cast::<__m512i>();
                let mut numbers = Numbers::<C>::new(start, part, panel);
                for line in 0..LINES {
                    numbers.load(line);
                    for _ in 0..PAIRS {
                        _mm512_storeu_si512(out, std::mem::transmute::<__m512bh, __m512i>(numbers.next()));
                        out = out.add(1);
                    }
                }
            }
        }
    }
}

/// Unpacks to panels of f32, rounded to bf16 if `ROUND`.
///
/// # Safety
/// As [`Unpack::unpack`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack_wide<C: Code, const ROUND: bool>(
    start: *const u8,
    parts: Range<usize>,
    panels: *mut u8,
    stride: usize,
) {
    for (index, part) in parts.enumerate() {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for blocks and panels.
            unsafe {
                let mut out = panels.add(panel * stride + index * INPUTS * PANEL * 4).cast::<f32>();
                let mut numbers = Numbers::<C>::new(start, part, panel);
                for line in 0..LINES {
                    numbers.load(line);
                    for _ in 0..PAIRS {
                        for weights in parted(numbers.weights()) {
                            _mm512_storeu_ps(out, if ROUND { round_bf16(weights) } else { weights });
                            out = out.add(PANEL);
                        }
                    }
                }
            }
        }
    }
}

/// Lines of lower bits in a panel's part.
const LINES: usize = 4;
/// Bytes ahead of what is read that the caches are told of what comes next: more than the processor looks ahead itself.
const AHEAD: usize = 4 << 10;
/// Pairs of inputs in each.
const PAIRS: usize = INPUTS / 2 / LINES;

/// One panel's part of a block, on its way to bf16.
struct Numbers<C> {
    /// The next line of lower bits.
    lower: *const u8,
    /// The next line of upper bits.
    upper: *const u8,
    /// The words of a line, shifted to what comes next.
    words: __m512i,
    /// Words of upper bits: the next ones begin at bit 4.
    upper_words: __m512i,
    /// Scales of lanes 0 to 7 and 8 to 15, each twice: for both inputs of a pair.
    scales: [__m512; 2],
    /// Scales of the second half of the inputs.
    second: [__m512; 2],
    /// Minima, where there are any.
    minima: [__m512; 2],
    code: std::marker::PhantomData<C>,
}

/// Each lane twice, lanes 0 to 7 and 8 to 15.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn twice(lanes: __m512) -> [__m512; 2] {
    let low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    let high = _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
    [_mm512_permutexvar_ps(low, lanes), _mm512_permutexvar_ps(high, lanes)]
}

impl<C: Code> Numbers<C> {
    /// # Safety
    /// `start` points to blocks of a pair of panels with part `part`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn new(start: *const u8, part: usize, panel: usize) -> Self {
        let coding = C::CODING;
        // SAFETY: the block begins with its halves, the part with its scales; the panels' integers follow.
        unsafe {
            let block = start.add(part / coding.parts() * coding.block_bytes());
            let bytes = start.add(coding.part_offset(part));
            let upper = bytes.add(coding.scale_bytes() + panel * coding.panel_bytes());
            let halves = |which: usize| {
                let start = block.add((which * GROUP + panel) * PANEL * 2);
                _mm512_cvtph_ps(_mm256_loadu_si256(start.cast::<__m256i>()))
            };
            let scales = |which: usize| _mm_loadu_si128(bytes.add((panel * 2 + which) * PANEL).cast::<__m128i>());
            let unsigned = |bytes: __m128i| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
            let signed = |bytes: __m128i| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            let (first, second, minima) = if coding.minima() {
                let first = _mm512_mul_ps(halves(0), unsigned(scales(0)));
                (first, first, _mm512_mul_ps(halves(1), unsigned(scales(1))))
            } else if coding.part_scales() {
                let of_scales = halves(0);
                let [first, second] = [0, 1].map(|which| _mm512_mul_ps(of_scales, signed(scales(which))));
                (first, second, _mm512_setzero_ps())
            } else {
                (halves(0), halves(0), _mm512_setzero_ps())
            };
            Self {
                lower: upper.add(coding.upper_bytes()),
                upper,
                words: _mm512_setzero_si512(),
                upper_words: _mm512_setzero_si512(),
                scales: twice(first),
                second: twice(second),
                minima: twice(minima),
                code: std::marker::PhantomData,
            }
        }
    }

    /// Loads line `line` of lower bits and what belongs to it.
    ///
    /// # Safety
    /// The panel's part of the block has the line, and those before it were loaded.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn load(&mut self, line: usize) {
        let bits = C::CODING.upper_bits();
        // SAFETY: the caller's promise; a line of upper bits goes with `4 / bits` lines of lower ones.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(self.lower.wrapping_add(AHEAD).cast());
            self.words = _mm512_loadu_si512(self.lower.cast());
            self.lower = self.lower.add(64);
            if bits > 0 && (line * bits).is_multiple_of(LINES) {
                self.upper_words = _mm512_rol_epi32::<4>(_mm512_loadu_si512(self.upper.cast()));
                self.upper = self.upper.add(64);
            }
        }
        if line == LINES / 2 {
            self.scales = self.second;
        }
    }

    /// Sixteen integers as f32, their middle taken away.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn sixteen(&mut self) -> __m512 {
        /// Bits of the first operand choose those of the second or of the third.
        const CHOOSE: i32 = 0xca;
        /// The first two operands' common bits, and the third.
        const AND_OR: i32 = 0xea;
        let (middle, bits) = (f32::from(C::CODING.middle()), C::CODING.upper_bits());
        let low = _mm512_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0);
        let low = _mm512_sub_ps(low, _mm512_set1_ps(middle));
        let numbers = match bits {
            // Permutations look at the lowest four or five bits alone.
            0 => _mm512_permutexvar_ps(self.words, low),
            1 => {
                let high = _mm512_sub_ps(low, _mm512_set1_ps(-16.0));
                let fives = _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_set1_epi32(16), self.upper_words, self.words);
                _mm512_permutex2var_ps(low, fives, high)
            }
            _ => {
                // In the last bits of 2^23, which are its units.
                let sixes = _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_set1_epi32(48), self.upper_words, self.words);
                let large = _mm512_set1_epi32(0x4b00_0000);
                let sixes = _mm512_ternarylogic_epi32::<AND_OR>(sixes, _mm512_set1_epi32(63), large);
                _mm512_sub_ps(_mm512_castsi512_ps(sixes), _mm512_set1_ps(8_388_608.0 + middle))
            }
        };
        self.words = _mm512_srli_epi32::<4>(self.words);
        self.upper_words = match bits {
            0 => self.upper_words,
            1 => _mm512_ror_epi32::<1>(self.upper_words),
            _ => _mm512_ror_epi32::<2>(self.upper_words),
        };
        numbers
    }

    /// The weights of a pair of inputs, in the order of bf16 pairs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn weights(&mut self) -> [__m512; 2] {
        let [low, high] = [self.sixteen(), self.sixteen()];
        let (low, high) = (_mm512_mul_ps(low, self.scales[0]), _mm512_mul_ps(high, self.scales[1]));
        if C::CODING.minima() {
            [_mm512_sub_ps(low, self.minima[0]), _mm512_sub_ps(high, self.minima[1])]
        } else {
            [low, high]
        }
    }

    /// Returns the next numbers rounded to bf16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn next(&mut self) -> __m512bh {
        let [low, high] = self.weights();
        _mm512_cvtne2ps_pbh(high, low)
    }
}

/// The weights of a pair of inputs out of the order of bf16 pairs: those of the first input, those of the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn parted([low, high]: [__m512; 2]) -> [__m512; 2] {
    let first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let second = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    [_mm512_permutex2var_ps(low, first, high), _mm512_permutex2var_ps(low, second, high)]
}
