//! Packing of sixteen numbers at a time, in the vectors of each instruction set.

use demask_tensor::round_within;

use crate::linear::packed::PANEL;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Avx512;

/// Sixteen words of each of sixteen rows, or the other way round.
pub(crate) type Words = [[u32; PANEL]; PANEL];

/// Arithmetic on sixteen lanes, with the same bits on every instruction set.
pub(crate) trait Vectors {
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
pub(crate) struct Portable;

impl Vectors for Portable {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The vectors of AVX-512. Their methods are inlined into operations that [`dispatch`](crate::elementwise::dispatch)
    //! compiled for it, which is the only way to them.

    use std::arch::x86_64::{
        __m512, __m512i, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_cvtepi32_epi16, _mm512_cvttps_epi32, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_slli_epi32, _mm512_storeu_si512, _mm512_unpackhi_epi32,
        _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    use demask_tensor::BELOW_HALF;

    use super::{PANEL, Vectors, Words};

    /// Vectors of 16.
    pub(crate) struct Avx512;

    impl Vectors for Avx512 {
        #[inline(always)]
        fn transposed(rows: [&[u32; PANEL]; PANEL]) -> Words {
            let mut columns = [[0; PANEL]; PANEL];
            // SAFETY: reached on AVX-512 alone; every row and column is a vector.
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
            // SAFETY: reached on AVX-512 alone; every array is a vector, the words half of one.
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
