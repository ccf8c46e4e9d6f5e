//! Records of evaluations: rows of the same settings take the same time on the same machine, or are known not to.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use demask_eval::report::{Numbers, Summary};
use serde_json::{Value, json};

use crate::recipes::root;

/// A committed record.
pub struct Recorded {
    /// Name of its file, without the ending.
    pub name: String,
    /// Command that made it.
    pub command: String,
    /// Day, `2026-11-23`.
    pub date: String,
    /// Machine, as the record names it.
    pub machine: String,
    /// Records whether seconds count.
    pub timed: bool,
    /// Its `summary.json`.
    pub numbers: Numbers,
}

impl Recorded {
    /// Reads a record in one of its forms.
    pub fn read(path: &Path) -> Option<Self> {
        let mut record: Value = serde_json::from_str(&fs::read_to_string(path).ok()?)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let date = text(&record["date"]);
        let (command, machine, timed, summary) = if record["definition"].is_null() {
            // Before `bench/run.py` a record was a summary and what made it. Seconds of those that do not say so count.
            let timed = record["timed"].as_bool().unwrap_or(true);
            (text(&record["command"]), text(&record["machine"]), timed, record["summary"].take())
        } else {
            let (cpu, timed) = (&record["machine"]["cpu"], record["given"]["batch"] == 1);
            let machine = format!("{}, {} threads", text(&cpu["model"]), cpu["threads"]);
            let run = record.pointer_mut("/results/0/subjects/eval").unwrap();
            (text(&run["command"]), machine, timed, run["output"].take())
        };
        let numbers = serde_json::from_value(summary).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Some(Self { name, command, date, machine, timed, numbers })
    }

    /// Returns sentences on the rows whose seconds are in doubt.
    pub fn doubts(&self) -> String {
        let doubtful = DOUBTFUL.iter().filter(|doubtful| doubtful.record == self.name);
        let told =
            doubtful.map(|Doubtful { run, reason, .. }| format!("The seconds of `{run}` are in doubt: {reason}\n\n"));
        told.collect::<Vec<_>>().concat()
    }
}

/// A row whose seconds are other than those of the same settings in another record of the same machine and day.
struct Doubtful {
    record: &'static str,
    run: &'static str,
    reason: &'static str,
}

/// Rows that were timed in a bad minute, until their recipes are recorded again on a quiet machine.
const DOUBTFUL: &[Doubtful] = &[];

/// Factor by which seconds of equal rows may differ.
const APART: f64 = 1.15;

/// What has to be the same for seconds of two rows to be comparable: day, machine, program and batch, place and numbers of the
/// computation, items, and every setting that the row has. Names, baselines and titles are not among them.
fn conditions(record: &Recorded, row: &Summary) -> String {
    let task = record.numbers.tasks.iter().find(|task| task.name == row.task).unwrap();
    let made = record.numbers.made.iter();
    let made: Vec<_> = made.map(|made| (&made.processor, made.cores, &made.executable, made.batch)).collect();
    let settings: Vec<_> = row.settings.iter().map(|(name, setting)| (name, &setting.value)).collect();
    let methods = [&row.model, &row.guide, &row.decoder, &row.cache, &row.remasking, &row.prompts];
    let of_row = json!({"methods": methods, "steps": row.steps, "early_stop": row.early_stop, "seeds": row.seeds,
        "prefixes": row.prefix_cache, "items": row.items, "data": task.data});
    json!([record.date, record.machine, made, row.device, of_row, settings]).to_string()
}

/// Returns whether two rows did the same work: equal forwards and operations.
fn same_work(one: &Summary, other: &Summary) -> bool {
    (one.nfe, one.gflop_per_token) == (other.nfe, other.gflop_per_token)
}

/// A row by its record and its name.
type Place = (String, String);

/// Finds pairs of rows of equal settings, forwards and operations whose seconds are more than a factor apart.
fn apart(records: &[Recorded]) -> Vec<[Place; 2]> {
    let timed = records.iter().filter(|record| record.timed);
    let rows: Vec<(&Recorded, &Summary, String)> = timed
        .flat_map(|record| record.numbers.rows.iter().map(move |row| (record, row, conditions(record, row))))
        .collect();
    let place = |record: &Recorded, row: &Summary| (record.name.clone(), row.run.clone());
    let mut pairs = Vec::new();
    for (index, (record, row, known)) in rows.iter().enumerate() {
        for (other_record, other, conditions) in &rows[..index] {
            let (one, two) = (row.seconds_per_item, other.seconds_per_item);
            if conditions == known && same_work(row, other) && one.max(two) > APART * one.min(two) {
                pairs.push([place(other_record, other), place(record, row)]);
            }
        }
    }
    pairs
}

/// All records of evaluations.
fn records() -> Vec<Recorded> {
    let folders = ["bench/record/papers", "bench/record/eval"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| Recorded::read(file).unwrap()).collect()
}

#[test]
fn equal_rows_take_the_same_time_or_are_known_not_to() {
    let pairs = apart(&records());
    let is_known =
        |(record, run): &Place| DOUBTFUL.iter().any(|doubtful| doubtful.record == record && doubtful.run == run);
    let unknown: Vec<_> = pairs.iter().filter(|pair| !pair.iter().any(is_known)).collect();
    assert!(
        unknown.is_empty(),
        "seconds apart by more than {APART}: record them again, or name one of each pair: {unknown:#?}"
    );
    let named: BTreeSet<&Place> = pairs.iter().flatten().collect();
    for Doubtful { record, run, .. } in DOUBTFUL {
        assert!(
            named.contains(&((*record).to_owned(), (*run).to_owned())),
            "{record}, {run}: its seconds are as others"
        );
    }
}

#[test]
fn seconds_of_other_machines_days_or_settings_are_not_compared() {
    let record = |name: &str, date: &str, machine: &str, rows: Vec<Summary>| Recorded {
        name: name.to_owned(),
        command: String::new(),
        date: date.to_owned(),
        machine: machine.to_owned(),
        timed: true,
        numbers: Numbers { rows, tasks: vec![demask_eval::report::TaskInfo::default()], ..Numbers::default() },
    };
    let row = |seconds_per_item, nfe| Summary {
        seconds_per_item,
        nfe,
        run: format!("{seconds_per_item}"),
        ..Summary::default()
    };
    let first = || record("a", "1", "m", vec![row(1.0, 4.0), row(1.1, 4.0)]);
    let found = |other: Recorded| apart(&[first(), other]).len();
    assert_eq!(found(record("b", "1", "m", vec![row(1.2, 4.0)])), 1, "1.2 by 1.1 is within the bound");
    assert_eq!(found(record("b", "2", "m", vec![row(2.0, 4.0)])), 0);
    assert_eq!(found(record("b", "1", "n", vec![row(2.0, 4.0)])), 0);
    assert_eq!(found(record("b", "1", "m", vec![row(2.0, 5.0)])), 0);
    assert_eq!(found(record("b", "1", "m", vec![Summary { steps: 8, ..row(2.0, 4.0) }])), 0);
    assert_eq!(found(Recorded { timed: false, ..record("b", "1", "m", vec![row(2.0, 4.0)]) }), 0);
}
