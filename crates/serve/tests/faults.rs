//! An engine that fails, panics or has no memory: every request ends with an error that clients read, the server says how it
//! is, and nothing hangs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use demask::layers::{
    engine::Faults,
    step::{DeviceError, OpenError, OutOfMemory},
};
use demask_serve::ServiceConfig;
use serde_json::{Value, json};

use crate::{
    common::{
        Kind, Reply, Served, collected, events, hold, is_stream, json, json_of, load, made, messages, nothing_left,
        post, read, send, serve_model, stream, until, whole,
    },
    contract::with,
};

const CHAT: &str = "/v1/chat/completions";

/// A request that takes many forwards.
fn chat(more: &Value) -> Value {
    let body = json!({"messages": [{"role": "user", "content": "Ada has 3 pears."}], "max_tokens": 64, "seed": 1,
        "diffusion": {"decoder": "static", "steps": 64, "block_length": 8}});
    with(body, more)
}

fn serve_faulty(faults: Faults, config: ServiceConfig) -> Served {
    serve_model(load(Kind::Llada).with_faults(faults), config)
}

/// Requests of every kind, all on their way before the engine's first forward.
fn of_every_kind(served: &Served) -> Vec<Reply> {
    let held = hold(&served.handle);
    let of = |path: &str, body: &Value| post(&served.service, path, body);
    let replies = vec![
        of(CHAT, &chat(&json!({"n": 2}))),
        of(CHAT, &chat(&json!({"stream": true}))),
        of(CHAT, &chat(&json!({"stream": true, "diffusion": {"frames": "canvas"}}))),
        of("/v1/completions", &json!({"prompt": ["Ada", "Ben"], "max_tokens": 64, "diffusion": {"steps": 64}})),
        of("/v1/infill", &json!({"segments": ["Ada has ", {"hole": {"tokens": 30}}, "."], "diffusion": {"steps": 30}})),
        of(
            "/v1/score",
            &json!({"context": "Ada has", "continuation": " 3 pears and 4 cards and 5 cups and 6 books.", "draws": 2000}),
        ),
    ];
    held.let_go();
    replies
}

/// The error that a reply ends with.
fn error_of(reply: Reply) -> (u16, Value) {
    let response = reply.response();
    if !is_stream(&response) {
        let (status, body) = json_of(&collected(response));
        return (status, body["error"].clone());
    }
    let messages = messages(&read(&mut events(response)));
    let last = messages.last().expect("a message").clone();
    assert!(last.get("choices").is_none(), "{last}");
    (500, last["error"].clone())
}

