//! Fast-dLLM's prefix and dual caches: the invariants of specification caches, sections 3.7 and 8, on scripted
//! denoisers in which every stale slot shows.

mod common;

use common::{EOS, MASK_ID, Run, VOCAB, drive, drive_on, options, predict, run};
use demask_decode::{
    CacheSpec, DecoderSpec, Exactness, Layout, Memory, Remasking, Request, Schedule, Session, SessionOptions, StopRule,
    legality,
};
use demask_step::{Denoiser, Lanes, Mask, Predictions, SequenceId, SequenceNeeds, TokenId};
use demask_testkit::scripted::Scripted;
use proptest::prelude::*;

/// Prompt length, generation length and block length of most cases.
const PROMPT: usize = 5;
const LENGTH: usize = 24;
const BLOCK: usize = 8;

fn with(shift: u32, decoder: &str, cache: &str, block: usize) -> SessionOptions {
    let mut options = options(Mask::Full, shift, PROMPT, LENGTH);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    (options.block_length, options.stop) = (Some(block), StopRule::Never);
    options
}

fn taken(run: &Run) -> Vec<Vec<(u32, TokenId)>> {
    run.steps.iter().filter(|step| !step.is_empty()).cloned().collect()
}

/// The plans of a run in which position `p` is predicted as token 1, the leftmost the surest.
fn plans(options: SessionOptions) -> Vec<String> {
    let mut session = Session::new(options).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        plans.push(requests[0].plan.to_string());
        vec![predict(&requests[0], |position| (1, 0.9 - position as f32 / 100.0))]
    });
    plans
}

fn small(shift: u32, decoder: &str, cache: &str) -> SessionOptions {
    let mut options = options(Mask::Full, shift, 3, 6);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    options.block_length = Some(3);
    options
}

#[test]
fn prefix_runs_everything_once_and_then_what_follows_the_blocks_start() {
    assert_eq!(
        plans(small(0, "static:steps=4", "prefix")),
        [
            "live 0..9 visible 9 full canvas predict 3..6",
            "live 3..9 visible 9 full canvas predict 5",
            "live 0..9 visible 9 full canvas predict 6..9",
            "live 6..9 visible 9 full canvas predict 8",
        ]
    );
    assert_eq!(
        plans(small(0, "static:steps=4", "prefix:horizon=2"))[1],
        "live 3..8 visible 8 full canvas predict 5",
        "what lies behind the horizon is not seen"
    );
}

#[test]
fn dual_runs_everything_once_and_then_the_block() {
    assert_eq!(
        plans(small(0, "static:steps=4", "dual")),
        [
            "live 0..9 visible 9 full canvas predict 3..6",
            "live 3..6 visible 9 full canvas predict 5",
            "live 0..9 visible 9 full canvas predict 6..9",
            "live 6..9 visible 9 full canvas predict 8",
        ]
    );
    assert_eq!(plans(small(0, "static:steps=4", "dual:horizon=1"))[1], "live 3..7 visible 9 full canvas predict 5");
}

#[test]
fn a_shifted_model_has_to_take_the_first_token_of_each_block() {
    for cache in ["prefix", "dual"] {
        let plans = plans(small(1, "threshold:tau=0", cache));
        let window = if cache == "prefix" { "3..9" } else { "3..6" };
        assert_eq!(
            plans,
            [
                "live 0..9 visible 9 full canvas must 3".to_owned(),
                format!("live {window} visible 9 full canvas predict 4..6"),
                "live 0..9 visible 9 full canvas must 6".to_owned(),
                "live 6..9 visible 9 full canvas predict 7..9".to_owned(),
            ]
        );
    }
}

#[test]
fn the_idle_forward_follows_a_block_that_its_first_forward_completed() {
    let plans = plans(small(0, "threshold:tau=0", "dual:idle"));
    assert_eq!(
        plans,
        [
            "live 0..9 visible 9 full canvas predict 3..6",
            "live 3..6 visible 9 full canvas",
            "live 0..9 visible 9 full canvas predict 6..9",
            "live 6..9 visible 9 full canvas",
        ]
    );
    assert_eq!(run(small(0, "static", "prefix:idle")).steps.len(), 6, "static never completes a block at once");
}

