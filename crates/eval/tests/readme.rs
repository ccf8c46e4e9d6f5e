//! The tables of evaluations in `docs/results.md` and in `docs/ablations.md` are those of the committed
//! records; `DEMASK_BLESS=1` writes them anew.

use std::{env, fs, path::Path};

use demask_eval::report::{Numbers, readme};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A record: the command that made it, what else is worth knowing, and its `summary.json`.
fn record(path: &Path) -> (String, Numbers) {
    let mut record: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let command = today(record["command"].as_str().unwrap());
    (command, serde_json::from_value(record["summary"].take()).unwrap())
}

/// A recorded command as it is typed today: evaluations were commands of `demask` once.
pub fn today(command: &str) -> String {
    command.replacen("demask eval ", "demask-lab eval ", 1)
}

/// The tables of a folder's records, each behind its command.
fn tables(records: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(records)).unwrap();
    let mut records: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    records.sort();
    assert!(!records.is_empty());
    let table = |(command, numbers): (String, Numbers)| format!("    {command}\n\n{}", readme::table(&numbers));
    records.iter().map(|path| table(record(path))).collect()
}

/// Holds a text to its tables.
fn check(text: &str, tables: &[String]) {
    let path = root().join(text);
    let there = fs::read_to_string(&path).unwrap();
    let wanted = readme::insert(&there, tables).unwrap();
    if env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(there == wanted, "{text} is out of date: DEMASK_BLESS=1 cargo test -p demask-eval --test all readme");
    }
}

#[test]
fn results_show_what_was_recorded() {
    check("docs/results.md", &tables("bench/record/eval"));
}

#[test]
fn ablations_show_what_was_recorded() {
    check("docs/ablations.md", &tables("bench/record/ablations"));
}
