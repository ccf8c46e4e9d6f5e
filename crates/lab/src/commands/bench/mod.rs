//! `demask-lab bench`: each measurement has a file of its own; their common code is here.

mod attention;
mod generate;
mod linear;
mod step;

use demask::DeviceChoice;
use demask::DeviceOptions;
#[cfg(feature = "cuda")]
use demask_cpu::linear::Products;
#[cfg(feature = "cuda")]
use demask_tensor::Dtype;
use serde::Serialize;

use crate::{
    args::{BenchCommand, SharedArgs},
    exit::usage,
    output::{self, Screen},
    settings::{Settings, numbers},
};

/// Default number of measured runs.
const REPEAT: usize = 5;

/// Shared settings for the subject of a measurement.
pub fn shared(shared: SharedArgs, command: &BenchCommand) -> anyhow::Result<SharedArgs> {
    match command {
        BenchCommand::Linear(_) => linear::shared(shared),
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
    let asked = settings.requested_device();
    let device = match asked.device {
        DeviceChoice::Auto => DeviceChoice::Cpu,
        device => device,
    };
    Ok(DeviceOptions { device, ..asked.clone() }.resolved()?)
}

/// Refuses `--every-kernel` where there is but one.
fn one_kernel(every: bool) -> anyhow::Result<()> {
    let refusal = "--every-kernel with device cpu, which has one kernel for everything: omit it, or use --device cuda";
    if every { Err(usage(refusal)) } else { Ok(()) }
}

/// The backend of a GPU, if that is what computes.
#[cfg(feature = "cuda")]
fn gpu(device: &DeviceOptions) -> anyhow::Result<Option<demask_cuda::CudaBackend<demask_cuda::Driver>>> {
    let DeviceChoice::Cuda(number) = device.device else { return Ok(None) };
    let Products { dtype, quantisation, .. } = device.products(Dtype::Bf16, demask::Mask::Full)?;
    let gpu = device.open_gpu(number)?;
    DeviceOptions::tell_experimental(gpu.card());
    Ok(Some(demask_cuda::CudaBackend::new(gpu, demask_cuda::CudaOptions { dtype, quantisation })))
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
