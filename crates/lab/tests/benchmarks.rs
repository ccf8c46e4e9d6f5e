//! HumanEval's own solutions, run in the sandbox: from the folder that `DEMASK_BENCHMARKS` names, else five problems of
//! the same form.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use demask_eval::{
    Gold, Problem, Verdict,
    sandbox::{Limits, Permission},
    score::judge_program,
};
use serde::Deserialize;

const INVENTED: &str = include_str!("data/programs.jsonl");

/// A line of the benchmark's file.
#[derive(Deserialize)]
struct Item {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

impl Item {
    fn problem(&self) -> Problem {
        let gold = Gold::Program {
            prompt: self.prompt.clone(),
            tests: self.test.clone(),
            entry_point: Some(self.entry_point.clone()),
        };
        Problem { id: self.task_id.clone(), gold, ..Problem::default() }
    }
}

fn items() -> Vec<Item> {
    let mut text = String::new();
    if let Some(folder) = std::env::var_os("DEMASK_BENCHMARKS") {
        let file = File::open(Path::new(&folder).join("HumanEval.jsonl.gz")).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        let _ = writeln!(std::io::stderr(), "DEMASK_BENCHMARKS is not set: invented problems instead of HumanEval");
        text.push_str(INVENTED);
    }
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The verdicts on one answer to each item, several at once.
fn judged(permission: &Permission, items: &[Item], answer: impl Fn(&Item) -> String + Sync) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut verdicts = Vec::new();
        while let Some((at, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
        {
            verdicts.push((at, judge_program(permission, &item.problem(), &answer(item))));
        }
        verdicts
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, verdict)| verdict).collect()
}

fn failing<'a>(items: &'a [Item], verdicts: &'a [Verdict], correct: bool) -> Vec<(&'a str, &'a Option<String>)> {
    let odd = items.iter().zip(verdicts).filter(|(_, verdict)| verdict.correct != correct);
    odd.map(|(item, verdict)| (item.task_id.as_str(), &verdict.failure)).collect()
}

#[test]
fn canonical_solutions_pass_and_empty_ones_fail() {
    let items = items();
    let limits = Limits { wall: Duration::from_mins(5), ..Limits::default() };
    let Some(permission) = super::programs::permission(limits) else { return };
    let solution = |item: &Item| item.canonical_solution.clone();
    let fenced = |item: &Item| format!("Sure:\n\n```python\n{}{}```\nDone.", item.prompt, item.canonical_solution);
    let nothing = |_: &Item| "    return None\n".to_owned();
    assert_eq!(failing(&items, &judged(&permission, &items, solution), true), []);
    assert_eq!(failing(&items, &judged(&permission, &items, fenced), true), []);
    assert_eq!(failing(&items, &judged(&permission, &items, nothing), false), []);
    let _ =
        writeln!(std::io::stderr(), "{} solutions pass, bare and in fences; none of them passes empty", items.len());
}
