//! Outline of a report, beside the records: `outline.json` in a results directory. With the records it is an evaluation
//! again, here or wherever the directory is taken.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use demask_figures::files::{WriteError, write_whole};
use serde::{Deserialize, Serialize};

use super::{Evaluation, Published, RunResult};
use crate::{
    Record,
    run::{Heading, MadeBy, Peaks, Table},
};

/// Name of its file.
pub const OUTLINE: &str = "outline.json";

/// Tasks and rows of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outline {
    /// Heading of the report.
    #[serde(flatten)]
    pub heading: Heading,
    /// The tasks, in the order of the report.
    pub tasks: Vec<TaskInfo>,
    /// The rows, in the order of the tables.
    pub runs: Vec<RunInfo>,
}

/// Prompting of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Name of the task, as in the records.
    pub name: String,
    /// Exemplars in each prompt of the first row.
    pub shots: usize,
    /// The wording of the first row's prompts.
    pub style: String,
    /// Name of its accuracy in other programs: `exact_match`, `acc`, `pass@1`.
    pub metric: String,
    /// Items that its data has, those that were left out included.
    pub available: usize,
    /// Items that are asked for.
    #[serde(default)]
    pub items: usize,
    /// Fingerprint of its data.
    #[serde(default)]
    pub data: String,
    /// A sentence on the choice of its items; empty if the choice needs no remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A row of the table, without its records.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Name of the row in tables; no two runs of a report share one.
    pub label: String,
    /// The names that its records have, one for each seed.
    pub records: Vec<String>,
    /// The names of records that it has beside itself, as a baseline of others: some items once more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<String>,
    /// The guide that it was given; empty if none.
    pub guide: String,
    /// The place of the run that it is compared with.
    pub baseline: usize,
    /// Differences beside decoder, cache, steps and remasking, `temperature=0.2`; empty if there are none.
    pub others: String,
    /// Records whether items shared the K/V of what their prompts begin with; none where there is nothing to share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_cache: Option<bool>,
    /// Prompting of each task.
    #[serde(rename = "asked")]
    pub prompting: BTreeMap<String, Prompting>,
    /// Published figures for the row.
    pub published: Vec<Published>,
}

/// Prompting of a task by a row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prompting {
    /// The wording of its prompts.
    pub style: String,
    /// Exemplars in each prompt.
    pub shots: usize,
    /// Name of its accuracy in other programs.
    pub metric: String,
    /// Records whether decoding ended at the end token.
    pub early_stop: bool,
    /// Every setting with its value, and where it comes from.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub settings: Table,
}

impl Outline {
    /// Writes it into a results directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, WriteError> {
        let path = directory.join(OUTLINE);
        // Plain structures of strings and numbers: there is nothing to refuse.
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        write_whole(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Returns the evaluation that records make of it, with what made them, if that is known, and the memory of rows that was
    /// measured. A store may hold more items than are asked for: they are left out.
    pub fn evaluation(self, records: &[Record], made: Option<&MadeBy>, peaks: &Peaks) -> Evaluation {
        let Self { heading, tasks, runs } = self;
        let place = |record: &Record| {
            let at = tasks.iter().position(|task| task.name == record.task)?;
            (record.index < tasks[at].items).then_some((at, record.index))
        };
        let runs = runs.into_iter().map(|info| {
            let named = |names: &[String]| -> Vec<Record> {
                let seed = |record: &Record| names.iter().position(|name| *name == record.run);
                // Many at a time end in another order.
                let mut placed: Vec<_> =
                    records.iter().filter_map(|record| Some(((seed(record)?, place(record)?), record))).collect();
                placed.sort_by_key(|(place, _)| *place);
                placed.into_iter().map(|(_, record)| record.clone()).collect()
            };
            let (records, again) = (named(&info.records), named(&info.again));
            let peaks = info.records.iter().find_map(|name| peaks.get(name)).cloned().unwrap_or_default();
            RunResult { info, records, again, peaks, made: made.map(|_| 0) }
        });
        Evaluation { heading, runs: runs.collect(), tasks, made: made.cloned().into_iter().collect() }
    }
}
