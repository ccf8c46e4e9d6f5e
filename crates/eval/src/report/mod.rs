//! Reports: what an evaluation found, as tables, pictures and files for other programs.
//!
//! [`write()`] takes an [`Evaluation`] and knows nothing of how its runs came about. Everything about a run but its name is
//! read from its records' receipts.

mod ablation;
mod calibration;
mod columns;
mod compare;
mod figures;
mod guides;
mod harness;
mod html;
mod join;
mod markdown;
mod outline;
mod pairs;
mod paper;
mod plain;
mod published;
pub mod readme;
mod settings;
mod sheets;
mod summary;
mod unmatched;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use demask_figures::{
    DrawError, Figure,
    files::{WriteError, write_whole},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Record,
    run::{Heading, MadeBy},
};

use calibration::{BINS, Judged};
pub use calibration::{Bin, Calibration};
pub(crate) use compare::NORMAL_95;
#[cfg(test)]
pub(crate) use compare::difference;
pub use compare::{Difference, Ends, Faster};
pub use figures::figures;
use figures::slug;
pub use join::{JoinError, join};
pub use markdown::markdown;
pub use outline::{OUTLINE, Outline, Prompting, RunInfo, TaskInfo};
pub use pairs::{Pair, pairs};
pub use paper::{Column, Format, columns, table};
pub use plain::plain;
pub use published::{METRICS, Metric, Published};
pub use summary::{Again, Summary, again, summarise};
pub use unmatched::Unmatched;
use unmatched::unmatched;

/// Share of answers that may be cut before a report warns of it.
const CUT_AT_MOST: f64 = 0.05;
/// Share by which a baseline's time may differ beside itself before a report warns of it.
const UNSTEADY: f64 = 0.03;

/// Evaluation with its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// Heading of the report.
    pub heading: Heading,
    /// The tasks, in the order of the report.
    pub tasks: Vec<TaskInfo>,
    /// The rows, in the order of the tables.
    pub runs: Vec<RunResult>,
    /// Programs and machines that made the records, as far as they are known: one for each directory.
    pub made: Vec<MadeBy>,
}

/// One row with its judged items.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunResult {
    /// Description of the run.
    pub info: RunInfo,
    /// Judged items, of all tasks and seeds.
    pub records: Vec<Record>,
    /// Items that it answered once more, beside itself.
    pub again: Vec<Record>,
    /// Largest resident memory of a process that answered it alone, in bytes by task, where that was measured.
    pub peaks: BTreeMap<String, u64>,
    /// The place of what made them in [`Evaluation::made`].
    pub made: Option<usize>,
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
    /// Baselines beside themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Again>,
    /// Tasks whose pattern of an answer never matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<Unmatched>,
    /// Every row against every other, if that was wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Programs and machines that made the records, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<MadeBy>,
}

/// Parts of a report beside its tables and pictures.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Forms in which each task's table is a file of its own.
    pub formats: Vec<Format>,
    /// Columns of those files; empty: the usual ones.
    pub columns: Vec<&'static Column>,
    /// Compare every row with every other.
    pub pairs: bool,
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
        let (heading, tasks, made) = (evaluation.heading.clone(), evaluation.tasks.clone(), evaluation.made.clone());
        let (again, unmatched) = (again(evaluation)?, unmatched(evaluation));
        Ok(Self { heading, model, device, tasks, rows, again, unmatched, pairs: Vec::new(), made })
    }

    /// Returns the numbers of an evaluation, with the extras that a report has besides its tables.
    ///
    /// # Errors
    /// If a receipt cannot be read.
    pub fn with(evaluation: &Evaluation, extras: &Extras) -> Result<Self, ReportError> {
        let pairs = if extras.pairs { pairs(evaluation)? } else { Vec::new() };
        Ok(Self { pairs, ..Self::of(evaluation)? })
    }

    /// Returns the title of the report.
    pub fn title(&self) -> String {
        if self.heading.title.is_empty() { format!("Evaluation of {}", self.model) } else { self.heading.title.clone() }
    }

    /// The rows of a task.
    pub fn of_task<'a>(&'a self, task: &'a TaskInfo) -> impl Iterator<Item = &'a Summary> {
        self.rows.iter().filter(move |row| row.task == task.name)
    }

    /// Returns warnings about numbers that mislead: tasks whose pattern never matched, rows with many cut answers, and baselines
    /// whose repeated items took another time. Each warning ends with advice.
    pub fn warnings(&self) -> Vec<String> {
        let cut = self.rows.iter().filter(|row| row.cut > CUT_AT_MOST);
        let cut = cut.map(|row| {
            let (Summary { run, task, cut, .. }, answers) = (row, row.items * row.seeds.max(1));
            let count = (cut * answers as f64).round();
            format!(
                "{count} of {answers} answers of \"{run}\" on {task} filled their length without coming to an end: \
                 what they lack counts as wrong, so try a larger --gen-length"
            )
        });
        let unsteady = self.again.iter().filter(|again| (again.faster.ratio - 1.0).abs() > UNSTEADY);
        let unsteady = unsteady.map(|Again { task, run, faster }| {
            let Faster { ratio, low, high } = faster;
            format!(
                "\"{run}\" on {task} was {ratio:.2} times as fast beside itself ({low:.2} to {high:.2}): the machine was \
                 unsteady, so take speed-ups within that for none, and repeat them on a quiet one"
            )
        });
        self.unmatched.iter().map(Unmatched::warning).chain(cut).chain(unsteady).collect()
    }

    /// Returns how much the times of baselines differ where they answer again; nothing where none does.
    pub fn about_time(&self) -> Option<String> {
        let told = self.again.iter().map(|Again { task, run, faster: Faster { ratio, low, high } }| {
            format!("\"{run}\" on {task} {ratio:.2}x ({low:.2} to {high:.2})")
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| format!("Rows took turns. Baselines beside themselves: {}.", told.join(", ")))
    }

    /// Returns a note on how shared prefixes change seconds and operations; none where no row can keep prefixes.
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

/// Returns `report.html`: one file without scripts and without anything to fetch.
///
/// # Errors
/// If a picture cannot be drawn.
pub fn page(numbers: &Numbers) -> Result<String, ReportError> {
    let figures = figures(numbers);
    let pictures = figures.iter().map(Figure::svg).collect::<Result<Vec<_>, _>>()?;
    Ok(html::report(numbers, &figures, &pictures)?)
}

/// Writes `report.md`, `report.html`, `summary.json`, `plots/` and `lm_eval/` into a directory, which is made if it does
/// not exist, and `tables/` for the forms that are wanted beside. Every file appears whole or not at all. Answers the files.
pub fn write(directory: &Path, evaluation: &Evaluation, extras: &Extras) -> Result<Vec<PathBuf>, ReportError> {
    let numbers = Numbers::with(evaluation, extras)?;
    let figures = figures(&numbers);
    let pictures = figures.iter().map(Figure::svg).collect::<Result<Vec<_>, _>>()?;
    let mut files = vec![("summary.json".to_owned(), numbers.json())];
    for (figure, picture) in figures.iter().zip(&pictures) {
        files.push((format!("plots/{}.svg", figure.name), picture.clone()));
        files.push((format!("plots/{}.csv", figure.name), figure.data.csv()));
    }
    for task in &numbers.tasks {
        let of = |&format: &Format| {
            let name = format!("tables/{}.{}", slug(&task.name), format.ending());
            (name, table(format, &numbers, task, &extras.columns))
        };
        files.extend(extras.formats.iter().map(of));
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
