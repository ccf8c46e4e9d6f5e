//! Settings of a row, a task or the defaults, with their lines, laid over each other.

use demask::{LoadOptions, Options, SettingError, Settings as _};
use demask_settings::toml::{Entry, FileError, Place, Table};
use serde_json::Value;

use super::super::spec::{AskOptions, Asking, ModelSpec, RunOptions};

/// One thing that is said.
#[derive(Debug, Clone)]
pub struct Setting {
    place: Place,
    /// Name with underscores.
    pub key: String,
    pub value: Value,
}

/// Settings of one place.
#[derive(Debug, Clone, Default)]
pub struct Settings(pub Vec<Setting>);

/// Settings that a run does not have: its seed is swept by `seeds`, prefixes are shared or not, nothing is kept of log-probabilities,
/// and no answer depends on the clock.
const NOT_OF_RUNS: [&str; 5] = ["seed", "prefix_cache", "top_logprobs", "deadline_ms", "deadline"];

/// The keys of a table of this sort beside its own.
pub fn allowed(of: &str) -> Vec<&'static str> {
    let answers = AskOptions::FIELDS.iter().chain(Options::FIELDS).filter(|field| field.name != "guide");
    let model = LoadOptions::FIELDS.iter().chain(RunOptions::FIELDS);
    let of_rows = matches!(of, "row" | "defaults");
    let fields = model.filter(|_| of_rows).chain(answers);
    fields.map(|field| field.name).filter(|name| !NOT_OF_RUNS.contains(name)).collect()
}

impl Settings {
    /// Reads all that a table says but its own keys.
    pub fn read(table: &Table<'_>, of: &'static str, own: &[&str]) -> Result<Self, FileError> {
        let known = allowed(of);
        let setting = |entry: &Entry<'_>| {
            let key = entry.key.replace('-', "_");
            if !known.contains(&key.as_str()) {
                let what = if of == "defaults" { of.to_owned() } else { format!("a {of}") };
                return Err(entry.unknown(&what, &[own, &known[..]].concat()));
            }
            Ok(Setting { place: entry.place(), key, value: entry.json()? })
        };
        table
            .entries()
            .filter(|entry| !own.contains(&entry.key.as_str()))
            .map(setting)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns them with the words of a sweep in the place of their names in braces.
    pub fn with(&self, words: &Words) -> Self {
        let replaced = |setting: &Setting| {
            let mut setting = setting.clone();
            if let Value::String(text) = &mut setting.value {
                *text = filled(text, words);
            }
            setting
        };
        Self(self.0.iter().map(replaced).collect())
    }

    /// Lays others over them.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.0.iter().rev().find(|setting| setting.key == key)
    }
}

/// Values that a sweep chose, by their names.
pub type Words = Vec<(String, Value)>;

/// A text with words in the place of their names in braces.
pub fn filled(text: &str, words: &Words) -> String {
    words.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&braced(name), &value_text(value)))
}

/// The place of a word in a text.
pub fn braced(word: &str) -> String {
    format!("{{{word}}}")
}

/// A value as people write it.
pub fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Setting {
    /// A setting that a sweep makes.
    pub fn swept(entry: &Entry<'_>, value: Value) -> Self {
        Self { place: entry.place(), key: entry.key.replace('-', "_"), value }
    }

    pub fn refused(&self, told: impl Into<String>) -> FileError {
        self.place.refused(told)
    }

    /// Sets the setting that it names; whether there is one.
    fn set<S: demask::Settings>(&self, settings: &mut S) -> Result<bool, FileError> {
        if S::field(&self.key).is_none() {
            return Ok(false);
        }
        settings.set_json(&self.key, self.value.clone()).map(|()| true).map_err(|error| match error {
            SettingError::Value { name, found, expected } => {
                self.refused(format!("{name} is {found}, expected {expected}"))
            }
            error => self.refused(error.to_string()),
        })
    }
}

/// Layers of settings of a row on a task: later layers win.
pub struct Layers<'a>(pub &'a [&'a Settings]);

impl Layers<'_> {
    fn all(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter().flat_map(|settings| &settings.0)
    }

    /// Model that answers.
    pub fn model(&self) -> Result<ModelSpec, FileError> {
        let mut model = ModelSpec::default();
        for setting in self.all() {
            if setting.set(&mut model.load)? {
                let guides = model.load.guide.iter().flat_map(|guides| &guides.0);
                if setting.key == "guide"
                    && (guides.clone().count() != 1 || guides.clone().any(|guide| guide.name.is_some()))
                {
                    return Err(setting.refused("guide is not one model: a row has one guide, without a name"));
                }
            } else {
                setting.set(&mut model.run)?;
            }
        }
        Ok(model)
    }

    /// Prompting of the task.
    pub fn asking(&self) -> Result<Asking, FileError> {
        let mut asking = Asking::default();
        for setting in self.all() {
            let of_model = LoadOptions::field(&setting.key).is_some() || RunOptions::field(&setting.key).is_some();
            if !of_model && !setting.set(&mut asking.ask)? {
                setting.set(&mut asking.options)?;
            }
        }
        Ok(asking)
    }
}
