//! Keywords as options of a generation: the library's names, values and messages.

use demask::{Error, LoadOptions, Options, SettingError, Settings};
use demask_serve::ServeOptions;
use demask_settings::Field;
use pyo3::{
    prelude::*,
    types::{PyDict, PyFloat},
};
use serde_json::{Value, json};

use crate::{
    error::{exception, raise, wrong_type},
    http::BOUNDS,
    json,
};

/// Declared settings as JSON, by the struct that has them, and `bounds` of a service without sockets: for each its
/// name, the kind of its values, its default and its description.
#[pyfunction]
pub fn option_fields() -> String {
    let field = |field: &Field| json!({"name": field.name, "takes": field.kind, "default": field.usual(), "about": field.about});
    let fields = |fields: &[Field]| fields.iter().map(field).collect::<Value>();
    let bounds = ServeOptions::FIELDS.iter().filter(|field| BOUNDS.contains(&field.name)).map(field);
    json!({
        "load": fields(LoadOptions::FIELDS),
        "bounds": bounds.collect::<Value>(),
        "service": fields(ServeOptions::FIELDS),
        "answer": fields(Options::FIELDS),
    })
    .to_string()
}

/// Reads keywords. A keyword that is `None` is not set.
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

/// Sets a setting from a value of Python.
///
/// # Errors
/// `TypeError` for an unknown name and for a value of another type, `OptionsError` for a wrong value.
pub fn set<S: Settings>(settings: &mut S, name: &str, of: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = of.py();
    if let Ok(number) = of.cast::<PyFloat>()
        && !number.value().is_finite()
    {
        return Err(exception(py, "OptionsError", &format!("`{name}` is {}, expected a number", number.value())));
    }
    let value = json::value(of)?;
    let kind = kind(&value);
    settings.set_json(name, value).map_err(|error| match error {
        SettingError::Unknown(unknown) if unknown.what == S::WHAT => wrong_type(unknown.to_string()),
        error @ SettingError::Foreign { .. } => wrong_type(error.to_string()),
        SettingError::Value { name, found, expected } if mistaken(kind, &expected) => {
            wrong_type(format!("`{name}` is {found}, expected {expected}"))
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
        "a text" | "a name" => "s",
        _ => return kind == 'b',
    };
    !right.contains(kind)
}