#[test]
fn caches_f1_a_threshold_that_nothing_passes_is_static_decoding() {
    for (shift, cache) in [(0, "none"), (1, "none"), (0, "prefix"), (1, "prefix"), (0, "dual"), (1, "dual")] {
        let threshold = run(with(shift, "threshold:tau=1,strict", cache, BLOCK));
        assert_eq!(threshold.steps, run(with(shift, "static", cache, BLOCK)).steps, "{cache}");
        assert!(threshold.steps.iter().all(|step| step.len() == 1));
    }
}

#[test]
fn caches_f2_and_f8_a_threshold_of_zero_is_one_forward_a_block_with_any_cache() {
    let reference = run(with(0, "threshold:tau=0", "none", BLOCK));
    assert_eq!(reference.steps.len(), LENGTH / BLOCK);
    for cache in ["prefix", "dual", "prefix:horizon=1", "freecache:block=8,freeze=prompt"] {
        let cached = run(with(0, "threshold:tau=0", cache, BLOCK));
        assert_eq!(cached.steps.len(), LENGTH / BLOCK);
        if !cache.starts_with("freecache") {
            assert_eq!(cached.steps, reference.steps, "{cache}");
        }
    }
}

/// Feeds a session from a script and lets a fresh sequence of it run every full forward without any history.
fn first_forwards_are_vanilla(options: SessionOptions) -> usize {
    let mut script = Scripted::new(5, VOCAB, options.facts.shift);
    let mut session = Session::new(options).unwrap();
    let needs = session.needs()[0].clone();
    let own = script.open(&needs).unwrap();
    let length = session.layout().len();
    let (mut found, mut block) = (0, usize::MAX);
    drive(&mut session, |_, requests| {
        let request = &requests[0];
        let mut out = vec![Predictions::default()];
        script.step(&[request.step(own, 0)], &mut out).unwrap();
        if let Some(first) = request.plan.predict.first().or(request.plan.must.first()) {
            let of = (first as usize - PROMPT) / BLOCK;
            if std::mem::replace(&mut block, of) != of {
                assert_eq!(request.plan.live.len(), length, "the first forward of a block computes everything");
                let fresh = script.open(&needs).unwrap();
                let mut vanilla = vec![Predictions::default()];
                script.step(&[request.step(fresh, 0)], &mut vanilla).unwrap();
                assert_eq!(out, vanilla);
                found += 1;
            }
        }
        out
    });
    found
}

#[test]
fn caches_f5_the_first_forward_of_each_block_is_that_of_no_cache() {
    for (shift, cache) in [(0, "prefix"), (1, "prefix"), (0, "dual"), (1, "dual:horizon=3")] {
        assert_eq!(first_forwards_are_vanilla(with(shift, "threshold:tau=0.5", cache, BLOCK)), LENGTH / BLOCK);
    }
}

#[test]
fn caches_f6_a_full_forward_every_step_is_no_cache() {
    // A block of one position starts with each step.
    for shift in [0, 1] {
        let reference = run(with(shift, "static", "none", 1));
        for cache in ["prefix", "dual"] {
            assert_eq!(run(with(shift, "static", cache, 1)).steps, reference.steps, "{cache}");
        }
    }
}

#[test]
fn caches_f7_one_block_freezes_the_prompt_and_nothing_else() {
    let prefix = run(with(0, "static", "prefix", LENGTH));
    assert_eq!(prefix.steps, run(with(0, "static", "freecache:freeze=prompt", LENGTH)).steps);
    let vanilla = run(with(0, "static", "none", LENGTH));
    assert_eq!(prefix.steps[0], vanilla.steps[0]);
    assert_ne!(prefix.steps, vanilla.steps, "a prompt that never saw the answer");
}

