//! Transcripts of streams and bodies, byte by byte: what clients have learned to read stays as it is.
//!
//! `DEMASK_BLESS=1` writes them anew. Names and times are replaced; numbers with a point may differ in what another processor's
//! order of summation changes.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::common::{Kind, counts, json, made, messages, post, read_in_step, shared, stepped, stream, text_of, whole};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// Replaces the value behind each of a key's places.
fn replaced(text: &str, key: &str, instead: &str) -> String {
    let key = format!("\"{key}\":");
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(&key) {
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        values.next().unwrap().unwrap();
        done.extend([before, &key, instead]);
        rest = &behind[values.byte_offset()..];
    }
    done + rest
}

/// Replaces what differs from run to run.
fn settled(text: &str) -> String {
    let text = replaced(text, "id", "\"ID\"");
    let text = replaced(&text, "created", "0");
    let text = replaced(&text, "seconds", "{}");
    let text = replaced(&text, "tokens_per_second", "0");
    let text = replaced(&text, "memory", "{}");
    let text = replaced(&text, "device", "\"DEVICE\"");
    let text = replaced(&text, "version", "\"VERSION\"");
    in_order_of_choices(&replaced(&text, "system_fingerprint", "\"FINGERPRINT\""))
}

/// Messages of a stream with those of each choice together: which choice is heard first is left to the machine.
fn in_order_of_choices(text: &str) -> String {
    let choice = |message: &str| {
        let (_, rest) = message.split_once("\"choices\":[{\"index\":")?;
        rest.split(',').next()?.parse::<usize>().ok()
    };
    let mut messages: Vec<_> = text.split_inclusive("\n\n").collect();
    for run in messages.chunk_by_mut(|one, next| choice(one).is_some() && choice(next).is_some()) {
        run.sort_by_key(|message| choice(message));
    }
    messages.concat()
}

/// A text with its numbers that have a point taken out, and these numbers.
fn numbers(text: &str) -> (String, Vec<f64>) {
    let (mut skeleton, mut found) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let in_number = |letter: char| letter.is_ascii_digit() || ".e-".contains(letter);
        let end = number.find(|letter| !in_number(letter)).unwrap_or(number.len());
        let (number, behind) = number.split_at(end);
        skeleton.push_str(before);
        match number.parse::<f64>() {
            Ok(value) if number.contains('.') => {
                found.push(value);
                skeleton.push('#');
            }
            _ => skeleton.push_str(number),
        }
        rest = behind;
    }
    (skeleton + rest, found)
}

/// Compares a transcript with the one that is kept.
fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    let text = settled(text);
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: set DEMASK_BLESS=1 to write it", path.display()));
    let ((left, numbers_left), (right, numbers_right)) = (numbers(&text), numbers(&kept));
    assert_eq!(left, right, "{name}: look at the difference, and set DEMASK_BLESS=1 if it is wanted");
    for (found, expected) in numbers_left.iter().zip(&numbers_right) {
        // Products of bf16, which has 8 bits, round otherwise on each tier: 0.002 is the most that was seen.
        assert!((found - expected).abs() <= 1e-2 * (1.0 + expected.abs()), "{name}: {found}, expected {expected}");
    }
}

/// A short request whose decoding takes few forwards, with more on top.
fn chat(more: &Value) -> Value {
    with(
        json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16, "seed": 7, "stream": true,
            "diffusion": {"steps": 8, "block_length": 8}}),
        more,
    )
}

/// Sets more fields of an object; those of an inner object are added to it.
pub fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        match (body.get_mut(name), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => inner.extend(value.clone()),
            _ => drop(body.as_object_mut().unwrap().insert(name.clone(), value.clone())),
        }
    }
    body
}

/// Reads a stream in step with the engine, and compares it with the one that is kept.
fn transcript(kind: Kind, name: &str, path: &str, body: &Value) -> Vec<Value> {
    let served = stepped(kind);
    let text = read_in_step(&served, |service| post(service, path, body));
    let again = read_in_step(&served, |service| post(service, path, body));
    assert_eq!(settled(&text), settled(&again), "{name}: the same bytes each time");
    check(name, &text);
    messages(&text)
}

