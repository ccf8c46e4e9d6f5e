//! AVX-512: integers, and bf16 where it is multiplied in f32, on their way to products.
//!
//! Few rows are multiplied as the weights leave their registers; for more, panels are unpacked once and read again by
//! all tiles of rows. Both take the same numbers in the same order: a row has the same bits on either way.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks, panels and sums begin on cache lines; elements follow each other"
)]

use std::{
    arch::x86_64::{
        __m128i, __m256i, __m512, __m512bh, __m512i, _CMP_UNORD_Q, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch,
        _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps,
        _mm512_cmp_ps_mask, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtne2ps_pbh,
        _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mask_add_epi32,
        _mm512_mask_mov_ps, _mm512_mul_ps, _mm512_permutex2var_ps, _mm512_permutexvar_epi16, _mm512_permutexvar_ps,
        _mm512_rol_epi32, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_ps, _mm512_setzero_si512,
        _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps,
        _mm512_ternarylogic_epi32, _mm512_test_epi32_mask,
    },
    marker::PhantomData,
};

use super::{
    avx512,
    int8::{QUAD, QUAD_BYTES, QUADS},
    integers::{Code, Coding, INPUTS, codings},
    kernel::{Block, Kernel, LINE, TileFn, tiles},
    packed::{GROUP, PANEL, WeightFormat},
    unpacked::{self, Dequant, Pair, unpacks},
};

/// bf16 inputs, weights of bf16.
pub(super) const BF16: Kernel = Kernel {
    name: "avx512_bf16xbf16_f32",
    weight: WeightFormat::Bf16Pairs,
    accumulate: accumulate::<Rounded, Bf16>,
    ..avx512::ROUNDED_F32
};
/// bf16 inputs, integers widened to f32.
pub(super) const ROUNDED: [Kernel; Coding::ALL.len()] = codings!(direct::<Rounded>, "avx512_bf16");
/// bf16 inputs, integers for dot products of pairs.
pub(super) const PAIRS: [Kernel; Coding::ALL.len()] = codings!(direct::<Pairs>, "avx512bf16_bf16");

unpacks!(Exact: avx512::F32, __m512, Integers<C, false>, store_f32, "avx512f,avx512bw,avx512dq,avx512vl");
unpacks!(Rounded: avx512::ROUNDED_F32, __m512, Integers<C, true>, store_f32, "avx512f,avx512bw,avx512dq,avx512vl");
unpacks!(Pairs:
    avx512::BF16_PAIRS, __m512, Integers<C, false>, store_pairs, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16");

/// # Safety
/// The processor has AVX-512; there is room at `out`.
#[inline(always)]
unsafe fn store_f32(weights: [__m512; 2], out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_storeu_ps(out.cast(), weights[0]);
        _mm512_storeu_ps(out.cast::<f32>().add(PANEL), weights[1]);
    }
}

/// # Safety
/// The processor has AVX-512 with bf16 conversions; there is room at `out`.
#[inline(always)]
unsafe fn store_pairs(weights: [__m512; 2], out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { _mm512_storeu_si512(out.cast(), pairs(weights)) }
}

/// The weights of two inputs as bf16 pairs.
///
/// # Safety
/// The processor has AVX-512 with bf16 conversions.
#[inline(always)]
unsafe fn pairs([first, second]: [__m512; 2]) -> __m512i {
    /// Numbers of both inputs in turns.
    static TURNS: [u16; 2 * PANEL] = {
        let mut turns = [0; 2 * PANEL];
        let mut lane = 0;
        while lane < PANEL {
            (turns[2 * lane], turns[2 * lane + 1]) = (lane as u16, (PANEL + lane) as u16);
            lane += 1;
        }
        turns
    };
    // SAFETY: the caller's promise; the register types are the same 64 bytes.
    unsafe {
        let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(TURNS.as_ptr().cast()), both)
    }
}

/// Rows up to which weights are multiplied as they are unpacked: one tile. More would leave no registers.
const DIRECT_ROWS: usize = 8;

/// A way to unpack whose kernel's products can take weights from registers.
trait Direct: unpacked::Unpack<Vector = __m512> {
    /// Tiles of each number of rows.
    fn tiles<D: Dequant<__m512>>() -> [TileFn; DIRECT_ROWS];

