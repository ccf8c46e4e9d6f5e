//! The server as people start and stop it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::Value;

use crate::harness::{command, demask, project};

/// A server of the demo model on a port that was free. Dropped, it is killed.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let (serving, mut told) = Self::start_and_hear(arguments, variables);
        // Nobody reads its log any more, and it must not wait for that.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        serving
    }

    /// Starts one, and returns what it goes on to say.
    fn start_and_hear(arguments: &[&str], variables: &[(&str, &str)]) -> (Self, BufReader<ChildStderr>) {
        let arguments: Vec<&str> = [&["serve", "--port", "0"], arguments].concat();
        let mut command = command(&arguments);
        command.stderr(Stdio::piped()).stdout(Stdio::null()).envs(variables.iter().copied());
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(" on http://") {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "the server ended before it said where it is");
        }
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        (Self { child, address }, told)
    }

    /// Sends a request, and returns the status and the body.
    fn ask(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn body(more: &str) -> String {
    format!("{{\"messages\": [{{\"role\": \"user\", \"content\": \"{QUESTION}\"}}]{more}}}")
}

#[test]
fn a_server_answers_as_generate_does_and_ends_when_it_is_told_to() {
    let mut serving = Serving::start(&[], &[]);
    assert_eq!(serving.ask("GET /health", "").0, 200);
    let (status, answer) = serving.ask("POST /v1/chat/completions", &body(", \"seed\": 0"));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let alone = demask(&["generate", "-q", QUESTION]).success();
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["message"]["content"].as_str(), Some(alone.trim_end()));
    assert!(serving.ask("GET /", "").1.contains("<!DOCTYPE html>"));
    serving.signal("-TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_says_where_it_is_under_which_name_and_what_it_waits_for() {
    let (mut serving, mut told) = Serving::start_and_hear(&["--no-log", "--served-model-name", "ours,alias"], &[]);
    let mut next = || {
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let address = serving.address.clone();
    assert_eq!(next(), format!("page http://{address}/, base URL of clients http://{address}/v1, model ours"));
    // A stream that goes on for far longer than the test needs, of which one piece has arrived when the signal is sent.
    let body =
        body(", \"stream\": true, \"diffusion\": {\"gen_length\": 960, \"decoder\": \"static\", \"cache\": \"none\"}");
    let mut stream = TcpStream::connect(&address).unwrap();
    let length = body.len();
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    stream.read_exact(&mut [0; 400]).unwrap();
    serving.signal("-INT");
    assert_eq!(next(), "waiting for 1 answer; Ctrl-C again ends it");
    serving.signal("-INT");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.toml");
    fs::write(&path, "port = 1\nmax_queue = 2\nno_ui = true\nguide = \"a=b\"\nmax_choices = 3\n").unwrap();
    let arguments = ["serve", "--config", path.to_str().unwrap(), "--port", "3", "--print-config"];
    let run = command(&arguments).envs([("DEMASK_PORT", "2"), ("DEMASK_MAX_QUEUE", "5")]).output().unwrap();
    let told = String::from_utf8(run.stdout).unwrap();
    let line = |number: usize| format!("{}, line {number}", path.display());
    for (value, origin) in [
        ("guide = [\"a=b\"]", &*line(4)),
        ("port = 3", "flag"),
        ("max_queue = 5", "DEMASK_MAX_QUEUE"),
        ("max_choices = 3", &line(5)),
        ("no_ui = true", &line(3)),
        ("max_prompts = 64", "default"),
        ("# threads: one for each fast core", "default"),
    ] {
        let expected = format!("{value}  # {origin}");
        assert!(told.lines().any(|line| line == expected), "{expected}: {told}");
    }
    // What is printed is a file.
    fs::write(&path, &told).unwrap();
    let again = demask(&["serve", "--config", path.to_str().unwrap(), "--print-config"]).success();
    let values =
        |text: &str| text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&told));
}

