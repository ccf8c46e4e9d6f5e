//! A reader of JSON objects that forgets no field: what was not read in the end is refused by name.

use std::fmt;

use demask::internals::decode::names::nearest;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::Refusal;

/// The fields of an object, taken one by one.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// Names that were asked for, for the message of the one that nobody knows.
    known: Vec<&'static str>,
    /// What stands before the names, for objects inside of others.
    path: &'static str,
}

/// A JSON value none of whose objects has a name twice: of two values, a client may mean the other one.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

/// Builds the value of a [`Strict`].
struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("{} stands there twice", told(&name.into()))));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// How a JSON value is called in messages: short, whatever it holds.
pub fn told(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Fields {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let Strict(value) = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad(format!("the body is no JSON ({error}): expected an object")))?;
        Self::of(value, "")
    }

    /// Reads an object inside of another; `path` stands before its names in messages.
    ///
    /// # Errors
    /// If it is no object.
    pub fn of(value: Value, path: &'static str) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Self { map, known: Vec::new(), path }),
            other => {
                let what = if path.is_empty() { "the body" } else { path.trim_end_matches('.') };
                let message = format!("{what} is {}, expected an object", told(&other));
                Err(Refusal { param: (!path.is_empty()).then(|| what.to_owned()), ..Refusal::bad(message) })
            }
        }
    }

    /// Takes a field; what is null is the same as what is not there.
    pub fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Returns a refusal of a field's value.
    pub fn wrong(&self, name: &str, found: &Value, expected: &str) -> Refusal {
        let name = format!("{}{name}", self.path);
        Refusal::parameter(&name, format!("`{name}` is {}, expected {expected}", told(found)))
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| self.wrong(name, &value, expected))
    }

    /// Takes a text.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Refusal> {
        self.typed(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// Takes true or false.
    ///
    /// # Errors
    /// If it is something else.
    pub fn switch(&mut self, name: &'static str) -> Result<Option<bool>, Refusal> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// Takes a whole number within bounds, both included.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn count(&mut self, name: &'static str, least: u64, most: u64) -> Result<Option<usize>, Refusal> {
        let expected = format!("a whole number from {least} to {most}");
        // A whole number that is written with a point is one, too.
        let whole =
            |value: &Value| value.as_u64().or_else(|| value.as_f64().filter(|x| x.fract() == 0.0).map(|x| x as u64));
        let read = |value: &Value| {
            let negative = value.as_f64().is_some_and(|number| number < 0.0);
            whole(value).filter(|count| !negative && (least..=most).contains(count)).map(|count| count as usize)
        };
        self.typed(name, &expected, read)
    }

    /// Takes a field that is 0, and leaves any other one; whether it was.
    pub fn zero(&mut self, name: &'static str) -> bool {
        let zero = self.map.get(name).is_some_and(|value| value.as_f64() == Some(0.0));
        if zero {
            self.take(name);
        }
        zero
    }

    /// Takes a number within bounds, both included.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn number(&mut self, name: &'static str, least: f64, most: f64) -> Result<Option<f64>, Refusal> {
        let expected = format!("a number from {least} to {most}");
        self.typed(name, &expected, |value| value.as_f64().filter(|number| (least..=most).contains(number)))
    }

    /// Takes a list.
    ///
    /// # Errors
    /// If it is something else.
    pub fn list(&mut self, name: &'static str) -> Result<Option<Vec<Value>>, Refusal> {
        self.typed(name, "a list", |value| value.as_array().cloned())
    }

    /// Takes an object.
    ///
    /// # Errors
    /// If it is something else.
    pub fn object(&mut self, name: &'static str, path: &'static str) -> Result<Option<Self>, Refusal> {
        self.take(name).map(|value| Self::of(value, path)).transpose()
    }

    /// Passes over fields that change no answer.
    pub fn ignore(&mut self, names: &[&'static str]) {
        for name in names {
            self.take(name);
        }
    }

    /// Passes over a field whose value changes nothing, and refuses any other one, which would.
    ///
    /// # Errors
    /// If the value is another one.
    pub fn neutral(&mut self, name: &'static str, neutral: &[Value]) -> Result<(), Refusal> {
        let Some(value) = self.take(name) else { return Ok(()) };
        let same = |other: &Value| *other == value || other.as_f64().is_some_and(|left| value.as_f64() == Some(left));
        if neutral.iter().any(same) {
            return Ok(());
        }
        let allowed: Vec<_> = neutral.iter().map(ToString::to_string).collect();
        let instead =
            if allowed.is_empty() { String::new() } else { format!(", or set it to {}", allowed.join(" or ")) };
        let name = format!("{}{name}", self.path);
        let message = format!("`{name}` is {}, which this server does not implement: omit it{instead}", told(&value));
        Err(Refusal::parameter(name, message).coded("unsupported_parameter"))
    }

    /// Ends reading.
    ///
    /// # Errors
    /// If a field is left that nobody asked for.
    pub fn finish(self) -> Result<(), Refusal> {
        // A name without a value sets nothing.
        let Some(name) = self.map.iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name) else {
            return Ok(());
        };
        let near = nearest(name, &self.known).map(|near| format!(", did you mean `{near}`?"));
        let shown = told(&Value::from(name.as_str()));
        let message = format!("unknown parameter {}{shown}{}: omit it", self.path, near.unwrap_or_default());
        Err(Refusal::parameter(format!("{}{name}", self.path), message).coded("unknown_parameter"))
    }
}
