//! Keywords as options of a generation: the library's names, values and messages.

use demask::{Error, Options, internals::OptionError};
use pyo3::{
    prelude::*,
    types::{PyDict, PyFloat},
};
use serde_json::{Value, json};

use crate::{
    error::{exception, raise, wrong_type},
    json,
};

/// The options of a generation, as JSON: for each its name, what it takes and what it is about.
#[pyfunction]
pub fn option_fields() -> String {
    let field = |field: &demask::internals::OptionField| json!({"name": field.name, "takes": field.takes, "about": field.about});
    Options::FIELDS.iter().map(field).collect::<Value>().to_string()
}

/// Reads keywords. What is `None` is not set.
///
/// # Errors
/// `TypeError` for a name that no option has, with the nearest one that there is, and for a value of another type.
pub fn options(keywords: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in keywords {
        let name: String = name.extract()?;
        set(&mut options, &name, &value)?;
    }
    Ok(options)
}

fn set(options: &mut Options, name: &str, of: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = of.py();
    if let Ok(number) = of.cast::<PyFloat>()
        && !number.value().is_finite()
    {
        return Err(exception(py, "OptionsError", &format!("`{name}` is {}, expected a number", number.value())));
    }
    let value = json::value(of)?;
    let kind = kind(&value);
    options.set_json(name, value).map_err(|error| match error {
        OptionError::Unknown(unknown) if unknown.what == "option" => wrong_type(unknown.to_string()),
        OptionError::Value { option, found, expected } if mistaken(kind, &expected) => {
            wrong_type(format!("`{option}` is {found}, expected {expected}"))
        }
        error => raise(py, &Error::from(error)),
    })
}

/// Kind of a JSON value, in a letter: of another kind than its option's it is a mistake of type, not of value.
fn kind(value: &Value) -> char {
    match value {
        Value::Null => 'n',
        Value::Bool(_) => 'b',
        Value::Number(number) if number.is_f64() => 'f',
        Value::Number(_) => 'i',
        Value::String(_) => 's',
        Value::Array(_) => 'l',
        Value::Object(_) => 'o',
    }
}

fn mistaken(kind: char, expected: &str) -> bool {
    let right = match expected {
        "a whole number from 0 on" => "i",
        "a number" => "if",
        "true or false" => "b",
        _ => return kind == 'b' || (expected.starts_with("a name") && kind != 's'),
    };
    !right.contains(kind)
}
