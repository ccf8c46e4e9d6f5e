//! The whole chain of operations: against its twin, and against itself in other company.

use crate::{
    backend_model::{HIDDEN, Model, POISON, VOCABULARY, ask_all, push_partial, push_rows, rows, tokens, twin},
    testable,
};
use demask_cpu::isa::Isa;
use demask_tensor::{BlendRows, Dtype, HeadOutput, Launch, NO_ROW, PAGE, PageCopy, PageKind, Rows, SlotCopy};
use demask_testkit::naive::network::{Partial, assert_near};

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];
const KEPT: PageKind = PageKind { increments: true, residual: true };

/// How far products in this type may be off, relative to the largest logit.
fn tolerance(dtype: Dtype) -> f32 {
    if dtype == Dtype::F32 { 2e-5 } else { 5e-2 }
}

/// Computes some rows of a sequence, and asks for everything that the head can tell of them.
fn forward(model: &mut Model, pages: &[u32], live: &[(usize, u32)], mask: &dyn Fn(usize) -> usize) {
    let mut launch = Launch::default();
    push_rows(&mut launch, pages, live, mask);
    ask_all(&mut launch, 0..live.len() as u32);
    model.forward(&launch, Rows::Live, Rows::Live);
}

#[test]
fn a_forward_matches_its_twin() {
    for dtype in DTYPES {
        for biased in [false, true] {
            let twin = twin(dtype, biased);
            let ids = tokens(77, 1);
            let block = |position: usize| ((position / 16 + 1) * 16).min(77);
            let expected = twin.logits(&ids, &block);
            for isa in testable() {
                let mut model = Model::new(&twin, isa, dtype, 2);
                let pages = model.pages(3, PageKind::default());
                forward(&mut model, &pages, &rows(&ids, 0..77), &block);
                assert_near(&model.out.logits, &expected, tolerance(dtype));
            }
        }
    }
}

/// A sequence's steps: which positions are live and how many keys are visible.
struct Sequence {
    tokens: Vec<u32>,
    steps: Vec<(std::ops::Range<usize>, usize)>,
    asked: usize,
}

fn sequences() -> Vec<Sequence> {
    let sequence = |length: usize, seed, cut: usize, asked| Sequence {
        tokens: tokens(length, seed),
        steps: vec![(0..length, length), (cut..length, length), (cut..cut + 1, length)],
        asked,
    };
    vec![sequence(45, 1, 33, 3), sequence(5, 2, 2, 1), sequence(130, 3, 64, 40), sequence(300, 4, 7, 100)]
}

/// Runs the sequences of `group` together, step by step, and gives each one's answers.
fn run_group(model: &mut Model, all: &[Sequence], group: &[usize]) -> Vec<HeadOutput> {
    let pages: Vec<_> =
        group.iter().map(|&index| model.pages(all[index].tokens.len().div_ceil(PAGE), PageKind::default())).collect();
    let mut answers = vec![HeadOutput::default(); group.len()];
    for step in 0..3 {
        let mut launch = Launch::default();
        let mut counts = Vec::new();
        for (&index, pages) in group.iter().zip(&pages) {
            let sequence = &all[index];
            let (live, visible) = sequence.steps[step].clone();
            // The second step is causal, so that limits differ within a tile.
            let mask = |position: usize| if step == 1 { position + 1 } else { visible };
            let first = push_rows(&mut launch, pages, &rows(&sequence.tokens, live), &mask);
            let asked = sequence.asked.min(launch.len() - first as usize);
            // What is asked of a row must not depend on where it stands in the launch.
            ask_all(&mut launch, first..first + asked as u32);
            let judge = launch.head.score.len() - asked;
            for (at, judge) in launch.head.score[judge..].iter_mut().enumerate() {
                *judge = at as u32 % 7;
            }
            counts.push(asked);
        }
        model.forward(&launch, Rows::Live, Rows::Live);
        let mut from = 0;
        for (answers, count) in answers.iter_mut().zip(counts) {
            let out = &model.out;
            answers.tokens.extend(&out.tokens[from..from + count]);
            answers.confidence.extend(&out.confidence[from..from + count]);
            answers.margin.extend(&out.margin[from..from + count]);
            answers.entropy.extend(&out.entropy[from..from + count]);
            answers.top.extend(&out.top[2 * from..2 * (from + count)]);
            answers.scores.extend(&out.scores[from..from + count]);
            answers.logits.extend(&out.logits[VOCABULARY * from..VOCABULARY * (from + count)]);
            from += count;
        }
    }
    for pages in pages {
        demask_tensor::Backend::release_pages(&model.backend, &mut model.kv, &pages);
    }
    answers
}

