//! What one client may take from others on a socket: bodies, places, time, and the thread that answers all of them.

use std::{
    io::{Read, Write},
    net::Shutdown,
    thread,
    time::{Duration, Instant},
};

use demask_serve::{Keys, Limits, ServiceConfig, http::HttpConfig};
use serde_json::{Value, json};

use crate::{
    common::{counts, hold, messages, until},
    sockets::{Answer, CHAT, request, rest, run},
};

fn head(method: &str, path: &str, lines: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

#[test]
fn a_body_where_none_is_taken_is_refused_and_never_held() {
    let keys = Keys::parse("ann secret\n").unwrap();
    let running = run(ServiceConfig { keys: keys.into(), ..ServiceConfig::default() }, HttpConfig::default());
    for (method, path, status) in [
        ("GET", "/health", 413),
        ("GET", "/live", 413),
        ("GET", "/metrics", 413),
        ("GET", "/", 413),
        ("GET", "/tokenizer_info", 401),
        ("POST", CHAT, 401),
        ("POST", "/tokenize", 401),
    ] {
        // All of it is sent before anything is read: the refusal comes all the same, not a reset.
        let length = 2 << 20;
        let whole = [head(method, path, &format!("Content-Length: {length}\r\n")), "x".repeat(length - 1)].concat();
        let mut stream = running.connect();
        stream.write_all(whole.as_bytes()).unwrap();
        let answer = Answer::of(&rest(&mut stream));
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path}: {answer:?}");
        let chunked = head(method, path, "Transfer-Encoding: chunked\r\n") + "1\r\nx\r\n0\r\n\r\n";
        let answer = Answer::of(&running.talk(chunked.as_bytes()));
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path}: {answer:?}");
    }
    // A length of nothing is no body.
    let none = head("GET", "/live", "Content-Length: 0\r\nConnection: close\r\n");
    assert_eq!(Answer::of(&running.talk(none.as_bytes())).status, 200);
    running.end();
}

#[test]
fn bodies_together_have_a_bound_and_a_body_in_bytes_is_a_body() {
    let limits = Limits { body_bytes: 100_000, all_bodies: 150_000, ..Limits::default() };
    let running = run(ServiceConfig { limits, ..ServiceConfig::default() }, HttpConfig::default());
    let large =
        request(&json!({"max_tokens": 2, "metadata": {"padding": " ".repeat(90_000)}}), "Connection: close\r\n");
    let mut first = running.connect();
    first.write_all(&large.as_bytes()[..large.len() - 5]).unwrap();
    thread::sleep(Duration::from_millis(300));
    let answer = Answer::of(&running.talk(large.as_bytes()));
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "overloaded"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    first.write_all(&large.as_bytes()[large.len() - 5..]).unwrap();
    assert_eq!(Answer::of(&rest(&mut first)).status, 200);
    // Its memory is free again, also for a body of which each byte is a chunk.
    let body = json!({"prompt": "3+4=", "max_tokens": 2, "user": "u".repeat(50_000)}).to_string();
    let chunks = body.chars().fold(String::new(), |chunks, byte| chunks + &format!("1\r\n{byte}\r\n"));
    let lines = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
    let whole = head("POST", "/v1/completions", lines) + &chunks + "0\r\n\r\n";
    let answer = Answer::of(&running.talk(whole.as_bytes()));
    assert_eq!(answer.status, 200, "{answer:?}");
    running.end();
}

