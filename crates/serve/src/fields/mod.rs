//! A reader of JSON objects that forgets no field: in the end it refuses each unread one by name.
//!
//! Which fields there are, of which types and within which bounds, says a [table](table), from which `/openapi.json` is
//! written, too.

mod strict;
pub mod table;

use demask_settings::{foreign, names::nearest, whole};
use serde_json::{Map, Value, error::Category};

use crate::{Refusal, limits::Limits};
use strict::Strict;
pub use strict::describe;
use table::{Field, Of, Table};

/// The fields of an object, taken one by one.
#[derive(Debug)]
pub struct Fields<'l> {
    map: Map<String, Value>,
    table: Table,
    limits: &'l Limits,
    /// Path before the names, for objects inside of others.
    path: &'static str,
    /// Fields that stood in an object inside of this one, and what stands before their names.
    adopted: Vec<(&'static str, &'static str)>,
}

/// Returns why a body cannot be read: it is not there, it is no JSON, or it is JSON that has no one meaning.
fn unread(body: &[u8], error: &serde_json::Error) -> Refusal {
    let said = error.to_string();
    Refusal::bad(match error.classify() {
        _ if body.iter().all(u8::is_ascii_whitespace) => {
            "the body is empty, which is no JSON: expected an object".to_owned()
        }
        Category::Data => format!("the body cannot be read ({said}): expected each name once"),
        _ if said.starts_with("recursion limit") => {
            format!("the body nests too deep ({said}): expected at most 127 levels")
        }
        _ => format!("the body is no JSON ({said}): expected an object"),
    })
}

/// A field that the table does not have. A reader that asks for one finds none, and a client's is refused.
static NOWHERE: Field = Field { name: "", of: Of::Hint, default: "", about: "" };

impl<'l> Fields<'l> {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn parse(body: &[u8], table: Table, limits: &'l Limits) -> Result<Self, Refusal> {
        // Some programs write a mark in front of what is UTF-8 (RFC 8259, 8.1).
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let Strict(value) = serde_json::from_slice(body).map_err(|error| unread(body, &error))?;
        Self::of(value, table, limits, "")
    }

