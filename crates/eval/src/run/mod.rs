//! Runs: every combination of methods answers every problem, many at a time, and each answer is judged and kept.
//!
//! A combination is finished before the next one begins: seconds and peak memory are its own. Within it, requests join
//! and leave the model's forwards as they come and go; their tokens are those of one request after the other.

mod choose;
mod plan;
mod store;

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    time::Instant,
};

use demask::internals::{
    Outcome as TaskOutcome, Prepared, RequestId, forget_peak_memory,
    step::{Need, Work as _},
};
use demask::{Class, Error, Generation, LikelihoodOptions, Model, Options, Prompt};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    Gold, Problem, Record, Rule, Verdict,
    report::{Evaluation, RunResult, TaskInfo},
    sandbox::Permission,
    score::judge_program,
    tasks::TASKS,
};

pub use plan::{Combination, Plan};
pub use store::{CONFIGURATION, RESULTS, Store, StoreError};

/// A run that cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A combination cannot answer a task.
    #[error("{}{task}: {error}", swept.as_ref().map(|swept| format!("sweep {swept}, ")).unwrap_or_default())]
    Combination {
        /// The swept values, if there are any.
        swept: Option<String>,
        /// The task.
        task: &'static str,
        /// Why not.
        error: Box<Error>,
    },
    /// Likelihoods of options that a task has not.
    #[error(
        "task {task} is not asked by likelihood: use `score` generate, or one of {}",
        asked_by_likelihood().join(", ")
    )]
    NoOptions {
        /// The task.
        task: &'static str,
    },
    /// Two combinations are the same.
    #[error("the sweep has \"{0}\" twice: omit one")]
    Twice(String),
    /// An item broke off.
    #[error("{task}, problem {id}: {error}")]
    Item {
        /// The task.
        task: &'static str,
        /// The problem.
        id: String,
        /// Why not.
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
    /// Whether the call itself was wrong (exit code 2), not its execution (exit code 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Combination { error, .. } | Self::Item { error, .. } => error.is_usage(),
            Self::Generate(error) => error.is_usage(),
            Self::Store(error) => error.is_usage(),
            Self::NoOptions { .. } | Self::Twice(_) => true,
            Self::Interrupted => false,
        }
    }
}

/// The tasks whose options can be compared by likelihood.
fn asked_by_likelihood() -> Vec<&'static str> {
    TASKS.iter().filter(|task| task.likelihood.is_some()).map(|task| task.name).collect()
}

/// What happens in a run.
#[derive(Debug)]
pub enum Happened<'a> {
    /// A combination begins.
    Began(&'a Combination),
    /// A forward is over.
    Step,
    /// An item is answered and kept.
    Item(&'a Record),
}

/// Sees a run and may end it.
pub type RunObserver<'a> = dyn FnMut(Happened<'_>) -> ControlFlow<()> + 'a;

/// What a sweep varies: options, and the names and values that were swept.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    /// Names and values in the order of the sweep; empty for a plain run.
    pub values: Vec<(String, String)>,
    /// The options that they make.
    pub options: Options,
    /// As in [`Combination`].
    pub likelihood: Option<LikelihoodOptions>,
}

impl Swept {
    fn told(&self) -> Option<String> {
        let values: Vec<_> = self.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!values.is_empty()).then(|| values.join(";"))
    }
}

/// A combination that was found to be possible, and what its sequences need.
#[derive(Debug, Clone)]
pub struct Rehearsed {
    /// The combination.
    pub combination: Combination,
    /// The sequences of the longest prompt, and the guide's for it.
    pub needs: Vec<Need>,
}

/// Gets a prompt ready to be answered: [`Opened::prepare`](demask::internals::Opened::prepare) of a model whose weights are not loaded
/// yet, for example.
pub type Prepare<'a> = dyn Fn(&Prompt, &Options) -> Result<Prepared, Error> + 'a;

/// Lays out the canvas of each task's longest prompt under each combination, so that what cannot be run is told before
/// anything runs.
pub fn rehearse(prepare: &Prepare<'_>, plans: &[Plan], sweep: &[Swept]) -> Result<Vec<Rehearsed>, RunError> {
    let mut all: Vec<Rehearsed> = Vec::new();
    for swept in sweep {
        let rehearsed = match swept.likelihood {
            Some(_) => rehearse_likelihood(plans, swept)?,
            None => rehearse_answers(prepare, plans, swept)?,
        };
        if all.iter().any(|other| other.combination.label == rehearsed.combination.label) {
            return Err(RunError::Twice(rehearsed.combination.label));
        }
        all.push(rehearsed);
    }
    Ok(all)
}

