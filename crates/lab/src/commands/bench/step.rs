//! `demask-lab bench step`: seconds of one forward.

use std::ops::Range;

use crate::measuring::{Ceilings, Rates, Spread, WARM, Work, random_tokens};
use demask::DeviceChoice;
use demask::ModelByHand;
use demask_decode::ModelFacts;
use demask_model::Inspect;
use demask_step::{
    Drift, HeadAsk, Lanes, LayerRows, Mask, Positions, Predictions, Probe, SequenceId, SequenceLimits, SequenceSpec,
    SequenceStep, StepPlan, TokenId,
};
use demask_tensor::PartSeconds;
use serde::Serialize;

use super::{Reports, repeats, row_counts};
use crate::{
    args::StepArgs,
    exit::usage,
    interrupt::{self, Watched},
    load::load,
    settings::Settings,
};

/// Most drafts side by side.
const MOST_DRAFTS: usize = 64;

/// One number of rows.
#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    #[serde(flatten)]
    shape: Shape,
    seconds: Spread,
    parts: Parts,
    #[serde(flatten)]
    rates: Rates,
}

/// Shape of a forward.
#[derive(Debug, Clone, Copy, Serialize)]
struct Shape {
    rows: usize,
    /// Slots that the rows see, their own included.
    keys: usize,
    /// Rows that layers after the first compute, the most drifted; none: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<usize>,
    head_rows: usize,
    /// Drafts side by side, each of so many rows; none: the canvas itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    drafts: Option<usize>,
    /// The model's own: a position is predicted in the row so many before it.
    #[serde(skip)]
    shift: usize,
}

impl Shape {
    /// The shape of a forward of so many rows.
    fn new(rows: usize, args: &StepArgs, facts: &ModelFacts) -> anyhow::Result<Self> {
        let (context, shift) = (facts.context, facts.shift as usize);
        let keys = args.keys.unwrap_or(rows);
        if keys > context {
            return Err(usage(format!("{keys} keys exceed the model's context of {context}: ask for fewer")));
        }
        if keys < rows {
            return Err(usage(format!("--keys is {keys}, expected at least {rows}, the rows of the forward")));
        }
        let part = |flag: &str, given: Option<usize>| match given {
            Some(part) if !(1..=rows).contains(&part) => {
                Err(usage(format!("{flag} is {part}, expected 1 to {rows}, the rows of the forward")))
            }
            part => Ok(part),
        };
        let head_rows = part("--head-rows", args.head_rows)?.unwrap_or(rows);
        let drafts = match args.branches {
            Some(drafts) if !(1..=MOST_DRAFTS).contains(&drafts) => {
                return Err(usage(format!("--branches is {drafts}, expected 1 to {MOST_DRAFTS}")));
            }
            drafts => drafts,
        };
        Ok(Self { rows, keys, computed: part("--computed", args.computed)?, head_rows, drafts, shift })
    }

    /// Needs of its sequence, the forward that computes every slot included.
    fn needs(self) -> SequenceLimits {
        SequenceLimits {
            positions: self.keys,
            rows: self.keys.max(self.all_rows()),
            predictions: self.head_rows * self.lanes(),
            drafts: self.drafts.unwrap_or(0),
            draft_span: if self.drafts.is_some() { self.rows } else { 0 },
            increments: self.computed.is_some(),
            ..SequenceLimits::default()
        }
    }

    fn lanes(self) -> usize {
        self.drafts.unwrap_or(1)
    }

    /// Rows of all drafts together.
    fn all_rows(self) -> usize {
        self.rows * self.lanes()
    }

    /// The last positions, or the rows before them that predict them.
    fn live(self) -> Range<usize> {
        let first = self.keys - self.rows;
        let first = first - self.shift.min(first);
        first..first + self.rows
    }

    /// The live rows predict as many positions as the head has rows, from the first that they can.
    fn plan(self) -> StepPlan {
        let (live, keys) = (self.live(), self.keys as u32);
        let live = live.start as u32..live.end as u32;
        let first = (self.keys - self.rows) as u32;
        let probe = |keep| Probe { rows: live.clone().into(), keep, by: Drift::Value };
        let partial =
            |keep| LayerRows::Partial { compute: Positions::new(), probe: Some(probe(keep)), first_whole: true };
        StepPlan {
            query: live.clone().into(),
            kv_len: keys,
            mask: Mask::Full,
            layers: self.computed.map_or(LayerRows::All, partial),
            lanes: self.drafts.map_or(Lanes::Canvas, |drafts| Lanes::Drafts(drafts as u32)),
            predict: (first..first + self.head_rows as u32).into(),
            ..StepPlan::default()
        }
    }

