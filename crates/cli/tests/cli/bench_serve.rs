//! `demask bench serve` against scripted servers, good ones and bad ones.

use std::{
    collections::HashSet,
    net::TcpListener,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    harness::{Run, command, demask, demask_with_input},
    refusals::refused,
    scripted::{Asked, Reply, Scripted, chat, end},
};

/// An answer whose text is the prompt, in three texts.
fn echo(asked: &Asked) -> Reply {
    let prompt = asked.body.pointer("/messages/0/content").and_then(Value::as_str).unwrap_or_default();
    let letters: Vec<_> = prompt.chars().collect();
    let third = letters.len().div_ceil(3).max(1);
    let texts = letters.chunks(third).map(|part| chat(&part.iter().collect::<String>()));
    let mut messages: Vec<_> = texts.chain(end(7, 3)).collect();
    messages[0] = messages[0].replacen('{', "{\"diffusion\":{\"v\":1},", 1);
    Reply::stream("Server-Timing: queue;dur=2.5, model;dur=9\r\n", &messages)
}

fn bench(server: &Scripted, arguments: &[&str]) -> Run {
    demask(&[&["bench", "serve", "--url", &server.url], arguments].concat())
}

fn close_to(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value / expected - 1.0).abs() < 1e-6)
}

#[test]
fn a_load_is_told_as_vllms_benchmark_tells_it() {
    let server = Scripted::start(echo);
    let found = bench(&server, &["--requests", "10", "--concurrency", "2", "--json", "--details"]).json();
    for (name, expected) in [
        ("model_id", json!("scripted")),
        ("num_prompts", json!(10)),
        ("request_rate", json!("inf")),
        ("max_concurrency", json!(2)),
        ("completed", json!(10)),
        ("failed", json!(0)),
        ("total_input_tokens", json!(70)),
        ("total_output_tokens", json!(30)),
        ("mean_queue_ms", json!(2.5)),
        ("request_goodput", Value::Null),
        ("rows_per_forward", Value::Null),
        ("server_processor_seconds", Value::Null),
    ] {
        assert_eq!(found[name], expected, "{name}");
    }
    let duration = found["duration"].as_f64().unwrap();
    assert!(close_to(&found["request_throughput"], 10.0 / duration));
    assert!(close_to(&found["output_throughput"], 30.0 / duration));
    assert!(close_to(&found["total_token_throughput"], 100.0 / duration));
    for kind in ["ttft", "tpot", "itl", "e2el"] {
        for statistic in ["mean", "median", "std", "p90", "p99"] {
            let name = format!("{statistic}_{kind}_ms");
            assert!(found[&name].as_f64().is_some_and(|value| value >= 0.0), "{name}");
        }
    }
    for list in ["input_lens", "output_lens", "ttfts", "itls", "e2els", "generated_texts", "errors"] {
        assert_eq!(found[list].as_array().unwrap().len(), 10, "{list}");
    }
    let asked = server.asked();
    let connections: HashSet<_> = asked.iter().map(|asked| asked.connection).collect();
    // Each thread keeps its connection; one of them may have done all the work before the other began.
    assert!(asked.len() == 10 && (1..=2).contains(&connections.len()), "{} on {}", asked.len(), connections.len());
    let prompts: HashSet<_> = asked.iter().map(|asked| asked.body["messages"].to_string()).collect();
    let seeds: HashSet<_> = asked.iter().map(|asked| asked.body["seed"].as_u64().unwrap()).collect();
    assert_eq!((prompts.len(), seeds), (10, (0..10).collect()));
    assert_eq!(
        found["generated_texts"][0],
        asked.iter().find(|one| one.body["seed"] == 0).unwrap().body["messages"][0]["content"]
    );
}