#[test]
fn chat_streams() {
    for (name, more) in [
        ("chat", json!({})),
        ("chat-usage", json!({"stream_options": {"include_usage": true}})),
        ("chat-usage-always", json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}})),
        ("chat-commits", json!({"diffusion": {"frames": "commits"}})),
        ("chat-commits-logprobs", json!({"diffusion": {"frames": "commits"}, "logprobs": true, "top_logprobs": 2})),
        ("chat-canvas", json!({"diffusion": {"frames": "canvas"}})),
        ("chat-diffusing", json!({"diffusing": true})),
        ("chat-logprobs", json!({"logprobs": true, "top_logprobs": 2})),
        ("chat-two-choices", json!({"n": 2, "temperature": 0.8})),
        ("chat-token-ids", json!({"return_token_ids": true})),
        ("chat-receipt", json!({"diffusion": {"receipt": true}})),
        ("chat-stop", json!({"stop": ["never", "pears"]})),
    ] {
        transcript(Kind::Llada, name, "/v1/chat/completions", &chat(&more));
    }
}

#[test]
fn other_streams() {
    let length = json!({"max_tokens": 8, "seed": 7, "stream": true, "diffusion": {"steps": 8, "block_length": 8}});
    let holes = json!({"seed": 7, "stream": true});
    let prompts =
        json!({"prompt": ["Ada has 3 pears.", "Ben has 5 cards."], "stream_options": {"include_usage": true}});
    let segments = json!(["Ada has ", {"hole": {"tokens": 2}}, ". Ben gives Ada 4 more", {"hole": {"tokens": 1}}, "."]);
    for (name, path, body) in [
        ("completions", "/v1/completions", with(length.clone(), &prompts)),
        ("completions-echo", "/v1/completions", with(length.clone(), &json!({"prompt": "Ada has 3", "echo": true}))),
        (
            "completions-logprobs",
            "/v1/completions",
            with(length.clone(), &json!({"prompt": "Ada has 3", "logprobs": 1})),
        ),
        ("completions-diffusing", "/v1/completions", with(length, &json!({"prompt": "Ada has 3", "diffusing": true}))),
        ("infill", "/v1/infill", with(holes.clone(), &json!({"segments": segments.clone()}))),
        (
            "infill-commits",
            "/v1/infill",
            with(holes.clone(), &json!({"segments": segments, "diffusion": {"frames": "commits"}})),
        ),
        (
            "fim",
            "/v1/fim/completions",
            with(holes.clone(), &json!({"prompt": "Ada has ", "suffix": " pears.", "max_tokens": 2})),
        ),
        (
            "suffix",
            "/v1/completions",
            with(holes.clone(), &json!({"prompt": "Ada has ", "suffix": " pears.", "max_tokens": 2, "logprobs": 0})),
        ),
        (
            "plain-infill",
            "/infill",
            with(holes, &json!({"input_prefix": "Ada has ", "input_suffix": " pears.", "n_predict": 2})),
        ),
    ] {
        transcript(Kind::Llada, name, path, &body);
    }
}

#[test]
fn streams_of_other_families() {
    let body = |more: &Value| with(chat(&json!({"diffusion": null})), more);
    transcript(Kind::Sdar, "sdar-commits", "/v1/chat/completions", &body(&json!({"diffusion": {"frames": "commits"}})));
    transcript(Kind::Qwen, "qwen", "/v1/chat/completions", &body(&json!({"max_tokens": 6})));
    let guided = json!({"diffusion": {"decoder": "guided", "guide": "small", "frames": "commits"}});
    transcript(Kind::Llada, "guided-commits", "/v1/chat/completions", &body(&guided));
}

/// What a reader of frames makes of them.
#[derive(Default)]
struct Drawn {
    /// Tokens behind the prompt; masks are none.
    tokens: Vec<Option<u64>>,
    prompt: usize,
    taken_back: usize,
    replaced: usize,
}

