//! Filters, tests and functions that every template knows.

use std::{
    rc::Rc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    Trouble,
    evaluate::{Evaluator, Given, dictionary},
    meter::Meter,
    methods,
    value::{Value, contains, equal, order},
    write::{Json, Writer},
};

const FUNCTIONS: [&str; 5] = ["range", "namespace", "dict", "raise_exception", "strftime_now"];

/// The function of a name.
pub(super) fn function(name: &str) -> Option<Value> {
    FUNCTIONS.into_iter().find(|known| *known == name).map(Value::Function)
}

/// Calls a function.
pub(super) fn call(evaluator: &mut Evaluator, name: &str, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    match name {
        "range" => {
            given.check(name, 3)?;
            range(&meter, &given.positional)
        }
        "namespace" | "dict" => {
            let mut attributes = Vec::new();
            for source in &given.positional {
                let Value::Map(items) = source else {
                    return Trouble::failed(format!("{name} takes a dictionary or names, found {}", source.kind()));
                };
                for (key, value) in items.iter() {
                    attributes.push((key.text(name)?.to_owned(), value.clone()));
                }
            }
            attributes.extend(given.named);
            if name == "namespace" {
                return evaluator.namespace(attributes);
            }
            let items = attributes.into_iter().map(|(key, value)| Ok((meter.text(key)?, value)));
            dictionary(&meter, items.collect::<Result<_, Trouble>>()?)
        }
        "raise_exception" => {
            let message = given.positional.first().and_then(Value::as_text).unwrap_or("it raised an exception");
            Trouble::failed(message.chars().take(1000).collect::<String>())
        }
        "strftime_now" => {
            let format = given.positional.first().unwrap_or(&Value::Undefined).text("strftime_now")?;
            // No specifier makes more than nine characters of its two.
            meter.room(format.len().checked_mul(5))?;
            meter.text(date(format, evaluator.now))
        }
        other => Trouble::failed(format!("{other} is not a function")),
    }
}

fn range(meter: &Rc<Meter>, bounds: &[Value]) -> Result<Value, Trouble> {
    let bound = |place: usize| bounds[place].int("range");
    let (start, end, step) = match bounds.len() {
        1 => (0, bound(0)?, 1),
        2 => (bound(0)?, bound(1)?, 1),
        3 => (bound(0)?, bound(1)?, bound(2)?),
        found => return Trouble::failed(format!("range takes 1 to 3 numbers, found {found}")),
    };
    if step == 0 {
        return Trouble::failed("range has steps of 0");
    }
    let span = if step > 0 { end.saturating_sub(start) } else { start.saturating_sub(end) };
    let count = u64::try_from(span).unwrap_or(0).div_ceil(step.unsigned_abs());
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<Value>()));
    meter.room(bytes)?;
    let items = (0..count as i64).map(|index| Value::Int(start + index * step));
    meter.list(items.collect())
}

