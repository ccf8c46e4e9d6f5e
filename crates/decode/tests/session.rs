//! Promises of a session, on scripted networks that check every plan.

use crate::common::{self, EOS, MASK_ID, VOCAB, drive, drive_on, facts, options, predict, run};
use demask_decode::{
    CanvasSpec, Event, Finish, Remasking, Schedule, Session, SessionOptions, StopRule, legality::exactness,
};
use demask_step::{ConfidenceOf, Job, Mask, NO_TOKEN, Network, Predictions, TokenId, random};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

const FULL: Mask = Mask::Full;
const BLOCKS: Mask = Mask::blocks(4);

/// A session fed with the tokens of a text; `text[p]` is the prediction of position `p`, the leftmost the surest.
fn run_on_text(options: SessionOptions, text: &[TokenId]) -> (common::Run, Session) {
    let mut session = Session::new(options).unwrap();
    let run = drive(&mut session, |_, requests| {
        let each = |position: u32| (text.get(position as usize).copied().unwrap_or(1), 0.9 - position as f32 / 1000.0);
        requests.iter().map(|request| predict(request, each)).collect()
    });
    (run, session)
}

#[test]
fn the_block_cache_gives_the_tokens_of_no_cache() {
    for (prompt, gen_length, block) in [(0, 8, 4), (1, 5, 4), (7, 9, 4), (8, 8, 1), (5, 16, 8), (4, 3, 16)] {
        for decoder in ["static", "threshold:tau=0.5", "threshold:tau=0.4,strict,quota", "entropy_bounded:eb=2"] {
            for (temperature, cfg_scale) in [(0.0, 0.0), (0.8, 0.0), (0.0, 1.5)] {
                let mut options = options(BLOCKS, 0, prompt, gen_length);
                options.block_length = Some(block);
                options.decoder = decoder.parse().unwrap();
                (options.temperature, options.cfg_scale) = (temperature, cfg_scale);
                options.cache = "none".parse().unwrap();
                let reference = run(options.clone());
                options.cache = "block".parse().unwrap();
                let cached = run(options);
                assert_eq!(reference.output, cached.output, "{decoder} prompt {prompt} block {block}");
                let taken =
                    |run: common::Run| run.steps.into_iter().filter(|step| !step.is_empty()).collect::<Vec<_>>();
                assert_eq!(taken(reference), taken(cached));
            }
        }
    }
}

#[test]
fn the_causal_cache_gives_the_tokens_of_no_cache() {
    for temperature in [0.0, 1.0] {
        let mut options = options(Mask::Causal, 1, 3, 12);
        options.temperature = temperature;
        options.cache = "none".parse().unwrap();
        let reference = run(options.clone());
        options.cache = "causal".parse().unwrap();
        assert_eq!(reference.steps, run(options).steps);
    }
}

#[test]
fn temperature_is_reproducible_by_seed() {
    for remasking in Remasking::ALL {
        let mut options = options(FULL, 1, 4, 16);
        (options.temperature, options.alg_temp, options.remasking, options.seed) = (1.0, 0.3, remasking, 3);
        let first = run(options.clone());
        assert_eq!(first, run(options.clone()), "{remasking}");
        options.seed = 4;
        assert_ne!(first.output, run(options).output, "{remasking}");
    }
}

#[test]
fn infill_keeps_fixed_tokens() {
    let tokens = vec![1, 2, MASK_ID, 4, MASK_ID, MASK_ID, EOS, 8, MASK_ID, 10];
    let mut options = SessionOptions::new(facts(FULL, 0), CanvasSpec::Infill { tokens: tokens.clone() });
    options.end_ids = vec![EOS];
    options.suppress = vec![EOS];
    let output = run(options).output;
    assert_eq!(output.tokens, output.canvas[2..], "given end tokens end nothing");
    for (given, found) in tokens.into_iter().zip(output.canvas) {
        assert!(given == found || given == MASK_ID && found != MASK_ID);
    }
}

