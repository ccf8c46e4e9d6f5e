//! Runs: every row of a plan answers every problem, many at a time, and each answer is judged and kept.
//!
//! A [`Spec`] is what a file or the flags of a command ask for, a [`Plan`] is that with its problems. Models are loaded one
//! after the other, and a row is finished before the next one begins, which begins without prefixes: seconds and peak
//! memory are its own. Within it, requests join and leave the model's forwards as they come and go; their tokens are those of
//! one request after the other.

mod choose;
mod configuration;
mod file;
mod plan;
mod rehearse;
mod spec;
mod store;
pub mod tune;
mod work;

use std::{
    collections::{BTreeSet, VecDeque},
    ops::ControlFlow,
    time::Instant,
};

use demask::{Error, Model, Options};
use demask_settings::names::UnknownName;
use thiserror::Error;

use crate::{Record, data::DataError, sandbox::Permission, tasks::WordsError};

pub use configuration::{about_model, configuration, fingerprint, outline};
pub use demask_settings::toml::FileError;
pub use plan::{Ask, Means, Plan, Row, TaskPlan};
pub use rehearse::{Prepare, Rehearsed, needs};
pub use spec::{AskOptions, Asking, Heading, ModelSpec, RowSpec, RunOptions, Spec, TaskSpec, task};
pub use store::{CONFIGURATION, RESULTS, Store, StoreError, read_records};

use work::Work;

/// A run that cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A line of a file of runs is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// A task is asked in a way that it cannot be asked.
    #[error("{0}")]
    Asking(String),
    /// A name that names nothing.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The items of a task cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A row cannot answer a task.
    #[error("{}{task}: {error}", row.as_ref().map(|row| format!("{row}, ")).unwrap_or_default())]
    Row {
        /// The row, if there are several.
        row: Option<String>,
        /// The task.
        task: String,
        /// Reason of the failure.
        error: Box<Error>,
    },
    /// Likelihoods of options that a task has not.
    #[error("task {task} is not asked by likelihood: use `score` generate, or one of {known}")]
    NoOptions {
        /// The task.
        task: &'static str,
        /// Tasks that are.
        known: String,
    },
    /// The words of a task cannot be made.
    #[error(transparent)]
    Words(#[from] WordsError),
    /// Two rows are the same.
    #[error("the sweep has \"{0}\" twice: omit one")]
    Twice(String),
    /// An item broke off.
    #[error("{task}, problem {id}: {error}")]
    Item {
        /// The task.
        task: String,
        /// The problem.
        id: String,
        /// Reason of the failure.
        error: Box<Error>,
    },
    /// The device failed.
    #[error(transparent)]
    Generate(#[from] Error),
    /// Results cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The observer said stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Reports whether the call itself was wrong (exit code 2), not its execution (exit code 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Row { error, .. } | Self::Item { error, .. } => error.is_usage(),
            Self::Generate(error) => error.is_usage(),
            Self::Store(error) => error.is_usage(),
            Self::Data(error) => error.is_usage(),
            Self::File(_)
            | Self::Asking(_)
            | Self::Unknown(_)
            | Self::NoOptions { .. }
            | Self::Words(_)
            | Self::Twice(_) => true,
            Self::Interrupted => false,
        }
    }
}

/// Event of a run.
#[derive(Debug)]
pub enum Happened<'a> {
    /// A row begins, under one of its seeds.
    Began(&'a Combination),
    /// A forward is over.
    Step,
    /// An item is answered and kept.
    Item(&'a Record),
}

/// Sees a run and may end it.
pub type RunObserver<'a> = dyn FnMut(Happened<'_>) -> ControlFlow<()> + 'a;

/// A row under one of its seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Combination {
    /// Name in records: the row's, and the seed if there are several.
    pub label: String,
    /// The row.
    pub row: usize,
    /// The key of its randomness.
    pub seed: u64,
}

