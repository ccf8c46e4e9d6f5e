//! Answers in company: each is, token by token, the one that the library gives alone, whoever comes and goes beside it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    thread,
};

use demask::{Generation, Model, Options, Prompt, Segment, Settings};
use demask_serve::{Limits, Service, ServiceConfig};
use serde_json::{Map, Value, json};

use crate::{
    common::{
        Events, Kind, Reply, Served, load, made, messages, nothing_left, poll_once, post, read, serve, stream, text_of,
        until, wait,
    },
    contract::with,
};

/// A request, and what the library is asked for the same.
struct Case {
    path: &'static str,
    body: Value,
    prompts: Vec<Prompt>,
    options: Options,
    choices: usize,
}

fn question(index: usize) -> String {
    let counted = ["pears", "cards", "boxes of old books"][index % 3];
    format!("Ada has {} {counted}. Ben gives Ada {} more. How many in the end?", 3 + index % 5, 2 + index % 4)
}

/// Requests that differ in everything that a request may ask.
fn case(kind: Kind, index: usize) -> Case {
    let length = [16, 24, 32][index % 3];
    let seed = 100 + index as u64;
    let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.7 };
    let mut options =
        Options { seed: Some(seed), gen_length: Some(length), temperature: Some(temperature), ..Options::default() };
    let mut nested = Map::new();
    match (kind, index % 6) {
        (Kind::Llada, 1) => set(&mut nested, &mut options, &json!({"decoder": "threshold:tau=0.9", "cache": "dual"})),
        (Kind::Llada, 2) => set(&mut nested, &mut options, &json!({"steps": length / 2, "block_length": 8})),
        (Kind::Llada, 3) => set(&mut nested, &mut options, &json!({"decoder": "guided", "guide": "small"})),
        (Kind::Llada, 4) => set(&mut nested, &mut options, &json!({"cache": "prefix", "block_length": 8})),
        (Kind::Sdar, 1 | 4) => set(&mut nested, &mut options, &json!({"decoder": "threshold:tau=0.95"})),
        _ => {}
    }
    let mut body = json!({"seed": seed, "temperature": temperature, "diffusion": nested, "return_token_ids": true});
    if index % 5 == 4 {
        body["stop"] = json!(["=", "final"]);
        options.stop = Some(vec!["=".to_owned(), "final".to_owned()]);
    }
    let text = question(index);
    if kind == Kind::Llada && index % 7 == 5 {
        options.gen_length = None;
        options.stop = None;
        let (before, behind) = text.split_at(text.find(" more").unwrap());
        let segments = vec![Segment::Text(before.into()), Segment::Hole(3), Segment::Text(behind.into())];
        let body = with(body, &json!({"segments": [before, {"hole": {"tokens": 3}}, behind], "stop": null}));
        return Case { path: "/v1/infill", body, prompts: vec![Prompt::Segments(segments)], options, choices: 1 };
    }
    body["max_tokens"] = json!(length);
    let choices = 1 + index % 3;
    body["n"] = json!(choices);
    if index % 4 == 3 {
        let texts = [text.clone(), "Ada has".to_owned()];
        let prompts = texts.iter().cloned().map(Prompt::Raw).collect();
        return Case {
            path: "/v1/completions",
            body: with(body, &json!({"prompt": texts})),
            prompts,
            options,
            choices,
        };
    }
    let body = with(body, &json!({"messages": [{"role": "user", "content": text}]}));
    Case { path: "/v1/chat/completions", body, prompts: vec![Prompt::user(text, None)], options, choices }
}

fn set(nested: &mut Map<String, Value>, options: &mut Options, wanted: &Value) {
    for (name, value) in wanted.as_object().unwrap() {
        nested.insert(name.clone(), value.clone());
        options.set_json(name, value.clone()).unwrap();
    }
}

/// What the library answers alone, in the order of a request's choices.
fn alone(model: &mut Model, case: &Case) -> Vec<Generation> {
    let seeds = |choice: usize| Some(case.options.seed.unwrap() + choice as u64);
    let asked = case.prompts.iter().flat_map(|prompt| (0..case.choices).map(move |choice| (prompt, choice)));
    let asked: Vec<_> = asked.collect();
    let one = |(prompt, choice): (&Prompt, usize)| {
        let options = Options { seed: seeds(choice), ..case.options.clone() };
        model.generate_with(prompt.clone(), &options).unwrap()
    };
    asked.into_iter().map(one).collect()
}

/// The tokens that were decoded: of a text with holes those in the holes.
fn decoded(answer: &Generation) -> Vec<u32> {
    let holes = answer.hole_positions.iter().flat_map(|hole| &answer.canvas[hole.clone()]).copied();
    if answer.hole_positions.is_empty() { answer.tokens.clone() } else { holes.collect() }
}

