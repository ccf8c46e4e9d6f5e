//! AVX-512 without bf16 products: weights of few bits are widened to f32 on their way.
//!
//! Few rows are multiplied as the weights leave their registers; for more, panels are unpacked once and read again by
//! all tiles of rows. Both take the same numbers in the same order: a row has the same bits on either way.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _CMP_UNORD_Q, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32,
    _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi16_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_epi32,
    _mm512_mask_mov_ps, _mm512_mul_ps, _mm512_permutexvar_epi32, _mm512_permutexvar_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setr_epi32, _mm512_setr_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32,
    _mm512_srai_epi32, _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_storeu_ps, _mm512_test_epi32_mask,
};

use super::{
    avx512,
    kernel::{Block, Kernel, LINE, TileFn},
    packed::{GROUP, PANEL},
    quantised::{INPUTS, SCALES},
    unpacked::{self, Pair, Unpack},
};

/// f32 inputs, integers of 8 bits.
pub(super) const F32_Q8: Kernel =
    Kernel { accumulate: accumulate::<Exact, 8>, ..unpacked::kernel::<Exact, 8>("avx512_f32xq8_f32") };
/// f32 inputs, integers of 4 bits.
pub(super) const F32_Q4: Kernel =
    Kernel { accumulate: accumulate::<Exact, 4>, ..unpacked::kernel::<Exact, 4>("avx512_f32xq4_f32") };
/// bf16 inputs, weights of bf16.
pub(super) const BF16: Kernel =
    Kernel { accumulate: accumulate::<Rounded, 16>, ..unpacked::kernel::<Rounded, 16>("avx512_bf16xbf16_f32") };
/// bf16 inputs, integers of 8 bits.
pub(super) const BF16_Q8: Kernel =
    Kernel { accumulate: accumulate::<Rounded, 8>, ..unpacked::kernel::<Rounded, 8>("avx512_bf16xq8_f32") };
/// bf16 inputs, integers of 4 bits.
pub(super) const BF16_Q4: Kernel =
    Kernel { accumulate: accumulate::<Rounded, 4>, ..unpacked::kernel::<Rounded, 4>("avx512_bf16xq4_f32") };

/// Records whether quantised weights are rounded to bf16.
trait Widen: Unpack {
    const ROUND: bool;
}

/// Weights without rounding.
struct Exact;
/// Rounded.
struct Rounded;

impl Widen for Exact {
    const ROUND: bool = false;
}

impl Widen for Rounded {
    const ROUND: bool = true;
}

impl Unpack for Exact {
    const KERNEL: Kernel = avx512::F32;

    unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<Self, BITS>(from, count, to) }
    }
}

impl Unpack for Rounded {
    const KERNEL: Kernel = avx512::ROUNDED_F32;

    unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<Self, BITS>(from, count, to) }
    }
}

/// Rows up to which weights are multiplied as they are widened: as many as leave registers for that.
const DIRECT: usize = 8;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<W: Widen, const BITS: usize>(block: &Block) {
    /// # Safety
    /// As [`tile`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run<W: Widen, const BITS: usize, const ROWS: usize>(block: &Block) {
        // SAFETY: the caller's promise.
        unsafe { tile::<W, BITS, ROWS>(block) }
    }
    // SAFETY: the caller vouches for the processor and the block.
    unsafe {
        if block.rows > DIRECT {
            unpacked::accumulate::<W, BITS>(block);
        } else {
            let tiles: [TileFn; DIRECT] = [
                run::<W, BITS, 1>,
                run::<W, BITS, 2>,
                run::<W, BITS, 3>,
                run::<W, BITS, 4>,
                run::<W, BITS, 5>,
                run::<W, BITS, 6>,
                run::<W, BITS, 7>,
                run::<W, BITS, 8>,
            ];
            block.for_tiles(&tiles, 1);
        }
    }
}

