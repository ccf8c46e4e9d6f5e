//! `tojson` as Python writes JSON: a space after each comma and colon, and no sign escaped for HTML.

use std::fmt::Write as _;

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ValueKind},
};

use super::budget::afford;

/// Style in which JSON is written.
struct Style {
    indent: Option<String>,
    comma: String,
    colon: String,
    sorted: bool,
    ascii: bool,
}

/// The filter, with the arguments that `transformers` gives it.
#[expect(clippy::needless_pass_by_value, reason = "the engine hands named arguments over")]
pub(super) fn to_json(
    state: &State<'_, '_>,
    value: &Value,
    ascii: Option<bool>,
    indent: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let flag = |name: &str| named.get::<Option<bool>>(name).map(Option::unwrap_or_default);
    let indent = match indent {
        Some(indent) => Some(indent),
        None => named.get("indent")?,
    };
    let indent = match indent.filter(|indent| !indent.is_none()) {
        Some(indent) => match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) => Some(text.chars().take(64).collect()),
            (None, Some(width)) => Some(" ".repeat(width.min(64))),
            (None, None) => return Err(wrong("indent is a number or a text")),
        },
        None => None,
    };
    let mut style = Style {
        comma: if indent.is_some() { "," } else { ", " }.to_owned(),
        colon: ": ".to_owned(),
        indent,
        ascii: ascii.map_or_else(|| flag("ensure_ascii"), Ok)?,
        sorted: flag("sort_keys")?,
    };
    if let Some(pair) = named.get::<Option<Value>>("separators")?.filter(|pair| !pair.is_none()) {
        let part = |index| pair.get_item_by_index(index).ok().and_then(|part| Some(part.as_str()?.to_owned()));
        (style.comma, style.colon) = part(0).zip(part(1)).ok_or_else(|| wrong("separators are two texts"))?;
    }
    named.assert_all_used()?;
    afford(state, value, 0)?;
    let mut text = String::new();
    write_value(&mut text, value, &style, 0)?;
    Ok(text)
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"))
}

fn write_value(text: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => text.push_str(&value.to_string()),
        ValueKind::Number => text.push_str(&float(value)?),
        ValueKind::String => quote(text, value.as_str().unwrap_or_default(), style.ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            list(text, ['[', ']'], &items, style, depth, |text, item| write_value(text, item, style, depth + 1))?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sorted {
                keys.sort();
            }
            list(text, ['{', '}'], &keys, style, depth, |text, key| {
                let name = match key.kind() {
                    ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                    ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                        let mut name = String::new();
                        write_value(&mut name, key, style, depth)?;
                        name
                    }
                    other => return Err(wrong(&format!("{other} is no key of JSON"))),
                };
                quote(text, &name, style.ascii);
                text.push_str(&style.colon);
                write_value(text, &value.get_item(key)?, style, depth + 1)
            })?;
        }
        other => return Err(wrong(&format!("{other} is nothing that JSON has"))),
    }
    Ok(())
}

fn list(
    text: &mut String,
    [open, close]: [char; 2],
    items: &[Value],
    style: &Style,
    depth: usize,
    mut write_item: impl FnMut(&mut String, &Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |text: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            text.push('\n');
            text.push_str(&indent.repeat(depth));
        }
    };
    text.push(open);
    for (index, item) in items.iter().enumerate() {
        text.push_str(if index > 0 { &style.comma } else { "" });
        line(text, depth + 1);
        write_item(text, item)?;
    }
    if !items.is_empty() {
        line(text, depth);
    }
    text.push(close);
    Ok(())
}

fn quote(text: &mut String, plain: &str, ascii: bool) {
    for character in serde_json::Value::from(plain).to_string().chars() {
        if !ascii || (character.is_ascii() && character != '\u{7f}') {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
}

/// A number with a fraction or an exponent, as Python writes it.
fn float(value: &Value) -> Result<String, Error> {
    let number = f64::try_from(value.clone())?;
    if number.is_nan() {
        return Ok("NaN".to_owned());
    }
    if number.is_infinite() {
        return Ok(if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned());
    }
    let text = format!("{number:?}");
    // Python signs exponents, and writes two digits at least.
    Ok(match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    })
}
