//! Methods and attributes of values: Python's methods of texts, lists and dictionaries, slices, and the attributes of
//! `loop`.

use std::rc::Rc;

use super::{
    Trouble,
    evaluate::Given,
    meter::Meter,
    value::{Loop, Value, equal},
    write::Writer,
};

/// Calls a method.
pub(super) fn call(meter: &Rc<Meter>, owner: &Value, name: &str, mut given: Given) -> Result<Value, Trouble> {
    match owner {
        Value::Text(text) => {
            // Most methods look at the whole text.
            meter.step(text.len() / 1024)?;
            of_text(meter, text, name, &mut given)
        }
        Value::Map(items) => of_map(meter, owner, items, name, &given),
        Value::List(items) | Value::Tuple(items) => of_list(meter, items, name, &given),
        Value::Loop(state) if name == "cycle" => {
            let choices = &given.positional;
            match choices.get(state.index % choices.len().max(1)) {
                Some(choice) => Ok(choice.clone()),
                None => Trouble::failed("cycle needs something to choose from"),
            }
        }
        other => Trouble::failed(format!("{} has no method {name}", other.kind())),
    }
}

fn argument<'a>(given: &'a Given, place: usize, what: &str) -> Result<&'a str, Trouble> {
    match given.positional.get(place) {
        Some(value) => value.text(what),
        None => Trouble::failed(format!("{what} needs an argument more")),
    }
}

fn of_text(meter: &Rc<Meter>, text: &str, name: &str, given: &mut Given) -> Result<Value, Trouble> {
    let set = given.positional.first().and_then(Value::as_text);
    let stripped = |start: bool, end: bool| {
        let inside = |c: char| set.map_or(c.is_whitespace(), |set| set.contains(c));
        let text = if start { text.trim_start_matches(inside) } else { text };
        if end { text.trim_end_matches(inside) } else { text }
    };
    let made = |bytes: Option<usize>, make: &dyn Fn() -> String| {
        meter.room(bytes)?;
        meter.text(make())
    };
    let copy = |part: &str| made(Some(part.len()), &|| part.to_owned());
    // A change of case makes at most three characters of one.
    let cased = |make: &dyn Fn() -> String| made(text.len().checked_mul(3), make);
    let all = |holds: fn(char) -> bool| Ok(Value::Bool(!text.is_empty() && text.chars().all(holds)));
    match name {
        "strip" => copy(stripped(true, true)),
        "lstrip" => copy(stripped(true, false)),
        "rstrip" => copy(stripped(false, true)),
        "upper" => cased(&|| text.to_uppercase()),
        "lower" => cased(&|| text.to_lowercase()),
        "title" => cased(&|| title(text)),
        "capitalize" => cased(&|| capitalised(text)),
        "isdigit" | "isnumeric" | "isdecimal" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isspace" => all(char::is_whitespace),
        "isupper" => Ok(Value::Bool(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase))),
        "islower" => Ok(Value::Bool(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase))),
        "startswith" => one_of(given, |part| text.starts_with(part)),
        "endswith" => one_of(given, |part| text.ends_with(part)),
        "removeprefix" => {
            let part = argument(given, 0, name)?;
            copy(text.strip_prefix(part).unwrap_or(text))
        }
        "removesuffix" => {
            let part = argument(given, 0, name)?;
            copy(text.strip_suffix(part).unwrap_or(text))
        }
        "replace" => {
            let count = given.take(2, "count").map(|count| count.int("replace")).transpose()?;
            replace(meter, text, argument(given, 0, name)?, argument(given, 1, name)?, count)
        }
        "count" => Ok(Value::Int(text.matches(argument(given, 0, name)?).count() as i64)),
        "find" | "index" | "rfind" => {
            let part = argument(given, 0, name)?;
            let found = if name == "rfind" { text.rfind(part) } else { text.find(part) };
            match found {
                Some(at) => Ok(Value::Int(text[..at].chars().count() as i64)),
                None if name == "index" => Trouble::failed("index finds no such part"),
                None => Ok(Value::Int(-1)),
            }
        }
        "join" => match given.positional.first() {
            Some(items) => join(meter, &items.walk(meter)?, text),
            None => Trouble::failed("join needs a list"),
        },
        "split" | "rsplit" => {
            let most = given.take(1, "maxsplit").map(|most| most.int(name)).transpose()?;
            let separator = given.take(0, "sep").filter(|value| !matches!(value, Value::None));
            let separator = separator.as_ref().map(|value| value.text(name)).transpose()?;
            split(meter, text, separator, most, name == "rsplit")
        }
        "splitlines" => texts(meter, text.lines()),
        other => Trouble::failed(format!("a text has no method {other}")),
    }
}

