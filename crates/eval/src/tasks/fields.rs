//! Fields of entries, and what is said of one that is not as expected.

use serde_json::Value;
use thiserror::Error;

/// An entry of a data file that is not what the task expects.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field {field} is {found}, expected {expected}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// Expected content.
    pub expected: &'static str,
    /// Content that was found: `missing`, or a kind of value.
    pub found: &'static str,
}

impl FieldError {
    /// A value of another kind than expected, or none.
    pub(super) fn of(field: &'static str, expected: &'static str, value: &Value) -> Self {
        Self { field, expected, found: kind(value) }
    }

    /// A value of the right kind that makes no sense.
    pub(super) fn odd(field: &'static str, expected: &'static str) -> Self {
        Self { field, expected, found: "something else" }
    }
}

/// A field that holds text.
pub(super) fn text(entry: &Value, field: &'static str) -> Result<String, FieldError> {
    let value = &entry[field];
    value.as_str().map(str::to_owned).ok_or_else(|| FieldError::of(field, "text", value))
}

/// The first of several fields that is there, where releases of a dataset name it differently.
pub(super) fn any_text(entry: &Value, fields: &[&'static str]) -> Result<String, FieldError> {
    let there = fields.iter().find(|field| !entry[**field].is_null());
    text(entry, there.unwrap_or(&fields[0]))
}

/// A field that holds a whole number, perhaps as text.
pub(super) fn whole(entry: &Value, field: &'static str) -> Result<i64, FieldError> {
    let value = &entry[field];
    let written = || value.as_str()?.trim().parse().ok();
    value.as_i64().or_else(written).ok_or_else(|| FieldError::of(field, "a whole number", value))
}

/// A field that holds a list of texts.
pub(super) fn texts(entry: &Value, field: &'static str) -> Result<Vec<String>, FieldError> {
    let value = &entry[field];
    let all = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    all.ok_or_else(|| FieldError::of(field, "a list of texts", value))
}

/// An option's number in a field, not behind the last option.
pub(super) fn option(number: i64, options: usize, field: &'static str) -> Result<usize, FieldError> {
    let number = usize::try_from(number).ok().filter(|number| *number < options);
    number.ok_or_else(|| FieldError::odd(field, "the number of an option"))
}

/// An entry's own name, else its number.
pub(super) fn name(entry: &Value, field: &'static str, index: usize) -> String {
    match &entry[field] {
        Value::String(name) => name.clone(),
        Value::Number(number) => number.to_string(),
        _ => index.to_string(),
    }
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