impl Drawn {
    /// Draws a frame, and counts what changes.
    fn frame(&mut self, frame: &Value) {
        if let Some(canvas) = frame.get("canvas") {
            let length = |name: &str| canvas[name].as_u64().unwrap() as usize;
            self.prompt = length("prompt_tokens");
            self.tokens = vec![None; length("length") - self.prompt];
        }
        for commit in frame["commits"].as_array().unwrap() {
            let place = commit[0].as_u64().unwrap() as usize - self.prompt;
            self.replaced += usize::from(self.tokens[place].replace(commit[1].as_u64().unwrap()).is_some());
        }
        for position in frame["taken_back"].as_array().into_iter().flatten() {
            let place = position.as_u64().unwrap() as usize - self.prompt;
            assert!(place as u64 >= frame["settled"].as_u64().unwrap(), "what is settled stays: {frame}");
            assert!(self.tokens[place].take().is_some(), "a token stood there: {frame}");
            self.taken_back += 1;
        }
        let masks = self.tokens.iter().filter(|token| token.is_none()).count() as u64;
        assert_eq!(Some(masks), frame["masks"].as_u64(), "{frame}");
    }

    /// Draws a stream's frames, and compares the end with the answer's tokens.
    fn of(messages: &[Value]) -> Self {
        let mut drawn = Self::default();
        messages
            .iter()
            .filter_map(|message| message.get("diffusion")?.get("commits").and(message.get("diffusion")))
            .for_each(|frame| drawn.frame(frame));
        let ids = messages.iter().find_map(|message| message["choices"][0]["token_ids"].as_array()).unwrap();
        let ids: Vec<_> = ids.iter().map(Value::as_u64).collect();
        assert_eq!(drawn.tokens[..ids.len()], ids);
        drawn
    }
}

/// Decoders that change what they have written: `p2` takes tokens back, and masks stand there again; `edit` replaces them.
#[test]
fn streams_of_decoders_that_revise() {
    let path = "/v1/chat/completions";
    let body = |diffusion: Value| {
        with(chat(&json!({"diffusion": null})), &json!({"diffusion": diffusion, "return_token_ids": true}))
    };
    let p2 = |frames: &str| body(json!({"decoder": "p2", "cache": "none", "steps": 8, "frames": frames}));
    let drawn = Drawn::of(&transcript(Kind::Llada, "p2-commits", path, &p2("commits")));
    assert_eq!((drawn.taken_back > 0, drawn.replaced), (true, 0), "a token of p2 leaves before another comes");
    transcript(Kind::Llada, "p2-canvas", path, &p2("canvas"));
    let edit = json!({"decoder": "edit:tau=0.2,edit=0.05,post=3", "block_length": 8, "frames": "commits"});
    let drawn = Drawn::of(&transcript(Kind::Sdar, "edit-commits", path, &body(edit)));
    assert_eq!((drawn.taken_back, drawn.replaced > 0), (0, true), "an edit is a commit of another token");
}