    /// Adds the products of four inputs of each row, `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; `input` points to four inputs in each of `ROWS` rows.
    #[expect(clippy::large_types_passed_by_value, reason = "they are registers: nothing is called")]
    unsafe fn add<const ROWS: usize>(
        sums: &mut [[__m512; GROUP]; ROWS],
        weights: [[__m512; QUAD]; GROUP],
        input: *const u8,
        stride: usize,
    );
}

/// Compiles the tiles of a way to unpack with its instructions.
macro_rules! tiles_of {
    ($name:ty, $features:literal) => {
        fn tiles<D: Dequant<__m512>>() -> [TileFn; DIRECT_ROWS] {
            /// # Safety
            /// As [`tile`].
            #[target_feature(enable = $features)]
            unsafe fn compiled<D: Dequant<__m512>, const ROWS: usize>(block: &Block) {
                // SAFETY: the caller's promise.
                unsafe { tile::<$name, D, ROWS>(block) }
            }
            tiles!((compiled, D): 1 2 3 4 5 6 7 8)
        }
    };
}

impl Direct for Rounded {
    tiles_of!(Rounded, "avx512f,avx512bw,avx512dq,avx512vl");

    #[inline(always)]
    unsafe fn add<const ROWS: usize>(
        sums: &mut [[__m512; GROUP]; ROWS],
        weights: [[__m512; QUAD]; GROUP],
        input: *const u8,
        stride: usize,
    ) {
        for k in 0..QUAD {
            for row in 0..ROWS {
                // SAFETY: the caller vouches for processor and rows.
                unsafe {
                    let x = _mm512_set1_ps(*input.add(row * stride).cast::<f32>().add(k));
                    for panel in 0..GROUP {
                        sums[row][panel] = _mm512_fmadd_ps(x, weights[panel][k], sums[row][panel]);
                    }
                }
            }
        }
    }
}

impl Direct for Pairs {
    tiles_of!(Pairs, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16");

    #[inline(always)]
    unsafe fn add<const ROWS: usize>(
        sums: &mut [[__m512; GROUP]; ROWS],
        weights: [[__m512; QUAD]; GROUP],
        input: *const u8,
        stride: usize,
    ) {
        for pair in 0..QUAD / 2 {
            // SAFETY: the caller vouches for processor and rows. A pair of inputs is one word, aligned because rows
            // begin on cache lines. The two register types are the same 64 bytes.
            unsafe {
                let of = |panel: usize| {
                    let pairs = pairs([weights[panel][2 * pair], weights[panel][2 * pair + 1]]);
                    std::mem::transmute::<__m512i, __m512bh>(pairs)
                };
                let weights = [of(0), of(1)];
                for row in 0..ROWS {
                    let x = _mm512_set1_epi32(*input.add(row * stride).cast::<i32>().add(pair));
                    let x = std::mem::transmute::<__m512i, __m512bh>(x);
                    for panel in 0..GROUP {
                        sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], x, weights[panel]);
                    }
                }
            }
        }
    }
}

/// The kernel for weights of a coding, few rows of which are multiplied directly.
const fn direct<U: Direct, C: Code>(name: &'static str) -> Kernel {
    Kernel { accumulate: accumulate::<U, U::Integers<C>>, ..unpacked::kernel::<U, C>(name) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<U: Direct, D: Dequant<__m512>>(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe {
        if block.rows > DIRECT_ROWS {
            unpacked::accumulate::<U, D>(block);
        } else {
            block.for_tiles(&U::tiles::<D>(), 1);
        }
    }
}

/// # Safety
/// The processor has the tier that the kernel executes; the block keeps its promises and has `ROWS` rows and one pair of
/// panels of the weights' layout.
#[inline(always)]
unsafe fn tile<U: Direct, D: Dequant<__m512>, const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises.
    unsafe {
        let mut sums = block.load_sums::<__m512, ROWS, GROUP>(0);
        let pair = Pair { start: block.weight, stride: block.panel_stride };
        for part in 0..block.depth / INPUTS {
            let mut panels = [D::new(pair, part, 0), D::new(pair, part, 1)];
            let input = block.input.add(U::KERNEL.input.offset(part * INPUTS));
            for two in (0..QUADS).step_by(2) {
                for quad in [two, two + 1] {
                    let weights = [panels[0].next(quad), panels[1].next(quad)];
                    U::add(&mut sums, weights, input.add(U::KERNEL.input.offset(quad * QUAD)), block.input_stride);
                }
            }
        }
        block.store_sums(0, &sums);
    }
}

/// Distance in bytes between reads and prefetches: more than the processor looks ahead itself.
const AHEAD: usize = 2 << 10;

/// Loads a line, and fetches one that comes later. A core can wait for no more than a dozen or so lines at once: asked for
/// one by one they arrive while it multiplies, asked for together they make it wait.
///
/// # Safety
/// The processor has AVX-512; the line is readable.
#[inline(always)]
unsafe fn load(line: *const u8) -> __m512i {
    fetch_ahead(line);
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(line.cast()) }
}

