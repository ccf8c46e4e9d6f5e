//! Integers on their way to tile products of bf16: inputs in pairs, as panels of bf16 have them.
//!
//! A line has four inputs of sixteen outputs in bytes. Bytes are spread over two pairs of registers, each with two inputs of
//! eight outputs in turns, so that one rounding makes a line of a panel of either pair: its numbers need not change places. On
//! the way a byte is the lower half of a number between 2^15 and 2^16, from which one multiplication makes a weight where a
//! block has one scale: `scale * (2^15 + integer) - scale * (2^15 + middle)` is exact before it is rounded, for a scale has
//! eleven bits.

use std::{
    arch::x86_64::{
        __m512, __m512bh, __m512i, _mm512_castsi512_ps, _mm512_cvtne2ps_pbh, _mm512_fmsub_ps, _mm512_loadu_si512,
        _mm512_mask_permutexvar_epi8, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_storeu_si512, _mm512_sub_ps,
    },
    marker::PhantomData,
    mem::MaybeUninit,
};

use super::{
    amx,
    avx512_dequant::fetch_ahead,
    int8::{QUAD, QUAD_BYTES, QUADS, SHIFT},
    integers::{
        Code, Coding, INPUTS,
        avx512::{factors, quad_of},
        codings,
    },
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL},
    unpacked::{self, Dequant, Pair, unpacks},
};
use crate::{
    fetch::stream,
    tiles::{ROW_BYTES, ROWS, Step, TileUnit},
};

unpacks!(Amx: amx::BF16, __m512, InPairs<C>, store, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi");

/// Kernels for all codings.
pub(super) const KERNELS: [Kernel; Coding::ALL.len()] = codings!(streaming, "amx_bf16");

/// The kernel for weights of a coding, which unpacks while it multiplies where rows are few.
const fn streaming<C: Code>(name: &'static str) -> Kernel {
    Kernel { accumulate: accumulate::<InPairs<C>>, ..unpacked::kernel::<Amx, C>(name) }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<D: Dequant<__m512>>(block: &Block) {
    // SAFETY: the caller vouches for processor and block.
    unsafe {
        match block.rows {
            ..=ROWS if block.fresh => unpack_while_multiplying::<D, false>(block),
            ..=TALL if block.fresh => unpack_while_multiplying::<D, true>(block),
            ..=FEW_ROWS => unpacked::accumulate_parts::<Amx, D>(block, MOST / 2),
            _ => unpacked::accumulate_parts::<Amx, D>(block, MOST),
        }
    }
}

/// Rows of two tiles.
const TALL: usize = 2 * ROWS;
/// Parts that are unpacked before rows beyond two tiles meet them: a whole block of the depth of tile products.
const MOST: usize = unpacked::MOST_BYTES / amx::BF16.weight.group_bytes(INPUTS);
/// Rows that meet half as many at a time, so that these and their inputs are in the first-level cache together.
const FEW_ROWS: usize = 64;
/// Parts between one's unpacking and its products: by then its bytes have reached the first-level cache.
const BETWEEN: usize = 2;
/// Bytes of a part of one panel.
const PART_BYTES: usize = INPUTS * PANEL * size_of::<u16>();

/// Unpacked parts of two panels, of which the oldest makes room for the next.
#[repr(align(64))]
struct Ring([MaybeUninit<[u8; GROUP * PART_BYTES]>; 2 * BETWEEN]);

/// Multiplies one or two tiles of rows with parts of panels while later parts are unpacked: the tile unit and the vector
/// units work at the same time.
///
/// # Safety
/// As [`Kernel::accumulate`], of a fresh block of at most 16 rows, or 32 if `IS_TALL`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn unpack_while_multiplying<D: Dequant<__m512>, const IS_TALL: bool>(block: &Block) {
    let mut ring = Ring([MaybeUninit::uninit(); 2 * BETWEEN]);
    let ring = ring.0.as_mut_ptr().cast::<u8>();
    let place = |index: usize| Pair {
        start: ring.wrapping_add(index % (2 * BETWEEN) * GROUP * PART_BYTES),
        stride: PART_BYTES,
    };
    let parts = block.depth / INPUTS;
    // SAFETY: the caller vouches for the processor and the block, whose depth is a multiple of 32 and whose rows are whole
    // tiles. A part is unpacked before its step, and stays until its place in the ring comes again.
    unsafe {
        let mut unit = TileUnit::configure_rows(block.rows);
        for group in 0..block.groups {
            let part = block.part(0, block.rows, group);
            let pair = Pair { start: part.weight, stride: block.panel_stride };
            unit.clear();
            for index in 0..parts + BETWEEN {
                if let Some(index) = index.checked_sub(BETWEEN) {
                    let Pair { start: weight, stride: weight_right } = place(index);
                    let input = block.input.add(index * ROW_BYTES);
                    unit.step(IS_TALL, Step { input, input_stride: block.input_stride, weight, weight_right });
                }
                if index < parts {
                    unpacked::unpack::<Amx, D>(pair, index..index + 1, place(index));
                }
            }
            unit.store(IS_TALL, part.sums.cast(), part.sums_stride * size_of::<f32>());
        }
    }
}

/// The number to which bytes are added: its bits 8 to 15 count units.
const LARGE: f32 = 32_768.0;
/// The byte of a weight of 0, added to it.
const MIDDLE: f32 = LARGE + SHIFT as f32;

/// Rounds two inputs of all outputs.
///
/// # Safety
/// The processor has AVX-512 with bf16 conversions; there is room at `out`.
#[inline(always)]
unsafe fn store([first, second]: [__m512; 2], out: *mut u8) {
    // SAFETY: the caller's promise; the register types are the same 64 bytes.
    unsafe {
        let pairs = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first));
        _mm512_storeu_si512(out.cast(), pairs);
    }
}

