//! The arrows between crates are those of `docs/architecture.md`, and unsafe code stays in its three rooms.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

/// Who may depend on whom.
const ARROWS: &[(&str, &[&str])] = &[
    ("demask-step", &[]),
    ("demask-tensor", &[]),
    ("demask-cpu", &["demask-tensor"]),
    ("demask-cuda", &["demask-tensor"]),
    ("demask-model", &["demask-step", "demask-tensor"]),
    ("demask-checkpoint", &["demask-model", "demask-tensor"]),
    ("demask-decode", &["demask-step"]),
    (
        "demask",
        &[
            "demask-step",
            "demask-tensor",
            "demask-cpu",
            "demask-cuda",
            "demask-model",
            "demask-checkpoint",
            "demask-decode",
        ],
    ),
    ("demask-eval", &["demask"]),
    ("demask-cli", &["demask", "demask-eval"]),
    ("demask-testkit", &["demask-step"]),
];

/// Crates whose job needs unsafe code: buffers, kernels.
const MAY_BE_UNSAFE: &[&str] = &["demask-tensor", "demask-cpu", "demask-cuda"];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
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
            let testkit = target == "demask-testkit" && dependency["kind"] == "dev";
            assert!(!ours || testkit || allowed.contains(&target), "{name} -> {target} is not drawn");
        }
    }
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
            if kinds.iter().any(|kind| kind == "lib" || kind == "bin") {
                let source = std::fs::read_to_string(target["src_path"].as_str().unwrap()).unwrap();
                assert!(source.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
            }
        }
    }
}

#[test]
fn every_crate_has_its_line_in_the_architecture() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/architecture.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (name, _) in ARROWS {
        let short = name.strip_prefix("demask-").unwrap_or(name);
        assert!(page.contains(&format!("| `{short}` |")), "docs/architecture.md has no line for {short}");
    }
}