/// Fetches the line that is read so much after `line`.
#[inline(always)]
pub(super) fn fetch_ahead(line: *const u8) {
    // SAFETY: a prefetch reads nothing, wherever it points.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AHEAD).cast()) }
}

/// Weights of bf16.
struct Bf16 {
    start: *const u8,
}

impl Dequant<__m512> for Bf16 {
    fn offset(part: usize) -> usize {
        WeightFormat::Bf16Pairs.offset(part * INPUTS)
    }

    #[inline(always)]
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self {
        // SAFETY: the caller vouches for the panel.
        Self { start: unsafe { pair.start.add(panel * pair.stride + Self::offset(part)) } }
    }

    #[inline(always)]
    unsafe fn next(&mut self, quad: usize) -> [__m512; QUAD] {
        // SAFETY: the caller vouches for processor and weights.
        unsafe {
            // Not neighbours, of which processors fetch one with the other.
            for line in [quad, quad + QUADS] {
                _mm_prefetch::<_MM_HINT_T0>(self.start.wrapping_add(AHEAD + line * LINE).cast());
            }
            let line = self.start.cast::<__m512i>().add(2 * quad);
            let (first, second) = (_mm512_loadu_si512(line), _mm512_loadu_si512(line.add(1)));
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            [
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(first)),
                _mm512_castsi512_ps(_mm512_and_si512(first, upper)),
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(second)),
                _mm512_castsi512_ps(_mm512_and_si512(second, upper)),
            ]
        }
    }
}

/// Integers of a coding, rounded to bf16 if `ROUND`.
pub(super) struct Integers<C, const ROUND: bool> {
    /// The next line of lower bits, or of bytes.
    lower: *const u8,
    /// The next line of upper bits.
    upper: *const u8,
    /// A line, shifted to what comes next.
    words: __m512i,
    /// A line of upper bits: the next ones begin at bit 4 of each byte.
    upper_words: __m512i,
    scales: __m512,
    /// Scales of the second half of the inputs, or minima.
    second: __m512,
    code: PhantomData<C>,
}

impl<C: Code, const ROUND: bool> Dequant<__m512> for Integers<C, ROUND> {
    #[inline(always)]
    fn offset(part: usize) -> usize {
        C::CODING.part_offset(part)
    }

    #[inline(always)]
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self {
        let coding = C::CODING;
        // SAFETY: the caller vouches for the processor and the part.
        unsafe {
            let [head, part, upper] = pair.places::<C>(part, panel);
            let [scales, second] = factors::<C>(head, part, panel);
            Self {
                lower: upper.add(coding.upper_bytes()),
                upper,
                words: _mm512_setzero_si512(),
                upper_words: _mm512_setzero_si512(),
                scales,
                second,
                code: PhantomData,
            }
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, quad: usize) -> [__m512; QUAD] {
        /// Bits of the first operand choose those of the second or of the third.
        const CHOOSE: i32 = 0xca;
        let (coding, bits) = (C::CODING, C::CODING.upper_bits());
        // SAFETY: the caller vouches for the processor and the lines; one of upper bits goes with `8 / bits` quads.
        unsafe {
            if coding.bytes() || quad.is_multiple_of(2) {
                self.words = load(self.lower);
                self.lower = self.lower.add(QUAD_BYTES);
            }
            if bits > 0 && (quad * bits).is_multiple_of(8) {
                self.upper_words = _mm512_rol_epi32::<4>(load(self.upper));
                self.upper = self.upper.add(QUAD_BYTES);
            }
            if coding.halves() == 2 && quad == QUADS / 2 {
                self.scales = self.second;
            }
            let words = match bits {
                0 => self.words,
                1 => _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_set1_epi32(0x1010_1010), self.upper_words, self.words),
                _ => _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_set1_epi32(0x3030_3030), self.upper_words, self.words),
            };
            self.words = _mm512_srli_epi32::<4>(self.words);
            self.upper_words = match bits {
                0 => self.upper_words,
                1 => _mm512_ror_epi32::<1>(self.upper_words),
                _ => _mm512_ror_epi32::<2>(self.upper_words),
            };
            [
                self.weights(words),
                self.weights(_mm512_srli_epi32::<8>(words)),
                self.weights(_mm512_srli_epi32::<16>(words)),
                self.weights(_mm512_srli_epi32::<24>(words)),
            ]
        }
    }
}

