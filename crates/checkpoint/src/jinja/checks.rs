//! Tests of values, the words after `is`.

use std::{cmp::Ordering, rc::Rc};

use super::{
    Trouble, filters,
    given::Given,
    meter::Meter,
    methods,
    value::{Value, contains, equal, order},
};

/// Tests without an argument.
const ALONE: [&str; 20] = [
    "boolean",
    "callable",
    "defined",
    "even",
    "false",
    "filter",
    "float",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Tests of a value beside another one, by the parameter that Jinja2 has for it, with their names and signs.
const BESIDE: [(&str, &[&str]); 9] = [
    ("num", &["divisibleby"]),
    ("b", &["eq", "==", "equalto"]),
    ("b", &["ne", "!="]),
    ("b", &["lt", "<", "lessthan"]),
    ("b", &["le", "<="]),
    ("b", &["gt", ">", "greaterthan"]),
    ("b", &["ge", ">="]),
    ("seq", &["in"]),
    ("other", &["sameas"]),
];

fn is_known(name: &str) -> bool {
    ALONE.contains(&name) || BESIDE.iter().any(|(_, names)| names.contains(&name))
}

/// Reports whether a test holds.
pub(super) fn test(meter: &Rc<Meter>, name: &str, value: &Value, given: Given) -> Result<bool, Trouble> {
    if ALONE.contains(&name) {
        given.none(name)?;
        return alone(name, value);
    }
    let Some((parameter, names)) = BESIDE.iter().find(|(_, names)| names.contains(&name)) else {
        return Trouble::failed(format!("the test {} is not known", super::brief(name)));
    };
    let other = given.one(name, parameter)?;
    let ordered = |holds: fn(Ordering) -> bool| Ok(holds(order(value, &other, meter)?));
    match names[0] {
        "divisibleby" => divisible(value, &other, name),
        "eq" => equal(value, &other, meter),
        "ne" => Ok(!equal(value, &other, meter)?),
        "lt" => ordered(Ordering::is_lt),
        "le" => ordered(Ordering::is_le),
        "gt" => ordered(Ordering::is_gt),
        "ge" => ordered(Ordering::is_ge),
        "in" => contains(&other, value, meter),
        _ => same(value, &other, meter),
    }
}

fn alone(name: &str, value: &Value) -> Result<bool, Trouble> {
    let text = || value.text(name);
    Ok(match name {
        "defined" => !matches!(value, Value::Undefined),
        "undefined" => matches!(value, Value::Undefined),
        "none" => matches!(value, Value::None),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "boolean" => matches!(value, Value::Bool(_)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
        "string" => matches!(value, Value::Text(_)),
        "mapping" => matches!(value, Value::Map(_)),
        // What is not defined has no items, and can be asked for them.
        "sequence" | "iterable" => {
            matches!(value, Value::Undefined | Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Map(_))
                || (name == "iterable" && matches!(value, Value::Loop(_)))
        }
        "callable" => {
            matches!(value, Value::Undefined | Value::Macro(_) | Value::Function(_) | Value::Loop(_))
        }
        "even" => divisible(value, &Value::Int(2), name)?,
        "odd" => remainder(value, &Value::Int(2), name)? == 1.0,
        "upper" => match value {
            Value::Text(text) => methods::is_upper(text),
            _ => false,
        },
        "lower" => match value {
            Value::Text(text) => methods::is_lower(text),
            _ => false,
        },
        "filter" => filters::is_known(text()?),
        _ => is_known(text()?),
    })
}

fn remainder(value: &Value, by: &Value, name: &str) -> Result<f64, Trouble> {
    if let (Some(value), Some(by)) = (value.as_int(), by.as_int()) {
        return match by {
            0 => Trouble::failed("a number is divided by zero"),
            by => Ok(value.checked_rem_euclid(by).unwrap_or(0) as f64),
        };
    }
    match (value.as_float(), by.as_float()) {
        (Some(_), Some(0.0)) => Trouble::failed("a number is divided by zero"),
        (Some(value), Some(by)) => Ok(value.rem_euclid(by)),
        _ => Trouble::failed(format!("{name} needs numbers, found {} and {}", value.kind(), by.kind())),
    }
}

fn divisible(value: &Value, by: &Value, name: &str) -> Result<bool, Trouble> {
    Ok(remainder(value, by, name)? == 0.0)
}

/// Reports whether two values are one: equal, and of the same kind.
fn same(a: &Value, b: &Value, meter: &Meter) -> Result<bool, Trouble> {
    match (a, b) {
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Map(a), Value::Map(b)) => Ok(Rc::ptr_eq(a, b)),
        (a, b) => Ok(std::mem::discriminant(a) == std::mem::discriminant(b) && equal(a, b, meter)?),
    }
}
