//! Values of JSON files one by one, each checked as it is read.

use serde_json::{Map, Value};

use crate::{
    CheckpointError,
    error::{one_line, quoted},
};

/// Ids of special tokens as one file names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenIds {
    /// Token of undecided positions.
    pub mask: Option<u32>,
    /// Ends a text or a turn; the first is the text's.
    pub eos: Vec<u32>,
    /// All ends that a GGUF file has, each with what names it.
    pub ends: Vec<(u32, String)>,
    /// Starts a text.
    pub bos: Option<u32>,
    /// Fills a batch.
    pub pad: Option<u32>,
}

/// Most values in a JSON text that is read into memory as such: each takes up to 100 bytes, however short it is written.
const MOST_VALUES: usize = 1 << 20;

/// Refuses a JSON text of more than `most` values before any is made. A comma or bracket inside a text counts too.
pub(crate) fn check_values(text: &[u8], most: usize) -> Result<(), String> {
    let found = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if found <= most { Ok(()) } else { Err(format!("it has up to {found} values, expected at most {most}")) }
}

/// The values of one JSON object, each with the checks that its reader asks for.
pub(crate) struct Fields<'a> {
    file: &'a str,
    /// Key of the object in the file, for nested ones.
    prefix: &'a str,
    map: std::borrow::Cow<'a, Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// The object that a whole file is.
    pub(crate) fn parse(text: &[u8], file: &'a str) -> Result<Self, CheckpointError> {
        let broken = |detail| CheckpointError::Json { file: file.to_owned(), detail };
        check_values(text, MOST_VALUES).map_err(broken)?;
        match serde_json::from_slice(text) {
            Ok(Value::Object(map)) => Ok(Self { file, prefix: "", map: std::borrow::Cow::Owned(map) }),
            Ok(_) => Err(CheckpointError::Json { file: file.to_owned(), detail: "expected an object".to_owned() }),
            Err(error) => Err(CheckpointError::Json { file: file.to_owned(), detail: one_line(error) }),
        }
    }

    /// Values that come from elsewhere than JSON.
    pub(crate) fn of(map: Map<String, Value>, file: &'a str) -> Self {
        Self { file, prefix: "", map: std::borrow::Cow::Owned(map) }
    }

    /// Returns the fields with false read as null under some keys.
    pub(crate) fn with_false_as_null(&self, keys: &[&str]) -> Fields<'_> {
        let mut map = self.map.clone().into_owned();
        map.retain(|key, value| *value != Value::Bool(false) || !keys.contains(&key.as_str()));
        Fields { file: self.file, prefix: self.prefix, map: std::borrow::Cow::Owned(map) }
    }

    /// Name of the file.
    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    /// The object under a key, if it is there and not null.
    pub(crate) fn object(&self, key: &'static str) -> Result<Option<Fields<'_>>, CheckpointError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                Ok(Some(Fields { file: self.file, prefix: key, map: std::borrow::Cow::Borrowed(map) }))
            }
            Some(other) => Err(self.bad(key, other, "an object or null")),
        }
    }

    /// The value of a key; null counts as absent, as in the official code.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The keys that are not null.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.map.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key)
    }

    /// A positive whole number of at most `limit`.
    pub(crate) fn count(&self, key: &str, limit: usize) -> Result<usize, CheckpointError> {
        let found = self.optional_count(key, limit)?;
        found.ok_or_else(|| self.missing(key, "a positive whole number"))
    }

    /// A positive whole number of at most `limit`, or nothing.
    pub(crate) fn optional_count(&self, key: &str, limit: usize) -> Result<Option<usize>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let whole =
            value.as_u64().or_else(|| value.as_f64().filter(|v| v.fract() == 0.0 && *v >= 0.0).map(|v| v as u64));
        match whole.and_then(|count| usize::try_from(count).ok()) {
            Some(count) if (1..=limit).contains(&count) => Ok(Some(count)),
            _ => Err(self.bad(key, value, format!("a whole number from 1 to {limit}"))),
        }
    }

    /// A finite number above zero.
    pub(crate) fn positive(&self, key: &str) -> Result<f64, CheckpointError> {
        let value = self.get(key).ok_or_else(|| self.missing(key, "a positive number"))?;
        value.as_f64().filter(|v| v.is_finite() && *v > 0.0).ok_or_else(|| self.bad(key, value, "a positive number"))
    }

    /// A finite number, or nothing.
    pub(crate) fn optional_number(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().filter(|v| v.is_finite()).map(Some).ok_or_else(|| self.bad(key, value, "a number"))
    }

    /// True, false, or nothing.
    pub(crate) fn optional_flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.bad(key, value, "true or false"))
    }

    /// A text, or nothing.
    pub(crate) fn optional_text(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, value, "a text"))
    }

    /// A token id, or nothing.
    pub(crate) fn optional_token(&self, key: &str) -> Result<Option<u32>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        self.token(key, value).map(Some)
    }

    /// A token id or a list of them, or nothing.
    pub(crate) fn tokens(&self, key: &str) -> Result<Vec<u32>, CheckpointError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(|value| self.token(key, value)).collect(),
            Some(value) => Ok(vec![self.token(key, value)?]),
        }
    }

    fn token(&self, key: &str, value: &Value) -> Result<u32, CheckpointError> {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| self.bad(key, value, "a token id"))
    }

    /// The special tokens under their usual keys.
    pub(crate) fn token_ids(&self) -> Result<TokenIds, CheckpointError> {
        Ok(TokenIds {
            mask: self.optional_token("mask_token_id")?,
            eos: self.tokens("eos_token_id")?,
            ends: Vec::new(),
            bos: self.tokens("bos_token_id")?.first().copied(),
            pad: self.tokens("pad_token_id")?.first().copied(),
        })
    }

    /// The error of a key that is not there.
    pub(crate) fn missing(&self, key: &str, expected: &'static str) -> CheckpointError {
        CheckpointError::MissingKey { file: self.file.to_owned(), key: self.path(key), expected }
    }

    /// The error of a value that cannot be.
    pub(crate) fn bad(&self, key: &str, found: &Value, expected: impl Into<String>) -> CheckpointError {
        let found = match found {
            Value::String(text) => quoted(text),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            plain => plain.to_string(),
        };
        CheckpointError::BadValue { file: self.file.to_owned(), key: self.path(key), found, expected: expected.into() }
    }

    /// The error of a value that the engine does not compute.
    pub(crate) fn unsupported(&self, what: impl Into<String>, hint: &'static str) -> CheckpointError {
        CheckpointError::Unsupported { file: self.file.to_owned(), what: what.into(), hint }
    }

    fn path(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }
}
