//! Peak rate of multiplications of this machine, measured: one of the ceilings that speeds are compared with; the other
//! is [`reading`](crate::reading).
//!
//! A product's ceiling is the rate of a tier's own multiply instruction on registers alone, on all threads; reading's
//! is the rate of a stream through far more memory than the caches hold. Neither can be reached by a kernel that also
//! loads, stores and waits: a fraction of them says what is left.

#[cfg(target_arch = "aarch64")]
mod arm;

use std::{hint::black_box, time::Instant};

use demask_tensor::Dtype;

use crate::{
    isa::Isa,
    linear::{Activations, Products},
    pool::Pool,
};
#[cfg(target_arch = "x86_64")]
use crate::{isa::Tier, tiles};

/// Operations of one thread in one measured run: about a millisecond of the usual instruction, short enough to fit
/// between two switches of the system to other work.
const OPERATIONS: u64 = 1 << 28;
/// Seconds of trying: the best run is told, because whoever else uses the machine can only slow a run down.
const PATIENCE: f64 = 0.3;
/// Runs at least.
const TRIES: usize = 3;

/// Rate of a tier's products of a kind in TFLOP/s. Tiers without products of bf16 multiply its values in f32: then
/// that is their ceiling. Quantised weights that meet plain inputs are widened, and multiplied like others.
pub fn product_tflops(pool: &Pool, isa: Isa, products: Products) -> f64 {
    let unit = match products.activations {
        Activations::Plain => Unit::of(isa, products.dtype),
        Activations::Int8 => Unit::of_bytes(isa),
    };
    let rounds = OPERATIONS / unit.operations;
    let seconds = best(|| pool.run(pool.threads(), &|_| unit.run(rounds)));
    (rounds * unit.operations * pool.threads() as u64) as f64 / seconds / 1e12
}

/// A loop around an instruction.
struct Unit {
    /// Operations of one round, an addition counted apart from its multiplication.
    operations: u64,
    /// # Safety
    /// The instruction may be executed.
    rounds: unsafe fn(u64),
}

impl Unit {
    fn of(isa: Isa, dtype: Dtype) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let bf16 = dtype == Dtype::Bf16;
            if bf16 && isa.has(Tier::Amx) {
                return Self { operations: tiles::TILE_ROUND, rounds: tiles::tile_rounds };
            }
            if bf16 && isa.has(Tier::Avx512Bf16) {
                return Self { operations: (x86::SUMS * 64) as u64, rounds: x86::bf16_pairs };
            }
            if isa.has(Tier::Avx512) {
                return Self { operations: (x86::SUMS * 32) as u64, rounds: x86::avx512 };
            }
            if isa.has(Tier::Avx2) {
                return Self { operations: (x86::SUMS_AVX2 * 16) as u64, rounds: x86::avx2 };
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(unit) = arm::unit(isa, dtype == Dtype::Bf16) {
            return unit;
        }
        let _ = (isa, dtype);
        Self { operations: (2 * PORTABLE_SUMS) as u64, rounds: portable }
    }

    fn of_bytes(isa: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if isa.has(Tier::Amx) {
                return Self { operations: tiles::BYTE_TILE_ROUND, rounds: tiles::byte_tile_rounds };
            }
            if isa.has_vnni() {
                return Self { operations: (x86::SUMS * 128) as u64, rounds: x86::vnni };
            }
            if isa.has(Tier::AvxVnni) {
                return Self { operations: (x86::SUMS_AVX2 * 64) as u64, rounds: x86::short_vnni };
            }
            if isa.has(Tier::Avx2) {
                return Self { operations: (x86::SUMS_AVX2 * 64) as u64, rounds: x86::avx2_bytes };
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(unit) = arm::byte_unit(isa) {
            return unit;
        }
        let _ = isa;
        Self { operations: (2 * PORTABLE_SUMS) as u64, rounds: portable_integers }
    }

    fn run(&self, rounds: u64) {
        // SAFETY: `of` chose a loop whose instructions the `Isa` has.
        unsafe { (self.rounds)(rounds) }
    }
}

/// Numbers in the portable loop's sums: eight vectors of the oldest kind.
const PORTABLE_SUMS: usize = 32;

/// Multiplications and additions that the compiler makes the best of.
fn portable(rounds: u64) {
    let (mut sums, factor) = (black_box([0.0f32; PORTABLE_SUMS]), black_box([0.5f32; PORTABLE_SUMS]));
    for _ in 0..rounds {
        for lane in 0..PORTABLE_SUMS {
            // The product depends on the sum, or it would be computed once for all rounds.
            sums[lane] = sums[lane] * factor[lane % 4] + factor[lane % 4];
        }
    }
    black_box(sums);
}

/// Measures products of integers.
fn portable_integers(rounds: u64) {
    let (mut sums, factor) = (black_box([0i32; PORTABLE_SUMS]), black_box([3i32; PORTABLE_SUMS]));
    for _ in 0..rounds {
        for lane in 0..PORTABLE_SUMS {
            sums[lane] = sums[lane].wrapping_mul(factor[lane % 4]).wrapping_add(factor[lane % 4]);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Number of independent sums that hides the latency of an instruction, and fits into the registers.

    use std::{
        arch::x86_64::{
            __m512bh, __m512i, _mm256_add_epi32, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_madd_epi16,
            _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
            _mm256_setzero_ps, _mm256_setzero_si256, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
            _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
        },
        hint::black_box,
    };

    /// Number of sums in AVX-512's 32 registers.
    pub(super) const SUMS: usize = 24;
    /// Number of sums in AVX2's 16 registers.
    pub(super) const SUMS_AVX2: usize = 12;
    /// bf16 of 0.5, twice.
    const HALVES: i32 = 0x3f00_3f00;

    /// # Safety
    /// AVX-512 F and bf16 must be there.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) unsafe fn bf16_pairs(rounds: u64) {
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
    pub(super) unsafe fn avx512(rounds: u64) {
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
    pub(super) unsafe fn vnni(rounds: u64) {
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
    pub(super) unsafe fn short_vnni(rounds: u64) {
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
    pub(super) unsafe fn avx2_bytes(rounds: u64) {
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
    pub(super) unsafe fn avx2(rounds: u64) {
        let (x, y) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.5)));
        let mut sums = [_mm256_setzero_ps(); SUMS_AVX2];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
        black_box(sums);
    }
}

/// Shortest time of a few runs, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let (begun, mut best, mut tries) = (Instant::now(), f64::INFINITY, 0);
    while tries < TRIES || begun.elapsed().as_secs_f64() < PATIENCE {
        let started = Instant::now();
        work();
        best = best.min(started.elapsed().as_secs_f64());
        tries += 1;
    }
    best.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_has_a_ceiling() {
        let pool = Pool::new(1);
        for isa in Isa::available() {
            for products in Products::all() {
                assert!(product_tflops(&pool, isa, products) > 0.0, "{isa:?} {products:?}");
            }
        }
    }
}