/// Compares a body with what the library answered.
fn same(body: &Value, expected: &[Generation], what: &str) {
    let finish = |answer: &Generation| if format!("{:?}", answer.finish) == "Length" { "length" } else { "stop" };
    let Some(choices) = body["choices"].as_array() else {
        assert_eq!(body["text"].as_str(), expected[0].text.as_deref(), "{what}");
        assert_eq!(body["holes"], json!(expected[0].holes), "{what}");
        assert_eq!(body["token_ids"], json!(decoded(&expected[0])), "{what}");
        return;
    };
    assert_eq!(choices.len(), expected.len(), "{what}");
    for (index, (choice, answer)) in choices.iter().zip(expected).enumerate() {
        let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
        assert_eq!(text, answer.text.as_deref(), "{what}: choice {index}");
        assert_eq!(choice["token_ids"], json!(answer.tokens), "{what}: choice {index}");
        assert_eq!(choice["finish_reason"], finish(answer), "{what}: choice {index}");
        assert_eq!(choice["diffusion"]["nfe"], json!(answer.receipt.decoding.nfe), "{what}: choice {index}");
        assert_eq!(choice["index"], json!(index));
    }
}

/// Asks for a case: as a body, as a stream, or as a stream that is given up.
fn ask(service: &Service, case: &Case, expected: &[Generation], index: usize, round: usize) {
    let what = format!("request {index}: {}", case.body);
    match (index + round) % 3 {
        0 => same(&made(post(service, case.path, &case.body)), expected, &what),
        1 => {
            let frames = json!({"stream": true, "diffusion": {"frames": "commits"}});
            let mut stream = stream(post(service, case.path, &with(case.body.clone(), &frames)));
            let messages = messages(&read(&mut stream));
            for (choice, answer) in expected.iter().enumerate() {
                let text = if answer.holes.is_empty() { answer.text.clone().unwrap() } else { answer.holes.concat() };
                assert_eq!(text_of(&messages, choice), text, "{what}: choice {choice}");
                let choices = messages.iter().flat_map(|message| message["choices"].as_array().unwrap());
                let ids = choices.filter(|one| one["index"] == choice).find_map(|one| one.get("token_ids"));
                assert_eq!(ids, Some(&json!(decoded(answer))), "{what}: choice {choice}");
            }
        }
        _ => give_up(service, case, index + round),
    }
}

/// Asks, reads so many pieces, and leaves.
fn give_up(service: &Service, case: &Case, pieces: usize) {
    if pieces.is_multiple_of(2) {
        drop(post(service, case.path, &case.body));
        return;
    }
    let mut stream = stream(post(service, case.path, &with(case.body.clone(), &json!({"stream": true}))));
    for _ in 0..pieces % 5 {
        if wait(|context| stream.poll(context)).is_none() {
            return;
        }
    }
}

fn in_company(kind: Kind, count: usize) {
    let cases: Vec<Case> = (0..count).map(|index| case(kind, index)).collect();
    let mut model = load(kind);
    let expected: Vec<_> = cases.iter().map(|case| alone(&mut model, case)).collect();
    let limits = Limits { places: 64, ..Limits::default() };
    let served = serve(kind, ServiceConfig { limits, ..ServiceConfig::default() });
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    // Each comes in each of its three ways.
                    if turn >= 3 * count {
                        return;
                    }
                    ask(&served.service, &cases[turn % count], &expected[turn % count], turn % count, turn / count);
                }
            });
        }
    });
    nothing_left(&served);
}

#[test]
fn full_attention_in_company() {
    in_company(Kind::Llada, 24);
}

#[test]
fn block_diffusion_in_company() {
    in_company(Kind::Sdar, 12);
}

#[test]
fn left_to_right_in_company() {
    in_company(Kind::Qwen, 12);
}

#[test]
fn scores_in_company_are_those_of_the_library() {
    let model = load(Kind::Llada);
    let served = serve(Kind::Llada, ServiceConfig::default());
    let pairs: Vec<(String, &str)> = (0..6).map(|index| (question(index), [" 7", " 3+4=7"][index % 2])).collect();
    let options = demask::LikelihoodOptions { draws: 4, seed: 5, ..demask::LikelihoodOptions::default() };
    let expected: Vec<f64> = pairs
        .iter()
        .map(|(context, continuation)| {
            let (context, continuation) = model.info().pair(&Prompt::Raw(context.clone()), continuation).unwrap();
            model.log_likelihood(&context, &continuation, &options).unwrap().log_probability
        })
        .collect();
    let (contexts, continuations): (Vec<_>, Vec<_>) = pairs.iter().map(|(left, right)| (left.as_str(), *right)).unzip();
    let body = json!({"context": contexts, "continuation": continuations, "draws": 4, "seed": 5});
    // Beside it, others come and go.
    let busy: Vec<Reply> = (0..4)
        .map(|index| {
            let case = case(Kind::Llada, index);
            post(&served.service, case.path, &with(case.body, &json!({"stream": true})))
        })
        .collect();
    let found = made(post(&served.service, "/v1/score", &body));
    drop(busy);
    for (index, (entry, expected)) in found["data"].as_array().unwrap().iter().zip(&expected).enumerate() {
        assert_eq!((&entry["index"], entry["bound"].as_bool()), (&json!(index), Some(true)));
        // JSON is read to the last digit but one.
        let found = entry["log_probability"].as_f64().unwrap();
        assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} is not {expected}");
    }
    nothing_left(&served);
}