impl Combination {
    /// Returns the rows' combinations, in order.
    ///
    /// # Errors
    /// If two are the same.
    pub fn all(plan: &Plan, rehearsed: &[Rehearsed]) -> Result<Vec<Self>, RunError> {
        let mut all: Vec<Self> = Vec::new();
        for (index, (row, Rehearsed { label, .. })) in plan.rows.iter().zip(rehearsed).enumerate() {
            for &seed in &row.seeds {
                let label = if row.seeds.len() > 1 { format!("{label}, seed={seed}") } else { label.clone() };
                if all.iter().any(|other| other.label == label) {
                    return Err(RunError::Twice(label));
                }
                all.push(Self { label, row: index, seed });
            }
        }
        Ok(all)
    }

    /// Returns the options of an answer.
    pub fn options(&self, ask: &Ask) -> Options {
        Options { seed: Some(self.seed), ..ask.options.clone() }
    }
}

/// Results of one call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Made {
    /// Items answered.
    pub items: usize,
    /// Seconds by the clock.
    pub seconds: f64,
}

/// Runs of a call.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'a> {
    /// Tasks and rows.
    pub plan: &'a Plan,
    /// The rows under their seeds.
    pub combinations: &'a [Combination],
    /// Items at a time.
    pub width: usize,
    /// Leave to run programs that a model writes; without it their verdict is `not run`.
    pub permission: Option<&'a Permission>,
    /// Items of each row that this call makes; none: all of them. Other calls make the rest.
    pub part: Option<&'a BTreeSet<Item>>,
}

/// Runs what `store` does not hold yet of those rows that this model answers.
pub fn run(
    model: &Model,
    rows: &[usize],
    runs: Runs<'_>,
    store: &mut Store,
    observer: &mut RunObserver<'_>,
) -> Result<Made, RunError> {
    let (started, before) = (Instant::now(), store.records().len());
    for combination in runs.combinations.iter().filter(|combination| rows.contains(&combination.row)) {
        let pending = runs.pending(combination, store);
        tell(observer, Happened::Began(combination))?;
        model.forget_peak_memory();
        // What another row has left would make this one faster.
        model.forget_prefixes()?;
        if !runs.plan.rows[combination.row].model.shares_prefixes() {
            model.set_prefix_cache(0)?;
        }
        // Tasks whose options are compared, and those that are answered: a row may have both.
        let asks = &runs.plan.rows[combination.row].asks;
        let (chosen, answered) = pending.into_iter().partition(|&(at, _): &Item| asks[at].likelihood.is_some());
        Work { runs, combination, store: &mut *store, observer: &mut *observer }.choose(model, chosen)?;
        Work { runs, combination, store: &mut *store, observer: &mut *observer }.answer(model, answered)?;
    }
    // A report of records that are gone would be of nothing.
    store.check()?;
    Ok(Made { items: store.records().len() - before, seconds: started.elapsed().as_secs_f64() })
}

/// An item: indices of its task and of its problem.
pub type Item = (usize, usize);

impl Runs<'_> {
    /// Returns how many items of these rows are not there yet.
    pub fn missing(&self, rows: &[usize], store: &Store) -> usize {
        let wanted = self.combinations.iter().filter(|combination| rows.contains(&combination.row));
        wanted.map(|combination| self.pending(combination, store).len()).sum()
    }

    /// Returns the items of a combination that are not there yet, in the order in which they are answered.
    pub fn pending(&self, combination: &Combination, store: &Store) -> VecDeque<Item> {
        let tasks = self.plan.tasks.iter().enumerate();
        let limit = self.plan.rows[combination.row].limit;
        let items = tasks.flat_map(|(at, task)| (0..task.problems.len().min(limit)).map(move |index| (at, index)));
        let items = items.filter(|item| self.part.is_none_or(|part| part.contains(item)));
        items.filter(|&(at, index)| !store.has(&combination.label, &self.plan.tasks[at].name, index)).collect()
    }
}

fn tell(observer: &mut RunObserver<'_>, happened: Happened<'_>) -> Result<(), RunError> {
    match observer(happened) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RunError::Interrupted),
    }
}

#[cfg(test)]
mod tests;