    /// Reads an object inside of another; `path` stands before its names in messages.
    ///
    /// # Errors
    /// If it is no object.
    pub fn of(value: Value, table: Table, limits: &'l Limits, path: &'static str) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Self { map, table, limits, path, adopted: Vec::new() }),
            other => {
                let what = if path.is_empty() { "the body" } else { path.trim_end_matches('.') };
                let message = format!("{what} is {}, expected an object", describe(&other));
                Err(Refusal { param: (!path.is_empty()).then(|| what.to_owned()), ..Refusal::bad(message) })
            }
        }
    }

    /// All fields of the table.
    fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.table.iter().copied().flatten()
    }

    /// A field of the table.
    fn field(&self, name: &str) -> &'static Field {
        self.fields().find(|field| field.name == name).unwrap_or(&NOWHERE)
    }

    /// Reports whether the table has a field: only described fields are taken.
    fn is_known(&self, name: &str) -> bool {
        self.fields().any(|field| table::names(field).contains(&name))
    }

    /// A name with what stands before it.
    fn full(&self, name: &str) -> String {
        let inside = self.adopted.iter().find(|(adopted, _)| *adopted == name).map_or("", |(_, path)| path);
        format!("{}{inside}{name}", self.path)
    }

    /// Takes a field; none if it is missing or null.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        if !self.map.contains_key(name) || !self.is_known(name) {
            return None;
        }
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Returns the value of a field, which stays to be taken; null if it is not there.
    pub fn seen(&self, name: &str) -> Value {
        self.map.get(name).cloned().unwrap_or_default()
    }

    /// Returns a refusal of a field's value.
    pub fn wrong(&self, name: &str, found: &Value, expected: &str) -> Refusal {
        let name = self.full(name);
        Refusal::parameter(&name, format!("`{name}` is {}, expected {expected}", describe(found)))
    }

    /// Takes a field, or its default if it is not there.
    fn typed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let default = self.field(name).default;
        let Some(value) = self.take(name) else {
            return Ok(serde_json::from_str(default).ok().and_then(|value| read(&value)));
        };
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

    /// Takes a switch; one without a default that is not there is off.
    ///
    /// # Errors
    /// If it is something else.
    pub fn is_on(&mut self, name: &'static str) -> Result<bool, Refusal> {
        Ok(self.switch(name)?.unwrap_or(false))
    }

    /// Takes a whole number within the field's bounds, both included.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn count(&mut self, name: &'static str) -> Result<Option<usize>, Refusal> {
        let (least, most) = match self.field(name).of {
            Of::Count(least, most) => (least, most(self.limits)),
            // What is too long for the server has a message of its own.
            _ => (1, 1 << 40),
        };
        let expected = format!("a whole number from {least} to {most}");
        let bounded = |count: &u64| (least..=most).contains(count);
        let read = |value: &Value| whole(value).and_then(|count| u64::try_from(count).ok()).filter(bounded);
        Ok(self.typed(name, &expected, read)?.map(|count| count as usize))
    }

    /// Takes a whole number within the field's bounds, both included, which may be negative.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn integer(&mut self, name: &'static str) -> Result<Option<i64>, Refusal> {
        let (least, most) = match self.field(name).of {
            Of::Integer(least, most) => (least, most),
            _ => (i64::MIN, i64::MAX),
        };
        let expected = format!("a whole number from {least} to {most}");
        let bounded = |number: &i64| (least..=most).contains(number);
        self.typed(name, &expected, |value| whole(value).and_then(|number| i64::try_from(number).ok()).filter(bounded))
    }

    /// Takes a field that is 0, and leaves any other one; whether it was.
    pub fn zero(&mut self, name: &'static str) -> bool {
        let zero = self.map.get(name).is_some_and(|value| value.as_f64() == Some(0.0));
        if zero {
            self.take(name);
        }
        zero
    }

    /// Takes a number within the field's bounds, both included.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn number(&mut self, name: &'static str) -> Result<Option<f64>, Refusal> {
        let (least, most) = match self.field(name).of {
            Of::Number(least, most) => (least, most),
            _ => (f64::MIN, f64::MAX),
        };
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

    /// Takes an object, whose fields stand in the table, too.
    ///
    /// # Errors
    /// If it is something else.
    pub fn object(&mut self, name: &'static str, path: &'static str) -> Result<Option<Self>, Refusal> {
        let Of::Object(table) = self.field(name).of else { return Ok(None) };
        self.take(name).map(|value| Self::of(value, table, self.limits, path)).transpose()
    }

    /// Takes fields over that stand in an object inside of this one, as if they stood here.
    ///
    /// # Errors
    /// If one of them stands here as well.
    pub fn adopt(&mut self, inner: &mut Fields<'_>, names: &'static [Field]) -> Result<(), Refusal> {
        for Field { name, .. } in names {
            let Some(value) = inner.take(name) else { continue };
            if self.map.get(*name).is_some_and(|own| !own.is_null()) {
                let (own, inner) = (self.full(name), inner.full(name));
                return Err(Refusal::parameter(&inner, format!("`{inner}` and `{own}` are both set: omit one")));
            }
            self.map.insert((*name).to_owned(), value);
            self.adopted.push((name, inner.path));
        }
        Ok(())
    }

    /// Passes over fields that change no answer.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// Passes over the hints of the table, and over fields that are not implemented and whose values change nothing.
    ///
    /// # Errors
    /// If the value of one would change the answer.
    pub fn pass(&mut self) -> Result<(), Refusal> {
        for field in self.fields() {
            match field.of {
                Of::Hint => drop(self.take(field.name)),
                Of::Only(values) => self.only(field.name, values)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Passes over a field whose value changes nothing, and refuses any other one, which would.
    ///
    /// # Errors
    /// If the value is another one.
    pub fn only(&mut self, name: &str, values: &[&str]) -> Result<(), Refusal> {
        let Some(value) = self.take(name) else { return Ok(()) };
        let allowed = values.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let same = |other: &Value| *other == value || other.as_f64().is_some_and(|left| value.as_f64() == Some(left));
        if allowed.clone().any(|other| same(&other)) {
            return Ok(());
        }
        let allowed: Vec<_> = allowed.map(|value| value.to_string()).collect();
        let instead =
            if allowed.is_empty() { String::new() } else { format!(", or set it to {}", allowed.join(" or ")) };
        let name = self.full(name);
        let message =
            format!("`{name}` is {}, which this server does not implement: omit it{instead}", describe(&value));
        Err(Refusal::parameter(name, message).coded("unsupported_parameter"))
    }

    /// Takes all fields that are left and that these names are for, with their values.
    pub fn rest(&mut self, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
        let names: Vec<String> = self.map.keys().filter(|name| wanted(name)).cloned().collect();
        let taken = names.into_iter().filter_map(|name| self.map.remove_entry(&name));
        taken.filter(|(_, value)| !value.is_null()).collect()
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
        let full = self.full(name);
        if let Some(Field { of: Of::Elsewhere(place), .. }) = self.fields().find(|field| field.name == name) {
            return Err(
                Refusal::parameter(&full, format!("`{full}` is no option here: {place}")).coded("unknown_parameter")
            );
        }
        let known: Vec<&str> = self.fields().flat_map(table::names).collect();
        let advice = foreign::setting(name).map_or_else(
            || {
                let near = nearest(name, &known).map(|near| format!(", did you mean `{near}`?: rename or omit it"));
                near.unwrap_or_else(|| ": omit it".into())
            },
            |foreign| format!(", {foreign}"),
        );
        let shown = describe(&Value::from(name.as_str()));
        let message = format!("unknown parameter {}{shown}{advice}", self.path);
        Err(Refusal::parameter(full, message).coded("unknown_parameter"))
    }
}
