//! Row invariance, bitwise: what a row computes depends on nothing but its own inputs. Not on other rows, sequences or
//! drafts of the step, nor on the number of threads, on any tier.

mod drafts;
mod partial;
mod stale;

use crate::common::{Device, Dice, devices, processor, quantised_on, runner, runner_of, specs};
use demask_cpu::linear::Products;
use demask_model::{ArchSpec, Inspect};
use demask_step::{
    Blend, BlendWith, Drift, HeadAsk, HeadRequest, Lanes, LayerRows, Mask, PlanError, Positions, Predictions, Probe,
    Retain, SequenceId, SequenceLimits, SequenceStep, StepPlan,
};

fn ask() -> HeadAsk {
    HeadRequest { logits: true, margin: true, entropy: true, top: 3, ..HeadRequest::default() }.into()
}

fn needs(positions: usize, drafts: usize) -> SequenceLimits {
    SequenceLimits {
        positions,
        rows: positions * drafts.max(1),
        drafts,
        draft_span: if drafts > 0 { positions } else { 0 },
        predictions: positions * drafts.max(1),
        top: 3,
        logits: true,
        ..SequenceLimits::default()
    }
}

/// One step of one sequence, owned.
#[derive(Clone)]
struct Step {
    tokens: Vec<u32>,
    plan: StepPlan,
}

impl Step {
    fn of<'a>(&'a self, sequence: SequenceId, ask: &'a HeadAsk) -> SequenceStep<'a> {
        SequenceStep { sequence, tokens: &self.tokens, plan: &self.plan, ask, blend: None }
    }
}

