//! Summary of judged items as the row of a table.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    Calibration, Evaluation, Judged, ReportError, RunResult,
    compare::{Difference, Ends, Faster, difference, faster, mean_within, ratio, worths},
    published::RATES,
};
use crate::{Record, run::Table};

/// One run on one task. A value that is undefined, like tokens per second of a run that decoded no token, is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The task.
    pub task: String,
    /// The run.
    pub run: String,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Device of the run, and its number format.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The guide that was asked, as its receipts name it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guide: String,
    /// The wording of prompts and the exemplars in them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompts: String,
    /// The run that this one is compared with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline: String,
    /// Decoder, as the receipts write it.
    pub decoder: String,
    /// Cache policy, as the receipts write it.
    pub cache: String,
    /// Quantity that ranked predictions.
    pub remasking: String,
    /// Steps over all blocks.
    pub steps: usize,
    /// Records whether decoding ended at the end token.
    pub early_stop: bool,
    /// Other differences from other runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub others: String,
    /// Every setting with its value, and where it comes from.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub settings: Table,
    /// Records whether items shared the K/V of what their prompts begin with; none where there is nothing to share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_cache: Option<bool>,
    /// Judged items.
    pub items: usize,
    /// Right ones.
    pub correct: usize,
    /// The mean of what answers are worth: the share of right ones, where none is right in part.
    pub accuracy: f64,
    /// Share of answers that are JSON as the schemas of their problems say; none where there are no schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<f64>,
    /// Standard error of the accuracy: `sqrt(mean of squared deviations / n)`, which is `sqrt(p (1 - p) / n)` where no
    /// answer is partly right.
    pub standard_error: f64,
    /// Mean wall-clock seconds of an item.
    pub seconds_per_item: f64,
    /// Their interval over turns; none where there are too few items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_within: Option<Ends>,
    /// Decoded tokens of all items by the seconds of all items.
    pub tokens_per_second: Option<f64>,
    /// Mean function evaluations of an item, as the method's paper counts them.
    pub nfe: f64,
    /// Decoded tokens of all items by the evaluations of all items.
    pub tokens_per_nfe: Option<f64>,
    /// Floating point operations, a guide's included, by decoded tokens, in 10^9.
    pub gflop_per_token: Option<f64>,
    /// Mean tokens of an item's prompt that were not computed, because an earlier item had left their K/V; left out
    /// if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cached_tokens: f64,
    /// Mean forwards of the guide for an item.
    pub guide_nfe: f64,
    /// Largest peak of resident memory, in bytes, of the process that answered this row and the others.
    pub peak_memory: u64,
    /// Largest resident memory, in bytes, of a process that answered this row alone; none where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_peak_memory: Option<u64>,
    /// Largest memory that was allocated on the GPU, in bytes; none where the processor computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Memory of a receipt's parts, weights, guides and K/V, in bytes, at most.
    #[serde(default)]
    pub named_memory: u64,
    /// Largest K/V memory, in bytes.
    pub cache_memory: u64,
    /// Seconds per item of the baseline by those of this run.
    pub speed_up: f64,
    /// The same with its interval over turns; none of a baseline, and where there are too few items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faster: Option<Faster>,
    /// Mean seconds of the processor for an item, over all threads; none where the system did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_per_item: Option<f64>,
    /// Accuracy less the baseline's, on the same items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Tokens per second by the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second_ratio: Option<f64>,
    /// Tokens per NFE by the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_nfe_ratio: Option<f64>,
    /// The baseline's operations per token by those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_ratio: Option<f64>,
    /// Rates in other tokens by the baseline's, by the names of [`METRICS`](super::METRICS).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratios: BTreeMap<String, f64>,
    /// Mean decoded tokens of an item.
    #[serde(default)]
    pub tokens: f64,
    /// Mean tokens of an item without special ones; none without a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_tokens: Option<f64>,
    /// The same with the prompt's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_tokens: Option<f64>,
    /// Mean positions that were written for an item, those after its end included.
    #[serde(default)]
    pub positions: f64,
    /// Answers that filled their length without coming to an end, by all answers.
    #[serde(default)]
    pub cut: f64,
    /// Largest memory of the guide's weights, in bytes.
    #[serde(default)]
    pub guide_memory: u64,
    /// The guide's seconds by all seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guide_share: Option<f64>,
    /// Drafts that the guide agreed with by all that it judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<f64>,
    /// Mean draft tokens that a forward with drafts accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_drafts: Option<f64>,
    /// Seeds under which each item was answered.
    #[serde(default = "one_seed")]
    pub seeds: usize,
    /// Standard deviation of accuracy between seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_spread: Option<f64>,
    /// Calibration of decisions; none where answers are something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Published figures, by the names of [`METRICS`](super::METRICS).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<String, f64>,
    /// Claim of the answers; several, if items differ.
    pub exactness: String,
    /// The runs that lossless answers equal.
    pub against: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_none(tokens: &f64) -> bool {
    *tokens == 0.0
}

