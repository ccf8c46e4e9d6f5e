//! A task of the user's: a file that extends one of the program, or says everything itself, and what is refused of it.

use std::fs;

use demask::Prompt;
use demask_checkpoint::HubOptions;
use demask_eval::{
    Gold, Source, Task,
    data::{DataOptions, load, shots},
    run::task,
    tasks::TASKS,
};
use tempfile::TempDir;

const OWN: &str = r#"about = "sums of our own"
gen_length = 32

[dataset]
file = "sums.jsonl"

[problem]
id = 'name("key")'
question = 'text("sum", "question")|trim'
solution = 'text("reasons", optional=true)'
answer = 'whole("total")'

[style.short]
about = "few words"
form = "text"
gap = " "
ask = "Q: {{ question }}\nA:"
solve = "{% if solution is defined %}{{ solution }} {% endif %}The answer is {{ answer }}."
shots = 1
score = "number"
phrases = ["The answer is"]

[[exemplars.published]]
question = "2 + 2?"
solution = "2 and 2."
answer = "4"
"#;
const SUMS: &str = r#"{"key": "one", "question": " 1 + 1? ", "total": "2"}
{"key": "two", "sum": "1 + 2?", "total": 3, "reasons": "1 and 2."}
"#;

/// A folder with a file of a task, and its data.
fn folder(name: &str, text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sums.jsonl"), SUMS).unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn prompts(task: &Task) -> Vec<String> {
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &hub };
    let problems = load(task, &options, &mut |_| true).unwrap();
    let style = &task.styles[0];
    let shown = shots(task, style.shots, None, &problems, &options, &mut |_| true).unwrap();
    let text = |prompt| match prompt {
        Prompt::Raw(text) => text,
        other => panic!("{other:?}"),
    };
    problems.iter().map(|problem| text(style.prompt(problem, &shown.of(problem)).unwrap())).collect()
}

#[test]
fn a_file_of_the_user_is_a_task_like_those_of_the_program() {
    let (_folder, path) = folder("own-sums.toml", OWN);
    let own = task(&path).unwrap();
    assert_eq!((own.name, own.gen_length, own.styles.len()), ("own-sums", 32, 1));
    assert!(matches!(own.source, Source::File(_)) && own.file.is_some());
    let shown = "Q: 2 + 2?\nA: 2 and 2. The answer is 4.\n\n";
    assert_eq!(prompts(own), [format!("{shown}Q: 1 + 1?\nA:"), format!("{shown}Q: 1 + 2?\nA:")]);
    let problem = own.read(&serde_json::json!({"sum": "?", "total": 7}), 5).unwrap();
    assert_eq!((problem.id.as_str(), problem.gold), ("5", Gold::Number("7".to_owned())));
    let refused = own.read(&serde_json::json!({"sum": "?", "total": "many"}), 0).unwrap_err();
    assert_eq!(refused.to_string(), "field total is text, expected a whole number");
}