#[test]
fn caches_f9_in_place_is_an_overlay() {
    let options = with(0, "threshold:tau=0.4", "dual", BLOCK);
    let in_place = run(options.clone());
    let mut script = Scripted::new(5, VOCAB, 0);
    let mut session = Session::new(options).unwrap();
    let needs = session.needs()[0].clone();
    let id = script.open(&SequenceNeeds { drafts: 1, draft_span: needs.positions, ..needs }).unwrap();
    let length = session.layout().len();
    let overlay = drive(&mut session, |_, requests| {
        let mut request = Request { tokens: requests[0].tokens.clone(), ..requests[0].clone() };
        if request.plan.live.len() < length {
            request.plan.lanes = Lanes::Drafts(1);
        }
        let mut out = vec![Predictions::default()];
        script.step(&[request.step(id, 0)], &mut out).unwrap();
        out
    });
    assert_eq!(overlay.steps, in_place.steps);
}

#[test]
fn caches_f10_and_x3_prefix_and_dual_are_one_on_the_last_block() {
    for decoder in ["static", "threshold:tau=0.4", "factor:f=2"] {
        let prefix = run(with(0, decoder, "prefix", BLOCK));
        let last = (PROMPT + LENGTH - BLOCK) as u32;
        let of_last = |run: &Run| {
            taken(run).into_iter().filter(|step| step.iter().all(|commit| commit.0 >= last)).collect::<Vec<_>>()
        };
        for cache in ["prefix", "dual"] {
            let mut options = with(0, decoder, cache, BLOCK);
            options.canvas = demask_decode::CanvasSpec::Prompt {
                tokens: prefix.output.canvas[..last as usize].to_vec(),
                gen_length: BLOCK,
            };
            assert_eq!(taken(&run(options)), of_last(&prefix), "{decoder} {cache}");
        }
    }
    let (prefix, dual) = (run(with(0, "static", "prefix", BLOCK)), run(with(0, "static", "dual", BLOCK)));
    assert_ne!(prefix.steps, dual.steps, "the suffix's K/V differ in earlier blocks");
}

#[test]
fn caches_f11_the_first_token_of_a_block_is_greedy_and_no_row_is_borrowed() {
    for cache in ["prefix", "dual"] {
        let options = with(1, "static", cache, BLOCK);
        let mut script = Scripted::new(5, VOCAB, 1);
        let mut session = Session::new(options).unwrap();
        let needs = session.needs()[0].clone();
        let (own, mut musts) = (script.open(&needs).unwrap(), Vec::new());
        let run = drive(&mut session, |step, requests| {
            let request = &requests[0];
            let plan = &request.plan;
            assert!(plan.predict.iter().all(|position| plan.live.contains(position - 1)));
            let mut out = vec![Predictions::default()];
            script.step(&[request.step(own, 0)], &mut out).unwrap();
            if let Some(first) = plan.must.first() {
                assert_eq!((plan.must.len(), plan.predict.len(), plan.live.len()), (1, 0, PROMPT + LENGTH));
                // Everything predicted without a history: the greedy token of the first position is the same.
                let fresh = script.open(&needs).unwrap();
                let mut vanilla = vec![Predictions::default()];
                script.step(&[request.step(fresh, 0)], &mut vanilla).unwrap();
                musts.push((step, first, vanilla[0].tokens[0]));
            }
            out
        });
        assert_eq!(musts.len(), LENGTH / BLOCK);
        for (step, position, token) in musts {
            assert_eq!(run.steps[step], [(position, token)]);
        }
    }
}

