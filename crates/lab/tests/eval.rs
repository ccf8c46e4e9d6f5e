//! `demask-lab eval`: tables, sweeps, and results that survive whatever ends a run.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::harness::{Run, command, demask, lab, project};
#[cfg(target_os = "linux")]
use crate::programs;

/// The records of a directory by run and index, without what depends on the clock.
fn records(directory: &Path) -> BTreeMap<(String, u64), Value> {
    let text = fs::read_to_string(directory.join("results.jsonl")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line");
    let mut records = BTreeMap::new();
    for line in text.lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let receipt = record["receipt"].as_object_mut().unwrap();
        let seconds = receipt.remove("seconds").unwrap();
        assert!(seconds["total"].as_f64() >= seconds["model"].as_f64());
        receipt["memory"].as_object_mut().unwrap().remove("peak");
        let key = (record["run"].as_str().unwrap().to_owned(), record["index"].as_u64().unwrap());
        assert!(records.insert(key, record).is_none(), "an item twice");
    }
    records
}

/// Invented items of a task, as its file has them.
fn items(task: &str, directory: &Path) -> String {
    let text = fs::read_to_string(project(&format!("crates/eval/tests/items/{task}.jsonl"))).unwrap();
    let entry = |line: &str| serde_json::from_str::<Value>(line).unwrap()["entry"].to_string() + "\n";
    let file = directory.join(format!("{task}.jsonl"));
    fs::write(&file, text.lines().map(entry).collect::<String>()).unwrap();
    file.to_str().unwrap().to_owned()
}

fn with_out<'a>(arguments: &[&'a str], out: &'a Path) -> Vec<&'a str> {
    [arguments, &["--out", out.to_str().unwrap()]].concat()
}

#[test]
fn a_table_of_a_sweep() {
    let sweep = "decoder=static|threshold;cache=dual;early-stop=on|off";
    let run = lab(&["eval", "wordmath", "--limit", "4", "--sweep", sweep, "--batch", "3", "--json"]);
    let report = run.json();
    let rows = report["rows"].as_array().unwrap();
    let named: Vec<_> = rows.iter().map(|row| row["run"].as_str().unwrap()).collect();
    assert_eq!(
        named,
        [
            "static, cache dual, early-stop=on",
            "static, cache dual, early-stop=off",
            "threshold:tau=0.9, cache dual, early-stop=on",
            "threshold:tau=0.9, cache dual, early-stop=off"
        ]
    );
    assert!(rows.iter().all(|row| row["items"] == 4 && row["task"] == "wordmath"));
    assert_eq!((&report["items"], &report["batch"]), (&Value::from(16), &Value::from(3)));
    let nfe = |row: usize| rows[row]["nfe"].as_f64().unwrap();
    assert!(nfe(0) < nfe(1), "an early stop saves forwards");
    assert_eq!(nfe(1), 64.0);
    assert_eq!(rows[0]["speed_up"], 1.0);
    let table = lab(&["eval", "wordmath", "--limit", "2", "--cache", "dual", "-q"]).success();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("wordmath  threshold:tau=0.9, cache dual      2  "), "{table}");
}

#[test]
fn a_guide_stands_beside_the_decoder_that_wants_one() {
    let guide = project("demo/demo-qwen");
    let sweep = "decoder=static|guided;cache=dual";
    let report = lab(&["eval", "wordmath", "--limit", "2", "--sweep", sweep, "--guide", &guide, "--json"]).json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(
        rows[1]["run"].as_str().unwrap().starts_with("guided") && rows[1]["nfe"].as_f64() < rows[0]["nfe"].as_f64()
    );
}

#[test]
fn a_batch_answers_what_one_after_the_other_would() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let sweep = ["--sweep", "decoder=static|freedave;cache=none|dual"];
    let call = [&["eval", "wordmath", "--limit", "7", "-q"][..], &sweep].concat();
    for (directory, batch) in directories.iter().zip(["1", "5"]) {
        lab(&with_out(&[&call[..], &["--batch", batch]].concat(), directory.path())).success();
    }
    let [alone, together] = directories.map(|directory| records(directory.path()));
    assert_eq!(alone.len(), 28);
    assert_eq!(alone, together);
}

