//! Dry runs: the canvas of each task's longest prompt under each row, laid out before any weights are read.

use std::cmp::Reverse;

use demask::{Chosen, Error, Options, Prompt, Request};
use demask_decode::Session;
use demask_step::SequenceSpec;

use super::{
    Answering, Ask, Plan, Row, RunError, TaskPlan,
    effective::{Table, effective},
};
use crate::{Task, tasks::TASKS};

/// A row that was found to be possible: its name, and what its sequences need.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// Name in records and tables: decoder and cache as receipts write them and the other swept values, if it has none
    /// of its own.
    pub label: String,
    /// The sequences of the longest prompt, and the guide's for it.
    pub needs: Vec<SequenceSpec>,
    /// Settings on each task, in the order of the tasks.
    pub settings: Vec<Table>,
}

/// Gets a prompt ready to be answered: [`Opened::prepare`](demask::Opened::prepare) of a model whose weights
/// are not loaded yet, for example.
pub type Prepare<'a> = dyn Fn(&Prompt, &Options) -> Result<Request, Error> + 'a;

impl Plan {
    /// Lays out the canvas of each task's longest prompt as a row asks for it, so that what cannot be run is refused before
    /// anything runs.
    ///
    /// # Errors
    /// If the row cannot answer a task.
    pub fn dry_run(&self, row: usize, prepare: &Prepare<'_>) -> Result<DryRun, RunError> {
        dry_run(&self.rows[row], &self.tasks, prepare).map_err(|error| self.at(row, error))
    }
}

fn dry_run(row: &Row, tasks: &[TaskPlan], prepare: &Prepare<'_>) -> Result<DryRun, RunError> {
    let (mut methods, mut needs, mut settings) = (String::new(), Vec::new(), Vec::new());
    for (ask, task) in row.asks.iter().zip(tasks) {
        if let Some(choosing) = &ask.choosing {
            let by = choosing.answering();
            if !can_be_asked(ask.task, by) {
                return Err(RunError::NoOptions { task: ask.task.name, by: by.name(), known: asked_by(by) });
            }
            by.name().clone_into(&mut methods);
            settings.push(effective(row, ask, None));
            continue;
        }
        let refused = |error| RunError::Row { row: row.describe(), task: task.name.clone(), error: Box::new(error) };
        let prompts = task.problems.iter().map(|problem| ask.prompt(problem)).collect::<Result<_, _>>()?;
        let answer = longest(prepare, ask, prompts, row.seeds[0]).map_err(refused)?;
        settings.push(effective(row, ask, Chosen::of(&answer)));
        if let Some((decoder, cache)) = answer.session().map(Session::methods) {
            methods = format!("{decoder}, cache {cache}");
        }
        if positions(answer.job().needs()) >= positions(&needs) {
            needs = answer.job().needs().to_vec();
        }
    }
    Ok(DryRun { label: row.label(&methods), needs, settings })
}

impl Row {
    /// Name of the row in refusals.
    fn describe(&self) -> Option<String> {
        let values: Vec<_> = self.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match &self.name {
            Some(name) => Some(format!("row \"{name}\"")),
            None => (!values.is_empty()).then(|| format!("sweep {}", values.join(";"))),
        }
    }

    /// Name of the row, or one made of its methods and the other swept values.
    fn label(&self, methods: &str) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let others = self.values.iter().filter(|(name, _)| !["decoder", "cache"].contains(&name.as_str()));
        let others = others.map(|(name, value)| format!(", {name}={value}"));
        std::iter::once(methods.to_owned()).chain(others).collect()
    }
}

fn can_be_asked(task: &Task, by: Answering) -> bool {
    match by {
        Answering::Generate => true,
        Answering::Likelihood => task.likelihood.is_some(),
        Answering::Decision => task.decision.is_some(),
    }
}

/// The tasks whose options can be chosen like this.
fn asked_by(by: Answering) -> String {
    let tasks = TASKS.iter().filter(|task| can_be_asked(task, by)).map(|task| task.name);
    tasks.collect::<Vec<_>>().join(", ")
}

/// The longest of a task's prompts, ready to be answered. Prompts that are too long are left out, if not all of them are.
fn longest(prepare: &Prepare<'_>, ask: &Ask, mut prompts: Vec<Prompt>, seed: u64) -> Result<Request, Error> {
    let options = Options { seed: Some(seed), ..ask.options.clone() };
    prompts.sort_by_key(|prompt| Reverse(prompt.length()));
    if prompts.is_empty() {
        prompts.push(Prompt::Tokens(Vec::new()));
    }
    let mut refused = None;
    for prompt in &prompts {
        match prepare(prompt, &options) {
            Err(error @ Error::TooLong { .. }) => refused = refused.or(Some(error)),
            prepared => return prepared,
        }
    }
    Err(refused.unwrap_or(Error::NoHole))
}

/// Returns what as many of the largest prompts of some rows need as run at the same time.
pub fn needs(dry_runs: &[DryRun], rows: &[usize], width: usize) -> Vec<SequenceSpec> {
    let positions = |one: &&DryRun| one.needs.iter().map(|need| need.limits.positions).sum::<usize>();
    let largest = rows.iter().map(|&row| &dry_runs[row]).max_by_key(positions).map(|one| one.needs.as_slice());
    std::iter::repeat_n(largest.unwrap_or_default(), width).flatten().cloned().collect()
}

/// Positions of the model's own sequences.
pub(super) fn positions(needs: &[SequenceSpec]) -> usize {
    needs.iter().filter(|need| need.network == 0).map(|need| need.limits.positions).sum()
}