#[test]
fn a_sequence_depends_neither_on_its_company_nor_on_threads() {
    let all = sequences();
    for dtype in DTYPES {
        let twin = twin(dtype, dtype == Dtype::F32);
        for isa in testable() {
            let mut single = Model::new(&twin, isa, dtype, 1);
            let alone: Vec<_> = (0..all.len()).map(|index| run_group(&mut single, &all, &[index]).remove(0)).collect();
            assert!(alone.iter().all(|answer| answer.logits.iter().all(|logit| logit.is_finite())));
            for threads in 1..=3 {
                let mut model = Model::new(&twin, isa, dtype, threads);
                for group in [&[0, 1, 2, 3][..], &[3, 1], &[2, 0, 1], &[1, 2]] {
                    for (&index, answer) in group.iter().zip(run_group(&mut model, &all, group)) {
                        assert!(answer == alone[index], "{isa:?} {dtype}, {threads} threads, {index} of {group:?}");
                    }
                }
            }
        }
    }
}

/// specs/caches.md#X10: slots beyond a row's limit, not numbers at all, change no bit.
#[test]
fn caches_x10_slots_beyond_the_limit_have_no_influence() {
    for dtype in DTYPES {
        let twin = twin(dtype, true);
        for isa in testable() {
            let answer = |poisoned: bool| {
                let mut model = Model::new(&twin, isa, dtype, 2);
                let pages = model.pages(4, PageKind::default());
                let mut ids = tokens(128, 5);
                ids[70..].fill(if poisoned { POISON } else { 3 });
                forward(&mut model, &pages, &rows(&ids, 0..128), &|_| 128);
                forward(&mut model, &pages, &rows(&ids, 0..70), &|position| position.max(30) + 1);
                model.out
            };
            let (clean, poisoned) = (answer(false), answer(true));
            assert!(clean == poisoned && clean.logits.iter().all(|logit| logit.is_finite()));
        }
    }
}

/// specs/caches.md#T6: a full step, then partial ones with other tokens, against the twin, which replaces the probed
/// tensor of all candidates and everything else of exactly those that are chosen.
#[test]
fn caches_t6_partly_computed_steps_match_their_twin() {
    let from = |first: usize, fixed: &[usize], keep: usize| Partial {
        fixed: fixed.to_vec(),
        probed: (first..70).collect(),
        keep,
        ..Partial::default()
    };
    let fixed = |fixed: &[usize]| Partial { fixed: fixed.to_vec(), ..Partial::default() };
    let partials = [
        from(40, &[3, 20], 7),
        from(30, &[0, 1, 2, 3, 4], 0),
        Partial { probed: (6..60).collect(), keep: 11, by_key: true, ..Partial::default() },
        fixed(&[69]),
        Partial { probed: (9..40).collect(), ..Partial::default() },
        fixed(&[]),
        Partial { random: Some(77), ..from(10, &[2], 13) },
        from(35, &[], 8),
        Partial { by_key: true, ..from(8, &[], 5) },
        Partial { random: Some(7), ..from(8, &[6], 5) },
        from(20, &[], 6),
    ];
    let twin = twin(Dtype::F32, true);
    for isa in testable() {
        let mut model = Model::new(&twin, isa, Dtype::F32, 2);
        let pages = model.pages(3, KEPT);
        let mut slots = twin.slots(70);
        let full = |position: usize| if position < 35 { 50 } else { 70 };
        for (step, partial) in std::iter::once(None).chain(partials.iter().map(Some)).enumerate() {
            let live = rows(&tokens(70, 50 + step as u64), 0..70);
            let mut launch = Launch::default();
            push_rows(&mut launch, &pages, &live, &full);
            let (mut keys, mut values) = (Rows::Computed, Rows::Computed);
            if let Some(partial) = partial {
                push_partial(&mut launch, 0..70, partial);
                // The probed tensor is there already, but for what chance chooses.
                if partial.random.is_none() {
                    *(if partial.by_key { &mut keys } else { &mut values }) = Rows::Fixed;
                }
            } else {
                launch.held.extend(0..70);
            }
            ask_all(&mut launch, 0..70);
            model.forward(&launch, keys, values);
            let expected = twin.step(&mut slots, &live, &full, partial);
            assert_near(&model.out.logits, &expected, 2e-5);
        }
    }
}