/// Bytes of each row's own process, by row and task.
#[cfg(target_os = "linux")]
fn peaks(numbers: &Value) -> BTreeMap<(String, String), f64> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = numbers["rows"].as_array().unwrap().iter();
    rows.map(|row| ((text(&row["run"]), text(&row["task"])), row["own_peak_memory"].as_f64().unwrap())).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn peak_memory_is_that_of_the_row_wherever_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    // Drafts of 32 lanes need more K/V than all that the others hold: they would be charged to the rows after them.
    let rows =
        ["name = 'many'\ndecoder = 'freedave:d=32'", "name = 'few'\ndecoder = 'freedave:d=1'", "name = 'static'"];
    let call = |order: &[usize], out: &str, more: &[&str]| {
        let rows = order.iter().map(|&row| format!("[[row]]\nmodel = 'demo'\ncache = 'none'\n{}\n", rows[row]));
        let rows = rows.collect::<Vec<_>>().concat();
        let tasks = "[[task]]\ntask = 'wordmath'\nlimit = 6\n[[task]]\nname = 'short'\ntask = 'wordmath'\nlimit = 6\ngen_length = 16\n";
        let file = directory.path().join("runs.toml");
        fs::write(&file, format!("{tasks}{rows}")).unwrap();
        let out = directory.path().join(out);
        let call = ["eval", "--runs", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        lab(&[&call[..], more].concat())
    };
    let measured = ["--peak-memory", "--json"];
    let first = peaks(&call(&[0, 1, 2], "first", &measured).json());
    let last = peaks(&call(&[2, 1, 0], "last", &measured).json());
    assert_eq!(first.len(), 6);
    for (row, bytes) in &first {
        let ratio = bytes / last[row];
        assert!((0.9..1.1).contains(&ratio), "{row:?} has {bytes} first and {} last", last[row]);
    }
    let of = |row: &str, task: &str| first[&(row.to_owned(), task.to_owned())];
    assert!(of("many", "wordmath") > 1.2 * of("few", "wordmath"), "{first:?}");
    assert!(of("many", "wordmath") > of("many", "short"), "{first:?}");
    // What is measured is kept, and not measured again.
    let read = |name: &str| fs::read_to_string(directory.path().join("first").join(name)).unwrap();
    let kept: Value = serde_json::from_str(&read("run.json")).unwrap();
    assert_eq!(kept["peak_memory"]["many"]["wordmath"].as_f64(), Some(of("many", "wordmath")));
    assert!(read("report.md").contains("| peak memory |"));
    let again = peaks(&call(&[0, 1, 2], "first", &measured).json());
    assert_eq!(again, first);
    // Rows that were not measured say so.
    let none = call(&[0, 1], "none", &["--json"]).json();
    assert!(none["rows"].as_array().unwrap().iter().all(|row| row["own_peak_memory"].is_null()), "{none}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_row_whose_process_fails_is_not_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.toml");
    let file = path.to_str().unwrap();
    fs::write(&path, "[[task]]\ntask = 'wordmath'\nlimit = 2\n[[row]]\nname = 'one'\nmodel = 'demo'\n").unwrap();
    let refused = lab(&["eval", "--runs", file, "--peak-of", "1,0"]);
    assert_eq!(refused.stderr, "error: --peak-of is [1, 0], expected the places of a row and a task\n");
    let measured = lab(&["eval", "--runs", file, "--peak-of", "0,0"]).json();
    assert!(
        measured["run"] == "one" && measured["task"] == "wordmath" && measured["peak_memory"].as_u64() > Some(1 << 20)
    );
    let refused = lab(&["tune", "wordmath", "--peak-memory"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(2), 1), "{}", refused.stderr);
}

/// Numbers that nobody can foresee, from the time; the first one is told if a test fails.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
    }

    fn share(&mut self) -> f64 {
        self.0 = demask_step::random::mix(self.0);
        demask_step::random::uniform(self.0)
    }
}

#[test]
fn ten_kills_lose_and_repeat_nothing() {
    let call = ["eval", "wordmath", "--limit", "24", "--batch", "3", "--sweep", "decoder=static|freedave;cache=dual"];
    let directory = tempfile::tempdir().unwrap();
    let (whole, killed) = (directory.path().join("whole"), directory.path().join("killed"));
    let started = Instant::now();
    lab(&with_out(&call, &whole)).success();
    let duration = started.elapsed();
    let mut chance = Chance::new();
    let seed = chance.0;
    let mut before = 0;
    for _ in 0..10 {
        let mut child = command(&with_out(&call, &killed)).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(duration.mul_f64(0.3 * chance.share()));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = fs::read(killed.join("results.jsonl")).unwrap_or_default();
        let lines = text.split(|&byte| byte == b'\n').count() - 1;
        assert!(lines >= before, "seed {seed}: {before} results became {lines}");
        before = lines;
    }
    lab(&with_out(&call, &killed)).success();
    assert_eq!(records(&killed), records(&whole), "seed {seed}");
    let again = lab(&with_out(&call, &killed));
    assert_eq!(again.stderr.lines().next(), Some("48 results are there already, 0 are missing"));
    assert_eq!(again.success().lines().count(), 3);
}

