//! One row at work on its items: requests join and leave the model's forwards, and each answer is judged and kept.

use std::{collections::VecDeque, time::Duration};

use demask::{Error, Finish, Generation, Model, Prompt, Request};
use demask_engine::{EngineError, Group, Over, RequestError};
use serde_json::{Value, json};

use super::{Ask, Combination, Happened, Item, RunError, RunObserver, Runs, Store, tell};
use crate::{Counts, Gold, Problem, Record, Rule, Verdict, score::judge_program};

/// Time between two looks at whether the run is to go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// One combination at work.
pub(super) struct Work<'a, 'o> {
    pub runs: Runs<'a>,
    pub combination: &'a Combination,
    pub store: &'a mut Store,
    pub observer: &'a mut RunObserver<'o>,
}

impl<'a> Work<'a, '_> {
    /// Prompting of an item by the row, and the item.
    pub fn item(&self, (at, index): Item) -> (&'a Ask, &'a Problem) {
        let plan = self.runs.plan;
        (&plan.rows[self.combination.row].asks[at], &plan.tasks[at].problems[index])
    }

    /// Answers what is pending. Requests of a run that breaks off are cancelled.
    pub fn answer(mut self, model: &Model, mut pending: VecDeque<Item>) -> Result<(), RunError> {
        let mut running = Group::default();
        loop {
            while running.len() < self.runs.width
                && let Some(item) = pending.pop_front()
            {
                let (ask, problem) = self.item(item);
                match self.prepare(model, ask, &ask.prompt(problem)?) {
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
            tell(self.observer, Happened::Step)?;
        }
    }

    /// Gets an item ready to be answered: its prompt in words, and the request.
    fn prepare(&self, model: &Model, ask: &Ask, prompt: &Prompt) -> Result<(String, Request), Error> {
        let words = model.info().in_words(prompt)?;
        Ok((words, model.prepare(prompt, &self.combination.options(ask))?))
    }

    /// Keeps the record of an item that cannot be answered; the others go on. What would fail for all of them ends the run.
    pub fn refuse(&mut self, item: Item, error: Error) -> Result<(), RunError> {
        if !matches!(error, Error::TooLong { .. } | Error::Open(_)) {
            return Err(self.broken(item, error));
        }
        let verdict = Verdict::failed(format!("refused: {error}"));
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
        let (ask, problem) = self.item(item);
        let output = answer.text.unwrap_or_default();
        let verdict = match (ask.style.rule, self.runs.permission) {
            (Rule::Program, Some(permission)) => judge_program(permission, problem, &output),
            (rule, _) => rule.judge(problem, &output),
        };
        let receipt = serde_json::to_value(&answer.receipt).unwrap_or_default();
        self.record(item, Outcome { prompt, output, verdict, counts, receipt })
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
            expected: expected(problem),
            counts,
            receipt,
        })?;
        match self.store.records().last() {
            Some(record) => tell(self.observer, Happened::Item(record)),
            None => Ok(()),
        }
    }
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

/// Right answer, for people.
fn expected(problem: &Problem) -> String {
    match &problem.gold {
        Gold::Number(text) | Gold::Math(text) => text.clone(),
        Gold::Option(index) => problem.options.get(*index).cloned().unwrap_or_default(),
        Gold::Text(texts) => texts.join(" | "),
        Gold::Program { tests, .. } => tests.clone(),
    }
}
