use serde::Serialize;
use serde_json::Value;

use crate::Bounds;

/// A declared setting.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name, with underscores, in JSON, TOML and messages.
    pub name: &'static str,
    /// Type of its values.
    pub kind: Kind,
    /// Records whether it holds several values.
    pub many: bool,
    /// Placeholder of its value in help; empty for a switch that is set by its name alone.
    pub place: &'static str,
    /// Bounds of a number.
    pub bounds: Bounds,
    /// Value without it, if there is one.
    pub default: fn() -> Option<Value>,
    /// Default in words, where it is no value; may be empty.
    pub usually: &'static str,
    /// Description, in a sentence or two.
    pub about: &'static str,
}

impl Field {
    /// Returns the flag of the setting: `--gen-length` of `gen_length`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// Returns the environment's variable of the setting: `DEMASK_PORT` of `port`.
    pub fn variable(&self) -> String {
        format!("DEMASK_{}", self.name.to_uppercase())
    }

    /// Returns the default in words; empty if there is none.
    pub fn usual(&self) -> String {
        match (self.default)() {
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
            None => self.usually.to_owned(),
        }
    }

    /// Returns the line of help: the description without its last full stop, and the default.
    pub fn help(&self) -> String {
        let about = self.about.strip_suffix('.').unwrap_or(self.about).replace('`', "");
        match self.usual() {
            usual if usual.is_empty() => about,
            usual => format!("{about} [default: {usual}]"),
        }
    }
}

/// Type of a setting's values, for descriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A whole number from 0 on.
    Count,
    /// A number.
    Number,
    /// True or false.
    Switch,
    /// A text.
    Text,
    /// Texts.
    Texts,
    /// Token ids.
    Tokens,
    /// Numbers by token ids.
    Biases,
    /// A path of the file system.
    Path,
    /// A word out of several.
    Word,
    /// A method with its parameters.
    Method,
    /// Models, some of them with names.
    Models,
    /// A document of JSON: in a text the name of its file.
    Document,
}

impl Kind {
    /// Returns the types of JSON that a value may have, as JSON Schema calls them.
    pub fn json(self) -> &'static [&'static str] {
        match self {
            Self::Count => &["integer"],
            Self::Number => &["number"],
            Self::Switch => &["boolean"],
            Self::Text | Self::Word | Self::Path => &["string"],
            Self::Texts => &["array", "string"],
            Self::Tokens => &["array", "integer"],
            Self::Method => &["string", "object"],
            Self::Models => &["string", "array", "object"],
            Self::Biases => &["object"],
            Self::Document => &["object", "boolean", "string"],
        }
    }
}
