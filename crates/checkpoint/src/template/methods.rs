//! Methods of Python's texts, lists and dictionaries that templates call: those of `minijinja-contrib`, and missing ones.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls a method.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, method: &str, given: &[Value]) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_text(text, method, given)?,
        (ValueKind::Seq | ValueKind::Map, None) if method == "copy" => {
            from_args(given).map(|()| Some(value.clone()))?
        }
        (ValueKind::Seq, None) if method == "index" => {
            let (wanted,): (&Value,) = from_args(given)?;
            Some(Value::from(value.try_iter()?.position(|item| item == *wanted).ok_or_else(|| missing(method))?))
        }
        _ => None,
    };
    own.map_or_else(|| unknown_method_callback(state, value, method, given), Ok)
}

fn missing(method: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{method} finds no such part"))
}

fn of_text(text: &str, method: &str, given: &[Value]) -> Result<Option<Value>, Error> {
    let tuple = |parts: [&str; 3]| Value::from(Tuple::from(parts.map(Value::from)));
    Ok(Some(match method {
        "split" | "rsplit" => {
            let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(given)?;
            let separator = match separator {
                Some(separator) => Some(separator),
                None => named.get("sep")?,
            };
            let most = match most {
                Some(most) => Some(most),
                None => named.get("maxsplit")?,
            };
            named.assert_all_used()?;
            let separator = separator.filter(|separator| !separator.is_none());
            let separator =
                separator.as_ref().map(|value| value.as_str().ok_or_else(|| not_text(method))).transpose()?;
            let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
            split(text, separator, most, method == "rsplit")?
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(given)?;
            let parts = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            match parts {
                Some((before, after)) => tuple([before, separator, after]),
                None if method == "partition" => tuple([text, "", ""]),
                None => tuple(["", "", text]),
            }
        }
        "removeprefix" => {
            let (part,): (&str,) = from_args(given)?;
            Value::from(text.strip_prefix(part).unwrap_or(text))
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(given)?;
            Value::from(text.strip_suffix(part).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(given)?;
            let place = if method == "index" { text.find(part) } else { text.rfind(part) };
            Value::from(text[..place.ok_or_else(|| missing(method))?].chars().count())
        }
        _ => return Ok(None),
    }))
}

fn not_text(method: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{method} needs a text as separator"))
}

/// The parts of a text between separators, or between white space, cut at most so often.
fn split(text: &str, separator: Option<&str>, most: usize, from_end: bool) -> Result<Value, Error> {
    if separator.is_some_and(str::is_empty) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a text is split at an empty separator"));
    }
    let (mut parts, mut rest) = (Vec::new(), text);
    let is_white = separator.is_none();
    loop {
        if is_white {
            rest = if from_end { rest.trim_end() } else { rest.trim_start() };
            if rest.is_empty() {
                break;
            }
        }
        let cut = if parts.len() < most { cut(rest, separator, from_end) } else { None };
        let Some((part, left)) = cut else {
            // Without a separator, no white space stays at the other end either, once all is cut.
            let uncut = parts.len() < most;
            let last = match (is_white && uncut, from_end) {
                (false, _) => rest,
                (true, false) => rest.trim_end(),
                (true, true) => rest.trim_start(),
            };
            parts.push(last);
            break;
        };
        parts.push(part);
        rest = left;
    }
    if from_end {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The first part of a text, or the last one, and the rest.
fn cut<'a>(text: &'a str, separator: Option<&str>, from_end: bool) -> Option<(&'a str, &'a str)> {
    match (separator, from_end) {
        (Some(separator), false) => text.split_once(separator),
        (Some(separator), true) => text.rsplit_once(separator).map(|(left, part)| (part, left)),
        (None, false) => text.split_once(char::is_whitespace),
        (None, true) => text.rsplit_once(char::is_whitespace).map(|(left, part)| (part, left)),
    }
}
