//! `demask bench linear`: one product of rows with a weight.

use demask::{
    cpu::{linear::Linear, pool::Pool, trial::LinearTrial},
    tensor::Dtype,
};
use serde::Serialize;

use super::{Ceilings, Rates, Reports, Spread, Work, repeats, row_counts, size};
use crate::{args::LinearArgs, interrupt::Watched, settings::Settings};

/// Widest side of a weight.
const MOST: usize = 1 << 18;
/// Most rows.
const MOST_ROWS: usize = 1 << 16;

/// One number of rows.
#[derive(Serialize)]
struct Report {
    kernel: &'static str,
    dtype: String,
    threads: usize,
    rows: usize,
    #[serde(rename = "in")]
    inputs: usize,
    out: usize,
    seconds: Spread,
    #[serde(flatten)]
    rates: Rates,
}

/// Runs the command.
pub fn run(settings: &Settings, args: &LinearArgs) -> anyhow::Result<()> {
    let all_rows = row_counts(args.rows.as_deref(), "1,32,256")?;
    let repeat = repeats(args.repeat)?;
    let most_rows = size("--rows", all_rows.iter().copied().max(), 1, MOST_ROWS)?;
    let (inputs, outputs) = (size("--in", args.inputs, 4096, MOST)?, size("--out", args.outputs, 12288, MOST)?);
    let device = settings.device()?;
    let linear = Linear::with_products(device.isa()?, device.products(Dtype::Bf16)?);
    let pool = Pool::new(device.thread_count()?);
    let _watched = Watched::new();
    let mut trial = LinearTrial::new(linear, &pool, most_rows, inputs, outputs)?;
    let ceilings = Ceilings::measure(&pool, linear.isa(), linear.products());
    let mut reports = Reports::new(settings.screen);
    for rows in all_rows {
        let seconds = Spread::measure(repeat, || {
            trial.run(&pool, rows);
            Ok(())
        })?;
        let flops = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
        let rates = Rates::new(Work { flops, bytes: trial.bytes(rows) as f64 }, &seconds, &ceilings);
        let (kernel, dtype, threads) = (linear.name(), linear.dtype().to_string(), pool.threads());
        let report = Report { kernel, dtype, threads, rows, inputs, out: outputs, seconds, rates };
        reports.push(report, |report| format!("{rows} rows: {}; {}", report.seconds.told(), report.rates.told()))?;
    }
    reports.finish()
}
