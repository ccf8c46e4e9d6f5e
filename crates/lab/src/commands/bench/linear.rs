//! `demask-lab bench linear`: one product of rows with a weight.

use std::time::Instant;

use crate::measuring::{Ceilings, Rates, Spread, WARM, Work};
use demask::{DeviceChoice, DeviceOptions, Mask};
use demask_cpu::{
    linear::{Linear, Quantisation},
    pool::Pool,
};
use demask_measure::{reading::Reading, trial::LinearTrial};
use demask_tensor::{BlockFormat, Dtype};
use serde::Serialize;

use super::{Reports, one_kernel, repeats, row_counts, single, size};
use crate::{
    args::{LinearArgs, SharedArgs},
    exit::usage,
    interrupt::{self, Watched},
    settings::Settings,
};

/// Widest side of a weight.
const MOST: usize = 1 << 18;
/// Most rows.
const MOST_ROWS: usize = 1 << 16;
/// Seconds that each number of rows runs for in a round, and runs at most: a median of a few products of one row, which
/// take some milliseconds, would be chance.
const ROUND_SECONDS: f64 = 0.04;
const MOST_RUNS: usize = 64;

/// One number of rows, by one kernel.
#[derive(Serialize)]
struct Report {
    kernel: &'static str,
    /// Records whether steps take this kernel, where all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<bool>,
    dtype: String,
    /// The processor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    rows: usize,
    #[serde(rename = "in")]
    inputs: usize,
    out: usize,
    runs: usize,
    seconds: Spread,
    #[serde(flatten)]
    rates: Rates,
}

/// A product's numbers are those of its weight: `--dtype q8` says here what `--quantize q8` does.
pub fn shared(mut shared: SharedArgs) -> anyhow::Result<SharedArgs> {
    let model = &mut shared.model;
    let quantised = model.text("dtype").filter(|dtype| Quantisation::ALL.iter().any(|to| to.to_string() == *dtype));
    let Some(dtype) = quantised.map(str::to_owned) else { return Ok(shared) };
    if let Some(other) = model.text("quantize").filter(|other| *other != dtype) {
        return Err(usage(format!("--dtype {dtype} and --quantize {other} contradict each other: give one of them")));
    }
    model.remove("dtype");
    model.replace("quantize", dtype);
    Ok(shared)
}

/// Runs the command.
pub fn run(settings: &Settings, args: &LinearArgs) -> anyhow::Result<()> {
    let all_rows = row_counts(args.rows.as_deref(), "1,32,256")?;
    let repeat = repeats(args.repeat)?;
    let most_rows = size("--rows", all_rows.iter().copied().max(), 1, MOST_ROWS)?;
    let (inputs, outputs) = (size("--in", args.inputs, 4096, MOST)?, size("--out", args.outputs, 12288, MOST)?);
    let device = &single(settings)?;
    let stored = stored(args.format.as_deref(), device, inputs)?;
    let asked = Workload { all_rows: &all_rows, most_rows, repeat, inputs, outputs, stored, every: args.every_kernel };
    let Measured { dtype, threads, ceilings, products } = asked.measure(device)?;
    let mut reports = Reports::new(settings.screen);
    for Timed { product: Product { rows, kernel, chosen }, bytes, seconds } in products {
        let (runs, seconds) = (seconds.len(), Spread::of(seconds));
        let flops = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
        let rates = Rates::new(Work { flops, bytes: bytes as f64 }, &seconds, &ceilings);
        let dtype = dtype.clone();
        let chosen = args.every_kernel.then_some(chosen);
        let report = Report { kernel, chosen, dtype, threads, rows, inputs, out: outputs, runs, seconds, rates };
        let by = if args.every_kernel { format!(" by {kernel}") } else { String::new() };
        reports.push(report, |report| {
            format!("{rows} rows{by}: {}; {}", report.seconds.describe(), report.rates.describe())
        })?;
    }
    reports.finish()
}

/// Returns the type in which the weight is stored: that of `--format`, or bf16.
fn stored(format: Option<&str>, device: &DeviceOptions, inputs: usize) -> anyhow::Result<Dtype> {
    let Some(text) = format else { return Ok(Dtype::Bf16) };
    let named = BlockFormat::ALL.into_iter().find(|format| format.to_string() == text.to_lowercase());
    let Some(format) = named else {
        let names: Vec<_> = BlockFormat::ALL.iter().map(ToString::to_string).collect();
        return Err(usage(format!("format {text:?} is unknown: use one of {}", names.join(", "))));
    };
    if let Some(to) = device.quantize.quantisation() {
        return Err(usage(format!("--format {format} and --quantize {to} contradict each other: give one of them")));
    }
    if matches!(device.device, DeviceChoice::Cuda(_)) {
        return Err(usage("--format measures the processor: leave --device cuda out".to_owned()));
    }
    if !inputs.is_multiple_of(format.elements()) {
        let block = format.elements();
        return Err(usage(format!(
            "--in is {inputs}, and a block of {format} has {block} inputs: give a multiple of it"
        )));
    }
    Ok(Dtype::Block(format))
}

/// Products to measure.
struct Workload<'a> {
    all_rows: &'a [usize],
    most_rows: usize,
    repeat: usize,
    inputs: usize,
    outputs: usize,
    /// Type in which the weight is stored.
    stored: Dtype,
    /// Records whether every kernel is.
    every: bool,
}

/// Products of each number of rows, before they are compared with the ceilings.
struct Measured {
    dtype: String,
    threads: Option<usize>,
    ceilings: Ceilings,
    products: Vec<Timed>,
}

/// A number of rows, and what multiplies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Product {
    rows: usize,
    kernel: &'static str,
    /// Records whether steps take this kernel.
    chosen: bool,
}