/// Applies a filter.
pub(super) fn filter(evaluator: &mut Evaluator, name: &str, value: &Value, mut given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let meter = &meter;
    let method = |name: &str, given: Given| {
        let text = meter.written(value)?;
        methods::call(meter, &text, name, given)
    };
    match name {
        "trim" => {
            let set = given.take(0, "chars");
            method("strip", Given { positional: set.into_iter().collect(), named: Vec::new() })
        }
        "upper" | "lower" | "title" | "capitalize" => method(name, Given::default()),
        "replace" => {
            let whole = meter.written(value)?;
            let count = given.take(2, "count").map(|count| count.int(name)).transpose()?;
            let from = meter.written(&given.take(0, "old").unwrap_or(Value::Undefined))?;
            let to = meter.written(&given.take(1, "new").unwrap_or(Value::Undefined))?;
            methods::replace(meter, whole.text(name)?, from.text(name)?, to.text(name)?, count)
        }
        "string" => meter.written(value),
        "safe" => Ok(value.clone()),
        "escape" | "e" => {
            let mut escaped = meter.written(value)?;
            for (from, to) in [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")] {
                escaped = methods::replace(meter, escaped.text(name)?, from, to, None)?;
            }
            Ok(escaped)
        }
        "indent" => indent(meter, value, &mut given),
        "tojson" => json(meter, value, given),
        "length" | "count" => length(value).map(|length| Value::Int(length as i64)),
        "wordcount" => Ok(Value::Int(value.text(name)?.split_whitespace().count() as i64)),
        "default" | "d" => {
            let also_false = given.take(1, "boolean").is_some_and(|flag| flag.is_true());
            let keeps = if also_false { value.is_true() } else { !matches!(value, Value::Undefined) };
            if keeps {
                return Ok(value.clone());
            }
            given.take(0, "default_value").map_or_else(|| meter.text(String::new()), Ok)
        }
        "int" => Ok(Value::Int(
            whole(value).unwrap_or_else(|| given.take(0, "default").and_then(|it| it.as_int()).unwrap_or(0)),
        )),
        "float" => {
            let number = value.as_float().or_else(|| value.as_text()?.trim().parse().ok());
            let otherwise = || given.take(0, "default").and_then(|it| it.as_float()).unwrap_or(0.0);
            Ok(Value::Float(number.unwrap_or_else(otherwise)))
        }
        "abs" => match (value.as_int(), value.as_float()) {
            (Some(number), _) => Ok(Value::Int(number.saturating_abs())),
            (None, Some(number)) => Ok(Value::Float(number.abs())),
            _ => Trouble::failed(format!("abs needs a number, found {}", value.kind())),
        },
        "round" => {
            let Some(number) = value.as_float() else {
                return Trouble::failed(format!("round needs a number, found {}", value.kind()));
            };
            let digits = given.take(0, "precision").map_or(Ok(0), |digits| digits.int(name))?;
            let scale = 10_f64.powi(digits.clamp(-300, 300) as i32);
            Ok(Value::Float((number * scale).round_ties_even() / scale))
        }
        _ => of_items(evaluator, name, value, given),
    }
}

/// Filters of what has items.
fn of_items(evaluator: &mut Evaluator, name: &str, value: &Value, mut given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let meter = &meter;
    match name {
        "items" | "dictsort" => {
            let Value::Map(items) = value else {
                return if matches!(value, Value::Undefined) && name == "items" {
                    meter.list(Vec::new())
                } else {
                    Trouble::failed(format!("{name} needs a dictionary, found {}", value.kind()))
                };
            };
            let pairs = methods::pairs(meter, items)?;
            if name == "items" {
                return Ok(pairs);
            }
            let keys = pairs.walk(meter)?.into_iter().map(|pair| Ok((evaluator.item(&pair, &Value::Int(0))?, pair)));
            let keys = keys.collect::<Result<_, Trouble>>()?;
            sorted(meter, keys, false, false)
        }
        "list" => meter.list(value.walk(meter)?),
        "first" | "last" => {
            let items = value.walk(meter)?;
            let found = if name == "first" { items.first() } else { items.last() };
            Ok(found.cloned().unwrap_or(Value::Undefined))
        }
        "reverse" => {
            let mut items = value.walk(meter)?;
            items.reverse();
            if value.as_text().is_some() { methods::join(meter, &items, "") } else { meter.list(items) }
        }
        "join" => {
            let between =
                given.take(0, "d").map_or_else(|| meter.text(String::new()), |between| meter.written(&between))?;
            let items = match given.take(1, "attribute") {
                Some(path) => attributes(evaluator, &value.walk(meter)?, &path)?,
                None => value.walk(meter)?,
            };
            methods::join(meter, &items, between.text(name)?)
        }
        "sum" | "min" | "max" => {
            let items = match given.take(usize::MAX, "attribute") {
                Some(path) => attributes(evaluator, &value.walk(meter)?, &path)?,
                None => value.walk(meter)?,
            };
            if name == "sum" { sum(&items) } else { extreme(meter, items, name == "min") }
        }
        "sort" => {
            let reverse = given.take(0, "reverse").is_some_and(|flag| flag.is_true());
            let exact = given.take(1, "case_sensitive").is_some_and(|flag| flag.is_true());
            let items = value.walk(meter)?;
            let keys = match given.take(2, "attribute") {
                Some(path) => attributes(evaluator, &items, &path)?,
                None => items.clone(),
            };
            sorted(meter, keys.into_iter().zip(items).collect(), reverse, exact)
        }
        "unique" => {
            let mut kept: Vec<Value> = Vec::new();
            for item in value.walk(meter)? {
                let mut known = false;
                for other in &kept {
                    known = known || equal(other, &item, meter)?;
                }
                if !known {
                    kept.push(item);
                }
            }
            meter.list(kept)
        }
        "map" => map(evaluator, value, given),
        "select" | "reject" | "selectattr" | "rejectattr" => select(evaluator, name, value, given),
        other => Trouble::failed(format!("the filter {} is not known", other.chars().take(40).collect::<String>())),
    }
}

