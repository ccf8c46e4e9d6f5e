//! Any bytes as the data file of every task: problems that can be worded and judged, or an error of one line.
#![no_main]

use std::{fs, path::PathBuf, sync::LazyLock};

use demask_checkpoint::HubOptions;
use demask_eval::{
    data::{self, DataOptions},
    tasks::TASKS,
};
use libfuzzer_sys::fuzz_target;

/// Readers take files, so there is one for this process.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("demask-fuzz-{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    fs::write(&*FILE, bytes).expect("a temporary file");
    let hub = HubOptions::new("", "");
    for task in TASKS.iter() {
        let options = DataOptions { file: Some(&FILE), subject: None, seed: 0, hub: &hub };
        match data::load(task, &options, &mut |_| true) {
            Ok(problems) => {
                for (problem, style) in
                    problems.iter().flat_map(|problem| task.styles.iter().map(move |it| (problem, it)))
                {
                    for words in [style.ask(problem), style.solve(problem)] {
                        match words {
                            Ok(words) => drop(style.rule.judge(problem, &words)),
                            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
                        }
                    }
                }
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
});