#[test]
fn a_file_takes_from_the_task_that_it_extends_what_it_does_not_say() {
    let text = "extends = \"gsm8k\"\n[style.mine]\nextends = \"lm-eval\"\nask = \"Sum: {{ question }}\"\n";
    let (_folder, path) = folder("mine.toml", text);
    let (mine, base) = (task(&path).unwrap(), task("gsm8k").unwrap());
    assert_eq!((mine.about, mine.source), (base.about, base.source));
    let problem = base.read(&serde_json::json!({"question": "1?", "answer": "one #### 1"}), 0).unwrap();
    let [style, of_base] = [mine.styles[0], *base.style("lm-eval").unwrap()];
    assert_eq!(style.ask(&problem).unwrap(), "Sum: 1?");
    assert_eq!(style.solve(&problem), of_base.solve(&problem));
    assert_eq!((style.stop, style.shots, style.rule), (of_base.stop, of_base.shots, of_base.rule));
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_line() {
    let cases = [
        (("about =", "abuot ="), "1: unknown key \"abuot\" of a task, did you mean \"about\"?"),
        (("\"sums.jsonl\"", "3"), "5: file is integer, expected a text"),
        (("answer = 'whole", "anwser = 'whole"), "11: unknown key \"anwser\" of problem, did you mean \"answer\"?"),
        (("answer = 'whole(\"total\")'\n", ""), "7: a problem without answer: expected answer = \"...\""),
        (("text(\"sum\"", "test(\"sum\""), "9: question: unknown name test, did you mean text?"),
        (("{{ question }}\\nA:", "{{ qestion }}"), "17: ask: unknown name qestion, did you mean question?"),
        (("{{ question }}\\nA:", "{{ question"), "17: ask: unexpected end of input"),
        (("ask = \"Q: {{ question }}\\nA:\"\n", ""), "13: ask is missing: expected ask = \"...\""),
        (
            ("form = \"text\"\ngap", "form = \"chat\"\ngap"),
            "16: gap is between paragraphs, and a conversation has none",
        ),
        (("score = \"number\"", "score = \"numbr\""), "13: unknown score \"numbr\", did you mean \"number\"?"),
        (
            ("about = \"sums", "extends = \"gsm9k\"\nabout = \"sums"),
            "1: unknown task \"gsm9k\", did you mean \"gsm8k\"?",
        ),
        (
            ("form = \"text\"\n", "extends = \"gsm8k/lm-evl\"\n"),
            "15: unknown style \"lm-evl\", did you mean \"lm-eval\"?",
        ),
        (("answer = \"4\"\n", ""), "answer is missing: expected answer = \"...\""),
    ];
    for ((from, to), told) in cases {
        assert!(OWN.contains(from), "{from}");
        let (_folder, path) = folder("refused.toml", &OWN.replacen(from, to, 1));
        let refused = task(&path).unwrap_err().to_string();
        let line = told.split_once(": ").filter(|(line, _)| line.parse::<usize>().is_ok());
        assert!(refused.contains(line.map_or(told, |(_, told)| told)), "{refused}: {told}");
        assert!(line.is_none_or(|(line, _)| refused.contains(&format!(", line {line}: "))), "{refused}: {told}");
        assert!(!refused.contains('\n'), "{refused}");
    }
    let (_folder, path) = folder("gsm8k.toml", OWN);
    let refused = task(&path).unwrap_err().to_string();
    assert!(refused.ends_with("gsm8k is the name of a task of the program: call the file otherwise"), "{refused}");
    let refused = task("/nowhere/none.toml").unwrap_err().to_string();
    assert!(refused.starts_with("/nowhere/none.toml: there is no such file: check the path"), "{refused}");
}

#[test]
fn a_style_without_exemplars_needs_no_answer_of_one() {
    let solve = OWN.lines().find(|line| line.starts_with("solve = ")).unwrap();
    let without = OWN.replace(&format!("{solve}\n"), "");
    let (_folder, path) = folder("none.toml", &without.replace("shots = 1\n", ""));
    let own = task(&path).unwrap();
    let problem = own.read(&serde_json::json!({"sum": "1 + 1?", "total": 2}), 0).unwrap();
    let Prompt::Raw(text) = own.styles[0].prompt(&problem, &[]).unwrap() else { panic!("{path}") };
    assert_eq!(text, "Q: 1 + 1?\nA:");
    let refused = own.styles[0].prompt(&problem, std::slice::from_ref(&problem)).unwrap_err().to_string();
    let told = "solve of problem 0 cannot be made: style short has no solve, the answer of an exemplar: use `shots` 0, or add it";
    assert!(refused.starts_with(told), "{refused}");
    let (_folder, path) = folder("one.toml", &without);
    assert!(task(&path).unwrap_err().to_string().contains("solve is missing: expected solve = \"...\""));
}

#[test]
fn a_number_read_as_text_is_refused_with_what_reads_it() {
    let text = OWN.replace("whole(\"total\")", "text(\"total\")");
    let (_folder, path) = folder("number.toml", &text);
    let own = task(&path).unwrap();
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &hub };
    let refused = load(own, &options, &mut |_| true).unwrap_err().to_string();
    let told = "sums.jsonl, entry 2: field total is a number, expected text; read a number by whole(\"total\") in [problem] of number.toml";
    assert!(refused.ends_with(told), "{refused}");
    let (_folder, path) = folder("missing.toml", &OWN.replace("whole(\"total\")", "whole(\"sum\")"));
    let refused = load(task(&path).unwrap(), &options, &mut |_| true).unwrap_err().to_string();
    assert!(refused.ends_with("expected a whole number; mend the entry, or [problem] of missing.toml"), "{refused}");
}

#[test]
fn words_that_run_for_ever_end_with_an_error() {
    let long = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
    let (_folder, path) = folder("long.toml", &OWN.replace("Q: {{ question }}\\nA:", long));
    let own = task(&path).unwrap();
    let problem = own.read(&serde_json::json!({"sum": "?", "total": 7}), 0).unwrap();
    let refused = own.styles[0].prompt(&problem, &[]).unwrap_err().to_string();
    assert!(refused.starts_with("ask of problem 0 cannot be made: it runs for ever"), "{refused}");
}

#[test]
fn every_file_of_the_program_is_read() {
    assert_eq!(TASKS.len(), fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tasks")).unwrap().count());
}
