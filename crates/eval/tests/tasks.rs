//! Every task reads its schema, asks in its wordings and tells right answers from wrong ones, on invented items (files of
//! `tests/items`: not from the benchmarks, in their published schemas). `docs/tasks.md` is written from the same.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use demask::Prompt;
use demask_checkpoint::{HubOptions, Message};
use demask_eval::{
    Gold, Problem, Rule, Source, Style, Task,
    data::{DataOptions, load, shots},
    tasks::{Exemplars, Form, TASKS, find},
};
use serde_json::{Value, json};

use crate::recipes::settings;

/// Tasks whose own files are read by `tests/released.rs` where somebody has them.
const READ_IN_FULL: &[&str] = &["gsm8k", "humaneval", "arc-challenge", "piqa"];

/// One invented item.
struct Item {
    problem: Problem,
    right: Vec<String>,
    wrong: Vec<String>,
}

fn lines(task: &Task) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/items/{}.jsonl", task.name));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Entries alone, one a line.
fn entries(lines: &[Value]) -> String {
    lines.iter().map(|line| line["entry"].to_string() + "\n").collect()
}

/// The task's invented items, through the same door as any file.
fn items(task: &Task) -> Vec<Item> {
    let lines = lines(task);
    let path = env::temp_dir().join(format!("demask-tasks-{}-{}.jsonl", task.name, std::process::id()));
    fs::write(&path, entries(&lines)).unwrap();
    let problems = read(task, &path);
    fs::remove_file(path).unwrap();
    let texts = |value: &Value| value.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    let item = |(problem, line): (Problem, &Value)| Item {
        problem,
        right: texts(&line["right"]),
        wrong: texts(&line["wrong"]),
    };
    problems.into_iter().zip(&lines).map(item).collect()
}

fn read(task: &Task, path: &Path) -> Vec<Problem> {
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: Some(path), subject: None, seed: 7, hub: &hub };
    load(task, &options, &mut |_| true).unwrap_or_else(|error| panic!("{}: {error}", task.name))
}

/// Tasks whose problems are files.
fn tasks() -> impl Iterator<Item = &'static Task> {
    TASKS.iter().copied().filter(|task| !matches!(task.source, Source::BuiltIn(_)))
}

/// An answer as a model says it.
fn said(rule: Rule, answer: &str) -> String {
    match rule {
        Rule::Number(triggers) => {
            let close = if triggers[0].ends_with('{') { "}" } else { "" };
            format!("First some words. {} {answer}{close}.", triggers[0])
        }
        Rule::Letter(_) => format!("Some words. The answer is ({answer})."),
        Rule::Math(_) => format!("Some words, so $\\boxed{{{answer}}}$."),
        Rule::Exact(_) => format!("Some words. So the answer is {answer}."),
        _ => answer.to_owned(),
    }
}

/// Right and wrong outputs for an item under a rule.
fn outputs(rule: Rule, item: &Item) -> (Vec<String>, Vec<String>) {
    let name = |option: usize| match rule {
        Rule::Choice { name, .. } => format!("The final answer is {name}{}", option + 1),
        _ => said(rule, &char::from(b'A' + option as u8).to_string()),
    };
    let say = |answers: &[String]| answers.iter().map(|answer| said(rule, answer)).collect();
    match item.problem.gold {
        Gold::Option(gold) => {
            let wrong = (0..item.problem.options.len()).filter(|option| *option != gold).map(name).collect();
            (vec![name(gold)], wrong)
        }
        _ => (say(&item.right), say(&item.wrong)),
    }
}

