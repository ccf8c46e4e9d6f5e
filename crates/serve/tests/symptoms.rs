//! Requests that once came to something else than they should, each named after what was seen.

use std::{fs, path::PathBuf};

use demask::Model;
use demask_serve::ServiceConfig;
use serde_json::{Value, json};

use crate::{
    common::{Kind, Served, json, made, post, send, serve, serve_model, shared, whole},
    contract::with,
};

/// A service of the causal demo with another template.
pub fn with_template(name: &str, template: &str) -> Served {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo-qwen");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    for file in fs::read_dir(demo).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    fs::write(folder.join("chat_template.jinja"), template).unwrap();
    serve_model(Model::builder().threads(1).open(&folder).unwrap(), ServiceConfig::default())
}

/// The text that a conversation becomes.
fn rendered(served: &Served, messages: &Value) -> String {
    let ids = made(post(&served.service, "/tokenize", &json!({"messages": messages})))["tokens"].clone();
    made(post(&served.service, "/detokenize", &json!({"tokens": ids})))["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn reasoning_in_the_history_reaches_the_template() {
    let template = "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content is string %}[{{ m.reasoning_content }}]\
                    {% endif %}{% if m.name is defined %}({{ m.name }}){% endif %}{% if m.weights %}{{ m.weights[1].a }}\
                    {% endif %}{{ m.content }}{% endfor %}";
    let served = with_template("reasoning", template);
    let messages = json!([
        {"role": "user", "content": "q", "name": "ann"},
        {"role": "assistant", "content": "a", "reasoning_content": "because", "refusal": null, "annotations": []},
        {"role": "user", "content": "r", "weights": [0.5, {"a": 7}]},
    ]);
    assert_eq!(rendered(&served, &messages), "<user>(ann)q<assistant>[because]a<user>7r");
    // A field that no template reads and no client sends is a slip.
    let slip = json!({"messages": [{"role": "user", "content": "q", "reasoning_contents": "x"}]});
    let (status, body) = json(post(&served.service, "/tokenize", &slip));
    assert_eq!((status, &body["error"]["code"]), (400, &json!("unknown_parameter")), "{body}");
}

/// Tools and their calls reach a template that writes them, with arguments as objects.
#[test]
fn tools_and_calls_in_the_history_reach_the_template() {
    let template = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}<{{ m.role }}>\
                    {% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}:{{ c.function.arguments.a + 1 }}\
                    </tool_call>{% endfor %}{{ m.content }}{% endfor %}";
    let served = with_template("tools", template);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 6}"}});
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "call_1"},
    ]);
    assert_eq!(rendered(&served, &messages), "<user>q<assistant><tool_call>add:7</tool_call><tool>7");
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    let tokens = |tools: &Value| {
        let body = json!({"messages": messages, "tools": tools, "max_tokens": 1});
        made(post(&served.service, "/v1/chat/completions", &body))["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(tokens(&tools) > tokens(&json!([])));
    for (more, param, words) in [
        (json!({"tools": [{"type": "function"}]}), "tools[0]", "a function with a name"),
        (json!({"tools": tools, "stream": true, "diffusing": true}), "diffusing", "calls are sent once"),
    ] {
        let (status, body) =
            json(post(&served.service, "/v1/chat/completions", &with(json!({"messages": messages}), &more)));
        assert_eq!((status, &body["error"]["param"]), (400, &json!(param)), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(words), "{body}");
    }
    for call in
        [json!({"function": {"name": "f", "arguments": "{"}}), json!("f"), json!(null), json!({"function": "f"})]
    {
        let broken = json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
        let (status, body) = json(post(&served.service, "/v1/chat/completions", &broken));
        assert_eq!((status, &body["error"]["param"]), (400, &json!("messages[0].tool_calls")), "{body}");
    }
}

#[test]
fn a_model_s_name_outside_ascii_is_found_by_its_encoded_path() {
    let config = ServiceConfig {
        names: vec!["gr\u{f6}\u{df}e".into(), "org/name".into(), "a%2Fb".into()],
        ..ServiceConfig::default()
    };
    let served = serve(Kind::Qwen, config);
    let get = |path: &str| {
        let response = whole(send(&served.service, "GET", path, &[], b""));
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        (response.status().as_u16(), body)
    };
    for (path, name) in [
        ("/v1/models/gr%C3%B6%C3%9Fe", "gr\u{f6}\u{df}e"),
        ("/v1/models/gr%c3%b6%c3%9fe", "gr\u{f6}\u{df}e"),
        ("/v1/models/org/name", "org/name"),
        ("/v1/models/org%2Fname", "org/name"),
        ("/v1/models/%6f%72g%2fname", "org/name"),
        ("/v1/models/a%252Fb", "a%2Fb"),
    ] {
        let (status, body) = get(path);
        assert_eq!((status, body["id"].as_str()), (200, Some(name)), "{path}: {body}");
    }
    assert_eq!(get("/v1%2Fmodels").0, 404);
    for path in ["/v1/models/%zz", "/v1/models/a%2", "/v1/models/%FF", "/%"] {
        let (status, body) = get(path);
        assert_eq!(status, 404, "{path}");
        assert_eq!(body["error"]["type"], "not_found_error", "{path}: {body}");
    }
}

#[test]
fn a_body_in_another_form_is_refused_by_the_header_that_says_so() {
    let service = &shared(Kind::Qwen).service;
    let body = json!({"prompt": "a", "max_tokens": 1}).to_string();
    let utf16: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin = [br#"{"prompt": ""#.as_slice(), b"\xf6", br#"", "max_tokens": 1}"#].concat();
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03";
    let form = b"--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na\r\n--x--\r\n";
    let cases: [(&str, &str, &[u8], u16); 14] = [
        ("content-encoding", "gzip", gzip, 415),
        ("content-encoding", "br", body.as_bytes(), 415),
        ("content-encoding", "identity", body.as_bytes(), 200),
        ("content-type", "multipart/form-data; boundary=x", form, 415),
        ("content-type", "application/xml", b"<a/>", 415),
        ("content-type", "application/json; charset=utf-16", &utf16, 415),
        ("content-type", "application/json; charset=iso-8859-1", &latin, 415),
        ("content-type", "application/json; charset=UTF-8", body.as_bytes(), 200),
        ("content-type", "application/json; charset=iso-8859-1", body.as_bytes(), 200),
        // What curl sends if nobody says otherwise.
        ("content-type", "application/x-www-form-urlencoded", body.as_bytes(), 200),
        ("content-type", "application/x-www-form-urlencoded", b"{\"prompt\": \"1\",}", 415),
        ("content-type", "application/vnd.api+json", body.as_bytes(), 200),
        ("content-type", "application/json", b"{", 400),
        ("accept", "text/html", body.as_bytes(), 200),
    ];
    for (name, value, body, expected) in cases {
        let response = whole(send(service, "POST", "/v1/completions", &[(name, value)], body));
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert_eq!(response.status().as_u16(), expected, "{name}: {value}: {text}");
        if expected == 415 {
            assert!(text.contains(&format!("{name} is {value}")), "{name}: {value}: {text}");
            assert_eq!(response.headers()["accept-encoding"], "identity");
        }
    }
    // A mark in front of UTF-8 is no part of it.
    let marked = [b"\xef\xbb\xbf".as_slice(), body.as_bytes()].concat();
    assert_eq!(json(send(service, "POST", "/v1/completions", &[], &marked)).0, 200);
}

#[test]
fn a_whole_number_with_a_point_is_that_number() {
    let service = &shared(Kind::Qwen).service;
    let plain = json!({"prompt": [1, 2, 3], "max_tokens": 5, "n": 1, "seed": 4, "top_k": 3, "temperature": 1, "logprobs": 1,
        "stop_token_ids": [9], "priority": 2});
    let pointed = json!({"prompt": [1.0, 2.0, 3.0], "max_tokens": 5.0, "n": 1.0, "seed": 4.0, "top_k": 3.0, "temperature": 1.0,
        "logprobs": 1.0, "stop_token_ids": [9.0], "priority": 2.0});
    let text = |body: &Value| made(post(service, "/v1/completions", body))["choices"][0]["text"].clone();
    assert_eq!(text(&plain), text(&pointed));
    for (name, value) in
        [("max_tokens", json!(5.5)), ("seed", json!(1e300)), ("n", json!(1.5)), ("logprobs", json!(0.5))]
    {
        let (status, body) = json(post(service, "/v1/completions", &with(plain.clone(), &json!({name: value}))));
        assert_eq!((status, &body["error"]["param"]), (400, &json!(name)), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains("a whole number"), "{body}");
    }
}

#[test]
fn offsets_count_no_special_token_that_the_text_has_not() {
    let service = &shared(Kind::Qwen).service;
    let tokenizer = shared(Kind::Qwen).handle.info().tokenizer().unwrap();
    let [start, end] = ["<|im_start|>", "<|im_end|>"].map(|text| tokenizer.encode(text, false).unwrap()[0]);
    let check = |body: &Value| {
        let answer = made(post(service, "/v1/completions", body));
        let choice = &answer["choices"][0];
        let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
        let (tokens, offsets) = (&choice["logprobs"]["tokens"], &choice["logprobs"]["text_offset"]);
        let tokens: Vec<String> = serde_json::from_value(tokens.clone()).unwrap();
        let offsets: Vec<usize> = serde_json::from_value(offsets.clone()).unwrap();
        let mut hidden = 0;
        for (token, offset) in tokens.iter().zip(&offsets) {
            let there: String = text[*offset..].iter().take(token.chars().count()).collect();
            if there != *token {
                assert!(token.starts_with("<|"), "{token} at {offset} of {text:?}");
                hidden += 1;
            }
        }
        hidden
    };
    // Behind its end the demo goes on with special tokens, which the text leaves out.
    let on = json!({"prompt": "Ada has 3 pears.", "ignore_eos": true, "max_tokens": 150, "logprobs": 0});
    assert!(check(&on) > 0, "the case has a special token in the middle");
    let echo =
        |prompt: Value| json!({"prompt": prompt, "echo": true, "logprobs": 0, "max_tokens": 3, "ignore_eos": true});
    check(&echo(json!([start, 5, 6, end, 7])));
    check(&echo(json!("<|im_start|>user\nAda has<|im_end|>\n")));
}
