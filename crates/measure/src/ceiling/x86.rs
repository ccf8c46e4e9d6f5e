//! Loops around the multiply instructions of x86's vectors.

use std::{
    arch::x86_64::{
        __m512bh, __m512i, _mm256_add_epi32, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_madd_epi16,
        _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_setzero_si256, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    },
    hint::black_box,
};

use demask_cpu::isa::{Isa, Tier};

use super::{Unit, tiles};

/// Number of independent sums that hides the latency of an instruction, and fits into AVX-512's 32 registers.
const SUMS: usize = 24;
/// Number of independent sums for AVX2's 16 registers.
const SUMS_AVX2: usize = 12;
/// bf16 of 0.5, twice.
const HALVES: i32 = 0x3f00_3f00;

/// The best instruction for products of bf16, or of f32.
pub(super) fn unit(isa: Isa, bf16: bool) -> Option<Unit> {
    if bf16 && isa.has(Tier::Amx) {
        return Some(Unit { operations: tiles::ROUND, rounds: tiles::rounds });
    }
    if bf16 && isa.has(Tier::Avx512Bf16) {
        return Some(Unit { operations: (SUMS * 64) as u64, rounds: bf16_pairs });
    }
    if isa.has(Tier::Avx512) {
        return Some(Unit { operations: (SUMS * 32) as u64, rounds: avx512 });
    }
    isa.has(Tier::Avx2).then_some(Unit { operations: (SUMS_AVX2 * 16) as u64, rounds: avx2 })
}

/// The best instruction for products of bytes.
pub(super) fn byte_unit(isa: Isa) -> Option<Unit> {
    if isa.has(Tier::Amx) {
        return Some(Unit { operations: tiles::BYTE_ROUND, rounds: tiles::byte_rounds });
    }
    if isa.has_vnni() {
        return Some(Unit { operations: (SUMS * 128) as u64, rounds: vnni });
    }
    if isa.has(Tier::AvxVnni) {
        return Some(Unit { operations: (SUMS_AVX2 * 64) as u64, rounds: short_vnni });
    }
    isa.has(Tier::Avx2).then_some(Unit { operations: (SUMS_AVX2 * 64) as u64, rounds: avx2_bytes })
}

/// # Safety
/// AVX-512 F and bf16 must be there.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16_pairs(rounds: u64) {
    // SAFETY: the two register types are the same 64 bytes.
    let pairs = |word: i32| unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(word)) };
    let (x, y) = (pairs(black_box(HALVES)), pairs(black_box(HALVES)));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, x, y);
        }
    }
    black_box(sums);
}

/// # Safety
/// AVX-512 F must be there.
#[target_feature(enable = "avx512f")]
unsafe fn avx512(rounds: u64) {
    let (x, y) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.5)));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(x, y, *sum);
        }
    }
    black_box(sums);
}

/// # Safety
/// AVX-512 F and VNNI must be there.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn vnni(rounds: u64) {
    let (x, y) = (_mm512_set1_epi32(black_box(0x0102_0304)), _mm512_set1_epi32(black_box(0x0403_0201)));
    let mut sums = [_mm512_setzero_si512(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, x, y);
        }
    }
    black_box(sums);
}

/// # Safety
/// AVX-VNNI must be there.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn short_vnni(rounds: u64) {
    let (x, y) = (_mm256_set1_epi32(black_box(0x0102_0304)), _mm256_set1_epi32(black_box(0x0403_0201)));
    let mut sums = [_mm256_setzero_si256(); SUMS_AVX2];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_dpbusd_avx_epi32(*sum, x, y);
        }
    }
    black_box(sums);
}

/// Three instructions for a dot product of bytes: AVX2 has none that adds to 32 bits.
///
/// # Safety
/// AVX2 must be there.
#[target_feature(enable = "avx2")]
unsafe fn avx2_bytes(rounds: u64) {
    let (x, ones) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi16(black_box(1)));
    let mut sums = [_mm256_setzero_si256(); SUMS_AVX2];
    for _ in 0..rounds {
        for sum in &mut sums {
            // The product depends on the sum, or it would be computed once for all rounds.
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, *sum), ones));
        }
    }
    black_box(sums);
}

/// # Safety
/// AVX2 and FMA must be there.
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(rounds: u64) {
    let (x, y) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.5)));
    let mut sums = [_mm256_setzero_ps(); SUMS_AVX2];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(x, y, *sum);
        }
    }
    black_box(sums);
}
