//! The arrows between crates are those of `docs/architecture.md`, unsafe code stays in its rooms, and no file of tests is
//! left out of the binaries.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Allowed dependencies between crates.
const ARROWS: &[(&str, &[&str])] = &[
    ("demask-settings", &[]),
    ("demask-step", &[]),
    ("demask-tensor", &["demask-step"]),
    ("demask-cpu", &["demask-step", "demask-tensor"]),
    ("demask-measure", &["demask-step", "demask-tensor", "demask-cpu"]),
    ("demask-cuda", &["demask-step", "demask-tensor"]),
    ("demask-cuda-emulator", &["demask-cuda", "demask-step"]),
    ("demask-model", &["demask-step", "demask-tensor"]),
    ("demask-checkpoint", &["demask-step", "demask-model", "demask-tensor"]),
    ("demask-decode", &["demask-settings", "demask-step"]),
    ("demask-engine", &["demask-decode", "demask-step"]),
    (
        "demask",
        &[
            "demask-settings",
            "demask-step",
            "demask-tensor",
            "demask-cpu",
            "demask-measure",
            "demask-cuda",
            "demask-model",
            "demask-checkpoint",
            "demask-decode",
            "demask-engine",
        ],
    ),
    ("demask-figures", &[]),
    (
        "demask-eval",
        &[
            "demask",
            "demask-checkpoint",
            "demask-decode",
            "demask-engine",
            "demask-figures",
            "demask-settings",
            "demask-step",
        ],
    ),
    ("demask-serve", &["demask", "demask-settings"]),
    ("demask-terminal", &["demask", "demask-settings"]),
    ("demask-cli", &["demask", "demask-serve", "demask-settings", "demask-terminal"]),
    (
        "demask-lab",
        &[
            "demask",
            "demask-checkpoint",
            "demask-cpu",
            "demask-cuda",
            "demask-decode",
            "demask-eval",
            "demask-figures",
            "demask-measure",
            "demask-model",
            "demask-settings",
            "demask-step",
            "demask-tensor",
            "demask-terminal",
        ],
    ),
    // An example of what an author writes: it has what is public alone.
    ("demask-own", &["demask", "demask-cli", "demask-lab"]),
    ("demask-python", &["demask", "demask-eval", "demask-serve", "demask-settings"]),
    ("demask-testkit", &["demask-decode", "demask-step"]),
];

/// Crates that only tests depend on.
const FOR_TESTS: &[&str] = &["demask-testkit", "demask-cuda-emulator"];

/// Crates whose job needs unsafe code: buffers, kernels, and what runs these in tests.
const MAY_BE_UNSAFE: &[&str] =
    &["demask-tensor", "demask-cpu", "demask-measure", "demask-cuda", "demask-cuda-emulator", "demask-testkit"];

