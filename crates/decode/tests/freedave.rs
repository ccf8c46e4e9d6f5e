//! The invariants of FreeDave (specs/freedave.md#6.1; the tests carry their numbers), over every cache that runs
//! drafts; `freedave_random.rs` compares with the baseline on random cases. Isolation of drafts and what is kept of
//! them (I7, I8), who sees whom (I9) and which row predicts (I10) are tested on networks, in
//! `crates/demask/tests`.

use crate::common::{
    MASK_ID, drive,
    freedave::{BLOCKS, FULL, OF_HISTORY, Script, caches, forwards, recite, run},
    options,
};
use demask_decode::{Event, Exactness, Schedule, Session, StopRule};
use demask_step::{
    ForwardInput, HeadAsk, Job, Lanes, NO_TOKEN, Network, Predictions, SequenceId, SequenceStep, StepPlan, TokenId,
};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

#[test]
fn freedave_i17_a_known_text_reaches_the_ceilings_under_full_attention() {
    let mut options = options(FULL, 0, 5, 64);
    options.block_length = Some(32);
    for (d, ceiling) in [(1, 32), (2, 17), (4, 9), (8, 5), (16, 3), (32, 2)] {
        let decoder = format!("freedave:mode=reference,d={d}");
        assert_eq!(forwards(options.clone(), &decoder, "none"), 2 * ceiling, "d {d}");
    }
    assert_eq!(forwards(options.clone(), "freedave:d=8,eager=false", "none"), 2 * 5);
    assert_eq!(forwards(options, "freedave:d=8", "none"), 1 + 8, "one forward before the first drafts of all");
}

#[test]
fn freedave_i17_a_known_text_reaches_the_ceilings_of_block_models() {
    let options = options(BLOCKS, 0, 4, 2048);
    let found = |decoder: &str| forwards(options.clone(), decoder, "block");
    let alone = |decoder: &str| forwards(options.clone(), decoder, "block:store=alone");
    assert_eq!((alone("static"), found("static")), (2561, 2048));
    for (d, eager, ceiling) in [(4, false, 1.67), (2, true, 1.43), (4, true, 1.92), (8, true, 2.64), (16, true, 3.39)] {
        let ratio = 2561.0 / alone(&format!("freedave:mode=reference,d={d},eager={eager}")) as f64;
        assert!((ratio - ceiling).abs() < 0.01, "d {d} eager {eager}: {ratio}");
    }
    assert_eq!(alone("freedave:mode=reference,d=8,eager"), 969);
    for (d, forwards, ceiling) in [(1, 2048, 1.25), (4, 513, 4.99), (8, 342, 7.49), (16, 206, 12.4)] {
        let eager = if d > 1 { ",eager" } else { "" };
        let rolling = found(&format!("freedave:d={d}{eager}"));
        assert_eq!(rolling, forwards, "d {d}");
        // specs/freedave.md#I17 states three digits.
        let ratio = 2561.0 / rolling as f64;
        assert!((ratio - ceiling).abs() < if d < 16 { 0.005 } else { 0.05 }, "d {d}: {ratio}");
    }
}

#[test]
fn freedave_i18_one_forward_of_drafts_finishes_a_known_window() {
    let mut options = options(FULL, 0, 3, 12);
    options.block_length = Some(12);
    assert_eq!(forwards(options.clone(), "freedave:mode=reference,d=12", "none"), 2);
    assert_eq!(forwards(options, "freedave:mode=reference,d=99", "none"), 2);
}

/// I2 where stores are fused: one draft commits as static decoding does, in as many forwards. Published programs count stores
/// and prefill beside them.
#[test]
fn freedave_i2_one_rolling_draft_is_static_decoding() {
    let script = Script::endless(3, 0.5, 3.0);
    for (mask, shift) in [(FULL, 0), (FULL, 1), (BLOCKS, 0)] {
        for cache in caches(mask, shift) {
            let mut options = options(mask, shift, 5, 16);
            (options.block_length, options.cache, options.stop) = (Some(4), cache, StopRule::Never);
            let reference = run(script, options.clone(), "static").unwrap();
            let found = run(script, options.clone(), "freedave:d=1").unwrap();
            assert_eq!(found.commits, reference.commits);
            let [found, reference] = [found, reference].map(|run| run.session.counts());
            assert_eq!(found.forwards, reference.forwards, "{}", options.cache);
            assert_eq!(found.nfe, found.forwards, "{}", options.cache);
        }
    }
}