#[test]
fn right_answers_are_right_and_wrong_ones_wrong_under_every_wording() {
    for task in tasks() {
        let items = items(task);
        assert_eq!(items.len(), 5, "{}", task.name);
        for (style, item) in task.styles.iter().flat_map(|style| items.iter().map(move |item| (style, item))) {
            if style.rule == Rule::Program {
                continue;
            }
            let (right, wrong) = outputs(style.rule, item);
            assert!(!right.is_empty() && !wrong.is_empty(), "{}", task.name);
            for (output, expected) in right.iter().map(|it| (it, true)).chain(wrong.iter().map(|it| (it, false))) {
                let verdict = style.rule.judge(&item.problem, output);
                assert_eq!(verdict.correct, expected, "{} {} {output:?}: {verdict:?}", task.name, style.name);
            }
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_invented_programs_pass_their_tests_and_wrong_ones_fail() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    for item in ["humaneval", "mbpp"].iter().flat_map(|name| items(find(name).unwrap())) {
        let Gold::Program { prompt, tests, .. } = &item.problem.gold else { panic!("no program") };
        let passes = |answer: &String| {
            let program = format!("{prompt}{answer}\n{tests}");
            Command::new("python3").args(["-c", &program]).output().unwrap().status.success()
        };
        assert!(item.right.iter().all(passes), "{}", item.problem.id);
        assert!(!item.wrong.iter().any(passes), "{}", item.problem.id);
    }
}

#[test]
fn what_exemplars_answer_is_judged_right() {
    for task in tasks() {
        for (style, item) in task.styles.iter().flat_map(|style| items(task).into_iter().map(move |item| (style, item)))
        {
            // Reasons alone, without an answer: nobody shows such a problem.
            let shown = task.name != "mmlu-pro" || item.problem.solution.is_some();
            if style.rule != Rule::Program && shown {
                let answer = style.solve(&item.problem).unwrap();
                let verdict = style.rule.judge(&item.problem, &answer);
                assert!(verdict.correct, "{} {} {answer:?}: {verdict:?}", task.name, style.name);
            }
        }
    }
}

#[test]
fn names_are_said_once() {
    for task in TASKS.iter() {
        assert_eq!(TASKS.iter().filter(|other| other.name == task.name).count(), 1, "{}", task.name);
        for style in task.styles {
            assert_eq!(task.styles.iter().filter(|other| other.name == style.name).count(), 1, "{}", task.name);
            assert_eq!(task.style(style.name).unwrap().about, style.about);
        }
    }
    assert!(find("gsm9k").is_none());
}

#[test]
fn the_seed_orders_the_options_of_gpqa_and_nothing_else() {
    let task = find("gpqa").unwrap();
    let path = env::temp_dir().join(format!("demask-tasks-seed-{}.jsonl", std::process::id()));
    fs::write(&path, entries(&lines(task)).repeat(20)).unwrap();
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let drawn = |seed| {
        let options = DataOptions { file: Some(&path), subject: None, seed, hub: &hub };
        load(task, &options, &mut |_| true).unwrap()
    };
    let (one, other) = (drawn(1), drawn(2));
    assert_eq!(one, drawn(1));
    assert_ne!(one, other);
    let mut places = [0; 4];
    for (problem, entry) in one.iter().zip(lines(task).iter().cycle()) {
        let Gold::Option(gold) = problem.gold else { panic!("no option") };
        assert_eq!(problem.options[gold], entry["entry"]["Correct Answer"].as_str().unwrap().trim());
        places[gold] += 1;
    }
    assert!(places.iter().all(|count| (10..=45).contains(count)), "{places:?}");
    fs::remove_file(path).unwrap();
}

#[test]
fn likelihoods_choose_between_as_many_texts_as_there_are_options() {
    for task in tasks() {
        let Some(likelihood) = task.likelihood else { continue };
        for item in items(task) {
            let candidates = likelihood.candidates(&item.problem, &[]).unwrap();
            assert_eq!(candidates.len(), item.problem.options.len(), "{}", task.name);
            for candidate in &candidates {
                assert!(candidate.text.starts_with(' ') && !candidate.context.ends_with(' '), "{candidate:?}");
            }
            let whole = |index: usize| format!("{}{}", candidates[index].context, candidates[index].text);
            assert!((1..candidates.len()).all(|index| whole(index) != whole(0)), "{}", task.name);
        }
    }
    let task = find("winogrande").unwrap();
    let [first, second, ..] = &items(task)[..] else { panic!("few items") };
    let candidates =
        task.likelihood.unwrap().candidates(&first.problem, std::slice::from_ref(&second.problem)).unwrap();
    assert_eq!(
        candidates[1].context,
        "Mara thanked Ines because Ines had carried the boxes.\n\nThe suitcase did not fit on the shelf because the shelf"
    );
    assert_eq!(candidates[1].text, " was too large.");
}

#[test]
fn the_published_exemplars_stand_in_prompts_as_in_the_papers() {
    let task = find("gsm8k").unwrap();
    let problem = Problem { question: "How many?".to_owned(), ..Problem::default() };
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &hub };
    let shown = shots(task, 8, None, std::slice::from_ref(&problem), &options, &mut |_| true).unwrap().of(&problem);
    let Prompt::Raw(text) = task.style("lm-eval-cot").unwrap().prompt(&problem, &shown).unwrap() else {
        panic!("turns")
    };
    assert!(text.starts_with("Q: There are 15 trees in the grove. Grove workers will plant trees in the grove today."));
    assert!(text.ends_with("So she has 23 - 15 dollars left. 23 - 15 is 8. The answer is 8.\n\nQ: How many?\nA:"));
    assert_eq!(text.matches("\n\nQ: ").count(), 8);
    let Prompt::Chat(chat) = task.style("flashdlm").unwrap().prompt(&problem, &shown).unwrap() else { panic!("text") };
    let turns = chat.messages;
    assert_eq!(turns.len(), 17);
    assert_eq!(turns[3].content, "There are originally 3 cars. 2 more cars arrive. 3 + 2 = 5. The final answer is 5");
    assert_eq!((turns[15].role.as_str(), turns[16].role.as_str()), ("assistant", "user"));
}

#[test]
fn all_problems_of_the_demo_are_read_and_their_solutions_are_right() {
    let task = find("wordmath").unwrap();
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &hub };
    let problems = load(task, &options, &mut |_| true).unwrap();
    assert_eq!(problems.len(), 500);
    let is_right = |problem: &Problem| task.styles[0].rule.judge(problem, problem.solution.as_ref().unwrap()).correct;
    assert!(problems.iter().all(is_right));
}

