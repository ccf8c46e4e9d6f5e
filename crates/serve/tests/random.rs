//! Arbitrary requests: readers never panic, what they refuse is in the envelope, and streams can be read back.

use demask_serve::{Limits, Service, ServiceConfig};
use demask_testkit::property;
use proptest::{collection::vec, prelude::*, strategy::ValueTree};
use serde_json::{Map, Value, json};

use crate::common::{Kind, collected, events, is_stream, messages, nothing_left, read, send, serve, shared};

const PATHS: [&str; 10] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/infill",
    "/infill",
    "/v1/fim/completions",
    "/v1/score",
    "/v1/decisions",
    "/tokenize",
    "/detokenize",
    "/apply-template",
];

/// Names that readers know, so that more than the first check is reached.
const NAMES: [&str; 44] = [
    "messages",
    "prompt",
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "n",
    "stop",
    "stream",
    "stream_options",
    "seed",
    "logprobs",
    "top_logprobs",
    "echo",
    "suffix",
    "best_of",
    "diffusion",
    "diffusing",
    "threshold",
    "gen_length",
    "block_length",
    "steps",
    "decoder",
    "cache",
    "remasking",
    "priority",
    "ignore_eos",
    "stop_token_ids",
    "return_token_ids",
    "response_format",
    "tools",
    "tool_choice",
    "segments",
    "input_prefix",
    "input_suffix",
    "n_predict",
    "context",
    "continuation",
    "draws",
    "tokens",
    "frames",
    "deadline_ms",
];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => ".{0,8}"]
}

fn value() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "user",
        "system",
        "commits",
        "canvas",
        "static",
        "threshold:tau=0.9",
        "dual",
        "none",
        "text",
        "a",
        "guided",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..20).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(1e18)),
        words.prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!({"role": "user", "content": "Ada has 3 pears."})),
        Just(json!({"hole": {"tokens": 2}})),
        Just(json!({"type": "text", "text": "a"})),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((name(), inner), 0..6).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn body() -> impl Strategy<Value = Map<String, Value>> {
    vec((name(), value()), 0..10).prop_map(|entries| entries.into_iter().collect())
}

/// A body of which nothing but one or two fields is wrong, if any.
fn nearly_right() -> impl Strategy<Value = (usize, Map<String, Value>)> {
    let start: [Value; PATHS.len()] = [
        json!({"messages": [{"role": "user", "content": "Ada has 3 pears."}], "max_tokens": 4}),
        json!({"prompt": "Ada has 3", "max_tokens": 4}),
        json!({"segments": ["Ada has ", {"hole": {"tokens": 2}}]}),
        json!({"input_prefix": "Ada has ", "n_predict": 2}),
        json!({"prompt": "Ada has ", "suffix": ".", "max_tokens": 2}),
        json!({"context": "Ada has", "continuation": " 3", "draws": 2}),
        json!({"input": "Ada", "questions": [{"type": "predicate", "instructions": "Is it?"}]}),
        json!({"prompt": "Ada"}),
        json!({"tokens": [3, 4]}),
        json!({"messages": [{"role": "user", "content": "Ada"}]}),
    ];
    (0..PATHS.len(), vec((name(), value()), 0..3)).prop_map(move |(index, entries)| {
        let mut map = start[index].as_object().unwrap().clone();
        map.extend(entries);
        (index, map)
    })
}

/// Sends a body; what comes of it is a response in its envelope, or work that is given up.
fn never_panics(service: &Service, path: &str, body: &[u8]) {
    let reply = send(service, "POST", path, &[], body);
    if !reply.is_there() {
        return;
    }
    let response = reply.response();
    if is_stream(&response) {
        return;
    }
    let response = collected(response);
    let status = response.status().as_u16();
    assert!(status == 200 || (400..500).contains(&status), "{status}: {:?}", response.body());
    let body: Value = serde_json::from_slice(response.body()).expect("JSON");
    if status != 200 {
        let message = body["error"]["message"].as_str().expect("the envelope");
        assert!(!message.is_empty() && !message.contains(['\n', '\r']), "{message:?}");
        assert!(message.len() < 1000);
    }
}

fn served() -> &'static Service {
    &shared(Kind::Llada).service
}

proptest! {
    #![proptest_config(property::cases(512))]

    #[test]
    fn arbitrary_json_never_panics(path in prop::sample::select(&PATHS[..]), body in body()) {
        never_panics(served(), path, Value::Object(body).to_string().as_bytes());
    }

    #[test]
    fn nearly_right_requests_never_panic((path, body) in nearly_right()) {
        never_panics(served(), PATHS[path], Value::Object(body).to_string().as_bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic(path in prop::sample::select(&PATHS[..]), body in vec(any::<u8>(), 0..200)) {
        never_panics(served(), path, &body);
    }

    #[test]
    fn cut_and_spliced_json_never_panics(
        (path, body) in nearly_right(), at in any::<prop::sample::Index>(), splice in vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = Value::Object(body).to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes.splice(at..(at + splice.len()).min(bytes.len()), splice);
        never_panics(served(), PATHS[path], &bytes);
    }
}

/// What a stream may be asked for.
fn streamed() -> impl Strategy<Value = Value> {
    let frames = prop::sample::select(vec!["none", "commits", "canvas"]);
    (".{0,20}", frames, any::<bool>(), any::<bool>(), any::<bool>(), 1..3_u64, 1..9_u64).prop_map(
        |(text, frames, diffusing, usage, logprobs, n, length)| {
            json!({
                "messages": [{"role": "user", "content": text}], "stream": true, "n": n, "max_tokens": length,
                "diffusing": diffusing, "logprobs": logprobs, "temperature": 1.5,
                "stream_options": {"include_usage": usage, "continuous_usage_stats": usage},
                "diffusion": {"frames": frames},
            })
        },
    )
}

proptest! {
    #![proptest_config(property::cases(48))]

    #[test]
    fn streams_are_read_back(body in streamed()) {
        let reply = send(served(), "POST", "/v1/chat/completions", &[], body.to_string().as_bytes());
        // A prompt may hold the mask token's own text.
        let response = reply.response();
        if is_stream(&response) {
            let messages = messages(&read(&mut events(response)));
            let ends = messages.iter().flat_map(|message| message["choices"].as_array().unwrap());
            let ends = ends.filter(|choice| !choice["finish_reason"].is_null()).count();
            assert_eq!(ends as u64, body["n"].as_u64().unwrap());
        }
    }
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let limits = Limits { places: 4, ..Limits::default() };
    let served = serve(Kind::Llada, ServiceConfig { limits, ..ServiceConfig::default() });
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..200 {
        let (path, body) = nearly_right().new_tree(&mut runner).unwrap().current();
        drop(send(&served.service, "POST", PATHS[path], &[], Value::Object(body).to_string().as_bytes()));
    }
    nothing_left(&served);
}
