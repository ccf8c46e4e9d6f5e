//! One row at work on its items: requests join and leave the model's forwards, and each answer is judged and kept.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use demask::{Error, Finish, Generation, Model, Prompt, Request};
use demask_engine::{EngineError, Group, Over, RequestError};
use serde_json::{Value, json};

use super::{Ask, Combination, Happened, Item, RunError, RunObserver, Runs, Store, emit};
use crate::{Counts, Problem, Record, Rule, Verdict, score::judge_program};

/// Time between two looks at whether the run is to go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// One combination at work.
pub(super) struct Work<'a, 'o> {
    pub runs: Runs<'a>,
    pub combination: &'a Combination,
    pub store: &'a mut Store,
    pub observer: &'a mut RunObserver<'o>,
    clock: Clock,
}

impl<'a, 'o> Work<'a, 'o> {
    pub fn new(
        runs: Runs<'a>,
        combination: &'a Combination,
        store: &'a mut Store,
        observer: &'a mut RunObserver<'o>,
    ) -> Self {
        Self { runs, combination, store, observer, clock: Clock::start() }
    }

    /// Prompting of an item by the row, and the item.
    pub fn item(&self, (at, index): Item) -> (&'a Ask, &'a Problem) {
        let plan = self.runs.plan;
        (&plan.rows[self.combination.row].asks[at], &plan.tasks[at].problems[index])
    }

    /// Answers the pending items. Requests of a run that breaks off are cancelled.
    pub fn answer(mut self, model: &Model, mut pending: VecDeque<Item>) -> Result<(), RunError> {
        let mut running = Group::default();
        loop {
            while running.len() < self.runs.width
                && let Some(item) = pending.pop_front()
            {
                let (ask, problem) = self.item(item);
                match self.prepare(model, ask, problem, &ask.prompt(problem)?) {
                    Ok((prompt, request)) => running.add((item, prompt), model.submit(request)),
                    Err(error) => self.refuse(item, error)?,
                }
            }
            if running.is_empty() {
                return Ok(());
            }
            for Over { key: (item, prompt), result, .. } in running.over_within(PATIENCE) {
                match result {
                    Ok(answer) => {
                        let counts = self.counts(model, item, &answer);
                        self.keep(item, prompt, counts, answer)?;
                    }
                    // It could never run: the others go on.
                    Err(EngineError::Request(RequestError::Refused(error))) => self.refuse(item, error.into())?,
                    Err(error) => return Err(self.broken(item, error.into())),
                }
            }
            emit(self.observer, Happened::Step)?;
        }
    }

    /// Gets an item ready to be answered: its prompt in words, and the request.
    fn prepare(
        &self,
        model: &Model,
        ask: &Ask,
        problem: &Problem,
        prompt: &Prompt,
    ) -> Result<(String, Request), Error> {
        let words = model.info().in_words(prompt)?;
        Ok((words, model.prepare(prompt, &self.combination.options(ask, problem))?))
    }

    /// Keeps the record of an item that cannot be answered; the others go on. What would fail for all of them ends the run.
    pub fn refuse(&mut self, item: Item, error: Error) -> Result<(), RunError> {
        // A schema that cannot be held to is its problem's own.
        let (ask, problem) = self.item(item);
        let has_form = ask.holds && problem.schema.is_some();
        let is_own = matches!(error, Error::Constraint { .. } | Error::Options(_)) && has_form;
        if !is_own && !matches!(error, Error::TooLong { .. } | Error::Open(_)) {
            return Err(self.broken(item, error));
        }
        let verdict = Verdict { valid: has_form.then_some(false), ..Verdict::failed(format!("refused: {error}")) };
        let receipt = json!({"seconds": {"total": 0.0}});
        let (prompt, output) = (String::new(), String::new());
        self.record(item, Outcome { prompt, output, verdict, counts: Counts::default(), receipt })
    }

    fn broken(&self, (at, index): Item, error: Error) -> RunError {
        let task = &self.runs.plan.tasks[at];
        RunError::Item { task: task.name.clone(), id: task.problems[index].id.clone(), error: Box::new(error) }
    }

    /// Judges an answer and keeps the record.
    fn keep(&mut self, item: Item, prompt: String, counts: Counts, answer: Generation) -> Result<(), RunError> {
        let rate = self.clock.rate();
        let (ask, problem) = self.item(item);
        let output = answer.text.unwrap_or_default();
        let verdict = match (ask.style.rule, self.runs.permission) {
            (Rule::Program, Some(permission)) => judge_program(permission, problem, &output),
            _ => ask.style.judge(problem, &output),
        };
        let mut receipt = serde_json::to_value(&answer.receipt).unwrap_or_default();
        if let Some(rate) = rate {
            receipt["seconds"]["processor"] = json!(rate * answer.receipt.seconds.total);
        }
        self.record(item, Outcome { prompt, output, verdict, counts, receipt })?;
        // Judging is no part of an answer.
        self.clock = Clock::start();
        Ok(())
    }

    /// Counts the tokens of an answer. A run that was told to go on after the end is not cut where its length ends it.
    fn counts(&self, model: &Model, item: Item, answer: &Generation) -> Counts {
        let (prompt, written) = answer.canvas.split_at(answer.prompt_tokens.min(answer.canvas.len()));
        let mask = model.info().facts().mask_id;
        let goes_on = self.item(item).0.options.ignore_eos == Some(true);
        Counts {
            tokens: answer.generated_tokens,
            plain_tokens: plain_tokens(model, &answer.tokens),
            plain_prompt_tokens: plain_tokens(model, prompt),
            positions: written.iter().filter(|&&token| Some(token) != mask).count(),
            cut: answer.finish == Finish::Length && !goes_on,
        }
    }

    pub fn record(&mut self, (at, index): Item, outcome: Outcome) -> Result<(), RunError> {
        let Outcome { prompt, output, verdict, counts, receipt } = outcome;
        let task = &self.runs.plan.tasks[at];
        let problem = &task.problems[index];
        self.store.add(Record {
            run: self.combination.label.clone(),
            task: task.name.clone(),
            index,
            id: problem.id.clone(),
            prompt,
            output,
            verdict,
            expected: problem.expected(),
            counts,
            receipt,
        })?;
        match self.store.records().last() {
            Some(record) => emit(self.observer, Happened::Item(record)),
            None => Ok(()),
        }
    }
}

/// The clock and the processor's since a moment.
struct Clock {
    started: Instant,
    processor: Option<Duration>,
}

impl Clock {
    fn start() -> Self {
        Self { started: Instant::now(), processor: processor_time() }
    }

    /// Returns the processor's seconds of a second since then, over all threads; none where the system does not say.
    fn rate(&self) -> Option<f64> {
        let (wall, processor) = (self.started.elapsed(), processor_time()?.checked_sub(self.processor?)?);
        (wall > Duration::ZERO).then(|| processor.as_secs_f64() / wall.as_secs_f64())
    }
}

/// Processor time of this process.
#[cfg(target_os = "linux")]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Processor time of this process; not known here.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Option<Duration> {
    None
}

/// Outcome of an item.
pub(super) struct Outcome {
    pub prompt: String,
    pub output: String,
    pub verdict: Verdict,
    pub counts: Counts,
    pub receipt: Value,
}

/// Tokens that are part of the text; none without a tokenizer.
fn plain_tokens(model: &Model, tokens: &[u32]) -> Option<usize> {
    let tokenizer = model.info().tokenizer().ok()?;
    Some(tokens.iter().filter(|&&token| !tokenizer.is_special(token)).count())
}