#[test]
fn calls_are_valid_under_their_schemas_and_no_other_call_is_right() {
    let task = find("calls").unwrap();
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let problems = load(task, &DataOptions { file: None, subject: None, seed: 0, hub: &hub }, &mut |_| true).unwrap();
    assert_eq!(problems.len(), 60);
    let judge = |problem: &Problem, output: &str| task.styles[0].judge(problem, output);
    for (at, problem) in problems.iter().enumerate() {
        let right = task.styles[0].solve(problem).unwrap();
        let verdict = judge(problem, &right);
        assert!(verdict.correct && verdict.valid == Some(true), "{}: {verdict:?}", problem.id);
        let other = task.styles[0].solve(&problems[(at + 1) % problems.len()]).unwrap();
        assert!(!judge(problem, &other).correct, "{}: {other}", problem.id);
        let broken = right.replacen("\"arguments\"", "\"argument\"", 1);
        let verdict = judge(problem, &broken);
        assert!(!verdict.correct && verdict.valid == Some(false), "{}: {verdict:?}", problem.id);
    }
}

#[test]
fn solutions_of_math_without_an_answer_have_a_box() {
    let task = find("math").unwrap();
    let gold =
        |solution: &str| task.read(&json!({"problem": "?", "solution": solution}), 0).map(|problem| problem.gold);
    let found = |answer: &str| Ok(Gold::Math(answer.to_owned()));
    assert_eq!(gold("so $\\boxed{1}$ or $\\boxed{\\frac{1}{2}}$."), found("\\frac{1}{2}"));
    assert_eq!(gold("so $\\boxed 3.$"), found("3"));
    let refused = "field solution is something else, expected text with \\boxed{...}";
    for solution in ["\\boxed{1", "no box"] {
        assert_eq!(gold(solution).unwrap_err().to_string(), refused);
    }
    let Exemplars::Published(shown) = task.exemplars else { panic!("no exemplars") };
    for problem in shown {
        assert_eq!(gold(problem.solution.as_deref().unwrap()), Ok(problem.gold.clone()));
    }
}

