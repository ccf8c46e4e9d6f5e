//! Bad requests: each gets its status, names its parameter, and is one line in the envelope of OpenAI's interface.

use demask_serve::{Keys, Limits, ServiceConfig};
use serde_json::{Value, json};

use crate::{
    common::{
        Kind, Reply, Served, json, load, made, nothing_left, post, send, serve, serve_model, shared, stream, whole,
    },
    contract::with,
};

/// What a refusal must say: its status, its parameter, its code, and a part of its message.
type Told<'a> = (u16, Option<&'a str>, Option<&'a str>, &'a str);

/// Checks a refusal and its envelope.
fn refused(reply: Reply, (status, param, code, part): Told<'_>, what: &str) {
    let response = whole(reply);
    let text = String::from_utf8(response.body().to_vec()).unwrap();
    assert_eq!(response.status().as_u16(), status, "{what}: {text}");
    assert_eq!(response.headers()["content-type"], "application/json", "{what}");
    assert!(response.headers().contains_key("x-request-id"), "{what}");
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
    assert_eq!(body.as_object().unwrap().len(), 1, "{what}: {text}");
    let error = body["error"].as_object().unwrap();
    let names: Vec<&String> = error.keys().collect();
    assert_eq!(names, ["message", "type", "param", "code"], "{what}");
    let message = error["message"].as_str().unwrap();
    assert!(!message.contains(['\n', '\r']) && message.len() < 1000, "{what}: {message:?}");
    assert!(message.contains(part), "{what}: {message:?} does not say {part:?}");
    assert_eq!(error["param"].as_str(), param, "{what}: {text}");
    assert_eq!(error["code"].as_str(), code, "{what}: {text}");
    let kinds = match status {
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 => "overloaded",
        _ => "invalid_request_error",
    };
    assert_eq!(error["type"], kinds, "{what}");
}

fn chat(more: &Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": "Ada has 3 pears."}], "max_tokens": 4}), more)
}

