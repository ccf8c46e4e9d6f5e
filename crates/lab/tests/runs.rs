//! Runs as files, reports that join directories, and the choice of methods by `tune`.

use std::{fs, path::Path};

use serde_json::Value;

use crate::harness::{Run, command, demask, lab, project};

/// Four models of the demo, one of them a guide.
fn table() -> String {
    let [llada, dream, qwen] = ["llada", "dream", "qwen"].map(|name| project(&format!("demo/demo-{name}")));
    format!(
        r#"title = "A table of models"
source = "a paper, table 1"

[[task]]
task = "wordmath"
limit = 3

[[row]]
name = "LLaDA"
model = "{llada}"
decoder = "static"
cache = "none"

[[row]]
name = "Dream"
model = "{dream}"
decoder = "threshold"
cache = "{{cache}}"
sweep = {{ cache = ["none", "dual"] }}

[[row]]
name = "AR"
model = "{qwen}"

[[row]]
name = "LLaDA, guided"
model = "{llada}"
guide = "{qwen}"
decoder = "guided"
baseline = "AR"

[[published]]
row = "AR"
task = "wordmath"
accuracy = 73.5
"#
    )
}

fn write(directory: &Path, text: &str) -> String {
    let file = directory.join("runs.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_file_is_a_table_over_models() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), &table());
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    let call = ["eval", "--runs", &file, "--out", out, "--batch", "3"];
    let report = lab(&[&call[..], &["--json"]].concat()).json();
    let rows = report["rows"].as_array().unwrap();
    let of = |name: &str| rows.iter().map(|row| row[name].as_str().unwrap_or_default()).collect::<Vec<_>>();
    let names = ["LLaDA", "Dream, cache=none", "Dream, cache=dual", "AR", "LLaDA, guided"];
    assert_eq!(of("run"), names);
    assert_eq!(of("baseline"), ["LLaDA", "LLaDA", "LLaDA", "LLaDA", "AR"]);
    assert_eq!(of("model"), ["demo-llada", "demo-dream", "demo-dream", "demo-qwen", "demo-llada"]);
    assert_eq!(report["items"], 15);
    assert!(rows[4]["guide"] == "demo-qwen" && rows[4]["guide_share"].as_f64() > Some(0.0), "{}", rows[4]);
    assert!(rows[4]["acceptance"].as_f64() > Some(0.0) && rows[4]["guide_memory"].as_u64() > Some(0));
    assert!(rows[3]["decoder"] == "ar" && rows[1]["difference"]["items"] == 3);
    let read = |name: &str| fs::read_to_string(Path::new(out).join(name)).unwrap();
    let page = read("report.md");
    assert!(page.starts_with("# A table of models\n"), "{page}");
    for told in ["| # | run | model |", "Published in a paper, table 1.", "| 4 | AR | 73.5 |", "| guide's time % |"] {
        assert!(page.contains(told), "{told}\n{page}");
    }
    // What is there needs no model; what is added is answered.
    let again = lab(&call);
    assert!(again.stderr.contains("15 results are there already, 0 are missing"), "{}", again.stderr);
    let more = format!("{}\n[[row]]\nname = \"factor\"\nmodel = \"demo\"\ndecoder = \"factor\"\n", table());
    write(directory.path(), &more);
    assert_eq!(lab(&[&call[..], &["--json"]].concat()).json()["items"], 3);
    write(directory.path(), &more.replace("decoder = \"factor\"", "decoder = \"factor:f=2\""));
    let refused = lab(&call);
    assert!(refused.code == Some(2) && refused.stderr.contains("rows.factor.tasks.wordmath.decoder was \"factor:"));
    write(directory.path(), &table());
    let refused = lab(&call);
    assert!(refused.stderr.contains("another run: rows.factor was given and is not given"), "{}", refused.stderr);
}

#[test]
fn files_that_cannot_run_are_refused_with_a_line_before_anything_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |text: &str, more: &[&str], told: &str| {
        let file = write(directory.path(), text);
        let run = lab(&[&["eval", "--runs", &file], more].concat());
        assert!(run.stderr.starts_with(&format!("error: {}", told.replace("FILE", &file))), "{}", run.stderr);
        assert_eq!((run.code, run.stderr.lines().count(), run.stdout.as_str()), (Some(2), 1, ""));
    };
    let rows = |row: &str| format!("[[task]]\ntask = \"wordmath\"\nlimit = 1\n\n[[row]]\nname = \"a\"\n{row}\n");
    refused(&rows("model = \"nowhere/at/all\""), &[], "FILE, line 5: ");
    refused(&rows("model = \"demo\"\ncache = \"block\""), &[], "FILE, line 5: row \"a\", wordmath: ");
    refused(&rows("model = \"demo\"\nprompt_style = \"x\""), &[], "FILE, line 5: unknown prompt style \"x\"");
    refused(&rows(""), &[], "FILE, line 5: row \"a\" names no model: ");
    refused(
        &rows("model = \"demo\"\nstep = 1"),
        &[],
        "FILE, line 8: unknown key \"step\" of a row, did you mean \"steps\"?",
    );
    let good = rows("model = \"demo\"");
    refused(&good, &["wordmath"], "TASK beside --runs: write it into the file, or omit it");
    refused(&good, &["--steps", "4"], "--steps beside --runs: write it into the file, or omit it");
    refused(&good, &["--sweep", "cache=none"], "--sweep beside --runs: write it into the file, or omit it");
    assert!(!directory.path().join("out").exists());
}

