//! Log-probabilities of committed tokens are those of the raw logits of the forward that predicted them, and nothing
//! depends on whether they are kept.

use std::{collections::BTreeMap, ops::ControlFlow};

use demask::{Error, Event, Generation, LikelihoodOptions, Model, Options, Prompt, TokenLogprob};
use demask_step::{Mask, NO_TOKEN, Position, TokenId};

use crate::batch::{load, load_guided, question, same};

/// Alternatives that are asked for.
const TOP: usize = 10;

fn options(decoder: &str, cache: &str, top: Option<usize>) -> Options {
    Options {
        decoder: Some(decoder.parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        gen_length: Some(32),
        block_length: Some(8),
        top_logprobs: top,
        ..Options::default()
    }
}

fn ar(top: Option<usize>) -> Options {
    Options { gen_length: Some(32), top_logprobs: top, ..Options::default() }
}

/// `log softmax` of a row, in which the mask has its share.
fn logarithms(row: &[f32]) -> Vec<f64> {
    let logits: Vec<f64> = row.iter().copied().map(f64::from).collect();
    let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - best).exp()).sum();
    logits.iter().map(|logit| logit - best - sum.ln()).collect()
}

/// Compares what is told of a token with the row that predicted it.
fn compare(told: &TokenLogprob, row: &[f32], mask: Option<TokenId>) {
    let expected = logarithms(row);
    let near = |found: f32, token: TokenId| {
        let expected = expected[token as usize];
        assert!((f64::from(found) - expected).abs() < 2e-4, "token {token}: {found}, expected {expected}");
    };
    near(told.logprob.unwrap(), told.token);
    assert_eq!(told.top.len(), TOP);
    assert!(told.top.iter().all(|&(token, _)| Some(token) != mask));
    assert!(told.top.windows(2).all(|pair| pair[0].1 >= pair[1].1), "best first: {:?}", told.top);
    let allowed = (0..).zip(&expected).filter(|(token, _)| Some(*token) != mask);
    let mut order: Vec<f64> = allowed.map(|(_, &logarithm)| logarithm).collect();
    order.sort_by(|left, right| right.total_cmp(left));
    for (&(token, found), best) in told.top.iter().zip(order) {
        near(found, token);
        assert!((f64::from(found) - best).abs() < 2e-4, "{token} is none of the best");
    }
}

/// The raw logits of one forward.
fn inspect(model: &Model, tokens: &[TokenId], mask: Mask) -> Vec<f32> {
    let tokens = tokens.to_vec();
    model.with_network(move |network| network.inspect(&tokens, mask, false)).unwrap().unwrap().logits
}