/// # Safety
/// The processor has AVX-512; the block keeps its promises and has `ROWS` rows and one pair of panels of weights of
/// `BITS` bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<W: Widen, const BITS: usize, const ROWS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); GROUP]; ROWS];
        for row in 0..ROWS {
            for panel in 0..GROUP {
                sums[row][panel] = _mm512_loadu_ps(block.sums.add(row * block.sums_stride + panel * PANEL));
            }
        }
        let mut input = block.input.cast::<f32>();
        let pair = Pair { start: block.weight, stride: block.panel_stride };
        for index in 0..block.depth / INPUTS {
            let mut panels = [Weights::<BITS>::new(pair, index, 0), Weights::<BITS>::new(pair, index, 1)];
            for step in 0..INPUTS / 2 {
                fetch::<BITS>(block, index, step);
                let weights = [panels[0].next::<W>(step), panels[1].next::<W>(step)];
                for half in 0..2 {
                    for row in 0..ROWS {
                        let x = _mm512_set1_ps(*input.byte_add(row * block.input_stride));
                        for panel in 0..GROUP {
                            sums[row][panel] = _mm512_fmadd_ps(x, weights[panel][half], sums[row][panel]);
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

/// Fetches its share of as much ahead as 32 inputs take. A core can wait for no more than a dozen or so lines at once:
/// asked for one by one they arrive while it multiplies, asked for together they make it wait.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch<const BITS: usize>(block: &Block, index: usize, step: usize) {
    let bytes = unpacked::weight_format(BITS).offset(INPUTS);
    for ahead in &block.ahead[..if BITS == 16 { GROUP } else { 1 }] {
        for line in (step..bytes.div_ceil(LINE)).step_by(INPUTS / 2) {
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(index * bytes + line * LINE).cast());
        }
    }
}

/// # Safety
/// As [`Unpack::unpack`], on a processor that has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn unpack<W: Widen, const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
    for index in 0..count {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for both.
            unsafe {
                let mut out = to.start.add(panel * to.stride + index * INPUTS * PANEL * 4).cast::<f32>();
                let mut weights = Weights::<BITS>::new(from, index, panel);
                for step in 0..INPUTS / 2 {
                    for sixteen in weights.next::<W>(step) {
                        _mm512_storeu_ps(out, sixteen);
                        out = out.add(PANEL);
                    }
                }
            }
        }
    }
}

/// Steps whose integers of four bits stand in one line.
const LINE_STEPS: usize = 4;

/// 32 inputs of a panel, on their way to f32.
struct Weights<const BITS: usize> {
    /// Address of the first weight.
    start: *const u8,
    /// Four bits: words of a line with the first and with the second input of each pair, shifted to what comes next.
    words: [__m512i; 2],
    /// Integers: scales of the lanes.
    scales: __m512,
}

impl<const BITS: usize> Weights<BITS> {
    /// # Safety
    /// `from` points to a pair of panels with 32 inputs of number `index`; the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn new(from: Pair<*const u8>, index: usize, panel: usize) -> Self {
        let words = [_mm512_setzero_si512(); 2];
        // SAFETY: the caller vouches for the panels. A block begins with its scales; the panels' integers follow.
        unsafe {
            let block = from.start.add(index * unpacked::weight_format(BITS).offset(INPUTS));
            if BITS == 16 {
                return Self { start: block.add(panel * from.stride), words, scales: _mm512_setzero_ps() };
            }
            let scales = _mm512_cvtph_ps(_mm256_loadu_si256(block.add(panel * PANEL * 2).cast::<__m256i>()));
            // Rounding by addition leaves only the plainest NaN a NaN.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(scales, scales);
            let scales = _mm512_mask_mov_ps(scales, nan, _mm512_set1_ps(f32::NAN));
            Self { start: block.add(SCALES + panel * INPUTS * PANEL * BITS / 8), words, scales }
        }
    }

    /// The weights of pair `step` of the inputs; called for all in ascending order.
    ///
    /// # Safety
    /// `step` is less than 16; the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn next<W: Widen>(&mut self, step: usize) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        let values = unsafe {
            match BITS {
                16 => return self.bf16(step),
                8 => self.bytes(step),
                _ => self.halves(step),
            }
        };
        let weights = values.map(|value| _mm512_mul_ps(value, self.scales));
        if W::ROUND { weights.map(|weight| round_bf16(weight)) } else { weights }
    }

    /// # Safety
    /// As [`Weights::next`], for bf16.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn bf16(&self, step: usize) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        let pairs = unsafe { _mm512_loadu_si512(self.start.cast::<__m512i>().add(step)) };
        let upper = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
        [_mm512_slli_epi32::<16>(pairs), upper].map(|bits| _mm512_castsi512_ps(bits))
    }

    /// # Safety
    /// As [`Weights::next`], for eight bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn bytes(&self, step: usize) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        let pairs = unsafe { _mm512_cvtepi16_epi32(_mm256_loadu_si256(self.start.cast::<__m256i>().add(step))) };
        let first = _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(pairs));
        [first, _mm512_srai_epi32::<8>(pairs)].map(|integers| _mm512_cvtepi32_ps(integers))
    }

    /// # Safety
    /// As [`Weights::next`], for four bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn halves(&mut self, step: usize) -> [__m512; 2] {
        if step.is_multiple_of(LINE_STEPS) {
            // Sixteen neighbours of a line are eight lanes' pairs: the lower lanes take one half of a byte, the upper
            // lanes the other.
            let first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
            let second = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15);
            let shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
            // SAFETY: the caller's promise.
            let line = unsafe { _mm512_loadu_si512(self.start.cast::<__m512i>().add(step / LINE_STEPS)) };
            self.words = [first, second].map(|order| _mm512_srlv_epi32(_mm512_permutexvar_epi32(order, line), shift));
        }
        let values =
            _mm512_setr_ps(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0);
        // The permutation looks at the lowest four bits alone.
        let weights = self.words.map(|words| _mm512_permutexvar_ps(words, values));
        self.words = self.words.map(|words| _mm512_srli_epi32::<8>(words));
        weights
    }
}

/// Rounds to bf16, ties to even.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn round_bf16(values: __m512) -> __m512 {
    let bits = _mm512_castps_si512(values);
    let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
    let bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    let bits = _mm512_mask_add_epi32(bits, odd, bits, _mm512_set1_epi32(1));
    _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0xffff_0000_u32 as i32)))
}
