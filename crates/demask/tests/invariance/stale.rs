//! Pages that are used again: what their last holder left in them changes no bit, not even where it is no number.

use demask_cpu::{CpuOptions, linear::Activations};
use demask_model::{ArchSpec, Inspect, Rope};
use demask_step::{
    Blend, BlendWith, Drift, HeadAsk, Lanes, LayerRows, Mask, Predictions, Probe, Retain, SequenceId, SequenceLimits,
    SequenceStep, StepPlan,
};

use super::{Step, ask, assert_same, full, needs, run};
use crate::common::{Device, Dice, RandomWeights, processor, quantised_on, runner_with, specs};

/// Token whose embedding is no number: no prompt of the tests has it.
const POISON: u32 = 69;
/// Positions of the sequences: two pages, the second one in part.
const LENGTH: usize = 45;
const LANES: usize = 2;

/// Needs of a sequence of a kind.
fn needs_of(spec: &ArchSpec, positions: usize) -> SequenceLimits {
    let whole = spec.attention == Mask::Full;
    SequenceLimits { increments: whole, residual: whole, ..needs(positions, LANES) }
}

/// A step of leading positions, from one on.
fn part(spec: &ArchSpec, dice: &mut Dice, live: std::ops::Range<u32>) -> Step {
    let tokens = live.clone().map(|_| dice.below(POISON as usize) as u32).collect();
    let mut plan = StepPlan { kv_len: live.end, mask: spec.attention, ..StepPlan::default() };
    plan.predict.set_range(live.start + spec.shift as u32..live.end);
    plan.query.set_range(live);
    Step { tokens, plan }
}

/// Steps that leave slots of their pages unwritten: prompts that end within a page, at odd and even places, growing by a
/// few rows; drafts of which one is kept; where rows see everything, layers that are computed in part.
fn script(spec: &ArchSpec) -> Vec<Step> {
    let mut dice = Dice::new(31);
    let mut steps: Vec<Step> = [0..13, 13..14, 14..20, 16..33, 33..40].map(|live| part(spec, &mut dice, live)).into();
    let mut drafts = part(spec, &mut dice, 30..40);
    drafts.plan.lanes = Lanes::Drafts(LANES as u32);
    drafts.tokens.extend((0..10).map(|_| dice.below(POISON as usize) as u32));
    steps.push(drafts);
    let mut kept = part(spec, &mut dice, 40..44);
    kept.plan.retain = Some(Retain { lane: 1, positions: (30..40).into() });
    steps.push(kept);
    if spec.attention == Mask::Full {
        let mut layers = part(spec, &mut dice, 0..44);
        let probe = Some(Probe { rows: (20..44).into(), keep: 5, by: Drift::Value });
        layers.plan.layers = LayerRows::Partial { compute: (3..9).into(), probe, first_whole: true };
        steps.push(layers);
    }
    steps
}

/// Runs the script on a sequence of its own, and guidance whose difference was never stored for most rows.
fn answers(network: &mut dyn Inspect, spec: &ArchSpec, script: &[Step]) -> Vec<Predictions> {
    let ask = ask();
    let id = network.open(&needs_of(spec, LENGTH)).unwrap();
    let unwritten = network.stored(id, &(0..LENGTH as u32).into()).unwrap();
    assert!(unwritten.iter().flatten().flatten().all(|&value| value == 0.0), "nothing is stored yet");
    let mut answers: Vec<_> = script.iter().map(|step| run(network, &[step.of(id, &ask)]).remove(0)).collect();
    if spec.attention == Mask::Full {
        let blend = Some(Blend { scale: 1.5, with: BlendWith::Stored });
        let step = part(spec, &mut Dice::new(5), 0..44);
        answers.extend(run(network, &[SequenceStep { blend, ..step.of(id, &ask) }]));
    }
    let last = network.stored(id, &(44..45).into()).unwrap();
    assert!(last.iter().flatten().flatten().all(|&value| value == 0.0), "position 44 was never written");
    network.close(id);
    answers
}

/// Leaves pages of the same kind that hold no number anywhere: K, V, increments and differences of canvas and drafts.
fn poison(network: &mut dyn Inspect, spec: &ArchSpec) {
    let positions = 64;
    let ids = [(); 2].map(|()| network.open(&needs_of(spec, positions)).unwrap());
    let mut step = full(spec, &mut Dice::new(1), positions);
    step.tokens.fill(POISON);
    let guided = spec.attention == Mask::Full;
    let blend = guided.then_some(Blend { scale: 1.0, with: BlendWith::Behind(1) });
    let asks = [ask(), HeadAsk::default()];
    let quiet = Step { plan: StepPlan { predict: [].into_iter().collect(), ..step.plan.clone() }, ..step.clone() };
    run(network, &[SequenceStep { blend, ..step.of(ids[0], &asks[0]) }, quiet.of(ids[1], &asks[1])]);
    let stored = |network: &mut dyn Inspect, id: SequenceId| network.stored(id, &(0..64).into()).unwrap();
    for id in ids {
        assert!(stored(network, id).iter().flatten().flatten().all(|value| !value.is_finite()));
        let mut drafts = quiet.clone();
        drafts.plan.lanes = Lanes::Drafts(LANES as u32);
        drafts.tokens = vec![POISON; LANES * positions];
        run(network, &[drafts.of(id, &HeadAsk::default())]);
        network.close(id);
    }
}

#[test]
fn pages_that_another_request_left_full_of_no_numbers_change_no_bit() {
    for (name, spec) in specs() {
        // A head is refused whose numbers are none.
        let spec = ArchSpec { tied: false, ..spec };
        // Heads as the models have them are multiplied by other instructions.
        let wide = ArchSpec { head_dim: 32, rope: Rope { rotated: 32, ..spec.rope.clone() }, ..spec.clone() };
        for spec in [spec, wide] {
            let (script, weights) = (script(&spec), RandomWeights::new(&spec, 7).with_no_number(POISON));
            for (device, dtype) in processor() {
                let Device::Cpu(isa) = device else { continue };
                let plain = CpuOptions { isa, dtype, quantisation: None, activations: Activations::Plain, threads: 2 };
                // Integers of inputs have no word for what is no number.
                let quantised = quantised_on(device, dtype)
                    .into_iter()
                    .find(|kind| spec.experts.is_none() && kind.activations == Activations::Plain);
                let quantised = quantised.map(|kind| CpuOptions { quantisation: kind.quantisation, ..plain });
                for options in [Some(plain), quantised].into_iter().flatten() {
                    let what = format!("{name} {device} {options:?} heads of {}", spec.head_dim);
                    let fresh = answers(&mut *runner_with(&spec, &weights, options), &spec, &script);
                    let mut network = runner_with(&spec, &weights, options);
                    poison(&mut *network, &spec);
                    let free = network.pages().free;
                    let again = answers(&mut *network, &spec, &script);
                    assert_eq!((network.pages().free, network.pages().used), (free, 0), "{what}: no new page");
                    for (at, (again, fresh)) in again.iter().zip(&fresh).enumerate() {
                        assert_same(again, fresh, &format!("{what}, step {at}"));
                        assert!(again.logits.iter().all(|value| value.is_finite()), "{what}, step {at}");
                    }
                }
            }
        }
    }
}
