//! Filters of one value: of texts and numbers.

use std::rc::Rc;

use super::{
    Trouble,
    evaluate::Evaluator,
    format,
    given::{Given, flag, int, needed, some},
    items,
    letters::{capitalised, is_letter_or_number, is_space, lines},
    meter::Meter,
    methods, search,
    value::Value,
    write::{Json, Writer},
};

/// Filters that are here; the others are those of [`items`].
const KNOWN: [&str; 26] = [
    "abs",
    "attr",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "float",
    "forceescape",
    "format",
    "indent",
    "int",
    "length",
    "lower",
    "replace",
    "round",
    "safe",
    "string",
    "title",
    "tojson",
    "trim",
    "upper",
    "urlencode",
    "wordcount",
];

/// Reports whether there is a filter of this name.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || items::KNOWN.contains(&name)
}

/// Applies a filter.
pub(super) fn filter(evaluator: &mut Evaluator, name: &str, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let meter = &meter;
    match name {
        "trim" => {
            let [set] = given.bind(name, ["chars"])?;
            let text = meter.written(value)?;
            methods::stripped(meter, text.text(name)?, set, [true, true])
        }
        "upper" | "lower" | "title" | "capitalize" => {
            given.none(name)?;
            let text = meter.written(value)?;
            let make = match name {
                "upper" => |text: &str| text.to_uppercase(),
                "lower" => |text: &str| text.to_lowercase(),
                "title" => title,
                _ => capitalised,
            };
            methods::in_case(meter, text.text(name)?, make)
        }
        "center" => {
            let [width] = given.bind(name, ["width"])?;
            let text = meter.written(value)?;
            methods::wide(meter, text.text(name)?, name, int(width, name)?.unwrap_or(80), " ")
        }
        "format" => {
            let text = meter.written(value)?;
            let values = match (given.positional.is_empty(), given.named.is_empty()) {
                (false, false) => return Trouble::failed("format takes values by place or by name, found both"),
                (true, false) => named(meter, given.named)?,
                _ => meter.tuple(given.positional)?,
            };
            format::percent(meter, text.text(name)?, &values)
        }
        "replace" => {
            let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
            let (old, new) = (needed(old, name, "old")?, needed(new, name, "new")?);
            let most = int(count, name)?.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            let (whole, old, new) = (meter.written(value)?, meter.written(&old)?, meter.written(&new)?);
            search::replace(meter, whole.text(name)?, old.text(name)?, new.text(name)?, most)
        }
        "string" | "safe" => {
            given.none(name)?;
            meter.written(value)
        }
        "escape" | "e" | "forceescape" => {
            given.none(name)?;
            escaped(meter, value)
        }
        "urlencode" => {
            given.none(name)?;
            urlencoded(meter, value)
        }
        "indent" => indent(meter, value, given),
        "tojson" => json(meter, value, given),
        "length" | "count" => {
            given.none(name)?;
            length(value).map(|length| Value::Int(length as i64))
        }
        "wordcount" => {
            given.none(name)?;
            let text = meter.written(value)?;
            let words = text.text(name)?.split(|c| !(is_letter_or_number(c) || c == '_'));
            Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i64))
        }
        "default" | "d" => {
            let [otherwise, also_false] = given.bind(name, ["default_value", "boolean"])?;
            let keeps = if flag(also_false.as_ref()) { value.is_true() } else { !matches!(value, Value::Undefined) };
            if keeps {
                return Ok(value.clone());
            }
            otherwise.map_or_else(|| meter.text(String::new()), Ok)
        }
        "attr" => {
            let attribute = given.one(name, "name")?;
            // An attribute, and no item of a dictionary: only loops, namespaces and macros have some.
            match value {
                Value::Map(_) | Value::Undefined => Ok(Value::Undefined),
                other => evaluator.attribute(other, attribute.text(name)?),
            }
        }
        "int" => {
            let [otherwise, base] = given.bind(name, ["default", "base"])?;
            let base = int(base, name)?.unwrap_or(10);
            Ok(whole(meter, value, base)?.map_or_else(|| otherwise.unwrap_or(Value::Int(0)), Value::Int))
        }
        "float" => {
            let [otherwise] = given.bind(name, ["default"])?;
            let number = value.as_float().or_else(|| real(&meter.marks.signs(value.as_text()?)));
            Ok(number.map_or_else(|| otherwise.unwrap_or(Value::Float(0.0)), Value::Float))
        }
        "abs" => {
            given.none(name)?;
            match (value.as_int(), value.as_float()) {
                (Some(number), _) => match number.checked_abs() {
                    Some(number) => Ok(Value::Int(number)),
                    None => Trouble::failed("a number is too large"),
                },
                (None, Some(number)) => Ok(Value::Float(number.abs())),
                _ => Trouble::failed(format!("abs needs a number, found {}", value.kind())),
            }
        }
        "round" => round(value, given),
        _ => items::filter(evaluator, name, value, given),
    }
}

