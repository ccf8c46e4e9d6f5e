//! Settings, declared once.
//!
//! A [`settings!`] declaration names each setting of a struct with its type, its bounds, its default and one sentence. All that
//! reads and writes settings follows from it: flags and environment ([`Settings::set`]), TOML with its lines ([`toml`]), JSON
//! ([`Settings::set_json`]), layers of these with the origin of each value ([`layers`]), help and pages ([`Field`]). This crate knows no
//! setting, but the names that other programs have for some ([`foreign`]).
#![forbid(unsafe_code)]

mod declare;
mod error;
mod field;
pub mod foreign;
mod guides;
pub mod layers;
mod list;
pub mod names;
mod read;
pub mod toml;

#[cfg(test)]
mod tests;

pub use error::SettingError;
pub use field::{Field, Kind};
pub use guides::{Guide, Guides};
pub use list::List;
pub use read::{Bounds, Document, Method, Plain, Reads, Unread, Word, whole};
#[doc(hidden)]
pub use {serde, serde_json};

use std::{fmt, marker::PhantomData};

use serde::de::{Error, MapAccess, Visitor};
use serde_json::Value;

/// A struct of settings, all of them optional.
pub trait Settings: Clone + Default + Sized {
    /// All settings, in the order in which they are written out.
    const FIELDS: &'static [Field];
    /// Noun for one of them in messages.
    const WHAT: &'static str;
    /// Settings that an earlier version had, each with the version and an advice.
    const REMOVED: &'static [(&'static str, &'static str, &'static str)];

    /// Sets a setting by its name from text, as it is typed after a flag. Of a setting with several values it is one more.
    ///
    /// # Errors
    /// If there is no such setting, or it does not take this value.
    fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError>;

    /// Sets a setting by its name from a value of JSON. Null leaves it unset.
    ///
    /// # Errors
    /// If there is no such setting, or it does not take this value.
    fn set_json(&mut self, name: &str, value: Value) -> Result<(), SettingError>;

    /// Returns a value as JSON, if it is set.
    fn json(&self, name: &str) -> Option<Value>;

    /// Takes the values of another struct for all that is unset here.
    fn fill(&mut self, other: Self);

    /// Returns the names of the settings that have a value.
    fn given(&self) -> Vec<&'static str> {
        Self::FIELDS.iter().map(|field| field.name).filter(|name| self.json(name).is_some()).collect()
    }

    /// Returns the settings but for those with these names.
    #[must_use]
    fn without(&self, names: &[&str]) -> Self {
        let mut kept = Self::default();
        for name in self.given().into_iter().filter(|name| !names.contains(name)) {
            // What was set may be set.
            self.json(name).and_then(|value| kept.set_json(name, value).ok());
        }
        kept
    }

    /// Returns a setting by its name, in any spelling.
    fn field(name: &str) -> Option<&'static Field> {
        Self::FIELDS.iter().find(|field| names::same(field.name, name))
    }

    /// Returns the refusal of a name that no setting has.
    fn unknown(name: &str) -> SettingError {
        let removed = Self::REMOVED.iter().find(|(removed, ..)| names::same(removed, name));
        let unknown = || {
            if let Some(foreign) = foreign::setting(name) {
                return SettingError::Foreign { what: Self::WHAT, found: name.to_owned(), foreign };
            }
            let known = Self::FIELDS.iter().map(|field| field.name).collect();
            names::UnknownName { what: Self::WHAT, found: name.to_owned(), known }.into()
        };
        removed.map_or_else(unknown, |&(name, version, instead)| SettingError::Removed { name, version, instead })
    }
}

/// Reads an object of settings. A name in 2 spellings is refused.
#[doc(hidden)]
pub fn from_object<'de, S: Settings, D: serde::Deserializer<'de>>(deserializer: D) -> Result<S, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<S>(PhantomData<S>);

impl<'de, S: Settings> Visitor<'de> for ObjectVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {}s", S::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<S, A::Error> {
        let (mut settings, mut seen) = (S::default(), Vec::new());
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            settings.set_json(&name, value).map_err(A::Error::custom)?;
            if seen.iter().any(|other: &String| names::same(other, &name)) {
                return Err(A::Error::custom(format_args!("`{name}` is there twice, give it once")));
            }
            seen.push(name);
        }
        Ok(settings)
    }
}