#[test]
fn caches_f12_forwards_of_a_block_lie_between_one_and_its_length() {
    for (shift, least) in [(0, 1), (1, 2)] {
        for (decoder, spread) in [("static", 3.0), ("threshold:tau=0.3", 8.0), ("factor:f=3", 20.0), ("factor", 1.0)] {
            for cache in ["prefix", "dual"] {
                let options = with(shift, decoder, cache, BLOCK);
                let mut script = Scripted::new(9, VOCAB, shift).with_spread(spread);
                let run = drive_on(&mut script, &mut Session::new(options).unwrap());
                for block in 0..LENGTH / BLOCK {
                    let start = (PROMPT + block * BLOCK) as u32;
                    let of_block = |step: &&Vec<(u32, TokenId)>| {
                        step.iter().any(|commit| (start..start + BLOCK as u32).contains(&commit.0))
                    };
                    let forwards = run.steps.iter().filter(of_block).count();
                    assert!((least..=BLOCK).contains(&forwards), "{decoder} {cache}: {forwards}");
                }
            }
        }
    }
}

/// With one layer a row's K/V depend on its own token and position: whatever keeps them is exact.
#[test]
fn one_layer_makes_both_caches_exact() {
    let on_one_layer = |options: SessionOptions| {
        let mut script = Scripted::new(3, VOCAB, options.facts.shift).with_one_layer();
        drive_on(&mut script, &mut Session::new(options).unwrap())
    };
    for decoder in ["static", "threshold:tau=0.4", "factor", "entropy_bounded:eb=2"] {
        let reference = on_one_layer(with(0, decoder, "none", BLOCK));
        for cache in ["prefix", "dual", "dual:horizon=5"] {
            assert_eq!(on_one_layer(with(0, decoder, cache, BLOCK)).steps, reference.steps, "{decoder} {cache}");
        }
    }
    // A horizon takes keys away: not even one layer makes that the same.
    let cut = on_one_layer(with(0, "static", "prefix:horizon=0", BLOCK));
    assert_ne!(cut.steps, on_one_layer(with(0, "static", "none", BLOCK)).steps);
}

#[test]
fn caches_x2_the_first_forward_of_every_policy_is_that_of_no_cache() {
    for shift in [0, 1] {
        let mut answers = Vec::new();
        for cache in ["none", "prefix", "dual", "freecache", "freecache:block=4,freeze=reference,lookahead=2"] {
            let mut script = Scripted::new(5, VOCAB, shift);
            let session = Session::new(with(shift, "static", cache, BLOCK)).unwrap();
            let id: SequenceId = script.open(&session.needs()[0]).unwrap();
            let mut out = vec![Predictions::default()];
            script.step(&[session.requests()[0].step(id, 0)], &mut out).unwrap();
            // A shifted model's block caches ask for their first token alone.
            answers.push((out[0].positions.first(), out[0].tokens[0], out[0].confidence[0]));
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    }
}

#[test]
fn slots_are_those_of_the_canvas_or_of_the_steps() {
    let layout = Layout::full(PROMPT, PROMPT + LENGTH, BLOCK);
    let memory = |text: &str| {
        let cache: CacheSpec = text.parse().unwrap();
        (cache.method().build)(&cache, &layout).memory()
    };
    for (cache, expected) in [
        ("prefix", Memory::OfState),
        ("prefix:horizon=4,idle", Memory::OfState),
        ("dual", Memory::OfState),
        ("freecache", Memory::OfState),
        ("freecache:block=16", Memory::OfState),
        ("freecache:block=4", Memory::OfHistory),
        ("freecache:block=8,freeze=reference", Memory::OfHistory),
        ("freecache:freeze=reference", Memory::OfState),
        ("freecache:block=4,freeze=prompt", Memory::OfState),
        ("freecache:lookahead=9", Memory::OfHistory),
    ] {
        assert_eq!(memory(cache), expected, "{cache}");
    }
}

/// What each pair may claim, and why a pair is refused: one row for each decoder and family.
#[test]
fn legality_of_pairs() {
    let specs = |decoder: &str, cache: &str| (decoder.parse::<DecoderSpec>().unwrap(), cache.parse().unwrap());
    for cache in
        ["prefix", "dual", "dual:horizon=4", "freecache", "freecache:freeze=reference", "freecache:freeze=prompt"]
    {
        for decoder in ["static", "threshold", "threshold:cap", "factor", "factor:rule=code", "entropy_bounded"] {
            let (decoder, cache) = specs(decoder, cache);
            let attention = legality::Attention::Full;
            assert_eq!(legality::check(attention, &decoder, &cache, Remasking::default()), Ok(()));
            assert_eq!(legality::exactness(&decoder, &cache), Exactness::Approximate, "{decoder} {cache}");
        }
        let (decoder, cache) = specs("static", cache);
        let refused = legality::check(legality::Attention::BlockCausal, &decoder, &cache, Remasking::default());
        let name = cache.name();
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .starts_with(&format!("cache {name} cannot run a model with block-causal attention: use none")),
            "{name}"
        );
        let (decoder, cache) = specs("ar", name);
        let refused = legality::check(legality::Attention::Full, &decoder, &cache, Remasking::default());
        assert!(refused.unwrap_err().to_string().starts_with("decoder ar cannot run a model with full attention"));
        let refused = legality::check(legality::Attention::Causal, &decoder, &cache, Remasking::default());
        assert!(refused.unwrap_err().to_string().starts_with(&format!("cache {name} cannot run a model with causal")));
    }
    let (decoder, cache) = specs("factor", "block");
    let block_causal = legality::Attention::BlockCausal;
    assert_eq!(legality::check(block_causal, &decoder, &cache, Remasking::default()), Ok(()));
    assert_eq!(legality::exactness(&decoder, &cache), Exactness::Approximate);
    assert!(legality::check(legality::Attention::Causal, &decoder, &cache, Remasking::default()).is_err());
    assert!(legality::check(block_causal, &decoder, &cache, Remasking::Origin).is_err());
}

