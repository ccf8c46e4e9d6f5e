//! `demask bench attention`: rows that all see the same keys.

use demask::{
    cpu::{linear::Products, pool::Pool, trial::AttentionTrial},
    tensor::{AttentionShape, Dtype},
};
use serde::Serialize;

use super::{Ceilings, Rates, Reports, Spread, Work, processor, repeats, row_counts, size};
use crate::{args::AttentionArgs, exit::usage, interrupt::Watched, settings::Settings};

/// Most rows, and most keys.
const MOST: usize = 1 << 18;
/// Most heads.
const MOST_HEADS: usize = 1 << 10;
/// Widest head.
const MOST_HEAD_DIM: usize = 1 << 12;

/// One number of rows.
#[derive(Serialize)]
struct Report {
    dtype: String,
    threads: usize,
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
    let device = &processor(settings)?;
    let (isa, dtype) = (device.isa()?, device.resolve_dtype(Dtype::Bf16));
    let pool = Pool::new(device.thread_count()?);
    let _watched = Watched::new();
    let ceilings = Ceilings::measure(&pool, isa, Products::plain(dtype));
    let mut reports = Reports::new(settings.screen);
    for rows in all_rows {
        let mut trial = AttentionTrial::new(isa, dtype, shape, (rows, keys))?;
        let seconds = Spread::measure(repeat, || {
            trial.run(&pool);
            Ok(())
        })?;
        let AttentionShape { kv_heads, head_dim, .. } = shape;
        let width = (heads * head_dim) as f64;
        // Two products; K and V once, queries and results in f32.
        let flops = 4.0 * rows as f64 * keys as f64 * width;
        let bytes = (2 * keys * kv_heads * head_dim * dtype.size()) as f64 + 8.0 * rows as f64 * width;
        let rates = Rates::new(Work { flops, bytes }, &seconds, &ceilings);
        let threads = pool.threads();
        let report =
            Report { dtype: dtype.to_string(), threads, rows, keys, heads, kv_heads, head_dim, seconds, rates };
        reports.push(report, |report| {
            format!("{rows} rows, {keys} keys: {}; {}", report.seconds.told(), report.rates.told())
        })?;
    }
    reports.finish()
}