/// Returns the number of seeds of rows that say nothing of it.
fn one_seed() -> usize {
    1
}

impl Summary {
    /// Returns whether it is compared with another run.
    pub fn compared(&self) -> bool {
        !self.baseline.is_empty() && self.baseline != self.run
    }

    /// Returns tokens, of which an item has so many in the mean, by the seconds of an item.
    pub fn by_second(&self, tokens: Option<f64>) -> Option<f64> {
        ratio(tokens?, self.seconds_per_item)
    }

    /// Returns tokens, of which an item has so many in the mean, by the forwards of an item.
    pub fn by_nfe(&self, tokens: Option<f64>) -> Option<f64> {
        ratio(tokens?, self.nfe)
    }
}

/// Fields that a summary reads of a receipt.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct ReceiptFields {
    model: String,
    device: String,
    decoder: String,
    cache: String,
    remasking: String,
    steps: usize,
    exactness: String,
    against: Option<String>,
    nfe: f64,
    cached_tokens: f64,
    guide_nfe: f64,
    flops: f64,
    guide: Option<Guided>,
    acceptance: Vec<f64>,
    choices: Vec<String>,
    probabilities: Vec<f64>,
    mass: f64,
    seconds: Seconds,
    memory: Memory,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Guided {
    model: String,
    flops: f64,
    accepted: f64,
    rejected: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct Seconds {
    total: f64,
    #[serde(default)]
    guide: f64,
    #[serde(default)]
    processor: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Memory {
    weights: u64,
    guide: u64,
    cache: u64,
    peak: u64,
    device: DeviceMemory,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct DeviceMemory {
    peak: u64,
}

/// The rows of all tables: task after task, runs in their order. A run without items of a task has no row there.
pub fn summarise(evaluation: &Evaluation) -> Result<Vec<Summary>, ReportError> {
    let mut rows = Vec::new();
    for task in &evaluation.tasks {
        let all = evaluation.runs.iter().map(|run| TaskItems::of(&task.name, run)).collect::<Result<Vec<_>, _>>()?;
        for (run, asked) in evaluation.runs.iter().zip(&all) {
            let Some(mut row) = asked.summary(&task.name, run) else { continue };
            if let Some(baseline) = evaluation.runs.get(run.info.baseline) {
                asked.compare(&mut row, &task.name, run, &all[run.info.baseline], baseline);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// A baseline compared with itself: the times of the items that it answered again against their first times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// The task.
    pub task: String,
    /// The run.
    pub run: String,
    /// How many times as fast it was again.
    pub faster: Faster,
}

/// Returns the baselines beside themselves, task after task.
pub fn again(evaluation: &Evaluation) -> Result<Vec<Again>, ReportError> {
    let mut all = Vec::new();
    for task in &evaluation.tasks {
        for run in &evaluation.runs {
            let first = run.info.records.first();
            let own = run.records.iter().filter(|record| Some(&record.run) == first);
            let [once, again] = [TaskItems::among(&task.name, own)?, TaskItems::among(&task.name, run.again.iter())?];
            if let Some(faster) = faster(&again.seconds(), &once.seconds()) {
                all.push(Again { task: task.name.clone(), run: run.info.label.clone(), faster });
            }
        }
    }
    Ok(all)
}

/// The items of a run on a task, with their parsed receipts.
pub(super) struct TaskItems<'a> {
    records: Vec<(&'a Record, ReceiptFields)>,
}

impl<'a> TaskItems<'a> {
    pub(super) fn of(task: &str, run: &'a RunResult) -> Result<Self, ReportError> {
        Self::among(task, run.records.iter())
    }

    fn among(task: &str, records: impl Iterator<Item = &'a Record>) -> Result<Self, ReportError> {
        let records = records.filter(|record| record.task == task);
        Ok(Self { records: records.map(|record| Ok((record, receipt(record)?))).collect::<Result<_, ReportError>>()? })
    }

    /// Returns the items that are among these.
    fn only(&self, items: &BTreeSet<usize>) -> Self {
        let kept = self.records.iter().filter(|(record, _)| items.contains(&record.index));
        Self { records: kept.map(|(record, told)| (*record, told.clone())).collect() }
    }

    fn items(&self) -> BTreeSet<usize> {
        self.records.iter().map(|(record, _)| record.index).collect()
    }

    pub(super) fn worths(&self) -> BTreeMap<usize, f64> {
        worths(self.records.iter().map(|(record, _)| *record))
    }

    /// Returns the seconds of each item, over its seeds.
    pub(super) fn seconds(&self) -> BTreeMap<usize, f64> {
        self.means(|told| told.seconds.total)
    }

    /// Returns the NFE of each item, over its seeds.
    pub(super) fn nfe(&self) -> BTreeMap<usize, f64> {
        self.means(|told| told.nfe)
    }

    /// Returns the operations of each item, a guide's included, over its seeds.
    pub(super) fn operations(&self) -> BTreeMap<usize, f64> {
        self.means(|told| told.flops + told.guide.as_ref().map_or(0.0, |guide| guide.flops))
    }

    fn means(&self, of: impl Fn(&ReceiptFields) -> f64) -> BTreeMap<usize, f64> {
        let mut all: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (record, told) in &self.records {
            let (sum, count) = all.entry(record.index).or_default();
            (*sum, *count) = (*sum + of(told), *count + 1.0);
        }
        all.into_iter().map(|(index, (sum, count))| (index, sum / count)).collect()
    }

    /// Compares a row with its baseline, on the items that both have.
    fn compare(&self, row: &mut Summary, task: &str, run: &RunResult, other: &Self, baseline: &RunResult) {
        let (items, others) = (self.items(), other.items());
        let common: BTreeSet<usize> = items.intersection(&others).copied().collect();
        let own = self.only(&common).summary(task, run);
        let (Some(own), Some(base)) = (own, other.only(&common).summary(task, baseline)) else { return };
        row.baseline.clone_from(&base.run);
        row.speed_up = ratio(base.seconds_per_item, own.seconds_per_item).unwrap_or(1.0);
        if base.run == row.run {
            return;
        }
        let of =
            |above: Option<f64>, below: Option<f64>| above.zip(below).and_then(|(above, below)| ratio(above, below));
        row.faster = faster(&self.seconds(), &other.seconds());
        row.difference = difference(&self.worths(), &other.worths());
        row.tokens_per_second_ratio = of(own.tokens_per_second, base.tokens_per_second);
        row.tokens_per_nfe_ratio = of(own.tokens_per_nfe, base.tokens_per_nfe);
        row.operations_ratio = of(base.gflop_per_token, own.gflop_per_token);
        let rates = RATES.iter().filter_map(|(name, rate)| Some(((*name).to_owned(), of(rate(&own), rate(&base))?)));
        row.ratios = rates.collect();
    }

    /// Returns the share of answers that have the form of their problem.
    fn valid(&self) -> Option<f64> {
        let judged: Vec<bool> = self.records.iter().filter_map(|(record, _)| record.verdict.valid).collect();
        ratio(judged.iter().filter(|valid| **valid).count() as f64, judged.len() as f64)
    }

    /// The row of a run, compared with nothing yet.
    fn summary(&self, task: &str, run: &RunResult) -> Option<Summary> {
        // What was refused has a record too, and no methods in its receipt.
        let answered = || self.records.iter().map(|(_, told)| told).filter(|told| !told.decoder.is_empty());
        let first = answered().next().or_else(|| Some(&self.records.first()?.1))?;
        let runs = answered().count().max(1) as f64;
        let worths: Vec<f64> = self.worths().into_values().collect();
        let (accuracy, standard_error) = mean(&worths);
        let spread = self.spread();
        let counted =
            || self.records.iter().filter(|(_, told)| !told.decoder.is_empty()).map(|(record, _)| record.counts);
        let tokens = counted().map(|counts| counts.tokens as f64).sum::<f64>();
        let plain: Option<usize> = counted().map(|counts| counts.plain_tokens).sum();
        let prompts: Option<usize> = counted().map(|counts| counts.plain_prompt_tokens).sum();
        let sum = |of: fn(&ReceiptFields) -> f64| self.records.iter().map(|(_, told)| of(told)).sum::<f64>();
        let largest = |of: fn(&ReceiptFields) -> u64| self.records.iter().map(|(_, told)| of(told)).max().unwrap_or(0);
        let guided = |of: fn(&Guided) -> f64| {
            self.records.iter().filter_map(|(_, told)| told.guide.as_ref()).map(of).sum::<f64>()
        };
        let (seconds, nfe) = (sum(|told| told.seconds.total), sum(|told| told.nfe));
        let processor: Option<f64> = answered().map(|told| told.seconds.processor).sum();
        let flops = sum(|told| told.flops) + guided(|guide| guide.flops);
        let (accepted, rejected) = (guided(|guide| guide.accepted), guided(|guide| guide.rejected));
        let forwards = sum(|told| told.acceptance.iter().sum());
        let drafts =
            sum(|told| told.acceptance.iter().enumerate().map(|(accepted, count)| accepted as f64 * count).sum());
        let by_token = |value: f64| Some(value).filter(|_| tokens > 0.0);
        let has_guide = answered().any(|told| told.guide.is_some());
        let asked = run.info.prompting.get(task);
        let published = run.info.published.iter().find(|figures| figures.task == task);
        Some(Summary {
            task: task.to_owned(),
            run: run.info.label.clone(),
            model: all(answered().map(|told| told.model.as_str())),
            device: all(answered().map(|told| told.device.as_str())),
            guide: all(answered().filter_map(|told| told.guide.as_ref()).map(|guide| guide.model.as_str())),
            prompts: asked.map(|asked| format!("{}, {} shots", asked.style, asked.shots)).unwrap_or_default(),
            baseline: String::new(),
            decoder: first.decoder.clone(),
            cache: first.cache.clone(),
            remasking: first.remasking.clone(),
            steps: first.steps,
            early_stop: asked.is_none_or(|asked| asked.early_stop),
            others: run.info.others.clone(),
            settings: asked.map(|asked| asked.settings.clone()).unwrap_or_default(),
            prefix_cache: run.info.prefix_cache,
            items: worths.len(),
            correct: self.records.iter().filter(|(record, _)| record.verdict.correct).count(),
            accuracy,
            valid: self.valid(),
            standard_error,
            seconds_per_item: seconds / runs,
            seconds_within: mean_within(&self.seconds()),
            tokens_per_second: by_token(tokens).and_then(|tokens| ratio(tokens, seconds)),
            nfe: nfe / runs,
            tokens_per_nfe: by_token(tokens).and_then(|tokens| ratio(tokens, nfe)),
            gflop_per_token: by_token(flops / tokens / 1e9),
            cached_tokens: sum(|told| told.cached_tokens) / runs,
            guide_nfe: sum(|told| told.guide_nfe) / runs,
            peak_memory: largest(|told| told.memory.peak),
            own_peak_memory: run.peaks.get(task).copied(),
            device_memory: Some(largest(|told| told.memory.device.peak)).filter(|&bytes| bytes > 0),
            named_memory: largest(|told| told.memory.weights + told.memory.guide + told.memory.cache),
            cache_memory: largest(|told| told.memory.cache),
            speed_up: 1.0,
            faster: None,
            processor_per_item: processor.map(|seconds| seconds / runs),
            difference: None,
            tokens_per_second_ratio: None,
            tokens_per_nfe_ratio: None,
            operations_ratio: None,
            ratios: BTreeMap::new(),
            tokens: tokens / runs,
            plain_tokens: plain.map(|plain| plain as f64 / runs),
            valid_tokens: plain.zip(prompts).map(|(plain, prompts)| (plain + prompts) as f64 / runs),
            positions: counted().map(|counts| counts.positions as f64).sum::<f64>() / runs,
            cut: counted().filter(|counts| counts.cut).count() as f64 / runs,
            guide_memory: if has_guide { largest(|told| told.memory.guide) } else { 0 },
            guide_share: ratio(sum(|told| told.seconds.guide), seconds).filter(|_| has_guide),
            acceptance: ratio(accepted, accepted + rejected),
            accepted_drafts: ratio(drafts, forwards),
            seeds: spread.0,
            seed_spread: spread.1,
            calibration: Calibration::of(&self.decisions()),
            published: published.map(|figures| figures.figures.clone()).unwrap_or_default(),
            exactness: all(self.records.iter().map(|(_, told)| told.exactness.as_str())),
            against: all(self.records.iter().filter_map(|(_, told)| told.against.as_deref())),
        })
    }

    /// The decisions among the items.
    fn decisions(&self) -> Vec<Judged<'_>> {
        let judged = |(record, told): &'_ (&'a Record, ReceiptFields)| {
            told.choices.iter().position(|option| *option == record.expected)
        };
        let with = self.records.iter().filter_map(|item| Some((judged(item)?, &item.1)));
        with.map(|(right, told)| Judged { probabilities: &told.probabilities, right, mass: told.mass }).collect()
    }

    /// Number of seeds, and the standard deviation of their accuracies if there are several.
    fn spread(&self) -> (usize, Option<f64>) {
        let mut by_seed: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (record, _) in &self.records {
            by_seed.entry(&record.run).or_default().push(record.verdict.worth());
        }
        let means: Vec<f64> = by_seed.values().map(|worths| mean(worths).0).collect();
        let (count, center) = (means.len() as f64, mean(&means).0);
        let squares: f64 = means.iter().map(|one| (one - center).powi(2)).sum();
        (means.len(), (means.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
    }
}

/// Mean worth of answers, and its standard error.
fn mean(worths: &[f64]) -> (f64, f64) {
    let count = worths.len() as f64;
    let mean = worths.iter().sum::<f64>() / count;
    (mean, worths.iter().map(|worth| (worth - mean).powi(2)).sum::<f64>().sqrt() / count)
}

fn receipt(record: &Record) -> Result<ReceiptFields, ReportError> {
    let failed = |found: String| ReportError::Receipt { run: record.run.clone(), id: record.id.clone(), found };
    let told: ReceiptFields =
        serde_json::from_value(record.receipt.clone()).map_err(|error| failed(error.to_string()))?;
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
