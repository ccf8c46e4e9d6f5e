//! Methods and attributes of values: Python's methods of texts, lists and dictionaries, slices, and the attributes of
//! `loop`.

use std::rc::Rc;

use super::{
    Trouble,
    format::Finds,
    given::{Given, flag, int, needed, some},
    letters::{
        capitalised, is_cased, is_decimal, is_digit, is_letter, is_letter_or_number, is_number, is_printable, is_space,
        is_titlecase, lines, swapped, title,
    },
    meter::Meter,
    search,
    value::{Loop, Value, equal},
    write::Writer,
};

/// Calls a method.
pub(super) fn call(
    meter: &Rc<Meter>,
    finds: &dyn Finds,
    owner: &Value,
    name: &str,
    given: Given,
) -> Result<Value, Trouble> {
    match owner {
        Value::Text(text) => {
            // Most methods look at the whole text.
            meter.step(text.len() / 1024)?;
            if name == "format" {
                return super::format::format(meter, finds, text, &given);
            }
            of_text(meter, text, name, given)
        }
        Value::Map(items) => of_map(meter, owner, items, name, given),
        Value::List(items) | Value::Tuple(items) => of_list(meter, items, name, given),
        Value::Loop(state) => of_loop_call(meter, state, name, given),
        other => Trouble::failed(format!("{} has no method {name}", other.kind())),
    }
}

fn of_loop_call(meter: &Rc<Meter>, state: &Loop, name: &str, given: Given) -> Result<Value, Trouble> {
    if let Some((argument, _)) = given.named.first() {
        return Trouble::failed(format!("{name} knows no argument {argument}"));
    }
    match name {
        "cycle" => {
            let choices = &given.positional;
            match choices.get(state.index % choices.len().max(1)) {
                Some(choice) => Ok(choice.clone()),
                None => Trouble::failed("cycle needs something to choose from"),
            }
        }
        "changed" => {
            let now = meter.tuple(given.positional)?;
            let same = match &*state.last.borrow() {
                Some(last) => equal(last, &now, meter)?,
                None => false,
            };
            *state.last.borrow_mut() = Some(now);
            Ok(Value::Bool(!same))
        }
        other => Trouble::failed(format!("a loop has no method {other}")),
    }
}

/// What is cut from the ends of a text: white space, or the characters of a set.
pub(super) fn stripped(meter: &Rc<Meter>, text: &str, set: Option<Value>, ends: [bool; 2]) -> Result<Value, Trouble> {
    let set = some(set);
    let set = set.as_ref().map(|set| set.text("strip")).transpose()?.map(|set| meter.marks.signs(set));
    let inside = |c: char| match &set {
        Some(set) => set.contains(meter.marks.sign(c)),
        None => is_space(c),
    };
    let mut part = text;
    if ends[0] {
        part = part.trim_start_matches(inside);
    }
    if ends[1] {
        part = part.trim_end_matches(inside);
    }
    copy(meter, part)
}

fn copy(meter: &Rc<Meter>, part: &str) -> Result<Value, Trouble> {
    meter.room(Some(part.len()))?;
    meter.text(part.to_owned())
}

