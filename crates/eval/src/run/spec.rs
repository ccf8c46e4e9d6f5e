//! Request for a run before anything is read: rows, tasks and options, as a file or the flags of a command give them.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use demask::internals::{DeviceOptions, decode::names::UnknownName};
use demask::{ActivationChoice, DeviceChoice, DtypeChoice, Options, WeightChoice};

use super::RunError;
use crate::{Task, report::Published, tasks};

/// Request for a run.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// Heading of the report.
    pub heading: Heading,
    /// Tasks to answer.
    pub tasks: Vec<TaskSpec>,
    /// Rows that answer.
    pub rows: Vec<RowSpec>,
    /// Published figures, by row and task.
    pub published: Vec<Published>,
}

/// Heading of a report.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Heading {
    /// Title; empty: made from the models' names.
    pub title: String,
    /// Source of published figures.
    pub source: String,
    /// A paragraph under the title.
    pub about: String,
}

/// A task and its items.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    /// Its line, if a file of runs has it: errors name it.
    pub place: Option<Place>,
    /// Name in records and tables.
    pub name: String,
    /// The task.
    pub task: &'static Task,
    /// The first items alone.
    pub limit: Option<usize>,
    /// A file instead of the task's own.
    pub data: Option<PathBuf>,
    /// Subject that items must have, if set.
    pub subject: Option<String>,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct RowSpec {
    /// Its line, if a file of runs has it: errors name it.
    pub place: Option<Place>,
    /// Name of the row; without one it is called after its methods.
    pub name: Option<String>,
    /// Values that a sweep chose for it, with their names.
    pub values: Vec<(String, String)>,
    /// Model that answers.
    pub model: ModelSpec,
    /// Keys of randomness: each item is answered once under each. Empty: the run's own.
    pub seeds: Vec<u64>,
    /// The row that it is compared with.
    pub baseline: usize,
    /// Prompting of each task, in the order of the tasks.
    pub asks: Vec<Asking>,
}

/// A model, its guide, and where they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelSpec {
    /// The model as `--model` takes it; none: the built-in demo.
    pub model: Option<String>,
    /// Guide of the model.
    pub guide: Option<String>,
    /// Device settings of the row.
    pub device: DeviceSpec,
    /// Whether every prompt is computed as a whole; unset: the run's own.
    pub no_prefix_cache: Option<bool>,
}

impl ModelSpec {
    /// Returns whether items share the K/V of what their prompts begin with.
    pub fn shares_prefixes(&self) -> bool {
        self.no_prefix_cache != Some(true)
    }
}

/// Device settings of a row; unset ones are the run's own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceSpec {
    pub(super) device: Option<DeviceChoice>,
    pub(super) dtype: Option<DtypeChoice>,
    pub(super) quantize: Option<WeightChoice>,
    pub(super) activations: Option<ActivationChoice>,
    pub(super) threads: Option<usize>,
}

impl DeviceSpec {
    /// Returns what is said, by the names of the options.
    pub fn said(&self) -> Vec<(&'static str, String)> {
        let said = [
            (
                "device",
                self.device.map(|device| match device {
                    DeviceChoice::Auto => "auto".to_owned(),
                    DeviceChoice::Cpu => "cpu".to_owned(),
                    DeviceChoice::Cuda(number) => format!("cuda:{number}"),
                }),
            ),
            ("dtype", self.dtype.map(|dtype| dtype.to_string())),
            ("quantize", self.quantize.map(|quantize| quantize.to_string())),
            ("activations", self.activations.map(|activations| activations.to_string())),
            ("threads", self.threads.map(|threads| threads.to_string())),
        ];
        said.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns the run's device with what the row says of it.
    pub fn over(&self, run: &DeviceOptions) -> DeviceOptions {
        DeviceOptions {
            device: self.device.unwrap_or(run.device),
            dtype: self.dtype.unwrap_or(run.dtype),
            quantize: self.quantize.unwrap_or(run.quantize),
            activations: self.activations.unwrap_or(run.activations),
            threads: self.threads.or(run.threads),
            ..run.clone()
        }
    }
}

/// Prompting of a task by a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Asking {
    /// Wording of prompts; none: the task's first style.
    pub prompt_style: Option<String>,
    /// Solved problems in each prompt; none: the style's own number.
    pub shots: Option<usize>,
    /// File of the exemplars.
    pub shots_file: Option<PathBuf>,
    /// A system message in the place of the style's own.
    pub system: Option<String>,
    /// `generate` or `likelihood`.
    pub score: Option<String>,
    /// Masks drawn for the likelihood of an option.
    pub likelihood_draws: Option<usize>,
    /// Options of the decoding.
    pub options: Options,
}

impl Asking {
    /// Returns whether options are compared instead of answers written.
    pub fn by_likelihood(&self) -> Result<bool, RunError> {
        let by_likelihood = match self.score.as_deref() {
            None | Some("generate") => false,
            Some("likelihood") => true,
            Some(found) => {
                let known = vec!["generate", "likelihood"];
                return Err(UnknownName { what: "score", found: found.to_owned(), known }.into());
            }
        };
        match (by_likelihood, self.likelihood_draws) {
            (false, Some(_)) => {
                Err(RunError::Asking("`likelihood_draws` goes with `score` likelihood: omit it".to_owned()))
            }
            (true, Some(0)) => Err(RunError::Asking("`likelihood_draws` is 0, expected at least 1".to_owned())),
            _ => Ok(by_likelihood),
        }
    }
}

/// A line of a file of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, line {}", self.file, self.line)
    }
}

impl Place {
    /// Returns what is wrong here.
    pub(crate) fn refused(&self, told: impl Into<String>) -> FileError {
        FileError { place: self.clone(), told: told.into() }
    }
}

/// Returns an error as what is wrong at a place of a file, if there is one.
pub(super) fn at(place: Option<&Place>, error: RunError) -> RunError {
    match (place, error) {
        (_, error @ (RunError::File(_) | RunError::Interrupted)) | (None, error) => error,
        (Some(place), error) => place.refused(error.to_string()).into(),
    }
}

/// A file of runs that cannot be run as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {told}")]
pub struct FileError {
    /// The line.
    pub place: Place,
    /// The problem.
    pub told: String,
}

/// Finds a task by its name, or reads the file of one, whose name ends in `.toml`.
///
/// # Errors
/// If there is no such task, or the file says what cannot be meant: with its line.
pub fn task(name: &str) -> Result<&'static Task, RunError> {
    if is_file(name) {
        return Ok(tasks::read(Path::new(name))?);
    }
    let known = || tasks::TASKS.iter().map(|task| task.name).collect();
    Ok(tasks::find(name).ok_or_else(|| UnknownName { what: "task", found: name.to_owned(), known: known() })?)
}

/// Reports whether a task is named by its file.
pub(super) fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "toml")
}
