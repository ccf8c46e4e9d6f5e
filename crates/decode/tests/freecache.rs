//! FreeCache: the invariants of specs/flashdlm.md#6, on scripted networks.

use crate::common::{EOS, MASK_ID, Run, VOCAB, drive, drive_on, options, predict, run, run_all_live};
use demask_decode::{Event, Schedule, Session, SessionOptions, StopRule};
use demask_step::{Job, Mask, Network, Positions, Predictions, SequenceStep, StepPlan, TokenId};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

const PROMPT: usize = 6;
const LENGTH: usize = 24;

fn with(shift: u32, decoder: &str, cache: &str, block: usize) -> SessionOptions {
    let mut options = options(Mask::Full, shift, PROMPT, LENGTH);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    (options.block_length, options.stop) = (Some(block), StopRule::Never);
    options
}

/// The plans of a run in which position `p` is predicted as token 1, the leftmost the surest.
fn plans(options: SessionOptions) -> Vec<StepPlan> {
    let mut session = Session::new(options).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        plans.push(requests[0].plan.clone());
        vec![predict(&requests[0], |position| (1, 0.9 - position as f32 / 1000.0))]
    });
    plans
}

fn lives(shift: u32, cache: &str, steps: usize, block: usize) -> Vec<String> {
    let mut options = options(Mask::Full, shift, 3, 8);
    options.decoder = format!("static:steps={steps}").parse().unwrap();
    options.cache = cache.parse().unwrap();
    options.block_length = Some(block);
    plans(options).iter().map(|plan| format!("{} of {}", plan.query, plan.kv_len)).collect()
}

#[test]
fn blocks_are_frozen_one_forward_later_if_exact() {
    let all = "0..11 of 11";
    assert_eq!(lives(0, "freecache:block=4", 4, 4), [all, "3..11 of 11", "3..11 of 11", "7..11 of 11"]);
    assert_eq!(
        lives(0, "freecache:block=4,freeze=reference", 4, 4),
        [all, "3..11 of 11", "7..11 of 11", "7..11 of 11"]
    );
    assert_eq!(lives(0, "freecache:block=4,freeze=prompt", 4, 4), [all, "3..11 of 11", "3..11 of 11", "3..11 of 11"]);
    assert_eq!(
        lives(1, "freecache:block=4,freeze=reference", 4, 4),
        [all, "2..11 of 11", "6..11 of 11", "6..11 of 11"],
        "the row that predicts the next block's first position stays live"
    );
}

#[test]
fn the_caches_block_is_apart_from_the_unmasking_block() {
    // Unmasked in blocks of 8 and frozen in blocks of 2, left to right: two tokens a step.
    assert_eq!(
        lives(0, "freecache:block=2,freeze=reference", 4, 8),
        ["0..11 of 11", "5..11 of 11", "7..11 of 11", "9..11 of 11"]
    );
    // Unmasked in blocks of 2 and frozen in blocks of 4.
    assert_eq!(
        lives(0, "freecache:block=4,freeze=reference", 4, 2),
        ["0..11 of 11", "3..11 of 11", "7..11 of 11", "7..11 of 11"]
    );
    // A last block may be short.
    assert_eq!(lives(0, "freecache:block=5,freeze=reference", 8, 8)[5..], ["8..11 of 11"; 3]);
}

#[test]
fn lookahead_and_lag_move_the_ends_of_the_window() {
    assert_eq!(
        lives(0, "freecache:block=2,freeze=reference,lookahead=2", 4, 2),
        ["0..11 of 11", "5..7 of 11", "7..9 of 11", "9..11 of 11"]
    );
    assert_eq!(
        lives(0, "freecache:block=2,freeze=reference,lookahead=1", 2, 4)[1],
        "7..11 of 11",
        "what is predicted is live all the same"
    );
    assert_eq!(
        lives(0, "freecache:block=2,freeze=reference,lag=3", 4, 2),
        ["0..11 of 11", "3..11 of 11", "4..11 of 11", "6..11 of 11"]
    );
}

#[test]
fn flashdlm_i1_the_first_forward_is_that_of_no_cache() {
    for shift in [0, 1] {
        let reference = run(with(shift, "static", "none", LENGTH)).steps.remove(0);
        for block in [1, 4, 8, 24] {
            for freeze in ["exact", "reference", "prompt"] {
                let cache = format!("freecache:block={block},freeze={freeze}");
                assert_eq!(run(with(shift, "static", &cache, LENGTH)).steps[0], reference, "{cache}");
            }
        }
    }
}