#[test]
fn a_client_that_closes_its_sending_half_gets_its_answer() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    let half = |whole: &str| {
        let mut stream = running.connect();
        stream.write_all(whole.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream
    };
    let live = rest(&mut half(&head("GET", "/live", "")));
    assert!(live.starts_with("HTTP/1.1 200 OK") && live.ends_with('}'), "{live}");
    let old = rest(&mut half("GET /live HTTP/1.0\r\n\r\n"));
    assert!(old.starts_with("HTTP/1.0 200 OK"), "{old}");
    for streams in [false, true] {
        let held = hold(&running.served.handle);
        let mut stream = half(&request(&json!({"stream": streams, "max_tokens": 8}), ""));
        until("it is taken on", || running.served.service.is_busy());
        // Long enough to be asked whether it is there.
        thread::sleep(Duration::from_millis(400));
        assert!(running.served.service.is_busy(), "it is there, and keeps its place");
        held.let_go();
        let text = rest(&mut stream);
        let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
        let answer = Answer::of(text);
        assert_eq!(answer.status, 200, "{text}");
        if streams {
            let told = answer.body.split_inclusive("\n\n").filter(|part| *part != ":\n\n").collect::<String>();
            assert!(!messages(&told).is_empty());
        } else {
            serde_json::from_str::<Value>(&answer.body).unwrap();
        }
    }
    // The end may be there before the request is begun.
    for turn in 0..40 {
        let text = rest(&mut half(&request(&json!({"max_tokens": 1}), "")));
        assert!(text.contains("HTTP/1.1 200 OK"), "turn {turn}: {text}");
    }
    // A body that never comes whole is not waited for.
    let since = Instant::now();
    let whole = request(&json!({}), "");
    rest(&mut half(&whole[..whole.len() - 5]));
    assert!(since.elapsed() < Duration::from_secs(5));
    running.end();
}

#[test]
fn long_answers_are_the_same_wherever_they_are_written() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    let ask = json!({"n": 2, "max_tokens": 64, "ignore_eos": true, "logprobs": true, "top_logprobs": 20,
        "diffusion": {"decoder": "static", "steps": 1, "block_length": 64}});
    let body: Value = serde_json::from_str(&running.post(&ask).body).unwrap();
    let streamed = running.post(&crate::contract::with(ask, &json!({"stream": true})));
    let messages = messages(&streamed.body);
    for index in 0..2 {
        let whole = &body["choices"][index];
        let listed = whole["logprobs"]["content"].as_array().unwrap();
        assert_eq!(listed.len(), 64);
        let own = messages.iter().flat_map(|message| message["choices"].as_array().into_iter().flatten());
        let own = own.filter(|choice| choice["index"] == index);
        let told: Vec<Value> =
            own.filter_map(|choice| choice["logprobs"]["content"].as_array().cloned()).flatten().collect();
        assert_eq!(told, *listed);
    }
    let usage = json!({"prompt_tokens": body["usage"]["prompt_tokens"], "completion_tokens": 128,
        "total_tokens": body["usage"]["prompt_tokens"].as_u64().unwrap() + 128,
        "prompt_tokens_details": {"cached_tokens": 0}});
    assert_eq!(counts(&body["usage"]), usage);
    running.end();
}

#[test]
fn tokenising_that_nobody_waits_for_is_never_begun() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    let body = json!({"prompt": "a".repeat(200_000)}).to_string();
    let length = body.len();
    let ask = head("POST", "/tokenize", &format!("Content-Length: {length}\r\n")) + &body;
    for _ in 0..60 {
        let mut stream = running.connect();
        stream.write_all(ask.as_bytes()).unwrap();
    }
    let since = Instant::now();
    until("their places are free", || !running.served.service.is_busy());
    let alone = Instant::now();
    assert_eq!(Answer::of(&running.talk(ask.replacen("Host", "Connection: close\r\nHost", 1).as_bytes())).status, 200);
    let alone = alone.elapsed();
    assert!(since.elapsed() < Duration::from_secs(2) + 21 * alone, "{:?}, one takes {alone:?}", since.elapsed());
    running.end();
}

#[test]
fn a_place_is_free_behind_the_last_byte() {
    let limits = Limits { places: 1, ..Limits::default() };
    let running = run(ServiceConfig { limits, ..ServiceConfig::default() }, HttpConfig::default());
    let ask = json!({"max_tokens": 900, "ignore_eos": true, "logprobs": true, "top_logprobs": 20,
        "diffusion": {"decoder": "static", "steps": 1, "block_length": 900}});
    let mut slow = running.connect();
    slow.write_all(request(&ask, "Connection: close\r\n").as_bytes()).unwrap();
    let mut start = [0; 15];
    slow.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    // More is on its way than the systems on both sides keep.
    thread::sleep(Duration::from_millis(300));
    if !running.served.service.is_busy() {
        let rest = rest(&mut slow);
        assert!(rest.len() < 8 << 20, "{} bytes were waited for without a place", rest.len());
    }
    drop(slow);
    until("its place is free", || !running.served.service.is_busy());
    running.end();
}
