//! Texts of an automaton, drawn at random, and the spelling of a given value in it.

use demask_decode::constraint::{ByteAutomaton, ByteState};
use serde_json::Value;

/// A small generator of numbers, the same everywhere.
pub struct Draws(pub u64);

impl Draws {
    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// Draws a text of the language: any byte that goes on for about `length` bytes, then the shortest way to an end.
pub fn draw(automaton: &ByteAutomaton, length: usize, draws: &mut Draws) -> Vec<u8> {
    let mut state = automaton.start();
    let mut text = Vec::new();
    loop {
        let distance = automaton.distance(state);
        let ends = text.len() >= length;
        if automaton.accepts(state) && (ends || draws.below(8) == 0) {
            return text;
        }
        let next = |byte: u8| automaton.next(state, byte).map(|to| (byte, to));
        let mut choices: Vec<(u8, ByteState)> = (0..=255).filter_map(next).collect();
        if ends {
            choices.retain(|&(_, to)| automaton.distance(to) < distance);
        }
        if choices.is_empty() {
            return text;
        }
        // Letters are most of the bytes, signs most of the structure: half of the draws take one of these.
        let signs: Vec<_> = choices.iter().copied().filter(|of| !of.0.is_ascii_alphanumeric() && of.0 < 128).collect();
        let from = if !signs.is_empty() && draws.below(2) == 0 { &signs } else { &choices };
        let (byte, to) = from[draws.below(from.len())];
        text.push(byte);
        state = to;
    }
}

/// Reports whether the automaton has this value in our spelling, its keys in an order that the automaton wants.
pub fn has(automaton: &ByteAutomaton, value: &Value) -> bool {
    let mut steps = 100_000;
    write(automaton, &[automaton.start()], value, &mut steps).iter().any(|&state| automaton.accepts(state))
}

fn run(automaton: &ByteAutomaton, states: &[ByteState], text: &str) -> Vec<ByteState> {
    states.iter().filter_map(|&state| automaton.run(state, text.as_bytes())).collect()
}

/// The states after a value from any of these.
fn write(automaton: &ByteAutomaton, states: &[ByteState], value: &Value, steps: &mut usize) -> Vec<ByteState> {
    if states.is_empty() || *steps == 0 {
        return Vec::new();
    }
    *steps -= 1;
    match value {
        Value::Array(items) => {
            let mut states = run(automaton, states, "[");
            for (at, item) in items.iter().enumerate() {
                let before = if at > 0 { run(automaton, &states, ",") } else { states };
                states = write(automaton, &before, item, steps);
            }
            run(automaton, &states, "]")
        }
        Value::Object(pairs) => {
            let states = run(automaton, states, "{");
            let rest: Vec<(&String, &Value)> = pairs.iter().collect();
            pairs_in_order(automaton, states, &rest, true, steps)
        }
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 1e15);
            let text = match whole {
                Some(value) if number.is_f64() => format!("{}", value as i64),
                _ => number.as_f64().filter(|_| number.is_f64()).map_or(number.to_string(), |value| value.to_string()),
            };
            run(automaton, states, &text)
        }
        other => run(automaton, states, &other.to_string()),
    }
}

/// Takes the pair first after which all others that could have come now still can.
fn pairs_in_order(
    automaton: &ByteAutomaton,
    states: Vec<ByteState>,
    rest: &[(&String, &Value)],
    first: bool,
    steps: &mut usize,
) -> Vec<ByteState> {
    if rest.is_empty() {
        return run(automaton, &states, "}");
    }
    if *steps == 0 {
        return Vec::new();
    }
    let states = if first { states } else { run(automaton, &states, ",") };
    let key = |name: &str| format!("{}:", Value::String(name.to_owned()));
    let possible = |states: &[ByteState], name: &str| !run(automaton, states, &key(name)).is_empty();
    let mut candidates: Vec<(usize, usize, Vec<ByteState>)> = Vec::new();
    for (at, (name, value)) in rest.iter().enumerate() {
        let after = run(automaton, &states, &key(name));
        let after = write(automaton, &after, value, steps);
        if after.is_empty() {
            continue;
        }
        let behind = run(automaton, &after, ",");
        let blocked = rest.iter().enumerate().filter(|&(other, _)| other != at);
        let blocked = blocked.filter(|(_, (name, _))| possible(&states, name) && !possible(&behind, name)).count();
        candidates.push((blocked, at, after));
    }
    candidates.sort();
    for (_, at, after) in candidates.into_iter().take(2) {
        let mut rest = rest.to_vec();
        rest.remove(at);
        let ends = pairs_in_order(automaton, after, &rest, false, steps);
        if !ends.is_empty() {
            return ends;
        }
    }
    Vec::new()
}