/// I2: frozen is what the window leaves out. With a window of everything, the frozen boundary pinned to 0, nothing is.
#[test]
fn flashdlm_i2_nothing_frozen_is_no_cache() {
    for seed in 0..property::count(20).into() {
        for shift in [0, 1] {
            for decoder in ["static", "threshold:tau=0.4", "factor:f=2"] {
                let reference = run_all_live(with(shift, decoder, "none", 8), seed);
                for cache in ["freecache:block=4", "freecache:block=8,freeze=reference", "freecache:freeze=prompt"] {
                    assert_eq!(run_all_live(with(shift, decoder, cache, 8), seed), reference, "{decoder} {cache}");
                }
            }
        }
    }
    assert_eq!(run_all_live(with(0, "static", "none", 8), 5), run(with(0, "static", "none", 8)).steps);
}

/// Runs on a network of one layer, where K/V depend on nothing but token and position.
fn on_one_layer(seed: u64, options: SessionOptions) -> Run {
    let mut script = Scripted::new(seed, VOCAB, options.facts.shift).with_one_layer();
    drive_on(&mut script, &mut Session::new(options).unwrap())
}

#[test]
fn flashdlm_i4_on_one_layer_exact_is_full_recomputation_and_reference_is_not() {
    for (shift, decoder) in [(0, "static"), (1, "static"), (0, "threshold:tau=0.4"), (1, "factor:f=2")] {
        let reference = on_one_layer(7, with(shift, decoder, "none", 8));
        for block in [1, 4, 8, 24] {
            let exact = on_one_layer(7, with(shift, decoder, &format!("freecache:block={block}"), 8));
            assert_eq!(exact.steps, reference.steps, "{decoder} block {block}");
        }
        let lagged = on_one_layer(7, with(shift, decoder, "freecache:block=4,lag=2", 8));
        assert_eq!(lagged.steps, reference.steps);
        let stale = on_one_layer(7, with(shift, decoder, "freecache:block=8,freeze=reference", 8));
        assert_ne!(stale.steps, reference.steps, "tokens committed last keep the K/V of masks");
        let whole = on_one_layer(7, with(shift, decoder, "freecache:block=24,freeze=reference", 8));
        assert_eq!(whole.steps, reference.steps, "one block is never frozen before the end");
    }
}

#[test]
fn flashdlm_i4_reference_differs_only_through_the_tokens_of_a_blocks_last_step() {
    // Up to the second block's first forward nothing was frozen in either.
    let (exact, stale) = ("freecache:block=8", "freecache:block=8,freeze=reference");
    let (exact, stale) = (on_one_layer(7, with(0, "static", exact, 8)), on_one_layer(7, with(0, "static", stale, 8)));
    assert_eq!(exact.steps[..8], stale.steps[..8]);
    assert_ne!(exact.steps[8..], stale.steps[8..]);
}

proptest! {
    #![proptest_config(property::cases(100))]

    /// I4, the half that speaks of all inputs: on one layer a block that is frozen clean was computed from its own
    /// tokens.
    #[test]
    fn flashdlm_i4_exact_is_full_recomputation_on_any_canvas(
        (shift, prompt, block, blocks) in (0u32..2, 1usize..7, 1usize..9, 1usize..4),
        (frozen, lag, decoder, seed) in (1usize..30, 0usize..5, 0usize..3, any::<u64>()),
    ) {
        let run = |cache: &str| {
            let mut options = options(Mask::Full, shift, prompt, block * blocks);
            options.decoder = ["static", "threshold:tau=0.4", "factor:f=2"][decoder].parse().unwrap();
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(block));
            options.stop = StopRule::Never;
            on_one_layer(seed, options).steps
        };
        prop_assert_eq!(run(&format!("freecache:block={frozen},lag={lag}")), run("none"));
    }

    /// I5, and I1 of the three: frozen at the end or not at all, all runs are one.
    #[test]
    fn flashdlm_i5_one_block_makes_all_freezes_one(
        (shift, prompt, block, blocks) in (0u32..2, 1usize..7, 1usize..9, 1usize..4),
        (seed, tau) in (any::<u64>(), 0.02f32..1.0),
    ) {
        let run = |freeze: &str| {
            let length = block * blocks;
            let mut options = options(Mask::Full, shift, prompt, length);
            options.decoder = format!("threshold:tau={tau}").parse().unwrap();
            options.cache = format!("freecache:block={length},freeze={freeze}").parse().unwrap();
            (options.block_length, options.stop) = (Some(block), StopRule::Never);
            drive_on(&mut Scripted::new(seed, VOCAB, shift), &mut Session::new(options).unwrap()).events
        };
        let exact = run("exact");
        prop_assert_eq!(&run("reference"), &exact);
        prop_assert_eq!(&run("prompt"), &exact);
    }

    /// I8: the live rows are one window from what is frozen on, so that each position is a key once: frozen or fresh.
    /// I9: a run of `per_block` steps a block has the rows of the formula.
    #[test]
    fn flashdlm_i8_i9_every_position_is_a_key_once_and_rows_follow_the_formula(
        (shift, prompt, block, blocks) in (0usize..2, 1usize..7, 1usize..9, 1usize..4),
        per_block in 1usize..9,
    ) {
        let per_block = per_block.min(block);
        let length = prompt + block * blocks;
        let mut options = options(Mask::Full, shift as u32, prompt, block * blocks);
        options.decoder = format!("static:steps={}", per_block * blocks).parse().unwrap();
        options.cache = format!("freecache:block={block},freeze=reference").parse().unwrap();
        (options.block_length, options.stop) = (Some(block), StopRule::Never);
        let plans = plans(options);
        let mut rows = 0;
        for plan in &plans {
            let (first, last) = (plan.query.first().unwrap(), plan.query.last().unwrap());
            prop_assert_eq!(&plan.query, &Positions::from(first..last + 1));
            prop_assert_eq!((plan.kv_len as usize, last as usize), (length, length - 1));
            rows += plan.query.len();
        }
        let windows: usize = (0..blocks).map(|b| per_block * (length - (prompt + b * block - shift))).sum();
        prop_assert_eq!(rows, windows + prompt - shift, "{} forwards", plans.len());
    }
}

