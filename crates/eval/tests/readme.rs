//! The tables of evaluations in the README and in `docs/ablations.md` are those of the committed records; `DEMASK_BLESS=1`
//! writes them anew.

use std::{env, fs, path::Path};

use demask_eval::report::{Numbers, readme};
use serde_json::Value;

/// A record: the command that made it, what else is worth knowing, and its `summary.json`.
fn table(path: &Path) -> String {
    let mut record: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let command = record["command"].as_str().unwrap().to_owned();
    let numbers: Numbers = serde_json::from_value(record["summary"].take()).unwrap();
    format!("    {command}\n\n{}", readme::table(&numbers))
}

/// Holds a text to the records of a folder.
fn check(text: &str, records: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = fs::read_dir(root.join(records)).unwrap();
    let mut records: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    records.sort();
    assert!(!records.is_empty());
    let tables: Vec<String> = records.iter().map(|path| table(path)).collect();
    let path = root.join(text);
    let there = fs::read_to_string(&path).unwrap();
    let wanted = readme::insert(&there, &tables).unwrap();
    if env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(there == wanted, "{text} is out of date: DEMASK_BLESS=1 cargo test -p demask-eval --test all readme");
    }
}

#[test]
fn the_readme_shows_what_was_recorded() {
    check("README.md", "bench/record/eval");
}

#[test]
fn ablations_show_what_was_recorded() {
    check("docs/ablations.md", "bench/record/ablations");
}
