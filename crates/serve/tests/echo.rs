//! `echo` with `logprobs`: an autoregressive model tells each prompt token's log-probability, as harnesses want it.

use demask::{Mask, Model, TokenId};
use demask_serve::{Limits, ServiceConfig};
use serde_json::{Value, json};

use crate::common::{Kind, json, load, made, post, serve, shared};

const PATH: &str = "/v1/completions";
const TEXT: &str = "Ada has 3 pears. Ben gives Ada 4 more.";

/// A request as lm-eval sends it, with other fields in place of its own.
fn asked(more: &Value) -> Value {
    let mut body = json!({"temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": true, "seed": 1234});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn answered(more: &Value) -> Value {
    made(post(&shared(Kind::Qwen).service, PATH, &asked(more)))
}

fn ids(text: &str) -> Vec<TokenId> {
    shared(Kind::Qwen).handle.info().tokenizer().unwrap().encode(text, true).unwrap()
}

fn spelled(token: TokenId) -> String {
    shared(Kind::Qwen).handle.info().tokenizer().unwrap().decode(&[token], false)
}

/// `log softmax` of each row of a text's raw logits.
fn logarithms(model: &mut Model, text: &[TokenId]) -> Vec<Vec<f64>> {
    let copy = text.to_vec();
    let inspected = model.with_network(move |network| network.inspect(&copy, Mask::Causal, false));
    let logits = inspected.unwrap().unwrap().logits;
    let row = |row: &[f32]| {
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from(logit - best).exp()).sum();
        row.iter().map(|logit| f64::from(logit - best) - sum.ln()).collect()
    };
    logits.chunks(logits.len() / text.len()).map(row).collect()
}

fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() < 2e-4, "{found}, expected {expected}");
}

/// Compares a choice's log-probabilities with the raw logits of its prompt and what was generated behind it.
fn compare(choice: &Value, prompt: &[TokenId], generated: usize, top: usize) {
    let told = &choice["logprobs"];
    let list = |name: &str| told[name].as_array().unwrap().clone();
    let (tokens, values, best, offsets) =
        (list("tokens"), list("token_logprobs"), list("top_logprobs"), list("text_offset"));
    assert_eq!([tokens.len(), values.len(), best.len(), offsets.len()], [prompt.len() + generated; 4]);
    let rows = logarithms(&mut load(Kind::Qwen), prompt);
    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    for (index, token) in tokens.iter().enumerate() {
        let token = token.as_str().unwrap();
        if !token.contains(char::REPLACEMENT_CHARACTER) {
            let start = offsets[index].as_u64().unwrap() as usize;
            let end = (start + token.chars().count()).min(text.len());
            // The end token has a place, and no text.
            let shown = text[start..end].iter().collect::<String>();
            assert!(shown == token || index >= prompt.len() && shown.is_empty(), "{token:?} at {start}");
        }
        if let Some(&id) = prompt.get(index) {
            assert_eq!(token, spelled(id));
        }
        if index == 0 {
            assert_eq!((&values[0], &best[0]), (&Value::Null, &json!({})));
            continue;
        }
        let row = &rows[index - 1];
        let own =
            prompt.get(index).map_or_else(|| row.iter().copied().fold(f64::MIN, f64::max), |&id| row[id as usize]);
        near(&values[index], own);
        let mut order = row.clone();
        order.sort_by(|left, right| right.total_cmp(left));
        let best = best[index].as_object().unwrap();
        assert!(best.len() <= top && (best.len() == top || top > 1));
        if top > 0 {
            let most = best.values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max);
            assert!((most - order[0]).abs() < 2e-4, "{most}, expected {}", order[0]);
        }
        // What a harness finds out so must be exact: whether the token is the one that greedy decoding takes.
        // Parts of letters all look the same.
        if let Some(listed) = best.get(token).filter(|_| !token.contains(char::REPLACEMENT_CHARACTER)) {
            assert_eq!(listed, &values[index], "{token:?}");
        }
    }
}

#[test]
fn each_prompt_token_is_told_with_its_log_probability() {
    let tokens = ids(TEXT);
    for (prompt, top) in [(json!(TEXT), 1), (json!(tokens), 1), (json!(tokens), 0), (json!(TEXT), 5)] {
        let body = answered(&json!({"prompt": prompt, "logprobs": top}));
        let choice = &body["choices"][0];
        assert!(choice["text"].as_str().unwrap().starts_with(TEXT));
        compare(choice, &tokens, 1, top);
        assert_eq!(body["usage"]["prompt_tokens"], json!(tokens.len()));
        assert_eq!(body["usage"]["completion_tokens"], json!(1));
    }
}

