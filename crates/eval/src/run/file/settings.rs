//! Settings of a row, a task or the defaults, with their lines, laid over each other.

use demask::Options;
use serde_json::{Map, Value};

use super::{
    super::spec::{Asking, FileError, ModelSpec, Place},
    text::{Entry, Table},
};

/// Keys of how a task is asked.
const ASKING: [&str; 6] = ["prompt_style", "shots", "shots_file", "system", "score", "likelihood_draws"];
/// Keys of what answers.
const MODEL: [&str; 8] = ["model", "guide", "device", "dtype", "quantize", "activations", "threads", "no_prefix_cache"];

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

/// Options that a run does not have: its seed is swept by `seeds`, its guide is a model, nothing is kept of log-probabilities,
/// and no answer depends on the clock.
const NOT_OF_RUNS: [&str; 4] = ["seed", "guide", "top_logprobs", "deadline_ms"];

/// The names of what can be said of an answer.
fn answers() -> impl Iterator<Item = &'static str> {
    let options = Options::FIELDS.iter().map(|field| field.name).filter(|name| !NOT_OF_RUNS.contains(name));
    ASKING.into_iter().chain(options)
}

/// The keys of a table of this sort beside its own.
pub fn allowed(of: &str) -> Vec<&'static str> {
    match of {
        "row" | "defaults" => MODEL.into_iter().chain(answers()).collect(),
        _ => answers().collect(),
    }
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
    words.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&braced(name), &shown(value)))
}

/// The place of a word in a text.
pub fn braced(word: &str) -> String {
    format!("{{{word}}}")
}

/// A value as people write it.
pub fn shown(value: &Value) -> String {
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

    fn text(&self) -> Result<String, FileError> {
        let text = self.value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.refused(format!("{} is {}, expected a text", self.key, self.value)))
    }

    fn count(&self) -> Result<usize, FileError> {
        let count = self.value.as_u64().and_then(|count| count.try_into().ok());
        count.ok_or_else(|| self.refused(format!("{} is {}, expected a whole number from 0 on", self.key, self.value)))
    }

    fn switch(&self) -> Result<bool, FileError> {
        let on = self.value.as_bool();
        on.ok_or_else(|| self.refused(format!("{} is {}, expected true or false", self.key, self.value)))
    }

    fn parsed<T: std::str::FromStr<Err: ToString>>(&self) -> Result<T, FileError> {
        self.text()?.parse().map_err(|error: T::Err| self.refused(error.to_string()))
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
            let device = &mut model.device;
            match setting.key.as_str() {
                "model" => model.model = Some(setting.text()?),
                "guide" => model.guide = Some(setting.text()?),
                "device" => device.device = Some(setting.parsed()?),
                "dtype" => device.dtype = Some(setting.parsed()?),
                "quantize" => device.quantize = Some(setting.parsed()?),
                "activations" => device.activations = Some(setting.parsed()?),
                "threads" => device.threads = Some(setting.count()?),
                "no_prefix_cache" => model.no_prefix_cache = Some(setting.switch()?),
                _ => {}
            }
        }
        Ok(model)
    }

    /// Prompting of the task.
    pub fn asking(&self) -> Result<Asking, FileError> {
        let (mut asking, mut options) = (Asking::default(), Map::new());
        for setting in self.all() {
            match setting.key.as_str() {
                "prompt_style" => asking.prompt_style = Some(setting.text()?),
                "shots" => asking.shots = Some(setting.count()?),
                "shots_file" => asking.shots_file = Some(setting.text()?.into()),
                "system" => asking.system = Some(setting.text()?),
                "score" => asking.score = Some(setting.text()?),
                "likelihood_draws" => asking.likelihood_draws = Some(setting.count()?),
                key if MODEL.contains(&key) => {}
                key => {
                    // One alone, so that an error has its own line.
                    options_of(&Map::from_iter([(key.to_owned(), setting.value.clone())]))
                        .map_err(|told| setting.refused(told))?;
                    options.insert(key.to_owned(), setting.value.clone());
                }
            }
        }
        asking.options = options_of(&options).unwrap_or_default();
        Ok(asking)
    }
}

fn options_of(map: &Map<String, Value>) -> Result<Options, String> {
    // An option's error says its own name; a sentence about JSON's lines and columns is none of the user's.
    serde_json::from_value(Value::Object(map.clone())).map_err(|error| error.to_string())
}
