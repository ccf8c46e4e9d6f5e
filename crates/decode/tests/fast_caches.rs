//! Fast-dLLM's prefix and dual caches: the invariants of specs/caches.md#3.7 and specs/caches.md#8, on scripted
//! denoisers in which every stale slot shows.

use crate::common::{EOS, MASK_ID, Run, VOCAB, drive, drive_on, options, predict, run, run_all_live};
use demask_decode::{
    CacheSpec, Exactness, Layout, Memory, Remasking, Schedule, Session, SessionOptions, Setup, StopRule,
    schedule::Clock, transfer::Ranking,
};
use demask_step::{ForwardInput, Job, Lanes, Mask, Network, Predictions, SequenceId, SequenceLimits, TokenId};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
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
        let window = if cache == "prefix" { "3..9" } else { "3..6" };
        assert_eq!(
            plans(small(1, "threshold:tau=0", &format!("{cache}:start=one"))),
            [
                "live 0..9 visible 9 full canvas must 3".to_owned(),
                format!("live {window} visible 9 full canvas predict 4..6"),
                "live 0..9 visible 9 full canvas must 6".to_owned(),
                "live 6..9 visible 9 full canvas predict 7..9".to_owned(),
            ]
        );
        assert_eq!(
            plans(small(1, "threshold:tau=0", cache)),
            [
                "live 0..9 visible 9 full canvas predict 4..6 must 3",
                "live 0..9 visible 9 full canvas predict 7..9 must 6",
            ],
            "what else it predicts is of use too"
        );
    }
}

#[test]
fn a_start_of_one_is_refused_where_no_row_leaves() {
    for cache in ["prefix:start=one", "dual:start=one"] {
        let refused = Session::new(small(0, "static", cache)).unwrap_err().to_string();
        assert!(refused.contains(cache) && refused.contains("models whose rows predict the token"), "{refused}");
    }
}

