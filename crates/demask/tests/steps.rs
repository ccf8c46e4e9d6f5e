//! `docs/steps.md`: the steps of every pair of methods on a small canvas, and a reason for each one that predicts nothing
//! and for each row that is computed and not read.

use std::{fmt::Write, fs, path::Path};

use demask_checkpoint::{FAMILIES, Family};
use demask_decode::{
    CacheSpec, CanvasSpec, DecoderSpec, GuideOptions, ModelFacts, Session, SessionOptions, StopRule, caches::CACHES,
    methods::DECODERS,
};
use demask_step::{Job, Lanes, Mask, Network, Pending, Position, Predictions, StepPlan, TokenId};
use demask_testkit::scripted::Scripted;

/// Written by hand: what a line means.
const INTRODUCTION: &str = "\
# Steps

Written from sessions made of every pair; `DEMASK_BLESS=1 cargo test -p demask --test all steps` writes it again. Each family
decodes 12 tokens behind a prompt of 6 in blocks of 4, with the methods' defaults.

A step is `rows>predictions`: `10>4` computes 10 rows and asks for 4 predictions. Drafts have a factor: `3x4>4`. `!2` counts
rows that nothing reads, neither a prediction nor a row of this step or of a later one. A step that predicts nothing or
computes what nothing reads has a reason below its table, or the test fails.
";

const PROMPT: usize = 6;
const RESPONSE: usize = 12;
const BLOCK: Position = 4;
const VOCABULARY: usize = 24;

/// Pairs beside those of the defaults: what published loops run in vain.
const PUBLISHED: &[(&str, &str)] = &[
    ("static", "block:store=alone"),
    ("freedave:mode=reference", "block"),
    ("threshold:tau=0", "dual:idle"),
    ("threshold:tau=0", "prefix:idle"),
];

/// Reasons why a pair predicts nothing in a step, or leaves rows unread.
const REASONS: &[(&str, &str, Waste, &str)] = &[
    ("static", "block:store=alone", Waste::Idle, "the released loop stores in forwards of their own"),
    ("static", "block:store=alone", Waste::Unread, "the released loop stores the last block too"),
    ("freedave:mode=reference", "block", Waste::Idle, "the released loop stores in forwards of their own"),
    ("freedave:mode=reference", "block", Waste::Unread, "the released loop stores the last block too"),
    ("threshold:tau=0", "dual:idle", Waste::Idle, "as first released, a block that is complete runs once more"),
    ("threshold:tau=0", "dual:idle", Waste::Unread, "as first released, a block that is complete runs once more"),
    ("threshold:tau=0", "prefix:idle", Waste::Idle, "as first released, a block that is complete runs once more"),
    ("threshold:tau=0", "prefix:idle", Waste::Unread, "as first released, a block that is complete runs once more"),
];

/// What a step does in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waste {
    /// It predicts nothing.
    Idle,
    /// It computes rows that nothing reads.
    Unread,
}

/// One step of a canvas.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    lanes: usize,
    rows: usize,
    predictions: usize,
    unread: usize,
}

impl Step {
    fn wastes(&self) -> impl Iterator<Item = Waste> {
        let idle = (self.predictions == 0).then_some(Waste::Idle);
        let unread = (self.unread > 0).then_some(Waste::Unread);
        idle.into_iter().chain(unread)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.lanes > 1 {
            write!(f, "{}x", self.lanes)?;
        }
        write!(f, "{}", self.rows)?;
        if self.unread > 0 {
            write!(f, "!{}", self.unread)?;
        }
        write!(f, ">{}", self.predictions)
    }
}

/// A family's model with blocks of 4.
fn facts(family: &Family) -> ModelFacts {
    let mask = match family.attention() {
        Mask::BlockCausal { .. } => Mask::blocks(BLOCK),
        Mask::Context { context, .. } => Mask::Context { context, block: BLOCK },
        mask => mask,
    };
    ModelFacts {
        mask,
        shift: family.shift() as u32,
        mask_id: Some(VOCABULARY as TokenId - 1),
        vocab: VOCABULARY,
        context: 4096,
        layers: 3,
        blocks: family.blocks(),
        free_rows: demask_decode::FREE_ROWS,
    }
}

/// Plans of a run of this pair; none if it is refused.
fn plans(facts: &ModelFacts, decoder: DecoderSpec, cache: CacheSpec) -> Option<Vec<StepPlan>> {
    let tokens = (0..PROMPT as TokenId).collect();
    let mut options = SessionOptions::new(facts.clone(), CanvasSpec::Prompt { tokens, gen_length: RESPONSE });
    options.block_length = (facts.mask == Mask::Full).then_some(BLOCK as usize);
    options.stop = StopRule::Never;
    options.guide = decoder.traits().guide.map(|_| GuideOptions {
        facts: ModelFacts { mask: Mask::Causal, shift: 1, mask_id: None, ..facts.clone() },
        end_ids: Vec::new(),
        shared_vocabulary: true,
        text: None,
    });
    (options.decoder, options.cache) = (decoder, cache);
    let mut session = Session::new(options).ok()?;
    let needs = session.needs().to_vec();
    let script = |seed, shift| Scripted::new(seed, VOCABULARY, shift).with_easy(0.6).with_spread(3.0);
    let mut networks = [script(5, facts.shift), script(9, 1)];
    let ids: Vec<_> = needs.iter().map(|need| networks[need.network].open(&need.limits).unwrap()).collect();
    let mut plans = Vec::new();
    while let Pending::Run { requests, .. } = session.pending() {
        let network = needs[requests[0].sequence].network;
        if network == 0 {
            plans.push(requests[0].plan.clone());
        }
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        networks[network].step(&batch, &mut out).unwrap();
        session.feed(&out);
    }
    Some(plans)
}

