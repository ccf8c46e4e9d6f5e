//! `docs/invariants.md` lists every invariant of the specifications with its tests: no label is missing or named twice,
//! every named test is there and is a test, and every test that carries a label is named with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Specifications, their sections of required tests, and the labels in them: a letter and how many there are.
const LABELS: &[(&str, &[(char, usize)])] = &[
    ("freedave", &[('i', 18)]),
    ("caches", &[('t', 11), ('f', 12), ('k', 10), ('s', 5), ('x', 10)]),
    ("flashdlm", &[('i', 12), ('g', 11)]),
    ("structure", &[('s', 18)]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All labels, as `freedave_i1`.
pub(crate) fn labels() -> BTreeSet<String> {
    let of = |&(specification, letters): &(&str, &'static [(char, usize)])| {
        let specification = specification.to_owned();
        letters.iter().flat_map(move |&(letter, count)| {
            let specification = specification.clone();
            (1..=count).map(move |number| format!("{specification}_{letter}{number}"))
        })
    };
    LABELS.iter().flat_map(of).collect()
}

/// The labels that a test's name begins with.
fn labels_of(name: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut words = name.split('_');
    let specification = words.next().unwrap_or_default();
    words.map(|word| format!("{specification}_{word}")).take_while(|label| known.contains(label)).collect()
}

/// Every file of Rust below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of the functions that carry `#[test]`, in `proptest!` too.
fn tests_in(source: &str) -> Vec<String> {
    let mut tests = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
            tests.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            marked = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            marked = false;
        }
    }
    tests
}

/// Tests with labels, by file (from the folder of crates on): `decode/tests/dkv.rs`.
fn labelled_tests(known: &BTreeSet<String>) -> BTreeSet<(String, String)> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    sources(&crates, &mut files);
    let mut found = BTreeSet::new();
    for path in files {
        let file = path.strip_prefix(&crates).unwrap().to_string_lossy().into_owned();
        for test in tests_in(&fs::read_to_string(&path).unwrap()) {
            if !labels_of(&test, known).is_empty() {
                assert!(found.insert((file.clone(), test.clone())), "{file} has {test} twice");
            }
        }
    }
    found
}

/// A row of the page: a label, what it says, and its tests as (file, name), or the reason why there is none.
struct Row {
    label: String,
    tests: Vec<(String, String)>,
    reason: bool,
}

fn rows(page: &str) -> Vec<Row> {
    let mut specification = "";
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            specification = LABELS.iter().map(|of| of.0).find(|name| heading.starts_with(name)).unwrap_or("");
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, label, says, tests, _] = cells[..] else { continue };
        if specification.is_empty() || label == "label" || label.starts_with("--") {
            continue;
        }
        assert!(!says.is_empty(), "{specification} {label} says nothing");
        let named = tests.split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"));
        let tests: Vec<_> = named.map(|(file, name)| (file.to_owned(), name.to_owned())).collect();
        let reason = cells[3].starts_with("cannot apply: ");
        rows.push(Row { label: format!("{specification}_{}", label.to_lowercase()), tests, reason });
    }
    rows
}

fn page() -> String {
    fs::read_to_string(root().join("docs/invariants.md")).unwrap()
}

#[test]
fn every_label_is_listed_once() {
    let known = labels();
    assert_eq!(known.len(), 107);
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows(&page()) {
        *listed.entry(row.label.clone()).or_default() += 1;
        assert!(row.reason == row.tests.is_empty(), "{} needs tests, or `cannot apply: ` and a reason", row.label);
    }
    for (label, count) in &listed {
        assert!(known.contains(label), "{label} is no label of the specifications");
        assert_eq!(*count, 1, "{label} is listed {count} times");
    }
    let missing: Vec<_> = known.iter().filter(|label| !listed.contains_key(*label)).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
}

#[test]
fn listed_tests_are_the_tests_that_carry_the_label() {
    let known = labels();
    let there = labelled_tests(&known);
    let mut listed = BTreeSet::new();
    for row in rows(&page()) {
        for test in row.tests {
            assert!(there.contains(&test), "{}: {}::{} is not there, or no test", row.label, test.0, test.1);
            assert!(labels_of(&test.1, &known).contains(&row.label), "{} does not carry {}", test.1, row.label);
            assert!(listed.insert((row.label.clone(), test.clone())), "{} names {} twice", row.label, test.1);
        }
    }
    let carried =
        there.iter().flat_map(|test| labels_of(&test.1, &known).into_iter().map(|label| (label, test.clone())));
    let missing: Vec<String> = carried
        .filter(|of| !listed.contains(of))
        .map(|(label, (file, name))| format!("{label}: `{file}::{name}`"))
        .collect();
    assert!(missing.is_empty(), "not listed:\n{}", missing.join("\n"));
}

/// The list is only worth what these two notice.
#[test]
fn labels_and_tests_are_recognised() {
    let known = labels();
    assert_eq!(labels_of("caches_t1_k1_x1_refreshed_i1", &known), ["caches_t1", "caches_k1", "caches_x1"]);
    assert!(labels_of("caches_t12_and", &known).is_empty() && labels_of("freedave_block_i1", &known).is_empty());
    let source =
        "#[test]\nfn one() {}\nfn two() {}\n#[test]\n// why\n#[ignore]\nfn three(case in cases()) {\n#[test]\nlet x";
    assert_eq!(tests_in(source), ["one", "three"]);
}