#[test]
fn the_marks_of_articles_vanish_from_scenes() {
    let read = |ctx_b: &str, ending: &str| {
        let entry = json!({"activity_label": "Sew", "ctx_a": "How to sew [title] Thread it. [step] Knot [substeps] it.",
            "ctx_b": ctx_b, "endings": [ending], "label": 0});
        find("hellaswag").unwrap().read(&entry, 0).unwrap()
    };
    let problem = read("the Man", "How to sew [title] Thread it. [step] Knot [substeps] it.");
    assert_eq!(problem.question, "Sew: How to sew. Thread it. Knot it. The man");
    assert_eq!(problem.options, ["How to sew. Thread it. Knot it."]);
    let problem = read("", " an [open bracket");
    assert_eq!(problem.question, "Sew: How to sew. Thread it. Knot it.");
    assert_eq!(problem.options, ["an [open bracket"]);
}

/// Written by hand: what the words mean.
const INTRODUCTION: &str = "\
# Tasks

Written from the files of tasks (`crates/eval/tasks`) and from invented items in the published schemas
(`crates/eval/tests/items`); `DEMASK_BLESS=1 cargo test -p demask-eval --test all tasks` writes it anew. The examples
show invented items, never a benchmark's.

A task's files come from the hub into the cache that all of its tools share (`HF_HOME`, `HF_ENDPOINT`,
`HF_HUB_OFFLINE`, `HF_TOKEN`), or from a file: JSON lines, a JSON list, CSV or parquet (not compressed with zstd), each
perhaps in gzip. A wording (`--prompt-style`) is a conversation, which the model's chat template renders, or plain text.
It says how the answer is found as well, because it says what the answer has to look like. Exemplars that a task does not
have itself come from a file in the task's own schema (`--shots-file`).

End-of-text markers that harnesses list among their stop texts (`</s>`, `<|im_end|>`) are the model's end ids here.
What `lm-eval` words as plain text `lm-eval-chat` words as turns, with the exemplars as turns of their own.

";

/// Written by hand: what the settings are and where they stand.
const SETTINGS: &str = "
## Published settings

What papers and their scripts ran, as far as either tells it: written from the recipes (`recipes`, `docs/papers.md`), which
run it. A row has `--prompt-style`, `--shots`, `--gen-length`, `--block-length`, `--decoder` and `--cache`, and beside them
what else it sets. Where no block is named, the model's own stands, or the whole response. Rows that only this project
adds are left out.
";

fn rule(rule: Rule) -> String {
    match rule {
        Rule::Number(phrases) => {
            format!("the number behind the last `{}`, else the last number", phrases.join("` or `"))
        }
        Rule::Letter(_) => "the option's letter".to_owned(),
        Rule::Choice { name, .. } => format!("the option's name: `{name}1`, `{name}2` and so on"),
        Rule::Math(_) => "the expression in the last `\\boxed{}`".to_owned(),
        Rule::Exact(_) => "the text, exactly".to_owned(),
        Rule::Overlap => "the words that it shares with a right answer (F1)".to_owned(),
        Rule::Json => "JSON that is valid under the schema, and equal to the right value where there is one".to_owned(),
        Rule::Program => "the program passes the tests (`--allow-code-execution`)".to_owned(),
    }
}

fn exemplars(task: &Task) -> String {
    match task.exemplars {
        Exemplars::None => "none of its own".to_owned(),
        Exemplars::Published(published) => format!("the {} published ones, part of the program", published.len()),
        Exemplars::Others => "other problems of the same file".to_owned(),
        Exemplars::Files { files, per_subject, .. } => {
            let about = if per_subject { ", of the problem's subject" } else { "" };
            format!("`{}`{about}", files[0].path)
        }
    }
}

/// A prompt, with the turns marked.
fn example(style: &Style, problem: &Problem) -> String {
    match style.prompt(problem, &[]).unwrap() {
        Prompt::Chat(chat) => {
            let turn = |turn: &Message| ["[", &turn.role, "]\n", &turn.content, "\n"].concat();
            chat.messages.iter().map(turn).collect()
        }
        Prompt::Raw(text) => text + "\n",
        other => panic!("{other:?}"),
    }
}

