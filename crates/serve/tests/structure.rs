//! Answers of a form that a client asks for, and calls of functions.

use serde_json::{Value, json};

use crate::{
    common::{Kind, json as answer, made, post, read, shared, stream},
    contract::with,
    symptoms::with_template,
};

const CHAT: &str = "/v1/chat/completions";

fn ask(more: &Value) -> Value {
    let body =
        json!({"messages": [{"role": "user", "content": "Ada has 3 pears. How many?"}], "max_tokens": 48, "seed": 1});
    with(body, more)
}

fn text(more: &Value) -> String {
    let body = made(post(&shared(Kind::Llada).service, CHAT, &ask(more)));
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}, "sure": {"type": "boolean"}},
        "required": ["answer", "sure"],
    })
}

fn is_valid(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap();
    value["answer"].as_u64().is_some_and(|answer| answer < 100) && value["sure"].is_boolean()
}

#[test]
fn structure_s1_answers_have_the_form_that_a_client_asks_for() {
    let format = json!({"type": "json_schema", "json_schema": {"name": "it", "strict": true, "schema": schema()}});
    assert!(is_valid(&text(&json!({"response_format": format}))));
    assert!(is_valid(&text(&json!({"guided_json": schema()}))));
    assert!(is_valid(&text(&json!({"structured_outputs": {"json": schema().to_string()}}))));
    let object = text(&json!({"response_format": {"type": "json_object"}, "max_tokens": 16}));
    assert!(serde_json::from_str::<Value>(&object).unwrap().is_object(), "{object}");
    assert!(["yes", "no"].contains(&text(&json!({"structured_outputs": {"choice": ["yes", "no"]}})).as_str()));
    assert!(text(&json!({"guided_regex": "a{3}b?"})).starts_with("aaa"));
    // The other interface has the schema elsewhere.
    let body = json!({"input": "How many?", "max_output_tokens": 48, "text": {"format": {"type": "json_schema", "name": "it", "schema": schema()}}});
    let found = made(post(&shared(Kind::Llada).service, "/v1/responses", &body));
    assert!(is_valid(found["output"][0]["content"][0]["text"].as_str().unwrap()), "{found}");
    let receipt = made(post(
        &shared(Kind::Llada).service,
        CHAT,
        &ask(&json!({"guided_regex": "ab", "diffusion": {"receipt": true}})),
    ));
    assert_eq!(receipt["diffusion"]["receipt"]["constraint"]["kind"], "regex", "{receipt}");
}

#[test]
fn frames_mark_what_a_form_forced_and_changed() {
    let diffusion = json!({"frames": "commits", "receipt": true});
    let body = ask(&json!({"structured_outputs": {"json": schema()}, "stream": true, "diffusion": diffusion}));
    let sent = read(&mut stream(post(&shared(Kind::Llada).service, CHAT, &body)));
    let data = sent.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let frames: Vec<Value> =
        data.map(|data| serde_json::from_str::<Value>(data).unwrap()["diffusion"].clone()).collect();
    let positions = |name: &str| -> Vec<u64> {
        let lists = frames.iter().filter_map(|frame| frame[name].as_array());
        lists.flatten().map(|position| position.as_u64().unwrap()).collect()
    };
    let committed: Vec<u64> = frames
        .iter()
        .filter_map(|frame| frame["commits"].as_array())
        .flatten()
        .map(|commit| commit[0].as_u64().unwrap())
        .collect();
    let counts = &frames.iter().find(|frame| frame["receipt"].is_object()).unwrap()["receipt"]["constraint"];
    let (forced, changed) = (positions("forced"), positions("changed"));
    assert_eq!((json!(forced.len()), json!(changed.len())), (counts["forced"].clone(), counts["changed"].clone()));
    assert!(!forced.is_empty() && !changed.is_empty() && forced.iter().all(|at| !changed.contains(at)), "{sent}");
    assert!(forced.iter().chain(&changed).all(|at| committed.contains(at)), "{sent}");
}

