//! Reports: what an evaluation found, as tables, pictures and files for other programs.
//!
//! [`write()`] takes an [`Evaluation`] and knows nothing of how its runs came about. Everything about a run but its name is
//! read from its records' receipts.

mod ablation;
mod figures;
mod harness;
mod html;
mod markdown;
mod plain;
pub mod readme;
mod summary;

use std::path::{Path, PathBuf};

use demask_figures::{
    DrawError, Figure,
    files::{WriteError, write_whole},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Record;

pub use figures::figures;
pub use markdown::markdown;
pub use plain::plain;
pub use summary::{Summary, summarise};

/// What was evaluated, and what came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// The model, for people.
    pub model: String,
    /// Device, tier, threads and element type, as receipts write them.
    pub device: String,
    /// The tasks, in the order of the report.
    pub tasks: Vec<TaskInfo>,
    /// The combinations of the sweep, in its order; the first is what the others are compared with.
    pub runs: Vec<RunResult>,
}

/// How a task was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Its name, as records have it.
    pub name: String,
    /// Exemplars in each prompt.
    pub shots: usize,
    /// The wording of its prompts.
    pub style: String,
    /// What its accuracy is called elsewhere: `exact_match`, `acc`, `pass@1`.
    pub metric: String,
    /// Items that its data has, those that were left out included.
    pub available: usize,
}

/// One combination of a sweep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunResult {
    /// Its name in tables; no two runs share one.
    pub label: String,
    /// Whether decoding ended at the end token.
    pub early_stop: bool,
    /// What of the sweep sets it apart beside decoder, cache, steps and remasking, `temperature=0.2`; empty if nothing.
    pub others: String,
    /// Its judged items, of all tasks.
    pub records: Vec<Record>,
}

/// The numbers of a report: `summary.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// The model.
    pub model: String,
    /// Where it ran.
    pub device: String,
    /// How tasks were asked.
    pub tasks: Vec<TaskInfo>,
    /// The rows, task after task.
    pub rows: Vec<Summary>,
}

/// A report that cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A record's receipt is not one.
    #[error("item {id} of run \"{run}\" has no usable receipt: found {found}, expected what generate --json prints")]
    Receipt {
        /// The run.
        run: String,
        /// The item.
        id: String,
        /// What is wrong.
        found: String,
    },
    /// A picture cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Numbers {
    /// The numbers of an evaluation.
    pub fn of(evaluation: &Evaluation) -> Result<Self, ReportError> {
        let Evaluation { model, device, tasks, .. } = evaluation.clone();
        Ok(Self { model, device, tasks, rows: summarise(evaluation)? })
    }

    /// The rows of a task.
    pub fn of_task<'a>(&'a self, task: &'a TaskInfo) -> impl Iterator<Item = &'a Summary> {
        self.rows.iter().filter(move |row| row.task == task.name)
    }

    /// `summary.json`.
    pub fn json(&self) -> String {
        // Plain structures of strings and numbers: there is nothing to refuse.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Writes `report.md`, `report.html`, `summary.json`, `plots/` and `lm_eval/` into a directory, which is made if it does
/// not exist. Every file appears whole or not at all. Answers the files.
pub fn write(directory: &Path, evaluation: &Evaluation) -> Result<Vec<PathBuf>, ReportError> {
    let numbers = Numbers::of(evaluation)?;
    let figures = figures(&numbers);
    let pictures = figures.iter().map(Figure::svg).collect::<Result<Vec<_>, _>>()?;
    let mut files = vec![("summary.json".to_owned(), numbers.json())];
    for (figure, picture) in figures.iter().zip(&pictures) {
        files.push((format!("plots/{}.svg", figure.name), picture.clone()));
        files.push((format!("plots/{}.csv", figure.name), figure.data.csv()));
    }
    files.extend(harness::files(evaluation, &numbers));
    files.push(("report.html".to_owned(), html::report(&numbers, &figures, &pictures)));
    // Last: where it stands, everything that it names does.
    files.push(("report.md".to_owned(), markdown(&numbers, &figures)));
    let write = |(name, text): (String, String)| {
        let path = directory.join(name);
        write_whole(&path, text.as_bytes())?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}

#[cfg(test)]
mod tests;