/// The same with two drafts on copies of the canvas's pages, each against a twin of its own; then the canvas goes on from
/// the second draft.
#[test]
fn partly_computed_drafts_match_their_twins() {
    let twin = twin(Dtype::F32, true);
    let partial = Partial { fixed: vec![3, 20], probed: (30..70).collect(), keep: 7, ..Partial::default() };
    for isa in testable() {
        let mut model = Model::new(&twin, isa, Dtype::F32, 2);
        let (canvas, drafts) = (model.pages(3, KEPT), model.pages(6, KEPT));
        let mut slots = twin.slots(70);
        let live = rows(&tokens(70, 1), 0..70);
        let mut launch = Launch::default();
        push_rows(&mut launch, &canvas, &live, &|_| 70);
        launch.held.extend(0..70);
        model.forward(&launch, Rows::Live, Rows::Live);
        twin.step(&mut slots, &live, &|_| 70, None);

        let mut launch = Launch::default();
        let (mut twins, mut expected) = (Vec::new(), Vec::new());
        for (pages, seed) in drafts.chunks(3).zip(60..) {
            launch.copies.extend(canvas.iter().zip(pages).map(|(&from, &to)| PageCopy { from, to }));
            let live = rows(&tokens(70, seed), 0..70);
            let first = push_rows(&mut launch, pages, &live, &|_| 70);
            push_partial(&mut launch, first..first + 70, &partial);
            let mut own = slots.clone();
            expected.extend(twin.step(&mut own, &live, &|_| 70, Some(&partial)));
            twins.push(own);
        }
        ask_all(&mut launch, 0..140);
        model.forward(&launch, Rows::Computed, Rows::Fixed);
        assert_near(&model.out.logits, &expected, 2e-5);

        let kept: Vec<usize> = (10..70).collect();
        slots.keep(&twins[1], &kept);
        let slot = |pages: &[u32], position: usize| pages[position / PAGE] * PAGE as u32 + (position % PAGE) as u32;
        let mut launch = Launch::default();
        launch.keeps.extend(kept.iter().map(|&at| SlotCopy { from: slot(&drafts[3..], at), to: slot(&canvas, at) }));
        let live = rows(&tokens(70, 63), 0..70);
        push_rows(&mut launch, &canvas, &live, &|_| 70);
        push_partial(&mut launch, 0..70, &partial);
        ask_all(&mut launch, 0..70);
        model.forward(&launch, Rows::Computed, Rows::Fixed);
        assert_near(&model.out.logits, &twin.step(&mut slots, &live, &|_| 70, Some(&partial)), 2e-5);
    }
}

/// Steps of a sequence some of whose rows are kept: everything, then a window with new tokens, then a scattered rest.
fn windows(length: usize) -> Vec<Vec<(usize, u32)>> {
    let scattered = |row: &(usize, u32)| row.0 % 5 == 2;
    vec![
        rows(&tokens(length, 31), 0..length),
        rows(&tokens(length, 32), 40..length),
        rows(&tokens(length, 33), 0..length).into_iter().filter(scattered).collect(),
    ]
}

/// specs/flashdlm.md#I6: keys kept turned are keys kept unturned and turned again in each step.
#[test]
fn flashdlm_i6_turned_keys_are_keys_turned_in_each_step() {
    for biased in [false, true] {
        let twin = twin(Dtype::F32, biased);
        for isa in testable() {
            let mut model = Model::new(&twin, isa, Dtype::F32, 2);
            let pages = model.pages(3, PageKind::default());
            let (mut late, mut early) = (twin.slots(77).turned_late(), twin.slots(77));
            for live in windows(77) {
                forward(&mut model, &pages, &live, &|_| 77);
                let expected = twin.step(&mut late, &live, &|_| 77, None);
                assert_near(&twin.step(&mut early, &live, &|_| 77, None), &expected, 1e-6);
                assert_near(&model.out.logits, &expected, tolerance(Dtype::F32));
            }
            assert_ne!(late, early);
        }
    }
}