/// Checks that a server whose engine failed says so wherever it is asked, and ends each request.
fn has_failed(served: &Served, why: &str) {
    let get = |path: &str| json(send(&served.service, "GET", path, &[], b""));
    until("it is known", || get("/health").0 == 503);
    for path in ["/health", "/v1/health", "/ready", "/ping"] {
        let (status, body) = get(path);
        assert_eq!((status, body["error"]["code"].as_str()), (503, Some("engine_failed")), "{path}: {body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(why), "{path}: {body}");
    }
    assert_eq!((get("/live").0, get("/v1/models").0), (200, 200));
    // Whoever comes now is told at once.
    for more in [json!({}), json!({"stream": true})] {
        let (status, error) = error_of(post(&served.service, CHAT, &chat(&more)));
        assert_eq!((status, error["type"].as_str()), (500, Some("server_error")), "{error}");
    }
    let metrics = whole(send(&served.service, "GET", "/metrics", &[], b""));
    let metrics = String::from_utf8(metrics.body().to_vec()).unwrap();
    let failed = metrics.lines().find_map(|line| line.strip_prefix("demask_requests_failed_total ")).unwrap();
    assert!(failed.parse::<f64>().unwrap() >= 2.0, "{failed}");
    until("something is left", || !served.service.is_busy());
    assert_eq!(served.handle.counters().totals.leaks, 0);
}

#[test]
fn a_device_that_fails_ends_every_request() {
    for forward in [0, 1, 9] {
        let burns = move |at| if at == forward { Err(DeviceError("it is on fire".to_owned())) } else { Ok(()) };
        let served = serve_faulty(Faults::before_step(burns), ServiceConfig::default());
        for reply in of_every_kind(&served) {
            let (status, error) = error_of(reply);
            assert_eq!((status, error["type"].as_str()), (500, Some("server_error")), "{error}");
            assert_eq!(error["message"], "the device failed: it is on fire");
        }
        has_failed(&served, "the device failed: it is on fire");
        nothing_left(&served);
    }
}

#[test]
fn an_engine_that_panics_ends_every_request() {
    for forward in [0, 9] {
        let panics = move |at| {
            assert!(at != forward, "for a test");
            Ok(())
        };
        let served = serve_faulty(Faults::before_step(panics), ServiceConfig::default());
        for reply in of_every_kind(&served) {
            let (status, error) = error_of(reply);
            assert_eq!((status, error["type"].as_str()), (500, Some("server_error")), "{error}");
            assert!(error["message"].as_str().unwrap().contains("its thread panicked"), "{error}");
        }
        has_failed(&served, "its thread panicked (a bug, please report it): for a test");
    }
}

#[test]
fn what_was_sent_before_a_failure_stays_and_the_stream_ends_by_its_rule() {
    let burns = |at| if at == 30 { Err(DeviceError("it is on fire".to_owned())) } else { Ok(()) };
    let served = serve_faulty(Faults::before_step(burns), ServiceConfig::default());
    let text = read(&mut stream(post(&served.service, CHAT, &chat(&json!({"stream": true, "ignore_eos": true})))));
    let messages = messages(&text);
    let (last, before) = messages.split_last().unwrap();
    assert_eq!(last["error"]["message"], "the device failed: it is on fire");
    assert!(!before.is_empty() && before.iter().all(|message| message["choices"].is_array()), "{text}");
    assert!(before.iter().all(|message| message["choices"][0]["finish_reason"].is_null()), "nothing has finished");
}

#[test]
fn who_waits_for_a_device_that_fails_is_told_too() {
    // A stop in the middle of the third forward, while the second request waits behind the first one's memory. The stop has
    // an end of its own: a test that fails must not leave an engine that nobody can join.
    let (release, released) = mpsc::channel();
    let waits = move |at| match at {
        2 => {
            let _ = released.recv_timeout(Duration::from_mins(2));
            Err(DeviceError("it is on fire".to_owned()))
        }
        _ => Ok(()),
    };
    // Only one sequence at a time can be open.
    let full = Arc::new(Mutex::new(0));
    let opens = move |_| {
        let mut open = full.lock().unwrap();
        *open += 1;
        if *open == 1 { Ok(()) } else { Err(OpenError::Memory(OutOfMemory { needed: 1 << 30, available: 1 << 20 })) }
    };
    let served = serve_faulty(Faults::before_step(waits).and_before_open(opens), ServiceConfig::default());
    // Both have come before the first forward: an engine that stands in its third one takes no requests.
    let held = hold(&served.handle);
    let first = post(&served.service, CHAT, &chat(&json!({})));
    let second = post(&served.service, CHAT, &chat(&json!({"stream": true})));
    held.let_go();
    until("one waits", || served.handle.counters().totals.waiting == 1);
    release.send(()).unwrap();
    for reply in [first, second] {
        let (status, error) = error_of(reply);
        assert_eq!((status, error["message"].as_str()), (500, Some("the device failed: it is on fire")));
    }
    nothing_left(&served);
}

#[test]
fn who_finds_no_memory_waits_for_others_and_is_refused_alone() {
    // Whether the next openings find any.
    let script: Arc<Mutex<VecDeque<bool>>> = Arc::default();
    let opens = {
        let script = Arc::clone(&script);
        move |_| match script.lock().unwrap().pop_front() {
            Some(false) => Err(OpenError::Memory(OutOfMemory { needed: 3 << 30, available: 1 << 30 })),
            _ => Ok(()),
        }
    };
    let next = |finds: &[bool]| script.lock().unwrap().extend(finds);
    let served = serve_faulty(Faults::before_open(opens), ServiceConfig::default());
    let alone = made(post(&served.service, CHAT, &chat(&json!({}))));
    // Nothing else is open that could make room: it never fits.
    next(&[false]);
    let (status, error) = error_of(post(&served.service, CHAT, &chat(&json!({}))));
    assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("needs 3072 MiB of memory and 1024 MiB are available"));
    // Beside others it waits until one of them is over, and has the same answer.
    next(&[true, false, true, false]);
    let held = hold(&served.handle);
    let replies: Vec<Reply> = (0..6).map(|_| post(&served.service, CHAT, &chat(&json!({})))).collect();
    held.let_go();
    for reply in replies {
        assert_eq!(made(reply)["choices"][0]["message"], alone["choices"][0]["message"]);
    }
    // The second sequence of one request: the first one is closed again.
    next(&[true, false]);
    let guided = chat(&json!({"diffusion": {"cfg_scale": 1.0}}));
    let (status, error) = error_of(post(&served.service, CHAT, &guided));
    assert_eq!(status, 400, "{error}");
    nothing_left(&served);
    assert_eq!(json(send(&served.service, "GET", "/health", &[], b"")).0, 200, "refusing is no failure");
}

#[test]
fn a_wait_ends_where_the_first_forward_begins() {
    // Each forward takes long, and none of it is waiting.
    let slow = |_| {
        thread::sleep(Duration::from_millis(200));
        Ok(())
    };
    let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |line: &Value| lines.lock().unwrap().push(line.clone()))
    };
    let served = serve_faulty(Faults::before_step(slow), ServiceConfig { log, ..ServiceConfig::default() });
    let short = json!({"max_tokens": 8, "diffusion": {"steps": 4, "block_length": 8}});
    let response = whole(post(&served.service, CHAT, &chat(&short)));
    let timing = response.headers()["server-timing"].to_str().unwrap();
    let queue: f64 = timing.split_once("queue;dur=").unwrap().1.split_once(',').unwrap().0.parse().unwrap();
    assert!(queue < 150.0, "{timing}");
    made(post(&served.service, "/v1/score", &json!({"context": "Ada", "continuation": " has", "draws": 1})));
    until("both are written down", || lines.lock().unwrap().len() == 2);
    for line in lines.lock().unwrap().iter() {
        let (queue, total) = (line["queue_ms"].as_f64().unwrap(), line["total_ms"].as_f64().unwrap());
        assert!(queue < 150.0 && total >= 200.0, "{line}");
    }
    // What really waits is counted.
    let held = hold(&served.handle);
    let reply = post(&served.service, CHAT, &chat(&short));
    thread::sleep(Duration::from_millis(80));
    held.let_go();
    made(reply);
    let waited = lines.lock().unwrap().last().unwrap()["queue_ms"].as_f64().unwrap();
    assert!(waited >= 75.0, "{waited}");
}
