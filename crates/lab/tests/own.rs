//! One's own models, data and tasks in tables: recipes with what is on this machine, tasks that are files.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::harness::{Run, lab, project};

/// Two models of a hub, one of them twice, and two tasks of one name.
const RUNS: &str = r#"title = "A paper's table"
source = "a paper"

[[task]]
task = "wordmath"
limit = 2

[[task]]
task = "wordmath"
name = "long"
limit = 2
gen_length = 96

[[row]]
name = "base"
model = "org/base"
decoder = "static"

[[row]]
name = "fast"
model = "org/base"
decoder = "threshold"

[[row]]
name = "other"
model = "org/other"
baseline = "fast"

[[published]]
row = "base"
task = "long"
accuracy = 50
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

#[track_caller]
fn refused(run: &Run, told: &str) {
    assert_eq!((run.code, run.stderr.lines().count(), run.stdout.as_str()), (Some(2), 1, ""), "{}", run.stderr);
    assert!(run.stderr.contains(told), "{told}\n{}", run.stderr);
}

const SUM: &str = r#"{"question": "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", "solution": "3+4=7 pears.\nThe final answer is 7", "answer": 7}
"#;

#[test]
fn a_table_runs_with_ones_own_models_and_data_and_the_rows_that_are_wanted() {
    let folder = Folder::new(&[("runs.toml", RUNS), ("sum=1.jsonl", SUM)]);
    let (runs, data) = (folder.path("runs.toml"), folder.path("sum=1.jsonl"));
    let mapped = |name: &str| format!("org/base={}", project(&format!("demo/demo-{name}")));
    let (llada, long) = (mapped("llada"), format!("long={data}"));
    let call = ["eval", "--runs", &runs, "--json", "--map", &llada];
    let chosen = ["--only-row", "fast", "--only-row", "base", "--only-task", "long", "--data", &long];
    let report = lab(&[&call[..], &chosen].concat()).json();
    let of = |name: &str| report["rows"].as_array().unwrap().iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("run"), ["base", "fast"], "in the order of the file");
    assert_eq!((of("task"), of("items")), (vec![json!("long"), json!("long")], vec![json!(1), json!(1)]));
    assert_eq!(of("model"), ["demo-llada", "demo-llada"]);
    assert_eq!((&of("published")[0]["accuracy"], &of("baseline")[1]), (&json!(50.0), &json!("base")));
    // A row whose baseline is left out is compared with the first that stays.
    let both = ["--map", "org/other=demo", "--limit", "1", "--only-task", "wordmath"];
    let report = lab(&[&call[..], &both, &["--only-row", "other", "--only-row", "base"]].concat()).json();
    assert_eq!(report["rows"][1]["baseline"], "base");
}

#[test]
fn a_flag_that_acts_on_nothing_is_refused() {
    let folder = Folder::new(&[("runs.toml", RUNS)]);
    let runs = folder.path("runs.toml");
    let call = |more: &[&str]| lab(&[&["eval", "--runs", &runs], more].concat());
    refused(&call(&["--map", "org/bsae=x"]), "--map org/bsae: no row has that model (there are: org/base, org/other)");
    refused(&call(&["--map", "x"]), "--map is \"x\", expected a row's model and yours: --map org/name=DIR");
    refused(&call(&["--map", "org/base=x", "--map", "org/base=y"]), "--map has org/base twice: omit one");
    let told = "--map org/base: no row has that model (there are: org/other)";
    refused(&call(&["--only-row", "other", "--map", "org/base=x"]), told);
    refused(&call(&["--only-row", "fsat"]), "there is no row \"fsat\", did you mean \"fast\"?");
    refused(&call(&["--only-task", "gsm8k"]), "there is no task \"gsm8k\" (there are: \"wordmath\", \"long\")");
    refused(
        &call(&["--data", "x.jsonl"]),
        "--data is \"x.jsonl\", expected a task and its file, TASK=FILE: the tasks are",
    );
    refused(&call(&["--model", "org/mine"]), "--model answers in no row");
    refused(&call(&["--model", "org/mine"]), "with --map org/base=org/mine");
    for (flag, value) in [("--map", "a=b"), ("--only-task", "wordmath"), ("--only-row", "a")] {
        refused(&lab(&["eval", "wordmath", flag, value]), &format!("{flag} goes with --runs FILE"));
    }
}