#[test]
fn what_a_cap_leaves_over_is_added_to_the_next_step() {
    // Six masks in three steps: one of two passes, then one of three, then the best of the four left, one by one.
    let mut options = options(Mask::Full, 0, 2, 6);
    options.decoder = "threshold:tau=0.9,cap".parse().unwrap();
    (options.block_length, options.steps) = (Some(6), Some(3));
    let mut session = Session::new(options).unwrap();
    let sure = [[0.95, 0.5], [0.95, 0.91], [0.1, 0.1], [0.99, 0.99]];
    let run = drive(&mut session, |step, requests| {
        vec![predict(&requests[0], |position| (position, sure[step.min(3)][usize::from(position > 3)]))]
    });
    let counts: Vec<usize> = run.steps.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 2, 1, 1]);
}

#[test]
fn a_step_that_must_take_one_leaves_the_rest_to_the_last() {
    for (schedule, counts) in [(Schedule::Even, vec![1, 2, 2, 3]), (Schedule::Dream, vec![1, 2, 2, 3])] {
        let mut options = with(1, "static", "dual", BLOCK);
        (options.schedule, options.steps) = (schedule, Some(4 * LENGTH / BLOCK));
        let found: Vec<usize> = run(options).steps.iter().map(Vec::len).collect();
        assert_eq!(found, counts.repeat(LENGTH / BLOCK), "{schedule}");
    }
}

/// LLaDA-8B's shape.
const WIDTH: f64 = 4096.0;
const FFN: f64 = 12288.0;
const LAYERS: f64 = 32.0;
const VOCABULARY: f64 = 126_464.0;

