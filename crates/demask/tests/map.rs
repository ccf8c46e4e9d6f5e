//! `docs/map.md` lists every source file of every crate with the first sentence that it says of itself.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use crate::{arrows::ARROWS, invariants_list::sources};

const HEAD: &str = "\
# Map

Every source file, with the first sentence of its own documentation; a folder's is that of its `mod.rs`. Crates stand in
the order in which they depend on each other (`docs/architecture.md` says why), tests are left out. Written from the
files: `DEMASK_BLESS=1 cargo test --release --workspace --locked --test all map::` writes it anew.
";

/// A sentence of fewer words repeats the file's name.
const WORDS: usize = 4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the first sentence of a file's documentation, without its end and without links.
fn first_sentence(source: &str) -> Option<String> {
    let lines = source.lines().skip_while(|line| line.starts_with("#![")).map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = lines.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = without_links(&lines.join(" "));
    // What ends inside of a sentence is followed by a small letter or a number: "et al. 2021".
    let end = text.match_indices(". ").map(|(end, _)| end);
    let end = end
        .into_iter()
        .find(|end| text[end + 2..].starts_with(|first: char| !first.is_lowercase() && !first.is_numeric()));
    let sentence = text[..end.unwrap_or(text.len())].trim_end_matches(['.', ':']);
    (sentence.split(' ').count() >= WORDS).then(|| sentence.replace('|', "\\|"))
}

/// Replaces links to items by what they show.
fn without_links(text: &str) -> String {
    let (mut rest, mut shown) = (text, String::new());
    while let Some((before, (name, after))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once(']')?)))
    {
        shown += before;
        shown += name;
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, behind)| behind);
    }
    shown + rest
}

/// Returns a file's place in the sources of its crate as the page has it, and what it is sorted by: the crate's root
/// first, a folder before its files.
fn place(file: &Path) -> (bool, String) {
    let file = file.to_string_lossy().into_owned();
    match file.strip_suffix("mod.rs") {
        Some(folder) => (true, folder.to_owned()),
        None => (!["lib.rs", "main.rs"].contains(&file.as_str()), file),
    }
}

/// Writes the section of a crate.
fn section(folder: &str, page: &mut String, mute: &mut Vec<String>) {
    let sources_of = root().join("crates").join(folder).join("src");
    let manifest = fs::read_to_string(sources_of.with_file_name("Cargo.toml")).unwrap();
    let about = manifest.lines().find_map(|line| line.strip_prefix("description = ")).unwrap();
    write!(page, "\n## {folder}\n\n{}.\n\n| file | what it is |\n|---|---|\n", about.trim_matches('"')).unwrap();
    let mut files = Vec::new();
    sources(&sources_of, &mut files);
    let mut rows: Vec<_> = files
        .iter()
        .map(|file| (place(file.strip_prefix(&sources_of).unwrap()), file))
        .filter(|((_, name), _)| !name.ends_with("tests.rs") && !name.contains("tests/"))
        .collect();
    rows.sort();
    for ((_, name), file) in rows {
        match first_sentence(&fs::read_to_string(file).unwrap()) {
            Some(sentence) => writeln!(page, "| `{name}` | {sentence} |").unwrap(),
            None => mute.push(format!("{folder}/src/{name}")),
        }
    }
}

#[test]
fn the_map_has_every_file_with_its_first_sentence() {
    let (mut page, mut mute) = (HEAD.to_owned(), Vec::new());
    for (name, _) in ARROWS {
        section(name.strip_prefix("demask-").unwrap_or(name), &mut page, &mut mute);
    }
    assert!(
        mute.is_empty(),
        "files that say less than {WORDS} words of themselves in their first //! lines: {mute:#?}"
    );
    let path = root().join("docs/map.md");
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(page.lines()).find(|(found, made)| found != made);
    assert!(found == page, "docs/map.md differs, first in {differs:?}: run again with DEMASK_BLESS=1");
}

#[test]
fn a_first_sentence_is_found_where_it_ends() {
    let sentence = |text: &str| first_sentence(text).unwrap_or_default();
    assert_eq!(
        sentence("#![allow(x)]\n//! GSM8K (Cobbe et al. 2021): sums\n//! for [`Task`]s. More.\n"),
        "GSM8K (Cobbe et al. 2021): sums for `Task`s"
    );
    assert_eq!(sentence("//! A [name](crate::b) in a list:\n//!\n//! no more"), "A name in a list");
    assert_eq!(sentence("//! Which of `a | b` it is\nuse x;\n//! never"), "Which of `a \\| b` it is");
    assert_eq!([sentence("//! Heat maps."), sentence("use x;\n//! Too late to say it.")], ["", ""]);
    assert!(place(Path::new("lib.rs")) < place(Path::new("a.rs")));
    assert!(place(Path::new("a/mod.rs")) < place(Path::new("a/a.rs")));
}