fn of_text(meter: &Rc<Meter>, text: &str, name: &str, given: Given) -> Result<Value, Trouble> {
    let cased = |given: Given, make: fn(&str) -> String| {
        given.none(name)?;
        in_case(meter, text, make)
    };
    let all = |given: Given, holds: fn(char) -> bool| {
        given.none(name)?;
        Ok(Value::Bool(!text.is_empty() && text.chars().all(|c| holds(meter.marks.sign(c)))))
    };
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [set] = given.bind(name, ["chars"])?;
            stripped(meter, text, set, [name != "rstrip", name != "lstrip"])
        }
        "upper" => cased(given, str::to_uppercase),
        "lower" => cased(given, str::to_lowercase),
        "title" => cased(given, title),
        "capitalize" => cased(given, capitalised),
        "swapcase" => cased(given, swapped),
        "isdigit" => all(given, is_digit),
        "isdecimal" => all(given, is_decimal),
        "isnumeric" => all(given, is_number),
        "isalpha" => all(given, is_letter),
        "isalnum" => all(given, is_letter_or_number),
        "isspace" => all(given, is_space),
        "isascii" | "isprintable" | "isupper" | "islower" | "istitle" => {
            given.none(name)?;
            Ok(Value::Bool(match name {
                "isascii" => meter.marks.signs(text).is_ascii(),
                "isprintable" => text.chars().all(|c| is_printable(meter.marks.sign(c))),
                "isupper" => is_upper(text),
                "islower" => is_lower(text),
                _ => text.chars().any(is_cased) && title(text) == *text,
            }))
        }
        "startswith" | "endswith" => {
            let [parts, from, to] = given.bind(name, ["prefix", "start", "end"])?;
            let parts = needed(parts, name, "prefix")?;
            let Some((_, part)) = part(text, from, to, name)? else { return Ok(Value::Bool(false)) };
            let find = if name == "startswith" { search::start } else { search::end };
            one_of(&parts, |wanted| find(meter, part, wanted).is_some())
        }
        "removeprefix" => {
            let part = given.one(name, "prefix")?;
            copy(meter, &text[search::start(meter, text, part.text(name)?).unwrap_or(0)..])
        }
        "removesuffix" => {
            let part = given.one(name, "suffix")?;
            copy(meter, &text[..text.len() - search::end(meter, text, part.text(name)?).unwrap_or(0)])
        }
        "replace" => {
            let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
            let (old, new) = (needed(old, name, "old")?, needed(new, name, "new")?);
            let most = most(int(count, name)?);
            search::replace(meter, text, old.text(name)?, new.text(name)?, most)
        }
        "count" | "find" | "rfind" | "index" | "rindex" => found(meter, text, name, given),
        "join" => join(meter, &given.one(name, "iterable")?.walk(meter)?, text),
        "split" | "rsplit" => {
            let [separator, most_parts] = given.bind(name, ["sep", "maxsplit"])?;
            let separator = some(separator);
            let separator = separator.as_ref().map(|value| value.text(name)).transpose()?;
            split(meter, text, separator, most(int(most_parts, name)?), name == "rsplit")
        }
        "partition" | "rpartition" => {
            let separator = given.one(name, "sep")?;
            partition(meter, text, separator.text(name)?, name == "rpartition")
        }
        "splitlines" => {
            let [keeps] = given.bind(name, ["keepends"])?;
            let keeps = flag(keeps.as_ref());
            texts(
                meter,
                lines(text).into_iter().map(|(line, end)| if keeps { line } else { &line[..line.len() - end] }),
            )
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = given.bind(name, ["width", "fillchar"])?;
            let width = needed(width, name, "width")?.int(name)?;
            let fill = fill.as_ref().map_or(Ok(" "), |fill| fill.text(name))?;
            wide(meter, text, name, width, fill)
        }
        "zfill" => {
            let width = given.one(name, "width")?.int(name)?;
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let padded = wide(meter, digits, "rjust", width.saturating_sub((text.len() - digits.len()) as i64), "0")?;
            copy(meter, &format!("{}{}", &text[..text.len() - digits.len()], padded.text(name)?))
        }
        "expandtabs" => {
            let [size] = given.bind(name, ["tabsize"])?;
            expanded(meter, text, int(size, name)?.unwrap_or(8))
        }
        other => Trouble::failed(format!("a text has no method {other}")),
    }
}

/// A text in another case.
pub(super) fn in_case(meter: &Rc<Meter>, text: &str, make: fn(&str) -> String) -> Result<Value, Trouble> {
    // A change of case makes at most three characters of one.
    meter.room(text.len().checked_mul(3))?;
    meter.text(make(text))
}

pub(super) fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || is_titlecase(c))
}

pub(super) fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || is_titlecase(c))
}

/// How many times something may be done: a number below 0 means always.
fn most(count: Option<i64>) -> usize {
    count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// A text between two places, counted in characters, and where it starts; `None` if they are in the wrong order.
fn part<'a>(
    text: &'a str,
    from: Option<Value>,
    to: Option<Value>,
    name: &str,
) -> Result<Option<(usize, &'a str)>, Trouble> {
    let (from, to) = (int(from, name)?, int(to, name)?);
    if from.is_none() && to.is_none() {
        return Ok(Some((0, text)));
    }
    let length = text.chars().count() as i64;
    let settle = |bound: i64| if bound < 0 { bound.saturating_add(length).max(0) } else { bound };
    let (from, to) = (settle(from.unwrap_or(0)), settle(to.unwrap_or(length)).min(length));
    if from > to {
        return Ok(None);
    }
    let at = |place: i64| text.char_indices().nth(place as usize).map_or(text.len(), |(at, _)| at);
    Ok(Some((from as usize, &text[at(from)..at(to)])))
}

