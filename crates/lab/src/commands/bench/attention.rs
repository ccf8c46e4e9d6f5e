//! `demask-lab bench attention`: rows that all see the same keys.

use crate::measuring::{Ceilings, Rates, Spread, Work};
use demask::DeviceOptions;
use demask_cpu::{
    CpuOptions,
    linear::{Activations, Products},
    pool::Pool,
};
use demask_measure::trial::AttentionTrial;
use demask_tensor::{AttentionShape, Dtype};
use serde::Serialize;

use super::{Reports, one_kernel, repeats, row_counts, single, size};
use crate::{
    args::AttentionArgs,
    exit::usage,
    interrupt::{self, Watched},
    settings::Settings,
};

/// Most rows, and most keys.
const MOST: usize = 1 << 18;
/// Most heads.
const MOST_HEADS: usize = 1 << 10;
/// Widest head.
const MOST_HEAD_DIM: usize = 1 << 12;

/// One number of rows, in one way.
#[derive(Serialize)]
struct Report {
    /// A GPU's.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'static str>,
    /// Records whether steps take this kernel, where all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<bool>,
    dtype: String,
    /// The processor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    rows: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    seconds: Spread,
    #[serde(flatten)]
    rates: Rates,
}

/// Runs the command.
pub fn run(settings: &Settings, args: &AttentionArgs) -> anyhow::Result<()> {
    let all_rows = row_counts(args.rows.as_deref(), "256")?;
    size("--rows", all_rows.iter().copied().max(), 1, MOST)?;
    let repeat = repeats(args.repeat)?;
    let keys = size("--keys", args.keys, 2048, MOST)?;
    let heads = size("--heads", args.heads, 32, MOST_HEADS)?;
    let shape = AttentionShape {
        heads,
        kv_heads: size("--kv-heads", args.kv_heads, heads, MOST_HEADS)?,
        head_dim: size("--head-dim", args.head_dim, 128, MOST_HEAD_DIM)?,
    };
    if !heads.is_multiple_of(shape.kv_heads) {
        return Err(usage(format!("--heads is {heads}, expected a multiple of --kv-heads, {}", shape.kv_heads)));
    }
    let device = &single(settings)?;
    let dtype = device.resolve_dtype(Dtype::Bf16);
    let asked = Workload { all_rows: &all_rows, repeat, keys, shape, dtype, every: args.every_kernel };
    let Measured { threads, row_element, ceilings, ways } = asked.measure(device)?;
    let mut reports = Reports::new(settings.screen);
    for Way { rows, kernel, chosen, seconds } in ways {
        let AttentionShape { kv_heads, head_dim, .. } = shape;
        let width = (heads * head_dim) as f64;
        // Two products; K and V once, queries and results.
        let flops = 4.0 * rows as f64 * keys as f64 * width;
        let bytes = (2 * keys * kv_heads * head_dim * dtype.size()) as f64 + (2 * row_element * rows) as f64 * width;
        let rates = Rates::new(Work { flops, bytes }, &seconds, &ceilings);
        let (chosen, dtype) = (args.every_kernel.then_some(chosen), dtype.to_string());
        let report = Report { kernel, chosen, dtype, threads, rows, keys, heads, kv_heads, head_dim, seconds, rates };
        let by = kernel.filter(|_| args.every_kernel).map_or_else(String::new, |kernel| format!(" by {kernel}"));
        reports.push(report, |report| {
            format!("{rows} rows, {keys} keys{by}: {}; {}", report.seconds.describe(), report.rates.describe())
        })?;
    }
    reports.finish()
}

/// Shapes to measure.
struct Workload<'a> {
    all_rows: &'a [usize],
    repeat: usize,
    keys: usize,
    shape: AttentionShape,
    dtype: Dtype,
    /// Records whether every kernel is.
    every: bool,
}

/// One number of rows in one way.
struct Way {
    rows: usize,
    /// A GPU's.
    kernel: Option<&'static str>,
    /// Records whether steps take this kernel.
    chosen: bool,
    seconds: Spread,
}

/// Seconds of each number of rows, before they are compared with the ceilings.
struct Measured {
    threads: Option<usize>,
    /// Bytes of a number of queries and results.
    row_element: usize,
    ceilings: Ceilings,
    ways: Vec<Way>,
}

impl Workload<'_> {
    fn measure(&self, device: &DeviceOptions) -> anyhow::Result<Measured> {
        #[cfg(feature = "cuda")]
        if let Some(backend) = super::gpu(device)? {
            return self.on_gpu(backend);
        }
        one_kernel(self.every)?;
        self.on_processor(device)
    }

    fn on_processor(&self, device: &DeviceOptions) -> anyhow::Result<Measured> {
        let pool = Pool::new(device.thread_count()?);
        let options = CpuOptions {
            isa: device.isa()?,
            dtype: self.dtype,
            quantisation: None,
            activations: Activations::Plain,
            threads: pool.threads(),
        };
        let _watched = Watched::begin();
        let ceilings = Ceilings::measure(&pool, options.isa, Products::plain(self.dtype));
        let mut ways = Vec::new();
        for &rows in self.all_rows {
            let mut trial = AttentionTrial::new(options, self.shape, (rows, self.keys))?;
            let seconds = Spread::timed(self.repeat, || {
                interrupt::check()?;
                trial.run();
                Ok(())
            })?;
            ways.push(Way { rows, kernel: None, chosen: true, seconds });
        }
        Ok(Measured { threads: Some(options.threads), row_element: size_of::<f32>(), ceilings, ways })
    }

    #[cfg(feature = "cuda")]
    fn on_gpu(&self, mut backend: demask_cuda::CudaBackend<demask_cuda::Driver>) -> anyhow::Result<Measured> {
        let _watched = Watched::begin();
        let ceilings = Ceilings::on_gpu(backend.gpu(), self.dtype)?;
        let mut ways = Vec::new();
        for &rows in self.all_rows {
            let mut trial = demask_cuda::trial::AttentionTrial::new(&mut backend, self.shape, (rows, self.keys))?;
            let most = if self.every { usize::MAX } else { 1 };
            for (place, kernel) in trial.kernels().into_iter().enumerate().take(most) {
                let seconds = Spread::measure(self.repeat, || {
                    interrupt::check()?;
                    Ok(trial.run(kernel)?)
                })?;
                ways.push(Way { rows, kernel: Some(kernel), chosen: place == 0, seconds });
            }
        }
        Ok(Measured { threads: None, row_element: self.dtype.size(), ceilings, ways })
    }
}
