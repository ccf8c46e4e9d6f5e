//! Drafts: each is computed as if it were alone on the canvas.

use demask_step::{Drift, Lanes, LayerRows, Mask, Probe, Retain, SequenceLimits, StepPlan};

/// Choices of rows, and whether the first layer computes all.
const PARTIAL: [(Drift, bool); 3] = [(Drift::Value, true), (Drift::Key, false), (Drift::Random { seed: 5 }, false)];

use super::{Step, ask, assert_same, bits, full, needs, run, subset};
use crate::common::{Dice, devices, processor, runner, specs};

/// freedave I7, I8: a draft beside others equals the draft alone; the accepted one's K/V equal those of a step on the
/// canvas; the others leave no trace.
#[test]
fn freedave_i7_i8_drafts_are_isolated_and_the_accepted_one_stays() {
    const LENGTH: usize = 45;
    const WINDOW: std::ops::Range<u32> = 20..38;
    for (name, spec) in specs() {
        for (device, dtype) in devices(name) {
            let what = format!("{name} {device} {dtype}");
            let mut dice = Dice::new(5);
            let ask = ask();
            let prefill = full(&spec, &mut dice, LENGTH);
            let lanes = 3;
            let mut drafts = StepPlan { kv_len: LENGTH as u32, mask: spec.attention, ..StepPlan::default() };
            drafts.query.set_range(WINDOW);
            drafts.predict.set_range(WINDOW.start + 1..WINDOW.end);
            let single = Step { tokens: Vec::new(), plan: drafts.clone() };
            drafts.lanes = Lanes::Drafts(lanes);
            let tokens = (0..lanes as usize * WINDOW.len()).map(|_| dice.below(spec.vocabulary) as u32).collect();
            let drafts = Step { tokens, plan: drafts };
            let mut after = subset(&spec, &mut dice, LENGTH);
            let accepted = 1;

            let mut network = runner(&spec, device, dtype, 2);
            let id = network.open(&needs(LENGTH, lanes as usize)).unwrap();
            run(&mut *network, &[prefill.of(id, &ask)]);
            let packed = run(&mut *network, &[drafts.of(id, &ask)]).remove(0);
            after.plan.retain = Some(Retain { lane: accepted, positions: WINDOW.into() });
            let kept = run(&mut *network, &[after.of(id, &ask)]).remove(0);
            after.plan.retain = None;

            for lane in 0..lanes as usize {
                let mut network = runner(&spec, device, dtype, 1);
                let id = network.open(&needs(LENGTH, 0)).unwrap();
                run(&mut *network, &[prefill.of(id, &ask)]);
                let range = lane * WINDOW.len()..(lane + 1) * WINDOW.len();
                let step = Step { tokens: drafts.tokens[range].to_vec(), ..single.clone() };
                let alone = run(&mut *network, &[step.of(id, &ask)]).remove(0);
                let width = packed.positions.len();
                assert_eq!(packed.tokens[lane * width..(lane + 1) * width], alone.tokens, "{what} lane {lane}");
                let logits = packed.logits.len() / lanes as usize;
                assert_eq!(
                    bits(&packed.logits[lane * logits..(lane + 1) * logits]),
                    bits(&alone.logits),
                    "{what} lane {lane}"
                );
                if lane == accepted as usize {
                    let expected = run(&mut *network, &[after.of(id, &ask)]).remove(0);
                    assert_same(&kept, &expected, &format!("{what}, after keeping lane {lane}"));
                }
            }
        }
    }
}

/// freedave I7, I8 where layers are partly computed: each draft chooses rows by itself, as if it ran alone on the canvas,
/// and the accepted one's K/V and increments are then the canvas's.
#[test]
fn freedave_i7_i8_partly_computed_drafts_are_isolated_and_the_accepted_one_stays() {
    const LENGTH: usize = 45;
    const LANES: usize = 3;
    for (name, spec) in specs().into_iter().filter(|(_, spec)| spec.attention == Mask::Full) {
        for (device, dtype) in devices(name) {
            for (by, first_whole) in PARTIAL {
                let what = format!("{name} {device} {dtype} {by:?} {first_whole}");
                let (ask, mut dice) = (ask(), Dice::new(15));
                let prefill = full(&spec, &mut dice, LENGTH);
                let mut plan = StepPlan { kv_len: LENGTH as u32, lanes: Lanes::Drafts(3), ..StepPlan::default() };
                plan.query.set_range(8..LENGTH as u32);
                plan.predict.set_range(20..38);
                let probe = Some(Probe { rows: (12..LENGTH as u32).into(), keep: 6, by });
                plan.layers = LayerRows::Partial { compute: (8..11).into(), probe, first_whole };
                let live = plan.query.len();
                // Most tokens are those of the prefill, so that what has drifted is a choice.
                let mut tokens = prefill.tokens[8..].repeat(LANES);
                for _ in 0..LANES * 9 {
                    tokens[dice.below(LANES * live)] = dice.below(spec.vocabulary) as u32;
                }
                let drafts = Step { tokens, plan };
                let mut after = full(&spec, &mut dice, LENGTH);
                after.plan.layers = LayerRows::Partial { compute: (0..2).into(), probe: None, first_whole: false };
                let run_with = |lanes: usize, drafts: &Step, keep: Option<Retain>| {
                    let mut network = runner(&spec, device, dtype, lanes.min(2));
                    let id = network.open(&SequenceLimits { increments: true, ..needs(LENGTH, lanes) }).unwrap();
                    run(&mut *network, &[prefill.of(id, &ask)]);
                    let drafted = run(&mut *network, &[drafts.of(id, &ask)]).remove(0);
                    let mut after = after.clone();
                    after.plan.retain = keep;
                    (drafted, run(&mut *network, &[after.of(id, &ask)]).remove(0))
                };
                for lane in 0..LANES {
                    let keep = Retain { lane: lane as u32, positions: drafts.plan.query.clone() };
                    let (packed, kept) = run_with(LANES, &drafts, Some(keep));
                    let tokens = drafts.tokens[lane * live..(lane + 1) * live].to_vec();
                    let single = StepPlan { lanes: Lanes::Canvas, ..drafts.plan.clone() };
                    let (alone, expected) = run_with(0, &Step { tokens, plan: single }, None);
                    let logits = packed.logits.len() / LANES;
                    let own = &packed.logits[lane * logits..(lane + 1) * logits];
                    assert_eq!(bits(own), bits(&alone.logits), "{what} lane {lane}");
                    assert_same(&kept, &expected, &format!("{what}, after keeping lane {lane}"));
                    assert_eq!(
                        packed.cost.flops(),
                        LANES as f64 * alone.cost.flops(),
                        "{what}: each draft costs as much"
                    );
                }
            }
        }
    }
}