/// Weights of a coding: two inputs of the first eight outputs, and of the last eight.
pub(super) struct InPairs<C> {
    /// A panel's part.
    integers: *const u8,
    scales: [__m512; 2],
    /// Numbers that are taken away from products, scales of the second half of the inputs, or minima.
    second: [__m512; 2],
    code: PhantomData<C>,
}

impl<C: Code> InPairs<C> {
    /// Records whether one multiplication makes a weight.
    const AT_ONCE: bool = !C::CODING.minima() && !C::CODING.part_scales();
}

impl<C: Code> Dequant<__m512> for InPairs<C> {
    #[inline(always)]
    fn offset(part: usize) -> usize {
        C::CODING.part_offset(part)
    }

    #[inline(always)]
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self {
        // SAFETY: the caller vouches for the processor and the part.
        unsafe {
            let [head, part, integers] = pair.places::<C>(part, panel);
            let [scales, second] = factors::<C>(head, part, panel);
            let second = if Self::AT_ONCE { _mm512_mul_ps(scales, _mm512_set1_ps(MIDDLE)) } else { second };
            Self {
                integers,
                scales: [in_turns::<0>(scales), in_turns::<1>(scales)],
                second: [in_turns::<0>(second), in_turns::<1>(second)],
                code: PhantomData,
            }
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, quad: usize) -> [__m512; QUAD] {
        /// Bits 8 to 15 of each word.
        const SECOND_BYTES: u64 = 0x2222_2222_2222_2222;
        // SAFETY: the caller vouches for the processor and the part.
        unsafe {
            let lines = C::CODING.panel_bytes() / QUAD_BYTES;
            for line in quad * lines / QUADS..(quad + 1) * lines / QUADS {
                let line = self.integers.add(line * QUAD_BYTES);
                // Whole bytes arrive at the pace of memory; fewer bits wait for their unpacking.
                if C::CODING.bytes() { stream(line) } else { fetch_ahead(line) }
            }
            if C::CODING.halves() == 2 && quad == QUADS / 2 {
                self.scales = self.second;
            }
            let bytes = quad_of::<C>(self.integers, quad);
            let mut weights = [_mm512_set1_ps(0.0); QUAD];
            for (index, weights) in weights.iter_mut().enumerate() {
                let places = _mm512_loadu_si512(PLACES[index].as_ptr().cast());
                let large = _mm512_set1_epi32(LARGE.to_bits() as i32);
                let large = _mm512_mask_permutexvar_epi8(large, SECOND_BYTES, places, bytes);
                *weights = self.weights(_mm512_castsi512_ps(large), index % 2);
            }
            weights
        }
    }
}

impl<C: Code> InPairs<C> {
    /// Weights of the outputs of a half, of integers that were added to [`LARGE`].
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn weights(&self, large: __m512, half: usize) -> __m512 {
        let (scales, second) = (self.scales[half], self.second[half]);
        // SAFETY: the caller's promise.
        unsafe {
            if Self::AT_ONCE {
                return _mm512_fmsub_ps(large, scales, second);
            }
            let product = _mm512_mul_ps(_mm512_sub_ps(large, _mm512_set1_ps(MIDDLE)), scales);
            if C::CODING.minima() { _mm512_sub_ps(product, second) } else { product }
        }
    }
}

/// Bytes of a line that become the second bytes of words: two inputs of eight outputs in turns; of the first eight and the
/// last, then the other two inputs.
static PLACES: [[u8; QUAD_BYTES]; QUAD] = {
    let mut places = [[0; QUAD_BYTES]; QUAD];
    let mut index = 0;
    while index < QUAD {
        let mut lane = 0;
        while lane < PANEL {
            let output = index % 2 * PANEL / 2 + lane / 2;
            places[index][lane * QUAD + 1] = (output * QUAD + index / 2 * 2 + lane % 2) as u8;
            lane += 1;
        }
        index += 1;
    }
    places
};

/// Numbers of the first eight outputs, or of the last eight, each twice.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn in_turns<const HALF: usize>(numbers: __m512) -> __m512 {
    static LANES: [[u32; PANEL]; 2] = [
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7],
        [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15],
    ];
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(LANES[HALF].as_ptr().cast()), numbers) }
}

const _: () = assert!(INPUTS == QUADS * QUAD);