/// Values by name as a dictionary.
pub(super) fn named(meter: &Rc<Meter>, named: Vec<(String, Value)>) -> Result<Value, Trouble> {
    let items = named.into_iter().map(|(name, value)| Ok((meter.text(name)?, value)));
    meter.map(items.collect::<Result<_, Trouble>>()?)
}

/// A large letter where a word begins: behind white space and `-({[<` alone, as Jinja2 has it.
fn title(text: &str) -> String {
    let begins = |c: char| is_space(c) || "-({[<".contains(c);
    let mut made = String::with_capacity(text.len());
    for piece in text.split_inclusive(begins) {
        let mut characters = piece.chars();
        made.extend(characters.next().into_iter().flat_map(char::to_uppercase));
        made.push_str(&characters.as_str().to_lowercase());
    }
    made
}

fn escaped(meter: &Rc<Meter>, value: &Value) -> Result<Value, Trouble> {
    let mut escaped = meter.written(value)?;
    for (from, to) in [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")] {
        escaped = search::replace(meter, escaped.text("escape")?, from, to, usize::MAX)?;
    }
    Ok(escaped)
}

/// A text as a part of an address; a dictionary, or pairs, as its query.
fn urlencoded(meter: &Rc<Meter>, value: &Value) -> Result<Value, Trouble> {
    let mut made = Writer::new(meter);
    let pairs = match value {
        Value::Map(items) => methods::pairs(meter, items)?,
        Value::List(_) | Value::Tuple(_) => value.clone(),
        other => {
            quoted(meter, other, "/", &mut made)?;
            return made.into_value();
        }
    };
    for (index, pair) in pairs.walk(meter)?.iter().enumerate() {
        let Some([key, value]) = pair.items() else { return Trouble::failed("urlencode needs pairs") };
        made.push(if index > 0 { "&" } else { "" })?;
        quoted(meter, key, "", &mut made)?;
        made.push("=")?;
        quoted(meter, value, "", &mut made)?;
    }
    made.into_value()
}

/// A value with all but letters, digits, `_.-~` and what is `safe` in hexadecimal digits.
fn quoted(meter: &Rc<Meter>, value: &Value, safe: &str, made: &mut Writer) -> Result<(), Trouble> {
    let text = meter.written(value)?;
    for byte in meter.marks.signs(text.text("urlencode")?).bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || safe.as_bytes().contains(&byte);
        match byte {
            _ if plain => made.push(char::from(byte).encode_utf8(&mut [0; 4]))?,
            // A query has a sign of its own for a space.
            b' ' if safe.is_empty() => made.push("+")?,
            other => made.push(&format!("%{other:02X}"))?,
        }
    }
    Ok(())
}

fn indent(meter: &Rc<Meter>, value: &Value, given: Given) -> Result<Value, Trouble> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    let (first, blank) = (flag(first.as_ref()), flag(blank.as_ref()));
    let width = match width {
        Some(Value::Text(width)) => Value::Text(width),
        other => {
            let count = usize::try_from(other.map_or(Ok(4), |width| width.int("indent"))?).unwrap_or(0);
            meter.room(Some(count))?;
            meter.text(" ".repeat(count))?
        }
    };
    let width = width.text("indent")?;
    let text = meter.written(value)?;
    let text = text.text("indent")?;
    meter.room(Some(text.len()))?;
    let whole = format!("{text}\n");
    let mut indented = Writer::new(meter);
    for (index, (line, end)) in lines(&whole).into_iter().enumerate() {
        meter.step(1)?;
        let line = &line[..line.len() - end];
        if index > 0 {
            indented.push("\n")?;
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            indented.push(width)?;
        }
        indented.push(line)?;
    }
    indented.into_value()
}

