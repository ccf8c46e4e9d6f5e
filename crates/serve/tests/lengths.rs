//! Lengths of answers: a client's bound sets no canvas, a canvas is asked for by its name, and what was cut says so.

use demask::{Options, Prompt};
use demask_serve::{Limits, ServiceConfig};
use serde_json::{Value, json};

use crate::{
    common::{Kind, json, load, made, post, serve, shared},
    contract::with,
};

const CHAT: &str = "/v1/chat/completions";
const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn ask(kind: Kind, more: &Value) -> Value {
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "seed": 3, "return_token_ids": true,
        "diffusion": {"receipt": true}});
    made(post(&shared(kind).service, CHAT, &with(body, more)))
}

fn tokens(answer: &Value) -> Vec<u32> {
    serde_json::from_value(answer["choices"][0]["token_ids"].clone()).unwrap()
}

#[test]
fn a_client_s_habit_of_4096_tokens_changes_no_answer() {
    for kind in [Kind::Llada, Kind::Sdar, Kind::Qwen] {
        let expected = tokens(&ask(kind, &json!({"max_tokens": 64})));
        let usual = tokens(&ask(kind, &json!({})));
        for field in ["max_tokens", "max_completion_tokens"] {
            for most in [128, 1000, 4096] {
                let answer = ask(kind, &json!({field: most}));
                assert_eq!(tokens(&answer), expected, "{kind:?} {field} {most}");
                assert_eq!(answer["choices"][0]["finish_reason"], "stop");
            }
        }
        assert_eq!(usual, expected, "{kind:?}");
    }
}

#[test]
fn a_canvas_is_as_long_as_it_is_asked_for_and_the_answer_as_its_bound() {
    let model = load(Kind::Llada);
    for (length, most) in [(128, 4096), (128, 10), (32, 64), (16, 16)] {
        let options = Options { gen_length: Some(length), seed: Some(3), ..Options::default() };
        let alone = model.generate_with(Prompt::user(QUESTION, None), &options).unwrap();
        for asked in [json!({"gen_length": length}), json!({"diffusion": {"gen_length": length, "receipt": true}})] {
            let answer = ask(Kind::Llada, &with(json!({"max_tokens": most}), &asked));
            assert_eq!(tokens(&answer), alone.tokens[..alone.tokens.len().min(most)], "{length} {most}");
        }
    }
    // A bound below the recommended length is the canvas, as it was asked for.
    let options = Options { gen_length: Some(32), seed: Some(3), ..Options::default() };
    let alone = model.generate_with(Prompt::user(QUESTION, None), &options).unwrap();
    assert_eq!(tokens(&ask(Kind::Llada, &json!({"max_tokens": 32}))), alone.tokens);
}

#[test]
fn an_answer_that_fills_its_canvas_says_length_and_how_to_ask_for_more() {
    let filled = |kind: Kind, more: &Value| {
        let answer = ask(kind, &with(json!({"ignore_eos": true}), more));
        assert_eq!(answer["choices"][0]["finish_reason"], "length", "{more}");
        let more = answer["diffusion"]["receipt"]["more"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (answer["usage"]["completion_tokens"].as_u64().unwrap(), more)
    };
    let (length, more) = filled(Kind::Llada, &json!({"max_tokens": 4096}));
    assert_eq!(length, 64);
    assert!(
        more.contains("64 positions that are recommended") && more.contains("set `diffusion.gen_length`"),
        "{more}"
    );
    let (length, more) = filled(Kind::Llada, &json!({"max_completion_tokens": 8}));
    assert!(length == 8 && more.contains("raise `max_completion_tokens`"), "{more}");
    let (length, more) = filled(Kind::Llada, &json!({"gen_length": 96}));
    assert!(length == 96 && more.contains("raise `gen_length`"), "{more}");
    let (length, more) = filled(Kind::Sdar, &json!({"max_tokens": 12}));
    assert!(length == 12 && more.contains("raise `max_tokens`"), "{more}");
    // One that ended by itself has nothing to say.
    assert_eq!(ask(Kind::Llada, &json!({}))["diffusion"]["receipt"].get("more"), None);
}

#[test]
fn a_causal_answer_is_not_cut_at_128_tokens() {
    let body = json!({"prompt": "Ada has", "ignore_eos": true, "diffusion": {"receipt": true}});
    let answer = made(post(&shared(Kind::Qwen).service, "/v1/completions", &body));
    let (prompt, made_) = (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]);
    assert_eq!(prompt.as_u64().unwrap() + made_.as_u64().unwrap(), 1024, "up to the context");
    let more = answer["diffusion"]["receipt"]["more"].as_str().unwrap();
    assert!(more.contains("where the context ends"), "{more}");
    // Up to the server's cap, where that is less; a bound beyond the context is one all the same.
    let limits = Limits { gen_length: 200, ..Limits::default() };
    let served = serve(Kind::Qwen, ServiceConfig { limits, ..ServiceConfig::default() });
    let length =
        |body: &Value| made(post(&served.service, "/v1/completions", body))["usage"]["completion_tokens"].clone();
    assert_eq!(length(&body), json!(200));
    assert_eq!(length(&with(body, &json!({"max_tokens": 150}))), json!(150));
}

