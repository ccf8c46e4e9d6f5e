//! Any bytes as `config.json` and `generation_config.json`: an architecture or an error of one line.
#![no_main]

use demask_checkpoint::{GenerationConfig, parse_config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match parse_config(text, "config.json") {
        // What was let through can be computed with.
        Ok(config) => drop((config.spec.parameters(), config.spec.rope.inverse_frequencies())),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
    if let Err(error) = GenerationConfig::parse(text, "generation_config.json") {
        assert!(!error.to_string().contains('\n'));
    }
});