/// I1, I3 and I6 where the number of drafts is the device's: it changes no token, and no forward is more than static
/// decoding's.
#[test]
fn freedave_i1_i3_i6_drafts_that_fit_a_device_write_the_same_on_all() {
    for (mask, shift) in [(FULL, 0), (FULL, 1), (BLOCKS, 0)] {
        for (cache, easy) in caches(mask, shift).into_iter().flat_map(|cache| [(cache.clone(), 0.5), (cache, 1.0)]) {
            let script = Script::endless(7, easy, 12.0);
            let mut options = options(mask, shift, 5, 48);
            (options.block_length, options.cache, options.stop) = (Some(8), cache, StopRule::Never);
            let reference = run(script, options.clone(), "static").unwrap();
            for free_rows in [1, 16, 64, 400, usize::MAX] {
                options.facts.free_rows = free_rows;
                let found = run(script, options.clone(), "freedave").unwrap();
                assert_eq!(found.commits, reference.commits, "{} and {free_rows} rows", options.cache);
                let receipt = found.session.receipt();
                assert!(receipt.nfe <= reference.session.counts().nfe);
                // The same drafts by their number.
                let again = run(script, options.clone(), &receipt.decoder).unwrap();
                assert_eq!(again.session.receipt(), receipt, "{} and {free_rows} rows", options.cache);
                if receipt.decoder == "freedave:d=1" {
                    assert_eq!(receipt.forwards, reference.session.counts().forwards);
                }
            }
        }
    }
}

#[test]
fn a_device_drafts_as_many_lanes_as_are_nearly_free() {
    let fitted = |mask, cache: &str, block: usize, free_rows: usize| {
        let mut options = options(mask, 0, 16, 64);
        (options.decoder, options.cache) = ("freedave".parse().unwrap(), cache.parse().unwrap());
        (options.block_length, options.facts.free_rows) = (Some(block), free_rows);
        let session = Session::new(options).unwrap();
        (session.receipt().decoder, session.decoder_rule())
    };
    for (mask, cache, block, free_rows, expected) in [
        (BLOCKS, "block", 4, 3, "freedave:d=1"),
        (BLOCKS, "block", 4, 15, "freedave:d=3"),
        (BLOCKS, "block", 4, 16, "freedave:d=4"),
        (BLOCKS, "block", 4, 31, "freedave:d=4"),
        (BLOCKS, "block", 4, 32, "freedave:d=4,eager=true"),
        (BLOCKS, "block", 4, 128, "freedave:d=8,eager=true"),
        (BLOCKS, "none", 4, 128, "freedave:d=1"),
        (FULL, "dual", 16, 16, "freedave:d=1"),
        (FULL, "dual", 16, 128, "freedave:d=8"),
        (FULL, "none", 16, 128, "freedave:d=1"),
        (FULL, "none", 16, 1280, "freedave:d=16"),
        // The number is part of what is decoded.
        (FULL, "dkv", 16, 1, "freedave:d=4"),
    ] {
        let (found, rule) = fitted(mask, cache, block, free_rows);
        assert_eq!(found, expected, "{cache}, {free_rows} rows");
        let is_static = rule.as_ref().is_some_and(|rule| rule.contains("which is static decoding"));
        assert_eq!((rule.is_some(), is_static), (cache != "dkv", expected == "freedave:d=1"), "{rule:?}");
    }
}