    /// The forward that computes every slot.
    fn first_plan(self) -> StepPlan {
        Self { rows: self.keys, computed: None, drafts: None, ..self }.plan()
    }
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
    let device = &settings.device()?;
    let opened = settings.source.open(settings.screen)?;
    let facts = opened.info().facts();
    let shapes = all_rows.into_iter().map(|rows| Shape::new(rows, args, facts));
    let shapes: Vec<Shape> = shapes.collect::<anyhow::Result<_>>()?;
    // One after the other: the largest has room for all.
    let largest = shapes.iter().max_by_key(|shape| shape.all_rows()).map(|shape| SequenceSpec::from(shape.needs()));
    let mut model = load(opened, device, largest.as_slice(), settings.screen)?.by_hand()?;
    let _watched = Watched::begin();
    let (stored, attention) = (settings.source.stored_dtype(settings.screen)?, model.info().facts().mask);
    // The model has threads of its own: these end before it runs.
    let ceilings = || Ceilings::of(device, stored, attention);
    let before = ceilings()?;
    let mut measured = Vec::new();
    // A GPU that waits behind each part is slower than one that is let go.
    let apart = matches!(device.device, DeviceChoice::Cuda(_));
    for shape in shapes {
        measured.push(measure(&mut model, shape, (repeat, apart), settings.seed)?);
    }
    let ceilings = ceilings()?.or_higher(&before);
    let bytes = model.network().forward_bytes() as f64;
    let mut reports = Reports::new(settings.screen);
    for Measured { shape, seconds, parts, flops, expert_bytes } in measured {
        let work = Work { flops, bytes: bytes + expert_bytes };
        let rates = Rates::new(work, &seconds, &ceilings);
        let (model, device) = (model.name().to_owned(), model.network().describe());
        reports.push(Report { model, device, shape, seconds, parts, rates }, describe)?;
    }
    reports.finish()
}

/// One shape, before it is compared with the ceilings.
struct Measured {
    shape: Shape,
    seconds: Spread,
    parts: Parts,
    flops: f64,
    /// Bytes of experts that a forward read.
    expert_bytes: f64,
}

/// Measures `repeat` forwards; whole ones and their parts in runs of their own if `apart`.
fn measure(
    model: &mut ModelByHand,
    shape: Shape,
    (repeat, apart): (usize, bool),
    seed: u64,
) -> anyhow::Result<Measured> {
    let tokens = random_tokens(shape.keys, model.info().facts().vocab, seed);
    let network = model.network_mut();
    let sequence = network.open(&shape.needs())?;
    network.time_parts(true);
    let measured = forwards(network, sequence, &tokens, shape, repeat);
    network.time_parts(false);
    let whole = apart.then(|| forwards(network, sequence, &tokens, shape, repeat));
    network.close(sequence);
    let (timed, parts, [flops, expert_bytes]) = measured?;
    let seconds = whole.transpose()?.map_or(timed, |(seconds, ..)| seconds);
    Ok(Measured { shape, seconds, parts, flops, expert_bytes })
}

/// Times of forwards after one that computed every slot, and the operations of one and the bytes of experts that it read.
fn forwards(
    network: &mut dyn Inspect,
    sequence: SequenceId,
    tokens: &[TokenId],
    shape: Shape,
    repeat: usize,
) -> anyhow::Result<(Spread, Parts, [f64; 2])> {
    let (first, plan, ask) = (shape.first_plan(), shape.plan(), HeadAsk::default());
    let mut answers = [Predictions::default()];
    let step = SequenceStep { sequence, tokens, plan: &first, ask: &ask, blend: None };
    if shape.rows < shape.keys || shape.computed.is_some() || shape.drafts.is_some() {
        network.check(&[step])?;
        network.step(&[step], &mut answers)?;
    }
    let live = tokens[shape.live()].repeat(shape.lanes());
    let step = SequenceStep { tokens: &live, plan: &plan, ..step };
    network.check(&[step])?;
    let (mut before, mut taken, read) = (network.part_seconds(), Vec::new(), network.expert_bytes_read());
    let seconds = Spread::timed(repeat, || {
        interrupt::check()?;
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
    // Every repetition chooses the same ones.
    let expert_bytes = (network.expert_bytes_read() - read) as f64 / taken.len().max(1) as f64;
    Ok((seconds, Parts { linear, attention, head, other }, [answers[0].cost.flops(), expert_bytes]))
}

fn describe(report: &Report) -> String {
    let Report { shape: Shape { rows, keys, computed, head_rows, drafts, .. }, seconds, parts, rates, .. } = report;
    let drafts = drafts.map_or_else(String::new, |drafts| format!("{drafts} drafts of "));
    let computed = computed.map_or_else(String::new, |computed| format!(" ({computed} computed)"));
    format!(
        "{drafts}{rows} rows{computed}, {keys} keys, {head_rows} head rows: {}, linear {:.4}, attention {:.4}, head {:.4}, other {:.4}; {}",
        seconds.describe(),
        parts.linear,
        parts.attention,
        parts.head,
        parts.other,
        rates.describe()
    )
}
