//! FreeDave against its baseline on random cases (specs/freedave.md#6.1): 100,000 of them, each over every cache that
//! promises losslessness, without one difference. Over caches whose slots depend on the steps before, one draft is the
//! baseline.

use std::{cell::Cell, ops::RangeInclusive};

use crate::common::{
    self, EOS, MASK_ID, drive,
    freedave::{BLOCKS, FULL, Found, OF_HISTORY, Script, caches, commits, recite, run},
    options,
};
use demask_decode::{CacheSpec, CanvasSpec, Event, Exactness, Remasking, Schedule, Session, SessionOptions, StopRule};
use demask_step::{Job, Lanes, NO_TOKEN, Network, Predictions, SequenceId, TokenId};
use demask_testkit::{by_hand::ByHand, property};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};

/// Cases of each of the four tests: 100,000 in all, unless they are built without optimisation or run by Miri.
const CASES: u32 = property::count(if cfg!(debug_assertions) { 500 } else { 25_000 });

/// Case of static decoding with all of its settings, and the drafts.
#[derive(Debug, Clone)]
struct Case {
    options: SessionOptions,
    script: Script,
    baseline: String,
    decoder: String,
    /// The decoder whose number of drafts is left to the device.
    fitted: String,
}

/// Cases of full attention, of full attention with shift, of block-causal models.
fn cases(families: RangeInclusive<usize>) -> impl Strategy<Value = Case> {
    let shape = (families, 0usize..10, 1usize..7, 1usize..5, 0usize..6);
    let tau = prop_oneof![Just(None), (0.05f32..1.0).prop_map(Some)];
    let method = (1usize..20, any::<bool>(), 0usize..3, tau, 0usize..4);
    let order = (0usize..8, 0usize..3, prop_oneof![Just(0.0f32), Just(0.7)], prop_oneof![Just(0.0f32), Just(0.5)]);
    // Half of the texts end somewhere.
    let end = prop_oneof![Just(u32::MAX), 0u32..30];
    let script = (any::<u64>(), prop_oneof![Just(0.0), Just(0.6), Just(0.95)], prop_oneof![Just(3.0), Just(12.0)], end);
    let rest = (prop_oneof![3 => Just(0.0f32), 1 => Just(1.5)], 0usize..6);
    (shape, method, order, script, rest).prop_map(|(shape, method, order, (seed, easy, spread, end), rest)| {
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
        (options.temperature, options.alg_temp, options.cfg_scale) = (temperature, alg_temp, rest.0);
        options.seed = seed ^ 1;
        // Half of the runs go on behind the end.
        options.end_ids = vec![EOS];
        options.stop = match rest.1 {
            0 => StopRule::Prefix,
            1 => StopRule::Block,
            2 => StopRule::WholeBlock,
            _ => StopRule::Never,
        };
        let flags = ["", ",strict=true", ",quota=true", ",strict=true,quota=true"][flags];
        let threshold = tau.map_or(String::new(), |tau| format!("tau={tau}{flags}"));
        let mode = if reference { "reference" } else { "rolling" };
        let eager = ["", ",eager=false", ",eager=true"][eager];
        // From less than one draft to more than any.
        options.facts.free_rows = d * d;
        Case {
            options,
            script: Script { seed, easy, spread, end },
            baseline: if tau.is_some() { format!("threshold:{threshold}") } else { "static".into() },
            decoder: format!("freedave:d={d},mode={mode}{eager},{threshold}"),
            fitted: format!("freedave:{threshold}{eager}"),
        }
    })
}

