//! Any bytes as a results directory, `outline.json` and `results.jsonl` behind a zero: a report, or an error of one line.
#![no_main]

use std::{fs, path::PathBuf, sync::LazyLock};

use demask_eval::{
    report::{self, OUTLINE},
    run::RESULTS,
};
use libfuzzer_sys::fuzz_target;

/// Readers take directories, so there is one for this process.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("demask-fuzz-results-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a temporary directory");
    path
});

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    for name in [OUTLINE, RESULTS] {
        fs::write(DIRECTORY.join(name), parts.next().unwrap_or_default()).expect("a temporary file");
    }
    match report::join(&[DIRECTORY.clone()], None) {
        Ok(evaluation) => match report::summarise(&evaluation) {
            Ok(rows) => drop(rows),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        },
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
