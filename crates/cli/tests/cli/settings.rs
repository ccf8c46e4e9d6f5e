//! Settings are declared once: no other line of the sources repeats a default or a bound beside the setting's name.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use demask::{LoadOptions, Options, Settings};
use demask_serve::ServeOptions;
use demask_settings::Field;

use crate::harness::project;

/// Files of the declarations.
const DECLARED: [&str; 3] =
    ["crates/demask/src/load_options.rs", "crates/demask/src/options.rs", "crates/serve/src/options.rs"];
/// Numbers up to this one are beside anything.
const COMMON: u64 = 2;

/// The numbers of a declaration that nothing else has by chance.
fn numbers_of(field: &Field) -> BTreeSet<u64> {
    let default = (field.default)().and_then(|value| value.as_u64());
    let bounds = [field.bounds.0, field.bounds.1].into_iter().filter(|&bound| bound != u64::MAX);
    default.into_iter().chain(bounds).filter(|&number| number > COMMON).collect()
}

/// All whole numbers in a line, `1 << 20` and `4_096` as what they are.
fn numbers_in(line: &str) -> BTreeSet<u64> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    let number = |word: &str| word.trim_end_matches('.').replace('_', "").parse::<u64>().ok();
    let words: Vec<&str> =
        line.split(|letter| !is_part(letter) && letter != '<').filter(|word| !word.is_empty()).collect();
    let shifted = words
        .windows(3)
        .filter(|three| three[1] == "<<")
        .filter_map(|three| number(three[0])?.checked_shl(u32::try_from(number(three[2])?).ok()?));
    words.iter().filter_map(|word| number(word)).chain(shifted).collect()
}

/// Returns whether a line has a name as a word, in any spelling.
fn names(line: &str, name: &str) -> bool {
    let (line, name) = (line.to_lowercase().replace('-', "_"), name.to_lowercase());
    line.match_indices(&name).any(|(at, _)| {
        let around = [line[..at].chars().next_back(), line[at + name.len()..].chars().next()];
        around.into_iter().flatten().all(|letter| !letter.is_alphabetic())
    })
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        let is_source = path.extension().is_some_and(|ending| ending == "rs" || ending == "py" || ending == "pyi");
        match path.is_dir() {
            true if !is_test => sources(&path, found),
            false if !is_test && is_source => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn no_line_repeats_a_number_of_a_declaration() {
    let fields = [Options::FIELDS, LoadOptions::FIELDS, ServeOptions::FIELDS].concat();
    let declared: Vec<_> = fields.iter().map(|field| (field.name, numbers_of(field))).collect();
    assert!(declared.iter().filter(|(_, numbers)| !numbers.is_empty()).count() > 10, "{declared:?}");
    let root = PathBuf::from(project(""));
    let mut files = Vec::new();
    for package in fs::read_dir(root.join("crates")).unwrap() {
        let folder = package.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    sources(&root.join("python/demask"), &mut files);
    let mut repeated = Vec::new();
    for file in files {
        let place = file.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        if DECLARED.contains(&place.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (index, line) in code.lines().enumerate() {
            let found = numbers_in(line);
            let told = declared.iter().filter(|(name, numbers)| !found.is_disjoint(numbers) && names(line, name));
            repeated.extend(told.map(|(name, _)| format!("{place}:{}: {name}: {}", index + 1, line.trim())));
        }
    }
    assert!(repeated.is_empty(), "read these from their declarations:\n{}", repeated.join("\n"));
}

#[test]
fn numbers_and_names_are_found_in_any_spelling() {
    assert_eq!(numbers_in("port: int = 8080, x = 1 << 24; 65_535."), [1, 24, 8080, 65_535, 1 << 24].into());
    assert_eq!(numbers_in("i64 v1.5 a8080 0x10"), BTreeSet::new());
    assert!(names("--head-timeout 15", "head_timeout") && names("DEMASK_PORT=8080", "port"));
    assert!(!names("import 8080", "port"));
}
