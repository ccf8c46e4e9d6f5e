//! Request for a run before anything is read: rows, tasks and options, as a file or the flags of a command give them.

use std::path::{Path, PathBuf};

use demask::{LikelihoodOptions, LoadOptions, Options};
use demask_settings::{names::UnknownName, settings, toml::Place};

use super::RunError;
use crate::{Task, report::Published, tasks};

/// Name of the built-in model.
pub(super) const DEMO: &str = "demo";

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

settings! {
    /// Settings of a run beside its models and options of decoding.
    pub struct RunOptions of "setting" {
        /// Compute every prompt as a whole, exemplars included, as papers do: for seconds that are compared with theirs.
        no_prefix_cache: bool, "";
    }
}

settings! {
    /// Settings of how a task is asked.
    pub struct AskOptions of "setting" {
        /// Solved problems in each prompt.
        shots: usize, "N" or "the task's own number";
        /// Solved problems for `shots`, in the form of the task's file.
        shots_file: PathBuf, "FILE";
        /// Wording of the prompts.
        prompt_style: String, "NAME" or "the task's first style";
        /// System message, in the place of the wording's own.
        system: String, "TEXT";
        /// Way of answering: generate (answers are written), likelihood (of each option, in multiple choice), decision (between the options).
        score: String, "NAME" or "generate";
        /// Let answers have any form, where the task's problems have schemas that would constrain them.
        free_form: bool, "";
        /// Masks drawn for the likelihood of an option.
        likelihood_draws: usize = LikelihoodOptions::default().draws, "N";
    }
}

/// A model, its guide, and where they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelSpec {
    /// The model and how it is opened. Without a name it is the built-in one. Settings of the device that are unset are the run's own.
    pub load: LoadOptions,
    /// Settings of the run.
    pub run: RunOptions,
}

impl ModelSpec {
    /// Returns the guide, as `--guide` takes it.
    pub fn guide(&self) -> Option<&str> {
        self.load.guide.as_ref().and_then(|guides| guides.0.first()).map(|guide| guide.model.as_str())
    }

    /// Returns whether items share the K/V of what their prompts begin with.
    pub fn shares_prefixes(&self) -> bool {
        self.run.no_prefix_cache != Some(true)
    }
}

/// Prompting of a task by a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Asking {
    /// How the task is asked.
    pub ask: AskOptions,
    /// Options of the decoding.
    pub options: Options,
}

/// Way of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// Answers are written.
    Generate,
    /// The likelihoods of the options are compared.
    Likelihood,
    /// The model decides between the options.
    Decision,
}

impl Answering {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Generate, Self::Likelihood, Self::Decision];

    /// Returns the name that `score` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Likelihood => "likelihood",
            Self::Decision => "decision",
        }
    }
}

impl Asking {
    /// Returns the way of answering.
    ///
    /// # Errors
    /// If its name is unknown, or the number of draws does not go with it.
    pub fn answering(&self) -> Result<Answering, RunError> {
        let found = self.ask.score.as_deref().unwrap_or(Answering::Generate.name());
        let known = || Answering::ALL.map(Answering::name).to_vec();
        let unknown = || UnknownName { what: "score", found: found.to_owned(), known: known() };
        let answering = Answering::ALL.into_iter().find(|one| one.name() == found).ok_or_else(unknown)?;
        match (answering, self.ask.likelihood_draws) {
            (Answering::Likelihood, Some(0)) => {
                Err(RunError::Asking("`likelihood_draws` is 0, expected at least 1".to_owned()))
            }
            (Answering::Generate | Answering::Decision, Some(_)) => {
                Err(RunError::Asking("`likelihood_draws` goes with `score` likelihood: omit it".to_owned()))
            }
            _ => Ok(answering),
        }
    }
}

/// Returns an error with its place in a file, if there is a place.
pub(super) fn at(place: Option<&Place>, error: RunError) -> RunError {
    match (place, error) {
        (_, error @ (RunError::File(_) | RunError::Interrupted)) | (None, error) => error,
        (Some(place), error) => place.refused(error.to_string()).into(),
    }
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