/// An answer, and the canvas before each of its commits. The decoder takes one token a forward.
fn watched(model: &Model, prompt: &Prompt, options: &Options) -> (Generation, Vec<(Position, Vec<TokenId>)>) {
    let (mut canvas, mut before) = (Vec::new(), Vec::new());
    let answer = model
        .watch(prompt, options, &mut |event| {
            match event {
                Event::Started(started) => canvas.clone_from(&started.canvas),
                &Event::Commit { position, token, .. } => {
                    before.push((position, canvas.clone()));
                    canvas[position as usize] = token;
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (answer, before)
}

#[test]
fn static_decoding_tells_what_the_raw_logits_say() {
    // The last predicts a position in the row before it.
    for name in ["demo-llada", "demo-dream"] {
        let model = load(name);
        let (mask, shift) = (model.info().facts().mask_id, model.info().facts().shift as usize);
        let (answer, before) = watched(&model, &question(1), &options("static", "none", Some(TOP)));
        let told = answer.logprobs.unwrap();
        assert_eq!(told.iter().map(|one| one.token).collect::<Vec<_>>(), answer.tokens);
        let mut compared = 0;
        for (position, canvas) in before {
            let Some(told) = told.get(position as usize - answer.prompt_tokens) else { continue };
            let logits = inspect(&model, &canvas, Mask::Full);
            let vocabulary = logits.len() / canvas.len();
            let row = position as usize - shift;
            compare(told, &logits[row * vocabulary..(row + 1) * vocabulary], mask);
            compared += 1;
        }
        assert_eq!(compared, told.len(), "{name}");
    }
}

#[test]
fn autoregressive_decoding_tells_what_the_raw_logits_say() {
    let model = load("demo-qwen");
    let answer = model.generate_with(question(2), &ar(Some(TOP))).unwrap();
    let told = answer.logprobs.unwrap();
    let text: Vec<TokenId> = answer.canvas.iter().copied().take_while(|&token| token != NO_TOKEN).collect();
    let logits = inspect(&model, &text, Mask::Causal);
    let vocabulary = logits.len() / text.len();
    assert_eq!(told.len(), answer.tokens.len());
    for (index, told) in told.iter().enumerate() {
        let row = answer.prompt_tokens + index - 1;
        compare(told, &logits[row * vocabulary..(row + 1) * vocabulary], None);
    }
}

/// Each token is judged in the draft in which static decoding would have predicted it: to the bit the same.
#[test]
fn freedave_tells_what_static_decoding_does() {
    for (name, cache) in
        [("demo-llada", "none"), ("demo-llada", "dual"), ("demo-dream", "prefix"), ("demo-sdar", "block")]
    {
        let model = load(name);
        let block = |options: Options| match name {
            "demo-sdar" => Options { block_length: None, ..options },
            _ => options,
        };
        let expected = model.generate_with(question(4), &block(options("static", cache, Some(TOP)))).unwrap();
        assert!(expected.logprobs.iter().flatten().all(|told| told.logprob.is_some()), "{name}");
        for decoder in ["freedave:d=4", "freedave:d=4,mode=reference", "freedave:d=6,eager", "freedave"] {
            if decoder.ends_with("eager") && cache != "none" {
                continue;
            }
            let found = model.generate_with(question(4), &block(options(decoder, cache, Some(TOP)))).unwrap();
            assert_eq!(found.logprobs, expected.logprobs, "{name} {decoder} {cache}");
        }
    }
}

/// Decoder, cache, and model.
const METHODS: [(&str, &str, &str); 10] = [
    ("static", "dllm:prompt=9,response=3", "demo-llada"),
    ("threshold", "dual", "demo-llada"),
    ("factor", "prefix", "demo-dream"),
    ("entropy_bounded", "none", "demo-llada"),
    ("slowfast", "dual", "demo-llada"),
    ("freedave", "dkv:refresh=4", "demo-llada"),
    ("guided", "none", "demo-llada"),
    ("guided:match=topk", "dual", "demo-llada"),
    ("threshold", "block", "demo-sdar"),
    ("edit", "block", "demo-sdar"),
];

#[test]
fn no_answer_depends_on_what_is_told_of_it() {
    for (decoder, cache, name) in METHODS {
        let guides: &[_] = if decoder.starts_with("guided") { &[None] } else { &[] };
        let model = load_guided(name, guides);
        for (top, temperature) in [(0, None), (3, Some(0.7)), (20, None)] {
            let wanted =
                |top_logprobs| Options { temperature, block_length: None, ..options(decoder, cache, top_logprobs) };
            let plain = model.generate_with(question(3), &wanted(None)).unwrap();
            let told = model.generate_with(question(3), &wanted(Some(top))).unwrap();
            assert!(plain.logprobs.is_none());
            same(&told, &plain);
            let logprobs = told.logprobs.unwrap();
            assert_eq!(logprobs.len(), told.tokens.len(), "{decoder} {cache}");
            let mut known = 0;
            for one in &logprobs {
                let Some(own) = one.logprob else {
                    assert!(decoder.starts_with("guided"), "{decoder} {cache}: {one:?}");
                    continue;
                };
                known += 1;
                assert!(own <= 0.0 && one.top.len() <= top && one.top.iter().all(|best| best.1 <= 0.0));
                let listed = one.top.iter().find(|best| best.0 == one.token);
                assert!(listed.is_none_or(|best| best.1.to_bits() == own.to_bits()), "{decoder} {cache}: {one:?}");
                // Greedily, the token is the best one.
                assert!(temperature.is_some() || top == 0 || one.top[0].0 == one.token, "{decoder} {cache}: {one:?}");
            }
            assert!(known > 0, "{decoder} {cache}");
        }
    }
}

#[test]
fn what_was_not_predicted_has_no_log_probability() {
    let model = load("demo-llada");
    let filled =
        Options { stop_rule: Some("fill".parse().unwrap()), ignore_eos: None, ..options("static", "none", Some(2)) };
    let (mut told, mut commits) = (Vec::new(), Vec::new());
    model
        .watch(&question(1), &filled, &mut |event| {
            match *event {
                Event::Commit { position, .. } => commits.push(position),
                Event::Logprob { position, logprob, .. } => told.push((position, logprob.is_some())),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(told.iter().map(|&(position, _)| position).collect::<Vec<_>>(), commits);
    let known = told.iter().filter(|(_, known)| *known).count();
    assert!(known > 0 && known < told.len(), "{known} of {}", told.len());
    // Given tokens of an infilled text, too.
    let holes = Options { top_logprobs: Some(2), ..Options::default() };
    let answer = model.infill("Ada has <mask:1> pears and <mask:2> cards.", &holes).unwrap();
    let logprobs = answer.logprobs.unwrap();
    assert_eq!(logprobs.iter().filter(|one| one.logprob.is_some()).count(), 3);
}

#[test]
fn events_tell_what_the_answer_tells() {
    let model = load("demo-llada");
    let mut told = BTreeMap::new();
    let mut handle = model.stream(question(5), &options("freedave:d=4", "none", Some(4))).unwrap();
    for event in handle.by_ref() {
        if let Event::Logprob { position, logprob, top } = event {
            told.insert(position, (logprob, top));
        }
    }
    let answer = handle.result().unwrap();
    let logprobs = answer.logprobs.unwrap();
    assert!(!logprobs.is_empty() && told.len() >= logprobs.len(), "{told:?} of {logprobs:?}");
    for ((logprob, top), expected) in told.into_values().zip(logprobs) {
        assert_eq!((logprob, top), (expected.logprob, expected.top));
    }
}

#[test]
fn more_alternatives_than_there_may_be_are_refused() {
    let refused = Model::demo().unwrap().generate_with("Hello", &ar(Some(21))).unwrap_err();
    assert_eq!(refused.to_string(), "`top_logprobs` is 21, expected a whole number from 0 to 20");
    assert!(refused.is_usage());
}

/// Tokens of a text, and what each is likely to be behind those before it by the raw logits of one forward.
fn judged(model: &Model, text: &[TokenId]) -> Vec<Vec<f32>> {
    let logits = inspect(model, text, Mask::Causal);
    logits.chunks(logits.len() / text.len()).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_judged_text_tells_what_the_raw_logits_say() {
    let model = load("demo-qwen");
    let text = model.info().ids(&question(2)).unwrap();
    let rows = judged(&model, &text);
    let plain = LikelihoodOptions::default();
    let asked = LikelihoodOptions { top: Some(TOP), ..plain };
    for context in [1, 2, text.len() - 1] {
        let (before, behind) = text.split_at(context);
        let found = model.log_likelihood(before, behind, &asked).unwrap();
        assert_eq!((found.forwards, found.tokens, found.logprobs.len()), (1, behind.len(), behind.len()));
        for (index, (told, &token)) in found.logprobs.iter().zip(behind).enumerate() {
            assert_eq!(told.token, token);
            compare(told, &rows[context + index - 1], None);
            // Who compares a token with the best finds one number for both.
            let listed = told.top.iter().find(|best| best.0 == token);
            assert!(listed.is_none_or(|best| Some(best.1) == told.logprob), "{told:?}");
        }
        let sum: f64 = found.logprobs.iter().map(|told| f64::from(told.logprob.unwrap())).sum();
        assert_eq!(sum, found.log_probability);
        let without = model.log_likelihood(before, behind, &plain).unwrap();
        assert_eq!((without.log_probability, without.logprobs.len()), (found.log_probability, 0));
    }
}

#[test]
fn a_judged_text_may_fill_the_context() {
    let model = load("demo-qwen");
    let context = model.info().facts().context;
    let part = model.info().ids(&question(3)).unwrap();
    let text: Vec<TokenId> = part.iter().copied().cycle().take(context + 1).collect();
    let asked = LikelihoodOptions { top: Some(TOP), ..LikelihoodOptions::default() };
    let found = model.log_likelihood(&text[..1], &text[1..context], &asked).unwrap();
    let rows = judged(&model, &text[..context]);
    for (told, row) in found.logprobs.iter().zip(&rows) {
        compare(told, row, None);
    }
    assert_eq!(found.logprobs.len(), context - 1);
    let refused = model.log_likelihood(&text[..1], &text[1..], &asked).unwrap_err();
    assert!(matches!(refused, Error::TooLong { .. }), "{refused}");
}

#[test]
fn tokens_without_a_probability_of_their_own_are_refused() {
    let refused = |name: &str, top: usize| {
        let asked = LikelihoodOptions { top: Some(top), ..LikelihoodOptions::default() };
        load(name).log_likelihood(&[5, 6], &[7], &asked).unwrap_err()
    };
    for (name, top, told) in [
        ("demo-qwen", 21, "`top` is 21, expected a whole number from 0 to 20"),
        ("demo-llada", 1, "`top` has no meaning for the likelihood of models that are not autoregressive: omit it"),
    ] {
        let refused = refused(name, top);
        assert_eq!(refused.to_string(), told);
        assert!(refused.is_usage());
    }
}
