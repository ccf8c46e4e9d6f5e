//! The pages for people: every link and anchor leads somewhere, the book names every page, and what the code says of a
//! specification is there.
//!
//! A reference in code reads `specs/NAME.md#ID`: a page of `docs/specs/`, and a section (`2.2`), a trap (`trap-7`) or an
//! invariant (`I8`) that carries that id.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::invariants_list::labels;

/// Pages outside of the book that are checked too.
const OTHERS: &[&str] = &["README.md", "CONTRIBUTING.md", "demo/README.md", "golden/README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects the files below a folder that end in one of some ways, as paths from the repository on.
fn files(folder: &str, endings: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            if !path.ends_with("/target") && !path.ends_with("/node_modules") {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| path.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Pages of the book, as paths from the repository on.
fn book() -> Vec<String> {
    let mut pages = Vec::new();
    files("docs", &[".md"], &mut pages);
    pages
}

/// Returns the lines of a page that are text: not those of fenced or indented code.
fn text(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence && !line.starts_with("    ")
    })
}

/// Returns a heading's anchor as GitHub and mdBook make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the anchors of a page: those of its headings and those that it sets. None stands twice.
fn anchors(path: &str, page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut headings: BTreeMap<String, usize> = BTreeMap::new();
    for line in text(page) {
        if line.starts_with('#') {
            let slug = slug(line.trim_start_matches('#'));
            let before = headings.entry(slug.clone()).or_default();
            anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
            *before += 1;
        }
        for id in line.split("<a id=\"").skip(1) {
            let id = id.split('"').next().unwrap();
            assert!(anchors.insert(id.to_owned()), "{path} sets the anchor {id} twice");
        }
    }
    anchors
}

/// Returns the targets of a page's links and pictures, less what stands in code.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text(page) {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for target in prose.split("](").skip(1) {
            found.push(target.split(')').next().unwrap().trim().to_owned());
        }
        for marker in ["src=\"", "href=\""] {
            found.extend(prose.split(marker).skip(1).map(|target| target.split('"').next().unwrap().to_owned()));
        }
    }
    found
}

/// Resolves a path against the folder of a page.
fn beside(page: &str, target: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in Path::new(page).parent().unwrap().join(target).components() {
        match part {
            Component::ParentDir => {
                assert!(parts.pop().is_some(), "{page} links out of the repository: {target}");
            }
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let mut pages = book();
    pages.extend(OTHERS.iter().map(|&path| path.to_owned()));
    let mut dead = Vec::new();
    for page in &pages {
        for link in links(&read(page)) {
            if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { beside(page, path) };
            let there = root().join(&target).exists();
            let known = there && (anchor.is_empty() || anchors(&target, &read(&target)).contains(anchor));
            if !known {
                dead.push(format!("{page}: {link}"));
            }
            if page.starts_with("docs/") && !target.starts_with("docs/") {
                dead.push(format!("{page}: {link} is outside of the book"));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn the_book_names_every_page_once() {
    let mut named: Vec<String> = links(&read("docs/SUMMARY.md")).iter().map(|link| format!("docs/{link}")).collect();
    let mut there: Vec<String> = book().into_iter().filter(|page| page != "docs/SUMMARY.md").collect();
    named.sort();
    there.sort();
    assert_eq!(named, there, "docs/SUMMARY.md names each page of docs/ once");
}

/// References to specifications in the code, its tests and what is generated from them: file, page and id.
fn references() -> Vec<(String, String, String)> {
    let mut sources = Vec::new();
    for folder in ["crates", "python", "bench", "docs", "recipes"] {
        files(folder, &[".rs", ".cu", ".cuh", ".py", ".toml", ".md", ".js"], &mut sources);
    }
    let mut found = Vec::new();
    for file in sources.into_iter().filter(|file| !file.ends_with("/tests/pages.rs")) {
        let text = read(&file);
        for (at, _) in text.match_indices("specs/") {
            let Some((page, rest)) = text[at + "specs/".len()..].split_once('#') else { continue };
            if !page.strip_suffix(".md").is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())) {
                continue;
            }
            let id: String =
                rest.chars().take_while(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).collect();
            found.push((file.clone(), page.to_owned(), id.trim_end_matches('.').to_owned()));
        }
    }
    found
}

#[test]
fn what_the_code_says_of_a_specification_is_there() {
    let references = references();
    let missing: Vec<String> = references
        .iter()
        .filter(|(_, page, id)| {
            let path = format!("docs/specs/{page}");
            !root().join(&path).exists() || !anchors(&path, &read(&path)).contains(id)
        })
        .map(|(file, page, id)| format!("{file}: specs/{page}#{id}"))
        .collect();
    assert!(missing.is_empty(), "references without a place in docs/specs:\n{}", missing.join("\n"));
}

/// A mention in words ("specification" and a page's name) can go stale: it is written as a reference.
#[test]
fn no_mention_of_a_specification_is_in_words() {
    let mut sources = Vec::new();
    files("crates", &[".rs", ".cu", ".cuh"], &mut sources);
    let mut found = Vec::new();
    for file in sources {
        for (number, line) in read(&file).lines().enumerate() {
            let words = line.split("pecification ").skip(1).filter_map(|rest| rest.split([' ', ',', ';', ')']).next());
            if words.into_iter().any(|word| ["models", "caches", "freedave", "flashdlm"].contains(&word)) {
                found.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "write specs/NAME.md#ID instead:\n{}", found.join("\n"));
}

#[test]
fn every_invariant_has_its_place_in_the_specifications() {
    for label in labels() {
        let (page, name) = label.split_once('_').unwrap();
        let path = format!("docs/specs/{page}.md");
        let name = name.to_uppercase();
        assert!(anchors(&path, &read(&path)).contains(&name), "{path} has no {name}");
    }
}

#[test]
fn anchors_are_those_of_the_sites() {
    assert_eq!(slug(" 2.2 One layer, `in` one step"), "22-one-layer-in-one-step");
    let page = "# A b\n```\n# no heading\n```\n## A b\n<a id=\"2.2\"></a>\n[x](y.md#z) `[no](link)`\n";
    assert_eq!(anchors("page", page), BTreeSet::from(["a-b".to_owned(), "a-b-1".to_owned(), "2.2".to_owned()]));
    assert_eq!(links(page), ["y.md#z"]);
    assert_eq!(beside("docs/specs/a.md", "../b.md"), "docs/b.md");
}