/// Products of one number of rows by one kernel.
struct Timed {
    product: Product,
    bytes: usize,
    seconds: Vec<f64>,
}

impl Workload<'_> {
    fn measure(&self, device: &DeviceOptions) -> anyhow::Result<Measured> {
        #[cfg(feature = "cuda")]
        if let Some(backend) = super::gpu(device)? {
            return self.on_gpu(&backend);
        }
        one_kernel(self.every)?;
        self.on_processor(device)
    }

    fn on_processor(&self, device: &DeviceOptions) -> anyhow::Result<Measured> {
        let linear = Linear::with_products(device.isa()?, device.products(self.stored, Mask::Full)?);
        let pool = Pool::new(device.thread_count()?);
        let _watched = Watched::begin();
        let mut trial = LinearTrial::new(linear, &pool, self.stored, self.most_rows, self.inputs, self.outputs)?;
        let reading = Reading::new(linear.isa(), &pool).ok();
        let ceilings = || Ceilings::beside(reading.as_ref(), &pool, linear.isa(), linear.products());
        let before = ceilings();
        let product = |&rows| Product { rows, kernel: trial.kernel(), chosen: true };
        let products: Vec<_> = self.all_rows.iter().map(product).collect();
        let measured = rounds(&products, self.repeat, |product| {
            let started = Instant::now();
            trial.run(&pool, product.rows);
            Ok(started.elapsed().as_secs_f64())
        })?;
        let timed = |(product, seconds): (Product, _)| Timed { product, bytes: trial.bytes(product.rows), seconds };
        let products = products.into_iter().zip(measured).map(timed).collect();
        let dtype = match (self.stored, linear.quantisation()) {
            (Dtype::Block(format), _) => format.to_string(),
            (_, Some(to)) => to.to_string(),
            _ => linear.dtype().to_string(),
        };
        Ok(Measured { dtype, threads: Some(pool.threads()), ceilings: ceilings().or_higher(&before), products })
    }

    #[cfg(feature = "cuda")]
    fn on_gpu(&self, backend: &demask_cuda::CudaBackend<demask_cuda::Driver>) -> anyhow::Result<Measured> {
        let _watched = Watched::begin();
        let mut trial = demask_cuda::trial::LinearTrial::new(backend, self.most_rows, self.inputs, self.outputs)?;
        let ceilings = || Ceilings::on_gpu(backend.gpu(), backend.options().dtype);
        let before = ceilings()?;
        let most = if self.every { usize::MAX } else { 1 };
        let all = self.all_rows.iter().flat_map(|&rows| {
            let kernels = trial.kernels(rows).into_iter().enumerate().take(most);
            kernels.map(move |(place, kernel)| Product { rows, kernel, chosen: place == 0 })
        });
        let products: Vec<_> = all.collect();
        let measured = rounds(&products, self.repeat, |product| Ok(trial.run(product.rows, product.kernel)?))?;
        let timed = |(product, seconds): (Product, _)| Timed { product, bytes: trial.bytes(product.rows), seconds };
        let products = products.into_iter().zip(measured).map(timed).collect();
        Ok(Measured { dtype: trial.format(), threads: None, ceilings: ceilings()?.or_higher(&before), products })
    }
}

/// Seconds of each product, as `time` runs and takes them, in turns: whatever else the machine does meets all of them
/// alike.
fn rounds<P: Copy>(
    products: &[P],
    repeat: usize,
    mut time: impl FnMut(P) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut measured = vec![Vec::new(); products.len()];
    let mut runs = vec![1; products.len()];
    for round in 0..repeat.saturating_add(WARM) {
        for ((&product, runs), measured) in products.iter().zip(&mut runs).zip(&mut measured) {
            interrupt::check()?;
            if round < WARM {
                *runs = ((ROUND_SECONDS / time(product)?) as usize).clamp(1, MOST_RUNS);
            } else {
                for _ in 0..*runs {
                    measured.push(time(product)?);
                }
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_files_and_mistakes_are_named() {
        let of =
            |format, device: &DeviceOptions, inputs| stored(format, device, inputs).map_err(|error| error.to_string());
        let device = DeviceOptions::default();
        assert_eq!(of(None, &device, 100), Ok(Dtype::Bf16));
        assert_eq!(of(Some("Q4_K"), &device, 512), Ok(Dtype::Block(BlockFormat::Q4K)));
        let unknown = of(Some("q9"), &device, 512).unwrap_err();
        assert!(unknown.starts_with("format \"q9\" is unknown: use one of q4_0, q4_1, "), "{unknown}");
        let uneven = "--in is 100, and a block of q4_k has 256 inputs: give a multiple of it";
        assert_eq!(of(Some("q4_k"), &device, 100).unwrap_err(), uneven);
        let gpu = DeviceOptions { device: DeviceChoice::Cuda(0), ..DeviceOptions::default() };
        let refused = "--format measures the processor: leave --device cuda out";
        assert_eq!(of(Some("q4_k"), &gpu, 512).unwrap_err(), refused);
    }

    #[test]
    fn numbers_of_rows_take_turns_and_short_ones_run_more_often() {
        let mut order = Vec::new();
        let measured = rounds(&[1, 2, 3], 3, |rows| {
            order.push(rows);
            Ok([1e-9, ROUND_SECONDS / 2.5, 9.0][rows - 1_usize])
        });
        let counts: Vec<_> = measured.unwrap().iter().map(Vec::len).collect();
        assert_eq!(counts, [3 * MOST_RUNS, 3 * 2, 3]);
        order.dedup();
        assert_eq!(order, [1, 2, 3].repeat(3 + WARM));
    }
}