#[test]
fn directories_are_joined_and_others_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let answer = |model: &str, more: &[&str], out: &str| {
        let (model, out) = (project(&format!("demo/demo-{model}")), path(out));
        let call = ["eval", "wordmath", "--limit", "2", "--cache", "none", "--decoder", "static", "--model", &model];
        lab(&[&call[..], &["--out", &out], more].concat()).success();
        out
    };
    let (llada, dream) = (answer("llada", &[], "llada"), answer("dream", &[], "dream"));
    let joined = path("joined");
    let report = lab(&["report", &llada, &dream, "--out", &joined, "--json"]).json();
    let runs: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| row["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["static, cache none (demo-llada)", "static, cache none (demo-dream)"]);
    assert!(fs::read_to_string(path("joined/report.md")).unwrap().contains("| # | run | model |"));
    let baseline = ["report", &llada, &dream, "--out", &joined, "--baseline", runs[1], "--json"];
    assert_eq!(lab(&baseline).json()["rows"][0]["baseline"], runs[1]);
    let data = path("data.jsonl");
    fs::write(&data, r#"{"question": "Ada has 3 pears. How many pears are there in the end?", "solution": "3 pears.\nThe final answer is 3", "answer": 3}"#).unwrap();
    let other = answer("llada", &["--data", &data], "other");
    let refused = |arguments: &[&str], told: &str| {
        let run = lab(&[&["report"], arguments].concat());
        assert!(run.code == Some(2) && run.stderr.contains(told), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1);
    };
    refused(&[&llada, &other, "--out", &joined], &format!("task wordmath has other data in {other} ("));
    refused(&[&llada, &llada, "--out", &joined], "is named twice: name it once");
    refused(&[&path("nothing"), "--out", &joined], "has no results to report (outline.json: ");
    refused(&[&llada, "--out", &llada], "holds results: name another --out for the report");
    refused(&["--out", &joined], "no directory given");
}

const CANDIDATES: &str = "decoder=static|threshold;cache=none|dual";

#[test]
fn tune_finds_the_cheapest_that_keeps_the_floor() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let call =
        ["tune", "wordmath", "--sweep", CANDIDATES, "--dev", "10", "--limit", "5", "--by", "forwards", "--batch", "5"];
    let call = [&call[..], &["--floor", "75", "--out", out.to_str().unwrap()]].concat();
    let tuned = lab(&[&call[..], &["--json"]].concat()).json();
    let flags = tuned["flags"].as_str().unwrap();
    assert!(flags.contains("--decoder threshold:tau=0.9") && flags.contains("--gen-length "), "{flags}");
    let dev = tuned["dev"].as_array().unwrap();
    assert_eq!(dev.len(), 4);
    let items: Vec<_> = dev.iter().map(|row| row["items"].as_u64().unwrap()).collect();
    // A wrong item or two of five do not say that a row cannot have 75 of 100.
    assert_eq!(items, [10; 4]);
    let test = tuned["test"].as_array().unwrap();
    assert_eq!((test.len(), &test[0]["items"], &test[1]["items"]), (2, &Value::from(5), &Value::from(5)));
    assert!(out.join("dev/plots/accuracy_latency.svg").exists() && out.join("test/report.md").exists());
    // No item of the test set was seen before.
    let prompts = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(out.join(name).join("results.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["prompt"].clone()).collect()
    };
    let (seen, tested) = (prompts("dev"), prompts("test"));
    assert!(tested.iter().all(|prompt| !seen.contains(prompt)));
    // A later evaluation leaves out what chose, and says so; the dev file's items are none of its own.
    let chosen: Value = serde_json::from_str(&fs::read_to_string(out.join("dev.json")).unwrap()).unwrap();
    assert_eq!(chosen["items"].as_array().unwrap().len(), 10);
    let about = fs::read_to_string(out.join("test/report.md")).unwrap();
    assert!(about.contains("The row was chosen by 10 other items."), "{about}");
    // Ten items do not tell much, and the same call goes on where it ended.
    let again = lab(&call);
    assert!(again.stderr.contains("items of the test set are too few to separate"), "{}", again.stderr);
    assert!(again.stdout.lines().last().unwrap() == flags, "{}", again.stdout);
}

/// The dev set was the first items of the task's test set, and a later evaluation had them without a word.
#[test]
fn items_that_chose_are_the_last_ones_and_can_be_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, tuned, later) = (path("data.jsonl"), path("tuned"), path("later"));
    let line = |pears: usize| {
        let question = format!("Ada has {pears} pears. Ben gives Ada 4 more. How many pears are there in the end?");
        let entry = serde_json::json!({"question": question, "solution": "x", "answer": pears + 4});
        format!("{entry}\n")
    };
    fs::write(&data, (1..=8).map(line).collect::<String>()).unwrap();
    let sweep = ["--sweep", "decoder=static|threshold;cache=dual", "--dev", "3"];
    lab(&[&["tune", "wordmath", "--data", &data, "--out", &tuned][..], &sweep].concat()).success();
    let call = ["eval", "wordmath", "--data", &data, "--skip-dev", &tuned, "--out", &later];
    lab(&call).success();
    let prompts = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(path(name)).unwrap();
        let prompt = |line: &str| serde_json::from_str::<Value>(line).unwrap()["prompt"].as_str().unwrap().to_owned();
        text.lines().map(prompt).collect()
    };
    let (dev, later) = (prompts("tuned/dev/results.jsonl"), prompts("later/results.jsonl"));
    assert!(dev.iter().all(|prompt| [6, 7, 8].iter().any(|pears| prompt.contains(&format!("Ada has {pears} pears")))));
    assert!(later.len() == 5 && later.iter().all(|prompt| !dev.contains(prompt)));
    let report = fs::read_to_string(path("later/report.md")).unwrap();
    assert!(report.contains("3 items that a method was chosen by are left out."), "{report}");
    let run = lab(&["eval", "wordmath", "--skip-dev", &path("nowhere")]);
    assert!(run.code == Some(2) && run.stderr.contains("dev.json has no dev items ("), "{}", run.stderr);
}