#[test]
fn an_interrupted_run_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let call = with_out(&["eval", "wordmath", "--limit", "40", "--decoder", "static"], directory.path());
    let child = command(&call).spawn().unwrap();
    let results = directory.path().join("results.jsonl");
    while fs::metadata(&results).map_or(0, |metadata| metadata.len()) == 0 {
        thread::sleep(Duration::from_millis(2));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.stdout.as_str()), (Some(130), ""), "{}", run.stderr);
    let there = records(directory.path()).len();
    assert!((1..40).contains(&there));
    lab(&call).success();
    assert_eq!(records(directory.path()).len(), 40);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_tears_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let call =
        with_out(&["eval", "wordmath", "--limit", "12", "--decoder", "static", "--cache", "dual"], directory.path());
    // Blocks of 512 bytes, a few records; without the signal, a write beyond them is an error like that of a full disk.
    let limited = "trap '' XFSZ; ulimit -f 14; exec \"$0\" \"$@\"";
    let binary = env!("CARGO_BIN_EXE_demask-lab");
    let run = Run::from(Command::new("sh").args(["-c", limited, binary]).args(&call).output().unwrap());
    let there = records(directory.path()).len();
    assert!((1..12).contains(&there), "{there}: {}", run.stderr);
    let path = directory.path().join("results.jsonl");
    let told = format!(
        "error: cannot write {}: File too large (os error 27): {there} results are safe there; make room ",
        path.display()
    );
    assert!(run.stderr.starts_with(&told), "{}", run.stderr);
    assert_eq!((run.code, run.stderr.lines().count()), (Some(1), 1));
    lab(&call).success();
    assert_eq!(records(directory.path()).len(), 12);
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, message: &str) {
    let run = lab(&[&["eval"], arguments].concat());
    assert_eq!(run.stderr, format!("error: {message}\n"));
    assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""));
}

#[test]
fn calls_that_cannot_be_meant() {
    let wordmath = |more: &[&str], message: &str| refused(&[&["wordmath"], more].concat(), 2, message);
    let names: Vec<_> = demask_eval::tasks::TASKS.iter().map(|task| task.name).collect();
    let names = names.join(", ");
    refused(&[], 2, &format!("no task given: name some of {names}"));
    refused(&["wordmat"], 2, &format!("unknown task \"wordmat\", did you mean \"wordmath\"? (known: {names})"));
    refused(&["wordmath", "wordmath"], 2, "task wordmath is named twice: name it once");
    wordmath(&["--batch", "0"], "--batch is 0, expected at least 1");
    wordmath(&["--limit", "0"], "--limit is 0, expected at least 1");
    wordmath(&["--prompt-style", "lm"], "unknown prompt style \"lm\" (known: demo)");
    let none = "wordmath has no solved problems to show: use --shots 0, or give some with --shots-file";
    wordmath(&["--shots", "4"], none);
    let subject = "wordmath has no problems about \"algebra\"; it has: none: its file names no subjects";
    wordmath(&["--subject", "algebra"], subject);
    refused(&["wordmath", "gsm8k", "--subject", "x"], 2, "--subject is of one task, found 2: name one task");
    let programs = "task humaneval runs what the model writes: allow it with --allow-code-execution";
    refused(&["humaneval"], 2, programs);
    wordmath(&["--shots-file", "x"], "--shots-file goes with --shots N: say how many");
    wordmath(&["--guide", "x"], "--guide goes with --decoder guided: omit it or name that decoder");
    wordmath(
        &["--sweep", "decoder=static|guided"],
        "decoder guided needs an autoregressive model that judges its drafts: load one with the model, as --guide",
    );
}

