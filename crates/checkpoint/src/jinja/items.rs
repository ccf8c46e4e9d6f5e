//! Filters of what has items: lists, dictionaries and the characters of texts.

use std::rc::Rc;

use super::{
    Trouble, arithmetic,
    checks::test,
    evaluate::Evaluator,
    filters,
    given::{Given, flag, needed, some},
    meter::Meter,
    methods,
    tree::Operator,
    value::{Value, equal, order},
};

/// Filters that are here.
pub(super) const KNOWN: [&str; 20] = [
    "batch",
    "dictsort",
    "first",
    "groupby",
    "items",
    "join",
    "last",
    "list",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "slice",
    "sort",
    "sum",
    "unique",
];

/// Applies a filter.
pub(super) fn filter(evaluator: &mut Evaluator, name: &str, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let meter = &meter;
    match name {
        "items" => {
            given.none(name)?;
            match value {
                Value::Map(items) => methods::pairs(meter, items),
                Value::Undefined => meter.list(Vec::new()),
                other => Trouble::failed(format!("{name} needs a dictionary, found {}", other.kind())),
            }
        }
        "dictsort" => {
            let [exact, by, reverse] = given.bind(name, ["case_sensitive", "by", "reverse"])?;
            let place = match by.as_ref().map_or(Ok("key"), |by| by.text(name))? {
                "key" => 0,
                "value" => 1,
                other => {
                    return Trouble::failed(format!("dictsort sorts by key or value, found {}", super::brief(other)));
                }
            };
            let Value::Map(items) = value else {
                return Trouble::failed(format!("{name} needs a dictionary, found {}", value.kind()));
            };
            let pairs = methods::pairs(meter, items)?.walk(meter)?;
            let keys = pairs.iter().map(|pair| evaluator.item(pair, &Value::Int(place)));
            let keys = folded(meter, keys.collect::<Result<_, _>>()?, flag(exact.as_ref()))?;
            sorted(meter, keys.into_iter().zip(pairs).collect(), flag(reverse.as_ref()))
        }
        "list" => {
            given.none(name)?;
            meter.list(value.walk(meter)?)
        }
        "first" | "last" => {
            given.none(name)?;
            let items = value.walk(meter)?;
            let found = if name == "first" { items.first() } else { items.last() };
            Ok(found.cloned().unwrap_or(Value::Undefined))
        }
        "reverse" => {
            given.none(name)?;
            let mut items = value.walk(meter)?;
            items.reverse();
            if value.as_text().is_some() { methods::join(meter, &items, "") } else { meter.list(items) }
        }
        "join" => {
            let [between, path] = given.bind(name, ["d", "attribute"])?;
            let between = between.map_or_else(|| meter.text(String::new()), |between| meter.written(&between))?;
            let items = keys(evaluator, &value.walk(meter)?, some(path))?;
            methods::join(meter, &items, between.text(name)?)
        }
        "sum" => {
            let [path, start] = given.bind(name, ["attribute", "start"])?;
            let items = keys(evaluator, &value.walk(meter)?, some(path))?;
            let start = start.unwrap_or(Value::Int(0));
            if start.as_text().is_some() {
                return Trouble::failed("sum cannot add texts: use join");
            }
            items.iter().try_fold(start, |sum, item| arithmetic::binary(meter, Operator::Add, &sum, item))
        }
        "min" | "max" => {
            let [exact, path] = given.bind(name, ["case_sensitive", "attribute"])?;
            let items = value.walk(meter)?;
            let keys = folded(meter, keys(evaluator, &items, some(path))?, flag(exact.as_ref()))?;
            let mut best: Option<usize> = None;
            for (place, key) in keys.iter().enumerate() {
                let better = match best {
                    Some(best) => {
                        let order = order(key, &keys[best], meter)?;
                        if name == "min" { order.is_lt() } else { order.is_gt() }
                    }
                    None => true,
                };
                best = if better { Some(place) } else { best };
            }
            Ok(best.map_or(Value::Undefined, |best| items[best].clone()))
        }
        "sort" => {
            let [reverse, exact, path] = given.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let items = value.walk(meter)?;
            let keys = keys_in_order(evaluator, &items, some(path), flag(exact.as_ref()))?;
            sorted(meter, keys.into_iter().zip(items).collect(), flag(reverse.as_ref()))
        }
        "unique" => {
            let [exact, path] = given.bind(name, ["case_sensitive", "attribute"])?;
            let items = value.walk(meter)?;
            let keys = folded(meter, keys(evaluator, &items, some(path))?, flag(exact.as_ref()))?;
            let (mut known, mut kept): (Vec<Value>, Vec<Value>) = Default::default();
            for (key, item) in keys.into_iter().zip(items) {
                if !found(meter, &known, &key)? {
                    known.push(key);
                    kept.push(item);
                }
            }
            meter.list(kept)
        }
        "batch" => {
            let [size, fill] = given.bind(name, ["linecount", "fill_with"])?;
            let fill = some(fill);
            let size = count(size, name, "linecount")?;
            let mut rows = Vec::new();
            for row in value.walk(meter)?.chunks(size) {
                rows.push(meter.list(filled(meter, row, size, fill.as_ref())?)?);
            }
            meter.list(rows)
        }
        "slice" => {
            let [columns, fill] = given.bind(name, ["slices", "fill_with"])?;
            slices(meter, &value.walk(meter)?, count(columns, name, "slices")?, some(fill).as_ref())
        }
        "groupby" => groups(evaluator, value, given),
        "map" => map(evaluator, value, given),
        "select" | "reject" | "selectattr" | "rejectattr" => select(evaluator, name, value, given),
        other => Trouble::failed(format!("the filter {} is not known", super::brief(other))),
    }
}

