//! `demask bench step`: seconds of one forward.

use std::time::Instant;

use demask::{
    Model,
    cpu::{linear::Quantisation, pool::Pool},
    model_parts::{ArchSpec, Role, expected_tensors},
    step::{HeadAsk, Mask, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepPlan, TokenId},
    tensor::Dtype,
};
use serde::Serialize;

use crate::{
    args::StepArgs,
    exit::usage,
    interrupt::{self, Watched},
    measure, output,
    settings::{Settings, numbers},
};

/// Measured forwards, unless somebody says otherwise.
const REPEAT: usize = 5;
/// Forwards before the first measured one.
const WARM: usize = 1;
/// How `parts` come about, for whoever reads the numbers.
const PARTS_BY: &str = "head: median with all head rows minus median with one; layers: the rest";

/// One number of rows.
#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    rows: usize,
    head_rows: usize,
    seconds: Spread,
    parts: Parts,
    parts_by: &'static str,
    flops: f64,
    tflops: f64,
    gbs: f64,
    peak_tflops: Option<f64>,
    peak_gbs: Option<f64>,
    fraction: Option<f64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Parts {
    layers: f64,
    head: f64,
}

/// What the machine can do at most.
struct Ceilings {
    tflops: Option<f64>,
    gbs: Option<f64>,
}

/// Runs the command.
pub fn step(settings: &Settings, args: &StepArgs) -> anyhow::Result<()> {
    let all_rows = row_counts(args)?;
    let repeat = args.repeat.unwrap_or(REPEAT);
    if repeat == 0 {
        return Err(usage("--repeat is 0, expected at least 1"));
    }
    let device = settings.device()?;
    let mut model = settings.source.model(device, settings.screen)?;
    let context = model.facts().context;
    if let Some(rows) = all_rows.iter().find(|&&rows| rows > context) {
        return Err(usage(format!("{rows} rows exceed the model's context of {context}: ask for fewer")));
    }
    let _watched = Watched::new();
    let dtype = device.resolve_dtype(stored_dtype(settings)?);
    let kind = (dtype, device.weights.quantisation());
    let pool = Pool::new(device.thread_count()?);
    let ceilings =
        Ceilings { tflops: measure::product_tflops(&pool, device.isa()?, dtype), gbs: measure::read_gbs(&pool) };
    drop(pool);
    let mut reports = Vec::new();
    for rows in all_rows {
        let head_rows = args.head_rows.unwrap_or(rows);
        if !(1..=rows).contains(&head_rows) {
            return Err(usage(format!("--head-rows is {head_rows}, expected 1 to {rows}, the rows of the forward")));
        }
        let report = measure_rows(&mut model, (rows, head_rows), repeat, settings.seed, kind, &ceilings)?;
        if !settings.screen.json {
            output::line(&told(&report))?;
        }
        reports.push(report);
    }
    if settings.screen.json { output::json(&reports) } else { Ok(()) }
}

fn row_counts(args: &StepArgs) -> anyhow::Result<Vec<usize>> {
    let rows = args.rows.as_deref().unwrap_or("256");
    let rows: Vec<usize> = numbers("--rows", rows, "a number of rows")?;
    if rows.is_empty() || rows.contains(&0) {
        return Err(usage("--rows wants numbers from 1 on: --rows 32,256"));
    }
    Ok(rows)
}

/// The type that most weights are stored in.
fn stored_dtype(settings: &Settings) -> anyhow::Result<Dtype> {
    let stored = settings.source.checkpoint(settings.screen)?.weights().dtypes();
    Ok(stored.into_iter().max_by_key(|&(_, bytes)| bytes).map_or(Dtype::Bf16, |(dtype, _)| dtype))
}

fn measure_rows(
    model: &mut Model,
    (rows, head_rows): (usize, usize),
    repeat: usize,
    seed: u64,
    (dtype, quantisation): (Dtype, Option<Quantisation>),
    ceilings: &Ceilings,
) -> anyhow::Result<Report> {
    let tokens = random_tokens(rows, model.facts().vocab, seed);
    let needs = SequenceNeeds { positions: rows, rows, predictions: head_rows, ..SequenceNeeds::default() };
    let sequence = model.engine_mut().network_mut().open(&needs)?;
    let mut run = Run { model, sequence, tokens: &tokens };
    let measured = run.forwards(head_rows, repeat).and_then(|all| Ok((all, run.forwards(1, repeat)?)));
    run.model.engine_mut().network_mut().close(sequence);
    let ((seconds, flops), (with_one, _)) = measured?;
    let network = model.engine().network();
    let bytes = touched_bytes(network.spec(), dtype, quantisation);
    let bounds = [(ceilings.tflops, flops / 1e12), (ceilings.gbs, bytes / 1e9)];
    let bound = bounds.iter().filter_map(|(peak, work)| peak.map(|peak| work / peak)).reduce(f64::max);
    let head = (seconds.median - with_one.median).max(0.0);
    Ok(Report {
        device: network.describe(),
        model: model.name().to_owned(),
        rows,
        head_rows,
        seconds,
        parts: Parts { layers: seconds.median - head, head },
        parts_by: PARTS_BY,
        flops,
        tflops: flops / seconds.median / 1e12,
        gbs: bytes / seconds.median / 1e9,
        peak_tflops: ceilings.tflops,
        peak_gbs: ceilings.gbs,
        fraction: bound.map(|bound| bound / seconds.median),
    })
}

