//! `demask bench`: what is measured is one file each; what they share is here.

mod attention;
mod generate;
mod linear;
mod serve;
mod step;

use std::time::Instant;

use demask::DeviceChoice;
#[cfg(feature = "cuda")]
use demask::internals::cuda;
use demask::internals::{
    DeviceOptions,
    cpu::{isa::Isa, linear::Products, pool::Pool},
    measure::{ceiling, reading::Reading},
    step::random::token_bits,
    tensor::Dtype,
};
use serde::Serialize;

use crate::{
    args::{BenchCommand, SharedArgs},
    exit::usage,
    interrupt,
    output::{self, Screen},
    settings::{Settings, numbers},
};

/// Default number of measured runs.
const REPEAT: usize = 5;
/// Runs before the first measured one.
const WARM: usize = 1;

/// Shared settings for the subject of a measurement.
pub fn shared(shared: SharedArgs, command: &BenchCommand) -> anyhow::Result<SharedArgs> {
    match command {
        BenchCommand::Linear(_) => linear::shared(shared),
        BenchCommand::Serve(_) => serve::shared(shared),
        _ => Ok(shared),
    }
}

/// Runs the command.
pub fn run(settings: &Settings, command: &BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Linear(args) => linear::run(settings, args),
        BenchCommand::Attention(args) => attention::run(settings, args),
        BenchCommand::Step(args) => step::run(settings, args),
        BenchCommand::Generate(args) => generate::run(settings, args),
        BenchCommand::Serve(args) => serve::run(settings, args),
    }
}