fn metadata() -> Value {
    metadata_in(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// Metadata of cargo for a folder: the default members depend on it.
fn metadata_in(folder: &Path) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(folder)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packages(metadata: &Value) -> Vec<&Value> {
    metadata["packages"].as_array().unwrap().iter().collect()
}

#[test]
fn crates_depend_only_as_drawn() {
    let metadata = metadata();
    let drawn: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for package in packages(&metadata) {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = drawn.get(name) else { panic!("{name} is not drawn: add it to the architecture first") };
        for dependency in package["dependencies"].as_array().unwrap() {
            let target = dependency["name"].as_str().unwrap();
            let ours = drawn.contains_key(target);
            let for_tests = FOR_TESTS.contains(&target) && dependency["kind"] == "dev";
            assert!(!ours || for_tests || allowed.contains(&target), "{name} -> {target} is not drawn");
        }
    }
}

/// Plain `cargo build` and `cargo run` are for whoever has no Python.
#[test]
fn all_but_the_python_extension_are_built_unless_somebody_asks() {
    let metadata = metadata_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let all = |key: &str| -> BTreeSet<String> {
        metadata[key].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    let left_out: Vec<String> =
        all("workspace_members").difference(&all("workspace_default_members")).cloned().collect();
    assert!(matches!(&left_out[..], [one] if one.contains("crates/python")), "{left_out:?}");
}

/// Every package that a program is built of.
fn built_of(package: &str) -> BTreeSet<String> {
    let tree = ["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{lib}"];
    let output = Command::new(env!("CARGO"))
        .args([&tree[..], &["--offline", "--locked"]].concat())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_users_program_is_built_without_what_evaluates_and_draws_and_the_laboratorys_without_a_server() {
    let (user, laboratory) = (built_of("demask-cli"), built_of("demask-lab"));
    let mut evaluates = vec!["demask_eval", "demask_figures", "parquet", "plotters"];
    if cfg!(target_os = "linux") {
        evaluates.extend(["landlock", "seccompiler"]);
    }
    for package in evaluates {
        assert!(laboratory.contains(package) && !user.contains(package), "{package}");
    }
    for package in ["demask_serve", "hyper"] {
        assert!(user.contains(package) && !laboratory.contains(package), "{package}");
    }
    assert!(["demask", "demask_terminal"].iter().all(|both| user.contains(*both) && laboratory.contains(*both)));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let metadata = metadata();
    for package in packages(&metadata) {
        let name = package["name"].as_str().unwrap();
        if MAY_BE_UNSAFE.contains(&name) {
            continue;
        }
        for target in package["targets"].as_array().unwrap() {
            let kinds = target["kind"].as_array().unwrap();
            if kinds.iter().any(|kind| kind == "lib" || kind == "bin" || kind == "cdylib") {
                let source = fs::read_to_string(target["src_path"].as_str().unwrap()).unwrap();
                assert!(source.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
            }
        }
    }
}

#[test]
fn every_crate_has_its_line_in_the_architecture() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/architecture.md");
    let page = fs::read_to_string(page).unwrap();
    for (name, _) in ARROWS {
        let short = name.strip_prefix("demask-").unwrap_or(name);
        assert!(page.contains(&format!("| `{short}` |")), "docs/architecture.md has no line for {short}");
    }
}

/// Files that a source file includes, as it names them.
fn included(source: &str) -> Vec<&str> {
    let calls = ["include_str!(", "include_bytes!("].into_iter().flat_map(|call| source.split(call).skip(1));
    calls
        .filter_map(|rest| rest.strip_prefix("concat!(").unwrap_or(rest).strip_prefix('"')?.split('"').next())
        .collect()
}

/// A package is built from what lies below its manifest, wherever it was published.
#[test]
fn no_package_includes_a_file_of_another_one() {
    let metadata = metadata();
    let mut seen = 0;
    for package in packages(&metadata) {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let mut files = BTreeSet::new();
        add_files(&folder.join("src"), &mut files);
        for file in files {
            for name in included(&fs::read_to_string(&file).unwrap()) {
                let parent = fs::canonicalize(file.with_file_name(name).parent().unwrap()).unwrap();
                assert!(parent.starts_with(folder), "{} includes {name}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "only {seen} files are included");
}

/// Whoever publishes one crate must be able to publish what it is built of.
#[test]
fn every_package_but_those_for_tests_can_be_published() {
    let metadata = metadata();
    for package in packages(&metadata) {
        let name = package["name"].as_str().unwrap();
        // The suites of testkit are for the methods of others, too. What is Python's goes to Python's registry, as a wheel.
        // An example is read and copied.
        let kept = ["demask-cuda-emulator", "demask-own", "demask-python"].contains(&name);
        let why = "publish = false is for our tests, and for what is published elsewhere";
        assert_eq!(package["publish"].as_array().is_some(), kept, "{name}: {why}");
        if kept {
            continue;
        }
        for field in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            assert!(package[field].as_array().is_some_and(|list| !list.is_empty()), "{name} has no {field}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let unversioned = dependency["path"].is_string() && dependency["req"] == "*";
            assert!(!unversioned || dependency["kind"] == "dev", "{name} -> {}: no version", dependency["name"]);
        }
    }
}

/// A file and all modules below it. A root's modules, and those of a file that is named by its path, stand beside it.
fn add_modules(file: &Path, beside: bool, found: &mut BTreeSet<PathBuf>) {
    let file = fs::canonicalize(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (folder, stem) = (file.parent().unwrap(), file.file_stem().unwrap());
    let below = if beside || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
    let mut named = None;
    for line in fs::read_to_string(&file).unwrap().lines() {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            named = Some(folder.join(path));
        } else if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            let files = [below.join(format!("{name}.rs")), below.join(name).join("mod.rs")];
            match named.take() {
                Some(path) => add_modules(&path, true, found),
                None => add_modules(files.iter().find(|path| path.exists()).unwrap_or(&files[0]), false, found),
            }
        }
    }
    found.insert(file);
}

/// Every file of Rust below a folder.
fn add_files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(fs::canonicalize(path).unwrap());
        }
    }
}

/// Manifests list their tests: a file that nobody names would never be compiled, and nothing would tell.
#[test]
fn every_file_of_tests_is_compiled() {
    let metadata = metadata();
    let (mut compiled, mut there) = (BTreeSet::new(), BTreeSet::new());
    for package in packages(&metadata) {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        add_files(&manifest.with_file_name("tests"), &mut there);
        for target in package["targets"].as_array().unwrap().iter().filter(|target| target["kind"][0] == "test") {
            add_modules(Path::new(target["src_path"].as_str().unwrap()), true, &mut compiled);
        }
    }
    let left_out: Vec<_> = there.difference(&compiled).collect();
    assert!(there.len() > 50 && left_out.is_empty(), "in no test's binary: {left_out:?}");
}
