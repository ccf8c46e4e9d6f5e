//! Functions that every template knows.

use std::rc::Rc;

use super::{
    Trouble, clock,
    evaluate::{Evaluator, dictionary},
    given::{Given, int, needed},
    meter::Meter,
    value::Value,
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
        "range" => range(&meter, given),
        "namespace" | "dict" => {
            let Given { positional, named } = given;
            let found = positional.len();
            if found > 1 {
                return Trouble::failed(format!("{name} takes at most 1 arguments, found {found}"));
            }
            let mut items = match positional.first() {
                Some(source) => pairs(&meter, source, name)?,
                None => Vec::new(),
            };
            for (key, value) in named {
                items.push((meter.text(key)?, value));
            }
            if name == "dict" {
                return dictionary(&meter, items);
            }
            let attributes = items.into_iter().map(|(key, value)| Ok((key.text(name)?.to_owned(), value)));
            evaluator.namespace(attributes.collect::<Result<_, Trouble>>()?)
        }
        "raise_exception" => {
            let message = meter.written(&given.one(name, "message")?)?;
            let message = meter.marks.signs(message.text(name)?);
            Err(Trouble::Raised(message.chars().take(1000).collect()))
        }
        "strftime_now" => {
            let format = given.one(name, "format")?;
            let format = format.text(name)?;
            // No specifier makes more than 256 characters of its two or more.
            meter.room(format.len().checked_mul(128))?;
            meter.text(clock::date(format, evaluator.now))
        }
        other => Trouble::failed(format!("{other} is not a function")),
    }
}

/// The items of a dictionary, or of a list of pairs.
fn pairs(meter: &Rc<Meter>, source: &Value, name: &str) -> Result<Vec<(Value, Value)>, Trouble> {
    if let Value::Map(items) = source {
        meter.room(items.len().checked_mul(2 * size_of::<Value>()))?;
        return Ok(items.to_vec());
    }
    let mut pairs = Vec::new();
    for pair in source.walk(meter)? {
        match pair.items() {
            Some([key, value]) => pairs.push((key.clone(), value.clone())),
            _ => return Trouble::failed(format!("{name} takes a dictionary, pairs or names, found {}", source.kind())),
        }
    }
    Ok(pairs)
}

fn range(meter: &Rc<Meter>, given: Given) -> Result<Value, Trouble> {
    let [first, second, step] = given.bind("range", ["start", "stop", "step"])?;
    let first = needed(first, "range", "stop")?.int("range")?;
    let (start, end) = match int(second, "range")? {
        Some(end) => (first, end),
        None => (0, first),
    };
    let step = int(step, "range")?.unwrap_or(1);
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
