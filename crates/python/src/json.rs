//! Values of Python as values of JSON, where options are read from.

use std::path::PathBuf;

use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde_json::{Map, Number, Value};

use crate::error::{exception, wrong_type};

/// Depth of lists within lists that a value may have: no option has more than two.
const DEEPEST: usize = 32;

/// Returns a value of Python as one of JSON; whatever counts as a whole number or a number (numpy's, too) is one.
pub fn value(of: &Bound<'_, PyAny>) -> PyResult<Value> {
    nested(of, 0)
}

fn nested(of: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEEPEST {
        return Err(wrong_type(format!("a value holds lists within lists, more than {DEEPEST} deep: flatten it")));
    }
    if of.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(switch) = of.cast::<PyBool>() {
        return Ok(Value::Bool(switch.is_true()));
    }
    if let Ok(text) = of.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
    }
    if let Ok(list) = of.cast::<PyList>() {
        return list.iter().map(|item| nested(&item, depth + 1)).collect();
    }
    if let Ok(tuple) = of.cast::<PyTuple>() {
        return tuple.iter().map(|item| nested(&item, depth + 1)).collect();
    }
    if let Ok(dict) = of.cast::<PyDict>() {
        let entry = |(key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            // As in `json`: a whole number is a name by its digits.
            let name = key.extract::<u64>().map(|id| id.to_string()).or_else(|_| key.extract::<String>())?;
            Ok((name, nested(&item, depth + 1)?))
        };
        return dict.iter().map(entry).collect::<PyResult<Map<_, _>>>().map(Value::Object);
    }
    if of.hasattr("__fspath__")? {
        return Ok(Value::String(of.extract::<PathBuf>()?.to_string_lossy().into_owned()));
    }
    number(of)
}

fn number(of: &Bound<'_, PyAny>) -> PyResult<Value> {
    if !of.is_instance_of::<PyFloat>() {
        if let Ok(count) = of.extract::<u64>() {
            return Ok(Value::from(count));
        }
        if let Ok(count) = of.extract::<i64>() {
            return Ok(Value::from(count));
        }
        if of.is_instance_of::<PyInt>() {
            let message = "a whole number is out of range, expected one below 2 to the power of 64";
            return Err(exception(of.py(), "OptionsError", message));
        }
    }
    let found = || of.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    let Ok(number) = of.extract::<f64>() else {
        return Err(wrong_type(format!(
            "a value is of type {}, expected a number, a text, a switch or a list",
            found()
        )));
    };
    // Through the shortest digits: 0.1 stays 0.1, whatever width it is read into. What JSON has no number for becomes a text,
    // and refused by whoever expects a number.
    Ok(Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number))
}
