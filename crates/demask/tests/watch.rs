//! Values that an observer sees of a forward, against the naive transformer.

use std::collections::BTreeMap;

use crate::common::{Device, runner, specs, twin};
use demask_cpu::isa::Isa;
use demask_model::{ArchSpec, Intermediate};
use demask_step::{HeadAsk, Mask, Predictions, SequenceLimits, SequenceStep, StepPlan};
use demask_tensor::Dtype;
use demask_testkit::naive::network::assert_near;

const TOKENS: [u32; 11] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 69];

/// Number of keys that the twin's rows see.
fn limits(mask: Mask) -> Box<dyn Fn(usize) -> usize> {
    let all = TOKENS.len();
    match mask {
        Mask::Full => Box::new(move |_| all),
        Mask::BlockCausal { .. } | Mask::Context { .. } => {
            Box::new(move |position| mask.limit(position as u32, all as u32) as usize)
        }
        Mask::Causal => Box::new(|position| position + 1),
    }
}

fn devices() -> impl Iterator<Item = Device> {
    [Isa::best().into(), Device::EmulatedGpu].into_iter()
}

/// Every architecture on every device that computes it: no kernel of GPUs computes experts.
fn all() -> impl Iterator<Item = (Device, ArchSpec)> {
    let all = devices().flat_map(|device| specs().into_iter().map(move |(_, spec)| (device, spec)));
    all.filter(|(device, spec)| *device != Device::EmulatedGpu || spec.experts.is_none())
}

#[test]
fn a_watcher_sees_what_the_twin_computes() {
    for (device, spec) in all() {
        let (mask, sees) = (spec.attention, limits(spec.attention));
        let mut runner = runner(&spec, device, Dtype::F32, 2);
        let mut seen = BTreeMap::new();
        runner.watch(&TOKENS, mask, &mut |part, values| drop(seen.insert(part, values.to_vec()))).unwrap();
        let twin = twin(&spec, TOKENS.len());
        let mut slots = twin.slots(TOKENS.len());
        let rows: Vec<(usize, u32)> = TOKENS.iter().copied().enumerate().collect();
        twin.step(&mut slots, &rows, &*sees, None);
        let mut stream = seen[&Intermediate::Embedding].clone();
        for layer in 0..spec.layers {
            let parts = [
                Intermediate::Key(layer),
                Intermediate::Value(layer),
                Intermediate::Attention(layer),
                Intermediate::Mlp(layer),
            ];
            for (part, expected) in parts.into_iter().zip(slots.parts(layer)) {
                assert_near(&seen[&part], &expected, 1e-4);
            }
            let grown = seen[&Intermediate::Attention(layer)].iter().zip(&seen[&Intermediate::Mlp(layer)]);
            stream.iter_mut().zip(grown).for_each(|(stream, (attention, mlp))| *stream += attention + mlp);
            assert_near(&seen[&Intermediate::Layer(layer)], &stream, 1e-5);
        }
        assert_eq!(seen.len(), 2 + 5 * spec.layers);
    }
}

#[test]
fn watching_changes_nothing_and_inspection_sees_the_same() {
    for (device, spec) in all() {
        let mask = spec.attention;
        let mut runner = runner(&spec, device, Dtype::F32, 2);
        let before = runner.inspect(&TOKENS, mask, true).unwrap();
        let mut layers = Vec::new();
        let mut keep = |part, values: &[f32]| {
            if matches!(part, Intermediate::Layer(_)) {
                layers.push(values.to_vec());
            }
        };
        runner.watch(&TOKENS, mask, &mut keep).unwrap();
        assert_eq!(layers, before.hidden.layers);
        assert_eq!(runner.inspect(&TOKENS, mask, true).unwrap(), before);
        assert!(runner.watch(&[70], mask, &mut |_, _| {}).is_err(), "a token beyond the vocabulary");
    }
}

#[test]
fn stored_keys_and_values_are_those_of_the_forwards_that_wrote_them() {
    // More positions than the workspace has rows.
    const POSITIONS: u32 = 100;
    let (_, spec) = specs().remove(0);
    for device in [Device::Cpu(Isa::best()), Device::EmulatedGpu] {
        let mut runner = runner(&spec, device, Dtype::F32, 2);
        assert!(runner.rows().capacity < POSITIONS as usize);
        let needs = SequenceLimits { positions: POSITIONS as usize, rows: 20, ..SequenceLimits::default() };
        let id = runner.open(&needs).unwrap();
        for start in (0..POSITIONS).step_by(20) {
            let tokens: Vec<u32> = (start..start + 20).map(|position| position % 60).collect();
            let mut plan = StepPlan { kv_len: start + 20, mask: Mask::Full, ..StepPlan::default() };
            plan.query.set_range(start..start + 20);
            let step =
                SequenceStep { sequence: id, tokens: &tokens, plan: &plan, ask: &HeadAsk::default(), blend: None };
            runner.step(&[step], &mut [Predictions::default()]).unwrap();
        }
        let all = runner.stored(id, &(0..POSITIONS).into()).unwrap();
        assert_eq!(all.len(), spec.layers);
        for position in [0, 31, 63, 64, 99] {
            let one = runner.stored(id, &(position..position + 1).into()).unwrap();
            for (all, one) in all.iter().flatten().zip(one.iter().flatten()) {
                let width = one.len();
                assert_eq!(all[position as usize * width..][..width], one[..], "position {position}");
                assert!(one.iter().any(|value| *value != 0.0));
            }
        }
        let beyond = runner.stored(id, &(POSITIONS..POSITIONS + 1).into()).unwrap();
        assert!(beyond.iter().flatten().all(Vec::is_empty), "there is no such position");
    }
}

#[test]
fn logits_that_no_memory_holds_are_refused_before_they_are_allocated() {
    let (_, spec) = specs().remove(0);
    let spec = ArchSpec { vocabulary: 20_000, context: usize::MAX >> 32, ..spec };
    let mut runner = runner(&spec, Isa::best(), Dtype::F32, 2);
    let rows = runner.available().1 as usize / (4 * spec.vocabulary) + 1;
    let refused = runner.inspect(&vec![1; rows], Mask::Full, false).unwrap_err().to_string();
    assert!(refused.starts_with("the sequence needs ") && refused.contains("MiB of memory and "), "{refused}");
    assert!(!refused.contains('\n') && runner.pages().used == 0);
}