#[test]
fn likelihoods_that_cannot_be_meant() {
    let wordmath = |more: &[&str], message: &str| refused(&[&["wordmath"], more].concat(), 2, message);
    let likelihood = |more: &[&str], message: &str| wordmath(&[&["--score", "likelihood"], more].concat(), message);
    wordmath(
        &["--score", "likelyhood"],
        "unknown score \"likelyhood\", did you mean \"likelihood\"? (known: generate, likelihood, decision)",
    );
    wordmath(&["--likelihood-draws", "8"], "--likelihood-draws goes with --score likelihood: omit it");
    likelihood(&["--likelihood-draws", "0"], "--likelihood-draws is 0, expected at least 1");
    likelihood(
        &["--batch", "2"],
        "--batch has no meaning with --score likelihood and decision, whose items share no forwards: omit it",
    );
    likelihood(
        &["--gen-length", "8"],
        "--gen-length has no meaning with --score likelihood, which decodes nothing: omit it",
    );
    likelihood(
        &["--prompt-style", "demo"],
        "--prompt-style has no meaning with --score likelihood, which has the harness's own wording: omit it",
    );
    likelihood(
        &[],
        "task wordmath is not asked by likelihood: use --score generate, or one of mmlu, gpqa, arc-easy, arc-challenge, \
         piqa, hellaswag, winogrande",
    );
}

#[test]
fn sweeps_that_cannot_be_run_are_refused_before_anything_runs() {
    let sweep = |sweep: &str, message: &str| refused(&["wordmath", "--sweep", sweep], 2, message);
    sweep("", "--sweep is empty: expected name=value|value;name=value");
    sweep("decoder", "--sweep: \"decoder\" has no values: expected name=value|value");
    sweep("decoder=static|", "--sweep: decoder has an empty value: expected decoder=value|value");
    sweep("steps=8;steps=4", "--sweep names steps twice: write all its values behind one steps=");
    sweep("early-stop=perhaps", "--sweep: early-stop is \"perhaps\", expected on or off");
    sweep("cache=none|none", "the sweep has \"threshold:tau=0.9, cache none\" twice: omit one");
    sweep("steps=8|x", "--sweep: --steps is \"x\", expected a whole number from 0 on");
    sweep(
        "decoder=static|statc",
        &format!("--sweep: {}", demask(&["generate", "hi", "--decoder", "statc"]).stderr["error: ".len()..].trim_end()),
    );
    sweep(
        "cache=none|block",
        "sweep cache=block, wordmath: cache block cannot run a model with full attention: use none, prefix, dual, \
         freecache, dkv, dllm",
    );
    let numbers: Vec<_> = (1..=40).map(|number| number.to_string()).collect();
    let numbers = numbers.join("|");
    sweep(
        &format!("steps={numbers};block-length={numbers}"),
        "--sweep makes 1600 combinations, expected 1000 at most: sweep less at once",
    );
    sweep(
        "threshold=0.9|0.8",
        "--sweep: unknown name \"threshold\", a name of Fast-dLLM and dInfer: use --decoder threshold:tau=0.9 with the confidence \
         that you want",
    );
    let run = lab(&["eval", "wordmath", "--sweep", "decodr=static"]);
    assert!(run.stderr.starts_with("error: --sweep: unknown name \"decodr\", did you mean \"decoder\"? (known: "));
    assert_eq!(run.code, Some(2));
}

#[test]
fn data_of_the_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.jsonl");
    let file = path.to_str().unwrap();
    let good = r#"{"question": "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", "solution": "3+4=7 pears.\nThe final answer is 7", "answer": 7}"#;
    fs::write(&path, format!("{good}\n{good}\n")).unwrap();
    let report = lab(&["eval", "wordmath", "--data", file, "--json"]).json();
    assert_eq!((&report["rows"][0]["items"], &report["rows"][0]["accuracy"]), (&Value::from(2), &Value::from(1.0)));
    let shots = ["eval", "wordmath", "--limit", "1", "--shots", "2", "--shots-file", file];
    let out = directory.path().join("out");
    lab(&with_out(&shots, &out)).success();
    let prompt = records(&out).into_values().next().unwrap()["prompt"].as_str().unwrap().to_owned();
    assert_eq!(prompt.matches("3+4=7 pears.").count(), 2);
    fs::write(&path, format!("{good}\n{{\"question\": \"q\"}}\n")).unwrap();
    refused(
        &["wordmath", "--data", file],
        1,
        &format!(
            "{file}, entry 2: field solution is missing, expected text; this is no file of wordmath, or of another release \
             of it"
        ),
    );
    fs::write(&path, "\n").unwrap();
    refused(&["wordmath", "--data", file], 1, &format!("{file} has no entries: expected at least one problem"));
    refused(&["wordmath", "--data", "nope"], 2, "cannot read nope: No such file or directory (os error 2)");
}