#[test]
fn several_loads_are_columns_or_a_list() {
    let server = Scripted::start(echo);
    let arguments = ["--requests", "4", "--concurrency", "1,2", "--slo", "ttft=10s"];
    let found = bench(&server, &[&arguments[..], &["--json"]].concat()).json();
    assert_eq!([&found[0]["max_concurrency"], &found[1]["max_concurrency"]], [&json!(1), &json!(2)]);
    assert_eq!(found[0]["request_goodput"], found[0]["request_throughput"]);
    let table = bench(&server, &arguments).success();
    let first = table.lines().next().unwrap();
    assert!(first.split_whitespace().eq("load 1 at once 2 at once".split(' ')), "{table}");
    let lines: Vec<_> = table.lines().filter(|line| line.starts_with("finished, refused, failed")).collect();
    assert!(lines.len() == 1 && lines[0].matches("4 0 0").count() == 2, "{table}");
    assert!(!table.contains("forwards"), "nobody tells forwards: {table}");
}

#[test]
fn requests_are_what_the_flags_say() {
    let server = Scripted::start(|_| {
        Reply::stream("", &[json!({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}).to_string()])
    });
    let body = r#"{"temperature":0,"diffusion":{"steps":4},"seed":9}"#;
    let words = [
        "bench",
        "serve",
        "--url",
        &format!("{}/v1", server.url),
        "--endpoint",
        "completions",
        "--model",
        "named",
        "--prompts",
        "-",
        "--max-tokens",
        "5",
        "--requests",
        "3",
        "--body",
        body,
        "--api-key-env",
        "BENCH_KEY",
        "--json",
    ];
    let mut run = command(&words);
    run.env("BENCH_KEY", "sk-1").stdin(std::process::Stdio::piped());
    let mut child = run.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"{\"prompt\":\"one\"}\n\n{\"prompt\":[1,2]}\n")
        .unwrap();
    let found = Run::from(child.wait_with_output().unwrap()).json();
    assert_eq!((&found["completed"], &found["total_output_tokens"]), (&json!(3), &Value::Null));
    let asked = server.asked_at_all();
    assert!(asked.iter().all(|one| one.what == "POST /v1/completions HTTP/1.1\r\n"), "the model is named: {asked:?}");
    assert!(asked.iter().all(|one| one.head.contains("Authorization: Bearer sk-1\r\n")));
    let prompts: Vec<_> = asked.iter().map(|one| &one.body["prompt"]).collect();
    assert_eq!(prompts, [&json!("one"), &json!([1, 2]), &json!("one")]);
    let expected = json!({
        "model": "named", "prompt": "one", "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true},
        "temperature": 0, "diffusion": {"steps": 4}, "seed": 9,
    });
    assert_eq!(asked[0].body, expected);
}

#[test]
fn streams_are_read_however_they_are_torn() {
    for size in [1, 7, 4096] {
        let server = Scripted::start(move |asked| echo(asked).torn(size));
        let found = bench(&server, &["--requests", "3", "--prompt-words", "4", "--json", "--details"]).json();
        assert_eq!(found["completed"], 3, "pieces of {size}");
        let sent = server.asked()[2].body["messages"][0]["content"].clone();
        assert_eq!(found["generated_texts"][2], sent, "pieces of {size}");
    }
}

#[test]
fn bodies_may_be_whole_and_end_with_the_connection() {
    let body =
        r#"{"choices":[{"index":0,"message":{"content":"w"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#;
    let server = Scripted::start(move |asked| match asked.number % 3 {
        0 => Reply::json("200 OK", "", body),
        1 => Reply::bytes(format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"
        ))
        .closed(),
        // The next request finds a connection that has been closed without a word.
        _ => Reply::json("200 OK", "", body).closed(),
    });
    let found = bench(&server, &["--requests", "9", "--json"]).json();
    assert_eq!((&found["completed"], &found["total_output_tokens"]), (&json!(9), &json!(18)));
}