/// specs/caches.md#K4: where K/V are stored does not matter. dKV-Cache's released code keeps the live rows first and
/// the kept rows behind them, turned by their own positions; here they are stored at such places and read from there.
/// K9: nor does the order of the live rows, to the bit.
#[test]
fn caches_k4_k9_orders_of_storage_and_of_rows_do_not_matter() {
    const LENGTH: usize = 77;
    let twin = twin(Dtype::F32, false);
    let kept = |position: usize| position < 40 && position % 5 != 2;
    let mut order: Vec<usize> = (0..LENGTH).filter(|&position| !kept(position)).collect();
    order.extend((0..LENGTH).filter(|&position| kept(position)));
    let place = |position: usize| order.iter().position(|&other| other == position).unwrap();
    for isa in testable() {
        let run = |concatenated: bool, reversed: bool| {
            let mut model = Model::new(&twin, isa, Dtype::F32, 2);
            let pages = model.pages(3, PageKind::default());
            let mut answers: Vec<Vec<Vec<f32>>> = Vec::new();
            for mut live in windows(LENGTH) {
                if reversed {
                    live.reverse();
                }
                let mut launch = Launch::default();
                push_rows(&mut launch, &pages, &live, &|_| LENGTH);
                if concatenated {
                    for (slot, &(position, _)) in launch.slots.iter_mut().zip(&live) {
                        let place = place(position);
                        *slot = pages[place / PAGE] * PAGE as u32 + (place % PAGE) as u32;
                    }
                }
                ask_all(&mut launch, 0..live.len() as u32);
                model.forward(&launch, Rows::Live, Rows::Live);
                let mut logits: Vec<Vec<f32>> =
                    model.out.logits.chunks_exact(VOCABULARY).map(<[f32]>::to_vec).collect();
                if reversed {
                    logits.reverse();
                }
                answers.push(logits);
            }
            answers
        };
        let reference = run(false, false);
        assert!(run(false, true) == reference, "{isa:?}: K9");
        let concatenated = run(true, false);
        for (found, expected) in concatenated.iter().flatten().zip(reference.iter().flatten()) {
            assert_near(found, expected, 1e-4);
        }
        assert!(concatenated != reference, "another order of summation shows in the last bits");
    }
}

#[test]
fn partly_computed_sequences_depend_on_nobody() {
    let twin = twin(Dtype::Bf16, false);
    for isa in testable() {
        let run = |threads: usize, company: bool| {
            let mut model = Model::new(&twin, isa, Dtype::Bf16, threads);
            let (pages, others) = (model.pages(3, KEPT), model.pages(2, KEPT));
            let mut answers = Vec::new();
            for step in 0..4u64 {
                let mut launch = Launch::default();
                let push = |launch: &mut Launch, pages: &[u32], length: usize, by: Partial| {
                    let live = rows(&tokens(length, 7 * step + length as u64), 0..length);
                    let first = push_rows(launch, pages, &live, &|_| length);
                    let all = first..first + length as u32;
                    if step > 0 {
                        let partial = Partial { fixed: vec![1, 4], probed: (10..length).collect(), keep: 6, ..by };
                        push_partial(launch, all, &partial);
                    } else {
                        launch.held.extend(all);
                    }
                    first
                };
                if company {
                    push(&mut launch, &others, 50, Partial { by_key: true, ..Partial::default() });
                }
                let random = (step == 2).then_some(9);
                let first = push(&mut launch, &pages, 80, Partial { random, ..Partial::default() });
                ask_all(&mut launch, first..first + 80);
                launch.head.score.fill(5);
                model.forward(&launch, Rows::Computed, Rows::Computed);
                answers.push(model.out.clone());
            }
            answers
        };
        let alone = run(1, false);
        for (threads, company) in [(1, true), (2, true), (3, false), (3, true)] {
            assert!(run(threads, company) == alone, "{isa:?}, {threads} threads, company {company}");
        }
    }
}

