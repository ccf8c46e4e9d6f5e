//! Tasks whose pattern of an answer never matched: their accuracy says nothing of the model.

use serde::{Deserialize, Serialize};

use super::Evaluation;
use crate::{Record, tasks::UNMATCHED};

/// Letters of an answer that a warning shows.
const SHOWN: usize = 200;

/// A task whose `answer_regex` matched no answer of any row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmatched {
    /// The task.
    pub task: String,
    /// Its answers.
    pub answers: usize,
    /// The beginning of one of them.
    pub example: String,
}

impl Unmatched {
    /// Returns the warning about it.
    pub fn warning(&self) -> String {
        let Self { task, answers, example } = self;
        let answers = if *answers == 1 {
            "its 1 answer, which counts".to_owned()
        } else {
            format!("its {answers} answers, which count")
        };
        format!(
            "answer_regex of {task} matches none of {answers} as wrong: mend it in the task's file. One answer is {example:?}"
        )
    }
}

/// Returns the tasks that have answers, all of them without a match.
pub(super) fn unmatched(evaluation: &Evaluation) -> Vec<Unmatched> {
    let of_task = |task: &str| {
        let records = evaluation.runs.iter().flat_map(|run| &run.records).filter(|record| record.task == task);
        let records: Vec<&Record> = records.collect();
        let never = records.iter().all(|record| record.verdict.failure.as_deref() == Some(UNMATCHED));
        let example = records.last().filter(|_| never)?.output.chars().take(SHOWN).collect();
        Some(Unmatched { task: task.to_owned(), answers: records.len(), example })
    };
    evaluation.tasks.iter().filter_map(|task| of_task(&task.name)).collect()
}
