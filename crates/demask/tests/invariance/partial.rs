//! Partly computed layers: the other rows add what was stored.

use demask_step::{Drift, LayerRows, Mask, Positions, Probe, SequenceLimits};

use super::{ask, assert_same, full, needs, run, subset};
use crate::common::{Dice, devices, processor, runner, specs};

fn increments(length: usize) -> SequenceLimits {
    SequenceLimits { increments: true, ..needs(length, 0) }
}

/// caches T1, T2: a partly computed step that computes everything equals a full one, bitwise, whether the rows are
/// named or chosen; and one that computes nothing keeps its increments.
#[test]
fn caches_t1_t2_choosing_all_rows_equals_computing_all_rows() {
    for (name, spec) in specs().into_iter().filter(|(_, spec)| spec.attention == Mask::Full) {
        for (device, dtype) in devices(name) {
            for by in [Drift::Value, Drift::Key, Drift::Random { seed: 3 }] {
                let what = format!("{name} {device} {dtype} {by:?}");
                let ask = ask();
                let mut dice = Dice::new(9);
                let (prefill, mut next) = (full(&spec, &mut dice, 40), full(&spec, &mut dice, 40));
                let mut answers = Vec::new();
                for layers in [
                    LayerRows::All,
                    LayerRows::Partial { compute: (0..40).into(), probe: None, first_whole: true },
                    LayerRows::Partial {
                        compute: (0..10).into(),
                        probe: Some(Probe { rows: (10..40).into(), keep: 30, by }),
                        first_whole: true,
                    },
                    LayerRows::Partial {
                        compute: Positions::new(),
                        probe: Some(Probe { rows: (0..40).into(), keep: 40, by }),
                        first_whole: false,
                    },
                ] {
                    let mut network = runner(&spec, device, dtype, 2);
                    let id = network.open(&increments(40)).unwrap();
                    run(&mut *network, &[prefill.of(id, &ask)]);
                    next.plan.layers = layers;
                    answers.push(run(&mut *network, &[next.of(id, &ask)]).remove(0));
                }
                for answer in &answers[1..] {
                    assert_same(answer, &answers[0], &what);
                }
            }
        }
    }
}

/// A step whose rows are all reused adds the stored increments to the new embeddings: with the same tokens nothing
/// changes but rounding.
#[test]
fn reused_rows_reproduce_an_unchanged_canvas() {
    let (_, spec) = specs().remove(0);
    let (device, dtype) = processor()[0];
    let ask = ask();
    let mut step = full(&spec, &mut Dice::new(4), 40);
    let mut network = runner(&spec, device, dtype, 1);
    let id = network.open(&increments(40)).unwrap();
    let first = run(&mut *network, &[step.of(id, &ask)]).remove(0);
    step.plan.layers = LayerRows::Partial { compute: Positions::new(), probe: None, first_whole: false };
    let second = run(&mut *network, &[step.of(id, &ask)]).remove(0);
    let most = first.logits.iter().zip(&second.logits).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(most < 1e-4, "{most}");
}

/// A partly computed sequence beside fully computed ones: nobody's bits change.
#[test]
fn partly_computed_rows_join_a_batch() {
    let (name, spec) = specs().remove(1);
    for (device, dtype) in devices(name) {
        let ask = ask();
        let mut dice = Dice::new(21);
        let prefills = [full(&spec, &mut dice, 40), full(&spec, &mut dice, 24)];
        let mut partial = full(&spec, &mut dice, 40);
        partial.plan.layers = LayerRows::Partial {
            compute: (0..3).into(),
            probe: Some(Probe { rows: (12..40).into(), keep: 7, by: Drift::Value }),
            first_whole: true,
        };
        let other = subset(&spec, &mut dice, 24);
        let mut answers = Vec::new();
        for together in [false, true] {
            let mut network = runner(&spec, device, dtype, 2);
            let ids = [network.open(&increments(40)).unwrap(), network.open(&needs(24, 0)).unwrap()];
            for (prefill, &id) in prefills.iter().zip(&ids) {
                run(&mut *network, &[prefill.of(id, &ask)]);
            }
            let steps = [partial.of(ids[0], &ask), other.of(ids[1], &ask)];
            answers.push(if together {
                run(&mut *network, &steps)
            } else {
                steps.iter().map(|step| run(&mut *network, std::slice::from_ref(step)).remove(0)).collect()
            });
        }
        for (left, right) in answers[0].iter().zip(&answers[1]) {
            assert_same(left, right, &format!("{device} {dtype}"));
        }
    }
}