/// JSON as `transformers` writes it, whose parameters are those of `json.dumps`.
fn json(meter: &Rc<Meter>, value: &Value, given: Given) -> Result<Value, Trouble> {
    let [ascii, indent, separators, sorted] =
        given.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match some(indent) {
        None => None,
        Some(Value::Text(text)) => Some(text.to_string()),
        Some(other) => Some(" ".repeat(usize::try_from(other.int("tojson")?).unwrap_or(0).min(16))),
    };
    let (comma, colon) = match some(separators) {
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some(both) => match both.items() {
            Some([comma, colon]) => (comma.text("separators")?.to_owned(), colon.text("separators")?.to_owned()),
            _ => return Trouble::failed("separators are two texts"),
        },
    };
    let mut text = Writer::new(meter);
    text.json(value, &Json { indent, comma, colon, sorted: flag(sorted.as_ref()), ascii: flag(ascii.as_ref()) })?;
    text.into_value()
}

pub(super) fn length(value: &Value) -> Result<usize, Trouble> {
    match value {
        Value::Undefined => Ok(0),
        Value::Text(text) => Ok(text.chars().count()),
        Value::List(items) | Value::Tuple(items) => Ok(items.len()),
        Value::Map(items) => Ok(items.len()),
        other => Trouble::failed(format!("{} has no length", other.kind())),
    }
}

/// A whole number, as Python's `int` reads it.
fn whole(meter: &Meter, value: &Value, base: i64) -> Result<Option<i64>, Trouble> {
    let Some(text) = value.as_text() else {
        let real = value.as_float().filter(|number| number.is_finite());
        return Ok(value.as_int().or(real.map(|number| number as i64)));
    };
    if base != 0 && !(2..=36).contains(&base) {
        return Trouble::failed(format!("int knows no base {base}"));
    }
    let text = meter.marks.signs(text);
    let text = text.trim_matches(is_space);
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (if text.starts_with('-') { "-" } else { "" }, digits),
        None => ("", text),
    };
    let prefixed = |prefix: [&str; 2]| prefix.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (digits, base) = match base {
        0 | 16 if prefixed(["0x", "0X"]).is_some() => (prefixed(["0x", "0X"]).unwrap_or_default(), 16),
        0 | 8 if prefixed(["0o", "0O"]).is_some() => (prefixed(["0o", "0O"]).unwrap_or_default(), 8),
        0 | 2 if prefixed(["0b", "0B"]).is_some() => (prefixed(["0b", "0B"]).unwrap_or_default(), 2),
        0 => (digits, 10),
        base => (digits, base as u32),
    };
    let bare = ungrouped(digits).filter(|bare| !bare.starts_with(['+', '-']));
    let number = bare.and_then(|bare| i64::from_str_radix(&format!("{sign}{bare}"), base).ok());
    Ok(number.or_else(|| real(text).filter(|it| it.is_finite()).map(|it| it as i64)))
}

/// A number with a point, as Python's `float` reads it.
fn real(text: &str) -> Option<f64> {
    ungrouped(text.trim_matches(is_space))?.parse().ok()
}

/// Digits without the `_` between them, if each is between two digits.
fn ungrouped(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |place: Option<usize>| place.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let between = |at: usize| digit(at.checked_sub(1)) && digit(Some(at + 1));
    text.match_indices('_').all(|(at, _)| between(at)).then(|| text.replace('_', ""))
}

/// A number in so many digits: `common` to the nearest, of two as near to the even one; `ceil` and `floor` to one side.
fn round(value: &Value, given: Given) -> Result<Value, Trouble> {
    let [digits, method] = given.bind("round", ["precision", "method"])?;
    let digits = int(digits, "round")?.unwrap_or(0).clamp(-300, 300);
    let Some(number) = value.as_float() else {
        return Trouble::failed(format!("round needs a number, found {}", value.kind()));
    };
    let scale = 10_f64.powi(digits as i32);
    match method.as_ref().map_or(Ok("common"), |method| method.text("round"))? {
        "common" => match (value.as_int(), usize::try_from(digits)) {
            (Some(whole), Ok(_)) => Ok(Value::Int(whole)),
            (Some(_), Err(_)) => Ok(Value::Int(((number * scale).round_ties_even() / scale) as i64)),
            // The decimal that is nearest to the number as it is held.
            (None, Ok(digits)) if number.is_finite() => {
                Ok(Value::Float(format!("{number:.digits$}").parse().unwrap_or(number)))
            }
            _ => Ok(Value::Float((number * scale).round_ties_even() / scale)),
        },
        "ceil" => Ok(Value::Float((number * scale).ceil() / scale)),
        "floor" => Ok(Value::Float((number * scale).floor() / scale)),
        other => Trouble::failed(format!("round knows common, ceil and floor, found {}", super::brief(other))),
    }
}
