//! The invariants of FreeDave (specification freedave, section 6.1; the tests carry their numbers), over every cache
//! that runs drafts. Isolation of drafts and what is kept of them (I7, I8) are tested on networks, in
//! `crates/demask/tests`.

mod common;

use common::{EOS, MASK_ID, VOCAB, drive, drive_on, options};
use demask_decode::{
    CacheSpec, CanvasSpec, Event, Exactness, Next, Remasking, Request, Schedule, Session, SessionOptions, StopRule,
    cache::CACHES,
};
use demask_step::{Denoiser, Lanes, Mask, NO_TOKEN, Predictions, TokenId};
use demask_testkit::scripted::Scripted;
use proptest::{collection::vec, prelude::*};

const FULL: Mask = Mask::Full;
const BLOCKS: Mask = Mask::BlockCausal { block: 4 };

/// The model of a run.
#[derive(Debug, Clone, Copy)]
struct Script {
    seed: u64,
    easy: f64,
    spread: f64,
}

/// What there is to compare of a run.
#[derive(Debug)]
struct Found {
    /// Position, token and confidence in the order of the commits.
    commits: Vec<(u32, TokenId, f32)>,
    run: common::Run,
    session: Session,
}

fn run(script: Script, mut options: SessionOptions, decoder: &str) -> Result<Found, String> {
    options.decoder = decoder.parse().unwrap();
    let mut model = Scripted::new(script.seed, VOCAB, options.facts.shift).with_spread(script.spread);
    model = model.with_easy(script.easy);
    let mut session = Session::new(options).map_err(|error| error.to_string())?;
    let run = drive_on(&mut model, &mut session);
    Ok(Found { commits: run.events.iter().filter_map(commit).collect(), run, session })
}

fn commit(event: &Event) -> Option<(u32, TokenId, f32)> {
    match *event {
        Event::Commit { position, token, confidence, .. } => Some((position, token, confidence)),
        Event::Step { .. } => None,
    }
}

/// Every cache, with its defaults, over which drafts are lossless on these models.
fn caches(mask: Mask, shift: u32) -> Vec<CacheSpec> {
    let lossless = |cache: &CacheSpec| {
        let mut options = options(mask, shift, 4, 8);
        (options.decoder, options.cache) = ("freedave".parse().unwrap(), cache.clone());
        Session::new(options).is_ok_and(|session| matches!(session.exactness(), Exactness::Lossless { .. }))
    };
    CACHES.iter().map(CacheSpec::of).filter(lossless).collect()
}

/// Caches whose slots depend on the steps that were run, with the parameters that matter.
const OF_HISTORY: &[&str] = &[
    "dkv:refresh=3",
    "dkv:refresh=4,shift=un_right",
    "dkv:variant=prefill",
    "dkv:variant=pd,refresh=3",
    "dllm:prompt=5,response=3",
    "dllm:prompt=4,response=3,rho=0.5,first_layer=same",
    "dllm:prompt=3,response=2,rho=0,boundary=before",
    "dllm:response=4,probe=k,rho=0.4",
    "dllm:prompt=2,response=5,probe=random,rho=0.3,cfg=3",
    "freecache:block=2,freeze=reference",
    "freecache:block=3,freeze=reference,lookahead=2,lag=1",
    "freecache:block=3",
    "freecache:lookahead=2",
];

/// The answers to all lanes of a request for a model that knows the text, the leftmost the surest.
fn recite(request: &Request, text: &[TokenId]) -> Predictions {
    let plan = &request.plan;
    let mut out = Predictions { lanes: plan.lanes.count(), ..Predictions::default() };
    out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    for lane in 0..out.lanes {
        for position in out.positions.clone().iter() {
            let held = plan.live.rank(position).map(|rank| request.tokens[lane * plan.live.len() + rank]);
            let masked = held.is_none_or(|token| token == MASK_ID);
            out.tokens.push(if masked { text[position as usize] } else { NO_TOKEN });
            out.confidence.push(if masked { 0.9 - position as f32 / 10000.0 } else { f32::NEG_INFINITY });
        }
    }
    out
}

