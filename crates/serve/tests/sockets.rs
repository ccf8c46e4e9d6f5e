//! The server on a socket: whatever comes in is refused, cut off or served, and whoever leaves leaves nothing behind.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use demask_serve::{
    Keys, Limits, ServeOptions, ServiceConfig,
    http::{HttpConfig, Server, Stop},
};
use serde_json::{Value, json};

use crate::common::{Kind, Served, hold, messages, nothing_left, serve, until};

pub const CHAT: &str = "/v1/chat/completions";

/// A server on a port of its own.
pub struct Running {
    pub served: Served,
    address: SocketAddr,
    stop: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
}

/// Bounds that are short enough to be waited for.
fn quick() -> HttpConfig {
    HttpConfig {
        head_time: Duration::from_millis(700),
        body_time: Duration::from_millis(700),
        write_time: Duration::from_secs(1),
        heartbeat: Duration::from_millis(100),
        drain_time: Duration::from_millis(600),
        drain_notice: Duration::from_millis(800),
        ..HttpConfig::default()
    }
}

pub fn run(config: ServiceConfig, http: HttpConfig) -> Running {
    let served = serve(Kind::Llada, config);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), served.service.clone(), http).unwrap();
    let (address, stop) = (server.address().unwrap(), Arc::new(AtomicU8::new(0)));
    let told = Arc::clone(&stop);
    let stops = move || match told.load(Ordering::Relaxed) {
        0 => Stop::No,
        1 => Stop::Drain,
        _ => Stop::Now,
    };
    let thread = thread::spawn(move || server.run(stops).unwrap());
    Running { served, address, stop, thread: Some(thread) }
}

impl Running {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes, and returns all that comes back until the server closes.
    pub fn talk(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A server that has refused enough closes before everything is written.
        let _ = stream.write_all(bytes);
        rest(&mut stream)
    }

    pub fn get(&self, path: &str) -> Answer {
        Answer::of(
            &self.talk(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()),
        )
    }

    fn healthy(&self) {
        let answer = self.get("/health");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(self.post(&json!({"max_tokens": 2})).status, 200);
    }

    pub fn post(&self, more: &Value) -> Answer {
        Answer::of(&self.talk(request(more, "Connection: close\r\n").as_bytes()))
    }

    /// Stops the server and waits for it; nothing may be left.
    pub fn end(mut self) {
        self.stop.store(2, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("the server never panics");
        nothing_left(&self.served);
    }
}

/// All that comes until the other side closes.
pub fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the connection stays open: {:?}", String::from_utf8_lossy(&bytes))
            }
            // A reset: what was sent behind a refusal was not read.
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A chat request as bytes.
pub fn request(more: &Value, headers: &str) -> String {
    let body = json!({"messages": [{"role": "user", "content": "Ada has 3 pears."}], "seed": 1});
    let body = crate::contract::with(body, more).to_string();
    let length = body.len();
    format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// A response as it was read.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut answer = Self { status, head: head.to_lowercase(), body: body.to_owned() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(&answer.body);
        }
        answer
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn error(&self, part: &str) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        body["error"][part].as_str().unwrap_or_default().to_owned()
    }
}

/// Puts chunks together; the end must be there.
fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    loop {
        let (size, behind) = text.split_once("\r\n").unwrap_or_else(|| panic!("no chunk: {text:?}"));
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.push_str(&behind[..size]);
        text = behind[size..].strip_prefix("\r\n").unwrap();
    }
}

