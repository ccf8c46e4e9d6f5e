//! Tells the laboratory, and the extension of Python, which commit they are built from: `DEMASK_COMMIT`, and
//! `DEMASK_CHANGED` where files differ from it. Outside the project's own repository, and without git, neither is set.

use std::{fs, path::Path, process::Command};

/// Output of git in the project's folder; none if it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").arg("-C").arg(root).args(arguments).output().ok().filter(|it| it.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-changed={}", root.join("crates/lab/build.rs").display());
    // A copy inside another repository is none of its commits.
    let is_own = git(&root, &["rev-parse", "--show-cdup"]).is_some_and(|up| up.is_empty());
    let Some(commit) = git(&root, &["rev-parse", "--short=12", "HEAD"]).filter(|_| is_own) else { return };
    // A commit, or a change of what the program is made of, makes another answer.
    for name in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&root, &["rev-parse", "--path-format=absolute", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for sources in crates.map(|entry| entry.path().join("src")).filter(|path| path.is_dir()) {
        println!("cargo::rerun-if-changed={}", sources.display());
    }
    println!("cargo::rustc-env=DEMASK_COMMIT={commit}");
    let changes = git(&root, &["status", "--porcelain", "--untracked-files=no"]);
    println!("cargo::rustc-env=DEMASK_CHANGED={}", changes.is_some_and(|changes| !changes.is_empty()));
}
