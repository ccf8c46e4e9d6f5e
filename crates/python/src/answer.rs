//! An answer as the fields of the Python half's `Generation`.

use std::collections::HashMap;

use demask::{Event, Generation, TokenLogprob, methods::step::Position};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

/// A token's log-probability, and those of the most probable tokens in its place.
type Logprob = (Option<f32>, Vec<(u32, f32)>);

/// Returns the fields by their names. `commits` are columns of what has happened, if somebody has seen it: for each commit 16
/// bytes, forward, position and token as u32 and the confidence as f32, all with the low byte first.
///
/// # Errors
/// If the interpreter has no memory.
pub fn fields<'py>(py: Python<'py>, answer: &Generation, events: &[Event]) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("text", &answer.text)?;
    fields.set_item("holes", &answer.holes)?;
    fields.set_item("tokens", &answer.tokens)?;
    fields.set_item("finish", answer.finish.name())?;
    fields.set_item("end_token", answer.end_token)?;
    fields.set_item("stop_text", &answer.stop_text)?;
    fields.set_item("prompt_tokens", answer.prompt_tokens)?;
    fields.set_item("canvas", &answer.canvas)?;
    fields.set_item("logprobs", answer.logprobs.as_ref().map(|list| list.iter().map(logprob).collect::<Vec<_>>()))?;
    fields.set_item("usage", usage(answer))?;
    let json = serde_json::to_string(&answer.receipt).unwrap_or_default();
    fields.set_item("receipt_json", json)?;
    fields.set_item("commits", PyBytes::new(py, &columns(events)))?;
    Ok(fields)
}

/// Tokens of the prompt, those that were decoded, and those of the prompt that were not computed, as the server counts them: of a
/// text with holes, everything that was given is the prompt.
fn usage(answer: &Generation) -> (usize, usize, usize) {
    let given = match &answer.hole_positions[..] {
        [] => answer.prompt_tokens,
        holes => answer.canvas.len() - holes.iter().map(ExactSizeIterator::len).sum::<usize>(),
    };
    (given, answer.generated_tokens, answer.receipt.decoding.cached_tokens.min(given))
}

fn logprob(of: &TokenLogprob) -> Logprob {
    (of.logprob, of.top.clone())
}

/// Columns of the commits, 16 bytes each; of a position that was committed again, the last.
fn columns(events: &[Event]) -> Vec<u8> {
    let all = || {
        events.iter().filter_map(|event| match *event {
            Event::Commit { step, position, token, confidence, .. }
            | Event::Replace { step, position, to: Some(token), confidence, .. } => {
                Some((step, position, token, confidence))
            }
            _ => None,
        })
    };
    let last: HashMap<Position, usize> =
        all().enumerate().map(|(index, (_, position, ..))| (position, index)).collect();
    let mut bytes = Vec::with_capacity(last.len() * 16);
    for (index, (step, position, token, confidence)) in all().enumerate() {
        if last[&position] != index {
            continue;
        }
        bytes.extend((step as u32).to_le_bytes());
        bytes.extend(position.to_le_bytes());
        bytes.extend(token.to_le_bytes());
        bytes.extend(confidence.to_le_bytes());
    }
    bytes
}