#[test]
fn drafts_reserve_the_rows_that_they_write_and_not_the_canvas() {
    let span = |mask, cache: &str| {
        let mut options = options(mask, 0, 100, 64);
        options.block_length = Some(16);
        (options.decoder, options.cache) = ("freedave:d=4,eager=false".parse().unwrap(), cache.parse().unwrap());
        let session = Session::new(options).unwrap();
        let needs = &session.needs()[0].limits;
        assert!(needs.drafts == 4 && needs.rows >= 4 * needs.draft_span, "{cache}");
        needs.draft_span
    };
    let spans = [
        ("dual", 16),
        ("dual:horizon=8", 24),
        ("dual:horizon=1000", 64),
        ("prefix", 64),
        ("prefix:horizon=4", 20),
        ("freecache", 65),
        ("none", 164),
        ("dllm", 164),
        ("dkv", 164),
    ];
    for (cache, expected) in spans {
        assert_eq!(span(FULL, cache), expected, "{cache}");
    }
    assert_eq!(span(BLOCKS, "block"), 2 * 16, "a finished block may wait to be stored");
}

/// What was refused is asked for again, by a forward that fills all slots: it runs on the canvas.
#[test]
fn a_refused_first_token_is_asked_of_the_whole_canvas_by_no_draft() {
    for (cache, mode) in
        ["dual", "prefix"].into_iter().flat_map(|cache| ["rolling", "reference"].map(|mode| (cache, mode)))
    {
        let mut options = options(FULL, 1, 9, 24);
        options.decoder = format!("freedave:d=3,mode={mode}").parse().unwrap();
        (options.block_length, options.cache, options.stop) = (Some(8), cache.parse().unwrap(), StopRule::Never);
        let mut script = Script::endless(3, 0.5, 3.0).denoiser(1);
        let mut session = Session::new(options).unwrap();
        let id = script.open(&session.needs()[0].limits).unwrap();
        let (mut refused, mut drafted) = (Vec::new(), 0);
        drive(&mut session, |_, requests| {
            let plan = &requests[0].plan;
            let whole = plan.query.len() == 33;
            assert!(!whole || plan.lanes == Lanes::Canvas, "{cache} {mode}");
            drafted += usize::from(plan.lanes != Lanes::Canvas);
            script.check(&[requests[0].step(id)]).unwrap();
            let mut out = vec![Predictions::default()];
            script.step(&[requests[0].step(id)], &mut out).unwrap();
            for position in plan.must.iter().filter(|position| !refused.contains(position)).collect::<Vec<_>>() {
                let index = out[0].index(0, position).unwrap();
                (out[0].tokens[index], out[0].confidence[index]) = (NO_TOKEN, f32::NEG_INFINITY);
                refused.push(position);
            }
            out
        });
        assert_eq!(refused, [9, 17, 25], "{cache} {mode}");
        assert!(drafted > 0);
    }
}

/// Step of static decoding on one lane's predictions: in the first block with masks the surest, then the leftmost.
fn static_step(session: &Session, answer: &Predictions, lane: usize) -> Option<(u32, TokenId)> {
    let width = answer.positions.len();
    let of_lane = (lane * width..(lane + 1) * width).filter(|&at| answer.tokens[at] != NO_TOKEN);
    let key = |at: usize| (session.layout().block_of(answer.positions.as_slice()[at % width]), -answer.confidence[at]);
    let best = of_lane.reduce(|best, at| if key(at) < key(best) { at } else { best })?;
    Some((answer.positions.as_slice()[best % width], answer.tokens[best]))
}