fn run(network: &mut dyn Inspect, steps: &[SequenceStep<'_>]) -> Vec<Predictions> {
    let mut out = vec![Predictions::default(); steps.len()];
    network.step(steps, &mut out).unwrap();
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Compares everything but the cost, bit by bit.
fn assert_same(left: &Predictions, right: &Predictions, what: &str) {
    assert_eq!(left.positions, right.positions, "{what}");
    assert_eq!(left.tokens, right.tokens, "{what}");
    for (left, right, field) in [
        (&left.logits, &right.logits, "logits"),
        (&left.confidence, &right.confidence, "confidence"),
        (&left.margin, &right.margin, "margin"),
        (&left.entropy, &right.entropy, "entropy"),
    ] {
        assert_eq!(bits(left), bits(right), "{what}: {field}");
    }
    assert_eq!(left.top, right.top, "{what}");
}

/// Step with everything live and everything predicted.
fn full(spec: &ArchSpec, dice: &mut Dice, length: usize) -> Step {
    let mut plan = StepPlan { kv_len: length as u32, mask: spec.attention, ..StepPlan::default() };
    plan.query.set_range(0..length as u32);
    plan.predict.set_range(0..length as u32);
    Step { tokens: (0..length).map(|_| dice.below(spec.vocabulary) as u32).collect(), plan }
}

/// A random subset of rows with new tokens.
fn subset(spec: &ArchSpec, dice: &mut Dice, length: usize) -> Step {
    let percent = 10 + dice.below(80);
    let mut live: Positions = (0..length as u32).filter(|_| dice.chance(percent)).collect();
    if live.is_empty() {
        live.push(dice.below(length) as u32);
    }
    let shift = spec.shift as u32;
    let predict = (0..length as u32).filter(|&p| live.contains(p.saturating_sub(shift)) && dice.chance(60)).collect();
    let tokens = live.iter().map(|_| dice.below(spec.vocabulary) as u32).collect();
    Step {
        tokens,
        plan: StepPlan { query: live, kv_len: length as u32, mask: spec.attention, predict, ..StepPlan::default() },
    }
}

#[test]
fn batches_and_threads_change_no_bit() {
    for (name, spec) in specs() {
        for (device, dtype) in devices(name) {
            for seed in 0..if device == Device::EmulatedGpu { 1 } else { 3 } {
                random_company(name, &spec, device, Products::plain(dtype), seed);
            }
            for products in quantised_on(device, dtype) {
                random_company(name, &spec, device, products, 3);
            }
        }
    }
}

/// Sequences of random lengths run random subsets of their rows, alone on one thread, and together on more.
fn random_company(name: &str, spec: &ArchSpec, device: Device, products: Products, seed: u64) {
    let what = format!("{name} {device} {products:?} seed {seed}");
    let mut dice = Dice::new(11 + seed);
    let ask = ask();
    let lengths: Vec<usize> = [1, 9, 34, 40, 80].map(|most| 1 + dice.below(most)).to_vec();
    let scripts: Vec<Vec<Step>> = lengths
        .iter()
        .map(|&length| {
            let first = full(spec, &mut dice, length);
            std::iter::once(first).chain((0..3).map(|_| subset(spec, &mut dice, length))).collect()
        })
        .collect();
    let alone: Vec<Vec<Predictions>> = scripts
        .iter()
        .zip(&lengths)
        .map(|(script, &length)| {
            let mut network = runner_of(spec, device, products, 1);
            let id = network.open(&needs(length, 0)).unwrap();
            script.iter().map(|step| run(&mut *network, &[step.of(id, &ask)]).remove(0)).collect()
        })
        .collect();
    for threads in [1, 3] {
        let mut network = runner_of(spec, device, products, threads);
        // Room for all sequences in one step.
        let room = network.open(&needs(lengths.iter().sum(), 0)).unwrap();
        network.close(room);
        let ids: Vec<SequenceId> = lengths.iter().map(|&n| network.open(&needs(n, 0)).unwrap()).collect();
        for at in 0..4 {
            let steps: Vec<_> = scripts.iter().zip(&ids).map(|(script, &id)| script[at].of(id, &ask)).collect();
            for (which, found) in run(&mut *network, &steps).iter().enumerate() {
                assert_same(found, &alone[which][at], &format!("{what}, {threads} threads, step {at} of {which}"));
            }
        }
    }
}

/// I9: under block-causal attention nothing that a later block holds changes a bit of an earlier one.
#[test]
fn freedave_i9_later_blocks_do_not_reach_earlier_ones() {
    const LENGTH: usize = 24;
    let (name, spec) = specs().into_iter().find(|(name, _)| *name == "block").unwrap();
    for (device, dtype) in processor() {
        let ask = ask();
        let mut network = runner(&spec, device, dtype, 2);
        let mut dice = Dice::new(23);
        let first = full(&spec, &mut dice, LENGTH);
        let mut answer = |step: &Step| {
            let id = network.open(&needs(LENGTH, 0)).unwrap();
            let answer = run(&mut *network, &[step.of(id, &ask)]).remove(0);
            network.close(id);
            answer
        };
        let reference = answer(&first);
        for changed in 0..LENGTH {
            let mut step = first.clone();
            step.tokens[changed] = (step.tokens[changed] + 1 + dice.below(spec.vocabulary - 1) as u32) % 70;
            let found = answer(&step);
            let width = spec.vocabulary;
            let differs = |position: usize| {
                let row = position * width..(position + 1) * width;
                bits(&found.logits[row.clone()]) != bits(&reference.logits[row])
            };
            let what = format!("{name} {device} {dtype}: token {changed}");
            let block = changed / 4 * 4;
            assert!(!(0..block).any(differs), "{what} is seen before its block");
            assert!((block..LENGTH).all(differs), "{what} is seen from its block on");
        }
    }
}

/// I10: position `p` is predicted by row `p - shift` and by no other: that row alone, over the slots of all others,
/// gives the same bits, and where it is not live there is no prediction.
#[test]
fn freedave_i10_one_row_predicts() {
    const LENGTH: usize = 24;
    for (name, spec) in specs() {
        for (device, dtype) in processor() {
            let ask = ask();
            let whole = full(&spec, &mut Dice::new(6), LENGTH);
            let mut network = runner(&spec, device, dtype, 2);
            let id = network.open(&needs(LENGTH, 1)).unwrap();
            let reference = run(&mut *network, &[whole.of(id, &ask)]).remove(0);
            for position in 0..LENGTH as u32 {
                let row = position.saturating_sub(spec.shift as u32);
                let mut step = Step { tokens: vec![whole.tokens[row as usize]], plan: whole.plan.clone() };
                step.plan.query.set_range(row..row + 1);
                step.plan.predict.set_range(position..position + 1);
                let what = format!("{name} {device} {dtype}: position {position}");
                for lanes in [Lanes::Canvas, Lanes::Drafts(1)] {
                    step.plan.lanes = lanes;
                    let alone = run(&mut *network, &[step.of(id, &ask)]).remove(0);
                    let at = position as usize * spec.vocabulary;
                    assert_eq!(bits(&alone.logits), bits(&reference.logits[at..at + spec.vocabulary]), "{what}");
                }
                if spec.shift == 1 && position > 0 {
                    // The first row of a window predicts what lies behind it, never its own position.
                    step.plan.query.set_range(position..position + 1);
                    let refusal = network.check(&[step.of(id, &ask)]).unwrap_err().to_string();
                    assert!(refusal.ends_with(&format!("needs row {row}, which is not live")), "{what}: {refusal}");
                }
            }
        }
    }
}

/// specs/flashdlm.md#I3: with nothing changed, a window over stored slots is the full forward, whatever the window and
/// however many heads share their K/V. Over the slots of another text it is not.
#[test]
fn flashdlm_i3_a_window_is_the_full_forward_restricted_to_it() {
    const LENGTH: usize = 45;
    let full_attention = |(_, spec): &(&str, ArchSpec)| spec.attention == Mask::Full;
    for (name, spec) in specs().into_iter().filter(full_attention) {
        for (device, dtype) in processor() {
            let ask = ask();
            let mut dice = Dice::new(29);
            let (whole, other) = (full(&spec, &mut dice, LENGTH), full(&spec, &mut dice, LENGTH));
            let mut network = runner(&spec, device, dtype, 2);
            let ids = [network.open(&needs(LENGTH, 0)).unwrap(), network.open(&needs(LENGTH, 0)).unwrap()];
            let reference = run(&mut *network, &[whole.of(ids[0], &ask)]).remove(0);
            run(&mut *network, &[other.of(ids[1], &ask)]);
            for _ in 0..12 {
                let start = dice.below(LENGTH - 2) as u32;
                let end = start + 2 + dice.below(LENGTH - 1 - start as usize) as u32;
                let mut window = whole.clone();
                window.plan.query.set_range(start..end);
                window.plan.predict.set_range(start + spec.shift as u32..end);
                window.tokens = whole.tokens[start as usize..end as usize].to_vec();
                let found = run(&mut *network, &[window.of(ids[0], &ask)]).remove(0);
                let from = (start as usize + spec.shift) * spec.vocabulary;
                let expected = bits(&reference.logits[from..from + found.logits.len()]);
                let what = format!("{name} {device} {dtype}: {start}..{end}");
                assert_eq!(bits(&found.logits), expected, "{what}");
                if end - start < LENGTH as u32 {
                    // The control: the other text is run again before each window.
                    run(&mut *network, &[other.of(ids[1], &ask)]);
                    let control = run(&mut *network, &[window.of(ids[1], &ask)]).remove(0);
                    assert_ne!(bits(&control.logits), expected, "{what}");
                }
            }
        }
    }
}

/// caches X7: a block-causal (or causal) model decoded over stored slots equals the uncached forward, bitwise.
#[test]
fn caches_x7_cached_blocks_equal_the_uncached_forward() {
    for (name, spec) in specs().into_iter().filter(|(_, spec)| spec.attention != Mask::Full) {
        for (device, dtype) in devices(name) {
            let ask = ask();
            let whole = full(&spec, &mut Dice::new(2), 40);
            let mut network = runner(&spec, device, dtype, 2);
            let id = network.open(&needs(40, 0)).unwrap();
            let uncached = run(&mut *network, &[whole.of(id, &ask)]).remove(0);
            let cached = network.open(&needs(40, 0)).unwrap();
            let width = spec.vocabulary;
            for start in (0..40u32).step_by(4) {
                let mut plan = StepPlan { kv_len: start + 4, mask: spec.attention, ..StepPlan::default() };
                plan.query.set_range(start..start + 4);
                plan.predict.set_range(start + spec.shift as u32..start + 4);
                let tokens = whole.tokens[start as usize..start as usize + 4].to_vec();
                let step = Step { tokens, plan };
                let found = run(&mut *network, &[step.of(cached, &ask)]).remove(0);
                let from = uncached.index(0, start + spec.shift as u32).unwrap() * width;
                assert_eq!(
                    bits(&found.logits),
                    bits(&uncached.logits[from..from + found.logits.len()]),
                    "{name} {device} {dtype} block at {start}"
                );
            }
        }
    }
}

/// Guidance blends in hidden space what LLaDA blends in logits; the stored difference serves later steps.
#[test]
fn guidance_equals_blended_logits_and_its_difference_is_stored() {
    let (_, spec) = specs().remove(0);
    let ask = ask();
    let mut dice = Dice::new(8);
    let (conditional, unconditional) = (full(&spec, &mut dice, 30), full(&spec, &mut dice, 30));
    let (device, dtype) = processor()[0];
    let mut network = runner(&spec, device, dtype, 1);
    let reserved = SequenceLimits { residual: true, ..needs(30, 0) };
    let ids = [network.open(&reserved).unwrap(), network.open(&needs(30, 0)).unwrap()];
    let plain = [
        run(&mut *network, &[conditional.of(ids[0], &ask)]).remove(0),
        run(&mut *network, &[unconditional.of(ids[1], &ask)]).remove(0),
    ];
    let scale = 1.5;
    let silent = HeadAsk::default();
    let mut quiet = unconditional.clone();
    quiet.plan.predict.clear();
    let blend = Some(Blend { scale, with: BlendWith::Behind(1) });
    let steps = [SequenceStep { blend, ..conditional.of(ids[0], &ask) }, quiet.of(ids[1], &silent)];
    let blended = run(&mut *network, &steps).remove(0);
    for ((found, c), u) in blended.logits.iter().zip(&plain[0].logits).zip(&plain[1].logits) {
        let expected = u + (scale + 1.0) * (c - u);
        assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
    }
    let stored = SequenceStep { blend: Some(Blend { scale, with: BlendWith::Stored }), ..conditional.of(ids[0], &ask) };
    let again = run(&mut *network, &[stored]).remove(0);
    for (found, expected) in again.logits.iter().zip(&blended.logits) {
        assert!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
    }
}

/// Plans are checked against what really ran on the sequence: its slots, its drafts, its place in the network.
#[test]
fn plans_are_checked_against_what_ran() {
    let (_, spec) = specs().remove(1);
    let (device, dtype) = processor()[0];
    let ask = ask();
    let good = full(&spec, &mut Dice::new(1), 8);
    let mut network = runner(&spec, device, dtype, 1);
    let id = network.open(&SequenceLimits { increments: true, ..needs(8, 2) }).unwrap();
    let check = |network: &dyn Inspect, step: &Step| {
        let refused = |error: PlanError| error.to_string().split(": ").nth(1).unwrap().to_owned();
        network.check(&[step.of(id, &ask)]).map_err(refused)
    };
    let mut foreign = good.clone();
    foreign.tokens[3] = spec.vocabulary as u32;
    assert_eq!(check(&*network, &foreign), Err(format!("token {} is outside the vocabulary", spec.vocabulary)));
    let mut window = good.clone();
    window.plan.query.set_range(2..8);
    window.plan.predict.set_range(2..8);
    window.tokens.truncate(6);
    assert_eq!(check(&*network, &window), Err("slot 0 is visible and was never written".to_owned()));
    let mut partial = good.clone();
    let probe = Some(Probe { rows: (2..8).into(), keep: 3, by: Drift::Value });
    partial.plan.layers = LayerRows::Partial { compute: (0..2).into(), probe, first_whole: true };
    assert_eq!(check(&*network, &partial), Err("slot 2 is visible and was never written".to_owned()));
    let mut kept = good.clone();
    kept.plan.retain = Some(Retain { lane: 1, positions: (2..4).into() });
    assert_eq!(check(&*network, &kept), Err("position 2 was not in the last step's drafts".to_owned()));
    run(&mut *network, &[good.of(id, &ask)]);
    assert_eq!(check(&*network, &window), Err("position 2 needs row 1, which is not live".to_owned()));
    assert_eq!(check(&*network, &partial), Ok(()));
    let mut drafts = good.clone();
    drafts.plan.lanes = Lanes::Drafts(2);
    drafts.tokens = drafts.tokens.repeat(2);
    run(&mut *network, &[drafts.of(id, &ask)]);
    assert_eq!(check(&*network, &kept), Ok(()));
    let rows = network.rows().capacity / good.plan.rows() + 1;
    let group: Vec<_> = (0..rows).map(|_| good.of(network.open(&needs(8, 0)).unwrap(), &ask)).collect();
    assert!(network.check(&group).unwrap_err().to_string().contains(" rows of a group, "));
    network.close(id);
    assert_eq!(check(&*network, &good), Err("sequence 0 is not open".to_owned()));
}