#[test]
fn an_accepted_draft_is_as_if_it_had_run_on_the_canvas() {
    for dtype in DTYPES {
        let twin = twin(dtype, false);
        let (ids, other) = (tokens(60, 8), tokens(60, 9));
        let mut model = Model::new(&twin, Isa::best(), dtype, 2);
        let (canvas, draft, plain) =
            (model.pages(2, KEPT), model.pages(2, PageKind::default()), model.pages(2, PageKind::default()));
        let mut answers = Vec::new();
        for drafted in [true, false] {
            let pages = if drafted { &canvas } else { &plain };
            forward(&mut model, pages, &rows(&ids, 0..60), &|_| 60);
            let mut launch = Launch::default();
            let own = if drafted { [canvas[0], draft[1]] } else { [plain[0], plain[1]] };
            if drafted {
                launch.copies.push(PageCopy { from: canvas[1], to: draft[1] });
            }
            push_rows(&mut launch, &own, &rows(&other, 40..50), &|_| 60);
            model.forward(&launch, Rows::Live, Rows::Live);
            let mut launch = Launch::default();
            if drafted {
                let slot = |page: u32, position: u32| page * PAGE as u32 + position % PAGE as u32;
                let keep = |position| SlotCopy { from: slot(draft[1], position), to: slot(canvas[1], position) };
                launch.keeps.extend((40..50).map(keep));
            }
            push_rows(&mut launch, pages, &rows(&ids, 55..60), &|_| 60);
            ask_all(&mut launch, 0..5);
            model.forward(&launch, Rows::Live, Rows::Live);
            answers.push(model.out.clone());
        }
        assert!(answers[0] == answers[1]);
    }
}

#[test]
fn guidance_blends_behind_the_norm_and_remembers_the_difference() {
    let twin = twin(Dtype::F32, true);
    for isa in testable() {
        let mut model = Model::new(&twin, isa, Dtype::F32, 2);
        let (pages, others) = (model.pages(1, KEPT), model.pages(1, PageKind::default()));
        let mut launch = Launch::default();
        let live = rows(&tokens(9, 1), 0..9);
        push_rows(&mut launch, &pages, &live, &|_| 9);
        push_rows(&mut launch, &others, &rows(&tokens(9, 2), 0..9), &|_| 9);
        ask_all(&mut launch, [3, 12, 3]);
        launch.head.blends.push(BlendRows { head_row: 2, other: 12, scale: 1.5, slot: launch.slots[3] });
        model.forward(&launch, Rows::Live, Rows::Live);
        let logits: Vec<&[f32]> = model.out.logits.chunks_exact(VOCABULARY).collect();
        let expected: Vec<f32> =
            logits[0].iter().zip(logits[1]).map(|(row, other)| row + 1.5 * (row - other)).collect();
        assert_near(logits[2], &expected, 1e-5);
        let blended = logits[2].to_vec();
        let mut again = Launch::default();
        push_rows(&mut again, &pages, &live, &|_| 9);
        ask_all(&mut again, [3]);
        again.head.blends.push(BlendRows { head_row: 0, other: NO_ROW, scale: 1.5, slot: launch.slots[3] });
        model.forward(&again, Rows::Live, Rows::Live);
        assert!(model.out.logits == blended);
    }
}

#[test]
fn intermediates_can_be_read() {
    use demask_tensor::{Backend, Stage};
    let twin = twin(Dtype::F32, true);
    let mut model = Model::new(&twin, Isa::best(), Dtype::F32, 2);
    let pages = model.pages(1, PageKind::default());
    forward(&mut model, &pages, &[(0, 5), (1, 6)], &|_| 2);
    let mut read = Vec::new();
    model.backend.read(Stage::Residual, &mut read);
    assert_eq!(read.len(), 2 * HIDDEN);
    let weight = model.backend.vector(&[1.0; HIDDEN]).unwrap();
    model.backend.read(Stage::Normed(&weight, 0.0), &mut read);
    let square: f32 = read[..HIDDEN].iter().map(|value| value * value).sum();
    assert!((square / HIDDEN as f32 - 1.0).abs() < 1e-5);
}

#[test]
fn keys_and_values_can_be_read() {
    use demask_tensor::{Backend, Stage};
    for dtype in DTYPES {
        for biased in [false, true] {
            let twin = twin(dtype, biased);
            let ids = rows(&tokens(45, 6), 0..45);
            let mut slots = twin.slots(45);
            twin.step(&mut slots, &ids, &|_| 45, None);
            for isa in testable() {
                let mut model = Model::new(&twin, isa, dtype, 2);
                let pages = model.pages(2, PageKind::default());
                forward(&mut model, &pages, &ids, &|_| 45);
                let mut read = Vec::new();
                for layer in 0..twin.layers.len() {
                    let [keys, values, ..] = slots.parts(layer);
                    model.backend.read(Stage::Key(layer, &model.kv), &mut read);
                    assert_near(&read, &keys, tolerance(dtype));
                    model.backend.read(Stage::Value(layer, &model.kv), &mut read);
                    assert_near(&read, &values, tolerance(dtype));
                }
            }
        }
    }
}
