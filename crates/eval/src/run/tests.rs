use super::*;
use crate::{data::Shots, tasks};

fn plan(questions: &[String]) -> Plan {
    let task = tasks::find("wordmath").unwrap();
    let problem = |(index, question): (usize, &String)| Problem {
        id: index.to_string(),
        question: question.clone(),
        gold: Gold::Number("7".to_owned()),
        ..Problem::default()
    };
    let problems: Vec<Problem> = questions.iter().enumerate().map(problem).collect();
    let available = problems.len();
    Plan { task, style: &task.styles[0], problems, available, shots: Shots::default(), system: None }
}

fn swept() -> Swept {
    Swept { values: Vec::new(), options: Options::default(), likelihood: None }
}

/// Bytes say little of tokens: digits are a token each, words are not.
#[test]
fn an_item_that_is_too_long_is_a_record_and_the_others_go_on() {
    let mut model = Model::demo().unwrap();
    let context = model.prompter().facts().context;
    let short = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let questions = [short.to_owned(), "7".repeat(context + 1), "the ".repeat(context / 2), short.to_owned()];
    let plans = [plan(&questions)];
    let rehearsed = rehearse(&|prompt, options| model.prepare(prompt, options), &plans, &[swept()]).unwrap();
    let combinations: Vec<Combination> = rehearsed.into_iter().map(|one| one.combination).collect();
    let mut store = Store::nowhere();
    let runs = Runs { plans: &plans, combinations: &combinations, width: 2, permission: None };
    let made = run(&mut model, runs, &mut store, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((made.items, store.records().len()), (4, 4));
    let evaluation = runs.evaluation(&model, &store);
    let records = &evaluation.runs[0].records;
    let failures: Vec<_> = records.iter().map(|record| record.verdict.failure.clone()).collect();
    let told = failures[1].as_deref().unwrap();
    assert!(told.starts_with("refused: ") && told.contains("exceed the model's context"), "{told}");
    assert!(records[0].verdict.correct && records[3].verdict.correct && failures[0].is_none());
    // Seconds and NFE of an item are those of answered items.
    let rows = crate::report::Numbers::of(&evaluation).unwrap().rows;
    assert_eq!((rows[0].items, rows[0].correct), (4, 2));
    assert!(rows[0].nfe >= 1.0 && rows[0].decoder.starts_with("threshold"), "{rows:?}");
}

#[test]
fn a_task_whose_items_are_all_too_long_is_refused_before_it_runs() {
    let model = Model::demo().unwrap();
    let questions = ["7".repeat(model.prompter().facts().context + 1)];
    let refused =
        rehearse(&|prompt, options| model.prepare(prompt, options), &[plan(&questions)], &[swept()]).unwrap_err();
    assert!(refused.to_string().contains("exceed the model's context"), "{refused}");
    assert!(refused.is_usage());
}