#[test]
fn receipts_and_gaps_are_told() {
    let server = Scripted::start(|_| {
        let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "diffusion": {"seed": 1, "receipt": {"nfe": 4, "forwards": 5, "rows": 60, "decoder": "static"}}});
        let text = [chat("a"), chat(""), chat("b"), last.to_string(), "[DONE]".to_owned()];
        let pieces = text.map(|text| format!("data: {text}\n\n").into_bytes());
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_vec();
        let pieces = std::iter::once(head).chain(pieces).collect();
        Reply { pieces, pause: Duration::from_millis(20), close: true }
    });
    let found = bench(&server, &["--requests", "2", "--json", "--details", "--slo", "gap=1ms"]).json();
    assert_eq!((&found["mean_forwards"], &found["rows_per_forward"]), (&json!(5.0), &json!(12.0)));
    assert_eq!(found["itls"][0].as_array().unwrap().len(), 1, "an empty text is none");
    let number = |name: &str| found[name].as_f64().unwrap();
    assert!(
        number("median_ttft_ms") >= 19.0 && number("median_itl_ms") >= 38.0 && number("median_e2el_ms") >= 95.0,
        "{found}"
    );
    assert_eq!(found["request_goodput"], 0.0);
}

#[test]
fn refusals_are_no_failures() {
    let server = Scripted::start(|asked| match asked.number % 4 {
        0 => Reply::json("503 Service Unavailable", "Retry-After: 2\r\n", r#"{"error":{"message":"full"}}"#),
        1 => Reply::json("429 Too Many Requests", "", "{}"),
        2 => Reply::json("500 Internal Server Error", "", r#"{"error":{"message":"broken"}}"#),
        _ => echo(asked),
    });
    let run = bench(&server, &["--requests", "8", "--json"]);
    assert_eq!(run.stderr, "2 requests failed at 1 at once, the first is 2: HTTP 500: broken\n");
    let found = run.json();
    let counts =
        ["completed", "refused", "refused_with_retry_after", "failed"].map(|name| found[name].as_u64().unwrap());
    assert_eq!(counts, [2, 4, 2, 6]);
    assert!(found["mean_refusal_ms"].as_f64().unwrap() > 0.0);
    let all = Scripted::start(|_| Reply::json("503 Service Unavailable", "", ""));
    let run = bench(&all, &["--requests", "2", "-q"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(1), "error: no request was answered: the server refused all of them\n")
    );
}

#[test]
fn random_arrivals_do_not_wait_for_answers() {
    let server = Scripted::start(|asked| echo(asked).torn(400).slowly(Duration::from_millis(150)));
    let began = Instant::now();
    let found = bench(&server, &["--requests", "40", "--rate", "100", "--json"]).json();
    assert_eq!(
        (&found["completed"], &found["request_rate"], &found["max_concurrency"]),
        (&json!(40), &json!(100.0), &Value::Null)
    );
    assert!(found["mean_late_ms"].as_f64().is_some());
    // One after the other would take 40 times the 300 ms of an answer.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let connections: HashSet<_> = server.asked().iter().map(|asked| asked.connection).collect();
    // About 30 are under way at the same time; a connection that is free is used again.
    assert!((10..=40).contains(&connections.len()), "{}", connections.len());
}

#[test]
fn warm_up_requests_are_not_measured() {
    let server = Scripted::start(echo);
    let found = bench(&server, &["--requests", "3", "--warm", "2", "--json"]).json();
    assert_eq!((&found["completed"], server.asked().len()), (&json!(3), 5));
    let cold = Scripted::start(|_| Reply::json("500 Internal Server Error", "", r#"{"error":{"message":"broken"}}"#));
    refused(&bench(&cold, &["--warm", "1"]), 1, "a warm-up request failed: HTTP 500: broken");
    assert_eq!(cold.asked().len(), 1);
}

#[test]
fn checked_answers_are_those_of_lone_requests() {
    let server = Scripted::start(echo);
    let arguments = ["--requests", "4", "--concurrency", "1,4", "--check"];
    let run = bench(&server, &arguments);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "8 answers, each equal to that of the request alone\n"));
    assert_eq!(server.asked().len(), 12, "a request is asked alone once, whatever loads it was in");

    let unsteady = Scripted::start(|asked| {
        let text = if asked.number < 4 { "12345" } else { "12x45" };
        Reply::stream("", &[&[chat(text)], &end(1, 1)[..]].concat())
    });
    let run = bench(&unsteady, &["--requests", "4", "--check"]);
    assert_eq!(run.code, Some(1));
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines[0], "request 0 at 1 at once: text from byte 2 on is \"345\", alone \"x45\"");
    assert_eq!(lines[4], "error: 4 of 4 answers differ from those of the requests alone");
    assert!(run.stdout.contains("requests/s"), "what was measured is told all the same");
}

#[test]
#[cfg(target_os = "linux")]
fn processor_seconds_are_those_of_the_servers_process() {
    let server = Scripted::start(echo);
    let own = std::process::id().to_string();
    let found = bench(&server, &["--requests", "2", "--pid", &own, "--json"]).json();
    assert!(found["server_processor_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0));
    assert!(found["client_processor_seconds"].as_f64().is_some());
    assert_eq!(bench(&server, &["--pid", "x"]).code, Some(2));
    let run = bench(&server, &["--pid", "4194304"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.starts_with("error: --pid 4194304: cannot read /proc/4194304/stat, expected a running process"));
}

/// Expects the only request to fail for this reason.
#[track_caller]
fn fails(reply: impl Fn() -> Reply + Send + Sync + 'static, reason: &str) {
    let server = Scripted::start(move |_| reply());
    let run = bench(&server, &["--requests", "1", "--quiet", "--timeout", "2"]);
    assert_eq!((run.code, run.stderr), (Some(1), format!("error: no request was answered: {reason}\n")));
}

#[test]
fn bad_answers_are_told_in_a_line() {
    let stream = |text: &'static str| move || Reply::chunked("", text);
    fails(stream("data: {\"choices\":[]}\n\n"), "the answer cannot be read: the stream ended without [DONE]");
    fails(stream("data: [DO"), "the answer cannot be read: the stream ended in the middle of a message");
    fails(
        stream("data: {\"error\":{\"message\":\"the device\\nfailed\",\"code\":500}}\n\ndata: [DONE]\n\n"),
        "the server reports an error: the device failed",
    );
    fails(
        stream("data: <p>\n\n"),
        "the answer cannot be read: expected value at line 1 column 1 in <p>, expected a completion",
    );
    fails(
        || Reply::bytes(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: \xff\n\n".to_vec()).closed(),
        "the answer cannot be read: a message of the stream is not UTF-8",
    );
    fails(
        || Reply::bytes("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n").closed(),
        "the answer cannot be read: its type is \"text/html\", expected text/event-stream",
    );
    fails(
        || Reply::bytes("garbage\r\n\r\n").closed(),
        "the answer cannot be read: it is not HTTP/1.1: invalid HTTP version",
    );
    fails(
        || Reply::bytes(format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(100_000))),
        "the answer cannot be read: its head is longer than 65536 bytes",
    );
    fails(|| Reply::bytes("").closed(), "the server closed the connection before it answered");
    fails(
        || {
            Reply::bytes("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata")
                .closed()
        },
        "the server closed the connection in the middle of its answer",
    );
    fails(
        || {
            Reply::bytes(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n",
            )
        },
        "the answer cannot be read: the size of a chunk is \"xx\", expected a hexadecimal number",
    );
    fails(
        || Reply::json("401 Unauthorized", "", r#"{"error":{"message":"no such key","type":"authentication_error"}}"#),
        "HTTP 401: no such key",
    );
    fails(|| Reply::bytes("HTTP/1.1 200"), "no end of the answer within 2 s: a longer --timeout waits longer");
}

#[test]
fn servers_that_are_none() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = demask(&["bench", "serve", "--url", &format!("http://{free}")]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.starts_with(&format!("error: cannot connect to {free}: Connection refused")), "{}", run.stderr);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::io::Write::write_all(&mut stream.unwrap(), b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        }
    });
    let run = demask(&["bench", "serve", "--url", &url]);
    let expected = format!("{}/v1/models (HTTP 404) lists no model: --model NAME names one", &url["http://".len()..]);
    refused(&run, 1, &expected);
}

/// Expects a wrong call to be refused before anybody is asked.
#[track_caller]
fn wrong(arguments: &[&str], message: &str) {
    let url = ["bench", "serve", "--url", "http://127.0.0.1:9"];
    refused(&demask(&[&url[..], arguments].concat()), 2, message);
}

#[test]
fn wrong_calls_are_told_before_anybody_is_asked() {
    refused(&demask(&["bench", "serve"]), 2, "no server given: --url http://127.0.0.1:8080");
    refused(&demask(&["bench", "serve", "--url", "host:1"]), 2, "--url is \"host:1\": expected http://HOST:PORT");
    wrong(&["--endpoint", "responses"], "--endpoint is \"responses\", expected chat or completions");
    wrong(&["--concurrency", "0"], "--concurrency wants numbers from 1 to 256: --concurrency 1,16");
    wrong(&["--concurrency", "1,x"], "--concurrency: \"x\" is not a number of requests: expected 1,2,3 or the like");
    wrong(&["--rate", "0"], "--rate is 0, expected requests a second, a number above 0");
    wrong(&["--rate", "-1"], "--rate is -1, expected requests a second, a number above 0");
    wrong(
        &["--rate", "1", "--concurrency", "2"],
        "--rate lets requests come when they come, --concurrency when others end: omit one of the two",
    );
    wrong(&["--requests", "0"], "--requests is 0, expected 1 to 10000000");
    wrong(&["--warm", "10000001"], "--warm is 10000001, expected 0 to 10000000");
    wrong(&["--timeout", "0"], "--timeout is 0, expected seconds, a number from 0.001 on");
    wrong(&["--slo", "ttft=5"], "--slo: \"ttft=5\" is no bound, expected ttft=500ms, gap=100ms or total=2s");
    wrong(
        &["--body", "{\"model\":\"x\"}"],
        "--body names model, which the requests have already: flags set it, --help lists them",
    );
    wrong(&["--threads", "2"], "--threads belongs to the server, which runs already: omit it");
    wrong(
        &["--api-key-env", "NO_SUCH_KEY"],
        "--api-key-env: the environment has no NO_SUCH_KEY: set it to the server's key",
    );
    wrong(
        &["--prompts", "-", "--prompt-words", "3"],
        "--prompt-words makes prompts and --prompts reads them: omit one of the two",
    );
    wrong(&["--prompts", "-"], "- has no prompts: expected one a line");
    let run = demask(&["bench", "serve", "--url", "http://127.0.0.1:9", "--prompts", "/nowhere/file"]);
    refused(&run, 1, "cannot read /nowhere/file: No such file or directory (os error 2)");
    let words = ["bench", "serve", "--url", "http://127.0.0.1:9", "--prompts", "-"];
    refused(
        &demask_with_input(&words, "{\"prompt\":1}"),
        2,
        "-, line 1: the prompt is neither text nor a list of token ids",
    );
}

#[test]
#[cfg(unix)]
fn an_interrupted_measurement_ends_at_once() {
    let server = Scripted::start(|asked| echo(asked).torn(1).slowly(Duration::from_millis(500)));
    let child =
        command(&["bench", "serve", "--url", &server.url, "--requests", "5", "--rate", "1000"]).spawn().unwrap();
    while server.asked().len() < 5 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let began = Instant::now();
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(130), "{}", run.stderr);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