#[test]
fn tune_that_cannot_reach_its_floor_says_the_best() {
    let call = ["tune", "wordmath", "--sweep", CANDIDATES, "--dev", "8", "--limit", "1", "--floor", "90"];
    // Nobody answers in two tokens.
    let run = lab(&[&call[..], &["--gen-length", "2", "--block-length", "2", "--by", "operations", "-q"]].concat());
    let told = "error: no candidate reaches 90.0 % on the dev set; the best is ";
    assert!(
        run.code == Some(1) && run.stderr.starts_with(told) && run.stderr.contains(" with 0.0 % of 8 items"),
        "{}",
        run.stderr
    );
    for (more, told) in [
        (&["--floor", "50", "--loss", "1"][..], "--floor and --loss both say what accuracy is wanted"),
        (&["--floor", "120"], "--floor is 120, expected percent from 0 to 100"),
        (&["--by", "second"], "unknown cost \"second\", did you mean \"seconds\"?"),
        (&["--dev", "0"], "--dev is 0, expected 1 to 200 of 200 items"),
        (&["--decoder", "static"], "--decoder names one candidate: name several with --sweep, or omit it"),
        (&["--score", "likelihood"], "--score has no meaning with tune"),
    ] {
        let run = lab(&[&["tune", "wordmath"], more].concat());
        assert!(run.code == Some(2) && run.stderr.starts_with(&format!("error: {told}")), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1);
    }
}