/// Compares a case with its baseline over all caches; answers how many could run it.
fn compare(case: &Case, caches: &[CacheSpec]) -> Result<usize, TestCaseError> {
    let mut compared = 0;
    for cache in caches {
        let mut options = case.options.clone();
        options.cache = cache.clone();
        let (stop, shift) = (options.stop, options.facts.shift);
        let reference = run(case.script, options.clone(), &case.baseline).unwrap();
        let found = match run(case.script, options, &case.decoder) {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(case.decoder.contains("eager=true") && error.contains("omit eager"), "{}", error);
                continue;
            }
        };
        compared += 1;
        prop_assert_eq!(&found.run.output.tokens, &reference.run.output.tokens, "cache {}", cache);
        prop_assert_eq!(found.run.output.finish, reference.run.output.finish, "cache {}", cache);
        if stop == StopRule::Prefix {
            // The forward that ends the text may take more than one static step.
            prop_assert!(found.commits.starts_with(&reference.commits), "cache {}", cache);
        } else {
            prop_assert_eq!(&found.commits, &reference.commits, "cache {}", cache);
            prop_assert_eq!(&found.run.output, &reference.run.output, "cache {}", cache);
        }
        let rolling = case.decoder.contains("rolling");
        if rolling || case.baseline == "static" {
            // As released, a known step is the first draft of the next forward, with drafts into the next block that of
            // a last mask too: an end in it shows one forward later.
            let eager = case.decoder.contains("eager=true");
            let late = usize::from(!rolling && (stop == StopRule::Prefix || eager && stop != StopRule::Never));
            let (nfe, most) = (found.session.counts().nfe, reference.session.counts().nfe + late);
            prop_assert!(nfe <= most, "cache {}: {} forwards, static decoding {}", cache, nfe, most);
        }
        // With a row before the block that is not live, a block's first drafts may all be wrong.
        let seeded = shift == 1 && cache.name() != "none" && !rolling;
        for event in &found.run.events {
            if let Event::Step { step, drafts, accepted, rejected, .. } = *event {
                prop_assert!(drafts > 0 || accepted + rejected == 0);
                prop_assert!(seeded || drafts == 0 || !found.run.steps[step].is_empty());
                prop_assert!(stop != StopRule::Never || accepted <= found.run.steps[step].len());
            }
        }
    }
    Ok(compared)
}