#[test]
fn several_prompts_and_answers_each_have_their_own() {
    // The last has letters of several tokens each.
    let texts = [TEXT, "Ben", "Ada: \u{e9}\u{20ac}\u{1f350}, two of them"];
    let prompts: Vec<Vec<TokenId>> = texts.iter().map(|text| ids(text)).collect();
    assert!(prompts[2].iter().any(|&token| spelled(token).contains(char::REPLACEMENT_CHARACTER)));
    let body = answered(&json!({"prompt": prompts, "n": 2, "max_tokens": 6, "logprobs": 2}));
    assert_eq!(body["choices"].as_array().unwrap().len(), 6);
    for (index, choice) in body["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["index"], json!(index));
        let (prompt, text) = (&prompts[index / 2], choice["text"].as_str().unwrap());
        assert!(text.starts_with(texts[index / 2]), "{text:?}");
        let all = choice["logprobs"]["tokens"].as_array().unwrap().len();
        let mut whole = prompt.clone();
        let again = answered(&json!({"prompt": prompt, "max_tokens": 6, "echo": false, "return_token_ids": true}));
        whole.extend(again["choices"][0]["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32));
        assert_eq!(all, whole.len());
        // What was generated is judged as the same text in a prompt is.
        compare(choice, &whole, 0, 2);
    }
}

#[test]
fn nothing_is_generated_where_only_the_prompt_is_judged() {
    let tokens = ids(TEXT);
    let body = answered(&json!({"prompt": [tokens.clone(), ids("Ben")], "max_tokens": 0}));
    let choices = body["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| &choice["text"]).collect::<Vec<_>>(), [TEXT, "Ben"]);
    compare(&choices[0], &tokens, 0, 1);
    compare(&choices[1], &ids("Ben"), 0, 1);
    assert_eq!(choices[0]["finish_reason"], "length");
    let prompt = tokens.len() + ids("Ben").len();
    assert_eq!(body["usage"]["total_tokens"], json!(prompt));
    // The same as where a token is generated behind it.
    let beside = answered(&json!({"prompt": tokens}));
    let values = |choice: &Value| choice["logprobs"]["token_logprobs"].as_array().unwrap()[..tokens.len()].to_vec();
    assert_eq!(values(&choices[0]), values(&beside["choices"][0]));
    // Their sum is what /v1/score says.
    let score = json!({"context": &tokens[..1], "continuation": &tokens[1..]});
    let score = made(post(&shared(Kind::Qwen).service, "/v1/score", &score));
    let sum: f64 = values(&choices[0]).iter().filter_map(Value::as_f64).sum();
    near(&score["data"][0]["log_probability"], sum);
    // As often as answers are asked for; a prompt of one token has nothing before it.
    let body = answered(&json!({"prompt": &tokens[..1], "max_tokens": 0, "n": 2}));
    assert_eq!(body["choices"][1]["logprobs"]["token_logprobs"], json!([null]));
    assert_eq!(body["usage"]["prompt_tokens"], json!(1));
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let refused = |kind: Kind, more: &Value, param: &str, told: &str| {
        let (status, body) = json(post(&shared(kind).service, PATH, &asked(more)));
        let error = &body["error"];
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{more}: {body}");
        assert!(error["message"].as_str().unwrap().contains(told), "{more}: {body}");
    };
    for more in [json!({}), json!({"max_tokens": 0}), json!({"stream": true})] {
        let mut more = more;
        more["prompt"] = json!(TEXT);
        refused(Kind::Llada, &more, "echo", "/v1/score");
    }
    for (more, param, told) in [
        (json!({"stream": true}), "stream", "set it to false"),
        (json!({"max_tokens": 0, "max_completion_tokens": 4}), "max_tokens", "omit one"),
        (json!({"max_tokens": 0, "diffusion": {"gen_length": 4}}), "max_tokens", "omit one"),
        (json!({"max_tokens": 0, "echo": false}), "max_tokens", "from 1 to"),
        (json!({"max_tokens": 0, "logprobs": null}), "max_tokens", "from 1 to"),
        (json!({"max_tokens": 0, "prompt": ""}), "prompt", "is empty"),
        (json!({"max_tokens": 0, "prompt": vec![5; 1025]}), "prompt", "has 1025 tokens, expected at most 1024"),
        (json!({"prompt": vec![5; 1024]}), "prompt", "1024"),
    ] {
        let mut more = more;
        if more.get("prompt").is_none() {
            more["prompt"] = json!(TEXT);
        }
        refused(Kind::Qwen, &more, param, told);
    }
    let (status, body) = json(post(&shared(Kind::Qwen).service, PATH, &asked(&json!({"prompt": [5, 487]}))));
    assert_eq!(status, 400, "{body}");
}

#[test]
fn judged_prompts_take_places() {
    let limits = Limits { places: 3, ..Limits::default() };
    let served = serve(Kind::Qwen, ServiceConfig { limits, ..ServiceConfig::default() });
    let status = |more: &Value| json(post(&served.service, PATH, &asked(more))).0;
    assert_eq!(status(&json!({"prompt": [TEXT, TEXT]})), 400);
    assert_eq!(status(&json!({"prompt": [TEXT, TEXT], "max_tokens": 0})), 200);
    assert_eq!(status(&json!({"prompt": TEXT, "n": 2})), 200);
}