fn map(evaluator: &mut Evaluator, value: &Value, mut given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let items = value.walk(&meter)?;
    if let Some(path) = given.take(usize::MAX, "attribute") {
        let default = given.take(usize::MAX, "default");
        let mut found = attributes(evaluator, &items, &path)?;
        if let Some(default) = default {
            for value in &mut found {
                if matches!(value, Value::Undefined) {
                    *value = default.clone();
                }
            }
        }
        return meter.list(found);
    }
    let Some(name) = given.positional.first().cloned() else {
        return Trouble::failed("map needs a filter or an attribute");
    };
    let name = name.text("map")?;
    if name == "map" {
        return Trouble::failed("map is not for map");
    }
    let rest = given.positional[1..].to_vec();
    let mapped = items.iter().map(|item| {
        meter.step(1)?;
        let given = Given { positional: rest.clone(), named: given.named.clone() };
        filter(evaluator, name, item, given)
    });
    let mapped = mapped.collect::<Result<_, Trouble>>()?;
    meter.list(mapped)
}

fn select(evaluator: &mut Evaluator, name: &str, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let items = value.walk(&meter)?;
    let (by_attribute, wanted) = (name.ends_with("attr"), name.starts_with("select"));
    let mut rest = given.positional.into_iter();
    let subjects = if by_attribute {
        let Some(path) = rest.next() else { return Trouble::failed(format!("{name} needs an attribute")) };
        attributes(evaluator, &items, &path)?
    } else {
        items.clone()
    };
    let named = rest.next();
    let arguments: Vec<Value> = rest.collect();
    let mut kept = Vec::new();
    for (item, subject) in items.into_iter().zip(subjects) {
        let holds = match &named {
            Some(name) => test(&meter, name.text("a test")?, &subject, &arguments)?,
            None => subject.is_true(),
        };
        if holds == wanted {
            kept.push(item);
        }
    }
    meter.list(kept)
}

/// An attribute of each item: names with dots between them, or an index.
fn attributes(evaluator: &Evaluator, items: &[Value], path: &Value) -> Result<Vec<Value>, Trouble> {
    evaluator.meter.room(items.len().checked_mul(size_of::<Value>()))?;
    let find = |item: &Value| {
        let Some(names) = path.as_text() else { return evaluator.item(item, path) };
        let mut value = item.clone();
        for name in names.split('.') {
            if matches!(value, Value::Undefined) {
                break;
            }
            let key = match name.parse() {
                Ok(index) => Value::Int(index),
                Err(_) => evaluator.meter.text(name.to_owned())?,
            };
            value = evaluator.item(&value, &key)?;
        }
        Ok(value)
    };
    items.iter().map(find).collect()
}