#[test]
fn whole_bodies() {
    let still = json!({"stream": false});
    let segments = json!(["Ada has ", {"hole": {"tokens": 2}}, " pears."]);
    for (name, path, body) in [
        ("body-chat", "/v1/chat/completions", with(chat(&still), &json!({"logprobs": true, "top_logprobs": 1}))),
        ("body-chat-two-choices", "/v1/chat/completions", with(chat(&still), &json!({"n": 2}))),
        (
            "body-completions",
            "/v1/completions",
            json!({"prompt": ["Ada has 3", "Ben has 5"], "max_tokens": 8, "seed": 7, "echo": true}),
        ),
        ("body-infill", "/v1/infill", json!({"segments": segments, "seed": 7, "return_token_ids": true})),
        (
            "body-plain-infill",
            "/infill",
            json!({"input_prefix": "Ada has ", "input_suffix": " p", "n_predict": 2, "seed": 7}),
        ),
        ("body-score", "/v1/score", json!({"context": "Ada has 3", "continuation": " pears.", "draws": 4, "seed": 1})),
        (
            "body-decisions",
            "/v1/decisions",
            json!({"input": "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", "questions": [
                {"type": "choice", "name": "sum", "instructions": "3+4=7 pears.\nThe final answer is", "choices": ["7", "9"]},
                {"type": "score", "instructions": "The final answer is", "min": 6, "max": 8},
                {"type": "predicate", "instructions": "Is it 7?"},
            ]}),
        ),
        ("body-tokenize", "/tokenize", json!({"prompt": "Ada has 3 pears."})),
        ("body-detokenize", "/detokenize", json!({"tokens": [5, 6, 7]})),
    ] {
        let response = whole(post(&shared(Kind::Llada).service, path, &body));
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        assert_eq!(response.status(), 200, "{name}: {text}");
        assert_eq!(response.headers()["content-type"], "application/json");
        check(name, &text);
    }
}

/// The words of a conversation are those that its tokens spell.
#[test]
fn a_template_is_applied_as_it_is_for_tokens() {
    let service = &shared(Kind::Llada).service;
    let body = json!({"messages": [{"role": "user", "content": "Ada has 3 pears."}]});
    let words = json(post(service, "/apply-template", &body)).1["prompt"].clone();
    let tokens = |body: &Value| json(post(service, "/tokenize", body)).1["tokens"].clone();
    assert!(words.as_str().unwrap().contains("Ada has 3 pears."), "{words}");
    assert_eq!(tokens(&json!({"prompt": words, "add_special_tokens": false})), tokens(&body));
}

#[test]
fn a_stream_is_the_body_in_pieces() {
    // Whatever is asked for, and however a reader is late, a stream's pieces make the body of the same request.
    let mores = [
        json!({}),
        json!({"stop": ["pears"], "stream_options": {"include_usage": true}}),
        json!({"n": 3, "temperature": 0.7, "logprobs": true, "top_logprobs": 1}),
        json!({"diffusion": {"frames": "commits"}, "return_token_ids": true}),
        json!({"max_tokens": 48, "diffusion": {"steps": 48, "decoder": "static"}, "logprobs": true}),
    ];
    for more in mores {
        let path = "/v1/chat/completions";
        let service = &shared(Kind::Llada).service;
        let mut body = chat(&more);
        let text = crate::common::read(&mut stream(post(service, path, &body)));
        let messages = messages(&text);
        body["stream"] = json!(false);
        body.as_object_mut().unwrap().remove("stream_options");
        body["diffusion"].as_object_mut().unwrap().remove("frames");
        let whole = made(post(service, path, &body));
        for choice in whole["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            assert_eq!(text_of(&messages, index), choice["message"]["content"], "{more}");
            let mine = messages.iter().flat_map(|message| message["choices"].as_array().unwrap());
            let mine: Vec<&Value> = mine.filter(|one| one["index"] == index).collect();
            let last = mine.last().unwrap();
            for field in ["finish_reason", "stop_reason", "token_ids"] {
                assert_eq!(last.get(field), choice.get(field), "{more}: {field}");
            }
            let logprobs = mine.iter().filter_map(|one| one["logprobs"]["content"].as_array()).flatten();
            let logprobs: Vec<&Value> = logprobs.collect();
            let expected = choice["logprobs"]["content"].as_array().map(|list| list.iter().collect());
            assert_eq!(logprobs, expected.unwrap_or_else(Vec::new), "{more}");
            let roles: Vec<_> = mine.iter().filter_map(|one| one["delta"]["role"].as_str()).collect();
            assert_eq!(roles, ["assistant"], "{more}: once, with the first text");
        }
        if let Some(usage) = messages.last().filter(|message| message["choices"] == json!([])) {
            assert_eq!(counts(&usage["usage"]), counts(&whole["usage"]));
        }
    }
}

