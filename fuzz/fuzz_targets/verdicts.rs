//! Any text as what a model wrote, and its first line as what is right: a verdict in every case.
#![no_main]

use demask_eval::{Gold, Problem, tasks::TASKS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (gold, output) = text.split_once('\n').unwrap_or((text, text));
    let options: Vec<String> = gold.split(' ').map(str::to_owned).collect();
    let golds = [
        Gold::Number(gold.to_owned()),
        Gold::Math(gold.to_owned()),
        Gold::Text(options.clone()),
        Gold::Option(options.len() / 2),
    ];
    for gold in golds {
        let problem = Problem { options: options.clone(), gold, ..Problem::default() };
        for style in TASKS.iter().flat_map(|task| task.styles) {
            let worth = style.rule.judge(&problem, output).worth();
            assert!((0.0..=1.0).contains(&worth));
        }
    }
});