#[test]
fn structure_s16_forms_that_cannot_be_held_to_are_refused_by_their_field() {
    for (more, param, words) in [
        (json!({"response_format": {"type": "yaml"}}), "response_format", "expected text, json_object or json_schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}),
            "response_format",
            "without a `schema`",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"multipleOf": 0.3, "type": "number"}}}}),
            "response_format",
            "multipleOf",
        ),
        (json!({"guided_regex": "a(b"}), "guided_regex", "regex"),
        (json!({"structured_outputs": {"grammar": "root ::= a"}}), "structured_outputs.grammar", "not implement"),
        (
            json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}),
            "structured_outputs.choice",
            "another constraint",
        ),
        (json!({"guided_regex": "a{400}", "max_tokens": 8}), "guided_regex", "there is room for 8"),
        (json!({"guided_regex": "a", "stop": ["b"]}), "stop", "beside a constraint"),
        (json!({"guided_choice": ["a", "a"]}), "guided_choice", "twice"),
    ] {
        let (status, body) = answer(post(&shared(Kind::Llada).service, CHAT, &ask(&more)));
        let told = body["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && told.contains(words), "{more}: {body}");
        assert_eq!(body["error"]["param"], param, "{body}");
    }
}

/// A template that writes tools, for a model that was never trained to call any.
const TEMPLATE: &str = "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";

fn tools() -> Value {
    let digit = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/digit"}}, "required": ["a"], "$defs": {"digit": {"enum": [1, 2]}}});
    let function = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": digit}});
    json!([function("add"), function("take")])
}

fn is_call(call: &Value, names: &[&str]) -> bool {
    let function = &call["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    let a = arguments["a"].as_u64().unwrap();
    call["id"].as_str().unwrap().starts_with("call_")
        && names.contains(&function["name"].as_str().unwrap())
        && (1..=2).contains(&a)
}

#[test]
fn a_call_that_is_asked_for_is_made_whole_and_in_pieces() {
    let served = with_template("must_call", TEMPLATE);
    for (choice, names) in [
        (json!("required"), &["add", "take"][..]),
        (json!({"type": "function", "function": {"name": "take"}}), &["take"]),
    ] {
        let body = ask(&json!({"tools": tools(), "tool_choice": choice, "temperature": 1.0, "max_tokens": 96}));
        let whole = made(post(&served.service, CHAT, &body));
        let first = &whole["choices"][0];
        assert_eq!(
            (&first["finish_reason"], &first["message"]["content"]),
            (&json!("tool_calls"), &Value::Null),
            "{whole}"
        );
        let calls = first["message"]["tool_calls"].as_array().unwrap();
        assert!(calls.len() == 1 && is_call(&calls[0], names), "{whole}");
        let sent = read(&mut stream(post(&served.service, CHAT, &with(body, &json!({"stream": true})))));
        let chunks =
            sent.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        let chunks: Vec<Value> = chunks.map(|data| serde_json::from_str(data).unwrap()).collect();
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        let called: Vec<&Value> = deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
        assert!(called.len() == 1 && called[0]["index"] == 0 && is_call(called[0], names), "{sent}");
        assert_eq!(called[0]["function"], calls[0]["function"]);
        assert!(deltas.iter().all(|delta| delta["content"].as_str().is_none_or(str::is_empty)), "{sent}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
    for (more, words) in [
        (json!({"tool_choice": "required"}), "there are no `tools`"),
        (json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "f"}}}), "none of `tools`"),
        (json!({"tools": tools(), "tool_choice": "always"}), "expected none, auto, required"),
        (json!({"tools": tools(), "tool_choice": "required", "guided_regex": "a"}), "another form"),
    ] {
        let (status, body) = answer(post(&served.service, CHAT, &ask(&more)));
        assert_eq!((status, &body["error"]["param"]), (400, &json!("tool_choice")), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(words), "{body}");
    }
}