/// Forwards that a known text takes.
fn forwards(mut options: SessionOptions, decoder: &str, cache: &str) -> usize {
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    options.stop = StopRule::Never;
    let mut session = Session::new(options).unwrap();
    let text: Vec<TokenId> = (0..session.canvas().len() as TokenId).map(|position| position % 20).collect();
    let run = drive(&mut session, |_, requests| requests.iter().map(|request| recite(request, &text)).collect());
    assert_eq!(run.output.canvas, text);
    session.counts().forwards
}

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
    assert_eq!(found("static"), 2561);
    for (d, eager, ceiling) in [(4, false, 1.67), (2, true, 1.43), (4, true, 1.92), (8, true, 2.64), (16, true, 3.39)] {
        let ratio = 2561.0 / found(&format!("freedave:mode=reference,d={d},eager={eager}")) as f64;
        assert!((ratio - ceiling).abs() < 0.01, "d {d} eager {eager}: {ratio}");
    }
    assert_eq!(found("freedave:mode=reference,d=8,eager"), 969);
    for (d, ceiling) in [(1, 1.25), (4, 4.99), (8, 7.49), (16, 12.4)] {
        let ratio = 2561.0 / found(&format!("freedave:d={d}")) as f64;
        assert!(ratio > ceiling - 0.01, "d {d}: {ratio}");
    }
}

#[test]
fn freedave_i18_one_forward_of_drafts_finishes_a_known_window() {
    let mut options = options(FULL, 0, 3, 12);
    options.block_length = Some(12);
    assert_eq!(forwards(options.clone(), "freedave:mode=reference,d=12", "none"), 2);
    assert_eq!(forwards(options, "freedave:mode=reference,d=99", "none"), 2);
}

#[test]
fn freedave_i2_one_draft_is_static_decoding() {
    let script = Script { seed: 3, easy: 0.5, spread: 3.0 };
    for (mask, shift) in [(FULL, 0), (FULL, 1), (BLOCKS, 0)] {
        for cache in caches(mask, shift) {
            let mut options = options(mask, shift, 5, 16);
            (options.block_length, options.cache, options.stop) = (Some(4), cache, StopRule::Never);
            let reference = run(script, options.clone(), "static").unwrap();
            for decoder in ["freedave:d=1,mode=reference", "freedave:d=1"] {
                let found = run(script, options.clone(), decoder).unwrap();
                assert_eq!(found.commits, reference.commits);
                let (nfe, static_nfe) = (found.session.counts().nfe, reference.session.counts().nfe);
                let fused = mask == BLOCKS && options.cache.name() == "block" && decoder == "freedave:d=1";
                assert_eq!(nfe, if fused { found.commits.len() } else { static_nfe }, "{decoder} {}", options.cache);
            }
        }
    }
}

#[test]
fn freedave_i5_drafts_are_nested_and_grow_by_one() {
    for mode in ["reference", "rolling"] {
        let mut options = options(BLOCKS, 0, 6, 14);
        options.decoder = format!("freedave:d=6,mode={mode},eager").parse().unwrap();
        let mut session = Session::new(options).unwrap();
        let mut script = Scripted::new(8, VOCAB, 0).with_easy(0.6);
        let id = script.open(&session.needs()[0]).unwrap();
        let mut seen = 0;
        drive(&mut session, |_, requests| {
            let request = &requests[0];
            let lanes: Vec<&[TokenId]> = request.tokens.chunks(request.plan.live.len()).collect();
            for (lane, pair) in lanes.windows(2).enumerate() {
                let added = pair[0].iter().zip(pair[1]).filter(|(before, after)| before != after);
                let added: Vec<_> = added.collect();
                assert_eq!(added.len(), 1);
                assert_eq!(*added[0].0, MASK_ID, "a draft only fills in");
                assert_eq!(request.ask.states[lane] + 1, request.ask.states[lane + 1], "its state is its own");
                seen += 1;
            }
            let mut out = [Predictions::default()];
            script.step(&[request.step(id, 0)], &mut out).unwrap();
            out.to_vec()
        });
        assert!(seen > 10);
    }
}

#[test]
fn freedave_i14_seeds_differ() {
    let mut options = options(BLOCKS, 0, 4, 16);
    (options.temperature, options.seed) = (1.0, 1);
    let script = Script { seed: 2, easy: 0.9, spread: 3.0 };
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
        "decoder freedave has quota without tau, expected it with a threshold only: add tau or leave it out"
    );
}