fn count(value: Option<Value>, what: &str, name: &str) -> Result<usize, Trouble> {
    let found = needed(value, what, name)?.int(what)?;
    let count = usize::try_from(found).ok().filter(|count| *count > 0);
    count.map_or_else(|| Trouble::failed(format!("{what} needs a number from 1 on, found {found}")), Ok)
}

fn found(meter: &Meter, known: &[Value], wanted: &Value) -> Result<bool, Trouble> {
    for value in known {
        if equal(value, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Items, and what fills them up to a size if something does.
fn filled(meter: &Meter, items: &[Value], size: usize, fill: Option<&Value>) -> Result<Vec<Value>, Trouble> {
    let mut row = items.to_vec();
    if let Some(fill) = fill {
        meter.room(size.checked_mul(size_of::<Value>()))?;
        row.resize(size.max(row.len()), fill.clone());
    }
    Ok(row)
}

/// Items in so many columns, the first of which are longer if they cannot all be the same.
fn slices(meter: &Rc<Meter>, items: &[Value], columns: usize, fill: Option<&Value>) -> Result<Value, Trouble> {
    meter.room(columns.checked_mul(size_of::<Value>() + 128))?;
    let (each, longer) = (items.len() / columns, items.len() % columns);
    let (mut made, mut done) = (Vec::new(), 0);
    for column in 0..columns {
        let size = each + usize::from(column < longer);
        // Jinja2 fills the shorter columns, even where there are no longer ones.
        let full = if fill.is_some() && column >= longer { each + 1 } else { size };
        made.push(meter.list(filled(meter, &items[done..done + size], full, fill)?)?);
        done += size;
    }
    meter.list(made)
}

/// Groups of the items that have the same attribute, in its order: pairs of the attribute and the items.
fn groups(evaluator: &mut Evaluator, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let [path, default, exact] = given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let path = needed(path, "groupby", "attribute")?;
    let items = value.walk(&meter)?;
    let mut own = attributes(evaluator, &items, &path)?;
    replace_undefined(&mut own, some(default));
    let keys = folded(&meter, own.clone(), flag(exact.as_ref()))?;
    let places = keys.iter().cloned().zip((0..items.len()).map(|place| Value::Int(place as i64)));
    let order = sorted(&meter, places.collect(), false)?;
    let mut groups: Vec<(usize, Vec<Value>)> = Vec::new();
    for place in order.walk(&meter)? {
        let place = place.int("groupby")? as usize;
        match groups.last_mut() {
            Some((first, group)) if equal(&keys[*first], &keys[place], &meter)? => group.push(items[place].clone()),
            _ => groups.push((place, vec![items[place].clone()])),
        }
    }
    let mut pairs = Vec::new();
    for (first, group) in groups {
        pairs.push(meter.tuple(vec![own[first].clone(), meter.list(group)?])?);
    }
    meter.list(pairs)
}

fn map(evaluator: &mut Evaluator, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let items = value.walk(&meter)?;
    let Given { positional, named } = given;
    if positional.is_empty() && named.iter().any(|(name, _)| name == "attribute") {
        let [path, default] = Given { positional, named }.bind("map", ["attribute", "default"])?;
        let mut found = attributes(evaluator, &items, &needed(path, "map", "attribute")?)?;
        replace_undefined(&mut found, some(default));
        return meter.list(found);
    }
    let mut rest = positional.into_iter();
    let name = needed(rest.next(), "map", "name of a filter or attribute")?;
    let name = name.text("map")?;
    if name == "map" {
        return Trouble::failed("map is not for map");
    }
    let positional: Vec<Value> = rest.collect();
    let mapped = items.iter().map(|item| {
        meter.step(1)?;
        let given = Given { positional: positional.clone(), named: named.clone() };
        filters::filter(evaluator, name, item, given)
    });
    let mapped = mapped.collect::<Result<_, Trouble>>()?;
    meter.list(mapped)
}

fn replace_undefined(values: &mut [Value], default: Option<Value>) {
    let Some(default) = default else { return };
    for value in values.iter_mut().filter(|value| matches!(value, Value::Undefined)) {
        *value = default.clone();
    }
}

fn select(evaluator: &mut Evaluator, name: &str, value: &Value, given: Given) -> Result<Value, Trouble> {
    let meter = Rc::clone(&evaluator.meter);
    let items = value.walk(&meter)?;
    let (by_attribute, wanted) = (name.ends_with("attr"), name.starts_with("select"));
    let Given { positional, named } = given;
    let mut rest = positional.into_iter();
    let subjects = if by_attribute {
        attributes(evaluator, &items, &needed(rest.next(), name, "attribute")?)?
    } else {
        items.clone()
    };
    let check = rest.next();
    let positional: Vec<Value> = rest.collect();
    let mut kept = Vec::new();
    for (item, subject) in items.into_iter().zip(subjects) {
        let given = Given { positional: positional.clone(), named: named.clone() };
        let holds = if let Some(check) = &check {
            test(&meter, check.text("a test")?, &subject, given)?
        } else {
            given.none(name)?;
            subject.is_true()
        };
        if holds == wanted {
            kept.push(item);
        }
    }
    meter.list(kept)
}

/// An attribute of each item, or the items.
fn keys(evaluator: &Evaluator, items: &[Value], path: Option<Value>) -> Result<Vec<Value>, Trouble> {
    path.map_or_else(|| Ok(items.to_vec()), |path| attributes(evaluator, items, &path))
}

/// What items are sorted by: themselves, or attributes with commas between them.
fn keys_in_order(
    evaluator: &Evaluator,
    items: &[Value],
    path: Option<Value>,
    exact: bool,
) -> Result<Vec<Value>, Trouble> {
    let meter = &evaluator.meter;
    let several = path.as_ref().and_then(Value::as_text).filter(|path| path.contains(','));
    let Some(several) = several else { return folded(meter, keys(evaluator, items, path)?, exact) };
    let mut columns = Vec::new();
    for path in several.split(',') {
        columns.push(folded(meter, attributes(evaluator, items, &meter.text(path.to_owned())?)?, exact)?);
    }
    let row = |place: usize| meter.tuple(columns.iter().map(|column| column[place].clone()).collect());
    (0..items.len()).map(row).collect()
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

/// Keys as they are compared: texts in any case, unless it counts.
fn folded(meter: &Rc<Meter>, mut keys: Vec<Value>, exact: bool) -> Result<Vec<Value>, Trouble> {
    for key in keys.iter_mut().filter(|_| !exact) {
        if let Value::Text(text) = &*key {
            *key = methods::in_case(meter, text, str::to_lowercase)?;
        }
    }
    Ok(keys)
}

/// Items in the order of their keys; items with the same key stay as they are. It merges runs itself: what has no order is
/// an error, and numbers that are none must not upset it.
fn sorted(meter: &Rc<Meter>, keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Value, Trouble> {
    let mut runs: Vec<Vec<(Value, Value)>> = keyed.into_iter().map(|pair| vec![pair]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(first) = pairs.next() {
            merged.push(match pairs.next() {
                Some(second) => merge(meter, first, second, reverse)?,
                None => first,
            });
        }
        runs = merged;
    }
    meter.list(runs.pop().unwrap_or_default().into_iter().map(|(_, value)| value).collect())
}

fn merge(
    meter: &Meter,
    first: Vec<(Value, Value)>,
    second: Vec<(Value, Value)>,
    reverse: bool,
) -> Result<Vec<(Value, Value)>, Trouble> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    while let (Some((a, _)), Some((b, _))) = (first.peek(), second.peek()) {
        let order = order(a, b, meter)?;
        let later = if reverse { order.is_lt() } else { order.is_gt() };
        merged.extend(if later { second.next() } else { first.next() });
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}