/// Positions that a draft fills in beyond another.
fn added(request: &ForwardInput, from: usize, to: usize) -> Vec<(u32, TokenId)> {
    let lanes: Vec<&[TokenId]> = request.tokens.chunks(request.plan.query.len()).collect();
    let pairs = request.plan.query.iter().zip(lanes[from].iter().zip(lanes[to]));
    let differing = pairs.filter(|(_, (before, after))| before != after);
    let filled = |(position, (before, after)): (u32, (&TokenId, &TokenId))| {
        assert_eq!(*before, MASK_ID, "a draft only fills in");
        (position, *after)
    };
    differing.map(filled).collect()
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// I5: each draft holds one token more than the one before; the first is a state of static decoding; the one that
    /// is accepted was reached by static steps, each worked out anew from the predictions in the draft before, and no
    /// larger one was.
    #[test]
    fn freedave_i5_drafts_are_nested_and_the_accepted_one_is_reached_by_static_steps(
        (family, d, rolling, eager) in (0usize..3, 2usize..12, any::<bool>(), any::<bool>()),
        (seed, easy, block, prompt) in (any::<u64>(), 0.0f64..1.0, 1usize..9, 1usize..7),
    ) {
        let (mask, shift) = [(FULL, 0), (FULL, 1), (BLOCKS, 0)][family];
        for cache in caches(mask, shift) {
            let mut options = options(mask, shift, prompt, 2 * block);
            let mode = if rolling { "rolling" } else { "reference" };
            let eager = eager && ["none", "block"].contains(&cache.name());
            options.decoder = format!("freedave:d={d},mode={mode},eager={eager}").parse().unwrap();
            (options.block_length, options.cache, options.stop) = (Some(block), cache, StopRule::Never);
            let mut script = Script::endless(seed, easy, 3.0).denoiser(shift);
            let mut session = Session::new(options).unwrap();
            session.tell_drafts();
            let id = script.open(&session.needs()[0].limits).unwrap();
            while session.wants() == Some(0) {
                let request = session.requests()[0].clone();
                let mut out = [Predictions::default()];
                script.step(&[request.step(id)], &mut out).unwrap();
                let Lanes::Drafts(lanes) = request.plan.lanes else {
                    session.feed(&out);
                    let told = session.events().any(|event| matches!(event, Event::Draft { .. } | Event::Target { .. }));
                    prop_assert!(!told, "there were no drafts");
                    continue;
                };
                let steps: Vec<_> = (0..lanes as usize).map(|lane| static_step(&session, &out[0], lane)).collect();
                let (mut reached, mut drafted) = (0, Vec::new());
                for lane in 1..lanes as usize {
                    let added = added(&request, lane - 1, lane);
                    prop_assert_eq!(added.len(), 1);
                    drafted.push((lane, added[0]));
                    prop_assert_eq!(request.ask.states[lane - 1] + 1, request.ask.states[lane], "its state is its own");
                    if reached + 1 == lane && steps[reached] == Some(added[0]) {
                        reached = lane;
                    }
                }
                session.feed(&out);
                let events: Vec<Event> = session.events().collect();
                let of_drafts = events.iter().filter_map(|event| match *event {
                    Event::Draft { draft, position, token, accepted, .. } if draft > 0 => {
                        Some(((draft, (position, token)), accepted))
                    }
                    _ => None,
                });
                let expected = drafted.iter().map(|&(lane, added)| ((lane, added), lane <= reached));
                prop_assert!(of_drafts.eq(expected), "{:?} of {:?}", events, drafted);
                let targets = events.iter().filter_map(|event| match *event {
                    Event::Target { draft, position, token, by_guide: false, .. } => Some((draft, (position, token))),
                    _ => None,
                });
                let expected = steps[..=reached].iter().enumerate().filter_map(|(lane, step)| Some((lane, (*step)?)));
                prop_assert!(targets.eq(expected), "{:?} of {:?}", events, steps);
                let told = events.last().cloned();
                prop_assert!(matches!(told, Some(Event::Step { accepted, .. }) if accepted == reached), "{:?}", told);
                let lane = &request.tokens[reached * request.plan.query.len()..][..request.plan.query.len()];
                for (position, &token) in request.plan.query.iter().zip(lane) {
                    prop_assert!(token == MASK_ID || session.canvas()[position as usize] == token);
                }
            }
        }
    }

    /// I16: drafts in one forward and drafts one by one, each on a copy of the network with nothing else in it, give
    /// the same commits.
    #[test]
    fn freedave_i16_drafts_one_by_one_are_drafts_at_once(
        (family, d, rolling) in (0usize..3, 2usize..9, any::<bool>()),
        (seed, easy, block) in (any::<u64>(), 0.0f64..1.0, 1usize..9),
    ) {
        let (mask, shift) = [(FULL, 0), (FULL, 1), (BLOCKS, 0)][family];
        for cache in caches(mask, shift) {
            let mut options = options(mask, shift, 5, 2 * block);
            (options.block_length, options.cache, options.temperature) = (Some(block), cache, 0.5);
            let decoder = format!("freedave:d={d},mode={}", if rolling { "rolling" } else { "reference" });
            let script = Script::endless(seed, easy, 3.0);
            let at_once = run(script, options.clone(), &decoder).unwrap();
            options.decoder = decoder.parse().unwrap();
            let mut session = Session::new(options).unwrap();
            let mut network = script.denoiser(shift);
            let id = network.open(&session.needs()[0].limits).unwrap();
            let one_by_one = drive(&mut session, |_, requests| {
                let joined = one_by_one(&network, id, &requests[0]);
                // The overlays that the next forward may keep.
                let mut out = vec![Predictions::default()];
                network.step(&[requests[0].step(id)], &mut out).unwrap();
                joined.map_or(out, |joined| vec![joined])
            });
            prop_assert_eq!(&one_by_one.events, &at_once.run.events);
        }
    }
}

