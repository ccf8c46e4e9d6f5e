//! Values of a template.

use std::{cell::RefCell, cmp::Ordering, ops::Deref, rc::Rc};

use super::{
    Trouble,
    meter::Meter,
    search,
    tree::{For, Macro},
};

/// Contents that a [`Meter`] counts until the last value that shares them is dropped.
#[derive(Debug)]
pub(super) struct Held<T: ?Sized> {
    pub(super) contents: Box<T>,
    pub(super) depth: usize,
    pub(super) bytes: usize,
    pub(super) meter: Rc<Meter>,
}

impl<T: ?Sized> Drop for Held<T> {
    fn drop(&mut self) {
        self.meter.release(self.bytes);
    }
}

impl<T: ?Sized> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.contents
    }
}

/// A value; cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<Held<str>>),
    List(Rc<Held<Vec<Value>>>),
    Tuple(Rc<Held<Vec<Value>>>),
    Map(Rc<Held<Vec<(Value, Value)>>>),
    /// A place among the evaluator's namespaces: they can hold each other, and must not keep each other alive.
    Namespace(usize),
    Macro(Rc<Closure>),
    /// The state of a loop.
    Loop(Rc<Loop>),
    /// A function by its name.
    Function(&'static str),
}

/// A macro, and the scope that it was defined in.
#[derive(Debug)]
pub(super) struct Closure {
    pub(super) definition: Rc<Macro>,
    pub(super) scope: usize,
}

/// Attributes of `loop`, and what it takes to run the loop within itself.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) index: usize,
    pub(super) items: Rc<[Value]>,
    /// Number of times that the loop runs within itself.
    pub(super) depth: usize,
    pub(super) each: Rc<For>,
    /// The scope around the loop.
    pub(super) scope: usize,
    /// What `changed` was asked about last.
    pub(super) last: Rc<RefCell<Option<Value>>>,
}

impl Value {
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::List(items) | Self::Tuple(items) => items.depth,
            Self::Map(items) => items.depth,
            _ => 0,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "nothing that is defined",
            Self::None => "none",
            Self::Bool(_) => "a flag",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Map(_) => "a dictionary",
            Self::Namespace(_) => "a namespace",
            Self::Macro(_) | Self::Function(_) => "a function",
            Self::Loop(_) => "a loop",
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::None => false,
            Self::Bool(flag) => *flag,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) => !items.is_empty(),
            Self::Map(items) => !items.is_empty(),
            Self::Namespace(_) | Self::Macro(_) | Self::Loop(_) | Self::Function(_) => true,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The text, or an error that names what needs one.
    pub(super) fn text(&self, what: &str) -> Result<&str, Trouble> {
        self.as_text().map_or_else(|| Trouble::failed(format!("{what} needs a text, found {}", self.kind())), Ok)
    }

    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(flag) => Some(i64::from(*flag)),
            _ => None,
        }
    }

    /// The whole number, or an error that names what needs one.
    pub(super) fn int(&self, what: &str) -> Result<i64, Trouble> {
        self.as_int().map_or_else(|| Trouble::failed(format!("{what} needs a whole number, found {}", self.kind())), Ok)
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }

    pub(super) fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) | Self::Tuple(items) = self { Some(items) } else { None }
    }

    /// The value of a key of a map.
    pub(super) fn get(&self, key: &Self, meter: &Meter) -> Result<Option<Self>, Trouble> {
        let Self::Map(items) = self else { return Ok(None) };
        for (candidate, value) in items.iter() {
            if equal(candidate, key, meter)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    /// All that a loop over it sees; nothing is seen of what is not defined, as `transformers` allows.
    pub(super) fn walk(&self, meter: &Rc<Meter>) -> Result<Vec<Self>, Trouble> {
        let all = match self {
            Self::Undefined => Vec::new(),
            Self::List(items) | Self::Tuple(items) => {
                meter.room(items.len().checked_mul(size_of::<Self>()))?;
                items.to_vec()
            }
            Self::Map(items) => items.iter().map(|(key, _)| key.clone()).collect(),
            Self::Text(text) => {
                // A character becomes a value of its own.
                meter.room(text.chars().count().checked_mul(128))?;
                text.chars().map(|character| meter.text(character.to_string())).collect::<Result<_, _>>()?
            }
            other => return Trouble::failed(format!("{} has no items", other.kind())),
        };
        meter.step(all.len() / 16)?;
        Ok(all)
    }
}

/// Reports whether two values are equal, as in Python. Each pair that is looked at is a step: lists may share their
/// parts so often that there are more pairs than steps.
pub(super) fn equal(a: &Value, b: &Value, meter: &Meter) -> Result<bool, Trouble> {
    meter.step(1)?;
    Ok(match (a, b) {
        (Value::Undefined, Value::Undefined) | (Value::None, Value::None) => true,
        (Value::Text(a), Value::Text(b)) => {
            meter.step(a.len() / 4096)?;
            meter.marks.same(a, b)
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(one), Value::Map(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            for (key, value) in one.iter() {
                match b.get(key, meter)? {
                    Some(found) if equal(value, &found, meter)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Namespace(a), Value::Namespace(b)) => a == b,
        (a, b) => match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_float().zip(b.as_float()).is_some_and(|(a, b)| a == b),
        },
    })
}

/// The order of two values of the same kind.
pub(super) fn order(a: &Value, b: &Value, meter: &Meter) -> Result<Ordering, Trouble> {
    meter.step(1)?;
    if let (Value::Text(a), Value::Text(b)) = (a, b) {
        meter.step(a.len().min(b.len()) / 4096)?;
        return Ok(meter.marks.signs(a).cmp(&meter.marks.signs(b)));
    }
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return Ok(a.cmp(&b));
    }
    if let (Some(a), Some(b)) = (a.as_float(), b.as_float()) {
        return Ok(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
    }
    if let (Some(a), Some(b)) = (a.items(), b.items()) {
        for (a, b) in a.iter().zip(b) {
            let found = order(a, b, meter)?;
            if found.is_ne() {
                return Ok(found);
            }
        }
        return Ok(a.len().cmp(&b.len()));
    }
    Trouble::failed(format!("{} and {} have no order", a.kind(), b.kind()))
}

/// Reports whether something is in a list, a text or a map.
pub(super) fn contains(whole: &Value, part: &Value, meter: &Meter) -> Result<bool, Trouble> {
    match whole {
        Value::Undefined => Ok(false),
        Value::Text(text) => {
            let part = part.text("in a text")?;
            meter.step(text.len() / 1024)?;
            Ok(search::holds(meter, text, part))
        }
        Value::Map(_) => Ok(whole.get(part, meter)?.is_some()),
        Value::List(items) | Value::Tuple(items) => {
            for item in items.iter() {
                if equal(item, part, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => Trouble::failed(format!("{} has no items", other.kind())),
    }
}