/// Order statistics of a few times.
#[derive(Debug, Clone, Copy, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Summarises at least one time.
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
        let (low, high) = (at((seconds.len().max(1) - 1) / 2), at(seconds.len() / 2));
        Self { median: f64::midpoint(low, high), min: at(0), max: at(seconds.len().max(1) - 1) }
    }

    /// Measures `repeat` runs behind the warm ones, each of which returns its seconds, unless the user stops it.
    fn measure(repeat: usize, mut work: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Self> {
        let mut seconds = Vec::new();
        for index in 0..repeat.saturating_add(WARM) {
            interrupt::check()?;
            let taken = work()?;
            if index >= WARM {
                seconds.push(taken);
            }
        }
        Ok(Self::of(seconds))
    }

    /// Times runs by the clock.
    fn timed(repeat: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Self> {
        Self::measure(repeat, || {
            let started = Instant::now();
            work()?;
            Ok(started.elapsed().as_secs_f64())
        })
    }

    fn told(&self) -> String {
        format!("{:.6} s ({:.6} to {:.6})", self.median, self.min, self.max)
    }
}

/// Peak rates of the machine.
struct Ceilings {
    tflops: f64,
    /// Rate of reading memory; none if no memory is read.
    gbs: Option<f64>,
}

impl Ceilings {
    /// Measures the ceilings of a device's products with weights that are stored in a type.
    fn of(device: &DeviceOptions, stored: Dtype) -> anyhow::Result<Self> {
        let products = device.products(stored)?;
        #[cfg(feature = "cuda")]
        if let DeviceChoice::Cuda(number) = device.device {
            return Self::on_gpu(&device.open_gpu(number)?, products.dtype);
        }
        Ok(Self::measure(&Pool::new(device.thread_count()?), device.isa()?, products))
    }

    /// Measures the ceilings of a card's products of a type.
    #[cfg(feature = "cuda")]
    fn on_gpu(gpu: &cuda::Driver, dtype: Dtype) -> anyhow::Result<Self> {
        let gbs = cuda::ceiling::reading_gbs(gpu)?;
        Ok(Self { tflops: cuda::ceiling::product_tflops(gpu, dtype)?, gbs })
    }

    /// Measures the ceilings of the processor's products of a kind.
    fn measure(pool: &Pool, isa: Isa, products: Products) -> Self {
        Self::beside(Reading::new(isa, pool).ok().as_ref(), pool, isa, products)
    }

    /// Measures the ceilings with memory that is there already, if there is enough.
    fn beside(reading: Option<&Reading>, pool: &Pool, isa: Isa, products: Products) -> Self {
        let gbs = reading.map(|reading| reading.gbs(pool));
        Self { tflops: ceiling::product_tflops(pool, isa, products), gbs }
    }

    /// The higher of two measurements each: others can only lower one.
    fn or_higher(self, other: &Self) -> Self {
        let gbs = self.gbs.into_iter().chain(other.gbs).reduce(f64::max);
        Self { tflops: self.tflops.max(other.tflops), gbs }
    }
}

/// Least cost of a piece of work.
#[derive(Debug, Clone, Copy)]
struct Work {
    flops: f64,
    /// Bytes that cannot but be read or written.
    bytes: f64,
}

/// Speeds beside their ceilings.
#[derive(Serialize)]
struct Rates {
    flops: f64,
    tflops: f64,
    gbs: f64,
    peak_tflops: f64,
    peak_gbs: Option<f64>,
    /// Share of the ceiling that binds: shortest time that the ceilings allow for over the median.
    fraction: f64,
}

impl Rates {
    fn new(Work { flops, bytes }: Work, seconds: &Spread, ceilings: &Ceilings) -> Self {
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

    fn told(&self) -> String {
        format!("{:.3} TFLOP/s, {:.2} GB/s, {:.0}% of the ceiling", self.tflops, self.gbs, self.fraction * 100.0)
    }
}

/// Shows reports one by one, or all of them as JSON.
struct Reports<R> {
    screen: Screen,
    all: Vec<R>,
}

impl<R: Serialize> Reports<R> {
    fn new(screen: Screen) -> Self {
        Self { screen, all: Vec::new() }
    }

    fn push(&mut self, report: R, told: impl Fn(&R) -> String) -> anyhow::Result<()> {
        if !self.screen.json {
            output::line(&told(&report))?;
        }
        self.all.push(report);
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        if self.screen.json { output::json(&self.all) } else { Ok(()) }
    }
}

/// Numbers of rows.
fn row_counts(rows: Option<&str>, default: &str) -> anyhow::Result<Vec<usize>> {
    let rows: Vec<usize> = numbers("--rows", rows.unwrap_or(default), "a number of rows")?;
    if rows.is_empty() || rows.contains(&0) {
        return Err(usage("--rows wants numbers from 1 on: --rows 32,256"));
    }
    Ok(rows)
}

/// Device of a single operation: the processor, unless a GPU is requested.
fn single(settings: &Settings) -> anyhow::Result<DeviceOptions> {
    let asked = settings.asked();
    let device = match asked.device {
        DeviceChoice::Auto => DeviceChoice::Cpu,
        device => device,
    };
    Ok(DeviceOptions { device, ..asked.clone() }.found()?)
}

/// Refuses `--every-kernel` where there is but one.
fn one_kernel(every: bool) -> anyhow::Result<()> {
    let refusal = "--every-kernel with device cpu, which has one kernel for everything: omit it, or use --device cuda";
    if every { Err(usage(refusal)) } else { Ok(()) }
}

/// The backend of a GPU, if that is what computes.
#[cfg(feature = "cuda")]
fn gpu(device: &DeviceOptions) -> anyhow::Result<Option<cuda::CudaBackend<cuda::Driver>>> {
    let DeviceChoice::Cuda(number) = device.device else { return Ok(None) };
    let Products { dtype, quantisation, .. } = device.products(Dtype::Bf16)?;
    let gpu = device.open_gpu(number)?;
    DeviceOptions::tell_experimental(gpu.card());
    Ok(Some(cuda::CudaBackend::new(gpu, cuda::CudaOptions { dtype, quantisation })))
}

/// A number of measured runs.
fn repeats(repeat: Option<usize>) -> anyhow::Result<usize> {
    match repeat.unwrap_or(REPEAT) {
        0 => Err(usage("--repeat is 0, expected at least 1")),
        repeat => Ok(repeat),
    }
}

/// A size that is at least 1 and at most `most`, beyond which the noise to measure with would take hours to make.
fn size(flag: &str, given: Option<usize>, default: usize, most: usize) -> anyhow::Result<usize> {
    match given.unwrap_or(default) {
        size if (1..=most).contains(&size) => Ok(size),
        size => Err(usage(format!("{flag} is {size}, expected 1 to {most}"))),
    }
}

/// Tokens that look like nothing in particular, the same for the same seed.
fn random_tokens(count: usize, vocabulary: usize, seed: u64) -> Vec<u32> {
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