/// Runs the cases of some families.
fn compare_all(families: RangeInclusive<usize>) {
    let caches = [caches(FULL, 0), caches(FULL, 1), caches(BLOCKS, 0)];
    let compared = Cell::new(0);
    let result = TestRunner::new(property::cases(CASES)).run(&cases(families), |case| {
        let facts = &case.options.facts;
        let of_family = &caches[if facts.mask == BLOCKS { 2 } else { facts.shift as usize }];
        compared.set(compared.get() + compare(&case, of_family)?);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(compared.get() > CASES as usize, "only {} runs were compared", compared.get());
}

/// Compares a decoder whose number of drafts is left to a device with any number of rows that are nearly free with the
/// baseline of a case over all caches; answers how many could run it.
fn compare_fitted(case: &Case, caches: &[CacheSpec]) -> Result<usize, TestCaseError> {
    let mut compared = 0;
    for cache in caches {
        let mut options = case.options.clone();
        options.cache = cache.clone();
        let stop = options.stop;
        let reference = run(case.script, options.clone(), &case.baseline).unwrap();
        let found = match run(case.script, options, &case.fitted) {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(case.fitted.contains("eager=true") && error.contains("omit eager"), "{}", error);
                continue;
            }
        };
        compared += 1;
        // I1, I6: the same tokens in the same order with the same confidences.
        prop_assert_eq!(&found.run.output.tokens, &reference.run.output.tokens, "cache {}", cache);
        prop_assert_eq!(found.run.output.finish, reference.run.output.finish, "cache {}", cache);
        if stop == StopRule::Prefix {
            prop_assert!(found.commits.starts_with(&reference.commits), "cache {}", cache);
        } else {
            prop_assert_eq!(&found.commits, &reference.commits, "cache {}", cache);
        }
        // I3, from I4: whatever is free, a forward with drafts commits what static decoding takes next.
        let (nfe, most) = (found.session.counts().nfe, reference.session.counts().nfe);
        prop_assert!(nfe <= most, "cache {}: {} forwards, the baseline {}", cache, nfe, most);
        for event in &found.run.events {
            if let Event::Step { step, drafts, .. } = *event {
                prop_assert!(stop != StopRule::Never || drafts == 0 || !found.run.steps[step].is_empty());
            }
        }
    }
    Ok(compared)
}

#[test]
fn freedave_i1_i3_i4_i6_any_number_of_drafts_and_any_reach() {
    let caches = [caches(FULL, 0), caches(FULL, 1), caches(BLOCKS, 0)];
    let compared = Cell::new(0);
    let result = TestRunner::new(property::cases(CASES)).run(&cases(0..=2), |case| {
        let facts = &case.options.facts;
        let of_family = &caches[if facts.mask == BLOCKS { 2 } else { facts.shift as usize }];
        compared.set(compared.get() + compare_fitted(&case, of_family)?);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(compared.get() > CASES as usize, "only {} runs were compared", compared.get());
}

// I1, I3, I4, I6, I12, I13, I14 and, with a threshold, I15: the same tokens with the same confidences in the same
// order, in no more forwards, whatever the shape, the drafts, the temperature and the end of the text.

#[test]
fn freedave_i1_i3_i4_i6_i12_i13_i14_i15_full_attention() {
    compare_all(0..=0);
}

#[test]
fn freedave_i1_i3_i4_i6_i12_i13_i14_i15_full_attention_with_shift() {
    compare_all(1..=1);
}

#[test]
fn freedave_i1_i3_i4_i6_i12_i13_i14_i15_block_models() {
    compare_all(2..=2);
}

#[test]
fn freedave_i1_i3_i4_i6_i12_i13_i14_i15_all_families() {
    compare_all(0..=2);
}

/// Stores that ride along change no token, no confidence and no order, and the published count of forwards stays.
#[test]
fn stores_that_ride_along_change_no_commit() {
    let others = ["factor", "entropy_bounded", "slowfast", "edit", "guided"];
    let (ran, saved) = (Cell::new(0), Cell::new(0));
    let result = TestRunner::new(property::cases(property::count(10_000))).run(&cases(2..=2), |case| {
        let baseline = case.baseline.as_str();
        for decoder in [baseline, others[case.script.seed as usize % others.len()]] {
            let of = |cache: &str| {
                let options = SessionOptions { cache: cache.parse().unwrap(), ..case.options.clone() };
                run(case.script, options, decoder)
            };
            let (Ok(fused), Ok(alone)) = (of("block"), of("block:store=alone")) else { continue };
            prop_assert_eq!(&fused.commits, &alone.commits, "{}", decoder);
            prop_assert_eq!(&fused.run.output, &alone.run.output, "{}", decoder);
            let [fused, alone] = [fused, alone].map(|found| found.session.counts());
            prop_assert_eq!(fused.nfe, alone.nfe, "{}", decoder);
            prop_assert!(fused.forwards <= alone.forwards, "{}", decoder);
            ran.set(ran.get() + 1);
            saved.set(saved.get() + alone.forwards - fused.forwards);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(saved.get() > ran.get(), "{} forwards fewer in {} runs", saved.get(), ran.get());
}

/// The plans of a run as text and what it commits; `single` writes single drafts as the canvas that they stand for.
fn forwards_of(script: Script, mut options: SessionOptions, decoder: &str, single: bool) -> (Vec<String>, Found) {
    options.decoder = decoder.parse().unwrap();
    let mut model = script.denoiser(options.facts.shift);
    let mut session = Session::new(options).unwrap();
    let ids: Vec<SequenceId> = session.needs().iter().map(|needs| model.open(&needs.limits).unwrap()).collect();
    let (mut plans, mut events) = (Vec::new(), Vec::new());
    while session.wants() == Some(0) {
        let requests = session.requests();
        for request in requests {
            let mut plan = request.plan.clone();
            if single {
                plan.retain = None;
                assert_eq!(plan.lanes.count(), 1);
                plan.lanes = Lanes::Canvas;
            }
            plans.push(format!("{} {plan} {:?} {:?}", request.sequence, request.tokens, request.ask.states));
        }
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        model.step(&batch, &mut out).unwrap();
        script.ends(&mut out[0]);
        session.feed(&out);
        events.extend(session.events());
    }
    let run = common::Run { steps: Vec::new(), output: session.output(), events };
    (plans, Found { commits: commits(&run.events), run, session })
}

proptest! {
    #![proptest_config(property::cases(600))]

    /// I1 and I12 where fixed tokens stand among the masks, whole blocks of them too.
    #[test]
    fn freedave_i1_i12_infilling_gives_the_tokens_of_the_baseline(
        case in cases(0..=1),
        fixed in vec(0usize..3, 1..24),
    ) {
        let facts = case.options.facts.clone();
        let tokens: Vec<TokenId> = fixed.iter().map(|&kind| if kind == 0 { 4 } else { MASK_ID }).collect();
        prop_assume!(tokens.contains(&MASK_ID) && !(facts.shift == 1 && tokens[0] == MASK_ID));
        for cache in caches(FULL, facts.shift) {
            let mut options = case.options.clone();
            (options.canvas, options.steps) = (CanvasSpec::Infill { tokens: tokens.clone() }, None);
            (options.cache, options.stop) = (cache, StopRule::Never);
            let reference = run(case.script, options.clone(), &case.baseline).unwrap();
            let Ok(found) = run(case.script, options, &case.decoder) else { continue };
            prop_assert_eq!(&found.commits, &reference.commits);
        }
    }

    /// I2: one draft is static decoding, commit by commit, in as many forwards.
    #[test]
    fn freedave_i2_one_draft_is_static_decoding(case in cases(0..=2)) {
        for cache in caches(case.options.facts.mask, case.options.facts.shift) {
            let mut options = case.options.clone();
            (options.cache, options.stop) = (cache, StopRule::Never);
            let reference = run(case.script, options.clone(), "static").unwrap();
            let found = run(case.script, options, "freedave:d=1,mode=reference").unwrap();
            // Steps that a schedule lets pass without a token are left out.
            let idle = reference.run.events.iter().any(|event| {
                matches!(*event, Event::Step { step, .. } if reference.run.steps[step].is_empty())
            });
            let (nfe, most) = (found.session.counts().nfe, reference.session.counts().nfe);
            prop_assert!(if idle { nfe <= most } else { nfe == most }, "{} forwards, static {}", nfe, most);
            prop_assert_eq!(&found.commits, &reference.commits);
        }
    }

    /// I11: no mask in the answer, and an end, for a model whose best token is the mask wherever it may say so.
    #[test]
    fn freedave_i11_a_model_that_loves_the_mask_ends(case in cases(0..=2)) {
        for cache in caches(case.options.facts.mask, case.options.facts.shift) {
            let mut options = case.options.clone();
            (options.cache, options.decoder) = (cache, case.decoder.parse().unwrap());
            options.stop = StopRule::Never;
            let Ok(mut session) = Session::new(options) else { continue };
            let (blocks, masks) = (session.layout().blocks(), session.layout().gen_length().max(1));
            let text = vec![1; session.canvas().len()];
            let loves = |request: &demask_step::ForwardInput| {
                let mut answer = recite(request, &text);
                if !request.ask.wanted.banned.contains(&MASK_ID) {
                    answer.tokens.iter_mut().filter(|token| **token != NO_TOKEN).for_each(|token| *token = MASK_ID);
                }
                answer
            };
            let run = drive(&mut session, |_, requests| requests.iter().map(loves).collect());
            prop_assert!(!run.output.canvas.contains(&MASK_ID));
            // A ragged tail is decoded too; the prompt of a block model is stored by one forward more.
            let decoded = run.steps.iter().map(Vec::len).sum::<usize>().max(masks);
            prop_assert!(run.steps.len() <= decoded + blocks + 1, "{} forwards", run.steps.len());
        }
    }

    /// The same for a model that does not keep to what it may say: it is cut off, and nothing of it is written.
    #[test]
    fn freedave_i11_a_model_that_says_the_mask_is_cut_off(case in cases(0..=2)) {
        for cache in caches(case.options.facts.mask, case.options.facts.shift) {
            let mut options = case.options.clone();
            (options.cache, options.decoder) = (cache, case.decoder.parse().unwrap());
            let Ok(mut session) = Session::new(options) else { continue };
            let blocks = session.layout().blocks();
            let text = vec![1; session.canvas().len()];
            let run = drive(&mut session, |_, requests| requests.iter().map(|request| {
                let mut answer = recite(request, &text);
                for (index, token) in answer.tokens.iter_mut().enumerate() {
                    if *token != NO_TOKEN && index % 3 == 0 {
                        *token = MASK_ID;
                    }
                }
                answer
            }).collect());
            prop_assert!(run.steps.iter().flatten().all(|&(_, token)| token != MASK_ID));
            prop_assert!(run.steps.len() <= 3 * (run.output.canvas.len() + 3 * blocks + 3) + blocks * 40);
        }
    }
    /// I2 over caches with a history: one draft is static decoding over the same cache (or the threshold), token by token
    /// and forward by forward: the same rows, keys, partial layers and tokens.
    #[test]
    fn freedave_i2_one_draft_over_a_history_is_the_baseline(case in cases(0..=1), cache in 0..OF_HISTORY.len()) {
        let mut options = case.options;
        (options.cache, options.decoder) = (OF_HISTORY[cache].parse().unwrap(), "freedave".parse().unwrap());
        options.stop = StopRule::Never;
        // On a short response some of them have no history.
        prop_assume!(Session::new(options.clone()).unwrap().exactness() == Exactness::Approximate);
        let threshold = case.baseline.strip_prefix("threshold:").map_or(String::new(), |rest| format!(",{rest}"));
        let (plans, reference) = forwards_of(case.script, options.clone(), &case.baseline, true);
        for mode in ["rolling", "reference"] {
            let decoder = format!("freedave:d=1,mode={mode}{threshold}");
            let (found_plans, found) = forwards_of(case.script, options.clone(), &decoder, true);
            prop_assert_eq!(&found.commits, &reference.commits, "{} {}", &decoder, OF_HISTORY[cache]);
            prop_assert_eq!(&found_plans, &plans, "{} {}", &decoder, OF_HISTORY[cache]);
        }
    }

    /// I3, I4, I11 over caches with a history: everything is decoded, in no more forwards than static decoding needs over
    /// the same cache, and the same answer comes again.
    #[test]
    fn freedave_i3_i4_i11_drafts_over_a_history_end(case in cases(0..=1), cache in 0..OF_HISTORY.len()) {
        prop_assume!(!case.decoder.contains("eager=true"));
        let mut options = case.options;
        (options.cache, options.stop) = (OF_HISTORY[cache].parse().unwrap(), StopRule::Never);
        let reference = forwards_of(case.script, options.clone(), &case.baseline, false).1;
        let (plans, found) = forwards_of(case.script, options.clone(), &case.decoder, false);
        let again = forwards_of(case.script, options.clone(), &case.decoder, false);
        prop_assert_eq!((&plans, &found.commits), (&again.0, &again.1.commits));
        prop_assert!(!found.session.canvas().contains(&MASK_ID));
        prop_assert_eq!(found.commits.len(), reference.commits.len());
        if case.baseline == "static" {
            let (nfe, most) = (found.session.counts().forwards, reference.session.counts().forwards);
            prop_assert!(nfe <= most, "{} {}: {} forwards instead of {}", case.decoder, OF_HISTORY[cache], nfe, most);
        }
    }
}