/// Reads a run from its end: a row is read if a prediction is made of it, if a row that is read sees it, or if its K/V are
/// still there when such a row looks.
fn steps(plans: &[StepPlan], shift: Position) -> Vec<Step> {
    let positions = plans.iter().map(|plan| plan.kv_len as usize).max().unwrap_or(0);
    // Slots that a later step reads, and those that the next step keeps of a draft.
    let (mut read, mut kept) = (vec![false; positions], None::<(u32, Vec<bool>)>);
    let mut steps: Vec<Step> = plans
        .iter()
        .rev()
        .map(|plan| {
            let lanes = plan.lanes.count();
            let (mut unread, mut before) = (0, read.clone());
            if plan.lanes == Lanes::Canvas {
                plan.query.iter().for_each(|position| before[position as usize] = false);
            }
            for lane in 0..lanes {
                let live = plan.query.as_slice();
                let stays = |position: Position| match (&kept, plan.lanes) {
                    (_, Lanes::Canvas) => read[position as usize],
                    (Some((of, slots)), _) if *of == lane as u32 => slots[position as usize],
                    _ => false,
                };
                let asked = [&plan.predict, &plan.must, &plan.hint];
                let predicts =
                    |row| asked.iter().any(|set| set.iter().any(|position| plan.predictor(position, shift) == row));
                let mut is_read: Vec<bool> = live.iter().map(|&row| predicts(row) || stays(row)).collect();
                loop {
                    let seen = live.iter().zip(&is_read).filter(|(_, is_read)| **is_read);
                    let end = seen.map(|(&row, _)| plan.mask.limit(row, plan.kv_len)).max().unwrap_or(0);
                    let count = is_read.iter().filter(|&&is_read| is_read).count();
                    live.iter().zip(&mut is_read).for_each(|(&row, is_read)| *is_read |= row < end);
                    if count == is_read.iter().filter(|&&is_read| is_read).count() {
                        (0..end).filter(|slot| !live.contains(slot)).for_each(|slot| before[slot as usize] = true);
                        break;
                    }
                }
                unread += is_read.iter().filter(|&&is_read| !is_read).count();
            }
            kept = plan.retain.as_ref().map(|keep| {
                let mut slots = vec![false; positions];
                for position in keep.positions.iter().map(|position| position as usize) {
                    slots[position] = std::mem::take(&mut before[position]);
                }
                (keep.lane, slots)
            });
            read = before;
            Step { lanes, rows: plan.rows() / lanes, predictions: plan.predictions(), unread }
        })
        .collect();
    steps.reverse();
    steps
}

/// Returns the reason why a pair does something in vain.
fn reason(pair: (&str, &str), waste: Waste) -> Option<usize> {
    REASONS.iter().position(|(decoder, cache, what, _)| (*decoder, *cache) == pair && *what == waste)
}

/// The page, and what has no reason.
fn page() -> (String, Vec<String>) {
    let (mut page, mut faults) = (INTRODUCTION.to_owned(), Vec::new());
    let mut known: Vec<(ModelFacts, Vec<&str>)> = Vec::new();
    for family in FAMILIES {
        let facts = facts(family);
        match known.iter_mut().find(|(other, _)| *other == facts) {
            Some((_, names)) => names.push(family.name()),
            None => known.push((facts, vec![family.name()])),
        }
    }
    for (facts, names) in known {
        write!(page, "\n## {} ({})\n\n```text\n", facts.mask, names.join(", ")).unwrap();
        let mut reasons = Vec::new();
        let names = |decoder| CACHES.iter().map(move |cache| (decoder, cache.about.name));
        let pairs = DECODERS.iter().flat_map(|decoder| names(decoder.about.name)).chain(PUBLISHED.iter().copied());
        for pair in pairs {
            let Some(plans) = plans(&facts, pair.0.parse().unwrap(), pair.1.parse().unwrap()) else { continue };
            let steps = steps(&plans, facts.shift);
            let text: Vec<String> = steps.iter().map(ToString::to_string).collect();
            writeln!(page, "{:15} {:9} {}", pair.0, pair.1, text.join(" ")).unwrap();
            for waste in steps.iter().flat_map(Step::wastes) {
                match reason(pair, waste) {
                    Some(reason) if !reasons.contains(&reason) => reasons.push(reason),
                    Some(_) => {}
                    None => faults.push(format!("{} {} over {}: {waste:?}", facts.mask, pair.0, pair.1)),
                }
            }
        }
        page.push_str("```\n");
        for reason in reasons {
            let (decoder, cache, waste, why) = REASONS[reason];
            let what = if waste == Waste::Idle { "predicts nothing" } else { "leaves rows unread" };
            write!(page, "\n* `{decoder}` over `{cache}` {what}: {why}").unwrap();
        }
        page.push('\n');
    }
    faults.dedup();
    (page, faults)
}

#[test]
fn every_step_predicts_and_every_row_is_read_or_has_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/steps.md");
    let (page, faults) = page();
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page, "docs/steps.md differs: run with DEMASK_BLESS=1");
}