/// Forwards of one open sequence.
struct Run<'a> {
    model: &'a mut Model,
    sequence: SequenceId,
    tokens: &'a [TokenId],
}

impl Run<'_> {
    /// Times of forwards over all tokens whose first rows the head answers, and the operations of one.
    fn forwards(&mut self, head_rows: usize, repeat: usize) -> anyhow::Result<(Spread, f64)> {
        let rows = self.tokens.len() as u32;
        let plan = StepPlan {
            live: (0..rows).into(),
            visible: rows,
            mask: Mask::Full,
            predict: (0..head_rows as u32).into(),
            ..StepPlan::default()
        };
        let ask = HeadAsk::default();
        let step = SequenceStep { sequence: self.sequence, tokens: self.tokens, plan: &plan, ask: &ask, blend: None };
        let mut answers = [Predictions::default()];
        let mut seconds = Vec::new();
        for index in 0..repeat.saturating_add(WARM) {
            interrupt::check()?;
            let started = Instant::now();
            self.model.engine_mut().network_mut().step(&[step], &mut answers)?;
            if index >= WARM {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
        Ok((spread(seconds), answers[0].cost.flops))
    }
}

/// Order statistics of at least one time.
fn spread(mut seconds: Vec<f64>) -> Spread {
    seconds.sort_by(f64::total_cmp);
    let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
    let (low, high) = (at((seconds.len().max(1) - 1) / 2), at(seconds.len() / 2));
    Spread { median: f64::midpoint(low, high), min: at(0), max: at(seconds.len().max(1) - 1) }
}

/// Bytes that one forward cannot avoid to read: every matrix once, but the table of embeddings, of which it reads rows.
/// A tied head is packed beside the table, like every matrix.
fn touched_bytes(spec: &ArchSpec, dtype: Dtype, quantisation: Option<Quantisation>) -> f64 {
    let matrix =
        |rows: usize, columns: usize| quantisation.map_or(rows * columns * dtype.size(), |to| to.bytes(rows, columns));
    let tensors = expected_tensors(spec);
    let read = tensors.iter().filter(|tensor| spec.tied || tensor.role != Role::Embedding);
    let bytes = read
        .map(|tensor| if tensor.vector { tensor.columns * dtype.size() } else { matrix(tensor.rows, tensor.columns) });
    bytes.sum::<usize>() as f64
}

/// Tokens that look like nothing in particular, the same for the same seed (splitmix64).
fn random_tokens(count: usize, vocabulary: usize, seed: u64) -> Vec<TokenId> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..count).map(|_| (next() % vocabulary.max(1) as u64) as TokenId).collect()
}

fn told(report: &Report) -> String {
    let Report { rows, head_rows, seconds, parts, tflops, gbs, fraction, .. } = report;
    let fraction = fraction.map(|fraction| format!(", {:.0}% of the ceiling", fraction * 100.0)).unwrap_or_default();
    format!(
        "{rows} rows, {head_rows} head rows: {:.4} s ({:.4} to {:.4}), layers {:.4}, head {:.4}; \
         {tflops:.3} TFLOP/s, {gbs:.2} GB/s{fraction}",
        seconds.median, seconds.min, seconds.max, parts.layers, parts.head
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let Spread { median, min, max } = spread(vec![3.0, 1.0, 2.0, 10.0]);
        assert_eq!((median, min, max), (2.5, 1.0, 10.0));
        assert_eq!(spread(vec![4.0]).median, 4.0);
    }

    #[test]
    fn random_tokens_repeat_and_stay_inside() {
        let tokens = random_tokens(100, 7, 3);
        assert_eq!(tokens, random_tokens(100, 7, 3));
        assert_ne!(tokens, random_tokens(100, 7, 4));
        assert!(tokens.iter().all(|&token| token < 7));
    }
}
