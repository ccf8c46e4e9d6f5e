//! Packing of sixteen numbers at a time, in the vectors of each instruction set.

use demask_tensor::round_within;

#[cfg(target_arch = "x86_64")]
use crate::isa::Tier;
use crate::{isa::Isa, linear::packed::PANEL};

/// Sixteen words of each of sixteen rows, or the other way round.
pub(super) type Words = [[u32; PANEL]; PANEL];

/// Arithmetic on sixteen lanes, with the same bits on every instruction set.
pub(in crate::linear) trait Vectors {
    /// Rows become columns.
    #[inline(always)]
    fn transposed(rows: [&[u32; PANEL]; PANEL]) -> Words {
        std::array::from_fn(|word| std::array::from_fn(|lane| rows[lane][word]))
    }

    /// `values * inverses` as integers from `least` to `most`, as bytes: the first of two inputs in the lower byte of
    /// its lane's word, the second in the upper. Halves are rounded away from zero.
    #[inline(always)]
    fn integers(values: [&[f32; PANEL]; 2], inverses: &[f32; PANEL], limits: (f32, f32), zero: i32) -> [u16; PANEL] {
        let mut words = [0u16; PANEL];
        for (input, values) in values.into_iter().enumerate() {
            for ((word, value), inverse) in words.iter_mut().zip(values).zip(inverses) {
                let integer = round_within(value * inverse, limits) + zero;
                *word |= u16::from(integer as u8) << (8 * input);
            }
        }
        words
    }
}

/// Arrays, for any processor.
pub(in crate::linear) struct Portable;

impl Vectors for Portable {}

/// Work that is compiled for each instruction set.
pub(super) trait Work {
    /// Does it. Implementations are `#[inline(always)]`, so that they are compiled with the caller's instructions.
    fn run<V: Vectors>(self);
}

/// Works with the widest vectors that may be executed.
pub(super) fn dispatch(isa: Isa, work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    {
        if isa.has(Tier::Avx512) {
            // SAFETY: `Isa` is the proof that the tier's instructions may be executed.
            return unsafe { x86::run_avx512(work) };
        }
        if isa.has(Tier::Avx2) {
            // SAFETY: as above.
            return unsafe { x86::run_avx2(work) };
        }
    }
    // Elsewhere the compiler's vectors are all that there are.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    work.run::<Portable>();
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The vectors of x86. Their methods are inlined into `run_avx512`, which is the only way to them and is called with
    //! an [`Isa`](crate::isa::Isa) in hand.

    use std::arch::x86_64::{
        __m512, __m512i, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_cvtepi32_epi16, _mm512_cvttps_epi32, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_slli_epi32, _mm512_storeu_si512, _mm512_unpackhi_epi32,
        _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    use demask_tensor::BELOW_HALF;

    use super::{PANEL, Portable, Vectors, Words, Work};

    /// # Safety
    /// AVX2 and FMA must be there.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn run_avx2(work: impl Work) {
        work.run::<Portable>();
    }

    /// # Safety
    /// AVX-512 F, BW, DQ and VL must be there.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn run_avx512(work: impl Work) {
        work.run::<Avx512>();
    }

    /// Vectors of 16.
    struct Avx512;

    impl Vectors for Avx512 {
        #[inline(always)]
        fn transposed(rows: [&[u32; PANEL]; PANEL]) -> Words {
            let mut columns = [[0; PANEL]; PANEL];
            // SAFETY: reached through `run_avx512` alone; every row and column is a vector.
            unsafe {
                // Words of two rows, then of four: lane block `b` of `fours[4 * g + c]` has column `4 * b + c` of rows
                // `4 * g` to `4 * g + 3`. Plain loops: what is called inside a closure might not be inlined.
                let (mut twos, mut fours) = ([_mm512_setzero_si512(); PANEL], [_mm512_setzero_si512(); PANEL]);
                for row in (0..PANEL).step_by(2) {
                    let upper = _mm512_loadu_si512(rows[row].as_ptr().cast());
                    let lower = _mm512_loadu_si512(rows[row + 1].as_ptr().cast());
                    twos[row] = _mm512_unpacklo_epi32(upper, lower);
                    twos[row + 1] = _mm512_unpackhi_epi32(upper, lower);
                }
                for group in (0..PANEL).step_by(4) {
                    for half in 0..2 {
                        let (upper, lower) = (twos[group + half], twos[group + half + 2]);
                        fours[group + 2 * half] = _mm512_unpacklo_epi64(upper, lower);
                        fours[group + 2 * half + 1] = _mm512_unpackhi_epi64(upper, lower);
                    }
                }
                for column in 0..4 {
                    let [a, b, c, d] = [fours[column], fours[4 + column], fours[8 + column], fours[12 + column]];
                    let even = [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d)];
                    let odd = [_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d)];
                    let blocks = [
                        _mm512_shuffle_i32x4::<0x88>(even[0], even[1]),
                        _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]),
                        _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]),
                        _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]),
                    ];
                    for (block, values) in blocks.into_iter().enumerate() {
                        _mm512_storeu_si512(columns[4 * block + column].as_mut_ptr().cast(), values);
                    }
                }
            }
            columns
        }

        #[inline(always)]
        fn integers(
            values: [&[f32; PANEL]; 2],
            inverses: &[f32; PANEL],
            limits: (f32, f32),
            zero: i32,
        ) -> [u16; PANEL] {
            let mut words = [0; PANEL];
            // SAFETY: reached through `run_avx512` alone; every array is a vector, the words half of one.
            unsafe {
                let inverses = _mm512_loadu_ps(inverses.as_ptr());
                let low = integers(values[0], inverses, limits, zero);
                let high = integers(values[1], inverses, limits, zero);
                let both = _mm512_or_si512(low, _mm512_slli_epi32::<8>(high));
                _mm256_storeu_si256(words.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(both));
            }
            words
        }
    }

    /// Bytes in words.
    ///
    /// # Safety
    /// AVX-512 F must be there.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn integers(values: &[f32; PANEL], inverses: __m512, (least, most): (f32, f32), zero: i32) -> __m512i {
        // SAFETY: the array is a vector.
        let value = _mm512_mul_ps(unsafe { _mm512_loadu_ps(values.as_ptr()) }, inverses);
        // In this order of operands a NaN stays one, and becomes 0 below.
        let value = _mm512_min_ps(_mm512_set1_ps(most), _mm512_max_ps(_mm512_set1_ps(least), value));
        let sign = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(i32::MIN));
        let half = _mm512_or_si512(sign, _mm512_castps_si512(_mm512_set1_ps(BELOW_HALF)));
        let integer = _mm512_cvttps_epi32(_mm512_add_ps(value, _mm512_castsi512_ps(half)));
        _mm512_and_si512(_mm512_add_epi32(integer, _mm512_set1_epi32(zero)), _mm512_set1_epi32(255))
    }
}