impl Rehearsed {
    fn new(swept: &Swept, methods: &str) -> Self {
        let Swept { options, likelihood, .. } = swept;
        let mut combination = Combination {
            label: String::new(),
            values: swept.values.clone(),
            options: options.clone(),
            likelihood: *likelihood,
        };
        combination.name(methods);
        Self { combination, needs: Vec::new() }
    }
}

fn rehearse_answers(prepare: &Prepare<'_>, plans: &[Plan], swept: &Swept) -> Result<Rehearsed, RunError> {
    let mut rehearsed = Rehearsed::new(swept, "");
    for plan in plans {
        let refused =
            |error| RunError::Combination { swept: swept.told(), task: plan.task.name, error: Box::new(error) };
        let answer = longest(prepare, plan, &rehearsed.combination).map_err(refused)?;
        let receipt = answer.session().receipt();
        rehearsed.combination.name(&format!("{}, cache {}", receipt.decoder, receipt.cache));
        if positions(answer.needs()) >= positions(&rehearsed.needs) {
            rehearsed.needs = answer.needs().to_vec();
        }
    }
    Ok(rehearsed)
}

fn rehearse_likelihood(plans: &[Plan], swept: &Swept) -> Result<Rehearsed, RunError> {
    match plans.iter().find(|plan| plan.task.likelihood.is_none()) {
        Some(plan) => Err(RunError::NoOptions { task: plan.task.name }),
        None => Ok(Rehearsed::new(swept, choose::LABEL)),
    }
}

/// The longest prompt of a plan, ready to be answered. Prompts that are too long are left out, if not all of them are.
fn longest(prepare: &Prepare<'_>, plan: &Plan, combination: &Combination) -> Result<Prepared, Error> {
    let options = plan.options(combination);
    let mut prompts: Vec<Prompt> = plan.problems.iter().map(|problem| plan.prompt(problem)).collect();
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

/// Positions of the model's own sequences.
fn positions(needs: &[Need]) -> usize {
    needs.iter().filter(|need| need.network == 0).map(|need| need.sequence.positions).sum()
}

/// What a results directory must agree in to go on: everything that decides what the records say, but not how many of
/// them are wanted, how many are made at a time, or how fast.
pub fn configuration(
    model: &Map<String, Value>,
    plans: &[Plan],
    data: &[u64],
    combinations: &[Combination],
    seed: u64,
) -> Map<String, Value> {
    let mut configuration = Map::new();
    let mut put = |name: &str, value: Value| configuration.insert(name.to_owned(), value);
    put("model", Value::Object(model.clone()));
    put("seed", seed.into());
    let tasks = plans.iter().zip(data).map(|(plan, &data)| {
        let value = json!({
            "style": combinations.first().map(|combination| plan.wording(combination)),
            "shots": plan.shots.count(),
            "exemplars": hexadecimal(fingerprint(plan.shots.pool())),
            "data": hexadecimal(data),
            "gen_length": plan.task.gen_length,
            "system": plan.system,
        });
        (plan.task.name.to_owned(), value)
    });
    put("tasks", Value::Object(tasks.collect()));
    let options = |combination: &Combination| {
        let options = match &combination.likelihood {
            Some(likelihood) => serde_json::to_value(likelihood),
            None => serde_json::to_value(&combination.options),
        };
        (combination.label.clone(), options.unwrap_or_default())
    };
    put("combinations", Value::Object(combinations.iter().map(options).collect()));
    configuration
}

/// Returns a number that differs where problems differ.
pub fn fingerprint(problems: &[Problem]) -> u64 {
    demask::internals::fingerprint(problems.iter().map(|problem| problem.fields().fingerprint().to_le_bytes()))
}

fn hexadecimal(number: u64) -> Value {
    Value::String(format!("{number:016x}"))
}

/// What was made in one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Made {
    /// Items answered.
    pub items: usize,
    /// Seconds by the clock.
    pub seconds: f64,
}

