//! A program with methods of its own has everything that demask's have: evaluations that go on, reports, pictures, analyses, answers,
//! a server.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use demask::{Error, Model, Options, Prompt};
use demask_lab::analysis::decode_with_logits;
use demask_testkit::{program, suite};
use serde_json::{Value, json};

const LAB: &str = env!("CARGO_BIN_EXE_own-lab");
const DEMASK: &str = env!("CARGO_BIN_EXE_own-demask");
const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

#[test]
fn they_hold_what_every_method_must() {
    suite::decoder(&demask_own::STEADY).unwrap_or_else(|broken| panic!("{broken}"));
    suite::decoder(&demask_own::CLEAR).unwrap_or_else(|broken| panic!("{broken}"));
    suite::cache(&demask_own::NEAR).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn an_evaluation_of_ones_own_methods_goes_on_and_has_pictures() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("results").display().to_string();
    let sweep = "decoder=steady;cache=near:rows=1|near:rows=6|dual";
    let arguments = ["eval", "wordmath", "--limit", "3", "--sweep", sweep, "--out", &out, "--quiet"];
    let table = program::run(LAB, &arguments).success();
    assert!(table.contains("steady:times=2, cache near:rows=1"), "{table}");
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).unwrap();
    let run: Value = serde_json::from_str(&read("run.json")).unwrap();
    let package = format!("demask-own {}", env!("CARGO_PKG_VERSION"));
    let methods = |cache: &str| run["rows"][format!("steady:times=2, cache {cache}")]["methods"].clone();
    let both = json!({"decoder steady": package, "cache near": package});
    assert_eq!(["near:rows=1", "near:rows=6"].map(methods), [both.clone(), both]);
    assert_eq!(methods("dual"), json!({"decoder steady": package}));
    assert!(read("plots/cache_near_rows.csv").contains('6'));
    let again = program::run(LAB, &arguments[..arguments.len() - 1]);
    assert!(again.stderr.contains("9 results are there already, 0 are missing"), "{}", again.stderr);
    // Answers of another version of the method are others.
    let older = read("run.json").replace(&package, "demask-own 0.0.9");
    fs::write(format!("{out}/run.json"), older).unwrap();
    let refused = program::run(LAB, &arguments);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("methods") && refused.stderr.contains("demask-own 0.0.9"), "{}", refused.stderr);
    let joined = place.path().join("joined").display().to_string();
    assert!(program::run(LAB, &["report", &out, "--out", &joined]).success().contains("near:rows=6"));
}

#[test]
fn the_drift_of_ones_own_cache_is_analysed() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("staleness").display().to_string();
    let arguments = ["analyze", "staleness", "--problems", "1", "--gen-length", "16", "--out", &out, "--quiet"];
    // Without --caches: every cache that the program knows.
    program::run(LAB, &arguments).success();
    let page = fs::read_to_string(format!("{out}/staleness.html")).unwrap();
    assert!(page.contains("near:rows=4"), "no such cache in the page");
}

#[test]
fn ones_own_methods_answer_and_are_served() {
    let arguments = ["generate", "--decoder", "steady:3", "--cache", "near", "-n", "32", "--json", QUESTION];
    let receipt = program::run(DEMASK, &arguments).json();
    assert_eq!(receipt["receipt"]["decoder"], "steady:times=3");
    let unknown = program::run(DEMASK, &["generate", "--decoder", "stedy", QUESTION]);
    assert!(unknown.stderr.contains("did you mean \"steady\"?"), "{}", unknown.stderr);
    let serving = Serving::start();
    let models = serving.ask("GET /v1/models", "");
    assert!(models.contains("\"steady\"") && models.contains("\"near\""), "{models}");
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "decoder": "steady:3", "cache": "near", "gen_length": 32});
    let answer: Value = serde_json::from_str(&serving.ask("POST /v1/chat/completions", &body.to_string())).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], receipt["text"], "{answer}");
}

#[test]
fn canvas_logits_and_slots_are_seen_forward_by_forward_under_ones_own_cache() {
    let mut model = Model::demo().unwrap().by_hand().unwrap();
    let registry = demask_own::registry().unwrap();
    let options = Options {
        decoder: Some(registry.decoder("steady").unwrap()),
        cache: Some(registry.cache("near:rows=2").unwrap()),
        gen_length: Some(16),
        ..Options::default()
    };
    let session = model.session(&Prompt::user(QUESTION, None), &options).unwrap();
    let vocabulary = model.network().spec().vocabulary;
    let (mut forwards, mut fewest) = (0, usize::MAX);
    let over = decode_with_logits(&mut model, session, &mut |look| {
        let Some((input, predicted)) = look.ran else { return Ok(()) };
        assert_eq!(predicted.logits.len(), predicted.tokens.len() * vocabulary);
        let slots = look.network.stored(look.sequence, &input.plan.query).map_err(Error::Device)?;
        assert_eq!(slots[0][0].len() % input.plan.query.len(), 0);
        assert!(look.session.canvas().len() >= input.plan.query.len());
        (forwards, fewest) = (forwards + 1, fewest.min(input.plan.query.len()));
        Ok(())
    });
    let canvas = over.unwrap().canvas().len();
    assert!(forwards > 1 && fewest < canvas, "{forwards} forwards, {fewest} of {canvas} rows");
}

/// Called by the test below in a process of its own.
#[test]
fn a_program_with_a_name_twice() {
    if std::env::var_os("DEMASK_TEST_TWICE").is_some() {
        let registry = demask_own::registry().and_then(|registry| registry.with_decoder(&demask_own::STEADY));
        let code = demask_lab::main_with(registry);
        assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::from(2)));
    }
}

#[test]
fn a_name_twice_is_refused_in_one_line() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "a_program_with_a_name_twice", "--nocapture"]).env("DEMASK_TEST_TWICE", "1");
    let run = program.output().unwrap();
    let told = String::from_utf8(run.stderr).unwrap();
    let expected = "error: decoder \"steady\" is registered already as \"steady\": give it another name\n";
    assert!(run.status.success() && told.starts_with(expected), "{told}");
}

/// A server of the demo model on a port that was free. Dropped, it is killed.
struct Serving {
    child: std::process::Child,
    address: String,
}

impl Serving {
    fn start() -> Self {
        let mut command = program::command(DEMASK, &["serve", "--port", "0"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(" on http://") {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "the server ended before it said where it is");
        }
        // Nothing reads its log any more, and it must not wait for that.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        Self { child, address }
    }

    /// Sends a request, and returns the body of the response.
    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let more = "Host: localhost\r\nConnection: close";
        write!(stream, "{head} HTTP/1.1\r\n{more}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
