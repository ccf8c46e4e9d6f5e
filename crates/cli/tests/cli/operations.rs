//! A server as those who run it meet it: what it reports to the service manager, what `health` says, and how it ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::harness::{Run, command, demask, project};

/// A server of the demo, and where it is. Dropped, it is ended.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(variables: &[(&str, &str)]) -> Self {
        Self::with(&[], variables)
    }

    fn with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(&["serve", "--port", "0", "--threads", "1", "--no-log"]);
        let mut child = command.args(flags).envs(variables.iter().copied()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(" on http://") {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "the server ended before it served");
        }
        // What else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || told.lines().map_while(Result::ok).count());
        let address = line.split_whitespace().last().unwrap().to_owned();
        Self { child, address }
    }

    /// Sends a signal, and returns the exit code.
    fn end(mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn health(address: &str) -> Run {
    demask(&["health", "--timeout", "20", "--url", address])
}

#[test]
fn the_service_manager_and_health_follow_a_servers_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let server = Server::start(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "300000")]);
    assert_eq!(next(), format!("READY=1\nSTATUS=Serving on {}", server.address));
    assert_eq!([next(), next()], ["WATCHDOG=1", "WATCHDOG=1"]);
    assert_eq!(health(&server.address).success(), "{\"status\":\"ok\"}\n");
    let address = server.address.clone();
    assert_eq!(server.end("-TERM"), Some(0));
    let told = std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1").unwrap();
    assert!(told.starts_with("STOPPING=1\n"), "{told}");
    let gone = health(&address);
    assert_eq!((gone.code, gone.stderr.lines().count()), (Some(1), 1), "{}", gone.stderr);
    assert!(gone.stderr.starts_with(&format!("error: {address} does not answer: ")), "{}", gone.stderr);
}

#[test]
fn a_manager_that_cannot_be_told_keeps_no_server_from_serving() {
    let server = Server::start(&[("NOTIFY_SOCKET", "vsock:2:1234")]);
    assert_eq!(health(&server.address).code, Some(0));
}

/// Asks for what takes much longer than anybody waits, and returns the connection once the answer has begun.
fn asked(address: &str, stream: bool) -> TcpStream {
    let host = address.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).unwrap();
    let body = format!(
        "{{\"prompt\":\"a\",\"gen_length\":1000,\"ignore_eos\":true,\"stream\":{stream},\
         \"diffusion\":{{\"decoder\":\"static\",\"cache\":\"none\",\"frames\":\"{}\"}}}}",
        if stream { "commits" } else { "none" },
    );
    let length = body.len();
    write!(connection, "POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    connection
}

#[test]
fn requests_that_outlast_the_drain_are_ended_by_rule_and_the_server_with_them() {
    let server = Server::with(&["--drain-timeout", "1"], &[]);
    let (mut whole, mut stream) = (asked(&server.address, false), asked(&server.address, true));
    let mut begun = [0; 16];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(server.end("-TERM"), Some(0));
    let rest = |connection: &mut TcpStream| {
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    };
    let (whole, stream) = (rest(&mut whole), rest(&mut stream));
    assert!(whole.starts_with("HTTP/1.1 503 ") && whole.contains("\"code\":\"shutting_down\""), "{whole}");
    let end = stream.find("\"code\":\"shutting_down\"").unwrap();
    assert!(stream[end..].contains("data: [DONE]\n\n"), "{}", &stream[end..]);
}

/// Sends a request, and returns the whole response.
fn send(address: &str, method: &str, path: &str, body: &str) -> String {
    let host = address.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).unwrap();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    connection.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_refused_prompt_is_counted_as_refused_and_not_as_a_client_that_left() {
    let server = Server::start(&[]);
    let post = |body: &str| send(&server.address, "POST", "/v1/completions", body);
    assert!(post("{\"prompt\":\"a <|mdm_mask|>\"}").contains("\"code\":\"mask_in_prompt\""));
    assert!(post("{\"prompt\":1}").starts_with("HTTP/1.1 400 "));
    let metrics = send(&server.address, "GET", "/metrics", "");
    for line in [
        "demask_refused_total{status=\"400\"} 2\n",
        "demask_requests_cancelled_total 0\n",
        "demask_requests_failed_total 0\n",
        "demask_places_taken 0\n",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
}

#[test]
fn what_replaces_the_answer_is_the_answer_in_the_end() {
    let server = Server::start(&[]);
    let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let body = format!(
        "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{question}\"}}],\"max_tokens\":48,\"stream\":true,\"diffusing\":true}}"
    );
    let text = send(&server.address, "POST", "/v1/chat/completions", &body);
    let contents = text.split("\"content\":\"").skip(1).map(|rest| rest.split_once('"').unwrap().0);
    // The answer is over long before the canvas is: what was never decoded is no part of it.
    assert_eq!(contents.last(), Some("3+4=7 pears.\\nThe final answer is 7"), "{text}");
}

#[test]
fn the_packaged_configuration_is_understood() {
    let printed = demask(&["serve", "--config", &project("packaging/serve.toml"), "--print-config"]).success();
    let has = |line: &str| printed.lines().any(|printed| printed.starts_with(&format!("{line}  # ")));
    assert!(has("model = \"GSAI-ML/LLaDA-8B-Instruct\"") && has("max_gen_length = 1024"), "{printed}");
}

#[test]
fn health_says_what_is_wrong() {
    let server = Server::start(&[]);
    let missing = health(&format!("{}/nothing", server.address));
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("answers with status 404: {\"error\":"), "{}", missing.stderr);
    let wrong = health("https://127.0.0.1");
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("expected http://HOST:PORT, without TLS"), "{}", wrong.stderr);
    // What takes a connection and says nothing is waited for as long as it was asked to be.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let late = demask(&["health", "--timeout", "1", "--url", &address]);
    assert_eq!(late.code, Some(1));
    assert!(late.stderr.contains("its time is up (--timeout)"), "{}", late.stderr);
}
