//! Refusals of a generation, and their types for users of the library; the messages of the command line are tested with
//! it.

use std::{ops::ControlFlow, path::Path};

use demask::{Event, Model, Options, Prompt, Settings};
use demask::{ModelInfo, Opened};
use demask_checkpoint::ModelFiles;
use demask_decode::{Finish, Schedule};
use demask_testkit::by_hand::ByHand;

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn demo() -> Model {
    Model::demo().unwrap()
}

fn refusal(prompt: &Prompt, options: &Options) -> String {
    let error = demo().generate_with(prompt.clone(), options).unwrap_err();
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn options_without_effect_are_refused() {
    let question = Prompt::user(QUESTION, None);
    let eps = Options { eps: Some(0.01), ..Options::default() };
    assert_eq!(
        refusal(&question, &eps),
        "`eps` has no meaning without `schedule` dream or dream_total, whose time it ends: omit it"
    );
    let empty = Options { stop: Some(vec![String::new()]), ..Options::default() };
    assert_eq!(refusal(&question, &empty), "`stop` has no meaning without a text: omit it");
    let stop = Options { stop: Some(vec!["x".into()]), ..Options::default() };
    assert_eq!(
        refusal(&Prompt::Infill("Ada has <mask:1> pears.".into()), &stop),
        "`stop` has no meaning with `infill`, where the text's end is given: omit it"
    );
}

#[test]
fn prompts_that_cannot_be_decoded_are_refused() {
    let options = Options::default();
    assert_eq!(
        refusal(&Prompt::Tokens(vec![1, 489]), &options),
        "prompt token 489 is outside the vocabulary of 489: expected ids from 0 to 488"
    );
    assert_eq!(
        refusal(&Prompt::Tokens(vec![1; 1024]), &options),
        "1024 prompt tokens and 1 to generate exceed the model's context of 1024: shorten the prompt or lower `gen_length`"
    );
    assert_eq!(
        refusal(&Prompt::Raw("a <|mdm_mask|> b".into()), &options),
        "the prompt contains the model's mask token: remove it, or write holes as <mask:N> and use `infill`"
    );
    assert_eq!(
        refusal(&Prompt::Infill("no hole".into()), &options),
        "the text to fill has no hole: write <mask:N> where N tokens are missing"
    );
    for hole in ["<mask:0>", "<mask:-1>", "<mask:x>", "<mask:99999999999999999999>", "<mask:2"] {
        let message = refusal(&Prompt::Infill(hole.into()), &options);
        assert!(message.contains("is not the size of a hole"), "{message}");
    }
}

#[test]
fn text_is_told_as_it_settles_and_adds_up() {
    let model = demo();
    let mut text = String::new();
    let mut commits = 0;
    let answer = model
        .watch(&Prompt::user(QUESTION, None), &Options::default(), &mut |event| {
            match event {
                Event::Text(piece) => text.push_str(piece),
                Event::Commit { .. } => commits += 1,
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(answer.text.as_deref(), Some(text.as_str()));
    assert!(text.ends_with("The final answer is 7"), "{text}");
    assert_eq!(answer.finish, Finish::Eos);
    // The recommended decoder takes several tokens of most forwards.
    assert!(commits > 2 * answer.receipt.decoding.forwards, "{:?}", answer.receipt.decoding);
}

/// The answer is the same whenever decoding ends behind it, and the later it ends the more is decoded.
#[test]
fn stop_rules_say_how_far_decoding_goes_and_not_what_is_answered() {
    let model = demo();
    let run = |rule: &str| {
        let mut options = Options { gen_length: Some(64), block_length: Some(8), ..Options::default() };
        options.set("decoder", "static").unwrap();
        if !rule.is_empty() {
            options.set("stop_rule", rule).unwrap();
        }
        let prompt = Prompt::user(QUESTION, None);
        let answer = model.generate_with(prompt, &options).unwrap();
        (answer.text.unwrap(), answer.receipt.decoding.nfe)
    };
    let (text, prefix) = run("prefix");
    assert_eq!(run(""), (text.clone(), prefix));
    let nfe = |rule: &str| {
        let (found, nfe) = run(rule);
        assert_eq!(found, text, "{rule}");
        nfe
    };
    let rules = ["prefix-fill", "block", "whole-block", "never", "end-run:run=1", "end-run:run=3", "fill"];
    let [filled, block, whole, never, one, three, behind] = rules.map(nfe);
    assert_eq!(filled, prefix);
    assert!(prefix <= block && block < whole && whole < never, "{prefix} {block} {whole} {never}");
    assert_eq!(never, 64);
    assert!(one <= three && three < never, "{one} {three}");
    assert!(behind <= prefix, "{behind} {prefix}: what lies behind the end is filled, not decoded");
}

/// The methods of a request: those that it names, and those that are chosen for it.
fn methods(info: &ModelInfo, prompt: &Prompt, options: &Options) -> String {
    let receipt = info.session(prompt, options).unwrap().receipt();
    format!("{}, cache {}", receipt.decoder, receipt.cache)
}

fn opened(name: &str) -> Opened {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
    Opened::open(ModelFiles::directory(path).unwrap()).unwrap()
}

/// Options that are set by their names.
fn set(given: &str) -> Options {
    let mut options = Options::default();
    for (name, value) in given.split(';').filter_map(|pair| pair.split_once(' ')) {
        options.set(name, value).unwrap();
    }
    options
}

#[test]
fn naming_one_method_or_none_leaves_the_other_recommended() {
    let ids = Prompt::Tokens(vec![5, 6, 7]);
    let full = [
        ("", "threshold:tau=0.9, cache dual"),
        ("temperature 0.5", "threshold:tau=0.9, cache dual"),
        ("block-length 32", "threshold:tau=0.9, cache dual"),
        ("cache dual", "threshold:tau=0.9, cache dual"),
        ("cache prefix", "threshold:tau=0.9, cache prefix"),
        ("cache none", "threshold:tau=0.9, cache none"),
        ("decoder threshold:tau=0.95", "threshold:tau=0.95, cache dual"),
        ("decoder factor", "factor:f=1, cache dual"),
        ("decoder entropy_bounded", "entropy_bounded:eb=0.35, cache dual"),
        ("decoder freedave:d=4", "freedave:d=4, cache dual"),
        ("decoder freedave:d=4,eager", "freedave:d=4,eager=true, cache none"),
        ("decoder static", "static, cache none"),
        ("decoder p2", "p2, cache none"),
        ("steps 32", "static, cache none"),
        ("schedule dream", "static, cache none"),
        ("remasking entropy", "static, cache none"),
        ("alg-temp 0.1", "static, cache none"),
        ("schedule dream;eps 0.01", "static, cache none"),
        ("steps 32;cache dual", "static, cache dual"),
        ("remasking entropy;cache dual", "static, cache dual"),
        ("decoder threshold;remasking entropy", "threshold:tau=0.9, cache none"),
    ];
    let blocks = [
        ("", "threshold:tau=0.9, cache block"),
        ("cache none", "threshold:tau=0.9, cache none"),
        ("decoder threshold:tau=0.95", "threshold:tau=0.95, cache block"),
        ("decoder freedave:d=4", "freedave:d=4, cache block"),
        ("decoder static", "static, cache block"),
        ("remasking entropy", "static, cache block"),
    ];
    let causal = [("", "ar, cache causal"), ("cache none", "ar, cache none"), ("decoder ar", "ar, cache causal")];
    let check = |info: &ModelInfo, expected: &[(&str, &str)]| {
        for (given, expected) in expected {
            let options = Options { gen_length: Some(32), ..set(given) };
            assert_eq!(methods(info, &ids, &options), *expected, "{} with {given:?}", info.name());
        }
        let (decoder, cache) = info.default_methods();
        assert_eq!(format!("{decoder}, cache {cache}"), methods(info, &ids, &set("gen_length 32")));
    };
    check(opened("demo-llada").info(), &full);
    check(opened("demo-dream").info(), &full);
    check(opened("demo-sdar").info(), &blocks);
    check(opened("demo-qwen").info(), &causal);
}

#[test]
fn a_hole_is_filled_by_the_reference_over_the_cache_that_its_family_was_measured_with() {
    let hole = Prompt::Infill("Ada has <mask:1> pears.".into());
    let (llada, dream) = (opened("demo-llada"), opened("demo-dream"));
    for (info, expected) in [
        (
            llada.info(),
            ["static, cache dual", "static, cache none", "threshold:tau=0.9, cache dual", "static, cache none"],
        ),
        (
            dream.info(),
            ["static, cache none", "static, cache none", "threshold:tau=0.9, cache none", "static, cache none"],
        ),
    ] {
        let found =
            ["", "decoder static", "decoder threshold", "steps 1"].map(|given| methods(info, &hole, &set(given)));
        assert_eq!(found, expected, "{}", info.name());
        assert_eq!(methods(info, &hole, &set("cache dual")), "static, cache dual");
    }
}

#[test]
fn a_guide_beside_a_decoder_that_asks_none_changes_nothing() {
    let guided = Opened::demo().unwrap().guided_by(opened("demo-qwen")).unwrap();
    let prompt = Prompt::from(QUESTION);
    for (decoder, asks) in [(None, 0), (Some("static"), 0), (Some("freedave:d=4"), 0), (Some("guided"), 1)] {
        let decoder = decoder.map(|decoder| decoder.parse().unwrap());
        let answer = guided.prepare(&prompt, &Options { decoder, ..Options::default() }).unwrap();
        assert_eq!(answer.session().unwrap().needs_of(1).len(), asks);
    }
    let two_diffusers = Opened::demo().unwrap().guided_by(Opened::demo().unwrap()).err().unwrap().to_string();
    assert!(two_diffusers.contains("expected an autoregressive one"), "{two_diffusers}");
}

#[test]
fn a_stop_text_ends_the_answer_in_front_of_it() {
    let model = demo();
    let options = Options { stop: Some(vec!["final".into()]), ..Options::default() };
    let mut told = String::new();
    let answer = model
        .watch(&Prompt::user(QUESTION, None), &options, &mut |event| {
            if let Event::Text(piece) = event {
                told.push_str(piece);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((answer.text.as_deref(), answer.finish), (Some("3+4=7 pears.\nThe "), Finish::Stop));
    assert_eq!(told, "3+4=7 pears.\nThe ");
}

#[test]
fn an_observer_can_end_a_generation_and_the_model_goes_on_living() {
    let model = demo();
    let question = Prompt::user(QUESTION, None);
    let options = Options::default();
    let broken = model.watch(&question, &options, &mut |event| match event {
        Event::Step { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(broken.unwrap_err().to_string(), "interrupted");
    assert!(model.generate_with(question, &options).is_ok());
}

#[test]
fn seeds_repeat_and_differ() {
    let model = demo();
    let answer = |seed, schedule| {
        let options = Options { temperature: Some(4.0), seed, schedule, ignore_eos: Some(true), ..Options::default() };
        let question = Prompt::user(QUESTION, None);
        model.generate_with(question, &options).unwrap().tokens
    };
    assert_eq!(answer(Some(1), None), answer(Some(1), None));
    assert_ne!(answer(Some(1), None), answer(Some(2), None));
    assert_eq!(answer(Some(3), Some(Schedule::Dream)), answer(Some(3), Some(Schedule::Dream)));
}

#[test]
fn infilling_keeps_what_was_given() {
    let model = demo();
    let text = "Ada has 3 pears. Ben gives Ada <mask:1> more. How many pears are there <mask:3> the end?";
    let answer = model.infill(text, &Options::default()).unwrap();
    let filled = answer.text.unwrap();
    assert!(filled.starts_with("Ada has 3 pears. Ben gives Ada") && filled.ends_with(" the end?"), "{filled}");
    assert_eq!(answer.receipt.decoding.nfe, 4);
    assert!(answer.tokens.iter().all(|token| !model.info().end_ids().contains(token)), "an end inside the text");
}

/// What LLaDA's two options and a hole do to end tokens, and the mask's share (specs/models.md#6).
#[test]
fn only_what_the_programs_strike_out_loses_its_share() {
    let info = demo();
    let info = info.info();
    let lists = |prompt: &Prompt, options: Options| {
        let session = info.session(prompt, &options).unwrap();
        let wanted = &session.requests()[0].ask.wanted;
        (wanted.banned.to_vec(), wanted.zero_confidence.to_vec())
    };
    let sorted = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        ids
    };
    let question = Prompt::user(QUESTION, None);
    let mask = info.facts().mask_id.unwrap();
    let (muted, ends) = {
        let zero = Options { eos_confidence_zero: Some(true), ..Options::default() };
        let (banned, zero_confidence) = lists(&question, zero);
        assert_eq!(banned, [mask], "ends may be chosen");
        (zero_confidence.clone(), zero_confidence)
    };
    assert!(!muted.is_empty());
    assert_eq!(lists(&question, Options::default()), (vec![mask], vec![]), "the mask keeps its share");
    let (banned, zero_confidence) = lists(&question, Options { suppress_eos: Some(true), ..Options::default() });
    assert_eq!(zero_confidence.len(), 1, "the end of the text is struck out");
    assert_eq!(banned, sorted(vec![mask, zero_confidence[0]]));
    let hole = Prompt::Infill("Ada has <mask:2> pears.".into());
    let (banned, zero_confidence) = lists(&hole, Options::default());
    assert_eq!(banned, sorted([ends, vec![mask]].concat()));
    assert!(zero_confidence.is_empty(), "no program strikes ends out of a hole");
}