/// What a call runs.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'a> {
    /// The tasks.
    pub plans: &'a [Plan],
    /// The combinations of methods.
    pub combinations: &'a [Combination],
    /// Items at a time.
    pub width: usize,
    /// Leave to run programs that a model writes; without it their verdict is `not run`.
    pub permission: Option<&'a Permission>,
}

/// Runs what `store` does not hold yet.
pub fn run(
    model: &mut Model,
    runs: Runs<'_>,
    store: &mut Store,
    observer: &mut RunObserver<'_>,
) -> Result<Made, RunError> {
    let (started, before) = (Instant::now(), store.records().len());
    for combination in runs.combinations {
        let pending = runs.pending(combination, store);
        tell(observer, Happened::Began(combination))?;
        forget_peak_memory();
        let work = Work { runs, combination, store: &mut *store, observer: &mut *observer };
        match combination.likelihood {
            Some(likelihood) => work.choose(model, pending, likelihood)?,
            None => work.answer(model, pending)?,
        }
    }
    Ok(Made { items: store.records().len() - before, seconds: started.elapsed().as_secs_f64() })
}

/// An item: indices of its plan and of its problem.
type Item = (usize, usize);

impl Runs<'_> {
    /// How many items are not there yet.
    pub fn missing(&self, store: &Store) -> usize {
        self.combinations.iter().map(|combination| self.pending(combination, store).len()).sum()
    }

    fn pending(&self, combination: &Combination, store: &Store) -> VecDeque<Item> {
        let plans = self.plans.iter().enumerate();
        let items = plans.flat_map(|(at, plan)| (0..plan.problems.len()).map(move |index| (at, index)));
        items.filter(|&(at, index)| !store.has(&combination.label, self.plans[at].task.name, index)).collect()
    }

    /// What came of it, for a report. A store may hold more items than this call asks for: they are left out.
    pub fn evaluation(&self, model: &Model, store: &Store) -> Evaluation {
        let tasks = self.plans.iter().filter_map(|plan| Some(task_info(plan, self.combinations.first()?)));
        let result = |combination: &Combination| RunResult {
            label: combination.label.clone(),
            early_stop: combination.options.stops_early(),
            others: combination.others(&["decoder", "cache", "steps", "remasking", "early-stop"]),
            records: self.records(combination, store),
        };
        Evaluation {
            model: model.name().to_owned(),
            device: model.network().describe(),
            tasks: tasks.collect(),
            runs: self.combinations.iter().map(result).collect(),
        }
    }

    /// A combination's records in the order of tasks and problems: many at a time end in another one.
    fn records(&self, combination: &Combination, store: &Store) -> Vec<Record> {
        let own = |record: &&Record| record.run == combination.label;
        let place = |record: &Record| {
            let at = self.plans.iter().position(|plan| plan.task.name == record.task)?;
            (record.index < self.plans[at].problems.len()).then_some((at, record.index))
        };
        let own = store.records().iter().filter(own);
        let mut placed: Vec<_> = own.filter_map(|record| Some((place(record)?, record))).collect();
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, record)| record.clone()).collect()
    }
}

fn task_info(plan: &Plan, combination: &Combination) -> TaskInfo {
    TaskInfo {
        name: plan.task.name.to_owned(),
        shots: plan.shots.count(),
        style: plan.wording(combination).to_owned(),
        metric: plan.metric(combination).to_owned(),
        available: plan.available,
    }
}

fn tell(observer: &mut RunObserver<'_>, happened: Happened<'_>) -> Result<(), RunError> {
    match observer(happened) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RunError::Interrupted),
    }
}

/// An item under way, and its prompt in words.
type Running = (Item, String);

/// One combination at work.
struct Work<'a, 'o> {
    runs: Runs<'a>,
    combination: &'a Combination,
    store: &'a mut Store,
    observer: &'a mut RunObserver<'o>,
}

impl Work<'_, '_> {
    fn answer(mut self, model: &mut Model, pending: VecDeque<Item>) -> Result<(), RunError> {
        let mut running = HashMap::new();
        let answered = self.answer_all(model, pending, &mut running);
        // Those of a run that broke off: nobody waits for them.
        for id in running.into_keys() {
            model.cancel(id);
        }
        answered
    }