#[test]
fn decisions_in_company_are_those_of_the_library() {
    for kind in [Kind::Llada, Kind::Sdar, Kind::Qwen] {
        let (model, served) = (load(kind), serve(kind, ServiceConfig::default()));
        let questions = json!([
            {"type": "choice", "name": "sum", "instructions": "The final answer is", "choices": ["7", "12", "105"]},
            {"type": "score", "instructions": "How many?", "min": 1, "max": 12},
            {"type": "predicate", "instructions": "Is it 7?"},
        ]);
        let list = demask::Question::list(&questions).unwrap();
        // Beside them, others come and go.
        let busy: Vec<Reply> = (0..4)
            .map(|index| {
                let case = case(kind, index);
                post(&served.service, case.path, &with(case.body, &json!({"stream": true})))
            })
            .collect();
        for index in 0..4 {
            let found = made(post(
                &served.service,
                "/v1/decisions",
                &json!({"input": question(index), "questions": questions}),
            ));
            let expected = model.decide(question(index), &list).unwrap();
            assert_eq!(found["usage"]["input_tokens"], expected.input_tokens);
            for ((asked, expected), found) in
                list.iter().zip(&expected.answers).zip(found["answers"].as_array().unwrap())
            {
                let expected: Value = serde_json::from_str(&asked.answer(expected).to_string()).unwrap();
                assert_eq!(*found, expected, "{kind:?} {index}");
            }
        }
        drop(busy);
        nothing_left(&served);
    }
}

/// Polls a stream until something comes of it, and leaves it.
fn started(served: &Served, body: &Value) -> Events {
    let mut stream = stream(post(&served.service, "/v1/chat/completions", body));
    wait(|context| stream.poll(context));
    stream
}

#[test]
fn a_request_that_is_left_is_cancelled_within_a_forward() {
    let served = serve(Kind::Llada, ServiceConfig::default());
    let body = json!({"messages": [{"role": "user", "content": question(1)}], "gen_length": 384, "stream": true, "n": 4,
        "ignore_eos": true, "diffusion": {"frames": "commits", "cache": "none"}});
    for _ in 0..5 {
        let reply = started(&served, &body);
        let before = served.handle.counters().totals.forwards;
        drop(reply);
        nothing_left(&served);
        let after = served.handle.counters().totals.forwards;
        // The one under way, and one that may have begun before the word came.
        assert!(after - before <= 3, "{} forwards", after - before);
    }
}

#[test]
fn deadlines_end_answers_and_wait_for_nobody() {
    let served = serve(Kind::Llada, ServiceConfig::default());
    let body = json!({"messages": [{"role": "user", "content": question(1)}], "gen_length": 384, "ignore_eos": true,
        "diffusion": {"deadline_ms": 150, "cache": "none", "receipt": true}});
    let whole = made(post(&served.service, "/v1/chat/completions", &body));
    let choice = &whole["choices"][0];
    assert_eq!((choice["finish_reason"].as_str(), choice["stop_reason"].as_str()), (Some("length"), Some("deadline")));
    assert!(whole["diffusion"]["receipt"]["given_up"].as_u64().unwrap() > 0, "{}", whole["diffusion"]);
    nothing_left(&served);
}

#[test]
fn an_engine_that_ends_ends_its_streams() {
    let model = load(Kind::Llada);
    let service = Service::new(&model, ServiceConfig::default());
    let body = json!({"messages": [{"role": "user", "content": question(1)}], "gen_length": 384, "ignore_eos": true,
        "diffusion": {"cache": "none"}});
    let mut running = stream(post(&service, "/v1/chat/completions", &with(body.clone(), &json!({"stream": true}))));
    let waiting = post(&service, "/v1/chat/completions", &body);
    model.shut_down();
    let text = read(&mut running);
    let last = messages(&text).pop().unwrap();
    assert_eq!(last["error"]["code"], "shutting_down", "{text}");
    assert!(matches!(poll_once(|context| running.poll(context)), Poll::Ready(None)), "nothing follows");
    assert_eq!(waiting.response().status(), 503);
    drop(running);
    until("places are taken", || !service.is_busy());
    let (status, health) = crate::common::json(crate::common::send(&service, "GET", "/health", &[], b""));
    assert_eq!((status, &health["error"]["code"]), (503, &json!("engine_ended")));
    assert_eq!(crate::common::json(post(&service, "/v1/chat/completions", &body)).0, 503);
}
