//! The benchmarks' own answers are right, and wrong once they are changed: from the folder that `DEMASK_BENCHMARKS` names,
//! else on five problems of the same form.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use demask_eval::{Gold, Problem, Rule};
use serde_json::Value;

const INVENTED: &str = include_str!("data/questions.jsonl");
const INVENTED_CHOICES: &str = include_str!("data/choices.json");
const PHRASES: &[&str] = &["The final answer is", "####"];

/// The file of the folder with the benchmarks; else the invented problems.
fn read(name: &str, invented: &str) -> String {
    if let Some(folder) = std::env::var_os("DEMASK_BENCHMARKS") {
        return fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    }
    let _ = writeln!(io::stderr(), "DEMASK_BENCHMARKS is not set: invented problems instead of {name}");
    invented.to_owned()
}

fn judge(rule: Rule, gold: Gold, output: &str) -> bool {
    rule.judge(&Problem { gold, ..Problem::default() }, output).correct
}

#[test]
fn gsm8k_answers_are_right_and_others_wrong() {
    let text = read("gsm8k_test.jsonl", INVENTED);
    let mut right = 0;
    for line in text.lines() {
        let item: Value = serde_json::from_str(line).unwrap();
        let solution = item["answer"].as_str().unwrap();
        let (_, gold) = solution.split_once("#### ").unwrap();
        let other: i64 = gold.replace(',', "").parse::<i64>().unwrap() + 1;
        let score = |output: &str| judge(Rule::Number(PHRASES), Gold::Number(gold.to_owned()), output);
        for output in
            [solution, &format!("The final answer is {gold}."), &format!("**The final answer is** \\boxed{{{gold}}}")]
        {
            assert!(score(output), "{gold}: {output}");
        }
        for output in [
            &solution.replace(&format!("#### {gold}"), &format!("#### {other}")),
            &format!("The final answer is {other}"),
        ] {
            assert!(!score(output), "{gold}: {output}");
        }
        right += 1;
    }
    let _ = writeln!(io::stderr(), "gsm8k: {right} of {right} right, 0 once changed by one");
}

#[test]
fn named_options_are_right_and_others_wrong() {
    for (file, name, count) in [("arc_challenge_test.json", "answer", 5), ("piqa_test.json", "solution", 2)] {
        let items: Vec<Value> = serde_json::from_str(&read(file, INVENTED_CHOICES)).unwrap();
        let mut right = 0;
        for item in &items {
            let Some(gold) = item["answer"].as_str().unwrap().strip_prefix(name) else { continue };
            let gold = gold.parse::<usize>().unwrap() - 1;
            let rule = Rule::Choice { name, triggers: &["the correct answer is"] };
            assert!(judge(rule, Gold::Option(gold), item["output"].as_str().unwrap()), "{item}");
            for other in (0..count).filter(|other| *other != gold) {
                assert!(
                    !judge(rule, Gold::Option(gold), &format!("the correct answer is {name}{}", other + 1)),
                    "{item}"
                );
            }
            right += 1;
        }
        assert!(right > 0);
        let _ = writeln!(io::stderr(), "{file}: {right} of {right} right, 0 with another option");
    }
}
