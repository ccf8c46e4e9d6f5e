//! Figures that somebody published, and what of ours stands beside each of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Summary;

/// Published figures for a row on a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Published {
    /// The row.
    pub row: String,
    /// The task.
    pub task: String,
    /// Figures by the names of [`METRICS`].
    pub figures: BTreeMap<String, f64>,
    /// Source of the figures.
    pub source: String,
    /// Note about them.
    pub note: String,
}

/// A figure that is published, and ours.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Key in files of runs.
    pub name: &'static str,
    /// Name in tables.
    pub label: &'static str,
    /// Ours.
    pub ours: fn(&Summary) -> Option<f64>,
}

const fn metric(name: &'static str, label: &'static str, ours: fn(&Summary) -> Option<f64>) -> Metric {
    Metric { name, label, ours }
}

/// A rate of a run, if it has one.
type Rate = fn(&Summary) -> Option<f64>;

/// Rates in the tokens that papers count, and their ratios to the baseline's by the name with `_ratio` after it.
/// dLLM-Cache counts all positions, FreeDave the tokens of the text without special ones, for TraDo with the prompt's.
pub(super) const RATES: &[(&str, Rate)] = &[
    ("positions_per_second_ratio", |row| row.by_second(written(row))),
    ("text_tokens_per_second_ratio", |row| row.by_second(row.plain_tokens)),
    ("text_tokens_per_nfe_ratio", |row| row.by_nfe(row.plain_tokens)),
    ("valid_tokens_per_second_ratio", |row| row.by_second(row.valid_tokens)),
    ("valid_tokens_per_nfe_ratio", |row| row.by_nfe(row.valid_tokens)),
];

/// A ratio of a run by its name.
fn of(row: &Summary, name: &str) -> Option<f64> {
    row.ratios.get(name).copied()
}

/// Positions of an item; none in results that do not have their number.
pub(super) fn written(row: &Summary) -> Option<f64> {
    Some(row.positions).filter(|&positions| positions > 0.0)
}

/// Bytes in GiB; none where nothing is known.
fn gib(bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 30))
}

/// All figures that files of runs may hold.
pub const METRICS: &[Metric] = &[
    metric("accuracy", "accuracy %", |row| Some(100.0 * row.accuracy)),
    metric("accuracy_difference", "difference of accuracy", |row| {
        row.difference.as_ref().map(|difference| 100.0 * difference.mean)
    }),
    metric("seconds_per_item", "s/item", |row| Some(row.seconds_per_item)),
    metric("speed_up", "speed-up", |row| row.compared().then_some(row.speed_up)),
    metric("tokens_per_second", "tokens/s", |row| row.tokens_per_second),
    metric("tokens_per_second_ratio", "tokens/s ratio", |row| row.tokens_per_second_ratio),
    metric("positions_per_second", "positions/s", |row| row.by_second(written(row))),
    metric("positions_per_second_ratio", "positions/s ratio", |row| of(row, "positions_per_second_ratio")),
    metric("text_tokens_per_second", "text tokens/s", |row| row.by_second(row.plain_tokens)),
    metric("text_tokens_per_second_ratio", "text tokens/s ratio", |row| of(row, "text_tokens_per_second_ratio")),
    metric("valid_tokens_per_second", "valid tokens/s", |row| row.by_second(row.valid_tokens)),
    metric("valid_tokens_per_second_ratio", "valid tokens/s ratio", |row| of(row, "valid_tokens_per_second_ratio")),
    metric("nfe", "NFE", |row| Some(row.nfe)),
    metric("text_tokens_per_nfe", "text tokens/NFE", |row| row.by_nfe(row.plain_tokens)),
    metric("text_tokens_per_nfe_ratio", "text tokens/NFE ratio", |row| of(row, "text_tokens_per_nfe_ratio")),
    metric("valid_tokens_per_nfe", "valid tokens/NFE", |row| row.by_nfe(row.valid_tokens)),
    metric("valid_tokens_per_nfe_ratio", "valid tokens/NFE ratio", |row| of(row, "valid_tokens_per_nfe_ratio")),
    metric("tokens_per_nfe", "tokens/NFE", |row| row.tokens_per_nfe),
    metric("tokens_per_nfe_ratio", "tokens/NFE ratio", |row| row.tokens_per_nfe_ratio),
    metric("gflop_per_token", "GFLOP/token", |row| row.gflop_per_token),
    metric("operations_ratio", "operations saved", |row| row.operations_ratio),
    metric("memory_gib", "memory GiB", |row| gib(row.named_memory)),
    metric("device_memory_gib", "device memory GiB", |row| gib(row.device_memory.unwrap_or(row.named_memory))),
    metric("guide_memory_gib", "guide GiB", |row| gib(row.guide_memory)),
    metric("guide_share", "guide's time %", |row| row.guide_share.map(|share| 100.0 * share)),
    metric("acceptance", "acceptance %", |row| row.acceptance.map(|share| 100.0 * share)),
];