/// The same drafts in one forward, in a batch of sequences that hold one each, and one after the other (I16).
#[test]
fn freedave_i16_packed_batched_and_sequential_drafts_are_the_same() {
    const LENGTH: usize = 40;
    const LANES: usize = 4;
    for (name, spec) in specs() {
        for (device, dtype) in devices(name) {
            let mut dice = Dice::new(17);
            let ask = ask();
            let prefill = full(&spec, &mut dice, LENGTH);
            let mut plan = StepPlan { kv_len: LENGTH as u32, mask: spec.attention, ..StepPlan::default() };
            plan.query.set_range(12..28);
            plan.predict.set_range(13..28);
            plan.lanes = Lanes::Drafts(1);
            let drafts: Vec<Step> = (0..LANES)
                .map(|_| (0..16).map(|_| dice.below(spec.vocabulary) as u32).collect())
                .map(|tokens| Step { tokens, plan: plan.clone() })
                .collect();
            let tokens = drafts.iter().flat_map(|draft| draft.tokens.clone()).collect();
            let packed = Step { tokens, plan: StepPlan { lanes: Lanes::Drafts(LANES as u32), ..plan } };
            let mut network = runner(&spec, device, dtype, 2);
            let room = network.open(&needs(LENGTH * LANES, LANES)).unwrap();
            network.close(room);
            let ids: Vec<_> = (0..LANES).map(|_| network.open(&needs(LENGTH, LANES)).unwrap()).collect();
            for &id in &ids {
                run(&mut *network, &[prefill.of(id, &ask)]);
            }
            let together = run(&mut *network, &[packed.of(ids[0], &ask)]).remove(0);
            let batch: Vec<_> = drafts.iter().zip(&ids).map(|(draft, &id)| draft.of(id, &ask)).collect();
            let batched = run(&mut *network, &batch);
            let what = format!("{name} {device} {dtype}");
            for (lane, (draft, batched)) in drafts.iter().zip(&batched).enumerate() {
                let alone = run(&mut *network, &[draft.of(ids[0], &ask)]).remove(0);
                assert_same(batched, &alone, &format!("{what} lane {lane}"));
                let (width, logits) = (together.tokens.len() / LANES, together.logits.len() / LANES);
                assert_eq!(together.tokens[lane * width..(lane + 1) * width], alone.tokens, "{what} lane {lane}");
                let of_lane = bits(&together.logits[lane * logits..(lane + 1) * logits]);
                assert_eq!(of_lane, bits(&alone.logits), "{what} lane {lane}");
            }
        }
    }
}

/// Rejected drafts leave the slots untouched.
#[test]
fn freedave_i8_rejected_drafts_leave_no_trace() {
    for (name, spec) in specs() {
        let (device, dtype) = processor()[0];
        let ask = ask();
        let mut dice = Dice::new(3);
        let (prefill, after) = (full(&spec, &mut dice, 40), subset(&spec, &mut dice, 40));
        let mut plan = StepPlan { kv_len: 40, mask: spec.attention, lanes: Lanes::Drafts(2), ..StepPlan::default() };
        plan.query.set_range(8..24);
        plan.predict.set_range(10..12);
        let drafts = Step { tokens: (0..32).map(|_| dice.below(spec.vocabulary) as u32).collect(), plan };
        let mut last = Vec::new();
        for with_drafts in [false, true] {
            let mut network = runner(&spec, device, dtype, 1);
            let id = network.open(&needs(40, 2)).unwrap();
            run(&mut *network, &[prefill.of(id, &ask)]);
            if with_drafts {
                run(&mut *network, &[drafts.of(id, &ask)]);
            }
            last.push(run(&mut *network, &[after.of(id, &ask)]).remove(0));
        }
        assert_same(&last[0], &last[1], name);
    }
}
