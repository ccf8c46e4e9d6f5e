//! Results directories of different models, machines and days as one evaluation.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{Evaluation, OUTLINE, Outline, RunResult, TaskInfo};
use crate::{
    Record,
    run::{RESULTS, read_made, read_records},
};

/// Directories that cannot be joined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A directory without a readable outline of a report.
    #[error(
        "{} has no results to report ({OUTLINE}: {error}): name directories that `eval` wrote with `out`, by this version",
        directory.display()
    )]
    None {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        error: String,
    },
    /// Records that cannot be read.
    #[error(transparent)]
    Records(#[from] crate::run::StoreError),
    /// One task with different items.
    #[error(
        "task {task} has other data in {} ({other}) than in {} ({first}): accuracies on different items cannot be \
         compared; report them apart, or answer the same data", second_directory.display(), first_directory.display()
    )]
    Data {
        /// The task.
        task: String,
        /// Directory in which it was found first.
        first_directory: PathBuf,
        /// Data of that directory.
        first: String,
        /// Directory in which it differs.
        second_directory: PathBuf,
        /// Data of the other directory.
        other: String,
    },
    /// A directory that is named twice.
    #[error("{} is named twice: name it once", directory.display())]
    Twice {
        /// The directory.
        directory: PathBuf,
    },
    /// A baseline that is none of the rows.
    #[error("there is no row \"{found}\" to compare with (there are: {known})")]
    Baseline {
        /// Runs that were found.
        found: String,
        /// The rows.
        known: String,
    },
}

/// Joins results directories; `baseline` names the row that all others are compared with, each is compared with its own
/// directory's without it.
///
/// # Errors
/// If a directory holds no results, or the same task has other items in two of them.
pub fn join(directories: &[PathBuf], baseline: Option<&str>) -> Result<Evaluation, JoinError> {
    let mut all = Evaluation::default();
    let mut tasks_from: BTreeMap<String, &Path> = BTreeMap::new();
    let mut names: Vec<Vec<String>> = Vec::new();
    for (place, directory) in directories.iter().enumerate() {
        if directories[..place].contains(directory) {
            return Err(JoinError::Twice { directory: directory.clone() });
        }
        let evaluation = read(directory)?;
        for task in &evaluation.tasks {
            match all.tasks.iter_mut().find(|other| other.name == task.name) {
                None => {
                    tasks_from.insert(task.name.clone(), directory);
                    all.tasks.push(task.clone());
                }
                Some(other) if other.data == task.data => other.items = other.items.max(task.items),
                Some(other) => {
                    let told = |task: &TaskInfo| format!("{} items, fingerprint {}", task.available, task.data);
                    return Err(JoinError::Data {
                        task: task.name.clone(),
                        first_directory: tasks_from.get(&task.name).map_or(directory.as_path(), |path| path).to_owned(),
                        first: told(other),
                        second_directory: directory.clone(),
                        other: told(task),
                    });
                }
            }
        }
        if place == 0 {
            all.heading = evaluation.heading;
        } else if all.heading != evaluation.heading {
            all.heading = crate::run::Heading::default();
        }
        let (first, made) = (all.runs.len(), all.made.len());
        all.made.extend(evaluation.made);
        for mut run in evaluation.runs {
            run.info.baseline += first;
            run.made = run.made.map(|place| place + made);
            names.push(further_names(&run, directory));
            all.runs.push(run);
        }
    }
    tell_apart(&mut all.runs, &names);
    if let Some(name) = baseline {
        let place = all.runs.iter().position(|run| run.info.label == name);
        let known = || all.runs.iter().map(|run| format!("\"{}\"", run.info.label)).collect::<Vec<_>>().join(", ");
        let place = place.ok_or_else(|| JoinError::Baseline { found: name.to_owned(), known: known() })?;
        all.runs.iter_mut().for_each(|run| run.info.baseline = place);
    }
    Ok(all)
}

fn read(directory: &Path) -> Result<Evaluation, JoinError> {
    let none = |error: String| JoinError::None { directory: directory.to_owned(), error };
    let text = fs::read_to_string(directory.join(OUTLINE)).map_err(|error| none(error.to_string()))?;
    let outline: Outline = serde_json::from_str(&text).map_err(|error| none(error.to_string()))?;
    let records: Vec<Record> = read_records(&directory.join(RESULTS))?;
    let (made, peaks) = read_made(directory);
    Ok(outline.evaluation(&records, made.as_ref(), &peaks))
}

/// Names for a run whose own name is not enough: its model, its device, its directory.
fn further_names(run: &RunResult, directory: &Path) -> Vec<String> {
    let of = |name: &str| {
        let mut told = run.records.iter().filter_map(|record| record.receipt[name].as_str());
        told.next().unwrap_or_default().to_owned()
    };
    vec![of("model"), of("device"), directory.display().to_string()]
}

/// Adds to names that several runs share what sets these runs apart.
fn tell_apart(runs: &mut [RunResult], names: &[Vec<String>]) {
    let labels: Vec<String> = runs.iter().map(|run| run.info.label.clone()).collect();
    for (place, run) in runs.iter_mut().enumerate() {
        let same: Vec<usize> = (0..labels.len()).filter(|&other| labels[other] == labels[place]).collect();
        let unlike =
            |level: usize| same.iter().all(|&other| other == place || names[other][level] != names[place][level]);
        let level = (0..names[place].len()).find(|&level| unlike(level));
        match level {
            _ if same.len() == 1 => {}
            Some(level) => run.info.label = format!("{} ({})", labels[place], names[place][level]),
            None => run.info.label = format!("{} ({}, {})", labels[place], names[place].join(", "), place + 1),
        }
    }
}