/// RND1's canvas ends with a token that is fixed (specs/families.md#6.7).
#[test]
fn what_stands_behind_the_response_is_seen_and_never_answered() {
    for (decoder, cache) in [("static", "none"), ("static", "dual"), ("threshold", "prefix"), ("freedave", "none")] {
        let mut options = options(FULL, 1, 5, 12);
        (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
        (options.tail, options.stop, options.end_ids) = (vec![21, EOS], StopRule::Never, Vec::new());
        options.block_length = Some(4);
        let session = Session::new(options.clone()).unwrap();
        assert_eq!((session.canvas().len(), session.masks()), (19, 12));
        let first = session.requests()[0].plan.query.clone();
        assert!(first.as_slice().ends_with(&[16, 17, 18]), "all rows see the tail: {first:?}");
        let output = run(options).output;
        assert_eq!((output.tokens.len(), output.finish), (12, Finish::Length), "{decoder} over {cache}");
        assert_eq!(output.canvas[17..], [21, EOS]);
    }
    let tokens = vec![1, MASK_ID, MASK_ID, 4, MASK_ID, 6];
    let mut options = SessionOptions::new(facts(FULL, 0), CanvasSpec::Infill { tokens });
    options.tail = vec![21];
    let output = run(options).output;
    assert_eq!((output.tokens.len(), output.canvas.len(), output.canvas[6]), (5, 7, 21));
}

#[test]
fn asks_name_what_the_head_must_know() {
    let mut options = options(FULL, 0, 2, 4);
    (options.suppress, options.zero_confidence) = (vec![EOS, 3], vec![4]);
    (options.temperature, options.top_p, options.top_k, options.seed) = (0.5, 0.9, 7, 11);
    options.remasking = Remasking::Entropy;
    let session = Session::new(options.clone()).unwrap();
    let ask = &session.requests()[0].ask;
    let wanted = &ask.wanted;
    assert_eq!(
        (&wanted.banned[..], &wanted.zero_confidence[..], ask.only_where),
        (&[3, EOS, MASK_ID][..], &[4][..], Some(MASK_ID))
    );
    assert_eq!((wanted.entropy, wanted.margin, &ask.states[..]), (true, false, &[2][..]));
    assert_eq!(
        (wanted.sampling.temperature, wanted.sampling.top_p, wanted.sampling.top_k, wanted.sampling.seed),
        (0.5, 0.9, 7, 11)
    );
    options.remasking = Remasking::TopkMargin;
    options.decoder = "entropy_bounded".parse().unwrap();
    let session = Session::new(options).unwrap();
    let wanted = &session.requests()[0].ask.wanted;
    assert!(wanted.margin && wanted.entropy);
}

/// At temperature 0.1 the tempered probability of nearly every token is 1: a number to compare with is one of the model's own.
#[test]
fn thresholds_read_untempered_confidences_in_every_family() {
    let read = |decoder: &str, mask: Mask| {
        let mut options = options(mask, 0, 2, 4);
        // As Dream's and SDAR's programs have it.
        (options.confidence, options.temperature) = (ConfidenceOf::Drawn, 0.1);
        options.decoder = decoder.parse().unwrap();
        Session::new(options).map(|session| session.requests()[0].ask.wanted.sampling.confidence)
    };
    for (decoder, mask) in [
        ("threshold", FULL),
        ("threshold:strict,quota", BLOCKS),
        ("factor", FULL),
        ("entropy_bounded", BLOCKS),
        ("entropy_bounded:rule=rnd1", FULL),
        ("slowfast", FULL),
        ("edit", BLOCKS),
        ("freedave:tau=0.9", FULL),
    ] {
        let with = |word: &str| format!("{decoder}{}confidence={word}", if decoder.contains(':') { "," } else { ":" });
        assert_eq!(read(decoder, mask), Ok(ConfidenceOf::Raw), "{decoder}");
        assert_eq!(read(&with("clean"), mask), Ok(ConfidenceOf::Raw), "{decoder}");
        assert_eq!(read(&with("tempered"), mask), Ok(ConfidenceOf::Drawn), "{decoder}");
    }
    // What only ranks does it as the family's program does, and so does what must give the same tokens.
    for decoder in ["static", "p2", "freedave"] {
        assert_eq!(read(decoder, FULL), Ok(ConfidenceOf::Drawn), "{decoder}");
    }
    let refusal = read("freedave:confidence=tempered", FULL).unwrap_err().to_string();
    assert!(refusal.contains("freedave has confidence without tau"), "{refusal}");
}

/// Lossless means against the threshold that reads the same.
#[test]
fn freedave_with_a_threshold_promises_the_tokens_of_that_reading() {
    for (decoder, against) in [
        ("freedave:tau=0.8", "threshold:tau=0.8, cache none"),
        ("freedave:tau=0.8,confidence=tempered", "threshold:tau=0.8,confidence=tempered, cache none"),
    ] {
        let claim = exactness(&decoder.parse().unwrap(), &"none".parse().unwrap());
        assert_eq!(claim.against(), Some(against));
        for temperature in [0.1, 1.0] {
            let of = |decoder: &str| {
                let mut options = options(FULL, 1, 3, 16);
                (options.confidence, options.temperature, options.seed) = (ConfidenceOf::Drawn, temperature, 5);
                options.decoder = decoder.parse().unwrap();
                run(options).output
            };
            let other = against.strip_suffix(", cache none").unwrap();
            assert_eq!(of(decoder), of(other), "{decoder} at {temperature}");
        }
    }
}

#[test]
fn the_prefix_rule_stops_at_the_first_settled_end() {
    let mut options = options(FULL, 0, 2, 8);
    options.end_ids = vec![EOS];
    let text = [0, 1, 5, 6, EOS, 7, 8, 9, 10, 11];
    let (run, session) = run_on_text(options.clone(), &text);
    assert_eq!((run.output.tokens, run.output.finish), (vec![5, 6, EOS], Finish::Eos));
    assert_eq!((session.counts().nfe, session.settled(), session.counts().commits), (3, 3, 3));

    options.stop = StopRule::Never;
    let (run, session) = run_on_text(options.clone(), &text);
    assert_eq!(
        (run.output.tokens, run.output.finish),
        (vec![5, 6, EOS], Finish::Eos),
        "the answer ends there all the same"
    );
    assert_eq!(session.counts().nfe, 8);
    options.end_ids.clear();
    let (run, _) = run_on_text(options, &text);
    assert_eq!((run.output.tokens, run.output.finish), (text[2..].to_vec(), Finish::Length));
}

#[test]
fn the_block_rule_stops_when_a_finished_block_is_stored() {
    let mut options = options(BLOCKS, 0, 2, 10);
    (options.end_ids, options.stop) = (vec![EOS], StopRule::Block);
    let text = [0, 1, 5, 6, 7, EOS, 8, 9, 10, 11, 12, 13];
    let (run, session) = run_on_text(options.clone(), &text);
    assert_eq!((run.output.tokens, run.output.finish), (vec![5, 6, 7, EOS], Finish::Eos));
    assert_eq!(run.output.canvas[8..], [MASK_ID; 4]);
    assert_eq!(session.counts().nfe, 2 + 1 + 4 + 1, "the prompt has no whole block, each block is stored");
    options.cache = "none".parse().unwrap();
    assert_eq!(run_on_text(options, &text).1.counts().nfe, 2 + 4);
}

#[test]
fn the_whole_block_rule_fills_the_rest() {
    let mut options = options(FULL, 0, 2, 9);
    options.block_length = Some(3);
    (options.end_ids, options.stop) = (vec![EOS], StopRule::WholeBlock);
    let text = [0, 1, 5, EOS, 6, EOS, EOS, EOS, 7, 8, 9];
    let (run, session) = run_on_text(options, &text);
    assert_eq!(run.output.canvas, [0, 1, 5, EOS, 6, EOS, EOS, EOS, EOS, EOS, EOS]);
    assert_eq!((run.output.tokens, run.output.finish), (vec![5, EOS], Finish::Eos));
    assert_eq!(run.steps.len(), 6);
    assert_eq!(run.steps[5].len(), 4, "the last prediction and three fills");
    assert!(matches!(run.events.last(), Some(Event::Step { step: 5, nfe: 6, .. })), "the step comes after its fills");
    assert_eq!(session.counts().commits, 9);
}

#[test]
fn a_stop_text_ends_the_response() {
    let mut options = options(FULL, 0, 2, 6);
    options.end_ids = vec![EOS];
    let mut session = Session::new(options).unwrap();
    for _ in 0..4 {
        let answer = predict(&session.requests()[0], |position| (position, 0.9 - position as f32 / 100.0));
        session.feed(&[answer]);
    }
    assert_eq!(session.settled(), 4);
    session.finish_at(3);
    assert_eq!((session.wants(), session.requests().len(), session.settled()), (None, 0, 3));
    let output = session.output();
    assert_eq!((output.tokens, output.finish), (vec![2, 3, 4], Finish::Stop));
    session.feed(&[]);
    assert_eq!(session.counts().nfe, 4, "nothing is fed after the end");
}

#[test]
fn next_is_the_same_until_it_is_fed() {
    let session = Session::new(options(BLOCKS, 0, 6, 6)).unwrap();
    for _ in 0..3 {
        assert_eq!(session.wants(), Some(0));
        assert_eq!(session.requests()[0].plan.to_string(), "live 0..8 visible 8 block-causal:4 canvas predict 6..8");
    }
}

#[test]
fn commits_come_in_the_total_order() {
    let mut options = options(FULL, 0, 1, 6);
    options.decoder = "static:steps=1".parse().unwrap();
    let mut session = Session::new(options).unwrap();
    let confidence = [0.0, 0.5, 0.9, 0.5, 0.9, f32::NAN, 0.7];
    let run = drive(&mut session, |_, requests| {
        vec![predict(&requests[0], |position| (position, confidence[position as usize]))]
    });
    let order: Vec<u32> = run.steps[0].iter().map(|commit| commit.0).collect();
    assert_eq!(order, [2, 4, 6, 1, 3, 5]);
}

#[test]
fn overhang_of_the_last_block_is_cut_off() {
    let mut options = options(BLOCKS, 0, 3, 3);
    options.stop = StopRule::Never;
    let (run, session) = run_on_text(options, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((run.output.tokens, run.output.finish), (vec![3, 4, 5], Finish::Length));
    assert_eq!(run.output.canvas, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(session.settled(), 3);
}

#[test]
fn a_warm_step_reuses_its_buffers() {
    let mut session = Session::new(options(FULL, 0, 10, 20)).unwrap();
    let buffers = |session: &Session| {
        let request = &session.requests()[0];
        (request.tokens.as_ptr(), request.plan.query.as_slice().as_ptr(), request.plan.predict.as_slice().as_ptr())
    };
    let first = buffers(&session);
    for _ in 0..19 {
        assert_eq!(buffers(&session), first);
        let answer = predict(&session.requests()[0], |_| (1, 0.5));
        session.feed(&[answer]);
    }
}

#[test]
fn the_receipt_tells_how_it_was_made() {
    let mut options = options(BLOCKS, 0, 4, 8);
    options.decoder = "threshold:tau=0.5".parse().unwrap();
    let (_, session) = run_on_text(options, &[]);
    let receipt = session.receipt();
    assert_eq!((&receipt.decoder[..], &receipt.cache[..]), ("threshold:tau=0.5", "block"));
    assert_eq!(receipt.exactness, demask_decode::Exactness::Approximate);
    // The published program stores the prompt and both blocks by forwards of their own.
    assert_eq!((receipt.nfe, receipt.forwards, receipt.generated_tokens), (5, 2, 8));
    assert_eq!((receipt.tokens_per_nfe, receipt.rows, receipt.block_length), (1.6, 16, 4));
}

#[test]
fn a_run_that_hits_the_cap_is_a_fault_and_no_complete_answer() {
    for mask in [FULL, BLOCKS, Mask::Causal] {
        let mut session = Session::new(options(mask, u32::from(mask == Mask::Causal), 2, 6)).unwrap();
        let run = drive(&mut session, |_, requests| vec![Predictions::default(); requests.len()]);
        assert!(run.output.tokens.is_empty());
        let told = session.fault().unwrap();
        assert!(
            told.contains("forwards ran, the most that this canvas may take, and ") && told.contains(" masks are left")
        );
    }
}

/// Runs with what may vary in a request, all of it legal.
fn legal_options() -> impl Strategy<Value = SessionOptions> {
    let shape = (0usize..3, 0usize..10, 1usize..20, 1usize..9, 0usize..3);
    let methods = (0usize..8, 0usize..8, any::<bool>(), any::<bool>(), any::<u64>());
    let numbers = (
        prop_oneof![Just(0.0f32), Just(1.0)],
        prop_oneof![Just(0.0f32), Just(0.5)],
        prop_oneof![Just(0.0f32), Just(1.5)],
    );
    let stop =
        prop_oneof![Just(StopRule::Never), Just(StopRule::Prefix), Just(StopRule::Block), Just(StopRule::WholeBlock)];
    (shape, methods, numbers, stop).prop_map(|(shape, methods, (temperature, alg_temp, cfg_scale), stop)| {
        let (family, prompt, gen_length, block, per_block) = shape;
        let (decoder, remasking, cached, dream, seed) = methods;
        let mask = [FULL, BLOCKS, Mask::Causal][family];
        let prompt = if mask == Mask::Causal { prompt.max(1) } else { prompt };
        let mut options = options(mask, u32::from(mask == Mask::Causal || cached && mask == FULL), prompt, gen_length);
        (options.temperature, options.alg_temp, options.stop, options.seed) = (temperature, alg_temp, stop, seed);
        options.end_ids = vec![EOS, 3];
        if mask == Mask::Causal {
            options.cache = if cached { "causal" } else { "none" }.parse().unwrap();
            return options;
        }
        options.cfg_scale = cfg_scale;
        options.remasking = Remasking::ALL[remasking];
        options.schedule = if dream { Schedule::Dream } else { Schedule::Even };
        let decoder = if options.remasking == Remasking::Origin { 0 } else { decoder };
        let decoders = [
            "static",
            "threshold:tau=0.5",
            "threshold:tau=0.3,strict,quota",
            "entropy_bounded:eb=2",
            "freedave",
            "freedave:d=9,tau=0.4,rule=subset",
            "freedave:d=3,mode=reference",
            "freedave:d=6,mode=reference,eager",
        ];
        options.decoder = decoders[decoder].parse().unwrap();
        if mask == BLOCKS {
            options.cache = if cached { "block" } else { "none" }.parse().unwrap();
            options.block_length = Some(block);
            let blocks = (prompt + gen_length).div_ceil(block) - prompt / block;
            options.steps = (per_block > 0).then_some(per_block * blocks);
        } else if gen_length % block == 0 {
            options.block_length = Some(block);
            options.steps = (per_block > 0).then_some(per_block * (gen_length / block));
        }
        options
    })
}

proptest! {
    #![proptest_config(property::cases(400))]

    #[test]
    fn every_legal_run_ends_complete(options in legal_options()) {
        let mask_id = options.facts.mask_id;
        let start = Session::new(options.clone()).unwrap();
        let given = start.canvas().iter().map(|&token| token != MASK_ID && token != NO_TOKEN).collect::<Vec<_>>();
        let prompt = start.canvas().to_vec();
        let mut script = Scripted::new(options.seed, VOCAB, options.facts.shift);
        let mut session = start;
        let mut committed = vec![false; prompt.len()];
        let run = drive_on(&mut script, &mut session);
        for &(position, token) in run.steps.iter().flatten() {
            prop_assert!(!given[position as usize], "a given token was replaced");
            prop_assert!(!committed[position as usize], "{} was committed twice", position);
            prop_assert!(Some(token) != options.facts.mask_id && (token as usize) < VOCAB);
            committed[position as usize] = true;
        }
        let response = session.layout().response();
        prop_assert_eq!(&run.output.canvas[..response], &prompt[..response]);
        prop_assert!(run.output.tokens.iter().all(|&token| token != NO_TOKEN && Some(token) != mask_id));
        let gen_length = session.layout().gen_length();
        if run.output.finish == Finish::Eos {
            prop_assert!(run.output.tokens.last().is_some_and(|token| options.end_ids.contains(token)));
        } else {
            prop_assert_eq!(run.output.tokens.len(), gen_length);
        }
        if options.stop == StopRule::Never {
            prop_assert!(committed.iter().zip(&given).all(|(committed, given)| committed != given), "all masks filled");
        }
        prop_assert_eq!(session.counts().commits, run.steps.iter().map(Vec::len).sum::<usize>());
    }

    #[test]
    fn settled_tokens_never_change(options in legal_options()) {
        let mut script = Scripted::new(options.seed ^ 1, VOCAB, options.facts.shift);
        let mut session = Session::new(options).unwrap();
        let ids: Vec<_> = session.needs().iter().map(|needs| script.open(&needs.limits).unwrap()).collect();
        let mut settled = session.output().tokens;
        while session.wants() == Some(0) {
            let requests = session.requests().iter();
            let batch: Vec<_> = requests.map(|request| request.step(ids[request.sequence])).collect();
            let mut out = vec![Predictions::default(); batch.len()];
            script.step(&batch, &mut out).unwrap();
            session.feed(&out);
            let now = session.output().tokens;
            prop_assert_eq!(now.len(), session.settled());
            prop_assert!(now.starts_with(&settled));
            settled = now;
        }
    }

    #[test]
    fn hostile_predictions_end_without_a_panic(options in legal_options(), seed in any::<u64>()) {
        let mask_id = options.facts.mask_id;
        let mut session = Session::new(options).unwrap();
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = random::mix(state);
            state % sides
        };
        let run = drive(&mut session, |_, requests| {
            let mut answers: Vec<Predictions> = requests.iter().map(|request| predict(request, |_| {
                let token = [NO_TOKEN, MASK_ID, EOS, 1, 2][roll(5) as usize];
                let confidence = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.5, 2.0][roll(6) as usize];
                (token, confidence)
            })).collect();
            match roll(6) {
                0 => answers.clear(),
                1 => answers[0].tokens.truncate(1),
                2 => { answers[0].confidence.clear(); answers[0].margin.clear(); answers[0].entropy.clear(); }
                3 => answers[0].positions = (0..3).into(),
                _ => {}
            }
            answers
        });
        prop_assert!(run.output.tokens.iter().all(|&token| token != NO_TOKEN && Some(token) != mask_id));
    }
}
