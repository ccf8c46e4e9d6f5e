//! From judged items to the row of a table.

use serde::{Deserialize, Serialize};

use super::{Evaluation, ReportError, RunResult};
use crate::Record;

/// One run on one task. What cannot be told, like tokens per second of a run that decoded no token, is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The task.
    pub task: String,
    /// The run.
    pub run: String,
    /// Decoder, as the receipts write it.
    pub decoder: String,
    /// Cache policy, as the receipts write it.
    pub cache: String,
    /// What ranked predictions.
    pub remasking: String,
    /// Steps over all blocks.
    pub steps: usize,
    /// Whether decoding ended at the end token.
    pub early_stop: bool,
    /// What else sets the run apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub others: String,
    /// Judged items.
    pub items: usize,
    /// Right ones.
    pub correct: usize,
    /// The mean of what answers are worth: the share of right ones, where none is right in part.
    pub accuracy: f64,
    /// Its standard error, `sqrt(mean of squared deviations / n)`: without partly right answers `sqrt(p (1 - p) / n)`.
    pub standard_error: f64,
    /// Mean wall-clock seconds of an item.
    pub seconds_per_item: f64,
    /// Decoded tokens of all items by the seconds of all items.
    pub tokens_per_second: Option<f64>,
    /// Mean function evaluations of an item, as the method's paper counts them.
    pub nfe: f64,
    /// Decoded tokens of all items by the evaluations of all items.
    pub tokens_per_nfe: Option<f64>,
    /// Floating point operations, a guide's included, by decoded tokens, in 10^9.
    pub gflop_per_token: Option<f64>,
    /// Mean forwards of the guide for an item.
    pub guide_nfe: f64,
    /// Largest peak of resident memory, in bytes.
    pub peak_memory: u64,
    /// Largest K/V memory, in bytes.
    pub cache_memory: u64,
    /// Seconds per item of the task's first run by those of this one.
    pub speed_up: f64,
    /// What the answers may claim; several, if items differ.
    pub exactness: String,
    /// The runs that lossless answers equal.
    pub against: String,
}

/// What a summary reads of a receipt.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Told {
    decoder: String,
    cache: String,
    remasking: String,
    steps: usize,
    exactness: String,
    against: Option<String>,
    nfe: f64,
    guide_nfe: f64,
    flops: f64,
    guide: Option<Guided>,
    seconds: Seconds,
    memory: Memory,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Guided {
    flops: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct Seconds {
    total: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Memory {
    cache: u64,
    peak: u64,
}

/// The rows of all tables: task after task, runs in their order. A run without items of a task has no row there.
pub fn summarise(evaluation: &Evaluation) -> Result<Vec<Summary>, ReportError> {
    let mut rows = Vec::new();
    for task in &evaluation.tasks {
        let first = rows.len();
        for run in &evaluation.runs {
            rows.extend(one(&task.name, run)?);
        }
        let baseline = rows.get(first).map_or(0.0, |row: &Summary| row.seconds_per_item);
        for row in &mut rows[first..] {
            row.speed_up = ratio(baseline, row.seconds_per_item).unwrap_or(1.0);
        }
    }
    Ok(rows)
}

/// One run on one task, its speed-up still unknown.
fn one(task: &str, run: &RunResult) -> Result<Option<Summary>, ReportError> {
    let records: Vec<&Record> = run.records.iter().filter(|record| record.task == task).collect();
    let receipts = records.iter().map(|record| receipt(record)).collect::<Result<Vec<Told>, _>>()?;
    // What was refused has a record too, and no methods in its receipt.
    let answered = || receipts.iter().filter(|told| !told.decoder.is_empty());
    let Some(first) = answered().next().or(receipts.first()) else { return Ok(None) };
    let (items, runs) = (records.len(), answered().count().max(1) as f64);
    let correct = records.iter().filter(|record| record.verdict.correct).count();
    let (accuracy, standard_error) = mean(&records);
    let tokens = records.iter().map(|record| record.tokens as f64).sum::<f64>();
    let sum = |of: fn(&Told) -> f64| receipts.iter().map(of).sum::<f64>();
    let (seconds, nfe) = (sum(|told| told.seconds.total), sum(|told| told.nfe));
    let flops = sum(|told| told.flops + told.guide.as_ref().map_or(0.0, |guide| guide.flops));
    let by_token = |value: f64| Some(value).filter(|_| tokens > 0.0);
    Ok(Some(Summary {
        task: task.to_owned(),
        run: run.label.clone(),
        decoder: first.decoder.clone(),
        cache: first.cache.clone(),
        remasking: first.remasking.clone(),
        steps: first.steps,
        early_stop: run.early_stop,
        others: run.others.clone(),
        items,
        correct,
        accuracy,
        standard_error,
        seconds_per_item: seconds / runs,
        tokens_per_second: by_token(tokens).and_then(|tokens| ratio(tokens, seconds)),
        nfe: nfe / runs,
        tokens_per_nfe: by_token(tokens).and_then(|tokens| ratio(tokens, nfe)),
        gflop_per_token: by_token(flops / tokens / 1e9),
        guide_nfe: sum(|told| told.guide_nfe) / runs,
        peak_memory: receipts.iter().map(|told| told.memory.peak).max().unwrap_or(0),
        cache_memory: receipts.iter().map(|told| told.memory.cache).max().unwrap_or(0),
        speed_up: 1.0,
        exactness: all(receipts.iter().map(|told| told.exactness.as_str())),
        against: all(receipts.iter().filter_map(|told| told.against.as_deref())),
    }))
}

/// Mean worth of answers, and its standard error.
fn mean(records: &[&Record]) -> (f64, f64) {
    let count = records.len() as f64;
    let sum = |of: &dyn Fn(f64) -> f64| records.iter().map(|record| of(record.verdict.worth())).sum::<f64>();
    let mean = sum(&|worth| worth) / count;
    (mean, sum(&|worth| (worth - mean).powi(2)).sqrt() / count)
}

fn receipt(record: &Record) -> Result<Told, ReportError> {
    let failed = |found: String| ReportError::Receipt { run: record.run.clone(), id: record.id.clone(), found };
    let told: Told = serde_json::from_value(record.receipt.clone()).map_err(|error| failed(error.to_string()))?;
    let numbers = [told.seconds.total, told.nfe, told.flops, told.guide_nfe];
    match numbers.iter().find(|number| !number.is_finite() || **number < 0.0) {
        Some(number) => Err(failed(format!("the number {number}"))),
        None if record.receipt["seconds"]["total"].is_null() => Err(failed("no seconds".to_owned())),
        None => Ok(told),
    }
}

/// The different texts in the order in which they first come.
fn all<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = Vec::new();
    texts.filter(|text| !text.is_empty()).for_each(|text| {
        if !known.contains(&text) {
            known.push(text);
        }
    });
    known.join("; ")
}

fn ratio(above: f64, below: f64) -> Option<f64> {
    Some(above / below).filter(|_| below > 0.0)
}