/// Reports whether something holds of a text, or of one of a tuple of texts.
fn one_of(given: &Given, holds: impl Fn(&str) -> bool) -> Result<Value, Trouble> {
    let Some(parts) = given.positional.first() else { return Trouble::failed("a part is needed to compare with") };
    let Some(several) = parts.items() else { return Ok(Value::Bool(holds(parts.text("a comparison of parts")?))) };
    for part in several {
        if holds(part.text("a comparison of parts")?) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn of_map(
    meter: &Rc<Meter>,
    owner: &Value,
    items: &[(Value, Value)],
    name: &str,
    given: &Given,
) -> Result<Value, Trouble> {
    meter.step(items.len() / 16)?;
    match name {
        "keys" => meter.list(items.iter().map(|(key, _)| key.clone()).collect()),
        "values" => meter.list(items.iter().map(|(_, value)| value.clone()).collect()),
        "items" => pairs(meter, items),
        "get" => {
            let Some(key) = given.positional.first() else { return Trouble::failed("get needs a key") };
            let otherwise = || given.positional.get(1).cloned().unwrap_or(Value::None);
            Ok(owner.get(key, meter)?.unwrap_or_else(otherwise))
        }
        other => Trouble::failed(format!("a dictionary has no method {other}")),
    }
}

/// Keys with their values, as tuples.
pub(super) fn pairs(meter: &Rc<Meter>, items: &[(Value, Value)]) -> Result<Value, Trouble> {
    let pairs = items.iter().map(|(key, value)| meter.tuple(vec![key.clone(), value.clone()]));
    meter.list(pairs.collect::<Result<_, Trouble>>()?)
}

fn of_list(meter: &Rc<Meter>, items: &[Value], name: &str, given: &Given) -> Result<Value, Trouble> {
    let Some(wanted) = given.positional.first() else { return Trouble::failed(format!("a list has no method {name}")) };
    let mut found = 0;
    match name {
        "count" => {
            for item in items {
                found += i64::from(equal(item, wanted, meter)?);
            }
            Ok(Value::Int(found))
        }
        "index" => {
            for (place, item) in items.iter().enumerate() {
                if equal(item, wanted, meter)? {
                    return Ok(Value::Int(place as i64));
                }
            }
            Trouble::failed("index finds no such item")
        }
        // Templates run in a sandbox in which nothing changes.
        other => Trouble::failed(format!("a list has no method {other}: make a new one with +")),
    }
}

/// A part of the state of a loop.
pub(super) fn of_loop(state: &Loop, name: &str) -> Result<Value, Trouble> {
    let (index, length) = (state.index as i64, state.items.len() as i64);
    let neighbour = |place: Option<usize>| place.and_then(|place| state.items.get(place)).cloned();
    Ok(match name {
        "index" => Value::Int(index + 1),
        "index0" => Value::Int(index),
        "revindex" => Value::Int(length - index),
        "revindex0" => Value::Int(length - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == length),
        "length" => Value::Int(length),
        "depth" => Value::Int(state.depth as i64),
        "depth0" => Value::Int(state.depth as i64 - 1),
        "previtem" => neighbour(state.index.checked_sub(1)).unwrap_or(Value::Undefined),
        "nextitem" => neighbour(Some(state.index + 1)).unwrap_or(Value::Undefined),
        other => return Trouble::failed(format!("a loop has no {other}")),
    })
}

/// The place that an index means, counted from the end if it is negative.
pub(super) fn place(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

/// Part of a list or a text: from, to, and step.
pub(super) fn slice(meter: &Rc<Meter>, value: &Value, bounds: &[Option<Value>; 3]) -> Result<Value, Trouble> {
    let bound = |bound: &Option<Value>| bound.as_ref().map(|bound| bound.int("a slice")).transpose();
    let [start, end, step] = [bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?];
    let step = step.unwrap_or(1);
    if step == 0 {
        return Trouble::failed("a slice has steps of 0");
    }
    match value {
        Value::Text(text) => {
            meter.room(text.len().checked_mul(8))?;
            meter.step(text.len() / 256)?;
            let characters: Vec<char> = text.chars().collect();
            meter.text(places(start, end, step, characters.len()).map(|place| characters[place]).collect())
        }
        Value::List(items) | Value::Tuple(items) => {
            meter.room(items.len().checked_mul(size_of::<Value>()))?;
            meter.step(items.len() / 16)?;
            let taken = places(start, end, step, items.len()).map(|place| items[place].clone()).collect();
            if matches!(value, Value::List(_)) { meter.list(taken) } else { meter.tuple(taken) }
        }
        Value::Undefined => meter.list(Vec::new()),
        other => Trouble::failed(format!("{} has no parts", other.kind())),
    }
}

fn places(start: Option<i64>, end: Option<i64>, step: i64, length: usize) -> impl Iterator<Item = usize> {
    let length = length as i64;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let settle = |bound: Option<i64>, otherwise: i64| {
        bound.map_or(otherwise, |bound| {
            let bound = if bound < 0 { bound.saturating_add(length) } else { bound };
            bound.clamp(lowest, highest)
        })
    };
    let (first, last) = if step > 0 {
        (settle(start, lowest), settle(end, highest))
    } else {
        (settle(start, highest), settle(end, lowest))
    };
    let goes_on = move |at: &i64| if step > 0 { *at < last } else { *at > last };
    std::iter::successors(Some(first), move |at| at.checked_add(step)).take_while(goes_on).map(|at| at as usize)
}

/// Texts as a list.
fn texts<'a>(meter: &Rc<Meter>, parts: impl Iterator<Item = &'a str>) -> Result<Value, Trouble> {
    let parts = parts.map(|part| {
        meter.room(Some(part.len() + size_of::<Value>()))?;
        meter.text(part.to_owned())
    });
    meter.list(parts.collect::<Result<_, Trouble>>()?)
}

fn split(
    meter: &Rc<Meter>,
    text: &str,
    separator: Option<&str>,
    most: Option<i64>,
    from_end: bool,
) -> Result<Value, Trouble> {
    let most = most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most.saturating_add(1));
    let Some(separator) = separator else {
        if most == usize::MAX {
            return texts(meter, text.split_whitespace());
        }
        let mut parts = Vec::new();
        let mut rest = if from_end { text.trim_end() } else { text.trim_start() };
        while !rest.is_empty() {
            let found = if from_end { rest.rfind(char::is_whitespace) } else { rest.find(char::is_whitespace) };
            let Some(at) = found.filter(|_| parts.len() + 1 < most) else {
                parts.push(rest);
                break;
            };
            let width = rest[at..].chars().next().map_or(0, char::len_utf8);
            if from_end {
                parts.push(&rest[at + width..]);
                rest = rest[..at].trim_end();
            } else {
                parts.push(&rest[..at]);
                rest = rest[at + width..].trim_start();
            }
        }
        if from_end {
            parts.reverse();
        }
        return texts(meter, parts.into_iter());
    };
    if separator.is_empty() {
        return Trouble::failed("a text is split at an empty one");
    }
    if from_end {
        let mut parts: Vec<&str> = Vec::new();
        meter.room(text.len().checked_mul(16))?;
        parts.extend(text.rsplitn(most, separator));
        parts.reverse();
        return texts(meter, parts.into_iter());
    }
    texts(meter, text.splitn(most, separator))
}

/// Replaces a part of a text, at most `count` times.
pub(super) fn replace(
    meter: &Rc<Meter>,
    text: &str,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<Value, Trouble> {
    let most = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    // An empty part is between all characters.
    let places = if from.is_empty() { text.len() + 1 } else { text.len() / from.len() };
    meter.step(text.len() / 1024)?;
    let found = if from.is_empty() { places } else { text.matches(from).count() }.min(most);
    meter.room(found.checked_mul(to.len()).and_then(|more| more.checked_add(text.len())))?;
    meter.text(text.replacen(from, to, most))
}

/// Items as texts, with one between them.
pub(super) fn join(meter: &Rc<Meter>, items: &[Value], between: &str) -> Result<Value, Trouble> {
    let mut joined = Writer::new(meter);
    for (index, item) in items.iter().enumerate() {
        meter.step(1)?;
        if index > 0 {
            joined.push(between)?;
        }
        joined.value(item)?;
    }
    joined.into_value()
}

pub(super) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters.flat_map(char::to_lowercase)).collect()
}

pub(super) fn title(text: &str) -> String {
    let mut inside = false;
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        if inside {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        inside = character.is_alphabetic();
    }
    titled
}