#[test]
fn the_receipt_tells_what_was_accepted() {
    let script = Script { seed: 4, easy: 0.8, spread: 5.0 };
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
    assert_eq!(receipt.against.as_deref(), Some("static, cache block"));
    // One token is added from draft to draft, beginning with the canvas itself.
    for event in &found.run.events {
        let Event::Step { drafts, accepted, rejected, .. } = *event else { continue };
        assert_eq!(accepted + rejected, drafts.saturating_sub(1));
    }
    assert!(run(script, options(BLOCKS, 0, 4, 8), "static").unwrap().session.receipt().acceptance.is_empty());
}

/// Everything that static decoding can be told, and how to draft it.
#[derive(Debug, Clone)]
struct Case {
    options: SessionOptions,
    script: Script,
    baseline: String,
    decoder: String,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (0usize..3, 0usize..10, 1usize..7, 1usize..5, 0usize..6);
    let method =
        (1usize..20, any::<bool>(), 0usize..3, prop_oneof![Just(None), (0.05f32..1.0).prop_map(Some)], 0usize..4);
    let order = (0usize..8, 0usize..3, prop_oneof![Just(0.0f32), Just(0.7)], prop_oneof![Just(0.0f32), Just(0.5)]);
    let script = (any::<u64>(), prop_oneof![Just(0.0), Just(0.6), Just(0.95)], prop_oneof![Just(3.0), Just(12.0)]);
    let cfg = prop_oneof![3 => Just(0.0f32), 1 => Just(1.5)];
    (shape, method, order, script, cfg).prop_map(|(shape, method, order, (seed, easy, spread), cfg_scale)| {
        let (family, prompt, block, blocks, per_block) = shape;
        let (d, reference, eager, tau, flags) = method;
        let (remasking, schedule, temperature, alg_temp) = order;
        let (mask, shift) = [(FULL, 0), (FULL, 1), (BLOCKS, 0)][family];
        // Block models also end within a block.
        let gen_length =
            if mask == BLOCKS { (block * blocks + 1).saturating_sub(prompt % 3).max(1) } else { block * blocks };
        let mut options = options(mask, shift, prompt.max(shift as usize), gen_length);
        options.block_length = Some(block);
        let decoded = if mask == BLOCKS { (prompt + gen_length).div_ceil(block) - prompt / block } else { blocks };
        options.steps = (per_block > 0).then_some(per_block * decoded);
        options.remasking = Remasking::ALL[remasking];
        if options.remasking == Remasking::Origin {
            options.remasking = Remasking::LowConfidence;
        }
        options.schedule = Schedule::ALL[schedule];
        (options.temperature, options.alg_temp, options.cfg_scale) = (temperature, alg_temp, cfg_scale);
        (options.seed, options.stop) = (seed ^ 1, StopRule::Never);
        let flags = ["", ",strict=true", ",quota=true", ",strict=true,quota=true"][flags];
        let threshold = tau.map_or(String::new(), |tau| format!("tau={tau}{flags}"));
        let mode = if reference { "reference" } else { "rolling" };
        let eager = ["", ",eager=false", ",eager=true"][eager];
        Case {
            options,
            script: Script { seed, easy, spread },
            baseline: if tau.is_some() { format!("threshold:{threshold}") } else { "static".into() },
            decoder: format!("freedave:d={d},mode={mode}{eager},{threshold}"),
        }
    })
}

/// The plans of a run as text and what it commits; `single` writes single drafts as the canvas that they stand for.
fn forwards_of(script: Script, mut options: SessionOptions, decoder: &str, single: bool) -> (Vec<String>, Found) {
    options.decoder = decoder.parse().unwrap();
    let mut model = Scripted::new(script.seed, VOCAB, options.facts.shift).with_spread(script.spread);
    model = model.with_easy(script.easy);
    let mut session = Session::new(options).unwrap();
    let ids: Vec<_> = session.needs().iter().map(|needs| model.open(needs).unwrap()).collect();
    let (mut plans, mut events) = (Vec::new(), Vec::new());
    while session.next() == Next::Step {
        let requests = session.requests();
        for request in requests {
            let mut plan = request.plan.clone();
            if single {
                plan.keep = None;
                assert_eq!(plan.lanes.count(), 1);
                plan.lanes = Lanes::Canvas;
            }
            plans.push(format!("{} {plan} {:?} {:?}", request.sequence, request.tokens, request.ask.states));
        }
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence], 0)).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        model.step(&batch, &mut out).unwrap();
        session.feed(&out);
        events.extend(session.events());
    }
    let commits = events.iter().filter_map(commit).collect();
    let run = common::Run { steps: Vec::new(), output: session.output(), events };
    (plans, Found { commits, run, session })
}

