//! What a run is worth, as rows of a plain table.

use std::fmt::Write;

use serde::Serialize;

use super::{Combination, Plan, Store};
use crate::Record;

/// One combination on one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The task.
    pub task: String,
    /// The combination.
    pub run: String,
    /// Items answered.
    pub items: usize,
    /// Share of right answers.
    pub accuracy: f64,
    /// Its standard error, that of the mean of as many draws.
    pub standard_error: f64,
    /// Mean seconds of an item; of items that shared forwards, their shares.
    pub seconds_per_item: f64,
    /// Decoded tokens by seconds.
    pub tokens_per_second: f64,
    /// Mean forwards of an item, as the methods' papers count them.
    pub nfe: f64,
    /// Decoded tokens by forwards.
    pub tokens_per_nfe: f64,
    /// Billions of operations by decoded tokens.
    pub gflop_per_token: f64,
    /// Most bytes that the process held.
    pub peak_memory: u64,
    /// Seconds of the task's first row by this row's.
    pub speedup: f64,
}

/// The rows of a run: task after task, in each the combinations in order.
pub fn rows(plans: &[Plan], combinations: &[Combination], store: &Store) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for plan in plans {
        let task = plan.task.name;
        let first = rows.len();
        for Combination { label, .. } in combinations {
            let own = |record: &&Record| record.run == *label && record.task == task;
            // A directory may hold more items than this call asks for.
            let records = store.records().iter().filter(own).filter(|record| record.index < plan.problems.len());
            let mut row = row(task, label, &records.collect::<Vec<_>>());
            row.speedup = ratio(rows.get(first).unwrap_or(&row).seconds_per_item, row.seconds_per_item);
            rows.push(row);
        }
    }
    rows
}

fn row(task: &str, run: &str, records: &[&Record]) -> Row {
    let items = records.len();
    let sum = |value: fn(&Record) -> f64| records.iter().map(|record| value(record)).sum::<f64>();
    let count = items as f64;
    let accuracy = ratio(sum(|record| f64::from(u8::from(record.verdict.correct))), count);
    let seconds = sum(|record| number(record, &["seconds", "total"]));
    let (tokens, nfe) = (sum(|record| record.tokens as f64), sum(|record| number(record, &["nfe"])));
    let peak = records.iter().map(|record| number(record, &["memory", "peak"])).fold(0.0, f64::max);
    Row {
        task: task.to_owned(),
        run: run.to_owned(),
        items,
        accuracy,
        standard_error: if items > 1 { (accuracy * (1.0 - accuracy) / (count - 1.0)).sqrt() } else { 0.0 },
        seconds_per_item: ratio(seconds, count),
        tokens_per_second: ratio(tokens, seconds),
        nfe: ratio(nfe, count),
        tokens_per_nfe: ratio(tokens, nfe),
        gflop_per_token: ratio(sum(|record| number(record, &["flops"])), tokens) / 1e9,
        peak_memory: peak as u64,
        speedup: 1.0,
    }
}

/// A number of a receipt; 0 if it is not there.
fn number(record: &Record, path: &[&str]) -> f64 {
    path.iter().fold(&record.receipt, |value, name| &value[*name]).as_f64().unwrap_or(0.0)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

const HEAD: [&str; 11] = [
    "task",
    "run",
    "items",
    "accuracy",
    "s/item",
    "tokens/s",
    "NFE",
    "tokens/NFE",
    "GFLOP/token",
    "peak MiB",
    "speed-up",
];

/// The rows as a table with aligned columns.
pub fn text(rows: &[Row]) -> String {
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        [
            row.task.clone(),
            row.run.clone(),
            row.items.to_string(),
            format!("{:.1} ± {:.1}", 100.0 * row.accuracy, 100.0 * row.standard_error),
            format!("{:.3}", row.seconds_per_item),
            format!("{:.1}", row.tokens_per_second),
            format!("{:.1}", row.nfe),
            format!("{:.2}", row.tokens_per_nfe),
            format!("{:.3}", row.gflop_per_token),
            (row.peak_memory >> 20).to_string(),
            format!("{:.2}x", row.speedup),
        ]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let _ = if column < 2 { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Verdict;

    #[test]
    fn a_row_sums_up_its_records() {
        let record = |correct, tokens| Record {
            run: "r".to_owned(),
            task: "t".to_owned(),
            index: 0,
            id: String::new(),
            prompt: String::new(),
            output: String::new(),
            verdict: Verdict { answer: None, correct, failure: None },
            expected: String::new(),
            tokens,
            receipt: json!({
                "nfe": 5, "flops": 4e9, "seconds": {"total": 0.5}, "memory": {"peak": (tokens << 20) as u64},
            }),
        };
        let records = [record(true, 10), record(false, 30), record(true, 20), record(true, 20)];
        let row = row("t", "r", &records.iter().collect::<Vec<_>>());
        let expected = Row {
            task: "t".to_owned(),
            run: "r".to_owned(),
            items: 4,
            accuracy: 0.75,
            standard_error: 0.25,
            seconds_per_item: 0.5,
            tokens_per_second: 40.0,
            nfe: 5.0,
            tokens_per_nfe: 4.0,
            gflop_per_token: 0.2,
            peak_memory: 30 << 20,
            speedup: 1.0,
        };
        assert_eq!(row, expected);
        let table = text(&[row]);
        assert!(table.lines().nth(1).unwrap().contains("4  75.0 ± 25.0   0.500      40.0"), "{table}");
    }

    #[test]
    fn no_records_are_no_number_that_is_none() {
        let row = row("t", "r", &[]);
        assert!((row.accuracy, row.seconds_per_item, row.tokens_per_nfe) == (0.0, 0.0, 0.0));
    }
}