impl<C: Code, const ROUND: bool> Integers<C, ROUND> {
    /// Weights of the integers in the lowest bits of words.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn weights(&self, words: __m512i) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let product = _mm512_mul_ps(integers::<C>(words), self.scales);
            let weights = if C::CODING.minima() { _mm512_sub_ps(product, self.second) } else { product };
            if ROUND { round_bf16(weights) } else { weights }
        }
    }
}

/// Integers in the lowest bits of words as f32, their middle taken away.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn integers<C: Code>(words: __m512i) -> __m512 {
    /// The first two operands' common bits, and the third.
    const AND_OR: i32 = 0xea;
    let (middle, bits) = (C::CODING.middle() as f32, C::CODING.upper_bits());
    // SAFETY: the caller's promise.
    unsafe {
        if C::CODING.bytes() || bits == 2 {
            // In the last bits of 2^23, which are its units.
            let mask = _mm512_set1_epi32(if bits == 2 { 63 } else { 255 });
            let large = _mm512_ternarylogic_epi32::<AND_OR>(words, mask, _mm512_set1_epi32(0x4b00_0000));
            return _mm512_sub_ps(_mm512_castsi512_ps(large), _mm512_set1_ps(8_388_608.0 + middle));
        }
        // Permutations look at the lowest four or five bits alone.
        let low = _mm512_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0);
        let low = _mm512_sub_ps(low, _mm512_set1_ps(middle));
        if bits == 0 {
            _mm512_permutexvar_ps(words, low)
        } else {
            _mm512_permutex2var_ps(low, words, _mm512_sub_ps(low, _mm512_set1_ps(-16.0)))
        }
    }
}

/// Scales of the inputs of a panel in the part at `part`, of the block at `head`; then the scales of their second half, or the
/// minima, where there are any.
///
/// # Safety
/// The processor has AVX-512; both are a pair's.
#[inline(always)]
pub(super) unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [__m512; 2] {
    let coding = C::CODING;
    // SAFETY: the caller vouches for the processor, the block, which begins with its halves, and the part, which begins
    // with its scales.
    unsafe {
        let halves = |which: usize| {
            let start = head.add((which * GROUP + panel) * PANEL * 2);
            plain(_mm512_cvtph_ps(_mm256_loadu_si256(start.cast::<__m256i>())))
        };
        let scales = |which: usize| _mm_loadu_si128(part.add((panel * 2 + which) * PANEL).cast::<__m128i>());
        if coding.minima() && !coding.part_scales() {
            [halves(0), halves(1)]
        } else if coding.minima() {
            let [first, minima] = [_mm512_cvtepu8_epi32(scales(0)), _mm512_cvtepu8_epi32(scales(1))];
            let scales = _mm512_mul_ps(halves(0), _mm512_cvtepi32_ps(first));
            [scales, _mm512_mul_ps(halves(1), _mm512_cvtepi32_ps(minima))]
        } else if coding.part_scales() {
            let [first, second] = [_mm512_cvtepi8_epi32(scales(0)), _mm512_cvtepi8_epi32(scales(1))];
            let halves = halves(0);
            [_mm512_mul_ps(halves, _mm512_cvtepi32_ps(first)), _mm512_mul_ps(halves, _mm512_cvtepi32_ps(second))]
        } else {
            [halves(0); 2]
        }
    }
}

/// The plainest NaN for each: rounding to bf16 by addition leaves no other a NaN.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn plain(values: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
        _mm512_mask_mov_ps(values, nan, _mm512_set1_ps(f32::NAN))
    }
}

/// Rounds to bf16, ties to even.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn round_bf16(values: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(values);
        let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
        let bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
        let bits = _mm512_mask_add_epi32(bits, odd, bits, _mm512_set1_epi32(1));
        _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0xffff_0000_u32 as i32)))
    }
}