/// How often a part is in a text, or where.
fn found(meter: &Rc<Meter>, text: &str, name: &str, given: Given) -> Result<Value, Trouble> {
    let [wanted, from, to] = given.bind(name, ["sub", "start", "end"])?;
    let wanted = needed(wanted, name, "sub")?;
    let wanted = wanted.text(name)?;
    let inside = part(text, from, to, name)?;
    if name == "count" {
        return Ok(Value::Int(inside.map_or(0, |(_, text)| search::places(meter, text, wanted).count() as i64)));
    }
    let place = inside.and_then(|(start, part)| {
        let place = if name.starts_with('r') {
            search::places_from_end(meter, part, wanted).next()
        } else {
            search::places(meter, part, wanted).next()
        };
        Some((start + part[..place?.start].chars().count()) as i64)
    });
    match place {
        Some(place) => Ok(Value::Int(place)),
        None if name.ends_with("index") => Trouble::failed(format!("{name} finds no such part")),
        None => Ok(Value::Int(-1)),
    }
}

/// Reports whether something holds of a text, or of one of a tuple of texts.
fn one_of(parts: &Value, holds: impl Fn(&str) -> bool) -> Result<Value, Trouble> {
    let Value::Tuple(several) = parts else { return Ok(Value::Bool(holds(parts.text("a comparison of parts")?))) };
    for part in several.iter() {
        if holds(part.text("a comparison of parts")?) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// A text in the middle or at a side of so many characters.
pub(super) fn wide(meter: &Rc<Meter>, text: &str, name: &str, width: i64, fill: &str) -> Result<Value, Trouble> {
    if fill.chars().count() != 1 {
        return Trouble::failed(format!("{name} fills with one character"));
    }
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    meter.room(missing.checked_mul(fill.len()).and_then(|more| more.checked_add(text.len())))?;
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd one on the left if the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    meter.text(fill.repeat(left) + text + &fill.repeat(missing - left))
}

fn expanded(meter: &Rc<Meter>, text: &str, size: i64) -> Result<Value, Trouble> {
    let size = usize::try_from(size).unwrap_or(0);
    let (mut made, mut column) = (Writer::new(meter), 0);
    for piece in text.split_inclusive(['\t', '\n', '\r']) {
        let body = piece.trim_end_matches(['\t', '\n', '\r']);
        made.push(body)?;
        column += body.chars().count();
        match piece.chars().next_back() {
            Some('\t') if size > 0 => {
                let count = size - column % size;
                meter.room(Some(count))?;
                made.push(&" ".repeat(count))?;
                column += count;
            }
            Some(end @ ('\n' | '\r')) => {
                made.push(end.encode_utf8(&mut [0; 4]))?;
                column = 0;
            }
            _ => {}
        }
    }
    made.into_value()
}

fn of_map(
    meter: &Rc<Meter>,
    owner: &Value,
    items: &[(Value, Value)],
    name: &str,
    given: Given,
) -> Result<Value, Trouble> {
    meter.step(items.len() / 16)?;
    if matches!(name, "keys" | "values" | "items" | "copy") {
        given.none(name)?;
        return match name {
            "keys" => meter.list(items.iter().map(|(key, _)| key.clone()).collect()),
            "values" => meter.list(items.iter().map(|(_, value)| value.clone()).collect()),
            "items" => pairs(meter, items),
            _ => Ok(owner.clone()),
        };
    }
    if name == "get" {
        let [key, otherwise] = given.bind(name, ["key", "default"])?;
        let key = needed(key, name, "key")?;
        return Ok(owner.get(&key, meter)?.or(otherwise).unwrap_or(Value::None));
    }
    Trouble::failed(format!("a dictionary has no method {name}"))
}

/// Keys with their values, as tuples.
pub(super) fn pairs(meter: &Rc<Meter>, items: &[(Value, Value)]) -> Result<Value, Trouble> {
    let pairs = items.iter().map(|(key, value)| meter.tuple(vec![key.clone(), value.clone()]));
    meter.list(pairs.collect::<Result<_, Trouble>>()?)
}

fn of_list(meter: &Rc<Meter>, items: &[Value], name: &str, given: Given) -> Result<Value, Trouble> {
    let equal_to = |wanted: &Value, item: &Value| equal(item, wanted, meter);
    match name {
        "count" => {
            let wanted = given.one(name, "value")?;
            let mut found = 0;
            for item in items {
                found += i64::from(equal_to(&wanted, item)?);
            }
            Ok(Value::Int(found))
        }
        "index" => {
            let [wanted, from, to] = given.bind(name, ["value", "start", "stop"])?;
            let wanted = needed(wanted, name, "value")?;
            let bounds = [some(from), some(to)].map(|bound| bound.map(|bound| bound.int(name)).transpose());
            let [from, to] = bounds;
            for place in places(from?, to?, 1, items.len()) {
                if equal_to(&wanted, &items[place])? {
                    return Ok(Value::Int(place as i64));
                }
            }
            Trouble::failed("index finds no such item")
        }
        "copy" => {
            given.none(name)?;
            meter.room(items.len().checked_mul(size_of::<Value>()))?;
            meter.list(items.to_vec())
        }
        // Templates run in a sandbox in which nothing changes.
        other => Trouble::failed(format!("a list has no method {other}: make a new one with +")),
    }
}

/// A part of the state of a loop.
pub(super) fn of_loop(state: &Loop, name: &str) -> Value {
    let (index, length) = (state.index as i64, state.items.len() as i64);
    let neighbour = |place: Option<usize>| place.and_then(|place| state.items.get(place)).cloned();
    match name {
        "index" => Value::Int(index + 1),
        "index0" => Value::Int(index),
        "revindex" => Value::Int(length - index),
        "revindex0" => Value::Int(length - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == length),
        "length" => Value::Int(length),
        "depth" => Value::Int(state.depth as i64 + 1),
        "depth0" => Value::Int(state.depth as i64),
        "previtem" => neighbour(state.index.checked_sub(1)).unwrap_or(Value::Undefined),
        "nextitem" => neighbour(Some(state.index + 1)).unwrap_or(Value::Undefined),
        _ => Value::Undefined,
    }
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
pub(super) fn texts<'a>(meter: &Rc<Meter>, parts: impl Iterator<Item = &'a str>) -> Result<Value, Trouble> {
    let parts = parts.map(|part| {
        meter.room(Some(part.len() + size_of::<Value>()))?;
        meter.text(part.to_owned())
    });
    meter.list(parts.collect::<Result<_, Trouble>>()?)
}

/// The parts of a text, cut at most `most` times.
fn split(
    meter: &Rc<Meter>,
    text: &str,
    separator: Option<&str>,
    most: usize,
    from_end: bool,
) -> Result<Value, Trouble> {
    meter.room(text.len().checked_mul(16))?;
    let mut parts = match separator {
        None => words(text, most, from_end),
        Some("") => return Trouble::failed("a text is split at an empty one"),
        Some(separator) if from_end => {
            let (mut parts, mut end) = (Vec::new(), text.len());
            for place in search::places_from_end(meter, text, separator).take(most) {
                parts.push(&text[place.end..end]);
                end = place.start;
            }
            parts.push(&text[..end]);
            parts
        }
        Some(separator) => {
            let (mut parts, mut done) = (Vec::new(), 0);
            for place in search::places(meter, text, separator).take(most) {
                parts.push(&text[done..place.start]);
                done = place.end;
            }
            parts.push(&text[done..]);
            parts
        }
    };
    if from_end {
        parts.reverse();
    }
    texts(meter, parts.into_iter())
}

/// The words of a text, cut at white space at most `most` times.
fn words(text: &str, most: usize, from_end: bool) -> Vec<&str> {
    let trim =
        |text| if from_end { str::trim_end_matches(text, is_space) } else { str::trim_start_matches(text, is_space) };
    let (mut parts, mut rest) = (Vec::new(), trim(text));
    while !rest.is_empty() {
        let found = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = found.filter(|_| parts.len() < most) else {
            // The rest as it is, but for the white space at its own end.
            parts.push(rest);
            break;
        };
        let width = rest[at..].chars().next().map_or(0, char::len_utf8);
        let (word, tail) =
            if from_end { (&rest[at + width..], &rest[..at]) } else { (&rest[..at], &rest[at + width..]) };
        parts.push(word);
        rest = trim(tail);
    }
    parts
}

fn partition(meter: &Rc<Meter>, text: &str, separator: &str, from_end: bool) -> Result<Value, Trouble> {
    if separator.is_empty() {
        return Trouble::failed("a text is split at an empty one");
    }
    let place = if from_end {
        search::places_from_end(meter, text, separator).next()
    } else {
        search::places(meter, text, separator).next()
    };
    let parts = match place {
        Some(place) => [&text[..place.start], &text[place.clone()], &text[place.end..]],
        None if from_end => ["", "", text],
        None => [text, "", ""],
    };
    let Value::List(parts) = texts(meter, parts.into_iter())? else { return Ok(Value::None) };
    Ok(Value::Tuple(parts))
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