#[test]
fn the_prompts_rows_run_with_every_so_many_blocks() {
    let starts = |cache: &str| {
        let mut options = options(Mask::Full, 0, 3, 12);
        (options.decoder, options.cache) = ("threshold:tau=0".parse().unwrap(), cache.parse().unwrap());
        options.block_length = Some(3);
        plans(options).iter().map(|plan| plan.split("..").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for cache in ["prefix", "dual"] {
        let of = |prompt: &str| starts(&format!("{cache}:prompt={prompt}"));
        assert_eq!(starts(cache), ["live 0"; 4]);
        assert_eq!(of("1"), ["live 0"; 4]);
        assert_eq!(of("2"), ["live 0", "live 3", "live 0", "live 3"]);
        assert_eq!(of("3"), ["live 0", "live 3", "live 3", "live 0"]);
        assert_eq!(of("first"), ["live 0", "live 3", "live 3", "live 3"]);
        let refused = format!("{cache}:prompt=0").parse::<CacheSpec>().unwrap_err().to_string();
        assert!(refused.contains("prompt") && refused.contains("first or a whole number from 1 on"), "{refused}");
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

/// A canvas and a network.
#[derive(Debug, Clone, Copy)]
struct Shape {
    prompt: usize,
    blocks: usize,
    block: usize,
    seed: u64,
    spread: f64,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1usize..9, 1usize..4, 1usize..9, any::<u64>(), 1.0f64..12.0)
        .prop_map(|(prompt, blocks, block, seed, spread)| Shape { prompt, blocks, block, seed, spread })
}

impl Shape {
    fn length(self) -> usize {
        self.prompt + self.blocks * self.block
    }

    fn with(self, shift: u32, decoder: &str, cache: &str) -> SessionOptions {
        let mut options = options(Mask::Full, shift, self.prompt, self.blocks * self.block);
        (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
        (options.block_length, options.stop) = (Some(self.block), StopRule::Never);
        options
    }

    fn script(self, shift: u32) -> Scripted {
        Scripted::new(self.seed, VOCAB, shift).with_spread(self.spread)
    }

    fn run(self, shift: u32, decoder: &str, cache: &str) -> Run {
        drive_on(&mut self.script(shift), &mut Session::new(self.with(shift, decoder, cache)).unwrap())
    }

    /// Starts of the blocks.
    fn starts(self) -> impl Iterator<Item = u32> {
        (0..self.blocks).map(move |block| (self.prompt + block * self.block) as u32)
    }
}

/// A fresh sequence's answer to a request that computes everything: what it is without any history.
fn vanilla(script: &mut Scripted, needs: &SequenceLimits, request: &ForwardInput) -> Predictions {
    let fresh = script.open(needs).unwrap();
    let mut out = [Predictions::default()];
    script.step(&[request.step(fresh)], &mut out).unwrap();
    script.close(fresh);
    let [out] = out;
    out
}

proptest! {
    #![proptest_config(property::cases(150))]

    #[test]
    fn caches_f1_a_threshold_that_nothing_passes_is_static_decoding(shape in shapes(), shift in 0u32..2) {
        for cache in ["none", "prefix", "dual", "prefix:start=one", "dual:start=one"].into_iter().take(3 + 2 * shift as usize) {
            let threshold = shape.run(shift, "threshold:tau=1,strict", cache);
            prop_assert_eq!(&threshold.steps, &shape.run(shift, "static", cache).steps, "{}", cache);
            // The first token of a block is taken beside the step's own where its row leaves.
            let most = 1 + usize::from(shift == 1 && ["prefix", "dual"].contains(&cache));
            prop_assert!(threshold.steps.iter().all(|step| (1..=most).contains(&step.len())));
        }
    }

    #[test]
    fn caches_f2_f8_a_threshold_of_zero_is_one_forward_a_block_with_any_cache(shape in shapes()) {
        let reference = shape.run(0, "threshold:tau=0", "none");
        prop_assert_eq!(reference.steps.len(), shape.blocks);
        for cache in ["prefix", "dual", "prefix:horizon=1"] {
            prop_assert_eq!(&shape.run(0, "threshold:tau=0", cache).steps, &reference.steps, "{}", cache);
        }
        prop_assert_eq!(shape.run(0, "threshold:tau=0", "freecache:block=8,freeze=prompt").steps.len(), shape.blocks);
    }

    #[test]
    fn caches_f5_the_first_forward_of_each_block_is_that_of_no_cache(shape in shapes(), shift in 0u32..2) {
        for cache in ["prefix", "dual", "dual:horizon=3"] {
            let mut script = shape.script(shift);
            let mut session = Session::new(shape.with(shift, "threshold:tau=0.5", cache)).unwrap();
            let needs = session.needs()[0].limits.clone();
            let own = script.open(&needs).unwrap();
            let (mut found, mut block) = (0, usize::MAX);
            drive(&mut session, |_, requests| {
                let request = &requests[0];
                let mut out = vec![Predictions::default()];
                script.step(&[request.step(own)], &mut out).unwrap();
                if let Some(first) = request.plan.predict.first().or(request.plan.must.first()) {
                    let of = (first as usize - shape.prompt) / shape.block;
                    if std::mem::replace(&mut block, of) != of {
                        assert_eq!(request.plan.query.len(), shape.length(), "it computes everything");
                        assert_eq!(out[0], vanilla(&mut script, &needs, request));
                        found += 1;
                    }
                }
                out
            });
            prop_assert_eq!(found, shape.blocks);
        }
    }

    /// A block of one position starts with each step: every forward is a full one.
    #[test]
    fn caches_f6_a_full_forward_every_step_is_no_cache(shape in shapes(), shift in 0u32..2) {
        let shape = Shape { block: 1, blocks: shape.blocks * shape.block, ..shape };
        let reference = shape.run(shift, "static", "none");
        for cache in ["prefix", "dual"] {
            prop_assert_eq!(&shape.run(shift, "static", cache).steps, &reference.steps, "{}", cache);
        }
    }

    #[test]
    fn caches_f7_one_block_freezes_the_prompt_and_nothing_else(shape in shapes()) {
        let shape = Shape { blocks: 1, ..shape };
        let prefix = shape.run(0, "static", "prefix");
        prop_assert_eq!(&prefix.steps, &shape.run(0, "static", "freecache:freeze=prompt").steps);
        prop_assert_eq!(&prefix.steps[0], &shape.run(0, "static", "none").steps[0]);
    }

    #[test]
    fn caches_f9_in_place_is_an_overlay(shape in shapes(), shift in 0u32..2) {
        let in_place = shape.run(shift, "threshold:tau=0.4", "dual");
        let mut script = shape.script(shift);
        let mut session = Session::new(shape.with(shift, "threshold:tau=0.4", "dual")).unwrap();
        let needs = session.needs()[0].limits.clone();
        let id = script.open(&SequenceLimits { drafts: 1, draft_span: needs.positions, ..needs }).unwrap();
        let overlay = drive(&mut session, |_, requests| {
            let mut request = requests[0].clone();
            if request.plan.query.len() < shape.length() {
                request.plan.lanes = Lanes::Drafts(1);
            }
            let mut out = vec![Predictions::default()];
            script.step(&[request.step(id)], &mut out).unwrap();
            out
        });
        prop_assert_eq!(&overlay.steps, &in_place.steps);
    }

    #[test]
    fn caches_f10_x3_prefix_and_dual_are_one_on_the_last_block(shape in shapes(), decoder in 0usize..3) {
        let decoder = ["static", "threshold:tau=0.4", "factor:f=2"][decoder];
        let prefix = shape.run(0, decoder, "prefix");
        let last = shape.length() - shape.block;
        let of_last = |run: &Run| {
            let within = |step: &Vec<(u32, TokenId)>| step.iter().all(|commit| commit.0 as usize >= last);
            taken(run).into_iter().filter(within).collect::<Vec<_>>()
        };
        for cache in ["prefix", "dual"] {
            let mut options = shape.with(0, decoder, cache);
            let tokens = prefix.output.canvas[..last].to_vec();
            options.canvas = demask_decode::CanvasSpec::Prompt { tokens, gen_length: shape.block };
            let alone = drive_on(&mut shape.script(0), &mut Session::new(options).unwrap());
            prop_assert_eq!(taken(&alone), of_last(&prefix), "{} {}", decoder, cache);
        }
    }

    #[test]
    fn caches_f11_the_first_token_of_a_block_is_greedy_and_no_row_is_borrowed(shape in shapes()) {
        for cache in ["prefix:start=one", "dual:start=one"] {
            let mut script = shape.script(1);
            let mut session = Session::new(shape.with(1, "static", cache)).unwrap();
            let needs = session.needs()[0].limits.clone();
            let (own, mut musts) = (script.open(&needs).unwrap(), Vec::new());
            let run = drive(&mut session, |step, requests| {
                let request = &requests[0];
                let plan = &request.plan;
                assert!(plan.predict.iter().all(|position| plan.query.contains(position - 1)));
                let mut out = vec![Predictions::default()];
                script.step(&[request.step(own)], &mut out).unwrap();
                if let Some(first) = plan.must.first() {
                    assert_eq!((plan.must.len(), plan.predict.len(), plan.query.len()), (1, 0, shape.length()));
                    // Everything predicted without a history: the greedy token of the first position is the same.
                    musts.push((step, first, vanilla(&mut script, &needs, request).tokens[0]));
                }
                out
            });
            prop_assert_eq!(musts.iter().map(|must| must.1).collect::<Vec<_>>(), shape.starts().collect::<Vec<_>>());
            for (step, position, token) in musts {
                prop_assert_eq!(&run.steps[step], &[(position, token)]);
            }
        }
    }

    #[test]
    fn caches_f12_forwards_of_a_block_lie_between_one_and_its_length(shape in shapes(), decoder in 0usize..4) {
        let decoder = ["static", "threshold:tau=0.3", "factor:f=3", "factor"][decoder];
        for shift in [0, 1] {
            for cache in ["prefix", "dual", "prefix:start=one", "dual:start=one"].into_iter().take(2 + 2 * shift as usize) {
                // As published, a shifted model takes the first token of a block alone.
                let least = 1 + usize::from(cache.contains("one") && shape.block > 1);
                let run = shape.run(shift, decoder, cache);
                for start in shape.starts() {
                    let within = start..start + shape.block as u32;
                    let commits = |step: &&Vec<(u32, TokenId)>| step.iter().any(|commit| within.contains(&commit.0));
                    let forwards = run.steps.iter().filter(commits).count();
                    prop_assert!((least..=shape.block).contains(&forwards), "{} {}: {}", decoder, cache, forwards);
                }
            }
        }
    }

    /// X1: whatever the policy, with all rows live in all layers it is no cache.
    #[test]
    fn caches_x1_any_policy_with_all_rows_live_is_no_cache(shape in shapes(), shift in 0u32..2, tau in 0.05f32..1.0) {
        let decoders = ["static".to_owned(), format!("threshold:tau={tau}")];
        let confident = ["freecache:block=3", "freecache:freeze=reference,block=4,lookahead=1", "dkv", "dkv:refresh=3",
            "dkv:variant=prefill", "dkv:variant=pd,refresh=2", "dllm", "dllm:prompt=3,response=2,rho=0.5"];
        // Under shift a block's first token is taken alone there.
        let unshifted = if shift == 0 { &["prefix", "dual"][..] } else { &[] };
        for decoder in &decoders {
            let reference = run_all_live(shape.with(shift, decoder, "none"), shape.seed);
            for cache in confident.iter().chain(unshifted) {
                let found = run_all_live(shape.with(shift, decoder, cache), shape.seed);
                prop_assert_eq!(&found, &reference, "{} {}", decoder, cache);
            }
        }
        let random = |cache: &str| {
            let remasking = Remasking::Random;
            run_all_live(SessionOptions { remasking, ..shape.with(shift, "static", cache) }, shape.seed)
        };
        prop_assert_eq!(random("dkv:variant=greedy"), random("none"));
    }

    #[test]
    fn caches_x2_the_first_forward_of_every_policy_is_that_of_no_cache(shape in shapes(), shift in 0u32..2) {
        let mut answers = Vec::new();
        for cache in ["none", "prefix", "dual", "freecache", "freecache:block=4,freeze=reference,lookahead=2", "dkv",
            "dkv:variant=prefill", "dkv:variant=pd", "dllm"] {
            let mut script = shape.script(shift);
            let session = Session::new(shape.with(shift, "static", cache)).unwrap();
            let id: SequenceId = script.open(&session.needs()[0].limits).unwrap();
            let mut out = vec![Predictions::default()];
            script.step(&[session.requests()[0].step(id)], &mut out).unwrap();
            // A shifted model's block caches ask for their first token alone.
            answers.push((out[0].positions.first(), out[0].tokens[0], out[0].confidence[0]));
        }
        prop_assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", answers);
    }
}

/// The controls of F7, F10 and X1: where rows are left out, that shows.
#[test]
fn stale_slots_show() {
    let of = |cache: &str, block: usize| run(with(0, "static", cache, block)).steps;
    assert_ne!(of("prefix", LENGTH), of("none", LENGTH), "F7: a prompt that never saw the answer");
    assert_ne!(of("prefix", BLOCK), of("dual", BLOCK), "F10: the suffix's K/V differ in earlier blocks");
    for cache in ["prefix", "dual", "freecache:block=3", "dkv", "dkv:variant=prefill"] {
        assert_ne!(of(cache, BLOCK), of("none", BLOCK), "X1: {cache}");
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
fn slots_are_those_of_the_canvas_or_of_the_steps() {
    let options = with(0, "static", "none", BLOCK);
    let layout = Layout::full(PROMPT, PROMPT + LENGTH, BLOCK);
    let clock = Clock { schedule: options.schedule, steps: 1, eps: options.eps, share_of: None };
    let ranking = Ranking { remasking: options.remasking, alg_temp: 0.0, seed: 0, order: Vec::new() };
    let setup = Setup { layout: &layout, clock: &clock, steps: 0, ranking: &ranking, options: &options };
    let memory = |text: &str| text.parse::<CacheSpec>().unwrap().build(&setup).memory();
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

/// Claims of each pair, and reasons of refusals: one row for each decoder and family.
#[test]
fn legality_of_pairs() {
    let check = |mask, decoder: &str, cache: &str, remasking| {
        let mut options = options(mask, 0, PROMPT, LENGTH);
        (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
        options.remasking = remasking;
        Session::new(options).map(|session| session.exactness()).map_err(|error| error.to_string())
    };
    let claim = |mask, decoder, cache| check(mask, decoder, cache, Remasking::default());
    let blocks = Mask::blocks(4);
    for cache in
        ["prefix", "dual", "dual:horizon=4", "freecache", "freecache:freeze=reference", "freecache:freeze=prompt"]
    {
        for decoder in ["static", "threshold", "threshold:cap", "factor", "factor:rule=code", "entropy_bounded"] {
            assert_eq!(claim(Mask::Full, decoder, cache), Ok(Exactness::Approximate), "{decoder} {cache}");
        }
        let name = cache.split(':').next().unwrap();
        let refused = claim(blocks, "static", cache).unwrap_err();
        let start = format!("cache {name} cannot run a model with block-causal attention: use none");
        assert!(refused.starts_with(&start), "{refused}");
        let refused = claim(Mask::Full, "ar", name).unwrap_err();
        assert!(refused.starts_with("decoder ar cannot run a model with full attention"), "{refused}");
        let refused = claim(Mask::Causal, "ar", name).unwrap_err();
        assert!(refused.starts_with(&format!("cache {name} cannot run a model with causal")), "{refused}");
    }
    assert_eq!(claim(blocks, "factor", "block"), Ok(Exactness::Approximate));
    assert!(claim(Mask::Causal, "factor", "block").is_err());
    assert!(check(blocks, "factor", "block", Remasking::Origin).is_err());
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
        let mut options = with(1, "static", "dual:start=one", BLOCK);
        (options.schedule, options.steps) = (schedule, Some(4 * LENGTH / BLOCK));
        let found: Vec<usize> = run(options).steps.iter().map(Vec::len).collect();
        assert_eq!(found, counts.repeat(LENGTH / BLOCK), "{schedule}");
    }
}

proptest! {
    #![proptest_config(property::cases(300))]

    /// The scripted network refuses every plan that reads a slot that was never written or needs a row that is not
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
        options.stop = [StopRule::Never, StopRule::Prefix, StopRule::FillBehind,
            StopRule::EndRun(2), StopRule::WholeBlock][stop];
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