/// Items in the order of their keys; texts in any case, unless it counts.
fn sorted(meter: &Rc<Meter>, mut keyed: Vec<(Value, Value)>, reverse: bool, exact: bool) -> Result<Value, Trouble> {
    meter.step(keyed.len() * (keyed.len().max(1).ilog2() as usize + 1))?;
    if !exact {
        for (key, _) in &mut keyed {
            if let Value::Text(text) = &*key {
                meter.room(text.len().checked_mul(3))?;
                *key = meter.text(text.to_lowercase())?;
            }
        }
    }
    let mut trouble = None;
    keyed.sort_by(|(a, _), (b, _)| {
        let found = order(a, b, meter).unwrap_or_else(|found| {
            trouble.get_or_insert(found);
            std::cmp::Ordering::Equal
        });
        if reverse { found.reverse() } else { found }
    });
    trouble.map_or_else(|| meter.list(keyed.into_iter().map(|(_, value)| value).collect()), Err)
}

fn sum(items: &[Value]) -> Result<Value, Trouble> {
    if let Some(whole) = items.iter().map(Value::as_int).try_fold(0_i64, |sum, number| sum.checked_add(number?)) {
        return Ok(Value::Int(whole));
    }
    let numbers: Option<Vec<f64>> = items.iter().map(Value::as_float).collect();
    numbers.map_or_else(|| Trouble::failed("sum needs numbers"), |numbers| Ok(Value::Float(numbers.iter().sum())))
}

fn extreme(meter: &Meter, items: Vec<Value>, least: bool) -> Result<Value, Trouble> {
    let mut found: Option<Value> = None;
    for item in items {
        let better = match &found {
            Some(best) => order(&item, best, meter)?.is_lt() == least && !equal(&item, best, meter)?,
            None => true,
        };
        if better {
            found = Some(item);
        }
    }
    Ok(found.unwrap_or(Value::Undefined))
}

fn length(value: &Value) -> Result<usize, Trouble> {
    match value {
        Value::Undefined => Ok(0),
        Value::Text(text) => Ok(text.chars().count()),
        Value::List(items) | Value::Tuple(items) => Ok(items.len()),
        Value::Map(items) => Ok(items.len()),
        other => Trouble::failed(format!("{} has no length", other.kind())),
    }
}

fn whole(value: &Value) -> Option<i64> {
    let text = || value.as_text().map(str::trim);
    value
        .as_int()
        .or_else(|| text()?.parse().ok())
        .or_else(|| value.as_float().or_else(|| text()?.parse().ok()).filter(|it| it.is_finite()).map(|it| it as i64))
}

fn indent(meter: &Rc<Meter>, value: &Value, given: &mut Given) -> Result<Value, Trouble> {
    let text = meter.written(value)?;
    let text = text.text("indent")?;
    let width = given.take(0, "width").unwrap_or(Value::Int(4));
    let width = match width {
        Value::Text(_) => width,
        other => {
            let count = usize::try_from(other.int("indent")?).unwrap_or(0);
            meter.room(Some(count))?;
            meter.text(" ".repeat(count))?
        }
    };
    let first = given.take(1, "first").is_some_and(|flag| flag.is_true());
    let blank = given.take(2, "blank").is_some_and(|flag| flag.is_true());
    let mut indented = Writer::new(meter);
    for (index, line) in text.split('\n').enumerate() {
        meter.step(1)?;
        if index > 0 {
            indented.push("\n")?;
        }
        if (index > 0 || first) && (blank || !line.is_empty()) {
            indented.push(width.text("indent")?)?;
        }
        indented.push(line)?;
    }
    indented.into_value()
}

