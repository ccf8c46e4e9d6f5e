//! Quantised weights with bf16 dot products.
//!
//! Few rows are multiplied as the weights leave their registers; for more, panels are unpacked once and read again by
//! all tiles of rows. Both take the same numbers in the same order: a row has the same bits on either way.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps,
    _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps,
    _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setr_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_srli_epi32, _mm512_storeu_ps, _mm512_storeu_si512,
};

use super::{
    kernel::{Block, Kernel, TileFn, tiles},
    packed::{GROUP, PANEL},
    quantised::{self, INPUTS, SCALES},
    unpacked::{self, Pair, Unpack, format},
};

/// Eight bits.
pub(super) const Q8: Kernel =
    Kernel { accumulate: accumulate::<8>, ..unpacked::kernel::<Pairs, 8>("avx512bf16_bf16xq8_f32") };
/// Four bits.
pub(super) const Q4: Kernel =
    Kernel { accumulate: accumulate::<4>, ..unpacked::kernel::<Pairs, 4>("avx512bf16_bf16xq4_f32") };
/// Eight bits, unpacked for tile products.
pub(super) const AMX_Q8: Kernel = unpacked::kernel::<Amx, 8>("amx_bf16xq8_f32");
/// Four bits, unpacked for tile products.
pub(super) const AMX_Q4: Kernel = unpacked::kernel::<Amx, 4>("amx_bf16xq4_f32");

/// Unpacks for dot products of pairs.
struct Pairs;
/// Unpacks for tile products, whose tier includes these instructions.
struct Amx;

impl Unpack for Pairs {
    const KERNEL: Kernel = super::avx512::BF16_PAIRS;

    unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<BITS>(from, count, to) }
    }
}

impl Unpack for Amx {
    const KERNEL: Kernel = super::amx::BF16;

    unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
        // SAFETY: the caller vouches for processor and memory.
        unsafe { unpack::<BITS>(from, count, to) }
    }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<const BITS: usize>(block: &Block) {
    const EIGHT: [TileFn; DIRECT] = tiles!(q8_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    const FOUR: [TileFn; DIRECT] = tiles!(q4_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    // SAFETY: the caller vouches for the processor and the block.
    unsafe {
        if block.rows > DIRECT {
            unpacked::accumulate::<Pairs, BITS>(block);
        } else {
            block.for_tiles(if BITS == 8 { &EIGHT } else { &FOUR }, 1);
        }
    }
}

/// Rows up to which weights are multiplied as they are unpacked: one tile.
const DIRECT: usize = 12;

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn q8_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { tile::<8, ROWS>(block) }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn q4_tile<const ROWS: usize>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { tile::<4, ROWS>(block) }
}

/// # Safety
/// The processor has AVX-512 with bf16 dot products; the block keeps its promises and has `ROWS` rows and one pair of
/// panels in blocks of integers of `BITS` bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<const BITS: usize, const ROWS: usize>(block: &Block) {
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
        for index in 0..block.depth / INPUTS {
            let start = block.weight.add(index * quantised::block_bytes(format::<BITS>()));
            let mut panels = [Integers::<BITS>::new(start, 0), Integers::<BITS>::new(start, 1)];
            for _ in 0..LINES {
                panels[0].load();
                panels[1].load();
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
unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
    for index in 0..count {
        // SAFETY: the caller vouches for blocks and panels.
        unsafe {
            let start = from.start.add(index * quantised::block_bytes(format::<BITS>()));
            for panel in 0..GROUP {
                let mut out = to.start.add(panel * to.stride + index * INPUTS * PANEL * 2).cast::<__m512i>();
                let mut integers = Integers::<BITS>::new(start, panel);
                for _ in 0..LINES {
                    integers.load();
                    for _ in 0..PAIRS {
                        _mm512_storeu_si512(out, std::mem::transmute::<__m512bh, __m512i>(integers.next()));
                        out = out.add(1);
                    }
                }
            }
        }
    }
}

/// Lines of four-bit integers in a panel's part of a block.
const LINES: usize = 4;
/// Pairs of inputs in each.
const PAIRS: usize = INPUTS / 2 / LINES;

/// One panel's part of a block, on its way to bf16.
struct Integers<const BITS: usize> {
    /// Address of the next weights.
    next: *const u8,
    /// Four bits: the words of a line, shifted to what comes next.
    words: __m512i,
    /// Scales of lanes 0 to 7 and 8 to 15, each twice: for both inputs of a pair.
    scales: [__m512; 2],
}

impl<const BITS: usize> Integers<BITS> {
    /// # Safety
    /// `start` points to a block; the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn new(start: *const u8, panel: usize) -> Self {
        let low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        let high = _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
        // SAFETY: the block begins with its scales; the panel's integers follow.
        let (halves, next) = unsafe {
            let halves = _mm256_loadu_si256(start.add(panel * PANEL * 2).cast::<__m256i>());
            (halves, start.add(SCALES + panel * quantised::panel_bytes(format::<BITS>())))
        };
        let scales = _mm512_cvtph_ps(halves);
        let scales = [_mm512_permutexvar_ps(low, scales), _mm512_permutexvar_ps(high, scales)];
        Self { next, words: _mm512_setzero_si512(), scales }
    }

    /// Loads the next line, if integers have four bits.
    ///
    /// # Safety
    /// The panel's part of the block has one more.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn load(&mut self) {
        if BITS == 4 {
            // SAFETY: the caller's promise.
            unsafe {
                self.words = _mm512_loadu_si512(self.next.cast());
                self.next = self.next.add(64);
            }
        }
    }

    /// Sixteen integers as f32.
    ///
    /// # Safety
    /// The panel's part of the block has sixteen more.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn sixteen(&mut self) -> __m512 {
        if BITS == 8 {
            // SAFETY: the caller's promise.
            unsafe {
                let bytes = _mm_loadu_si128(self.next.cast());
                self.next = self.next.add(PANEL);
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
            }
        } else {
            let values =
                _mm512_setr_ps(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0);
            // The permutation looks at the lowest four bits alone.
            let sixteen = _mm512_permutexvar_ps(self.words, values);
            self.words = _mm512_srli_epi32::<4>(self.words);
            sixteen
        }
    }

    /// The weights of a pair of inputs, rounded to bf16.
    ///
    /// # Safety
    /// The panel's part of the block has one more pair.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn next(&mut self) -> __m512bh {
        // SAFETY: the caller's promise.
        let [low, high] = unsafe { [self.sixteen(), self.sixteen()] };
        let (low, high) = (_mm512_mul_ps(low, self.scales[0]), _mm512_mul_ps(high, self.scales[1]));
        _mm512_cvtne2ps_pbh(high, low)
    }
}