/// What nothing can claim over a cache with a history.
#[test]
fn drafts_over_a_cache_with_a_history_are_approximate() {
    let script = Script { seed: 6, easy: 0.7, spread: 5.0 };
    let (mut accepted, mut others) = (0, 0);
    for cache in OF_HISTORY {
        for shift in [0, 1] {
            let mut options = options(FULL, shift, 6, 24);
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(8));
            let reference = run(script, options.clone(), "static").unwrap();
            for decoder in ["freedave", "freedave:mode=reference"] {
                let found = run(script, options.clone(), decoder).unwrap();
                let receipt = found.session.receipt();
                assert_eq!((receipt.exactness, receipt.against), ("approximate", None), "{cache}");
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
        assert_eq!(run(script, options, "freedave").unwrap().session.receipt().exactness, memory, "{cache}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// I1, I3, I4, I6, I12, I14 and, with a threshold, I15: the same tokens with the same confidences in the same
    /// order, in no more forwards.
    #[test]
    fn freedave_i1_i3_i4_i6_i12_i14_i15_the_commits_are_those_of_the_baseline(case in cases()) {
        let (mask, shift) = (case.options.facts.mask, case.options.facts.shift);
        for cache in caches(mask, shift) {
            let mut options = case.options.clone();
            options.cache = cache.clone();
            let reference = run(case.script, options.clone(), &case.baseline).unwrap();
            let found = match run(case.script, options, &case.decoder) {
                Ok(found) => found,
                Err(error) => {
                    prop_assert!(case.decoder.contains("eager=true") && error.contains("leave eager out"), "{}", error);
                    continue;
                }
            };
            prop_assert_eq!(&found.commits, &reference.commits, "cache {}", cache);
            prop_assert_eq!(&found.run.output, &reference.run.output);
            let rolling = case.decoder.contains("rolling");
            if rolling || case.baseline == "static" {
                prop_assert!(found.session.counts().nfe <= reference.session.counts().nfe, "cache {}", cache);
            }
            // With a row before the block that is not live, a block's first drafts may all be wrong.
            let seeded = shift == 1 && cache.name() != "none" && !rolling;
            for event in &found.run.events {
                if let Event::Step { step, drafts, accepted, rejected, .. } = *event {
                    prop_assert!(drafts > 0 || accepted + rejected == 0);
                    prop_assert!(seeded || drafts == 0 || !found.run.steps[step].is_empty());
                    prop_assert!(accepted <= found.run.steps[step].len());
                }
            }
        }
    }

    /// I2 over caches with a history: one draft is static decoding over the same cache (or the threshold), token by token
    /// and forward by forward: the same rows, keys, partial layers and tokens.
    #[test]
    fn freedave_i2_one_draft_over_a_history_is_the_baseline(case in cases(), cache in 0..OF_HISTORY.len()) {
        let mut options = case.options;
        prop_assume!(options.facts.mask == FULL);
        (options.cache, options.decoder) = (OF_HISTORY[cache].parse().unwrap(), "freedave".parse().unwrap());
        // On a short response some of them have no history.
        prop_assume!(Session::new(options.clone()).unwrap().exactness() == Exactness::Approximate);
        let one = ["rolling", "reference"].map(|mode| {
            case.baseline.replacen("static", "", 1).replacen("threshold:", "", 1).trim_start_matches(':').split(',')
                .filter(|part| !part.is_empty()).fold(format!("freedave:d=1,mode={mode}"), |text, part| text + "," + part)
        });
        let (plans, reference) = forwards_of(case.script, options.clone(), &case.baseline, true);
        for decoder in one {
            let (found_plans, found) = forwards_of(case.script, options.clone(), &decoder, true);
            prop_assert_eq!(&found.commits, &reference.commits, "{} {}", &decoder, OF_HISTORY[cache]);
            prop_assert_eq!(&found_plans, &plans, "{} {}", &decoder, OF_HISTORY[cache]);
        }
    }

    /// I3, I4, I11 over caches with a history: everything is decoded, in no more forwards than static decoding needs over
    /// the same cache, and the same answer comes again.
    #[test]
    fn freedave_i3_i4_i11_drafts_over_a_history_end(case in cases(), cache in 0..OF_HISTORY.len()) {
        let mut options = case.options;
        prop_assume!(options.facts.mask == FULL && !case.decoder.contains("eager=true"));
        options.cache = OF_HISTORY[cache].parse().unwrap();
        let reference = forwards_of(case.script, options.clone(), &case.baseline, false).1;
        let (plans, found) = forwards_of(case.script, options.clone(), &case.decoder, false);
        let again = forwards_of(case.script, options.clone(), &case.decoder, false);
        prop_assert_eq!((&plans, &found.commits), (&again.0, &again.1.commits));
        prop_assert_eq!(found.session.canvas().iter().filter(|&&token| token == MASK_ID).count(), 0);
        prop_assert_eq!(found.commits.len(), reference.commits.len());
        if case.baseline == "static" {
            let (nfe, most) = (found.session.counts().forwards, reference.session.counts().forwards);
            prop_assert!(nfe <= most, "{} {}: {} forwards instead of {}", case.decoder, OF_HISTORY[cache], nfe, most);
        }
    }

    /// I1 and I12 where fixed tokens stand among the masks, whole blocks of them too.
    #[test]
    fn freedave_i1_infilling_gives_the_tokens_of_the_baseline(case in cases(), fixed in vec(0usize..3, 1..24)) {
        let facts = case.options.facts.clone();
        let tokens: Vec<TokenId> = fixed.iter().map(|&kind| if kind == 0 { 4 } else { MASK_ID }).collect();
        prop_assume!(facts.mask == FULL && tokens.contains(&MASK_ID) && !(facts.shift == 1 && tokens[0] == MASK_ID));
        for cache in caches(FULL, facts.shift) {
            let mut options = case.options.clone();
            (options.canvas, options.steps) = (CanvasSpec::Infill { tokens: tokens.clone() }, None);
            options.cache = cache;
            let reference = run(case.script, options.clone(), &case.baseline).unwrap();
            let Ok(found) = run(case.script, options, &case.decoder) else { continue };
            prop_assert_eq!(&found.commits, &reference.commits);
        }
    }

    /// I13: the answer ends where the baseline's does, and nothing is decoded behind a block that ends it.
    #[test]
    fn freedave_i13_stops_where_the_baseline_does(case in cases(), rule in 0usize..3) {
        let (mask, shift) = (case.options.facts.mask, case.options.facts.shift);
        for cache in caches(mask, shift) {
            let mut options = case.options.clone();
            (options.cache, options.end_ids) = (cache, vec![EOS, 3, 5, 7]);
            options.stop = [StopRule::Prefix, StopRule::Block, StopRule::WholeBlock { fill: 5 }][rule];
            let reference = run(case.script, options.clone(), &case.baseline).unwrap();
            let Ok(found) = run(case.script, options, &case.decoder) else { continue };
            prop_assert_eq!(&found.run.output.tokens, &reference.run.output.tokens);
            prop_assert_eq!(found.run.output.finish, reference.run.output.finish);
            if rule > 0 {
                prop_assert_eq!(&found.run.output.canvas, &reference.run.output.canvas);
            }
        }
    }

    /// I11: no mask in the answer, and an end, for a model that would rather predict the mask than anything.
    #[test]
    fn freedave_i11_a_model_that_loves_the_mask_ends(case in cases()) {
        for cache in caches(case.options.facts.mask, case.options.facts.shift) {
            let mut options = case.options.clone();
            (options.cache, options.decoder) = (cache, case.decoder.parse().unwrap());
            let Ok(mut session) = Session::new(options.clone()) else { continue };
            let blocks = session.layout().blocks();
            let run = drive(&mut session, |_, requests| requests.iter().map(|request| {
                assert!(request.ask.forbid.contains(&MASK_ID));
                let mut answer = recite(request, &vec![1; 100]);
                for (index, token) in answer.tokens.iter_mut().enumerate() {
                    if *token != NO_TOKEN && index % 3 == 0 {
                        *token = MASK_ID;
                    }
                }
                answer
            }).collect());
            prop_assert!(run.steps.len() <= 3 * (run.output.canvas.len() + 3 * blocks + 3) + blocks * 40);
        }
    }
}

#[test]
fn drafts_run_in_lanes_of_their_own() {
    let mut options = options(BLOCKS, 0, 4, 8);
    options.decoder = "freedave:d=3".parse().unwrap();
    let mut session = Session::new(options).unwrap();
    let text: Vec<TokenId> = (0..12).collect();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        assert_eq!(requests[0].tokens.len(), requests[0].plan.lanes.count() * requests[0].plan.live.len());
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
