//! `max_tokens` is a promise: where whole blocks need a longer canvas, the answer is trimmed to it.

use demask::{Options, Prompt};
use serde_json::json;

use crate::{
    common::{Kind, counts, json, load, made, messages, post, read, shared, stream, text_of},
    contract::with,
};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

#[test]
fn a_canvas_of_whole_blocks_is_trimmed() {
    let model = load(Kind::Llada);
    let service = &shared(Kind::Llada).service;
    for (most, block, canvas) in [(1, 16, 16), (5, 8, 8), (13, 8, 16), (20, 16, 32), (16, 16, 16)] {
        let body = json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": most, "seed": 3,
            "return_token_ids": true, "logprobs": true, "diffusion": {"block_length": block, "receipt": true}});
        let whole = made(post(service, "/v1/chat/completions", &body));
        let choice = &whole["choices"][0];
        // What the library decodes on the canvas that was rounded up, cut off.
        let options =
            Options { gen_length: Some(canvas), block_length: Some(block), seed: Some(3), ..Options::default() };
        let alone = model.generate_with(Prompt::user(QUESTION, None), &options).unwrap();
        let tokens: Vec<u64> =
            choice["token_ids"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect();
        let most = most.min(alone.tokens.len());
        let finish = if most < alone.tokens.len() || alone.end_token.is_none() { "length" } else { "stop" };
        let expected: Vec<u64> = alone.tokens[..most].iter().map(|&token| u64::from(token)).collect();
        assert_eq!(tokens, expected, "{most} of {canvas}");
        assert_eq!(whole["usage"]["completion_tokens"], json!(most));
        assert_eq!(choice["finish_reason"], finish);
        assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), most);
        let text = model.info().tokenizer().unwrap().decode(&alone.tokens[..most], true);
        assert_eq!(choice["message"]["content"], json!(text));
        // The same as a stream.
        let body = with(body, &json!({"stream": true, "stream_options": {"include_usage": true}}));
        let messages = messages(&read(&mut stream(post(service, "/v1/chat/completions", &body))));
        assert_eq!(text_of(&messages, 0), text);
        assert_eq!(counts(&messages.last().unwrap()["usage"]), counts(&whole["usage"]));
        let (last, _) = messages[..messages.len() - 1].split_last().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], finish);
        assert_eq!(last["choices"][0]["token_ids"], choice["token_ids"]);
    }
}

#[test]
fn what_nobody_gets_is_not_decoded() {
    // Blocks are decoded from left to right: once the first tokens are settled, nothing behind them is asked for.
    let service = &shared(Kind::Llada).service;
    let forwards = |most: usize, block: usize| {
        let body = json!({"prompt": "Ada has", "max_tokens": most, "seed": 3, "ignore_eos": true,
            "diffusion": {"block_length": block, "decoder": "static"}});
        made(post(service, "/v1/completions", &body))["choices"][0]["diffusion"]["nfe"].as_u64().unwrap()
    };
    assert!(forwards(17, 16) <= 32, "two blocks");
    assert!(forwards(1, 16) <= 16);
    assert_eq!(forwards(16, 16), 16);
}

#[test]
fn an_end_before_the_bound_ends_it() {
    let service = &shared(Kind::Llada).service;
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60, "seed": 3,
        "diffusion": {"block_length": 16}});
    let whole = made(post(service, "/v1/chat/completions", &body));
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert!(whole["usage"]["completion_tokens"].as_u64().unwrap() < 60);
}

#[test]
fn the_canvas_has_a_cap_of_its_own() {
    let service = &shared(Kind::Llada).service;
    let body = json!({"prompt": "Ada has", "max_tokens": 5, "diffusion": {"block_length": 8192}});
    let (status, body) = json(post(service, "/v1/completions", &body));
    assert_eq!((status, &body["error"]["param"]), (400, &json!("diffusion.block_length")));
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("8192") && message.contains("4096"), "{message}");
    // A canvas of exactly this length that blocks do not divide is the library's to refuse.
    let body = json!({"prompt": "Ada has", "diffusion": {"gen_length": 20, "block_length": 16}});
    let (status, body) = json(post(service, "/v1/completions", &body));
    assert_eq!(status, 400, "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("does not divide"));
}

#[test]
fn other_families_keep_the_promise_too() {
    for (kind, diffusion) in [(Kind::Sdar, json!({"block_length": 4})), (Kind::Qwen, json!({}))] {
        for most in [1, 3, 5, 8] {
            let body = json!({"prompt": "Ada has 3 pears.", "max_tokens": most, "ignore_eos": true, "seed": 3,
                "return_token_ids": true, "diffusion": diffusion});
            let whole = made(post(&shared(kind).service, "/v1/completions", &body));
            assert_eq!(whole["usage"]["completion_tokens"], json!(most), "{kind:?}");
            assert_eq!(whole["choices"][0]["token_ids"].as_array().unwrap().len(), most);
            assert_eq!(whole["choices"][0]["finish_reason"], "length");
        }
    }
}