fn completion(more: &Value) -> Value {
    with(json!({"prompt": "Ada has 3 pears.", "max_tokens": 4}), more)
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const UNSUPPORTED: Option<&str> = Some("unsupported_parameter");
const UNKNOWN: Option<&str> = Some("unknown_parameter");
const TOO_LONG: Option<&str> = Some("context_length_exceeded");
const MASK: Option<&str> = Some("mask_in_prompt");

#[test]
fn routes_and_methods() {
    let service = &shared(Kind::Llada).service;
    for (method, path, told) in [
        ("GET", "/v2", (404, None, None, "there is no /v2")),
        ("POST", "/v1/chat/completion", (404, None, None, "there is no /v1/chat/completion")),
        ("GET", "/v1/models/other", (404, None, Some("model_not_found"), "\"other\" is not served")),
        ("GET", "/v1/responses", (405, None, None, "takes POST, not GET")),
        ("GET", CHAT, (405, None, None, "takes POST, not GET")),
        ("DELETE", "/v1/models", (405, None, None, "takes GET, not DELETE")),
        ("PROPFIND", "/health", (405, None, None, "takes GET")),
        ("GET", "/page/../Cargo.toml", (404, None, None, "")),
        ("GET", "/page/%2e%2e/%2e%2e/etc/passwd", (404, None, None, "")),
    ] {
        refused(send(service, method, path, &[], b""), told, &format!("{method} {path}"));
    }
    let allow = |path: &str, method: &str| whole(send(service, method, path, &[], b"")).headers()["allow"].clone();
    assert_eq!((allow(CHAT, "GET"), allow("/health", "POST")), ("POST".parse().unwrap(), "GET, HEAD".parse().unwrap()));
    let long = format!("/{}", "x".repeat(60_000));
    refused(send(service, "GET", &long, &[], b""), (404, None, None, "there is no"), "a long path");
}

#[test]
fn bodies_that_are_no_json_object() {
    let service = &shared(Kind::Llada).service;
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let deep_objects = [br#"{"a":"#.repeat(100_000), b"1".to_vec(), vec![b'}'; 100_000]].concat();
    let long_key = format!("{{\"{}\":1}}", "k".repeat(1_000_000));
    let bodies: [(&[u8], Told<'_>); 15] = [
        (b"", (400, None, None, "no JSON")),
        (b"{", (400, None, None, "no JSON")),
        (b"null", (400, None, None, "the body is null, expected an object")),
        (b"[1]", (400, None, None, "expected an object")),
        (b"\"text\"", (400, None, None, "expected an object")),
        (&deep, (400, None, None, "recursion")),
        (&deep_objects, (400, None, None, "recursion")),
        (br#"{"prompt":"a","prompt":"b"}"#, (400, None, None, "\"prompt\" stands there twice")),
        (br#"{"prompt":"a","diffusion":{"steps":1,"steps":2}}"#, (400, None, None, "\"steps\" stands there twice")),
        (br#"{"prompt":"a","temperature":NaN}"#, (400, None, None, "no JSON")),
        (br#"{"prompt":"a","temperature":1e999}"#, (400, None, None, "no JSON")),
        (br#"{"prompt":"\ud800"}"#, (400, None, None, "no JSON")),
        (b"{\"prompt\":\"\xff\xfe\"}", (400, None, None, "no JSON")),
        (br#"{"prompt":"a"} trailing"#, (400, None, None, "no JSON")),
        (long_key.as_bytes(), (400, Some("prompt"), None, "`prompt` is missing")),
    ];
    for (body, told) in bodies {
        let what = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        refused(send(service, "POST", COMPLETIONS, &[], body), told, &what);
    }
}

#[test]
fn messages_and_prompts() {
    let service = &shared(Kind::Llada).service;
    let message = |message: Value| json!({"messages": [message]});
    let mask = "Ada has <|mdm_mask|> pears";
    for (path, body, told) in [
        (CHAT, json!({}), (400, Some("messages"), None, "`messages` is missing")),
        (CHAT, json!({"messages": "hi"}), (400, Some("messages"), None, "expected a list")),
        (CHAT, json!({"messages": []}), (400, Some("messages"), None, "0 messages")),
        (
            CHAT,
            json!({"messages": vec![json!({"role": "user", "content": ""}); 2000]}),
            (400, Some("messages"), None, "2000 messages"),
        ),
        (CHAT, message(json!("hi")), (400, Some("messages[]"), None, "expected an object")),
        (CHAT, message(json!({"content": "hi"})), (400, Some("messages[0].role"), None, "is missing")),
        (CHAT, message(json!({"role": "tool", "content": "hi"})), (400, Some("messages[0].role"), None, "\"tool\"")),
        (
            CHAT,
            message(json!({"role": "r".repeat(100_000), "content": "hi"})),
            (400, Some("messages[0].role"), None, "rrr"),
        ),
        (CHAT, message(json!({"role": "user"})), (400, Some("messages[0].content"), None, "is missing")),
        (CHAT, message(json!({"role": "user", "content": 5})), (400, Some("messages[0].content"), None, "is 5")),
        (
            CHAT,
            message(json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})),
            (400, Some("messages[0].content"), None, "image_url"),
        ),
        (
            CHAT,
            message(json!({"role": "user", "content": "hi", "tool_calls": [{}]})),
            (400, Some("messages[0].tool_calls"), UNSUPPORTED, "which only an assistant makes"),
        ),
        (
            CHAT,
            message(json!({"role": "user", "content": "hi", "contnet": "x"})),
            (400, Some("messages[].contnet"), UNKNOWN, "did you mean `content`?"),
        ),
        (
            CHAT,
            with(message(json!({"role": "user", "content": mask})), &json!({"split_special": false})),
            (400, Some("messages"), MASK, "mask token"),
        ),
        (COMPLETIONS, json!({}), (400, Some("prompt"), None, "`prompt` is missing")),
        (COMPLETIONS, json!({"prompt": []}), (400, Some("prompt"), None, "0 prompts")),
        (COMPLETIONS, json!({"prompt": vec!["a"; 65]}), (400, Some("prompt"), None, "65 prompts")),
        (COMPLETIONS, json!({"prompt": [1, "a"]}), (400, Some("prompt"), None, "expected a text")),
        (COMPLETIONS, json!({"prompt": [1, -1]}), (400, Some("prompt"), None, "expected a text")),
        (COMPLETIONS, json!({"prompt": [1.5]}), (400, Some("prompt"), None, "expected a text")),
        (COMPLETIONS, json!({"prompt": {"text": "a"}}), (400, Some("prompt"), None, "expected a text")),
        (COMPLETIONS, json!({"prompt": [489]}), (400, Some("prompt"), None, "from 0 to 488")),
        (COMPLETIONS, json!({"prompt": [4_294_967_295_u32]}), (400, Some("prompt"), None, "outside the vocabulary")),
        (COMPLETIONS, json!({"prompt": mask}), (400, Some("prompt"), MASK, "mask token")),
        ("/v1/infill", json!({"segments": [mask, {"hole": {"tokens": 2}}]}), (400, Some("segments"), MASK, "mask")),
        ("/v1/fim/completions", json!({"prompt": mask}), (400, Some("prompt"), MASK, "mask")),
        ("/infill", json!({"input_prefix": mask}), (400, Some("input_prefix"), MASK, "mask")),
        (
            "/tokenize",
            json!({"messages": [{"role": "user", "content": mask}], "split_special": false}),
            (400, Some("messages"), MASK, "mask"),
        ),
        ("/detokenize", json!({"tokens": [489]}), (400, Some("tokens"), None, "outside the vocabulary of 489")),
        ("/detokenize", json!({"tokens": ["a"]}), (400, Some("tokens"), None, "no token id")),
        ("/detokenize", json!({}), (400, Some("tokens"), None, "missing")),
        ("/apply-template", json!({}), (400, Some("messages"), None, "missing")),
        (
            "/apply-template",
            json!({"messages": [], "prompt": "x"}),
            (400, Some("messages"), None, "expected 1 to 1024"),
        ),
    ] {
        refused(post(service, path, &body), told, &crate::common::brief(&body));
    }
    let mask = "Ada has <|mask|> pears";
    refused(
        post(&shared(Kind::Sdar).service, COMPLETIONS, &json!({"prompt": mask})),
        (400, Some("prompt"), MASK, ""),
        mask,
    );
}

#[test]
fn parameters() {
    let service = &shared(Kind::Llada).service;
    let long = "s".repeat(257);
    for (more, told) in [
        (json!({"max_tokens": 0}), (400, Some("max_tokens"), None, "from 1")),
        (json!({"max_tokens": -1}), (400, Some("max_tokens"), None, "is -1")),
        (
            json!({"max_tokens": 1_000_000_000_000_000_000_u64}),
            (400, Some("max_tokens"), None, "is 1000000000000000000"),
        ),
        (
            json!({"max_tokens": 5000}),
            (400, Some("max_tokens"), TOO_LONG, "5000, and this server decodes at most 4096"),
        ),
        (
            json!({"diffusion": {"gen_length": 2000}}),
            (
                400,
                Some("diffusion.gen_length"),
                TOO_LONG,
                "2000 to generate exceed the model's context of 1024: shorten the prompt or lower `diffusion.gen_length`",
            ),
        ),
        (
            json!({"max_tokens": null, "max_completion_tokens": 5000}),
            (400, Some("max_completion_tokens"), TOO_LONG, "`max_completion_tokens` is 5000"),
        ),
        (json!({"gen_length": 5000}), (400, Some("gen_length"), TOO_LONG, "`gen_length` is 5000, and this server")),
        (json!({"max_tokens": 4, "max_completion_tokens": 5}), (400, Some("max_tokens"), None, "omit one")),
        (json!({"max_tokens": "4"}), (400, Some("max_tokens"), None, "whole number")),
        (json!({"max_tokens": 1.5}), (400, Some("max_tokens"), None, "is 1.5")),
        (json!({"n": 0}), (400, Some("n"), None, "from 1 to 16")),
        (json!({"n": -2}), (400, Some("n"), None, "is -2")),
        (json!({"n": 17}), (400, Some("n"), None, "is 17")),
        (json!({"temperature": -0.1}), (400, Some("temperature"), None, "from 0 to 2")),
        (json!({"temperature": 2.1}), (400, Some("temperature"), None, "is 2.1")),
        (json!({"temperature": "hot"}), (400, Some("temperature"), None, "\"hot\"")),
        (json!({"top_p": 1.1}), (400, Some("top_p"), None, "from 0 to 1")),
        (json!({"top_k": -2}), (400, Some("top_k"), None, "is -2")),
        (json!({"top_k": 1.5}), (400, Some("top_k"), None, "`top_k` is 1.5, expected a whole number")),
        (json!({"priority": 0.5}), (400, Some("priority"), None, "`priority` is 0.5, expected a whole number")),
        (json!({"n": 1.5}), (400, Some("n"), None, "`n` is 1.5, expected a whole number")),
        (json!({"steps": 2.5}), (400, Some("steps"), None, "`steps` is 2.5, expected a whole number")),
        (json!({"stop_token_ids": [1.5]}), (400, Some("stop_token_ids"), None, "expected a token id")),
        (json!({"seed": "one"}), (400, Some("seed"), None, "whole number")),
        (json!({"seed": 1.5}), (400, Some("seed"), None, "whole number")),
        (json!({"stop": 5}), (400, Some("stop"), None, "is 5")),
        (json!({"stop": ["a", 5]}), (400, Some("stop"), None, "list of texts")),
        (json!({"stop": [""]}), (400, Some("stop"), None, "empty text")),
        (json!({"stop": vec!["a"; 17]}), (400, Some("stop"), None, "17 texts")),
        (json!({"stop": long}), (400, Some("stop"), None, "257 bytes")),
        (json!({"stream": "yes"}), (400, Some("stream"), None, "true or false")),
        (json!({"stream_options": {"include_usage": true}}), (400, Some("stream_options"), None, "set `stream`")),
        (json!({"diffusing": true}), (400, Some("diffusing"), None, "set `stream`")),
        (json!({"diffusion": {"frames": "commits"}}), (400, Some("diffusion.frames"), None, "set `stream`")),
        (json!({"diffusion": {"frames": "all"}}), (400, Some("diffusion.frames"), None, "commits or canvas")),
        (json!({"diffusion": {"frames": "f".repeat(100_000)}}), (400, Some("diffusion.frames"), None, "fff")),
        (json!({"diffusion": []}), (400, Some("diffusion"), None, "expected an object")),
        (
            json!({"diffusion": {"decodr": "static"}}),
            (400, Some("diffusion.decodr"), UNKNOWN, "did you mean `decoder`?"),
        ),
        (json!({"diffusion": {"decoder": "sttic"}}), (400, Some("diffusion.decoder"), None, "static")),
        (json!({"diffusion": {"steps": -1}}), (400, Some("diffusion.steps"), None, "steps")),
        (json!({"diffusion": {"deadline_ms": 0}}), (400, Some("diffusion.deadline_ms"), None, "is 0")),
        (json!({"steps": 4, "diffusion": {"steps": 8}}), (400, Some("diffusion.steps"), None, "`steps` are both set")),
        (
            json!({"threshold": 0.8, "diffusion": {"threshold": 0.9}}),
            (400, Some("diffusion.threshold"), None, "are both set"),
        ),
        (
            json!({"diffusion": {"max_tokens": 8}}),
            (400, Some("diffusion.max_tokens"), UNKNOWN, "stands beside `diffusion`"),
        ),
        (json!({"diffusion": {"cache": "block"}}), (400, None, None, "cache block")),
        (json!({"threshold": 0.9, "decoder": "static"}), (400, Some("threshold"), None, "without `decoder`")),
        (json!({"threshold": 2}), (400, Some("threshold"), None, "from 0 to 1")),
        (
            json!({"diffusion": {"decoder": "guided", "guide": "big"}}),
            (400, Some("diffusion.guide"), None, "(known: small)"),
        ),
        (
            json!({"diffusion": {"guide": "small", "decoder": "static"}}),
            (400, Some("diffusion.guide"), None, "without `decoder`"),
        ),
        (json!({"priority": "high"}), (400, Some("priority"), None, "number")),
        (json!({"stop_token_ids": [489]}), (400, Some("stop_token_ids"), None, "from 0 to 488")),
        (json!({"model": 5}), (400, Some("model"), None, "is 5")),
        (json!({"temprature": 1}), (400, Some("temprature"), UNKNOWN, "did you mean `temperature`?")),
        (json!({"something_else": 1}), (400, Some("something_else"), UNKNOWN, "unknown parameter")),
        (json!({"length_penalty": 0.5}), (400, Some("length_penalty"), UNSUPPORTED, "omit it, or set it to 1")),
        (json!({"use_beam_search": true}), (400, Some("use_beam_search"), UNSUPPORTED, "is true")),
        (json!({"min_p": 1.5}), (400, Some("min_p"), None, "from 0 to 1")),
        (json!({"logit_bias": {"5": 101}}), (400, Some("logit_bias"), None, "from -100 to 100")),
        (json!({"logit_bias": {"490": 1}}), (400, Some("logit_bias"), None, "ids from 0 to 488")),
        (json!({"logit_bias": {"a": 1}}), (400, Some("logit_bias"), None, "by token ids")),
        (json!({"logit_bias": [5]}), (400, Some("logit_bias"), None, "by token ids")),
        (json!({"presence_penalty": 2.5}), (400, Some("presence_penalty"), None, "from -2 to 2")),
        (json!({"frequency_penalty": -3}), (400, Some("frequency_penalty"), None, "from -2 to 2")),
        (json!({"repetition_penalty": 0}), (400, Some("repetition_penalty"), None, "above 0")),
        (json!({"min_tokens": 100_000}), (400, Some("min_tokens"), None, "tokens at most")),
        (json!({"min_tokens": 1, "regex": "a"}), (400, Some("min_tokens"), None, "beside a constraint")),
        (
            json!({"diffusion": {"guide": "small", "presence_penalty": 1}}),
            (400, Some("diffusion.presence_penalty"), None, "guide"),
        ),
        (json!({"bad_words": [""]}), (400, Some("bad_words"), None, "without a text")),
        (json!({"bad_words": ["a"], "ignore_eos": true}), (400, Some("bad_words"), None, "ignore_eos")),
        (json!({"store": true}), (400, Some("store"), UNSUPPORTED, "")),
        (json!({"response_format": {"type": "grammar"}}), (400, Some("response_format"), None, "json_schema")),
        (json!({"guided_grammar": "a"}), (400, Some("guided_grammar"), UNSUPPORTED, "")),
        (json!({"skip_special_tokens": false}), (400, Some("skip_special_tokens"), UNSUPPORTED, "")),
        (json!({"truncate_prompt_tokens": 5}), (400, Some("truncate_prompt_tokens"), UNSUPPORTED, "")),
    ] {
        refused(post(service, CHAT, &chat(&more)), told, &format!("chat {}", crate::common::brief(&more)));
        refused(post(service, COMPLETIONS, &completion(&more)), told, &format!("text {}", crate::common::brief(&more)));
    }
}

#[test]
fn a_model_of_another_name_is_missing_where_names_are_given() {
    let named =
        serve(Kind::Llada, ServiceConfig { names: vec!["ours".into(), "alias".into()], ..ServiceConfig::default() });
    for name in ["gpt".to_owned(), "m".repeat(100_000)] {
        let more = json!({"model": name});
        let told = (404, Some("model"), Some("model_not_found"), "is not served here, expected ours or alias");
        refused(post(&named.service, CHAT, &chat(&more)), told, "chat");
        refused(post(&named.service, COMPLETIONS, &completion(&more)), told, "text");
    }
    let (status, answer) = json(post(&named.service, CHAT, &chat(&json!({"model": "alias"}))));
    assert_eq!((status, &answer["model"]), (200, &json!("ours")));
}

#[test]
fn a_name_that_a_client_has_built_in_reaches_the_one_model() {
    let service = &shared(Kind::Llada).service;
    let (status, answer) = json(post(service, CHAT, &chat(&json!({"model": "gpt-4o"}))));
    assert_eq!(status, 200, "{answer}");
    let own = json(post(service, CHAT, &chat(&json!({})))).1["model"].clone();
    assert_eq!(answer["model"], own);
    assert_ne!(own, json!("gpt-4o"));
}

#[test]
fn parameters_of_one_endpoint() {
    let service = &shared(Kind::Llada).service;
    let function = json!([{"type": "function", "function": {"name": "f"}}]);
    for (more, told) in [
        (json!({"top_logprobs": 21, "logprobs": true}), (400, Some("top_logprobs"), None, "from 0 to 20")),
        (json!({"top_logprobs": 2}), (400, Some("top_logprobs"), None, "`logprobs`")),
        (json!({"logprobs": 2}), (400, Some("logprobs"), None, "true or false")),
        (json!({"tools": function}), (400, Some("tools"), UNSUPPORTED, "")),
        (json!({"tool_choice": "required"}), (400, Some("tool_choice"), None, "no `tools`")),
        (json!({"functions": [{}]}), (400, Some("functions"), UNSUPPORTED, "")),
        (json!({"echo": true}), (400, Some("echo"), UNSUPPORTED, "")),
        (json!({"chat_template": "{{ x }}"}), (400, Some("chat_template"), UNSUPPORTED, "")),
        (json!({"modalities": ["text", "audio"]}), (400, Some("modalities"), UNSUPPORTED, "")),
        (json!({"reasoning_effort": "high"}), (400, Some("reasoning_effort"), UNSUPPORTED, "")),
        (json!({"prompt": "a"}), (400, Some("prompt"), UNKNOWN, "")),
    ] {
        refused(post(service, CHAT, &chat(&more)), told, &more.to_string());
    }
    for (more, told) in [
        (json!({"logprobs": 6}), (400, Some("logprobs"), None, "from 0 to 5")),
        (json!({"logprobs": true}), (400, Some("logprobs"), None, "whole number")),
        (json!({"echo": true, "logprobs": 1}), (400, Some("echo"), UNSUPPORTED, "/v1/score")),
        (json!({"echo": true, "suffix": "."}), (400, Some("echo"), UNSUPPORTED, "suffix")),
        (json!({"best_of": 2}), (400, Some("best_of"), UNSUPPORTED, "set it to `n`")),
        (json!({"suffix": ".", "prompt": [5, 6]}), (400, Some("suffix"), None, "text, not token ids")),
        (json!({"suffix": ".", "stop": "a"}), (400, Some("stop"), None, "")),
        (json!({"messages": []}), (400, Some("messages"), UNKNOWN, "")),
    ] {
        refused(post(service, COMPLETIONS, &completion(&more)), told, &more.to_string());
    }
}

#[test]
fn decisions() {
    const DECISIONS: &str = "/v1/decisions";
    let service = &shared(Kind::Llada).service;
    let right = json!({"type": "predicate", "instructions": "Is it?"});
    let asked = |question: Value| json!({"input": "a", "questions": [right, question]});
    let choice = |choices: Value| asked(json!({"type": "choice", "instructions": "Which?", "choices": choices}));
    let score = |min: i64, max: i64| asked(json!({"type": "score", "instructions": "How?", "min": min, "max": max}));
    for (body, told) in [
        (json!({"input": "a"}), (400, Some("questions"), None, "missing")),
        (json!({"input": "a", "questions": []}), (400, Some("questions"), None, "there are 0, expected 1 to 400")),
        (json!({"input": "a", "questions": vec![right.clone(); 401]}), (400, Some("questions"), None, "401")),
        (json!({"questions": [right]}), (400, Some("input"), None, "missing")),
        (json!({"input": 5, "questions": [right]}), (400, Some("input"), None, "is 5")),
        (json!({"input": "a", "prompt": "b", "questions": [right]}), (400, Some("prompt"), None, "both set")),
        (json!({"prompt": [1, -2], "questions": [right]}), (400, Some("prompt"), None, "list of token ids")),
        (json!({"prompt": [489], "questions": [right]}), (400, Some("prompt"), None, "outside the vocabulary")),
        (
            asked(json!({"type": "noul", "instructions": "a"})),
            (400, Some("questions[1].type"), None, "predicate, choice"),
        ),
        (asked(json!({"type": "predicate"})), (400, Some("questions[1].instructions"), None, "missing")),
        (choice(json!(["a"])), (400, Some("questions[1].choices"), None, "there are 1, expected 2 to 255")),
        (choice(json!(vec!["a"; 256])), (400, Some("questions[1].choices"), None, "there are 256")),
        (choice(json!(["a", "b", "a"])), (400, Some("questions[1].choices[2]"), None, "choice 0 already")),
        (choice(json!(["a", ""])), (400, Some("questions[1].choices[1]"), None, "not empty")),
        (choice(json!(["a", 5])), (400, Some("questions[1].choices[1]"), None, "expected a text")),
        (score(3, 3), (400, Some("questions[1].max"), None, "from 3 to 3")),
        (score(0, 1_000_000), (400, Some("questions[1].max"), None, "at most 255 integers")),
        (
            json!({"input": "Ada ".repeat(1200), "questions": [right]}),
            (400, Some("input"), TOO_LONG, "context of 1024"),
        ),
        (
            json!({"prompt": "Ada ".repeat(1200), "questions": [right]}),
            (400, Some("prompt"), TOO_LONG, "context of 1024"),
        ),
        (
            json!({"input": "a", "questions": [{"type": "predicate", "instructions": "Ada ".repeat(1200)}]}),
            (400, Some("questions"), TOO_LONG, "context of 1024"),
        ),
    ] {
        refused(post(service, DECISIONS, &body), told, &crate::common::brief(&body));
    }
}

#[test]
fn holes_and_scores() {
    let service = &shared(Kind::Llada).service;
    let hole = json!({"hole": {"tokens": 2}});
    for (body, told) in [
        (json!({}), (400, Some("segments"), None, "missing")),
        (json!({"segments": []}), (400, Some("segments"), None, "0 pieces")),
        (json!({"segments": ["a"]}), (400, Some("segments"), None, "no hole")),
        (json!({"segments": ["a", 5]}), (400, Some("segments"), None, "`segments[1]` is 5")),
        (json!({"segments": ["a", {"hole": {"tokens": 0}}]}), (400, Some("segments"), None, "segments[1]")),
        (json!({"segments": ["a", {"hole": {"tokens": 2, "more": 1}}]}), (400, Some("segments"), None, "segments[1]")),
        (json!({"segments": ["a", {"hole": 2}]}), (400, Some("segments"), None, "segments[1]")),
        (json!({"segments": ["a", {"hole": {"tokens": 5000}}]}), (400, Some("segments"), TOO_LONG, "5000")),
        (json!({"segments": vec![hole.clone(); 1025]}), (400, Some("segments"), None, "1025 pieces")),
        (json!({"segments": ["a", hole], "n": 2}), (400, Some("n"), None, "expected 1")),
        (json!({"segments": ["a", hole], "max_tokens": 4}), (400, Some("max_tokens"), None, "holes")),
        (json!({"segments": ["a", hole], "stop": "x"}), (400, Some("stop"), None, "")),
        (json!({"segments": ["a", hole], "top_logprobs": 2}), (400, Some("top_logprobs"), None, "`logprobs`")),
    ] {
        refused(post(service, "/v1/infill", &body), told, &crate::common::brief(&body));
    }
    for (body, told) in [
        (json!({"context": "a"}), (400, Some("continuation"), None, "missing")),
        (json!({"continuation": "a"}), (400, Some("context"), None, "missing")),
        (json!({"context": ["a", "b"], "continuation": ["c"]}), (400, Some("continuation"), None, "2 and")),
        (json!({"context": "a", "continuation": ""}), (400, None, None, "empty")),
        (json!({"context": "a", "continuation": "b", "draws": 0}), (400, Some("draws"), None, "from 1")),
        (json!({"context": "a", "continuation": "b", "draws": 5000}), (400, Some("draws"), None, "4096")),
        (json!({"context": "a", "continuation": "b", "seed": -1}), (400, Some("seed"), None, "is -1")),
        (json!({"context": [1], "continuation": [489]}), (400, Some("context"), None, "outside the vocabulary")),
        (
            json!({"context": "Ada ".repeat(1200), "continuation": "b"}),
            (400, Some("context"), TOO_LONG, "context of 1024"),
        ),
    ] {
        refused(post(service, "/v1/score", &body), told, &crate::common::brief(&body));
    }
    let sdar = &shared(Kind::Sdar).service;
    let pair = json!({"context": "a", "continuation": "b"});
    refused(post(sdar, "/v1/score", &pair), (400, None, None, "no estimate"), "score on sdar");
    let segments = json!({"segments": ["a", hole]});
    refused(post(sdar, "/v1/infill", &segments), (400, Some("segments"), None, "cannot fill holes"), "infill on sdar");
    let suffix = completion(&json!({"suffix": "b"}));
    refused(post(sdar, COMPLETIONS, &suffix), (400, Some("prompt"), None, "cannot fill holes"), "suffix on sdar");
    refused(
        post(&shared(Kind::Qwen).service, "/infill", &json!({"input_prefix": "a"})),
        (400, Some("input_prefix"), None, "cannot fill holes"),
        "infill on qwen",
    );
}

#[test]
fn prompts_that_are_too_long_say_both_numbers() {
    for kind in [Kind::Llada, Kind::Sdar, Kind::Qwen] {
        let service = &shared(kind).service;
        let long = "Ada has 3 pears. ".repeat(400);
        let (_, models) = json(send(service, "GET", "/v1/models", &[], b""));
        let context = format!("context of {}", models["data"][0]["max_model_len"]);
        let reply = post(service, COMPLETIONS, &json!({"prompt": long, "max_tokens": 8}));
        let (status, body) = json(reply);
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!((status, &body["error"]["code"]), (400, &json!("context_length_exceeded")), "{message}");
        assert_eq!(body["error"]["param"], "prompt");
        assert!(message.contains("prompt tokens") && message.contains(&context), "{message}");
    }
}

#[test]
fn neutral_values_and_nulls_pass() {
    let service = &shared(Kind::Llada).service;
    let neutral = json!({
        "frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "length_penalty": 1, "min_p": 0,
        "min_tokens": 0, "logit_bias": {}, "bad_words": [], "use_beam_search": false, "store": false, "response_format": {"type": "text"},
        "skip_special_tokens": true, "user": "me", "metadata": {"a": "b"}, "service_tier": "auto", "seed": -5, "n": 1,
        "stop": [], "top_p": 1, "top_k": -1, "max_completion_tokens": 4, "ignore_eos": false, "priority": 0,
        "include_stop_str_in_output": false, "stream_interval": 4, "diffusion": {}, "prompt_cache_key": "x",
    });
    made(post(service, CHAT, &chat(&neutral)));
    made(post(service, COMPLETIONS, &completion(&neutral)));
    let mut nulls = serde_json::Map::new();
    for name in neutral.as_object().unwrap().keys().map(String::as_str).chain([
        "model",
        "temperature",
        "stream",
        "stream_options",
        "logprobs",
        "tools",
        "tool_choice",
        "echo",
        "suffix",
        "best_of",
        "diffusing",
        "something_unknown",
    ]) {
        nulls.insert(name.to_owned(), Value::Null);
    }
    made(post(service, CHAT, &chat(&Value::Object(nulls.clone()))));
    made(post(service, COMPLETIONS, &completion(&Value::Object(nulls))));
    let parts = json!({"messages": [{"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Ada has 3 pears."}], "name": "ann"},
        {"role": "assistant", "content": null, "refusal": null, "tool_calls": null}, {"role": "user", "content": "And?"}],
        "tools": [], "tool_choice": "none", "functions": [], "modalities": ["text"], "top_logprobs": 0, "max_tokens": 4});
    made(post(service, CHAT, &parts));
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"});
    made(post(service, CHAT, &chat(&tools)));
    // Keys of a client's own in `stream_options` are as good as none.
    let body = chat(&json!({"stream": true, "stream_options": {"include_usage": false, "own": 5}}));
    crate::common::read(&mut stream(post(service, CHAT, &body)));
    // What an older client sends: a list that it has filled up.
    made(post(service, CHAT, &chat(&json!({"stop": ["pears", null, null]}))));
    // A continuation of nothing is nothing to put in between.
    made(post(service, COMPLETIONS, &completion(&json!({"suffix": ""}))));
}

#[test]
fn keys_and_rates() {
    let keys = Keys::parse("ann secret-ann\nben secret-ben rate=2\n").unwrap();
    let served = serve(Kind::Llada, ServiceConfig { keys: keys.into(), ..ServiceConfig::default() });
    let ask = |headers: &[(&str, &str)]| {
        let body = chat(&json!({})).to_string();
        send(&served.service, "POST", CHAT, headers, body.as_bytes())
    };
    let key = Some("invalid_api_key");
    refused(ask(&[]), (401, None, key, "no API key"), "no key");
    for header in ["Bearer wrong", "Basic secret-ann", "secret-ann", "Bearer "] {
        refused(ask(&[("authorization", header)]), (401, None, key, ""), header);
    }
    refused(ask(&[("x-api-key", "wrong")]), (401, None, key, "unknown"), "x-api-key");
    let twice = [("authorization", "Bearer secret-ann"), ("authorization", "Bearer secret-ben")];
    refused(ask(&twice), (400, None, None, "several Authorization headers"), "two keys");
    assert_eq!(whole(ask(&[])).headers()["www-authenticate"], "Bearer");
    made(ask(&[("authorization", "BEARER secret-ann")]));
    made(ask(&[("x-api-key", "secret-ann")]));
    made(ask(&[("authorization", "Bearer secret-ann")]));
    let ben = [("authorization", "Bearer secret-ben")];
    made(ask(&ben));
    made(ask(&ben));
    let limited = whole(ask(&ben));
    let wait: u64 = limited.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    refused(ask(&ben), (429, None, Some("rate_limit_exceeded"), "2 requests a minute"), "a rate");
    // What tells nothing of anybody needs no key, and what is served does.
    let get = |path: &str| whole(send(&served.service, "GET", path, &[], b"")).status().as_u16();
    assert_eq!((get("/health"), get("/metrics"), get("/v1/models")), (200, 200, 401));
    nothing_left(&served);
}

#[test]
fn places_and_sizes() {
    let limits = Limits { places: 3, body_bytes: 1000, ..Limits::default() };
    let served = serve(Kind::Llada, ServiceConfig { limits, ..ServiceConfig::default() });
    let service = &served.service;
    let held = crate::common::hold(&served.handle);
    let first = post(service, CHAT, &chat(&json!({"n": 2, "stream": true})));
    assert!(service.is_busy());
    // A place is there, but not two.
    let two = post(service, CHAT, &chat(&json!({"n": 2})));
    let response = whole(two);
    assert_eq!(response.headers()["retry-after"], "1");
    let second = post(service, CHAT, &chat(&json!({})));
    for path in
        [CHAT, COMPLETIONS, "/v1/score", "/v1/decisions", "/v1/infill", "/tokenize", "/detokenize", "/apply-template"]
    {
        // Refused by the head alone, whatever the body is.
        let full = send(service, "POST", path, &[], b"nonsense");
        refused(full, (503, None, Some("overloaded"), "all 3 places are taken"), path);
    }
    refused(post(service, CHAT, &chat(&json!({"n": 4}))), (503, None, Some("overloaded"), ""), "full");
    drop((first, second));
    refused(post(service, CHAT, &chat(&json!({"n": 4}))), (400, Some("n"), None, "makes 3"), "never so many");
    held.let_go();
    nothing_left(&served);
    made(post(service, CHAT, &chat(&json!({"n": 3}))));
    let large = vec![b' '; 1001];
    refused(send(service, "POST", CHAT, &[], &large), (413, None, None, "at most 1000"), "a large body");
    nothing_left(&served);
}

#[test]
fn no_key_takes_all_places_nor_sees_what_another_asked() {
    let keys = Keys::parse("ann secret-ann\nben secret-ben weight=100\n").unwrap();
    let limits = Limits { places: 8, ..Limits::default() };
    let model = load(Kind::Sdar);
    model.set_prefix_cache(64 << 20).unwrap();
    let served = serve_model(model, ServiceConfig { keys: keys.into(), limits, ..ServiceConfig::default() });
    let ask = |key: &str, more: Value| {
        let body = chat(&more).to_string();
        send(&served.service, "POST", CHAT, &[("authorization", &format!("Bearer secret-{key}"))], body.as_bytes())
    };
    let held = crate::common::hold(&served.handle);
    let many = ask("ann", json!({"n": 4}));
    let full = (503, None, Some("overloaded"), "all 4 places of this key are taken");
    refused(ask("ann", json!({})), full, "Ann has her places");
    refused(ask("ann", json!({"n": 5})), full, "or what is left of them");
    let other = ask("ben", json!({"n": 2}));
    held.let_go();
    made(many);
    made(other);
    // What one has asked is in nobody else's numbers, whatever salt they name.
    let prompt = "The password of Ann is 7301. Ada has 3 pears. Ben gives Ada 4 more. ".repeat(4);
    let cached = |key: &str, salt: Option<&str>| {
        let body = json!({"prompt": prompt, "max_tokens": 4, "seed": 1, "cache_salt": salt}).to_string();
        let header = format!("Bearer secret-{key}");
        let reply = send(&served.service, "POST", COMPLETIONS, &[("authorization", &header)], body.as_bytes());
        made(reply)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    cached("ann", None);
    assert!(cached("ann", None) > 0);
    for salt in [None, Some(""), Some("ann"), Some("secret-ann"), Some("3:ann")] {
        assert_eq!(cached("ben", salt), 0, "{salt:?}");
    }
    assert_eq!(cached("ann", Some("x")), 0);
    nothing_left(&served);
}

#[test]
fn no_key_finds_the_contexts_that_another_had_judged() {
    let keys = Keys::parse("ann secret-ann\nben secret-ben\n").unwrap();
    let config = ServiceConfig { keys: keys.into(), ..ServiceConfig::default() };
    let served = serve_model(load(Kind::Qwen), config);
    let context = "The password of Ann is 7301. Ada has 3 pears. ".repeat(4);
    let ask = |key: &str, path: &str, body: &Value| {
        let header = format!("Bearer secret-{key}");
        made(send(&served.service, "POST", path, &[("authorization", &header)], body.to_string().as_bytes()))
    };
    let cached = |key: &str, continuation: &str| {
        let reply = ask(key, "/v1/score", &json!({"context": context, "continuation": continuation}));
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    // What `echo` reads is there for whoever has its key, and for nobody else.
    ask("ann", COMPLETIONS, &json!({"prompt": context, "max_tokens": 0, "echo": true, "logprobs": 0}));
    assert!(cached("ann", " 7") >= 32);
    assert_eq!(cached("ben", " 7"), 0);
    assert!(cached("ben", " 8") >= 32, "what it had judged itself");
    nothing_left(&served);
}

#[test]
fn counts_and_lengths_have_bounds_that_are_told() {
    let service = &shared(Kind::Llada).service;
    for steps in [65_u64, 5000, 1 << 31, u64::MAX >> 1] {
        for schedule in ["dream", "dream_total", "even"] {
            let how = json!({"decoder": "static", "schedule": schedule, "steps": steps});
            let flat = json!({"max_tokens": 8, "diffusion": how});
            refused(
                post(service, CHAT, &chat(&flat)),
                (400, Some("diffusion.steps"), None, "expected at most 64"),
                schedule,
            );
        }
        let own = json!({"max_tokens": 8, "diffusion": {"decoder": format!("static:steps={steps}")}});
        let expected = (400, Some("diffusion.decoder"), None, "expected at most 64");
        refused(post(service, CHAT, &chat(&own)), expected, "a decoder's own");
    }
    let long = "a".repeat(300_000);
    let length = Some("context_length_exceeded");
    let too_long = chat(&json!({"messages": [{"role": "user", "content": long}]}));
    refused(post(service, CHAT, &too_long), (400, Some("messages"), length, "bytes at most: shorten it"), "messages");
    let too_long = completion(&json!({"prompt": ["a", long]}));
    refused(post(service, COMPLETIONS, &too_long), (400, Some("prompt"), length, "300000 bytes"), "a prompt");
    let too_long = json!({"segments": [long, {"hole": {"tokens": 1}}]});
    refused(post(service, "/v1/infill", &too_long), (400, Some("segments"), length, "300000 bytes"), "a text to fill");
    let too_long = json!({"context": long, "continuation": "a"});
    refused(post(service, "/v1/score", &too_long), (400, Some("context"), length, "300001 bytes"), "a context");
    let wide = json!({"prompt": long});
    refused(post(service, "/tokenize", &wide), (400, Some("prompt"), None, "in pieces"), "a text to tokenize");
    made(post(service, "/tokenize", &json!({"prompt": "a".repeat(100_000)})));
    let many = json!({"tokens": vec![1; 300_000]});
    refused(post(service, "/detokenize", &many), (400, Some("tokens"), None, "in pieces"), "tokens");
    let listed = Limits { listed: 1000, ..Limits::default() };
    let served = serve(Kind::Llada, ServiceConfig { limits: listed, ..ServiceConfig::default() });
    let listed = json!({"n": 2, "max_tokens": 32, "logprobs": true, "top_logprobs": 20});
    let told = "64 tokens are 1344 log-probabilities, and this server returns 1000";
    refused(post(&served.service, CHAT, &chat(&listed)), (400, Some("top_logprobs"), None, told), "log-probabilities");
    made(post(&served.service, CHAT, &chat(&json!({"n": 2, "max_tokens": 32, "logprobs": true}))));
    nothing_left(&served);
}

#[test]
fn a_parameter_inside_of_a_method_is_refused_by_the_field_that_came() {
    let service = &shared(Kind::Llada).service;
    let decoder = |text: &str| json!({"gen_length": 32, "block_length": 16, "decoder": text});
    let cache = |text: &str| json!({"gen_length": 32, "cache": text});
    for (diffusion, field, words) in [
        (decoder("static:steps=5000"), "decoder", "expected at most 256"),
        (decoder("static:steps=7"), "decoder", "do not divide over 2 blocks"),
        (decoder("freedave:strict"), "decoder", "has strict without tau"),
        (decoder("threshold:tau=2"), "decoder", "from 0 to 1"),
        (decoder("threshold:tua=0.9"), "decoder", "did you mean"),
        (json!({"gen_length": 32, "steps": 4, "decoder": "static:steps=8"}), "decoder", "give only one of them"),
        (json!({"gen_length": 32, "block_length": 16, "steps": 7}), "steps", "do not divide over 2 blocks"),
        (cache("dllm:layer=2"), "cache", "layer was removed"),
        (cache("freecache:lookahead=0"), "cache", "lookahead"),
    ] {
        let nested = post(service, CHAT, &chat(&json!({"diffusion": diffusion})));
        refused(nested, (400, Some(&format!("diffusion.{field}")), None, words), &diffusion.to_string());
        let flat = post(service, CHAT, &chat(&diffusion));
        refused(flat, (400, Some(field), None, words), &diffusion.to_string());
    }
}

#[test]
fn a_server_that_is_about_to_end_says_so() {
    let served = serve(Kind::Llada, ServiceConfig::default());
    let service = &served.service;
    let mut running = stream(post(service, CHAT, &chat(&json!({"stream": true}))));
    service.drain();
    let shutting = Some("shutting_down");
    refused(post(service, CHAT, &chat(&json!({}))), (503, None, shutting, "try again"), "chat");
    refused(send(service, "GET", "/health", &[], b""), (503, None, shutting, "try again"), "health");
    assert_eq!(json(send(service, "GET", "/live", &[], b"")).0, 200);
    // What is on its way goes on.
    crate::common::messages(&crate::common::read(&mut running));
    drop(running);
    nothing_left(&served);
}

/// The lines that a log got, and the counts of the metrics whose names begin so.
fn counts(served: &Served, prefix: &str) -> Vec<(String, f64)> {
    let response = whole(send(&served.service, "GET", "/metrics", &[], b""));
    let text = String::from_utf8(response.body().to_vec()).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(prefix)).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn each_request_has_one_line_in_the_log() {
    use std::sync::{Arc, Mutex};
    let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |line: &Value| lines.lock().unwrap().push(line.clone()))
    };
    let served = serve(Kind::Llada, ServiceConfig { log, ..ServiceConfig::default() });
    let service = &served.service;
    made(post(service, CHAT, &chat(&json!({}))));
    json(post(service, CHAT, &chat(&json!({"n": 0}))));
    json(post(service, "/v1/completions", &json!({"prompt": "<|mdm_mask|>"})));
    json(post(service, "/v1/score", &json!({"context": "a", "continuation": ""})));
    drop(post(service, CHAT, &chat(&json!({"stream": true, "max_tokens": 64}))));
    json(send(service, "GET", "/nowhere", &[], b""));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for traced in [trace, &"0".repeat(30_000), &trace.replace('a', "g"), &trace[1..], &format!("{trace}-x")] {
        json(send(service, "POST", CHAT, &[("traceparent", traced)], b"{"));
    }
    nothing_left(&served);
    let lines = lines.lock().unwrap();
    let statuses: Vec<u64> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 400, 400, 400, 499, 404, 400, 400, 400, 400, 400], "{lines:?}");
    // A trace is one by its form; what else a client sends there is not written down.
    let traces: Vec<_> = lines.iter().filter_map(|line| line["traceparent"].as_str()).collect();
    assert_eq!(traces, [trace]);
    for line in lines.iter() {
        assert!(!line.to_string().contains("Ada"), "a log never holds what was asked: {line}");
    }
    let cancelled = counts(&served, "demask_requests_cancelled");
    assert_eq!(cancelled.iter().map(|(_, count)| count).sum::<f64>(), 1.0, "{cancelled:?}");
}
