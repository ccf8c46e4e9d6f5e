//! Reports: what an evaluation found, as tables, pictures and files for other programs.
//!
//! [`write()`] takes an [`Evaluation`] and knows nothing of how its runs came about. Everything about a run but its name is
//! read from its records' receipts.

mod ablation;
mod columns;
mod compare;
mod figures;
mod guides;
mod harness;
mod html;
mod join;
mod markdown;
mod outline;
mod plain;
mod published;
pub mod readme;
mod sheets;
mod summary;

use std::path::{Path, PathBuf};

use demask_figures::{
    DrawError, Figure,
    files::{WriteError, write_whole},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Record, run::Heading};

pub use compare::Difference;
pub use figures::figures;
pub use join::{JoinError, join};
pub use markdown::markdown;
pub use outline::{Asked, OUTLINE, Outline, RunInfo, TaskInfo};
pub use plain::plain;
pub use published::{METRICS, Metric, Published};
pub use summary::{Summary, summarise};

/// Share of answers that may be cut before a report warns of it.
const CUT_AT_MOST: f64 = 0.05;

/// Evaluation with its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// Heading of the report.
    pub heading: Heading,
    /// The tasks, in the order of the report.
    pub tasks: Vec<TaskInfo>,
    /// The rows, in the order of the tables.
    pub runs: Vec<RunResult>,
}

/// One row with its judged items.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunResult {
    /// Description of the run.
    pub info: RunInfo,
    /// Judged items, of all tasks and seeds.
    pub records: Vec<Record>,
}

/// The numbers of a report: `summary.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// Heading of the report.
    #[serde(flatten)]
    pub heading: Heading,
    /// The models.
    pub model: String,
    /// Device of the runs.
    pub device: String,
    /// Prompting of the tasks.
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
        /// Found value.
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
        let rows = summarise(evaluation)?;
        let all = |of: fn(&Summary) -> &str| {
            let mut known: Vec<&str> = Vec::new();
            for text in rows.iter().map(of).filter(|text| !text.is_empty()) {
                if !known.contains(&text) {
                    known.push(text);
                }
            }
            known.join("; ")
        };
        let (model, device) = (all(|row| &row.model), all(|row| &row.device));
        Ok(Self { heading: evaluation.heading.clone(), model, device, tasks: evaluation.tasks.clone(), rows })
    }

    /// Returns the title of the report.
    pub fn title(&self) -> String {
        if self.heading.title.is_empty() { format!("Evaluation of {}", self.model) } else { self.heading.title.clone() }
    }

    /// The rows of a task.
    pub fn of_task<'a>(&'a self, task: &'a TaskInfo) -> impl Iterator<Item = &'a Summary> {
        self.rows.iter().filter(move |row| row.task == task.name)
    }

    /// Warnings about what the numbers hide: rows of which many answers were cut, each with what to try.
    pub fn warnings(&self) -> Vec<String> {
        let cut = self.rows.iter().filter(|row| row.cut > CUT_AT_MOST);
        cut.map(|row| {
            let (Summary { run, task, cut, .. }, answers) = (row, row.items * row.seeds.max(1));
            let count = (cut * answers as f64).round();
            format!(
                "{count} of {answers} answers of \"{run}\" on {task} filled their length without coming to an end: \
                 what they lack counts as wrong, so try a larger --gen-length"
            )
        })
        .collect()
    }

    /// Returns what a reader of seconds and operations must know of prefixes; nothing where none can be kept.
    pub fn about_prefixes(&self) -> Option<&'static str> {
        let any = |shared| self.rows.iter().any(|row| row.prefix_cache == Some(shared));
        match (any(true), any(false)) {
            (false, false) => None,
            (false, true) => Some("Prefixes: not shared. Every prompt was computed as a whole, as papers do."),
            (true, false) => Some(
                "Prefixes: shared. Each run began without any. Seconds and operations leave out what an earlier item of \
                 the run had computed: papers compute every prompt as a whole, as --no-prefix-cache does.",
            ),
            (true, true) => Some(
                "Prefixes: shared in some runs, not shared in others. Seconds and operations of a run that shares them \
                 leave out what an earlier item of it had computed.",
            ),
        }
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
    files.push(("report.html".to_owned(), html::report(&numbers, &figures, &pictures)?));
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
