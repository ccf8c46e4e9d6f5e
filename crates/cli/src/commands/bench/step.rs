//! `demask bench step`: seconds of one forward.

use demask::{
    Model, Network,
    cpu::pool::Pool,
    step::{HeadAsk, Mask, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepPlan, TokenId},
    tensor::PartSeconds,
};
use serde::Serialize;

use super::{Ceilings, Rates, Reports, Spread, WARM, Work, random_tokens, repeats, row_counts};
use crate::{args::StepArgs, exit::usage, interrupt::Watched, load::load, settings::Settings};

/// One number of rows.
#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    rows: usize,
    head_rows: usize,
    seconds: Spread,
    parts: Parts,
    #[serde(flatten)]
    rates: Rates,
}

/// Seconds of one forward by kind of work: medians of each, the rest of the forward's median.
#[derive(Serialize)]
struct Parts {
    linear: f64,
    attention: f64,
    head: f64,
    other: f64,
}

/// Runs the command.
pub fn run(settings: &Settings, args: &StepArgs) -> anyhow::Result<()> {
    let all_rows = row_counts(args.rows.as_deref(), "256")?;
    let repeat = repeats(args.repeat)?;
    let device = settings.device()?;
    let opened = settings.source.open(settings.screen)?;
    let context = opened.prompter().facts().context;
    if let Some(rows) = all_rows.iter().find(|&&rows| rows > context) {
        return Err(usage(format!("{rows} rows exceed the model's context of {context}: ask for fewer")));
    }
    let answered = |rows: usize| args.head_rows.unwrap_or(rows);
    if let Some(rows) = all_rows.iter().find(|&&rows| !(1..=rows).contains(&answered(rows))) {
        let head_rows = answered(*rows);
        return Err(usage(format!("--head-rows is {head_rows}, expected 1 to {rows}, the rows of the forward")));
    }
    // One after the other: the largest has room for all.
    let largest = all_rows.iter().copied().max().map(|rows| needs(rows, answered(rows)));
    let mut model = load(opened, device, largest.as_slice(), settings.screen)?;
    let _watched = Watched::new();
    let products = device.products(settings.source.stored_dtype(settings.screen)?)?;
    let (threads, isa) = (device.thread_count()?, device.isa()?);
    // The model has threads of its own: these end before it runs.
    let ceilings = || Ceilings::measure(&Pool::new(threads), isa, products);
    let before = ceilings();
    let mut measured = Vec::new();
    for rows in all_rows {
        measured.push(measure_rows(&mut model, (rows, answered(rows)), repeat, settings.seed)?);
    }
    let ceilings = ceilings().or_higher(&before);
    let bytes = model.engine().network().forward_bytes() as f64;
    let mut reports = Reports::new(settings.screen);
    for Measured { rows, head_rows, seconds, parts, flops } in measured {
        let rates = Rates::new(Work { flops, bytes }, &seconds, &ceilings);
        let (model, device) = (model.name().to_owned(), model.engine().network().describe());
        reports.push(Report { model, device, rows, head_rows, seconds, parts, rates }, told)?;
    }
    reports.finish()
}

/// One number of rows, before it is compared with the ceilings.
struct Measured {
    rows: usize,
    head_rows: usize,
    seconds: Spread,
    parts: Parts,
    flops: f64,
}

fn measure_rows(
    model: &mut Model,
    (rows, head_rows): (usize, usize),
    repeat: usize,
    seed: u64,
) -> anyhow::Result<Measured> {
    let tokens = random_tokens(rows, model.facts().vocab, seed);
    let network = model.engine_mut().network_mut();
    let sequence = network.open(&needs(rows, head_rows))?;
    network.time_parts(true);
    let measured = forwards(network, sequence, &tokens, head_rows, repeat);
    network.time_parts(false);
    network.close(sequence);
    let (seconds, parts, flops) = measured?;
    Ok(Measured { rows, head_rows, seconds, parts, flops })
}

/// What a forward takes.
fn needs(rows: usize, head_rows: usize) -> SequenceNeeds {
    SequenceNeeds { positions: rows, rows, predictions: head_rows, ..SequenceNeeds::default() }
}

/// Times of forwards over all tokens whose first rows the head answers, and the operations of one.
fn forwards(
    network: &mut dyn Network,
    sequence: SequenceId,
    tokens: &[TokenId],
    head_rows: usize,
    repeat: usize,
) -> anyhow::Result<(Spread, Parts, f64)> {
    let rows = tokens.len() as u32;
    let plan = StepPlan {
        live: (0..rows).into(),
        visible: rows,
        mask: Mask::Full,
        predict: (0..head_rows as u32).into(),
        ..StepPlan::default()
    };
    let ask = HeadAsk::default();
    let step = SequenceStep { sequence, tokens, plan: &plan, ask: &ask, blend: None };
    let mut answers = [Predictions::default()];
    let (mut before, mut taken) = (PartSeconds::default(), Vec::new());
    let seconds = Spread::measure(repeat, || {
        network.step(&[step], &mut answers)?;
        let now = network.part_seconds();
        taken.push(PartSeconds {
            linear: now.linear - before.linear,
            attention: now.attention - before.attention,
            head: now.head - before.head,
        });
        before = now;
        Ok(())
    })?;
    let median = |part: fn(&PartSeconds) -> f64| Spread::of(taken[WARM..].iter().map(part).collect()).median;
    let (linear, attention, head) =
        (median(|parts| parts.linear), median(|parts| parts.attention), median(|parts| parts.head));
    let other = (seconds.median - linear - attention - head).max(0.0);
    Ok((seconds, Parts { linear, attention, head, other }, answers[0].cost.flops))
}

fn told(report: &Report) -> String {
    let Report { rows, head_rows, seconds, parts, rates, .. } = report;
    format!(
        "{rows} rows, {head_rows} head rows: {}, linear {:.4}, attention {:.4}, head {:.4}, other {:.4}; {}",
        seconds.told(),
        parts.linear,
        parts.attention,
        parts.head,
        parts.other,
        rates.told()
    )
}