#[test]
fn reports_stand_beside_the_results_and_say_what_the_table_says() {
    let directory = tempfile::tempdir().unwrap();
    let call = ["eval", "wordmath", "--limit", "3", "--sweep", "decoder=static|threshold;cache=dual", "--batch", "2"];
    let table = lab(&with_out(&call, directory.path())).success();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let page = read("report.md");
    for line in table.lines().skip(1) {
        let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(1).collect();
        assert!(page.contains(&format!("| {} |", cells.join(" | "))), "{line}\n{page}");
    }
    assert!(read("report.html").contains("<svg") && read("plots/accuracy_latency.csv").lines().count() == 3);
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    let again = lab(&with_out(&[&call[..], &["--json"]].concat(), directory.path())).json();
    assert_eq!(again["rows"], summary["rows"]);
    let harness = "lm_eval/1-static-cache-dual";
    let results: Value = serde_json::from_str(&read(&format!("{harness}/results_demask.json"))).unwrap();
    let row = &summary["rows"][0];
    assert_eq!(results["results"]["wordmath"]["exact_match,demask"], row["accuracy"]);
    let samples = read(&format!("{harness}/samples_wordmath_demask.jsonl"));
    let order: Vec<_> =
        samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["doc_id"].clone()).collect();
    assert_eq!(order, [0, 1, 2]);
}

