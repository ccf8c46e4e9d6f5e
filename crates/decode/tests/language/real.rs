//! Schemas of real programs, which are not part of this repository: `DEMASK_SCHEMAS` names a folder of files `*.jsonl`, a line
//! for each schema with `name`, `schema` and `tests` (of `valid` and `data`).
//!
//! ```text
//! DEMASK_SCHEMAS=DIR cargo test --release -p demask-decode --test all -- --ignored --nocapture real
//! ```

use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

use demask_decode::constraint::{Constraint, ConstraintError, Language};
use serde_json::Value;

use super::{
    texts::{Draws, draw, has},
    validator::Validator,
};

/// Lines of all files of the folder, in the order of their names.
fn lines() -> Vec<String> {
    let folder = std::env::var_os("DEMASK_SCHEMAS").expect("DEMASK_SCHEMAS names a folder of schemas");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
        .iter()
        .flat_map(|file| fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The schema of a line as it is written: the order of keys is part of it.
fn source(line: &str) -> &str {
    let start = line.find("\"schema\":").unwrap() + 9;
    let mut values = serde_json::Deserializer::from_str(&line[start..]).into_iter::<Value>();
    values.next().unwrap().unwrap();
    &line[start..start + values.byte_offset()]
}

/// Why a schema is refused, in a few words.
fn reason(error: ConstraintError) -> String {
    match error {
        ConstraintError::Keyword { keyword, .. } => keyword,
        ConstraintError::TooLarge { unit, .. } => format!("too many {unit}"),
        other => other.to_string(),
    }
}

#[test]
#[ignore = "needs a folder of schemas"]
#[expect(clippy::print_stdout, reason = "a report")]
fn structure_s15_real_schemas() {
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut times, mut states) = (Vec::new(), Vec::new());
    let (mut valid, mut accepted, mut narrowed, mut invalid, mut drawn) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    let lines = lines();
    for line in &lines {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = &case["name"];
        let constraint = Constraint::new(Language::JsonSchema(source(line).to_owned()));
        let start = Instant::now();
        let made = constraint.compile();
        times.push(start.elapsed());
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                *refused.entry(reason(error)).or_default() += 1;
                continue;
            }
        };
        states.push(made.automaton.states());
        for test in case["tests"].as_array().unwrap() {
            let there = has(&made.automaton, &test["data"]);
            if test["valid"] == true {
                valid += 1;
                accepted += usize::from(there);
                narrowed += usize::from(!there && !made.narrowed.is_empty());
            } else {
                invalid += 1;
                if there {
                    wrong.push(format!("{name} has {}", test["data"]));
                }
            }
        }
        let validator = Validator::new(&case["schema"]);
        let mut draws = Draws(1);
        for round in 0..20 {
            let text = String::from_utf8(draw(&made.automaton, [0, 20, 100, 400][round % 4], &mut draws)).unwrap();
            drawn += 1;
            if !serde_json::from_str(&text).is_ok_and(|value| validator.is_valid(&value)) {
                wrong.push(format!("{name} has {text}"));
            }
        }
    }
    times.sort();
    states.sort_unstable();
    println!("{} schemas, {} supported; refused: {refused:?}", lines.len(), states.len());
    println!("{valid} valid instances: {accepted} there, {narrowed} where something is narrowed");
    println!("{invalid} invalid instances and {drawn} texts: {} wrong", wrong.len());
    let at = |tenths: usize| times[(times.len() - 1) * tenths / 10];
    println!("time: {:?} at the median, {:?} at the ninth decile, {:?} at most", at(5), at(9), at(10));
    let at = |tenths: usize| states[(states.len() - 1) * tenths / 10];
    println!("states: {} at the median, {} at the ninth decile, {} at most", at(5), at(9), at(10));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(accepted + narrowed, valid, "a valid instance is not there, and nothing is listed");
}
