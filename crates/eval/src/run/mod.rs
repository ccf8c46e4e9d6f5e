//! Runs: every row of a plan answers every problem, many at a time, and each answer is judged and kept.
//!
//! A [`Spec`] is the request of a file or of a command's flags, a [`Plan`] is a spec with its problems. Rows take
//! turns: each answers the same block of items, one row after the other, so that other work of the machine falls on all
//! of them. A block begins without prefixes. Within it, requests join and leave the model's forwards as they come and
//! go; their tokens are those of one request after the other. A baseline answers some items once more, right after
//! itself: where that takes another time, the seconds of the table are no better.

mod changes;
mod choose;
mod configuration;
mod dev;
mod dry_run;
mod effective;
mod file;
mod made;
mod plan;
mod spec;
mod store;
mod together;
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

use crate::{Problem, Record, data::DataError, sandbox::Permission, tasks::WordsError};

pub use changes::Changes;
pub use configuration::{about_model, configuration, fingerprint, outline};
pub use demask_settings::toml::FileError;
pub use dev::DevItems;
pub use dry_run::{DryRun, Prepare, needs};
pub use effective::{Effective, From, Table, names as setting_names};
pub use made::{Call, MadeBy, RanOn};
pub use plan::{Ask, Choosing, Means, Plan, Row, TaskPlan};
pub use spec::{Answering, AskOptions, Asking, Heading, ModelSpec, RowSpec, RunOptions, Spec, TaskSpec, task};
pub use store::{CONFIGURATION, Peaks, RESULTS, Store, StoreError, read_made, read_records};
pub use together::together;

use work::Work;

/// Turns of a table, where it has enough items: intervals of speed-ups are over them.
pub const TURNS: usize = 10;
/// Items of a turn at least, for each place in a batch.
const BLOCK: usize = 4;
/// Of so many items a baseline answers one again.
const EVERY: usize = 5;
/// Items from which on a baseline answers some of them again: fewer say nothing of time.
const MANY: usize = 50;
/// End of the name of a baseline beside itself.
const AGAIN: &str = " again";

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
    /// A choice between options that a task has not.
    #[error("task {task} is not asked by {by}: use `score` generate, or one of {known}")]
    NoOptions {
        /// The task.
        task: &'static str,
        /// The way of answering.
        by: &'static str,
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
    /// Records whether it is a baseline beside itself: the same row once more, on some items.
    pub again: bool,
}

impl Combination {
    /// Returns the rows' combinations, in order.
    ///
    /// # Errors
    /// If two are the same.
    pub fn all(plan: &Plan, dry_runs: &[DryRun]) -> Result<Vec<Self>, RunError> {
        let mut all: Vec<Self> = Vec::new();
        for (index, (row, DryRun { label, .. })) in plan.rows.iter().zip(dry_runs).enumerate() {
            let again = plan.runs_again(index).then(|| (format!("{label}{AGAIN}"), row.seeds[0], true));
            let seeds = row.seeds.iter().map(|&seed| {
                let label = if row.seeds.len() > 1 { format!("{label}, seed={seed}") } else { label.clone() };
                (label, seed, false)
            });
            for (label, seed, again) in seeds.chain(again) {
                if all.iter().any(|other| other.label == label) {
                    return Err(RunError::Twice(label));
                }
                all.push(Self { label, row: index, seed, again });
            }
        }
        Ok(all)
    }

    /// Returns the options of a problem's answer.
    pub fn options(&self, ask: &Ask, problem: &Problem) -> Options {
        Options { seed: Some(self.seed), ..ask.options_of(problem) }
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

/// A loaded model, and the rows that it answers.
pub type ModelRows<'a> = (&'a Model, &'a [usize]);

/// Runs what `store` does not hold yet of the rows that these models answer, in turns.
pub fn run(
    models: &[ModelRows<'_>],
    runs: Runs<'_>,
    store: &mut Store,
    observer: &mut RunObserver<'_>,
) -> Result<Made, RunError> {
    let (started, before) = (Instant::now(), store.records().len());
    for turn in 0..runs.turns() {
        for &(model, rows) in models {
            for combination in runs.combinations.iter().filter(|combination| rows.contains(&combination.row)) {
                let mut pending = runs.pending(combination, store);
                pending.retain(|&item| runs.turn_of(item) == turn);
                if !pending.is_empty() {
                    block(model, combination, runs, pending, store, observer)?;
                }
            }
        }
    }
    // A report of records that are gone would be of nothing.
    store.check()?;
    Ok(Made { items: store.records().len() - before, seconds: started.elapsed().as_secs_f64() })
}

/// Runs a block of items of a combination.
fn block(
    model: &Model,
    combination: &Combination,
    runs: Runs<'_>,
    items: VecDeque<Item>,
    store: &mut Store,
    observer: &mut RunObserver<'_>,
) -> Result<(), RunError> {
    emit(observer, Happened::Began(combination))?;
    model.forget_peak_memory();
    // What another row has left would make this one faster.
    model.forget_prefixes()?;
    if !runs.plan.rows[combination.row].model.shares_prefixes() {
        model.set_prefix_cache(0)?;
    }
    // Tasks whose options are compared, and those that are answered: a row may have both.
    let asks = &runs.plan.rows[combination.row].asks;
    let (chosen, answered) = items.into_iter().partition(|&(at, _): &Item| asks[at].choosing.is_some());
    Work::new(runs, combination, store, observer).choose(model, chosen)?;
    Work::new(runs, combination, store, observer).answer(model, answered)
}

/// An item: indices of its task and of its problem.
pub type Item = (usize, usize);

impl Runs<'_> {
    /// Returns how many items of these rows are not there yet.
    pub fn missing(&self, rows: &[usize], store: &Store) -> usize {
        let wanted = self.combinations.iter().filter(|combination| rows.contains(&combination.row));
        wanted.map(|combination| self.pending(combination, store).len()).sum()
    }

    /// Returns the number of turns: blocks are a few items for each place in a batch at least, and a lone combination has
    /// nobody to take turns with.
    fn turns(&self) -> usize {
        let most = self.plan.tasks.iter().map(|task| task.problems.len()).max().unwrap_or(0);
        if self.combinations.len() > 1 { (most / (BLOCK * self.width.max(1))).clamp(1, TURNS) } else { 1 }
    }

    /// Returns the turn in which an item is answered.
    fn turn_of(&self, (at, index): Item) -> usize {
        let count = self.plan.tasks[at].problems.len().max(1);
        (index * self.turns() / count).min(self.turns() - 1)
    }

    /// Returns the items of a combination that are not there yet, in the order in which they are answered.
    pub fn pending(&self, combination: &Combination, store: &Store) -> VecDeque<Item> {
        let tasks = self.plan.tasks.iter().enumerate();
        let limit = self.plan.rows[combination.row].limit;
        let step = if combination.again { EVERY } else { 1 };
        let items = tasks
            .flat_map(|(at, task)| (0..task.problems.len().min(limit)).step_by(step).map(move |index| (at, index)));
        let items = items.filter(|item| self.part.is_none_or(|part| part.contains(item)));
        items.filter(|&(at, index)| !store.has(&combination.label, &self.plan.tasks[at].name, index)).collect()
    }
}

fn emit(observer: &mut RunObserver<'_>, happened: Happened<'_>) -> Result<(), RunError> {
    match observer(happened) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RunError::Interrupted),
    }
}

#[cfg(test)]
mod tests;