#[test]
fn errors_about_the_context_name_the_field_that_was_sent() {
    let service = &shared(Kind::Llada).service;
    let told = |path: &str, body: &Value| {
        let (status, body) = json(post(service, path, body));
        assert_eq!((status, &body["error"]["code"]), (400, &json!("context_length_exceeded")), "{body}");
        let of = |name: &str| body["error"][name].as_str().unwrap().to_owned();
        (of("param"), of("message"))
    };
    let (long, near) = (vec![5; 1100], vec![5; 1000]);
    for field in ["max_tokens", "max_completion_tokens"] {
        let (param, message) = told("/v1/completions", &json!({"prompt": long, field: 5}));
        assert!(param == "prompt" && message.contains(&format!("`{field}`")), "{param}: {message}");
    }
    for (field, body) in [
        ("gen_length", json!({"prompt": near, "gen_length": 64})),
        ("diffusion.gen_length", json!({"prompt": near, "diffusion": {"gen_length": 64}})),
    ] {
        let (param, message) = told("/v1/completions", &body);
        assert!(param == field && message.ends_with(&format!("shorten the prompt or lower `{field}`")), "{message}");
    }
    let text = "Ada has 3 pears. ".repeat(400);
    let (param, message) = told("/infill", &json!({"input_prefix": text, "n_predict": 5}));
    assert!(param == "input_prefix" && message.contains("`n_predict`"), "{param}: {message}");
    let (_, message) = told("/v1/completions", &json!({"prompt": long}));
    assert!(message.ends_with("shorten the prompt or lower `diffusion.gen_length`"), "{message}");
    // A bound that the context makes smaller is no error.
    let body = json!({"prompt": near, "max_tokens": 64, "ignore_eos": true});
    assert_eq!(made(post(service, "/v1/completions", &body))["usage"]["completion_tokens"], json!(24));
}

#[test]
fn a_hole_of_at_most_4096_tokens_is_no_longer_than_the_model_is_made_for() {
    let service = &shared(Kind::Llada).service;
    let length = |path: &str, body: Value| made(post(service, path, &body))["usage"]["completion_tokens"].clone();
    let fim = json!({"prompt": "Ada has ", "suffix": " pears."});
    for (more, expected) in [
        (json!({}), 32),
        (json!({"max_tokens": 5}), 5),
        (json!({"max_tokens": 4096}), 64),
        (json!({"max_tokens": 4096, "diffusion": {"gen_length": 70}}), 70),
    ] {
        assert_eq!(length("/v1/fim/completions", with(fim.clone(), &more)), json!(expected), "{more}");
        assert_eq!(length("/v1/completions", with(fim.clone(), &more)), json!(expected), "{more}");
    }
    let plain = json!({"input_prefix": "Ada has ", "input_suffix": " pears."});
    for (most, expected) in [(json!(-1), 32), (json!(0), 32), (json!(4.0), 4), (json!(4096), 64)] {
        assert_eq!(length("/infill", with(plain.clone(), &json!({"n_predict": most}))), json!(expected), "{most}");
    }
    let (status, body) = json(post(service, "/infill", &with(plain, &json!({"n_predict": 5.5}))));
    assert_eq!((status, &body["error"]["param"]), (400, &json!("n_predict")), "{body}");
    let holes = |hole: Value| json!({"segments": ["Ada has ", {"hole": hole}, " pears."]});
    assert_eq!(length("/v1/infill", holes(json!({"tokens": 70}))), json!(70));
    assert_eq!(length("/v1/infill", holes(json!({"max_tokens": 4096}))), json!(64));
}
