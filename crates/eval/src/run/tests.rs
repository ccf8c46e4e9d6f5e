use serde_json::Value;

use super::*;
use crate::{Gold, Problem, Task, report::Numbers, tasks};

/// A plan of one row that asks one task.
pub fn plan(task: &'static Task, problems: Vec<Problem>, asking: &Asking) -> Plan {
    let (style, available) = (&task.styles[0], problems.len());
    let ask = Ask::of(task, style, std::sync::Arc::default(), asking).unwrap();
    let row = Row {
        place: None,
        name: None,
        values: Vec::new(),
        model: ModelSpec::default(),
        seeds: vec![0],
        baseline: 0,
        limit: usize::MAX,
        asks: vec![ask],
    };
    let task = TaskPlan { name: task.name.to_owned(), task, problems, available, data: 0, note: String::new() };
    Plan { tasks: vec![task], rows: vec![row], ..Plan::default() }
}

/// Runs all of a plan.
pub fn run_all(
    model: &mut Model,
    plan: &Plan,
    width: usize,
    observer: &mut RunObserver<'_>,
) -> (Result<Made, RunError>, Store) {
    let rows: Vec<usize> = (0..plan.rows.len()).collect();
    let prepare = |prompt: &_, options: &_| model.prepare(prompt, options);
    let dry_runs: Vec<DryRun> = rows.iter().map(|&row| plan.dry_run(row, &prepare).unwrap()).collect();
    let combinations = Combination::all(plan, &dry_runs).unwrap();
    let mut store = Store::nowhere();
    let runs = Runs { plan, combinations: &combinations, width, permission: None, part: None };
    let made = run(&[(model, &rows)], runs, &mut store, observer);
    (made, store)
}

fn sums(questions: &[String]) -> Plan {
    let problem = |(index, question): (usize, &String)| Problem {
        id: index.to_string(),
        question: question.clone(),
        gold: Gold::Number("7".to_owned()),
        ..Problem::default()
    };
    plan(tasks::find("wordmath").unwrap(), questions.iter().enumerate().map(problem).collect(), &Asking::default())
}

/// Two problems of the demo's kind.
pub fn two() -> Vec<Problem> {
    let mut plan = sums(&[SHORT.to_owned(), SHORT.replace('4', "5")]);
    plan.tasks.remove(0).problems
}

const SHORT: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// Bytes say little of tokens: digits are a token each, words are not.
#[test]
fn an_item_that_is_too_long_is_a_record_and_the_others_go_on() {
    let mut model = Model::demo().unwrap();
    let context = model.info().facts().context;
    let questions = [SHORT.to_owned(), "7".repeat(context + 1), "the ".repeat(context / 2), SHORT.to_owned()];
    let plan = sums(&questions);
    let (made, store) = run_all(&mut model, &plan, 2, &mut |_| ControlFlow::Continue(()));
    assert_eq!((made.unwrap().items, store.records().len()), (4, 4));
    let dry_runs = [plan.dry_run(0, &|prompt, options| model.prepare(prompt, options)).unwrap()];
    let combinations = Combination::all(&plan, &dry_runs).unwrap();
    let evaluation = outline(&plan, &dry_runs, &combinations, &[]).evaluation(store.records(), None, &Peaks::new());
    let records = &evaluation.runs[0].records;
    let failures: Vec<_> = records.iter().map(|record| record.verdict.failure.clone()).collect();
    let told = failures[1].as_deref().unwrap();
    assert!(told.starts_with("refused: ") && told.contains("exceed the model's context"), "{told}");
    assert!(records[0].verdict.correct && records[3].verdict.correct && failures[0].is_none());
    // The end token is a token, and none of the text.
    assert_eq!(records[0].counts.plain_tokens, Some(records[0].counts.tokens - 1));
    // Seconds and NFE of an item are those of answered items.
    let rows = Numbers::of(&evaluation).unwrap().rows;
    assert_eq!((rows[0].items, rows[0].correct), (4, 2));
    assert!(rows[0].nfe >= 1.0 && rows[0].decoder.starts_with("threshold"), "{rows:?}");
}

#[test]
fn a_task_whose_items_are_all_too_long_is_refused_before_it_runs() {
    let model = Model::demo().unwrap();
    let questions = ["7".repeat(model.info().facts().context + 1)];
    let refused = sums(&questions).dry_run(0, &|prompt, options| model.prepare(prompt, options)).unwrap_err();
    assert!(refused.to_string().contains("exceed the model's context"), "{refused}");
    assert!(refused.is_usage());
}

#[test]
fn each_seed_is_a_run_of_its_own() {
    let mut model = Model::demo().unwrap();
    let mut plan = sums(&[SHORT.to_owned(), SHORT.to_owned()]);
    plan.rows[0].seeds = vec![0, 5];
    plan.rows[0].asks[0].options.temperature = Some(1.0);
    let (made, store) = run_all(&mut model, &plan, 1, &mut |_| ControlFlow::Continue(()));
    assert_eq!(made.unwrap().items, 4);
    let seeds: Vec<&Value> = store.records().iter().map(|record| &record.receipt["seed"]).collect();
    assert_eq!(seeds, [0, 0, 5, 5]);
    assert!(store.records()[2].run.ends_with(", seed=5"), "{}", store.records()[2].run);
}
