//! Peak rate of multiplications of this machine, measured: one of the ceilings that speeds are compared with; the other
//! is [`reading`](crate::reading).
//!
//! A product's ceiling is the rate of a tier's own multiply instruction on registers alone, on all threads; reading's
//! is the rate of a stream through far more memory than the caches hold. Neither can be reached by a kernel that also
//! loads, stores and waits: a fraction of them shows the rest.

#[cfg(target_arch = "aarch64")]
#[path = "ceiling/arm.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "ceiling/other.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "ceiling/x86.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::{hint::black_box, time::Instant};

use demask_cpu::{
    isa::Isa,
    linear::{Activations, Products},
    pool::Pool,
};
use demask_tensor::Dtype;

/// Operations of one thread in one measured run: about a millisecond of the usual instruction, short enough to fit
/// between two switches of the system to other work.
const OPERATIONS: u64 = 1 << 28;
/// Seconds of trying: the best run counts, because other work on the machine can only slow a run down.
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
        let portable = Self { operations: (2 * PORTABLE_SUMS) as u64, rounds: portable };
        arch::unit(isa, dtype == Dtype::Bf16).unwrap_or(portable)
    }

    fn of_bytes(isa: Isa) -> Self {
        let portable = Self { operations: (2 * PORTABLE_SUMS) as u64, rounds: portable_integers };
        arch::byte_unit(isa).unwrap_or(portable)
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
    use demask_cpu::linear::Quantisation;

    use super::*;

    #[test]
    fn every_tier_has_a_ceiling() {
        let pool = Pool::new(1);
        for isa in Isa::available() {
            let bytes = Products {
                quantisation: Some(Quantisation::Q8),
                activations: Activations::Int8,
                ..Products::plain(Dtype::Bf16)
            };
            for products in [Products::plain(Dtype::F32), Products::plain(Dtype::Bf16), bytes] {
                assert!(product_tflops(&pool, isa, products) > 0.0, "{isa:?} {products:?}");
            }
        }
    }
}
