//! Settings from several sources, the first of which wins: flags, environment, file, defaults.

use std::{collections::BTreeMap, ffi::OsString, fmt};

use crate::{
    Field, SettingError, Settings,
    toml::{Entry, FileError, Place},
};

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// A variable of the environment, by its name.
    Variable(String),
    /// A line of a file.
    File(Place),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => out.write_str("flag"),
            Self::Variable(name) => out.write_str(name),
            Self::File(place) => write!(out, "{place}"),
        }
    }
}

/// Settings and where each of their values comes from.
#[derive(Debug, Clone)]
pub struct Layered<S> {
    settings: S,
    origins: BTreeMap<&'static str, Origin>,
    /// Lines of files that have a value, overridden or not.
    in_file: BTreeMap<&'static str, Place>,
}

impl<S: Settings> Layered<S> {
    /// Starts with flags.
    pub fn new(flags: S) -> Self {
        let origins = flags.given().into_iter().map(|name| (name, Origin::Flag)).collect();
        Self { settings: flags, origins, in_file: BTreeMap::new() }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &S {
        &self.settings
    }

    /// Returns where the value of a setting comes from; none for a default.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.get(name)
    }

    fn add(&mut self, layer: S, origin: &Origin) {
        for name in layer.given() {
            self.origins.entry(name).or_insert_with(|| origin.clone());
        }
        self.settings.fill(layer);
    }

    /// Reads variables of the environment for all that is unset and that `takes` names. `value` returns a variable's value.
    ///
    /// # Errors
    /// If a variable is empty or no text, or its setting does not take it: a line that names the variable.
    pub fn add_environment(
        &mut self,
        takes: impl Fn(&str) -> bool,
        value: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), SettingError> {
        for field in S::FIELDS.iter().filter(|field| takes(field.name)) {
            let variable = field.variable();
            let Some(value) = value(&variable) else { continue };
            let mut layer = S::default();
            let set = typed(&variable, value).and_then(|text| layer.set(field.name, &text));
            set.map_err(|error| match error {
                SettingError::Value { found, expected, .. } => {
                    SettingError::Content(format!("{variable} is {found}, expected {expected}"))
                }
                error => error,
            })?;
            self.add(layer, &Origin::Variable(variable));
        }
        Ok(())
    }

    /// Reads an entry of a file; whether there is a setting of its name.
    ///
    /// # Errors
    /// If the setting does not take the value.
    pub fn add_entry(&mut self, entry: &Entry<'_>) -> Result<bool, FileError> {
        if S::field(&entry.key).is_none() {
            return Ok(false);
        }
        let mut layer = S::default();
        entry.set(&mut layer)?;
        let own = entry.place();
        for name in layer.given() {
            if let Some(first) = self.in_file.insert(name, own.clone()).filter(|first| first.file == own.file) {
                return Err(own.refused(format!("{name} is there twice, first on line {}: omit one", first.line)));
            }
        }
        self.add(layer, &Origin::File(own));
        Ok(true)
    }

    /// Returns all values as lines of TOML, each with its origin in a comment.
    pub fn lines(&self) -> Vec<String> {
        S::FIELDS.iter().filter_map(|field| self.line(field)).collect()
    }

    fn line(&self, Field { name, default, usually, .. }: &Field) -> Option<String> {
        match (self.settings.json(name), default()) {
            (Some(value), _) => {
                let origin = self.origins.get(name).map(|origin| format!("  # {origin}"));
                Some(format!("{name} = {value}{}", origin.unwrap_or_default()))
            }
            (None, Some(value)) => Some(format!("{name} = {value}  # default")),
            (None, None) if usually.is_empty() => None,
            (None, None) => Some(format!("# {name}: {usually}  # default")),
        }
    }
}

/// Returns the text of a variable that must have one if it is set at all.
///
/// # Errors
/// If it is empty or no text.
pub fn typed(variable: &str, value: OsString) -> Result<String, SettingError> {
    match value.into_string() {
        Ok(text) if text.is_empty() => {
            Err(SettingError::Content(format!("{variable} is empty: give it a value, or unset it")))
        }
        Ok(text) => Ok(text),
        Err(_) => Err(SettingError::Content(format!("{variable} is no UTF-8: expected text"))),
    }
}
