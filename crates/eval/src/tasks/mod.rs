//! What can be evaluated: one task a file, all of them in [`TASKS`].

mod wordmath;

use demask::Prompt;
use serde_json::Value;
use thiserror::Error;

use crate::{Problem, Rule};

/// Every task.
pub const TASKS: &[&Task] = &[&wordmath::TASK];

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks, in a line.
    pub about: &'static str,
    /// Where its problems come from.
    pub source: Source,
    /// How its prompts can be worded; the first is the default.
    pub styles: &'static [Style],
    /// Exemplars in the prompt if nobody says how many.
    pub shots: usize,
    /// Positions to decode if nobody says how many.
    pub gen_length: usize,
    /// One problem from one entry of the data file; the number is the entry's, from 0.
    pub read: fn(&Value, usize) -> Result<Problem, FieldError>,
    /// How the answer is found.
    pub rule: Rule,
}

/// Where problems come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Text of the binary, one JSON object a line.
    BuiltIn(&'static str),
}

/// One way to word a task's prompts.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Its name: `--prompt-style`.
    pub name: &'static str,
    /// The prompt for a problem behind solved exemplars.
    pub prompt: fn(&Problem, &[Problem]) -> Prompt,
    /// Texts that end an answer.
    pub stop: &'static [&'static str],
}

/// An entry of a data file that is not what the task expects.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field {field} is {found}, expected {expected}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// What it should hold.
    pub expected: &'static str,
    /// What stands there: `missing`, or a kind of value.
    pub found: &'static str,
}

/// A task by its name.
pub fn find(name: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.name == name).copied()
}

/// A field that holds text.
pub(crate) fn text(entry: &Value, field: &'static str) -> Result<String, FieldError> {
    let value = &entry[field];
    let refused = || FieldError { field, expected: "text", found: kind(value) };
    value.as_str().map(str::to_owned).ok_or_else(refused)
}

/// A field that holds a whole number.
pub(crate) fn whole(entry: &Value, field: &'static str) -> Result<i64, FieldError> {
    let value = &entry[field];
    value.as_i64().ok_or_else(|| FieldError { field, expected: "a whole number", found: kind(value) })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