#[test]
fn flashdlm_i7_what_is_frozen_only_grows_and_never_holds_a_mask() {
    for shift in [0, 1] {
        for cache in ["freecache:block=3", "freecache:block=8,freeze=reference", "freecache:block=5,lag=2"] {
            for (decoder, block) in [("static", 8), ("threshold:tau=0.4", 24), ("factor:f=2", 12)] {
                let mut script = Scripted::new(5, VOCAB, shift);
                let mut session = Session::new(with(shift, decoder, cache, block)).unwrap();
                let id = script.open(&session.needs()[0].limits).unwrap();
                let mut frozen = 0;
                drive(&mut session, |step, requests| {
                    let request = &requests[0];
                    let start = request.plan.query.first().unwrap();
                    let first_mask = request.plan.predict.first().unwrap();
                    assert!(start >= frozen && start + shift <= first_mask, "{cache} step {step}");
                    frozen = start;
                    let mut out = vec![Predictions::default()];
                    script.step(&[request.step(id)], &mut out).unwrap();
                    out
                });
                // Decoded as one block, the first position may come last.
                assert!(block == 24 || frozen as usize > PROMPT, "{cache} froze nothing of the answer");
            }
        }
    }
}

#[test]
fn flashdlm_i8_every_position_is_a_key_once() {
    for plan in plans(with(1, "threshold:tau=0.4", "freecache:block=4", 8)) {
        let (first, last) = (plan.query.first().unwrap(), plan.query.last().unwrap());
        assert_eq!(plan.query, Positions::from(first..last + 1), "frozen slots and one window");
        assert_eq!((plan.kv_len, last), ((PROMPT + LENGTH) as u32, (PROMPT + LENGTH) as u32 - 1));
    }
}

#[test]
fn flashdlm_i9_rows_follow_the_formula() {
    for (shift, block, per_block) in [(0, 8, 8), (1, 8, 8), (0, 4, 2), (1, 12, 3), (0, 8, 1), (1, 6, 1)] {
        let cache = format!("freecache:block={block},freeze=reference");
        let blocks = LENGTH / block;
        let options = with(shift, &format!("static:steps={}", per_block * blocks), &cache, block);
        let run = run(options);
        let rows: usize =
            run.events.iter().map(|event| if let Event::Step { rows, .. } = event { *rows } else { 0 }).sum();
        let (length, shift) = (PROMPT + LENGTH, shift as usize);
        let windows: usize = (0..blocks).map(|b| per_block * (length - (PROMPT + b * block - shift))).sum();
        assert_eq!(rows, windows + PROMPT - shift, "shift {shift} block {block}, {per_block} steps each");
    }
}

#[test]
fn flashdlm_i10_a_full_forward_restores_the_slots_at_any_moment() {
    let options = with(0, "static", "freecache:block=4,freeze=reference", 8);
    let mut script = Scripted::new(5, VOCAB, 0);
    let mut session = Session::new(options).unwrap();
    let needs = session.needs()[0].limits.clone();
    let id = script.open(&needs).unwrap();
    let length = session.layout().len();
    let mut differed = 0;
    for step in 0..LENGTH {
        let tokens = session.canvas().to_vec();
        let window = session.requests()[0].clone();
        let mut out = vec![Predictions::default()];
        // A twin that is asked to compute everything now, and then the same window.
        let mut twin = script.clone();
        let fresh = twin.open(&needs).unwrap();
        let full = StepPlan { query: (0..length as u32).into(), kv_len: length as u32, ..StepPlan::default() };
        for sequence in [id, fresh] {
            let refresh = SequenceStep { sequence, tokens: &tokens, plan: &full, ask: &window.ask, blend: None };
            twin.step(&[refresh], &mut out).unwrap();
        }
        let mut refreshed = [vec![Predictions::default()], vec![Predictions::default()]];
        for (sequence, out) in [id, fresh].into_iter().zip(&mut refreshed) {
            twin.step(&[window.step(sequence)], out).unwrap();
        }
        assert_eq!(refreshed[0], refreshed[1], "step {step}");
        script.step(&[window.step(id)], &mut out).unwrap();
        differed += usize::from(out[0].confidence != refreshed[0][0].confidence);
        session.feed(&out);
    }
    assert!(differed > LENGTH / 2, "without the full forward the slots are stale");
}

