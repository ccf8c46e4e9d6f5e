//! Any text as a regular expression, and its lines as choices: an automaton whose texts are UTF-8, or an error of one line.
#![no_main]

use demask_decode::constraint::{ByteAutomaton, Constraint, Language};
use libfuzzer_sys::fuzz_target;

/// The shortest text, which the automaton has as it is said to.
fn shortest(automaton: &ByteAutomaton) -> Vec<u8> {
    let mut state = automaton.start();
    let mut text = Vec::new();
    while !automaton.accepts(state) {
        let distance = automaton.distance(state);
        let nearer = (0..=255).find_map(|byte| {
            let to = automaton.next(state, byte)?;
            (automaton.distance(to) < distance).then_some((byte, to))
        });
        let (byte, to) = nearer.expect("a live state has a byte that leads on");
        text.push(byte);
        state = to;
    }
    text
}

fuzz_target!(|text: &str| {
    let choices = text.lines().map(str::to_owned).collect();
    for language in [Language::Regex(text.to_owned()), Language::Choice(choices)] {
        match Constraint::new(language).compile() {
            Ok(made) => {
                let text = shortest(&made.automaton);
                assert!(made.automaton.contains(&text));
                assert!(std::str::from_utf8(&text).is_ok(), "{text:?}");
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error:?}"),
        }
    }
});