#[test]
fn text_offsets_of_a_stream_go_on() {
    let body = json!({"prompt": "Ada has 3 pears.", "max_tokens": 16, "logprobs": 1, "seed": 7, "stream": true});
    let service = &shared(Kind::Llada).service;
    let messages = messages(&crate::common::read(&mut stream(post(service, "/v1/completions", &body))));
    let pieces = |name: &str| {
        let lists = messages.iter().filter_map(|message| message["choices"][0]["logprobs"][name].as_array());
        lists.flatten().cloned().collect::<Vec<Value>>()
    };
    let whole = made(post(service, "/v1/completions", &with(body.clone(), &json!({"stream": false}))));
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(Value::from(pieces(name)), whole["choices"][0]["logprobs"][name], "{name}");
    }
}

#[test]
fn texts_that_replace_each_other_end_with_the_answer() {
    for more in [json!({}), json!({"stop": ["pears"]}), json!({"max_tokens": 6}), json!({"max_tokens": 40})] {
        let service = &shared(Kind::Llada).service;
        let body = with(chat(&more), &json!({"diffusing": true, "diffusion": null}));
        let messages = messages(&crate::common::read(&mut stream(post(service, "/v1/chat/completions", &body))));
        let mut texts = messages.iter().filter_map(|message| message["choices"][0]["delta"]["content"].as_str());
        let body = with(body.clone(), &json!({"stream": false, "diffusing": false}));
        let whole = made(post(service, "/v1/chat/completions", &body));
        assert_eq!(texts.next_back(), whole["choices"][0]["message"]["content"].as_str(), "{more}");
    }
}

#[test]
fn holes_are_told_in_their_order() {
    let segments = json!(["Ada has ", {"hole": {"tokens": 6}}, ". Ben gives Ada ", {"hole": {"tokens": 1}}, " more."]);
    let service = &shared(Kind::Llada).service;
    let body = json!({"segments": segments, "seed": 7, "stream": true});
    let messages = messages(&crate::common::read(&mut stream(post(service, "/v1/infill", &body))));
    let whole = made(post(service, "/v1/infill", &json!({"segments": segments, "seed": 7})));
    let holes: Vec<&str> = whole["holes"].as_array().unwrap().iter().map(|hole| hole.as_str().unwrap()).collect();
    assert_eq!(text_of(&messages, 0), holes.concat());
    assert_eq!(messages.last().unwrap()["choices"][0]["holes"], whole["holes"], "where each of them ends");
}

#[test]
fn what_is_served_says_so() {
    let served = shared(Kind::Llada);
    let get = |path: &str| json(crate::common::send(&served.service, "GET", path, &[], b""));
    for path in ["/health", "/v1/health", "/ready", "/ping", "/live"] {
        assert_eq!(get(path), (200, json!({"status": "ok"})), "{path}");
    }
    let (_, models) = get("/v1/models");
    let card = &models["data"][0];
    let (status, one) = get(&format!("/v1/models/{}", card["id"].as_str().unwrap()));
    assert_eq!((status, &one), (200, card));
    assert_eq!(card["diffusion"]["guides"], json!(["small"]));
    assert_eq!(card["diffusion"]["infill"], json!(true));
    assert!(card["max_model_len"].as_u64().unwrap() >= 64);
    for path in ["/version", "/info", "/tokenizer_info", "/openapi.json"] {
        let (status, body) = get(path);
        assert!(status == 200 && body.is_object(), "{path}: {body}");
    }
    let (_, info) = get("/tokenizer_info");
    for field in ["eos_token", "bos_token", "pad_token", "chat_template"] {
        assert!(info.get(field).is_some(), "{field}");
    }
    // A name of the client's own is told again; one that is too long, or is no word, is not.
    let id = |given: &str| {
        let reply = crate::common::send(&served.service, "GET", "/health", &[("x-request-id", given)], b"");
        whole(reply).headers()["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(id("mine-1"), "mine-1");
    for given in ["two words", "", &"x".repeat(129)] {
        assert!(id(given).starts_with("req-"), "{given:?}");
    }
}
