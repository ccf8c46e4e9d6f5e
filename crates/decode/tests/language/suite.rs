//! The JSON Schema Test Suite: what a schema's automaton has is valid, and what it has not is listed.

use std::{collections::BTreeMap, fs, path::PathBuf};

use demask_decode::constraint::{Constraint, ConstraintError, Language};
use serde_json::Value;

use super::{
    texts::{Draws, draw, has},
    validator::Validator,
};

/// Texts that are drawn for each group.
const TEXTS: usize = 200;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/json-schema-test-suite")
}

/// The groups, each with its schema as it is written: the order of keys is part of it.
fn groups() -> Vec<(Value, String)> {
    let lines = fs::read_to_string(folder().join("draft2020-12.jsonl")).unwrap();
    let groups = lines.lines().map(|line| {
        let group: Value = serde_json::from_str(line).unwrap();
        let (start, end) = (line.find("\"schema\":").unwrap() + 9, line.rfind(",\"tests\":").unwrap());
        (group, line[start..end].to_owned())
    });
    groups.collect()
}

#[test]
fn structure_s15_s16_the_test_suite_is_valid_or_listed() {
    let mut support: BTreeMap<String, (usize, BTreeMap<String, usize>)> = BTreeMap::new();
    let mut wrong = Vec::new();
    let (mut drawn, mut accepted, mut narrowed) = (0, 0, 0);
    for (number, (group, source)) in groups().into_iter().enumerate() {
        let file = group["file"].as_str().unwrap();
        let at = format!("{file}: {}", group["description"]);
        let (supported, refused) = support.entry(file.to_owned()).or_default();
        let made = match Constraint::new(Language::JsonSchema(source.clone())).compile() {
            Ok(made) => made,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{at}: {error}");
                let keyword = match &error {
                    ConstraintError::Keyword { keyword, path, .. } => {
                        assert!(path.starts_with('#'), "{at}: {path}");
                        keyword.clone()
                    }
                    ConstraintError::Empty { .. } => {
                        // Nothing is valid, so nothing is lost.
                        let valid = group["tests"].as_array().unwrap().iter().any(|test| test["valid"] == true);
                        if valid {
                            wrong.push(format!("{at}: {error}, but something is valid"));
                        }
                        "(no text)".to_owned()
                    }
                    ConstraintError::Json(_) => "(not readable)".to_owned(),
                    other => panic!("{at}: {other}"),
                };
                *refused.entry(keyword).or_default() += 1;
                continue;
            }
        };
        *supported += 1;
        for test in group["tests"].as_array().unwrap() {
            let there = has(&made.automaton, &test["data"]);
            match (test["valid"].as_bool().unwrap(), there) {
                (true, true) => accepted += 1,
                (true, false) if made.narrowed.is_empty() => {
                    wrong.push(format!("{at}: {} is valid and neither there nor listed", test["data"]));
                }
                (true, false) => narrowed += 1,
                (false, true) => wrong.push(format!("{at}: {} is not valid and there", test["data"])),
                (false, false) => (),
            }
        }
        let schema = &group["schema"];
        let validator = Validator::new(schema);
        let mut draws = Draws(number as u64);
        for round in 0..TEXTS {
            let text = draw(&made.automaton, [0, 10, 40, 160][round % 4], &mut draws);
            let text = String::from_utf8(text).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{at}: {text}: {error}"));
            drawn += 1;
            if !validator.is_valid(&value) {
                wrong.push(format!("{at}: {text} is drawn and not valid"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(drawn >= 40_000 && accepted >= 200, "{drawn} texts, {accepted} accepted, {narrowed} narrowed");
    ratchet(&support);
}

/// What is supported is written down: less of it is a failure, more of it is a line to be written.
fn ratchet(support: &BTreeMap<String, (usize, BTreeMap<String, usize>)>) {
    let mut page = "file\tsupported\trefused\tby\n".to_owned();
    for (file, (supported, refused)) in support {
        let count: usize = refused.values().sum();
        let by: Vec<String> = refused.iter().map(|(keyword, count)| format!("{keyword} {count}")).collect();
        page.extend([format!("{file}\t{supported}\t{count}\t{}\n", by.join(", "))]);
    }
    let path = folder().join("support.tsv");
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), page, "DEMASK_BLESS=1 writes support.tsv");
}

#[test]
fn structure_s15_the_naive_validator_says_what_the_test_suite_says() {
    const UNKNOWN: &[&str] =
        &["$dynamicRef", "contains", "unevaluatedItems", "unevaluatedProperties", "if", "$anchor", "$id", "$schema"];
    let mut cases = 0;
    for (group, source) in groups() {
        let file = group["file"].as_str().unwrap();
        let leaves = source.matches("\"$ref\":\"").count() > source.matches("\"$ref\":\"#").count();
        if file.contains('/')
            || leaves
            || UNKNOWN.iter().any(|keyword| {
                source.contains(&format!("\"{keyword}\""))
                    && !(*keyword == "$schema" && source.contains("json-schema.org"))
            })
        {
            continue;
        }
        let validator = Validator::new(&group["schema"]);
        for test in group["tests"].as_array().unwrap() {
            cases += 1;
            let valid = test["valid"].as_bool().unwrap();
            assert_eq!(validator.is_valid(&test["data"]), valid, "{file}: {}", test["description"]);
        }
    }
    assert!(cases > 700, "{cases}");
}
