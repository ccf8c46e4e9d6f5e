//! What measurements share: order statistics of times, the machine's ceilings, and how near a measurement comes to them.

use std::time::Instant;

#[cfg(feature = "cuda")]
use demask::DeviceChoice;
use demask::DeviceOptions;
use demask_cpu::{isa::Isa, linear::Products, pool::Pool};
use demask_measure::{ceiling, reading::Reading};
use demask_step::{Mask, random::token_bits};
use demask_tensor::Dtype;
use serde::Serialize;

/// Runs before the first measured one.
pub const WARM: usize = 1;

/// Order statistics of a few times.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// Shortest one.
    pub min: f64,
    /// Longest one.
    pub max: f64,
}

impl Spread {
    /// Summarises at least one time.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
        let (low, high) = (at((seconds.len().max(1) - 1) / 2), at(seconds.len() / 2));
        Self { median: f64::midpoint(low, high), min: at(0), max: at(seconds.len().max(1) - 1) }
    }

    /// Measures `repeat` runs after the warm ones, each of which returns its seconds.
    ///
    /// # Errors
    /// What `work` returns, which ends the measurement.
    pub fn measure(repeat: usize, mut work: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Self> {
        let mut seconds = Vec::new();
        for index in 0..repeat.saturating_add(WARM) {
            let taken = work()?;
            if index >= WARM {
                seconds.push(taken);
            }
        }
        Ok(Self::of(seconds))
    }

    /// Times runs by the clock.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn timed(repeat: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Self> {
        Self::measure(repeat, || {
            let started = Instant::now();
            work()?;
            Ok(started.elapsed().as_secs_f64())
        })
    }

    /// The times in words.
    pub fn describe(&self) -> String {
        format!("{:.6} s ({:.6} to {:.6})", self.median, self.min, self.max)
    }
}

/// Peak rates of the machine.
pub struct Ceilings {
    /// Rate of multiplications and additions, in 1e12 a second.
    pub tflops: f64,
    /// Rate of reading memory, in 1e9 bytes a second; none if no memory is read.
    pub gbs: Option<f64>,
}

impl Ceilings {
    /// Measures the ceilings of a device's products with weights that are stored in a type, of a model with an attention mask.
    ///
    /// # Errors
    /// If the device cannot be used.
    pub fn of(device: &DeviceOptions, stored: Dtype, attention: Mask) -> anyhow::Result<Self> {
        let products = device.products(stored, attention)?;
        #[cfg(feature = "cuda")]
        if let DeviceChoice::Cuda(number) = device.device {
            return Self::on_gpu(&device.open_gpu(number)?, products.dtype);
        }
        Ok(Self::measure(&Pool::new(device.thread_count()?), device.isa()?, products))
    }

    /// Measures the ceilings of a card's products of a type.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(gpu: &demask_cuda::Driver, dtype: Dtype) -> anyhow::Result<Self> {
        let gbs = demask_cuda::ceiling::reading_gbs(gpu)?;
        Ok(Self { tflops: demask_cuda::ceiling::product_tflops(gpu, dtype)?, gbs })
    }

    /// Measures the ceilings of the processor's products of a kind.
    pub fn measure(pool: &Pool, isa: Isa, products: Products) -> Self {
        Self::beside(Reading::new(isa, pool).ok().as_ref(), pool, isa, products)
    }

    /// Measures the ceilings with memory that is there already, if there is enough.
    pub fn beside(reading: Option<&Reading>, pool: &Pool, isa: Isa, products: Products) -> Self {
        let gbs = reading.map(|reading| reading.gbs(pool));
        Self { tflops: ceiling::product_tflops(pool, isa, products), gbs }
    }

    /// The higher of two measurements each: others can only lower one.
    pub fn or_higher(self, other: &Self) -> Self {
        let gbs = self.gbs.into_iter().chain(other.gbs).reduce(f64::max);
        Self { tflops: self.tflops.max(other.tflops), gbs }
    }
}

/// Least cost of a piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Floating point operations.
    pub flops: f64,
    /// Bytes that cannot but be read or written.
    pub bytes: f64,
}

/// Speeds beside their ceilings.
#[derive(Serialize)]
pub struct Rates {
    /// Floating point operations of the work.
    pub flops: f64,
    /// Operations, in 1e12 a second.
    pub tflops: f64,
    /// Bytes, in 1e9 a second.
    pub gbs: f64,
    /// Ceiling of the operations.
    pub peak_tflops: f64,
    /// Ceiling of the bytes.
    pub peak_gbs: Option<f64>,
    /// Share of the ceiling that binds: shortest time that the ceilings allow for over the median.
    pub fraction: f64,
}

impl Rates {
    /// Compares the median time of a piece of work with the ceilings.
    pub fn new(Work { flops, bytes }: Work, seconds: &Spread, ceilings: &Ceilings) -> Self {
        let by_flops = flops / 1e12 / ceilings.tflops;
        let bound = ceilings.gbs.map_or(by_flops, |gbs| by_flops.max(bytes / 1e9 / gbs));
        Self {
            flops,
            tflops: flops / seconds.median / 1e12,
            gbs: bytes / seconds.median / 1e9,
            peak_tflops: ceilings.tflops,
            peak_gbs: ceilings.gbs,
            fraction: bound / seconds.median,
        }
    }

    /// The speeds in words.
    pub fn describe(&self) -> String {
        format!("{:.3} TFLOP/s, {:.2} GB/s, {:.0}% of the ceiling", self.tflops, self.gbs, self.fraction * 100.0)
    }
}

/// Tokens that look like nothing in particular, the same for the same seed.
pub fn random_tokens(count: usize, vocabulary: usize, seed: u64) -> Vec<u32> {
    (1..=count as u32).map(|place| (token_bits(seed, place) % vocabulary.max(1) as u64) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let Spread { median, min, max } = Spread::of(vec![3.0, 1.0, 2.0, 10.0]);
        assert_eq!((median, min, max), (2.5, 1.0, 10.0));
        assert_eq!(Spread::of(vec![4.0]).median, 4.0);
    }

    #[test]
    fn random_tokens_repeat_and_stay_inside() {
        let tokens = random_tokens(100, 7, 3);
        assert_eq!(tokens, random_tokens(100, 7, 3));
        assert_ne!(tokens, random_tokens(100, 7, 4));
        assert!(tokens.iter().all(|&token| token < 7));
    }

    #[test]
    fn ceilings_are_the_best_of_before_and_after() {
        let one = Ceilings { tflops: 1.0, gbs: Some(10.0) };
        let both = one.or_higher(&Ceilings { tflops: 2.0, gbs: Some(5.0) });
        assert_eq!((both.tflops, both.gbs), (2.0, Some(10.0)));
        let without_memory = Ceilings { tflops: 3.0, gbs: None };
        assert_eq!(without_memory.or_higher(&both).gbs, Some(10.0));
    }

    #[test]
    fn the_ceiling_that_binds_is_the_later_one() {
        let ceilings = Ceilings { tflops: 1.0, gbs: Some(10.0) };
        let seconds = Spread::of(vec![2.0]);
        assert_eq!(Rates::new(Work { flops: 1e12, bytes: 1e9 }, &seconds, &ceilings).fraction, 0.5);
        assert_eq!(Rates::new(Work { flops: 1e11, bytes: 1e10 }, &seconds, &ceilings).fraction, 0.5);
    }
}
