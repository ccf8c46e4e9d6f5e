//! The README's table of evaluations is that of the committed records; `DEMASK_BLESS=1` writes it anew.

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

#[test]
fn the_readme_shows_what_was_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = fs::read_dir(root.join("bench/record/eval")).unwrap();
    let mut records: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    records.sort();
    assert!(!records.is_empty());
    let tables: Vec<String> = records.iter().map(|path| table(path)).collect();
    let path = root.join("README.md");
    let there = fs::read_to_string(&path).unwrap();
    let wanted = readme::insert(&there, &tables).unwrap();
    if env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(there == wanted, "the README is out of date: DEMASK_BLESS=1 cargo test -p demask-eval --test readme");
    }
}