/// A run on predictions that say where the end token is: everything from `end` on.
fn ends_at(end: u32, stop: StopRule) -> (Run, Session) {
    let mut options = with(0, "static", "freecache:block=8", 8);
    (options.end_ids, options.stop) = (vec![EOS], stop);
    let mut session = Session::new(options).unwrap();
    let run = drive(&mut session, |_, requests| {
        vec![predict(&requests[0], |position| (if position < end { 7 } else { EOS }, 0.9 - position as f32 / 1000.0))]
    });
    (run, session)
}

#[test]
fn flashdlm_i11_an_early_stop_changes_nothing_before_it() {
    let end = PROMPT as u32 + 11;
    let (whole, _) = ends_at(end, StopRule::Never);
    let mut forwards = Vec::new();
    for run_length in [1, 3, 5] {
        let (run, session) = ends_at(end, StopRule::EndRun(run_length));
        assert_eq!((&run.output.tokens, run.output.finish), (&whole.output.tokens, whole.output.finish));
        assert_eq!(run.output.canvas, whole.output.canvas, "the rest is filled");
        assert_eq!(session.counts().commits, LENGTH);
        assert!(matches!(run.events.last(), Some(Event::Step { .. })), "the fills belong to the last forward");
        forwards.push(session.counts().forwards);
    }
    assert_eq!(forwards, [12, 14, 16]);
    assert_eq!(whole.steps.len(), LENGTH);
}

#[test]
fn an_end_token_with_masks_before_it_fills_only_what_is_behind() {
    let mut options = with(0, "static", "freecache:block=8", 8);
    (options.end_ids, options.stop) = (vec![EOS], StopRule::FillBehind);
    let run_with = |surest: u32, options: &SessionOptions| {
        drive(&mut Session::new(options.clone()).unwrap(), |_, requests| {
            vec![predict(&requests[0], |position| {
                let is_end = position == surest;
                (if is_end { EOS } else { 7 }, if is_end { 0.99 } else { 0.5 - position as f32 / 1000.0 })
            })]
        })
    };
    let run = run_with(PROMPT as u32 + 3, &options);
    assert_eq!(run.steps.len(), 4, "three positions before the end token are still decoded");
    assert_eq!(run.steps[0].len(), LENGTH - 3);
    assert_eq!(run.output.tokens, [7, 7, 7, EOS]);
    assert!(run.output.canvas.iter().all(|&token| token != MASK_ID));
    // An end token of the prompt ends nothing.
    let tokens: Vec<TokenId> = std::iter::once(EOS).chain(std::iter::repeat_n(1, PROMPT - 1)).collect();
    options.canvas = demask_decode::CanvasSpec::Prompt { tokens, gen_length: LENGTH };
    assert_eq!(run_with(u32::MAX, &options).steps.len(), LENGTH);
}

#[test]
fn flashdlm_i12_the_schedule_over_all_blocks_takes_everything() {
    let counts = |steps: usize, block: usize| -> Vec<usize> {
        let mut options = with(1, "static", &format!("freecache:block={block},freeze=reference"), block);
        (options.schedule, options.steps) = (Schedule::DreamTotal, Some(steps));
        run(options).steps.iter().map(Vec::len).collect()
    };
    assert_eq!(counts(24, 8), [0, 1, 1, 1, 1, 1, 1, 2].repeat(3));
    assert_eq!(counts(24, 24)[..3], [0, 1, 1]);
    assert_eq!(counts(8, 12), [2, 3, 3, 4, 2, 3, 3, 4]);
    for (steps, block) in [(9, 8), (6, 12), (15, 8), (2, 12), (48, 4)] {
        assert_eq!(counts(steps, block).iter().sum::<usize>(), LENGTH);
    }
    // `int((m + 12) * (1 - t'/t))` of fourteen steps in the first block, `int(m * (1 - t'/t))` in the last.
    assert_eq!(counts(14, 12), [1, 1, 1, 1, 1, 2, 5, 1, 1, 1, 2, 2, 2, 3]);
}