#[test]
fn problems_of_the_program_are_those_of_the_demo_s_folder() {
    let task = find("wordmath").unwrap();
    for (source, name) in [(task.source, "test"), (task.on_dev().unwrap().source, "dev")] {
        let text =
            fs::read_to_string(format!("{}/../../demo/wordmath-{name}.jsonl", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let Source::BuiltIn(lines) = source else { panic!("{name}") };
        assert!(lines == text, "{name}");
    }
}

fn section(task: &Task) -> String {
    let mut about = task.about.chars();
    let start: String = about.next().into_iter().flat_map(char::to_uppercase).collect();
    let mut text = format!("\n## `{}`\n\n{start}{}.\n\n", task.name, about.as_str());
    let (first, origin) = match task.source {
        Source::BuiltIn(lines) => {
            let line = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
            let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
            let is_there = |file: &&str| fs::read_to_string(root.join(file)).unwrap() == lines;
            let file = ["demo/wordmath-test.jsonl", "crates/eval/data/calls-test.jsonl"].into_iter().find(is_there);
            let file = file.unwrap();
            writeln!(text, "- Problems: part of the program (`{file}`).").unwrap();
            (task.read(&line, 0).unwrap(), "all of its problems")
        }
        Source::File(file) => panic!("{}", file.display()),
        Source::Hub(dataset) => {
            let file = dataset.files[0];
            let member = file.member.map(|member| format!(", in it `{member}`")).unwrap_or_default();
            let more = match dataset.files.len() - 1 {
                0 => String::new(),
                _ => format!(" and so on, {} files", dataset.files.len()),
            };
            writeln!(text, "- Problems: `{}` at `{}`: `{}`{member}{more}.", dataset.id, dataset.revision, file.path)
                .unwrap();
            let origin = if READ_IN_FULL.contains(&task.name) {
                "the released file too, where `DEMASK_BENCHMARKS` names a folder that has it"
            } else {
                "invented items only: the released file was not at hand"
            };
            (items(task).remove(0).problem, origin)
        }
    };
    writeln!(text, "- Fields: {}.", task.fields).unwrap();
    writeln!(text, "- Exemplars: {}.", exemplars(task)).unwrap();
    writeln!(text, "- Positions to decode: {}.", task.gen_length).unwrap();
    if let Some(likelihood) = task.likelihood {
        let candidates = likelihood.candidates(&first, &[]).unwrap();
        let shown = |text: &str| format!("`{}`", text.replace('\n', "\\n"));
        let texts: Vec<String> = candidates.iter().map(|candidate| shown(&candidate.text)).collect();
        let (context, shots) = (shown(&candidates[0].context), likelihood.shots);
        writeln!(text, "- `--score likelihood`, {shots} exemplars: {} behind {context}.", texts.join(", ")).unwrap();
    }
    if let Some(instructions) = task.decision {
        let shown: Vec<String> = first.options.iter().map(|option| format!("`{option}`")).collect();
        let before = instructions.of(&first).unwrap().replace('\n', "\\n");
        writeln!(text, "- `--score decision`: {} behind `{before}`, after the prompt.", shown.join(", ")).unwrap();
    }
    writeln!(text, "- Tested on {origin}.").unwrap();
    for style in task.styles {
        let form = if style.form == Form::Chat { "conversation" } else { "plain text" };
        write!(text, "\n`{}`: {}; {form}, {} exemplars; ", style.name, style.about, style.shots).unwrap();
        writeln!(text, "answer: {}.", rule(style.rule)).unwrap();
        if !style.stop.is_empty() {
            let stops: Vec<String> = style.stop.iter().map(|stop| format!("`{}`", stop.escape_debug())).collect();
            writeln!(text, "Ends at {}.", stops.join(", ")).unwrap();
        }
        writeln!(text, "\n````text\n{}````", example(style, &first)).unwrap();
    }
    text
}

#[test]
fn the_page_of_tasks_is_up_to_date() {
    let sections = TASKS.iter().map(|task| section(task));
    let page: String =
        [INTRODUCTION.to_owned()].into_iter().chain(sections).chain([SETTINGS.to_owned(), settings()]).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks.md");
    if env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/tasks.md is out of date: DEMASK_BLESS=1 cargo test -p demask-eval --test all tasks");
}
