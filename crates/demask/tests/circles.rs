//! Inside of a crate, files import downwards only: types in leaves, lists at the top. Modules of tests are left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Crates whose files import each other in no circle.
const HELD: &[&str] = &["checkpoint", "decode", "demask", "engine", "model", "serve", "step", "tensor"];

#[test]
fn no_files_import_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in HELD {
        let found = Sources::read(&crates.join(name).join("src")).circles();
        assert!(found.is_empty(), "{name}: {found:?} import each other: move what both need into a leaf");
    }
}

#[test]
fn a_circle_is_found_through_a_list_of_names() {
    let sources = |files: &[(&str, &str)]| Sources {
        files: files.iter().map(|&(module, text)| (path(module), text.to_owned())).collect(),
    };
    let list = "mod a;\nmod b;\npub use a::First;\npub use b::Second;\n";
    let a = ("a", "use crate::Second;\npub struct First(Second);\n");
    let circle = sources(&[("", list), a, ("b", "use super::{First as Other};\npub struct Second;\n")]);
    assert_eq!(circle.circles(), [[path("a"), path("b")].into()]);
    let down = sources(&[("", list), a, ("b", "pub struct Second;\n#[cfg(test)]\nmod tests { use crate::First; }\n")]);
    assert!(down.circles().is_empty(), "what tests import does not count");
}

/// Path of a module from the root of its crate.
type Module = Vec<String>;

fn path(module: &str) -> Module {
    module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The files of a crate, by their modules.
struct Sources {
    files: BTreeMap<Module, String>,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let file = entry.unwrap().path();
                if file.is_dir() {
                    folders.push(file);
                } else if file.extension().is_some_and(|end| end == "rs") && !is_of_tests(&file) {
                    let text = fs::read_to_string(&file).unwrap();
                    files.insert(module_of(root, &file), text);
                }
            }
        }
        Self { files }
    }

    /// Groups of files that reach each other by imports.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let arrows: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.iter().map(|(module, text)| (module, self.imports(module, text))).collect();
        let reach = |from: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                next.extend(arrows[&module].iter().filter(|to| seen.insert((*to).clone())).cloned());
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, reach(module))).collect();
        let mut circles: Vec<BTreeSet<Module>> = Vec::new();
        for module in self.files.keys().filter(|module| reached[module].contains(*module)) {
            let circle =
                self.files.keys().filter(|other| reached[module].contains(*other) && reached[other].contains(module));
            let circle: BTreeSet<Module> = circle.cloned().collect();
            if !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }

    /// Files whose names a file imports. Lists of names ([`pub use`]) import nothing themselves.
    fn imports(&self, module: &Module, text: &str) -> BTreeSet<Module> {
        let mut imports = BTreeSet::new();
        for (_, import) in uses(text).into_iter().filter(|(is_public, _)| !is_public) {
            imports.extend(self.definer(module, &import, 0));
        }
        for import in inline_paths(text) {
            imports.extend(self.definer(module, &import, 0));
        }
        imports.remove(module);
        imports
    }

    /// The file that defines a name; none of another crate.
    fn definer(&self, module: &Module, import: &[String], depth: usize) -> Option<Module> {
        let mut at = match import.first()?.as_str() {
            "crate" => Module::new(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            "self" => module.clone(),
            first if self.files.contains_key(&[&module[..], &[first.to_owned()]].concat()) => module.clone(),
            _ => return None,
        };
        let skipped = usize::from(["crate", "super", "self"].contains(&import[0].as_str()));
        let mut rest = &import[skipped..];
        while let Some((first, others)) = rest.split_first() {
            if first == "super" {
                at.pop();
            } else if self.files.contains_key(&[&at[..], std::slice::from_ref(first)].concat()) {
                at.push(first.clone());
            } else {
                break;
            }
            rest = others;
        }
        let Some(name) = rest.first() else { return Some(at) };
        let text = self.files.get(&at)?;
        if depth < 8 && !defines(text, name) {
            let renamed = uses(text).into_iter().find(|(_, path)| path.last() == Some(name) && path[..] != *import);
            if let Some(found) = renamed.and_then(|(_, path)| self.definer(&at, &path, depth + 1)) {
                return Some(found);
            }
        }
        Some(at)
    }
}

fn is_of_tests(file: &Path) -> bool {
    let folders = file.components().any(|part| part.as_os_str() == "tests");
    folders || file.file_stem().is_some_and(|stem| stem == "tests")
}

fn module_of(root: &Path, file: &Path) -> Module {
    let inside: PathBuf = file.strip_prefix(root).unwrap().with_extension("");
    let mut module: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        module.pop();
    }
    module
}

/// A file's code without comments and without its module of tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths that a file imports, and whether it passes their names on.
fn uses(text: &str) -> Vec<(bool, Vec<String>)> {
    let code = code(text);
    let mut found = Vec::new();
    for statement in code.split(';') {
        let start = statement.rfind("\nuse ").map(|at| at + 1).or(statement.starts_with("use ").then_some(0));
        let public = statement.rfind("\npub").map(|at| at + 1).or(statement.starts_with("pub").then_some(0));
        let public = public.filter(|&at| statement[at..].split("use ").next().is_some_and(|head| head.len() < 24));
        let (is_public, at) = match (start, public) {
            (_, Some(at)) if statement[at..].contains("use ") => (true, at),
            (Some(at), _) => (false, at),
            _ => continue,
        };
        let Some((_, tree)) = statement[at..].split_once("use ") else { continue };
        let mut paths = Vec::new();
        expand("", tree.trim(), &mut paths);
        found.extend(paths.into_iter().map(|path| (is_public, path)));
    }
    found
}

/// Appends the paths of a tree of imports.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        let parts = format!("{prefix}{name}");
        paths.push(parts.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect());
        return;
    };
    let (prefix, body) = (format!("{prefix}{}", head.trim()), body.trim_end().trim_end_matches('}'));
    let (mut depth, mut part) = (0, String::new());
    for letter in body.chars().chain([',']) {
        match letter {
            ',' if depth == 0 => {
                if !part.trim().is_empty() {
                    expand(&prefix, &part, paths);
                }
                part.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        part.push(letter);
    }
}

/// Paths from the crate's root or the module above that code names without importing them.
fn inline_paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
    let lines = code.lines().filter(|line| !line.contains("pub(in") && !line.trim_start().starts_with("use "));
    let mut found = Vec::new();
    for line in lines {
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start) {
                let is_whole = line[..at]
                    .chars()
                    .next_back()
                    .is_none_or(|before| !(before.is_alphanumeric() || "_$:".contains(before)));
                let path: String =
                    line[at..].chars().take_while(|&c| c.is_alphanumeric() || c == '_' || c == ':').collect();
                if is_whole {
                    found.push(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
                }
            }
        }
    }
    found
}

/// Reports whether a file defines a name.
fn defines(text: &str, name: &str) -> bool {
    let code = code(text);
    let words = ["struct", "enum", "trait", "fn", "type", "static", "const", "union", "mod"];
    let is_it = |at: usize, word: &str| {
        let rest = &code[at + word.len() + 1..];
        rest.strip_prefix(name).is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    words.iter().any(|word| code.match_indices(&format!("{word} ")).any(|(at, _)| is_it(at, word)))
}