/// Average operations of a step in units of 10^12, by the formula of specification caches, section 7, from the plans
/// of a run of one token a step; `all` rows have logits, as the references compute them, or those predicted.
fn average_cost(cache: &str, all: bool) -> f64 {
    let mut options = options(Mask::Full, 0, 819, 256);
    (options.decoder, options.cache) = ("static".parse().unwrap(), cache.parse().unwrap());
    options.block_length = Some(32);
    let (mut sum, mut steps) = (0.0, 0.0);
    drive(&mut Session::new(options).unwrap(), |_, requests| {
        let plan = &requests[0].plan;
        let (rows, keys) = (plan.live.len() as f64, f64::from(plan.visible));
        let logits = if all { rows } else { plan.predict.len() as f64 };
        let row = 2.0 * (4.0 * WIDTH * WIDTH + 3.0 * WIDTH * FFN);
        sum += LAYERS * rows * (row + 4.0 * WIDTH * keys) + 2.0 * WIDTH * VOCABULARY * logits;
        steps += 1.0;
        vec![predict(&requests[0], |position| (1, 0.9 - position as f32 / 2000.0))]
    });
    assert_eq!(steps, 256.0);
    sum / steps / 1e12
}

#[test]
fn caches_x9_average_costs_are_those_of_the_table() {
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.006, "{found} is not {expected}");
    near(average_cost("none", true), 16.73);
    near(average_cost("prefix", true), 2.69);
    near(average_cost("dual", true), 1.00);
    near(average_cost("freecache:block=32,freeze=reference", true), 2.29);
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.03, "{found} is not {expected}");
    close(average_cost("none", false), 15.64);
    close(average_cost("prefix", false), 2.55);
    close(average_cost("dual", false), 0.97);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The scripted denoiser refuses every plan that reads a slot that was never written or needs a row that is not
    /// live.
    #[test]
    fn every_legal_run_ends_complete(
        (prompt, blocks, block, shift) in (0usize..9, 1usize..4, 1usize..9, 0u32..2),
        (decoder, cache, schedule, remasking) in (0usize..6, 0usize..8, 0usize..3, 0usize..8),
        (per_block, stop, seed, holes) in (0usize..12, 0usize..5, any::<u64>(), any::<bool>()),
        cfg_scale in prop_oneof![Just(0.0f32), Just(1.5)],
    ) {
        let mut options = options(Mask::Full, shift, prompt, blocks * block);
        options.remasking = Remasking::ALL[remasking];
        let decoder = if options.remasking == Remasking::Origin { 0 } else { decoder };
        options.decoder = ["static", "threshold:tau=0.4", "threshold:tau=0.4,cap", "factor:f=2", "factor:rule=code",
            "entropy_bounded:eb=2"][decoder].parse().unwrap();
        options.cache = ["prefix", "dual", "prefix:horizon=1,idle", "dual:horizon=2,idle", "freecache:block=4",
            "freecache:block=3,freeze=reference", "freecache:block=2,lookahead=1,lag=3", "freecache:freeze=prompt"]
            [cache].parse().unwrap();
        options.schedule = Schedule::ALL[schedule];
        options.block_length = Some(block);
        options.steps = (per_block > 0).then_some(per_block * blocks);
        options.stop = [StopRule::Never, StopRule::Prefix, StopRule::FillBehind { fill: EOS },
            StopRule::EndRun { fill: EOS, run: 2 }, StopRule::WholeBlock { fill: EOS }][stop];
        options.end_ids = vec![EOS];
        (options.seed, options.cfg_scale) = (seed, cfg_scale);
        if holes {
            options.steps = None;
            let tokens = (0..prompt + blocks * block).map(|at| if at % 3 == 1 { 4 } else { MASK_ID }).collect();
            options.canvas = demask_decode::CanvasSpec::Infill { tokens };
        }
        let mut script = Scripted::new(seed, VOCAB, shift);
        let mut session = Session::new(options.clone()).unwrap();
        let run = drive_on(&mut script, &mut session);
        let complete = options.stop != StopRule::Prefix || run.output.finish == demask_decode::Finish::Length;
        prop_assert!(!complete || run.output.canvas.iter().all(|&token| token != MASK_ID));
        let mut seen = vec![false; run.output.canvas.len()];
        for &(position, _) in run.steps.iter().flatten() {
            prop_assert!(!std::mem::replace(&mut seen[position as usize], true), "{} twice", position);
        }
    }
}