/// The answers to drafts, each run alone; none if the request has no drafts.
fn one_by_one(network: &Scripted, id: SequenceId, request: &ForwardInput) -> Option<Predictions> {
    let Lanes::Drafts(lanes) = request.plan.lanes else { return None };
    let mut joined = Predictions { lanes: lanes as usize, ..Predictions::default() };
    let width = request.plan.query.len();
    for lane in 0..lanes as usize {
        let plan = StepPlan { lanes: Lanes::Drafts(1), ..request.plan.clone() };
        let ask = HeadAsk { states: vec![request.ask.states[lane]], ..request.ask.clone() };
        let tokens = &request.tokens[lane * width..(lane + 1) * width];
        let mut out = [Predictions::default()];
        let step = SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None };
        network.clone().step(&[step], &mut out).unwrap();
        let [out] = out;
        joined.positions = out.positions;
        joined.tokens.extend(out.tokens);
        joined.confidence.extend(out.confidence);
        joined.cost += out.cost;
    }
    Some(joined)
}

/// I12, one by one what random cases may or may not meet: every remainder of the prompt, lengths that are no multiple
/// of the block, one block, blocks of one and of two, one block for all, and more drafts than masks, block or window.
#[test]
#[cfg_attr(miri, ignore = "takes hours: it is about the full grid of shapes")]
fn freedave_i12_awkward_shapes() {
    let mut shapes = 0;
    for (mask, shift) in [(FULL, 0), (FULL, 1), (BLOCKS, 0)] {
        for block in [1, 2, 3, 5] {
            for prompt in shift as usize..shift as usize + block {
                for gen_length in [1, block - 1, block, block + 1, 2 * block, 3 * block] {
                    let fits = gen_length > 0 && (mask == BLOCKS || gen_length % block == 0);
                    for d in [1, 2, block, block + 1, 4 * block + 3].into_iter().filter(|_| fits) {
                        for cache in caches(mask, shift) {
                            let mut options = options(mask, shift, prompt, gen_length);
                            (options.block_length, options.cache, options.stop) = (Some(block), cache, StopRule::Never);
                            let script = Script::endless((prompt * 31 + gen_length) as u64, 0.7, 3.0);
                            let reference = run(script, options.clone(), "static").unwrap();
                            for mode in ["rolling", "reference"] {
                                let found = run(script, options.clone(), &format!("freedave:d={d},mode={mode}"));
                                let what =
                                    format!("{mask} shift {shift} prompt {prompt} length {gen_length} {mode} {d}");
                                assert_eq!(found.unwrap().commits, reference.commits, "{what} {}", options.cache);
                                shapes += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(shapes > 2000, "{shapes} shapes");
}

/// specs/caches.md#X8: with one draft FreeDave is the host that it runs over, in as many forwards; with more it gives
/// the host's tokens.
#[test]
fn caches_x8_one_draft_is_the_host_and_more_write_its_tokens() {
    for (mask, shift) in [(FULL, 0), (FULL, 1), (BLOCKS, 0)] {
        for cache in caches(mask, shift) {
            for seed in 0..property::count(20).into() {
                let mut options = options(mask, shift, 5, 16);
                (options.block_length, options.cache, options.stop) = (Some(4), cache.clone(), StopRule::Never);
                let script = Script::endless(seed, 0.5, 3.0);
                let host = run(script, options.clone(), "static").unwrap();
                let one = run(script, options.clone(), "freedave:d=1,mode=reference").unwrap();
                assert_eq!(one.commits, host.commits, "{cache}");
                assert_eq!(one.session.counts().nfe, host.session.counts().nfe, "{cache}");
                for decoder in ["freedave:d=4,mode=reference", "freedave:d=9"] {
                    assert_eq!(
                        run(script, options.clone(), decoder).unwrap().commits,
                        host.commits,
                        "{decoder} {cache}"
                    );
                }
            }
        }
    }
}

#[test]
fn freedave_i14_seeds_differ() {
    let mut options = options(BLOCKS, 0, 4, 16);
    (options.temperature, options.seed) = (1.0, 1);
    let script = Script::endless(2, 0.9, 3.0);
    let first = run(script, options.clone(), "freedave").unwrap();
    assert_eq!(first.run, run(script, options.clone(), "freedave").unwrap().run);
    options.seed = 2;
    assert_ne!(first.commits, run(script, options, "freedave").unwrap().commits);
}

#[test]
fn freedave_i15_drafts_that_lack_tokens_promise_nothing_over_a_threshold() {
    let claim = |decoder: &str, cache: &str| {
        demask_decode::legality::exactness(&decoder.parse().unwrap(), &cache.parse().unwrap())
    };
    let lossless = |against: &str| Exactness::Lossless { against: against.into() };
    assert_eq!(claim("freedave", "none"), lossless("static, cache none"));
    assert_eq!(claim("freedave:mode=reference,rule=subset", "block"), lossless("static, cache block"));
    assert_eq!(claim("freedave:tau=0.5,strict", "block"), lossless("threshold:tau=0.5,strict=true, cache block"));
    assert_eq!(claim("freedave:tau=0.5,rule=subset", "none"), Exactness::Approximate);
    let mut options = options(BLOCKS, 0, 4, 8);
    options.decoder = "freedave:quota".parse().unwrap();
    assert_eq!(
        Session::new(options).unwrap_err().to_string(),
        "decoder freedave has quota without tau, expected it with a threshold only: add tau or omit it"
    );
}

#[test]
fn the_receipt_tells_what_was_accepted() {
    let script = Script::endless(4, 0.8, 5.0);
    let found = run(script, options(BLOCKS, 0, 4, 24), "freedave:d=4").unwrap();
    let receipt = found.session.receipt();
    let accepted = |event: &Event| match *event {
        Event::Step { drafts, accepted, .. } if drafts > 0 => Some(accepted),
        _ => None,
    };
    let told: Vec<usize> = found.run.events.iter().filter_map(accepted).collect();
    let counted: usize = receipt.acceptance.iter().sum();
    assert_eq!(counted, told.len());
    assert!(receipt.acceptance.len() > 1 && receipt.acceptance.len() <= 4, "{:?}", receipt.acceptance);
    for (accepted, &count) in receipt.acceptance.iter().enumerate() {
        assert_eq!(told.iter().filter(|&&told| told == accepted).count(), count);
    }
    let rounds = receipt.rounds.as_ref().unwrap();
    assert_eq!((rounds.verify, rounds.verify + rounds.cold), (counted, receipt.forwards));
    for (place, &count) in rounds.accepted.iter().enumerate() {
        assert_eq!(told.iter().filter(|&&told| told > place).count(), count, "place {place}");
    }
    let rejects =
        |event: &&Event| matches!(event, Event::Step { drafts, rejected, .. } if *drafts > 0 && *rejected > 0);
    let refused = found.run.events.iter().filter(rejects).count();
    let lost = |place: usize| rounds.drafted[place] - rounds.accepted.get(place).copied().unwrap_or(0);
    assert!(refused > 0 && (0..rounds.drafted.len()).map(lost).sum::<usize>() >= refused);
    assert_eq!(receipt.exactness.against(), Some("static, cache block"));
    // One token is added from draft to draft, beginning with the canvas itself.
    for event in &found.run.events {
        let Event::Step { drafts, accepted, rejected, .. } = *event else { continue };
        assert_eq!(accepted + rejected, drafts.saturating_sub(1));
    }
    let receipt = run(script, options(BLOCKS, 0, 4, 8), "static").unwrap().session.receipt();
    assert!(receipt.acceptance.is_empty() && receipt.rounds.is_none());
}

/// What nothing can claim over a cache with a history.
#[test]
fn drafts_over_a_cache_with_a_history_are_approximate() {
    let script = Script::endless(6, 0.7, 5.0);
    let (mut accepted, mut others) = (0, 0);
    for cache in OF_HISTORY {
        for shift in [0, 1] {
            let mut options = options(FULL, shift, 6, 24);
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(8));
            let reference = run(script, options.clone(), "static").unwrap();
            for decoder in ["freedave", "freedave:mode=reference"] {
                let found = run(script, options.clone(), decoder).unwrap();
                let receipt = found.session.receipt();
                assert_eq!(receipt.exactness, Exactness::Approximate, "{cache}");
                assert_eq!(found.commits.len(), 24, "everything is decoded");
                accepted +=
                    receipt.acceptance.iter().enumerate().map(|(accepted, count)| accepted * count).sum::<usize>();
                others += usize::from(found.commits != reference.commits);
            }
        }
    }
    assert!(accepted > 200 && others > 0, "{accepted} drafts were accepted, {others} runs wrote other tokens");
    for (cache, memory) in [("freecache:block=8", "lossless"), ("freecache:block=3", "approximate")] {
        let mut options = options(FULL, 0, 6, 24);
        (options.cache, options.block_length) = (cache.parse().unwrap(), Some(8));
        assert_eq!(run(script, options, "freedave").unwrap().session.receipt().exactness.name(), memory, "{cache}");
    }
}

#[test]
fn drafts_run_in_lanes_of_their_own() {
    let mut options = options(BLOCKS, 0, 4, 8);
    options.decoder = "freedave:d=3,eager".parse().unwrap();
    let mut session = Session::new(options).unwrap();
    let text: Vec<TokenId> = (0..12).collect();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        assert_eq!(requests[0].tokens.len(), requests[0].plan.lanes.count() * requests[0].plan.query.len());
        assert!(requests[0].plan.lanes != Lanes::Drafts(0));
        plans.push(requests[0].plan.to_string());
        requests.iter().map(|request| recite(request, &text)).collect()
    });
    assert_eq!(
        plans,
        [
            "live 0..12 visible 12 block-causal:4 canvas predict 4..12",
            "live 4..12 visible 12 block-causal:4 drafts 3 predict 5..12",
            "live 4..12 visible 12 block-causal:4 drafts 3 predict 8..12",
            "keep 4..8 of lane 2; live 8..12 visible 12 block-causal:4 canvas predict 11",
        ]
    );
}

/// A block's first forward over `prefix:horizon` sees more than the next one, so a step that takes nothing must be run:
/// what the canvas is predicted as before and behind it differs.
#[test]
fn idle_steps_are_run_where_the_first_forward_of_a_block_sees_more() {
    let mut idle = 0;
    for seed in 0..property::count(40).into() {
        let mut options = options(FULL, 0, 6, 12);
        (options.block_length, options.schedule, options.seed) = (Some(3), Schedule::DreamTotal, seed);
        (options.cache, options.stop) = ("prefix:horizon=0".parse().unwrap(), StopRule::Never);
        options.steps = Some(32);
        let script = Script::endless(seed, 0.0, 3.0);
        let reference = run(script, options.clone(), "static").unwrap();
        let found = run(script, options, "freedave").unwrap();
        assert_eq!(found.commits, reference.commits, "seed {seed}");
        assert!(found.session.counts().nfe <= reference.session.counts().nfe);
        idle += usize::from(reference.run.steps.iter().any(Vec::is_empty));
    }
    assert!(idle > 0, "no case has a step that takes nothing");
}