#[test]
fn requests_are_served() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    running.healthy();
    let answer = running.post(&json!({"max_tokens": 8, "stream": true, "stream_options": {"include_usage": true}}));
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(messages(&answer.body).last().unwrap()["choices"], json!([]));
    // Several requests on one connection, some of them sent before the first one is answered.
    let get = "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let text = running.talk([get, &request(&json!({"max_tokens": 2}), ""), get, last].concat().as_bytes());
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 4, "{text}");
    // A head is the same without its body.
    let get = running.get("/health");
    let head = Answer::of(&running.talk(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), get.header("content-length"));
    assert_eq!(get.header("content-length"), Some(get.body.len().to_string().as_str()));
    let head = Answer::of(&running.talk(b"HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    assert_eq!((head.status, head.body.as_str()), (404, ""));
    // Who asks before sending is told to go on.
    let mut stream = running.connect();
    let (head, body) = request(&json!({"max_tokens": 2}), "Expect: 100-continue\r\nConnection: close\r\n")
        .split_once("\r\n\r\n")
        .map(|(head, body)| (format!("{head}\r\n\r\n"), body.to_owned()))
        .unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 100");
    stream.write_all(body.as_bytes()).unwrap();
    assert!(rest(&mut stream).contains("HTTP/1.1 200 OK"));
    // A body in chunks.
    let chunks = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         5\r\n{{\"mes\r\n3f\r\nsages\":[{{\"role\":\"user\",\"content\":\"Ada has 3\"}}],\"max_tokens\":2}}\r\n0\r\n\r\n"
    );
    let answer = Answer::of(&running.talk(chunks.as_bytes()));
    assert!(answer.status == 200 || answer.status == 400, "{answer:?}");
    running.end();
}

/// What no client should send: each is refused with a status from 400 on, or cut off.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let head = |lines: &str| format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").into_bytes();
    let chunked = |body: &str| head(&format!("Transfer-Encoding: chunked\r\n\r\n{body}"));
    let many: String = "X-Same: 1\r\n".repeat(100_000);
    vec![
        ("no host", b"GET /health HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts", b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec()),
        ("two lengths", head("Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}")),
        ("length in words", head("Content-Length: five\r\n\r\n{}")),
        ("a negative length", head("Content-Length: -1\r\n\r\n{}")),
        ("a length with a sign", head("Content-Length: +2\r\n\r\n{}")),
        ("a length beyond all numbers", head("Content-Length: 99999999999999999999999\r\n\r\n{}")),
        ("a length beyond the limit", head("Content-Length: 9999999999\r\n\r\n{}")),
        ("length and chunks", head("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("chunks that are no numbers", chunked("zz\r\n{}\r\n0\r\n\r\n")),
        ("chunks beyond all numbers", chunked("fffffffffffffffffff\r\n{}\r\n")),
        ("a negative chunk", chunked("-2\r\n{}\r\n0\r\n\r\n")),
        ("chunks without their ends", chunked("2\r\n{}{}\r\n0\r\n\r\n")),
        ("an unknown encoding", head("Transfer-Encoding: zip\r\n\r\n{}")),
        ("a folded header", head("X-Long: a\r\n b\r\nContent-Length: 2\r\n\r\n{}")),
        ("a zero in a header", head("X-Zero: a\0b\r\nContent-Length: 2\r\n\r\n{}")),
        ("a zero in a path", b"GET /hea\0lth HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a header without a name", head(": x\r\n\r\n")),
        ("a header with a space", head("X Y: z\r\n\r\n")),
        ("a large header", head(&format!("X-Large: {}\r\n\r\n", "x".repeat(1 << 20)))),
        ("many headers", head(&format!("{many}\r\n"))),
        ("an old version", b"GET /health\r\n\r\n".to_vec()),
        ("another version", b"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n".to_vec()),
        ("the preface of version 2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a greeting of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20)),
        ("nothing but ends", b"\r\n\r\n\r\n\r\nGET\r\n\r\n".to_vec()),
        ("bytes", (0..=255).collect::<Vec<u8>>().repeat(8)),
        (
            "a long line",
            [b"GET /".to_vec(), vec![b'a'; 1 << 20], b" HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()].concat(),
        ),
        ("a body that is no text", head("Content-Length: 3\r\nConnection: close\r\n\r\n\u{1}\u{2}\u{3}")),
        ("a method of its own", b"BREW / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec()),
    ]
}

#[test]
fn malformed_requests_are_refused_or_cut_off() {
    let running = run(ServiceConfig::default(), quick());
    for (name, bytes) in malformed() {
        let text = running.talk(&bytes);
        let answer = Answer::of(&text);
        assert!(text.is_empty() || (400..600).contains(&answer.status), "{name}: {text}");
        assert!(answer.status < 500, "{name}: {text}");
        // A head that hyper cannot read gets a bare status from it.
        let bare = [400, 414, 431].contains(&answer.status) && answer.body.is_empty();
        if !text.is_empty() && !bare {
            assert_eq!(answer.error("type"), "invalid_request_error", "{name}: {text}");
            assert!(answer.header("x-request-id").is_some() && answer.header("date").is_some(), "{name}: {text}");
            assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()), "{name}");
        }
        assert!(!text.contains("HTTP/1.1 200"), "{name}: {text}");
        assert_eq!(running.get("/health").status, 200, "after {name}");
    }
    running.healthy();
    running.end();
}

#[test]
fn bodies_have_a_size() {
    let limits = Limits { body_bytes: 1000, ..Limits::default() };
    let running = run(ServiceConfig { limits, ..ServiceConfig::default() }, quick());
    // By what the head says, before anything is sent.
    let mut stream = running.connect();
    let head = "Host: localhost\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n";
    stream.write_all(format!("POST {CHAT} HTTP/1.1\r\n{head}\r\n").as_bytes()).unwrap();
    let answer = Answer::of(&rest(&mut stream));
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")), "{answer:?}");
    assert!(answer.error("message").contains("1001") && answer.error("message").contains("1000"));
    // And by what comes, where the head does not say.
    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    let chunks =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(11));
    let answer = Answer::of(&running.talk(chunks.as_bytes()));
    assert_eq!(answer.status, 413, "{answer:?}");
    running.healthy();
    running.end();
}

#[test]
fn slow_clients_are_cut_off() {
    let running = run(ServiceConfig::default(), quick());
    let since = Instant::now();
    // One byte after the other, for longer than a head may take.
    let mut dribble = running.connect();
    let dribbles = thread::spawn(move || {
        for byte in b"GET /health HTTP/1.1\r\nX-Slow: ".iter().chain([b'x'].iter().cycle()) {
            if dribble.write_all(&[*byte]).is_err() || since.elapsed() > Duration::from_secs(15) {
                return since.elapsed();
            }
            thread::sleep(Duration::from_millis(20));
        }
        since.elapsed()
    });
    // A connection that asks for nothing, and one whose second request never comes.
    let mut silent = running.connect();
    assert_eq!(rest(&mut silent), "");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let mut idle = running.connect();
    idle.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(rest(&mut idle).starts_with("HTTP/1.1 200 OK"));
    // A body that does not come: it had a place, which is free again.
    let since = Instant::now();
    let whole = request(&json!({}), "");
    let text = running.talk(&whole.as_bytes()[..whole.len() - 5]);
    let answer = Answer::of(&text);
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{text}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(dribbles.join().unwrap() < Duration::from_secs(10));
    running.healthy();
    running.end();
}

#[test]
fn bodies_that_come_slowly_keep_nobody_out() {
    let limits = Limits { places: 4, ..Limits::default() };
    let http = HttpConfig { body_time: Duration::from_secs(10), ..HttpConfig::default() };
    let running = run(ServiceConfig { limits, ..ServiceConfig::default() }, http);
    let small = request(&json!({"max_tokens": 2}), "Connection: close\r\n");
    let padding = " ".repeat(100_000);
    let large = request(&json!({"max_tokens": 2, "metadata": {"padding": padding}}), "Connection: close\r\n");
    let begin = |whole: &str| {
        let mut stream = running.connect();
        stream.write_all(&whole.as_bytes()[..whole.len() - 5]).unwrap();
        // Until it is known to be slow, it has a place.
        thread::sleep(Duration::from_millis(200));
        stream
    };
    let mut slow: Vec<_> = [&small, &small, &small, &small, &small, &large, &large].map(|whole| begin(whole)).into();
    // More large ones than may wait are refused, and others are served.
    let refused = Answer::of(&rest(&mut begin(&large)));
    assert_eq!((refused.status, refused.error("code").as_str()), (503, "overloaded"), "{refused:?}");
    running.healthy();
    // What was waited for is served when it comes.
    let mut last = slow.pop().unwrap();
    last.write_all(&large.as_bytes()[large.len() - 5..]).unwrap();
    assert_eq!(Answer::of(&rest(&mut last)).status, 200);
    let mut first = slow.swap_remove(0);
    first.write_all(&small.as_bytes()[small.len() - 5..]).unwrap();
    assert_eq!(Answer::of(&rest(&mut first)).status, 200);
    drop(slow);
    running.end();
}

#[test]
fn a_reader_that_takes_nothing_is_cut_off() {
    // There is one place for a connection, and whoever has it reads nothing.
    let running =
        run(ServiceConfig::default(), HttpConfig { connections: 1, head_time: Duration::from_mins(1), ..quick() });
    let mut greedy = running.connect();
    let get = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let length = 8000;
    greedy.write_all(get.repeat(length).as_bytes()).unwrap();
    let since = Instant::now();
    let answer = running.get("/live");
    assert_eq!(answer.status, 200, "{answer:?}");
    let waited = since.elapsed();
    assert!(waited > Duration::from_millis(900) && waited < Duration::from_secs(15), "{waited:?}");
    let told = rest(&mut greedy);
    assert!(told.matches("HTTP/1.1 200 OK").count() < length, "it was cut off");
    drop(greedy);
    running.healthy();
    running.end();
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn disconnects_at_any_byte_leave_nothing_behind() {
    let running = run(ServiceConfig::default(), quick());
    let mut dice = Dice(7);
    for turn in 0..150 {
        let more = json!({"max_tokens": 64, "stream": turn % 2 == 0, "n": 1 + turn % 3,
            "diffusion": {"frames": if turn % 2 == 0 { "commits" } else { "none" }}});
        let text = request(&more, "");
        let mut stream = running.connect();
        if turn % 3 == 0 {
            // Somewhere in the request.
            stream.write_all(&text.as_bytes()[..dice.below(text.len())]).unwrap();
        } else {
            // Somewhere in the response.
            stream.write_all(text.as_bytes()).unwrap();
            let mut some = vec![0; 1 + dice.below(3000)];
            if turn % 3 == 1 {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(5 + dice.below(30) as u64)));
                let _ = stream.read(&mut some);
            }
        }
        match turn % 4 {
            0 => drop(stream.shutdown(Shutdown::Write)),
            1 => drop(stream.shutdown(Shutdown::Both)),
            _ => {}
        }
        drop(stream);
    }
    nothing_left(&running.served);
    running.healthy();
    running.end();
}

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    for streams in [false, true] {
        let held = hold(&running.served.handle);
        let mut stream = running.connect();
        stream.write_all(request(&json!({"stream": streams, "gen_length": 400}), "").as_bytes()).unwrap();
        until("it is taken on", || running.served.service.is_busy());
        drop(stream);
        // Before its engine has done anything.
        until("it is given up", || !running.served.service.is_busy());
        held.let_go();
        nothing_left(&running.served);
    }
    running.end();
}

#[test]
fn connections_have_a_number() {
    let running = run(ServiceConfig::default(), HttpConfig { connections: 2, ..HttpConfig::default() });
    let ask = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answered = |stream: &mut TcpStream| {
        let mut start = [0; 12];
        stream.read_exact(&mut start).map(|()| start == *b"HTTP/1.1 200")
    };
    let (mut first, mut second, mut third) = (running.connect(), running.connect(), running.connect());
    for stream in [&mut first, &mut second, &mut third] {
        stream.write_all(ask).unwrap();
    }
    assert!(answered(&mut first).unwrap() && answered(&mut second).unwrap());
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(answered(&mut third).is_err(), "it waits for one of the others to end");
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(answered(&mut third).unwrap());
    drop((second, third));
    running.end();
    let running = run(ServiceConfig::default(), HttpConfig { per_address: 1, ..HttpConfig::default() });
    let mut first = running.connect();
    first.write_all(ask).unwrap();
    assert!(answered(&mut first).unwrap());
    assert_eq!(running.talk(ask), "", "an address has one connection");
    drop(first);
    until("its place is free again", || running.get("/live").status == 200);
    running.end();
}

#[test]
fn hosts_and_origins() {
    let http = HttpConfig {
        hosts: vec!["localhost".into(), "127.0.0.1".into(), "[::1]".into()],
        origins: vec!["https://page.example".into()],
        ..HttpConfig::default()
    };
    let running = run(ServiceConfig::default(), http);
    let get = |path: &str, headers: &str| {
        Answer::of(&running.talk(format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes()))
    };
    let ask = |headers: &str| get("/v1/models", headers);
    for host in ["localhost", "LocalHost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"] {
        assert_eq!(ask(&format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "",
        "[::2]",
        "[::1].evil.example",
        "[::1]evil",
        "[::1",
        "localhost:80@evil.example",
        "localhost:x",
    ] {
        let answer = ask(&format!("Host: {host}\r\n"));
        assert_eq!(answer.status, 403, "{host}");
        assert!(answer.error("message").contains("expected one of localhost, 127.0.0.1"), "{answer:?}");
    }
    // Another address of this machine is called by itself.
    assert!(
        ServeOptions::default().http("127.0.0.2".parse().unwrap()).unwrap().hosts.contains(&"127.0.0.2".to_owned())
    );
    // Who only asks how it is knows an address and no name.
    for path in ["/health", "/v1/health", "/ready", "/ping", "/live", "/metrics"] {
        assert_eq!(get(path, "Host: 10.1.2.3:8080\r\n").status, 200, "{path}");
    }
    for path in ["/", "/info", "/version", "/openapi.json", "/tokenizer_info", "/nowhere"] {
        assert_eq!(get(path, "Host: 10.1.2.3:8080\r\n").status, 403, "{path}");
    }
    let allowed = ask("Host: localhost\r\nOrigin: https://page.example\r\n");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://page.example"));
    assert_eq!(allowed.header("vary"), Some("origin"));
    assert_eq!(allowed.header("access-control-allow-credentials"), None);
    for origin in ["https://evil.example", "null", "https://page.example.evil.example"] {
        let answer = ask(&format!("Host: localhost\r\nOrigin: {origin}\r\n"));
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
        assert_eq!(answer.status, 403, "{origin}: no page of another site spends this machine's time");
    }
    assert_eq!(ask("Host: localhost\r\nOrigin: http://localhost\r\n").status, 200, "the page asks its own server");
    let preflight = |origin: &str| {
        let lines = format!("OPTIONS {CHAT} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n");
        let lines = format!("{lines}Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n");
        Answer::of(&running.talk(lines.as_bytes()))
    };
    let answer = preflight("https://page.example");
    assert_eq!((answer.status, answer.header("access-control-allow-methods")), (200, Some("get,post")));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://page.example"));
    assert_eq!(preflight("https://evil.example").header("access-control-allow-origin"), None);
    running.end();
}

#[test]
fn a_browser_s_client_may_send_each_header_that_it_asks_for() {
    let http = HttpConfig { origins: vec!["http://localhost:3000".into()], ..HttpConfig::default() };
    let running = run(ServiceConfig::default(), http);
    let asked = "authorization,content-type,user-agent,x-stainless-arch,x-stainless-lang,x-stainless-os,\
                 x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,x-stainless-timeout";
    let preflight = |headers: &str| {
        let lines = format!("OPTIONS {CHAT} HTTP/1.1\r\nHost: a\r\nOrigin: http://localhost:3000\r\n{headers}");
        let lines = format!("{lines}Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n");
        Answer::of(&running.talk(lines.as_bytes()))
    };
    let answer = preflight(&format!("Access-Control-Request-Headers: {asked}\r\n"));
    assert_eq!((answer.status, answer.header("access-control-allow-headers")), (200, Some(asked)));
    assert_eq!(preflight("").header("access-control-allow-headers"), None);
    running.end();
}

#[test]
fn a_packed_transfer_is_refused_by_its_name() {
    let running = run(ServiceConfig::default(), HttpConfig::default());
    let lines = format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
    let answer = Answer::of(&running.talk(lines.as_bytes()));
    assert_eq!(answer.status, 501, "{answer:?}");
    assert!(answer.error("message").contains("transfer-encoding is gzip, expected chunked"), "{answer:?}");
    running.end();
}

#[test]
fn refusals_on_a_socket() {
    let keys = Keys::parse("ann secret\nben other rate=1\n").unwrap();
    let limits = Limits { places: 1, ..Limits::default() };
    let running = run(ServiceConfig { keys: keys.into(), limits, ..ServiceConfig::default() }, HttpConfig::default());
    let ask = |key: &str| {
        Answer::of(&running.talk(request(&json!({"max_tokens": 2}), &format!("{key}Connection: close\r\n")).as_bytes()))
    };
    let answer = ask("");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("bearer")), "{answer:?}");
    assert_eq!(ask("Authorization: Bearer wrong\r\n").error("code"), "invalid_api_key");
    assert_eq!(ask("Authorization: Bearer secret\r\n").status, 200);
    assert_eq!(ask("Authorization: Bearer other\r\n").status, 200);
    let answer = ask("Authorization: Bearer other\r\n");
    assert_eq!((answer.status, answer.error("code").as_str()), (429, "rate_limit_exceeded"));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() <= 60);
    let held = hold(&running.served.handle);
    let mut first = running.connect();
    let key = "Authorization: Bearer secret\r\n";
    first.write_all(request(&json!({"max_tokens": 2}), &format!("{key}Connection: close\r\n")).as_bytes()).unwrap();
    until("the place is taken", || running.served.service.is_busy());
    let since = Instant::now();
    let answer = ask(key);
    assert!(since.elapsed() < Duration::from_secs(1), "at once");
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "overloaded"));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    held.let_go();
    assert_eq!(Answer::of(&rest(&mut first)).status, 200);
    running.end();
}