fn json(meter: &Rc<Meter>, value: &Value, mut given: Given) -> Result<Value, Trouble> {
    let mut flag = |name| given.take(usize::MAX, name).is_some_and(|flag| flag.is_true());
    let (ascii, sorted) = (flag("ensure_ascii"), flag("sort_keys"));
    let indent = given.take(0, "indent").filter(|indent| !matches!(indent, Value::None));
    let indent = indent.map(|indent| indent.int("tojson")).transpose()?;
    let indent = indent.map(|width| usize::try_from(width).unwrap_or(0).min(16));
    let separators = given.take(usize::MAX, "separators");
    let separators = separators.as_ref().and_then(Value::items);
    let separator = |place: usize, usual: &str| match separators.and_then(|both| both.get(place)) {
        Some(text) => text.text("separators").map(str::to_owned),
        None => Ok(usual.to_owned()),
    };
    let comma = separator(0, if indent.is_some() { "," } else { ", " })?;
    let colon = separator(1, ": ")?;
    given.check("tojson", 1)?;
    let mut text = Writer::new(meter);
    text.json(value, &Json { indent, comma, colon, sorted, ascii })?;
    text.into_value()
}

/// Reports whether a test holds.
pub(super) fn test(meter: &Meter, name: &str, value: &Value, arguments: &[Value]) -> Result<bool, Trouble> {
    let other = || arguments.first().map_or_else(|| Trouble::failed(format!("the test {name} needs a value")), Ok);
    let ordered = |holds: fn(std::cmp::Ordering) -> bool| Ok(holds(order(value, other()?, meter)?));
    let whole = |what: &str| value.int(what);
    match name {
        "defined" => Ok(!matches!(value, Value::Undefined)),
        "undefined" => Ok(matches!(value, Value::Undefined)),
        "none" => Ok(matches!(value, Value::None)),
        "true" => Ok(matches!(value, Value::Bool(true))),
        "false" => Ok(matches!(value, Value::Bool(false))),
        "boolean" => Ok(matches!(value, Value::Bool(_))),
        "integer" => Ok(matches!(value, Value::Int(_))),
        "float" => Ok(matches!(value, Value::Float(_))),
        "number" => Ok(matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_))),
        "string" => Ok(matches!(value, Value::Text(_))),
        "mapping" => Ok(matches!(value, Value::Map(_))),
        "sequence" | "iterable" => {
            Ok(matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Map(_)))
        }
        "callable" => Ok(matches!(value, Value::Macro(_) | Value::Function(_))),
        "even" => Ok(whole(name)? % 2 == 0),
        "odd" => Ok(whole(name)? % 2 != 0),
        "divisibleby" => match other()?.int(name)? {
            0 => Trouble::failed("a number is divided by zero"),
            by => Ok(whole(name)?.checked_rem(by).unwrap_or(0) == 0),
        },
        "upper" => Ok(value.text(name)?.chars().all(|c| !c.is_lowercase())),
        "lower" => Ok(value.text(name)?.chars().all(|c| !c.is_uppercase())),
        "equalto" | "eq" | "sameas" => equal(value, other()?, meter),
        "ne" => Ok(!equal(value, other()?, meter)?),
        "lt" | "lessthan" => ordered(std::cmp::Ordering::is_lt),
        "le" => ordered(std::cmp::Ordering::is_le),
        "gt" | "greaterthan" => ordered(std::cmp::Ordering::is_gt),
        "ge" => ordered(std::cmp::Ordering::is_ge),
        "in" => contains(other()?, value, meter),
        "startingwith" => Ok(value.text(name)?.starts_with(other()?.text(name)?)),
        "endingwith" => Ok(value.text(name)?.ends_with(other()?.text(name)?)),
        other => Trouble::failed(format!("the test {} is not known", other.chars().take(40).collect::<String>())),
    }
}

/// The date in the format that templates ask for, in UTC; specifiers that none uses stay as they are.
pub(super) fn date(format: &str, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let name = MONTHS[month - 1];
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let part = match characters.next() {
            Some('Y') => year.to_string(),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => name.to_owned(),
            Some('b') => name[..3].to_owned(),
            Some('H') => format!("{hour:02}"),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('%') | None => "%".to_owned(),
            Some(other) => format!("%{other}"),
        };
        text.push_str(&part);
    }
    text
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Year, month and day of a number of days since 1970.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // A clock that is off by millennia must not cost time.
    days = days.min(4_000_000);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}
