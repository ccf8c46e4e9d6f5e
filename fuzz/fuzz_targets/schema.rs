//! Any text as a JSON schema, with a byte that chooses the steps through its automaton: texts that another program finds
//! valid, or an error of one line.
#![no_main]

use demask_decode::constraint::{ByteAutomaton, Constraint, Language};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A text of the language: for a while any byte that goes on, as `steps` chooses, then the shortest way to an end.
fn walk(automaton: &ByteAutomaton, steps: &[u8]) -> Vec<u8> {
    let mut state = automaton.start();
    let mut text = Vec::new();
    let mut steps = steps.iter().copied();
    loop {
        let step = steps.next();
        if automaton.accepts(state) && step.is_none_or(|step| step >= 128) {
            return text;
        }
        let distance = automaton.distance(state);
        let goes = |byte: u8| automaton.next(state, byte).map(|to| (byte, to));
        let on: Vec<_> =
            (0..=255).filter_map(goes).filter(|of| step.is_some() || automaton.distance(of.1) < distance).collect();
        if on.is_empty() {
            return text;
        }
        let (byte, to) = on[usize::from(step.unwrap_or(0)) % on.len()];
        text.push(byte);
        state = to;
    }
}

fuzz_target!(|input: (&str, [u8; 24])| {
    let (schema, steps) = input;
    match Constraint::new(Language::JsonSchema(schema.to_owned())).compile() {
        Ok(made) => {
            let text = walk(&made.automaton, &steps);
            let value: Value = serde_json::from_slice(&text).expect("the automaton's texts are JSON");
            let schema: Value = serde_json::from_str(schema).expect("the schema was read");
            // Schemas that the other program does not take say nothing of ours.
            let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
            if let Ok(validator) = options.build(&schema) {
                assert!(validator.is_valid(&value), "{schema} has {value}");
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error:?}"),
    }
});