#[test]
fn a_page_and_keys_are_served_as_configured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    fs::write(&path, "ann s3cret\n").unwrap();
    let serving = Serving::start(&["--no-ui", "--api-key-file", path.to_str().unwrap()], &[]);
    let (status, told) = serving.ask("GET /", "");
    assert_eq!(status, 404, "{told}");
    assert_eq!(serving.ask("POST /v1/chat/completions", &body("")).0, 401);
    let with_key = "POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nX-Rest:";
    assert_eq!(serving.ask(with_key, &body("")).0, 200);
    assert_eq!(serving.ask("GET /health", "").0, 200);
}

#[test]
fn what_cannot_be_served_is_told_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let [file, keys, none] = ["serve.toml", "keys", "none"].map(|name| directory.path().join(name));
    fs::write(&none, "# the keys come here\n\n").unwrap();
    fs::write(&file, "prot = 1\n").unwrap();
    fs::write(&keys, "ann\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let [file, keys, none] = [&file, &keys, &none].map(|path| path.to_str().unwrap());
    let forever = u64::MAX.to_string();
    let llada = project("demo/demo-llada");
    for (arguments, code, told) in [
        (&["--config", file][..], 2, "line 1: unknown key \"prot\" of a server, did you mean \"port\"?"),
        (&["--config", "no/such"], 2, "cannot read no/such"),
        (&["--port", &port], 1, "choose another --host or --port"),
        (&["--host", "no.such.host.invalid"], 2, "expected an address of this machine"),
        (&["--api-key-file", keys], 1, "line 1 of the keys: it has no key after its name"),
        (&["--api-key-file", none], 1, "there is no key: expected a line `NAME KEY"),
        (&["--api-key-file", "/dev/null"], 1, "there is no key: expected a line `NAME KEY"),
        (&["--max-connections", "0"], 2, "expected a whole number from 1 to 1000000"),
        (&["--max-connections-per-address", "0"], 2, "expected a whole number from 1 to 1000000"),
        (&["--head-timeout", &forever], 2, "expected a whole number from 1 to 31536000"),
        (&["--heartbeat", &forever], 2, "expected a whole number from 1 to 31536000"),
        (&["--drain-notice", &forever], 2, "expected a whole number from 0 to 31536000"),
        (&["--max-body-memory", "1", "--max-body-bytes", "2000000"], 2, "raise --max-body-memory"),
        (&["--model", ""], 2, "the model has an empty name"),
        (&["--api-key-file", "no/such"], 2, "cannot read the keys no/such"),
        (
            &["--cors-origin", "*"],
            2,
            "--cors-origin: \"*\" is no origin, and all of them are never allowed: name each one",
        ),
        (&["--cors-origin", "http://localhost:3000/"], 2, "write \"http://localhost:3000\""),
        (&["--cors-origin", ","], 2, "--cors-origin names nothing"),
        (
            &["--allowed-host", "localhost:8080"],
            2,
            "--allowed-host: \"localhost:8080\" is no bare host: write \"localhost\"",
        ),
        (&["--model", "no/such/model"], 2, "no/such/model"),
        (&["--guide", &llada], 2, "expected an autoregressive one"),
    ] {
        let run = demask(&[&["serve"], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{arguments:?}: {}", run.stderr);
        assert!(
            run.stderr.contains(told) && run.stderr.trim_end().lines().count() == 1,
            "{arguments:?}: {}",
            run.stderr
        );
    }
}

#[test]
fn variables_of_a_model_are_of_commands_with_a_model() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = command(arguments).envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let adapter = [("DEMASK_ADAPTER", "org/adapter")];
    for machine in ["list", "doctor"] {
        assert_eq!(run(&[machine], &adapter).0, Some(0), "{machine}");
    }
    let (code, told) = run(&["generate", "-q", QUESTION], &adapter);
    assert_eq!((code, told.contains("goes with a model, and no model is named")), (Some(2), true), "{told}");
    let (code, told) = run(&["generate", "-q", QUESTION], &[("DEMASK_MODEL", "/nowhere")]);
    assert!(code != Some(0) && told.contains("/nowhere"), "{told}");
    let sdar = project("demo/demo-sdar");
    let (code, told) = run(&["generate", QUESTION], &[("DEMASK_MODEL", &sdar)]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains(&format!("model {sdar}, which DEMASK_MODEL names\n")), "{told}");
    let (_, told) = run(&["generate", QUESTION, "--model", &project("demo/demo-qwen")], &[("DEMASK_MODEL", &sdar)]);
    assert!(!told.contains("DEMASK_MODEL"), "{told}");
    let (code, told) = run(&["list"], &[("DEMASK_DEVICE", "gpu")]);
    assert_eq!((code, told.contains("device \"gpu\" is unknown")), (Some(2), true), "{told}");
}

#[test]
fn variables_are_read_as_flags_are() {
    for (name, text, told) in [
        ("DEMASK_PORT", "x", "DEMASK_PORT is \"x\", expected a whole number from 0 to 65535"),
        ("DEMASK_PORT", "65536", "DEMASK_PORT is \"65536\", expected a whole number from 0 to 65535"),
        ("DEMASK_MAX_QUEUE", "-1", "DEMASK_MAX_QUEUE is \"-1\", expected a whole number from 1 to 1000000"),
        ("DEMASK_PORT", "", "DEMASK_PORT is empty: give it a value, or unset it"),
        ("DEMASK_MODEL", "", "DEMASK_MODEL is empty: give it a value, or unset it"),
        ("DEMASK_API_KEY", "", "DEMASK_API_KEY is empty: give it a value, or unset it"),
        ("DEMASK_API_KEY_FILE", "", "DEMASK_API_KEY_FILE is empty: give it a value, or unset it"),
        (
            "DEMASK_API_KEY",
            "correct horse-battery",
            "DEMASK_API_KEY: the key has a space or a line break: expected a key of letters, digits and signs, without spaces",
        ),
        ("DEMASK_NO_UI", "yes", "DEMASK_NO_UI is \"yes\", expected true or false"),
        ("DEMASK_THREADS", "all", "DEMASK_THREADS is \"all\", expected a whole number from 0 on"),
    ] {
        for command_ in ["serve", "health"] {
            if command_ == "health" && name != "DEMASK_PORT" {
                continue;
            }
            let run = command(&[command_]).env(name, text).output().unwrap();
            let stderr = String::from_utf8(run.stderr).unwrap();
            assert_eq!((run.status.code(), stderr.trim_end()), (Some(2), &*format!("error: {told}")), "{command_}");
        }
    }
}

/// A log that cannot be written is nobody's request's fault.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_log_ends_nothing() {
    // Nobody can be told where it is.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let port_ = port.to_string();
    let mut started = command(&["serve", "-vv", "--port", &port_]);
    let child = started.stdout(full()).stderr(full()).spawn().unwrap();
    let mut serving = Serving { child, address: format!("127.0.0.1:{port}") };
    let begun = std::time::Instant::now();
    while TcpStream::connect(&serving.address).is_err() {
        assert!(serving.child.try_wait().unwrap().is_none(), "it ended");
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "it does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for _ in 0..3 {
        assert_eq!(serving.ask("POST /v1/chat/completions", &body(", \"max_tokens\": 8")).0, 200);
        assert_eq!(serving.ask("POST /v1/chat/completions", "{").0, 400);
    }
    assert_eq!(serving.ask("GET /health", "").0, 200);
    serving.signal("-TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

/// Standard error that nobody reads is no reason to stop.
#[cfg(target_os = "linux")]
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut started = command(&["serve", "-vv", "--port", &port.to_string()]);
    let child = started.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    let mut serving = Serving { child, address: format!("127.0.0.1:{port}") };
    let begun = std::time::Instant::now();
    while TcpStream::connect(&serving.address).is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "it does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Each line is some hundred bytes, and a pipe keeps 64 KiB.
    for _ in 0..1000 {
        assert_eq!(serving.ask("POST /v1/chat/completions", "{").0, 400);
    }
    assert_eq!(serving.ask("GET /live", "").0, 200);
    serving.signal("-TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    drop(reader);
}