/// A task as `docs/adding.md` has one: questions in a file of one's own, and a pattern for the answer.
fn own(pattern: &str, score: &str) -> String {
    format!(
        r#"about = "sums of our own"
gen_length = 64

[dataset]
file = "sums.jsonl"

[problem]
question = 'text("question")'
options = 'texts("options", optional=true)'
answer = '{}'

[style.plain]
about = "the question alone"
form = "chat"
ask = "{{{{ question }}}}"
solve = "{{{{ answer }}}}"
stop = ["Q:"]
score = "{score}"
answer_regex = '{pattern}'
"#,
        if score == "letter" { r#"option("answer", options, "A")"# } else { r#"whole("answer")"# },
    )
}

fn results(out: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(out).join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_task_of_ones_own_takes_the_answer_that_its_pattern_finds() {
    let folder = Folder::new(&[("own.toml", &own(r"answer is (\d+)", "number")), ("sums.jsonl", SUM)]);
    let (task, out) = (folder.path("own.toml"), folder.path("out"));
    lab(&["eval", &task, "--out", &out]).success();
    let record = &results(&out)[0];
    assert!(record["output"].as_str().unwrap().contains("The final answer is 7"), "{record}");
    assert_eq!((&record["answer"], &record["correct"]), (&json!("7"), &json!(true)));
    // What a pattern takes is judged, not the rest: the first sum of the output.
    fs::write(folder.path("own.toml"), own(r"(\d+)\+", "number")).unwrap();
    let out = folder.path("first");
    lab(&["eval", &task, "--out", &out]).success();
    assert_eq!((&results(&out)[0]["answer"], &results(&out)[0]["correct"]), (&json!("3"), &json!(false)));
}

#[test]
fn a_choice_of_ones_own_is_judged_by_its_letter() {
    let item = r#"{"question": "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", "options": ["7", "8"], "answer": "A"}"#;
    let text = own("The final answer is (.)", "letter");
    let folder = Folder::new(&[("own.toml", &text), ("sums.jsonl", item)]);
    let (task, out) = (folder.path("own.toml"), folder.path("out"));
    lab(&["eval", &task, "--out", &out]).success();
    // The option's own text counts as well as its letter.
    assert_eq!((&results(&out)[0]["answer"], &results(&out)[0]["correct"]), (&json!("A"), &json!(true)));
}

#[test]
fn a_pattern_that_never_matches_is_told_with_an_example() {
    let folder = Folder::new(&[("own.toml", &own("Answer: <(.*)>", "number")), ("sums.jsonl", &SUM.repeat(25))]);
    let (task, out) = (folder.path("own.toml"), folder.path("out"));
    let run = lab(&["eval", &task, "--gen-length", "16", "--batch", "25", "--out", &out]);
    let warning = "warning: answer_regex 'Answer: <(.*)>' of own matched none of 20 answers, so they count as wrong: the last is \"";
    assert_eq!(run.stderr.matches(warning).count(), 1, "{}", run.stderr);
    assert!(results(&out).iter().all(|record| record["failure"] == "no match" && record["correct"] == false));
}

#[test]
fn a_pattern_that_matches_none_of_a_few_answers_is_told_at_the_end() {
    let folder = Folder::new(&[("own.toml", &own("Answer: <(.*)>", "number")), ("sums.jsonl", SUM)]);
    let (task, out) = (folder.path("own.toml"), folder.path("out"));
    let run = lab(&["eval", &task, "--gen-length", "16", "--out", &out]);
    let told = "answer_regex of own matches none of its 1 answer, which counts as wrong: mend it in the task's file. One answer is \"";
    assert!(run.stderr.contains(&format!("warning: {told}")), "{}", run.stderr);
    let report = fs::read_to_string(Path::new(&out).join("report.md")).unwrap();
    assert!(report.contains(&format!("Warning: {told}")), "{report}");
}

#[test]
fn a_pattern_that_cannot_be_meant_is_refused_with_its_line() {
    for (pattern, score, told) in [
        ("(", "number", "own.toml, line 19: answer_regex cannot be read: unclosed group"),
        ("(a)(b)", "number", "own.toml, line 19: answer_regex has several groups, expected one at most"),
    ] {
        let folder = Folder::new(&[("own.toml", &own(pattern, score)), ("sums.jsonl", SUM)]);
        refused(&lab(&["eval", &folder.path("own.toml")]), told);
    }
    let text = own("x", "number").replace("answer_regex", "answer_regexp");
    let folder = Folder::new(&[("own.toml", &text), ("sums.jsonl", SUM)]);
    let told = "line 19: unknown key \"answer_regexp\" of style plain, did you mean \"answer_regex\"?";
    refused(&lab(&["eval", &folder.path("own.toml")]), told);
}
