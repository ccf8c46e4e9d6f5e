//! Any text as a file of runs, a recipe: rows and tasks, or an error of one line that names a line of it.
#![no_main]

use std::path::Path;

use demask_eval::run::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Spec::parse(Path::new("runs.toml"), text, Some("demo-llada")) {
        Ok(spec) => assert!(!spec.rows.is_empty() && !spec.tasks.is_empty()),
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("runs.toml, line ") && !error.contains('\n'), "{error:?}");
        }
    }
});