    fn answer_all(
        &mut self,
        model: &mut Model,
        mut pending: VecDeque<Item>,
        running: &mut HashMap<RequestId, Running>,
    ) -> Result<(), RunError> {
        loop {
            while running.len() < self.runs.width
                && let Some(item) = pending.pop_front()
            {
                match self.submit(model, item) {
                    Ok((id, prompt)) => {
                        running.insert(id, (item, prompt));
                    }
                    Err(error) => self.refuse(item, error)?,
                }
            }
            if running.is_empty() {
                return Ok(());
            }
            for (id, outcome) in model.step(&mut |_, _| ControlFlow::Continue(())) {
                let Some((item, prompt)) = running.remove(&id) else { continue };
                match outcome {
                    Ok(TaskOutcome::Answer(answer)) => self.keep(item, prompt, *answer)?,
                    Ok(TaskOutcome::Likelihood(_) | TaskOutcome::Session(_)) => {}
                    Err(error) => return Err(self.broken(item, error)),
                }
            }
            tell(self.observer, Happened::Step)?;
        }
    }

    /// Lets an item join the following forwards; also its prompt in words.
    fn submit(&self, model: &mut Model, (at, index): Item) -> Result<(RequestId, String), Error> {
        let plan = &self.runs.plans[at];
        let prompt = plan.prompt(&plan.problems[index]);
        let words = model.prompter().in_words(&prompt)?;
        let answer = model.prepare(&prompt, &plan.options(self.combination))?;
        Ok((model.submit(answer, Class::default())?, words))
    }

    /// Keeps the record of an item that cannot be answered; the others go on. What would fail for all of them ends the run.
    fn refuse(&mut self, item: Item, error: Error) -> Result<(), RunError> {
        if !matches!(error, Error::TooLong { .. } | Error::Open(_)) {
            return Err(self.broken(item, error));
        }
        let verdict = Verdict::failed(format!("refused: {error}"));
        let receipt = json!({"seconds": {"total": 0.0}});
        let (prompt, output) = (String::new(), String::new());
        self.record(item, Outcome { prompt, output, verdict, tokens: 0, receipt })
    }

    fn broken(&self, (at, index): Item, error: Error) -> RunError {
        let plan = &self.runs.plans[at];
        RunError::Item { task: plan.task.name, id: plan.problems[index].id.clone(), error: Box::new(error) }
    }

    /// Judges an answer and keeps the record.
    fn keep(&mut self, (at, index): Item, prompt: String, answer: Generation) -> Result<(), RunError> {
        let plan = &self.runs.plans[at];
        let output = answer.text.unwrap_or_default();
        let problem = &plan.problems[index];
        let verdict = match (plan.style.rule, self.runs.permission) {
            (Rule::Program, Some(permission)) => judge_program(permission, problem, &output),
            (rule, _) => rule.judge(problem, &output),
        };
        let receipt = serde_json::to_value(&answer.receipt).unwrap_or_default();
        self.record((at, index), Outcome { prompt, output, verdict, tokens: answer.generated_tokens, receipt })
    }

    fn record(&mut self, (at, index): Item, outcome: Outcome) -> Result<(), RunError> {
        let Outcome { prompt, output, verdict, tokens, receipt } = outcome;
        let plan = &self.runs.plans[at];
        let problem = &plan.problems[index];
        self.store.add(Record {
            run: self.combination.label.clone(),
            task: plan.task.name.to_owned(),
            index,
            id: problem.id.clone(),
            prompt,
            output,
            verdict,
            expected: expected(problem),
            tokens,
            receipt,
        })?;
        match self.store.records().last() {
            Some(record) => tell(self.observer, Happened::Item(record)),
            None => Ok(()),
        }
    }
}

/// What came of an item.
struct Outcome {
    prompt: String,
    output: String,
    verdict: Verdict,
    tokens: usize,
    receipt: Value,
}

/// What would have been right, for people.
fn expected(problem: &Problem) -> String {
    match &problem.gold {
        Gold::Number(text) | Gold::Math(text) => text.clone(),
        Gold::Option(index) => problem.options.get(*index).cloned().unwrap_or_default(),
        Gold::Text(texts) => texts.join(" | "),
        Gold::Program { tests, .. } => tests.clone(),
    }
}

#[cfg(test)]
mod tests;
