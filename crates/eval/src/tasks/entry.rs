//! Entries of data files: the functions by which expressions read their fields, and the errors of unexpected fields.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Kwargs, Object, Rest, ValueOrKwargs, from_args},
};
use serde_json::Value as Json;
use thiserror::Error;

use super::{number, words::regex};
use crate::score;

/// An entry of a data file that the task does not expect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A field that is not as expected.
    #[error("field {field} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: String,
        /// Expected content.
        expected: String,
        /// Content that was found: `missing`, or a kind of value.
        found: &'static str,
    },
    /// A part of the problem that its expression does not make.
    #[error("{part} of the problem cannot be made: {detail}")]
    Part {
        /// Key of the task's file.
        part: &'static str,
        /// Reason of the failure.
        detail: String,
    },
}

impl FieldError {
    /// A value of another kind than expected, or none.
    pub(super) fn of(field: &str, expected: &str, value: &Json) -> Self {
        let (field, expected) = (leaf(field).to_owned(), expected.to_owned());
        Self::Field { field, expected, found: kind(value) }
    }

    /// A value of the right kind that makes no sense.
    pub(super) fn odd(field: &str, expected: &str) -> Self {
        Self::Field { field: leaf(field).to_owned(), expected: expected.to_owned(), found: "something else" }
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self::new(ErrorKind::InvalidOperation, "a field").with_source(error)
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "missing",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// Name of a field inside others.
fn leaf(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Functions that read entries, by their names in expressions.
pub(super) const FUNCTIONS: [&str; 8] = ["text", "texts", "json", "whole", "name", "matched", "boxed", "option"];

/// Name of the entry in scopes, where no expression reaches it.
pub(super) const ENTRY: &str = "an entry";

/// An entry and its number, from 0.
#[derive(Debug)]
pub(super) struct Entry(pub Json, pub usize);

impl Object for Entry {}

/// Adds the functions that expressions read entries with.
pub(super) fn add_functions(jinja: &mut Environment<'_>) {
    jinja.add_function("text", |state: &State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
        read(state, &arguments.into_values(), "text", text)
    });
    jinja.add_function("texts", |state: &State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
        read(state, &arguments.into_values(), "a list of texts", texts)
    });
    jinja.add_function("json", |state: &State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
        read(state, &arguments.into_values(), "JSON", json)
    });
    jinja.add_function("whole", |state: &State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
        read(state, &arguments.into_values(), "a whole number", |value| whole(value).map(Value::from))
    });
    jinja.add_function("name", |state: &State<'_, '_>, fields: Rest<String>| {
        with_first(state, &fields, |_, value, index| {
            Ok(value.as_str().map(str::to_owned).or_else(|| whole_name(value)).unwrap_or_else(|| index.to_string()))
        })
    });
    jinja.add_function("matched", matched);
    jinja.add_function("boxed", |state: &State<'_, '_>, field: String| {
        let odd = || FieldError::odd(&field, "text with \\boxed{...}");
        let solution = read(state, &[field.clone().into()], "text", text)?;
        // A few write `\boxed 3.`.
        let answer = solution.as_str().and_then(score::boxed).map(|answer| answer.trim_end_matches('.').to_owned());
        Ok(answer.ok_or_else(odd)?)
    });
    jinja.add_function("option", |state: &State<'_, '_>, field: &str, options: &Value, names: Rest<Value>| {
        option(state, field, options, &names)
    });
}

/// Gives the first of several fields that is there, or the first of all: releases of a dataset name it differently.
fn with_first<T>(
    state: &State<'_, '_>,
    fields: &[String],
    what: impl FnOnce(&str, &Json, usize) -> Result<T, Error>,
) -> Result<T, Error> {
    let entry = state.lookup(ENTRY);
    let (Some(Entry(entry, index)), Some(first)) =
        (entry.as_ref().and_then(Value::downcast_object_ref), fields.first())
    else {
        return Err(Error::new(ErrorKind::MissingArgument, "the name of a field is missing"));
    };
    let value = |field: &String| entry.pointer(&format!("/{field}")).unwrap_or(&Json::Null);
    let field = fields.iter().find(|field| !value(field).is_null()).unwrap_or(first);
    what(field, value(field), *index)
}

/// Reads a field, or the first of several that is there. `optional=true`: an unexpected value is left out; `least=1`: a
/// list has at least one text.
fn read(
    state: &State<'_, '_>,
    arguments: &[Value],
    expected: &str,
    kind: impl FnOnce(&Json) -> Option<Value>,
) -> Result<Value, Error> {
    let (fields, options): (&[Value], Kwargs) = from_args(arguments)?;
    let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let optional = options.get::<Option<bool>>("optional")? == Some(true);
    let least = options.get::<Option<usize>>("least")?;
    options.assert_all_used()?;
    with_first(state, &fields, |field, value, _| match kind(value) {
        Some(found) if found.len() < least => Err(FieldError::odd(field, "at least one text").into()),
        Some(found) => Ok(found),
        None if optional => Ok(Value::UNDEFINED),
        None => Err(FieldError::of(field, expected, value).into()),
    })
}

fn text(value: &Json) -> Option<Value> {
    value.as_str().map(Value::from)
}

/// A value in JSON: text that has one, or the value itself.
fn json(value: &Json) -> Option<Value> {
    match value {
        Json::Null => None,
        Json::String(text) => serde_json::from_str::<Json>(text).is_ok().then(|| text.as_str().into()),
        other => Some(other.to_string().into()),
    }
}

fn texts(value: &Json) -> Option<Value> {
    value.as_array()?.iter().map(text).collect()
}

/// A whole number, perhaps as text.
fn whole(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn whole_name(value: &Json) -> Option<String> {
    value.as_number().map(ToString::to_string)
}

/// Returns the text that the first group of a pattern finds in a field's text.
fn matched(state: &State<'_, '_>, field: &str, pattern: &str, expected: &str) -> Result<String, Error> {
    let text = read(state, &[field.into()], "text", text)?;
    let found = regex(pattern)?
        .captures(text.as_str().unwrap_or_default())
        .and_then(|groups| groups.get(1))
        .map(|group| group.as_str().to_owned());
    Ok(found.ok_or_else(|| FieldError::odd(field, expected))?)
}

/// The option that a field names, from 0. The first one is called 0, 1 or "A", or a list has the names of all.
fn option(state: &State<'_, '_>, field: &str, options: &Value, names: &[Value]) -> Result<usize, Error> {
    let count = options.len().unwrap_or_default();
    let within = |option: Option<usize>, expected: &str| {
        Ok(option.filter(|option| *option < count).ok_or_else(|| FieldError::odd(field, expected))?)
    };
    with_first(state, &[field.to_owned()], |field, value, _| {
        let first = names.iter().find_map(Value::as_i64);
        let of = |expected: &str| FieldError::of(field, expected, value);
        if let Some(names) = names.iter().find(|names| names.len().is_some() && names.as_str().is_none()) {
            let label = value.as_str().ok_or_else(|| of("text"))?;
            return within(names.try_iter()?.position(|name| name.as_str() == Some(label)), "the label of an option");
        }
        let lettered = names.iter().any(|name| name.as_str() == Some("A"));
        match value.as_str().filter(|_| lettered).map(number) {
            Some(Some(option)) => within(Some(option), "the number of an option"),
            Some(None) if first.is_none() => within(None, "a letter"),
            None if first.is_none() => Err(of("text").into()),
            _ => {
                let found = whole(value).ok_or_else(|| of("a whole number"))?;
                within(usize::try_from(found - first.unwrap_or_default()).ok(), "the number of an option")
            }
        }
    })
}