#[test]
fn a_recipe_runs_by_its_name_without_a_clone_and_recipes_are_listed() {
    let away = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| Run::from(command(arguments).current_dir(away.path()).output().unwrap());
    let list = run(&["recipe", "list"]).success();
    assert!(list.contains("\nflashdlm/table-3 "), "{list}");
    let json = run(&["recipe", "list", "--json"]).json();
    let names: Vec<&str> = json.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.len() >= 40 && names.contains(&"freedave/table-1"), "{names:?}");
    let text = run(&["recipe", "show", "freedave/table-2"]).success();
    assert_eq!(text, fs::read_to_string(project("recipes/freedave/table-2.toml")).unwrap());
    let refused = run(&["recipe", "show", "freedave/table-3"]);
    assert_eq!(refused.code, Some(2));
    let expected = "error: unknown recipe \"freedave/table-3\", did you mean \"freedave/table-1\"?";
    assert!(refused.stderr.starts_with(expected) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    // Its models are not here: the line says where they are named.
    let refused = run(&["eval", "--runs", "recipe:demo/freedave-figure-2", "--limit", "1"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(2), 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("recipe:demo/freedave-figure-2, line "), "{}", refused.stderr);
    let found = command(&["eval", "--runs", "recipe:demo/freedave-figure-2", "--limit", "1", "--json"])
        .current_dir(project("."))
        .output()
        .unwrap();
    assert_eq!(Run::from(found).json()["rows"].as_array().unwrap().len(), 13);
}

#[test]
fn a_recipe_with_a_base_runs_as_it_is_shown() {
    let away = tempfile::tempdir().unwrap();
    let text = lab(&["recipe", "show", "demo/dllm-cache-main-dream"]).success();
    assert!(text.starts_with("base = \"recipe:demo/dllm-cache-main-llada\"\n"), "{text}");
    let file = write(away.path(), &text);
    let call = ["eval", "--runs", &file, "--limit", "1", "--json"];
    let report = Run::from(command(&call).current_dir(project(".")).output().unwrap()).json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["model"], &rows[6]["run"]), (11, &"demo-dream".into(), &"dual".into()));
    // Its models are not here: the line is that of the base, which has the row.
    let refused = Run::from(command(&call).current_dir(away.path()).output().unwrap());
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(2), 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("recipe:demo/dllm-cache-main-llada, line 11: "), "{}", refused.stderr);
}

/// The page's commands show what the figure and the table are about, whatever the defaults of the day.
#[test]
fn commands_of_the_papers_page_draft_and_decode_as_the_papers_do() {
    let page = fs::read_to_string(project("docs/papers.md")).unwrap();
    let of = |start: &str| -> Vec<String> {
        let line = page.lines().find(|line| line.starts_with(start)).unwrap();
        line.split('`').nth(1).unwrap().split(' ').skip(1).map(str::to_owned).collect()
    };
    let figure: Vec<String> = of("| Figure 1, how drafts").into_iter().filter(|word| word != "--watch").collect();
    let mut words: Vec<&str> = figure.iter().map(String::as_str).collect();
    words.extend(["--json", "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"]);
    let acceptance = demask(&words).json()["receipt"]["acceptance"].clone();
    let drafted: u64 = acceptance.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
    assert!(drafted > 0, "{acceptance}");
    let table = of("| Table 1, complexity");
    let words: Vec<&str> = table.iter().map(String::as_str).chain(["--json"]).collect();
    let cost = lab(&words).json();
    assert!(cost.to_string().contains("327680"), "every row in every step: {cost}");
}

#[test]
fn answers_that_fill_their_length_are_counted_and_warned_of() {
    let cut = lab(&["eval", "wordmath", "--limit", "3", "--gen-length", "8", "--block-length", "8"]);
    let expected = "warning: 3 of 3 answers of";
    assert!(cut.stderr.contains(expected) && cut.stderr.contains("try a larger --gen-length"), "{}", cut.stderr);
    assert!(cut.success().contains("cut %"));
    let whole = lab(&["eval", "wordmath", "--limit", "3"]);
    assert!(!whole.stderr.contains("warning"), "{}", whole.stderr);
    assert!(!whole.success().contains("cut %"));
}
