//! The released files of some tasks, from the folder that `DEMASK_BENCHMARKS` names; skipped where it names none.

use std::{env, path::Path};

use demask_checkpoint::HubOptions;
use demask_eval::{
    Gold, Problem, Task,
    data::{DataOptions, load},
    tasks::find,
};

/// A task and the problems of its file; nothing if there is no folder.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn read(name: &str, file: &str) -> Option<(&'static Task, Vec<Problem>)> {
    let Some(folder) = env::var_os("DEMASK_BENCHMARKS") else {
        eprintln!("skipped: DEMASK_BENCHMARKS names no folder with {file}");
        return None;
    };
    let (task, path) = (find(name).unwrap(), Path::new(&folder).join(file));
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: Some(&path), subject: None, seed: 0, hub: &hub };
    Some((task, load(task, &options, &mut |_| true).unwrap_or_else(|error| panic!("{error}"))))
}

#[test]
fn gsm8k_has_1319_problems_whose_solutions_are_judged_right() {
    let Some((task, problems)) = read("gsm8k", "gsm8k_test.jsonl") else { return };
    assert_eq!(problems.len(), 1319);
    for style in task.styles {
        for problem in &problems {
            let solution = style.solve(problem).unwrap();
            assert!(style.rule.judge(problem, &solution).correct, "{} {}: {solution}", style.name, problem.id);
            assert!(!style.rule.judge(problem, "The final answer is 123456789").correct);
        }
    }
}

#[test]
fn humaneval_has_164_functions() {
    let Some((_, problems)) = read("humaneval", "HumanEval.jsonl.gz") else { return };
    assert_eq!(problems.len(), 164);
    for problem in &problems {
        let Gold::Program { prompt, tests, entry_point } = &problem.gold else { panic!("no program") };
        let name = entry_point.as_ref().unwrap();
        assert!(prompt.contains(&format!("def {name}(")) && tests.ends_with(&format!("check({name})\n")));
        assert!(problem.solution.is_some());
    }
}

/// Every instruction is taken apart and worded again to the same letters: prompts show what the file says.
fn instructions(name: &str, file: &str, count: usize) {
    let Some((task, problems)) = read(name, file) else { return };
    assert_eq!(problems.len(), count);
    let text = std::fs::read_to_string(Path::new(&env::var_os("DEMASK_BENCHMARKS").unwrap()).join(file)).unwrap();
    let entries: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let style = task.style("flashdlm").unwrap();
    for (problem, entry) in problems.iter().zip(&entries) {
        let instruction = entry["instruction"].as_str().unwrap();
        assert!(style.ask(problem).unwrap().contains(instruction), "{instruction}");
        let Gold::Option(gold) = problem.gold else { panic!("no option") };
        assert!(gold < problem.options.len());
        assert!(style.rule.judge(problem, entry["output"].as_str().unwrap()).correct, "{entry}");
    }
}

#[test]
fn arc_challenge_has_1172_questions() {
    instructions("arc-challenge", "arc_challenge_test.json", 1172);
    let Some((_, problems)) = read("arc-challenge", "arc_challenge_test.json") else { return };
    let with = |count| problems.iter().filter(|problem| problem.options.len() == count).count();
    assert_eq!((with(3), with(4), with(5)), (4, 1165, 3));
}

#[test]
fn piqa_has_1838_goals() {
    instructions("piqa", "piqa_test.json", 1838);
    let Some((_, problems)) = read("piqa", "piqa_test.json") else { return };
    assert!(problems.iter().all(|problem| problem.options.len() == 2));
}