#[test]
fn a_silent_stream_has_heartbeats() {
    let running = run(ServiceConfig::default(), quick());
    let held = hold(&running.served.handle);
    let mut stream = running.connect();
    stream.write_all(request(&json!({"max_tokens": 4, "stream": true}), "Connection: close\r\n").as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(450));
    held.let_go();
    let answer = Answer::of(&rest(&mut stream));
    let beats = answer.body.matches(":\n\n").count();
    assert!(beats >= 2, "{answer:?}");
    assert!(answer.body.starts_with(":\n\n"), "a message of its own");
    // Without them, it is a stream as any other.
    messages(answer.body.replace("\n\n:\n\n", "\n\n").replace("\n\n:\n\n", "\n\n").trim_start_matches(":\n\n"));
    running.end();
}

#[test]
fn a_server_ends_in_good_order() {
    let mut running = run(ServiceConfig::default(), quick());
    // One that ends in time, and two that do not: the engine is held.
    let short = Answer::of(&running.talk(request(&json!({"max_tokens": 2}), "Connection: close\r\n").as_bytes()));
    assert_eq!(short.status, 200);
    let held = hold(&running.served.handle);
    let mut streamed = running.connect();
    streamed.write_all(request(&json!({"stream": true, "gen_length": 400}), "").as_bytes()).unwrap();
    let mut waiting = running.connect();
    waiting.write_all(request(&json!({"gen_length": 400}), "").as_bytes()).unwrap();
    until("both are on their way", || {
        running.served.handle.counters(); // They wait for an engine that is held: only places tell of them.
        running.served.service.is_busy()
    });
    thread::sleep(Duration::from_millis(100));
    running.stop.store(1, Ordering::Relaxed);
    until("it is known", || running.get("/health").status == 503);
    let refused = running.post(&json!({}));
    assert_eq!((refused.status, refused.error("code").as_str()), (503, "shutting_down"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(running.get("/live").status, 200, "the process lives");
    // Behind the notice, nobody is there to connect to.
    until("nobody listens", || TcpStream::connect(running.address).is_err());
    let answer = Answer::of(&rest(&mut streamed));
    let messages = messages(answer.body.trim_start_matches(":\n\n").replace("\n\n:\n\n", "\n\n").as_str());
    assert_eq!(messages.last().unwrap()["error"]["code"], "shutting_down", "{answer:?}");
    let answer = Answer::of(&rest(&mut waiting));
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "shutting_down"));
    running.thread.take().unwrap().join().unwrap();
    held.let_go();
    nothing_left(&running.served);
}

#[test]
fn what_is_on_its_way_is_finished() {
    let http = HttpConfig { drain_time: Duration::from_mins(1), drain_notice: Duration::ZERO, ..HttpConfig::default() };
    let mut running = run(ServiceConfig::default(), http);
    let held = hold(&running.served.handle);
    let mut streamed = running.connect();
    streamed.write_all(request(&json!({"stream": true, "max_tokens": 16}), "").as_bytes()).unwrap();
    until("it is on its way", || running.served.service.is_busy());
    running.stop.store(1, Ordering::Relaxed);
    until("nobody listens", || TcpStream::connect(running.address).is_err());
    held.let_go();
    let answer = Answer::of(&rest(&mut streamed));
    let messages = messages(&answer.body);
    assert!(messages.iter().all(|message| message.get("error").is_none()), "{answer:?}");
    running.thread.take().unwrap().join().unwrap();
    nothing_left(&running.served);
}