/// Neither the settings of answers nor what made them stood in any file of a report.
#[test]
fn files_say_how_answers_were_made_and_by_what() {
    let directory = tempfile::tempdir().unwrap();
    let call = ["eval", "wordmath", "--temperature", "0.6", "--cache", "dual", "--batch", "2"];
    let limited = |limit| [&call[..], &["--limit", limit]].concat();
    lab(&with_out(&limited("2"), directory.path())).success();
    lab(&with_out(&limited("3"), directory.path())).success();
    lab(&with_out(&limited("3"), directory.path())).success();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    let (run, summary) = (json("run.json"), json("summary.json"));
    let made = &run["made"];
    assert_eq!(&summary["made"][0], made);
    assert_eq!((&made["batch"], &made["version"]), (&2.into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(made["executable"].as_str().unwrap().len() == 16 && made["cores"].as_u64() > Some(0), "{made}");
    // A call that makes nothing is none of those that made the results.
    let calls = made["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert!(calls[1]["command"].as_str().unwrap().starts_with("demask-lab eval wordmath --temperature 0.6 "));
    assert!(calls.iter().all(|call| call["began"].as_str() <= call["ended"].as_str()), "{calls:?}");
    let settings = &summary["rows"][0]["settings"];
    for (name, value, from) in [
        ("temperature", Value::from(0.6), "flag"),
        ("cache", "dual".into(), "flag"),
        ("gen_length", 64.into(), "task"),
        ("block_length", 16.into(), "checkpoint"),
        ("stop_rule", "prefix".into(), "default"),
        ("top_p", 1.0.into(), "default"),
    ] {
        assert_eq!(settings[name], serde_json::json!({"value": value, "from": from}), "{name}");
        let row = &run["rows"].as_object().unwrap().values().next().unwrap()["tasks"]["wordmath"];
        assert_eq!(row[name], value, "{name}");
    }
    let page = read("report.md");
    for line in
        ["| temperature | 0.6 | flag |", "| stop_rule | prefix | default |", "| batch | 2 |", "| continued | 1 times |"]
    {
        assert!(page.lines().any(|other| other == line), "{line}: {page}");
    }
    assert!(read("report.html").contains("What made these numbers"));
    let results = json("lm_eval/1-threshold-tau-0.9-cache-dual/results_demask.json");
    assert_eq!(
        (&results["config"]["batch_size"], &results["config"]["gen_kwargs"]["temperature"]),
        (&2.into(), &0.6.into())
    );
    // A line of the results decodes again as it did.
    let line = read("results.jsonl").lines().next().unwrap().to_owned();
    let (record, receipt) = (serde_json::from_str::<Value>(&line).unwrap(), directory.path().join("line.json"));
    fs::write(&receipt, &line).unwrap();
    let raw = ["generate", "--raw", record["prompt"].as_str().unwrap(), "--json"];
    let again = demask(&[&raw[..], &["--like", receipt.to_str().unwrap()]].concat()).json();
    assert_eq!((&again["text"], &again["receipt"]["nfe"]), (&record["output"], &record["receipt"]["nfe"]));
}

#[test]
fn every_task_is_asked_and_judged() {
    let directory = tempfile::tempdir().unwrap();
    let is_built_in = |task: &demask_eval::Task| matches!(task.source, demask_eval::Source::BuiltIn(_));
    for task in demask_eval::tasks::TASKS.iter().filter(|task| !is_built_in(task)) {
        let data = items(task.name, directory.path());
        let mut call = vec!["eval", task.name, "--data", &data, "--limit", "1", "--shots", "0"];
        // Prompts of some tasks are longer than the demo's rotary table: few steps keep this short.
        call.extend(["--gen-length", "8", "--steps", "2", "--cache", "dual", "--allow-code-execution", "--json"]);
        #[cfg(target_os = "linux")]
        if ["humaneval", "mbpp"].contains(&task.name) && !programs::has_python() {
            assert!(lab(&call).stderr.contains(programs::NO_PYTHON), "{}", task.name);
            continue;
        }
        let row = lab(&call).json()["rows"][0].clone();
        assert_eq!((&row["task"], &row["items"]), (&Value::from(task.name), &Value::from(1)), "{}", task.name);
    }
}

#[test]
fn calls_are_valid_unless_answers_are_free() {
    let call = ["eval", "calls", "--limit", "2", "--gen-length", "96", "--block-length", "16", "--json"];
    let held = lab(&call).json()["rows"][0].clone();
    assert_eq!((&held["items"], &held["valid"]), (&json!(2), &json!(1.0)), "{held}");
    let idle = lab(&["eval", "wordmath", "--limit", "1", "--free-form"]);
    assert!(idle.stderr.contains("--free-form has no meaning where no problem has a schema"), "{}", idle.stderr);
    let free = lab(&[&call[..], &["--free-form"]].concat()).json()["rows"][0].clone();
    assert_eq!((&free["items"], &free["valid"]), (&json!(2), &json!(0.0)), "the demo knows no JSON: {free}");
}

#[test]
fn options_are_compared_in_the_harness_wording() {
    let directory = tempfile::tempdir().unwrap();
    let data = items("winogrande", directory.path());
    let out = directory.path().join("out");
    let call =
        ["eval", "winogrande", "--data", &data, "--score", "likelihood", "--likelihood-draws", "2", "--shots", "1"];
    lab(&with_out(&[&call[..], &["--shots-file", &data]].concat(), &out)).success();
    let records = records(&out);
    assert_eq!(records.len(), 5);
    for record in records.values() {
        assert_eq!(record["receipt"]["log_likelihoods"].as_array().unwrap().len(), 2);
        assert!(!record["prompt"].as_str().unwrap().contains('_') && record["tokens"] == 0);
    }
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(page.contains("5 of 5 items, 1 exemplar, prompts in the style `likelihood`"), "{page}");
}

#[test]
fn directories_of_other_runs() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let call = ["wordmath", "--limit", "1", "--cache", "dual", "--out", out];
    lab(&[&["eval"], &call[..]].concat()).success();
    let another = |field: &str, was: &str, is: &str| {
        format!(
            "{out} holds results of another run: {field} was {was} and is {is}: repeat that call, or name another --out"
        )
    };
    refused(&[&call[..], &["--seed", "7"]].concat(), 2, &another("seed", "0", "7"));
    // No row mixes batches and threads: its seconds would be of none of them.
    refused(&[&call[..], &["--batch", "16"]].concat(), 2, &another("batch", "1", "16"));
    let threads = thread::available_parallelism().unwrap().get();
    let other = (threads + 1).to_string();
    refused(&[&call[..], &["--threads", &other]].concat(), 2, &another("threads", &threads.to_string(), &other));
    refused(
        &[&call[..], &["--temperature", "0.5"]].concat(),
        2,
        &another("rows.threshold:tau=0.9, cache dual.tasks.wordmath.temperature", "0.0", "0.5"),
    );
    let dream = project("demo/demo-dream");
    let run = lab(&[&["eval"], &call[..], &["--model", &dream]].concat());
    assert!(
        run.stderr.contains("holds results of another run: rows.threshold:tau=0.9, cache dual.model.denoiser."),
        "{}",
        run.stderr
    );
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    refused(
        &["wordmath", "--out", file],
        1,
        &format!("{file} is a file: expected a directory, new or of an earlier run; name another --out"),
    );
}
