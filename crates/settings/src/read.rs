//! Types of values: how each is read from text and JSON, and written.

use std::{fmt::Display, fs::File, io::Read as _, path::PathBuf, str::FromStr};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Guides, Kind, List, SettingError};

/// Bounds of a whole number, both included.
pub type Bounds = (u64, u64);

/// Reason why a value could not be read.
#[derive(Debug)]
pub enum Unread {
    /// Values that were expected instead.
    Expected(String),
    /// The type is right and the content wrong: a whole message.
    Content(String),
}

fn expected<T>(what: &str) -> Result<T, Unread> {
    Err(Unread::Expected(what.to_owned()))
}

/// How values of a type are read and written: implemented by markers, so that types of any crate can have them.
pub trait Reads<T: Clone> {
    /// Type of the values.
    const KIND: Kind;
    /// Records whether a setting holds several values.
    const MANY: bool = false;

    /// Reads typed text.
    ///
    /// # Errors
    /// If it is another type or has a wrong content.
    fn from_text(text: &str, bounds: Bounds) -> Result<T, Unread>;

    /// Reads JSON, which has types of its own.
    ///
    /// # Errors
    /// If it is another type or has a wrong content.
    fn from_json(value: Value, bounds: Bounds) -> Result<T, Unread>;

    /// Returns a value as JSON.
    fn to_json(value: &T) -> Value;

    /// Joins a value with the one before: takes its place, unless there may be several.
    fn join(_before: Option<T>, value: T) -> T {
        value
    }
}

/// Marker of numbers, switches, texts and lists.
#[derive(Debug)]
pub enum Plain {}

/// Marker of words: types that are read from a text and written as one.
#[derive(Debug)]
pub enum Word {}

/// Marker of methods with parameters, a text or an object in JSON.
#[derive(Debug)]
pub enum Method {}

/// Documents of JSON, which a text names by their file.
#[derive(Debug)]
pub enum Document {}

const TEXT: &str = "a text";
const TEXTS: &str = "a text or a list of texts";
const SWITCH: &str = "true or false";
const NUMBER: &str = "a number";
const BIASES: &str = "ID:NUMBER, or an object of numbers by token ids";
const IDS: &str = "a token id or a list of them";
const MODELS: &str = "a model, or an object of models by name";

/// Returns the whole number that a value of JSON is. One that is written with a point and nothing after it (`5.0`) is one, too.
pub fn whole(value: &Value) -> Option<i128> {
    /// Up to here each whole number has a float of its own.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let written = value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
    written
        .or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|n| n as i128))
}

fn count(number: Option<u64>, (least, most): Bounds, largest: u64) -> Result<u64, Unread> {
    let most_of_type = most.min(largest);
    let inside = number.filter(|number| (least..=most_of_type).contains(number));
    inside.ok_or_else(|| {
        Unread::Expected(match most {
            u64::MAX => format!("a whole number from {least} on"),
            _ => format!("a whole number from {least} to {most_of_type}"),
        })
    })
}

macro_rules! counts {
    ($($of:ty),+) => {$(
        impl Reads<$of> for Plain {
            const KIND: Kind = Kind::Count;

            fn from_text(text: &str, bounds: Bounds) -> Result<$of, Unread> {
                count(text.trim().parse().ok(), bounds, <$of>::MAX as u64).map(|number| number as $of)
            }

            fn from_json(value: Value, bounds: Bounds) -> Result<$of, Unread> {
                let number = whole(&value).and_then(|number| number.try_into().ok());
                count(number, bounds, <$of>::MAX as u64).map(|number| number as $of)
            }

            fn to_json(value: &$of) -> Value {
                (*value).into()
            }
        }
    )+};
}

counts!(u16, u32, u64, usize);

impl Reads<f32> for Plain {
    const KIND: Kind = Kind::Number;

    fn from_text(text: &str, _: Bounds) -> Result<f32, Unread> {
        text.trim().parse().or_else(|_| expected(NUMBER))
    }

    fn from_json(value: Value, bounds: Bounds) -> Result<f32, Unread> {
        // Through its digits: the nearest f32 of 0.1 is another number than the f32 of the f64 next to 0.1.
        if value.is_number() { Self::from_text(&value.to_string(), bounds) } else { expected(NUMBER) }
    }

    fn to_json(value: &f32) -> Value {
        // The same way back.
        value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
    }
}

impl Reads<bool> for Plain {
    const KIND: Kind = Kind::Switch;

    fn from_text(text: &str, _: Bounds) -> Result<bool, Unread> {
        match text.trim() {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            _ => expected(SWITCH),
        }
    }

    fn from_json(value: Value, _: Bounds) -> Result<bool, Unread> {
        value.as_bool().map_or_else(|| expected(SWITCH), Ok)
    }

    fn to_json(value: &bool) -> Value {
        (*value).into()
    }
}

impl Reads<String> for Plain {
    const KIND: Kind = Kind::Text;

    fn from_text(text: &str, _: Bounds) -> Result<String, Unread> {
        Ok(text.to_owned())
    }

    fn from_json(value: Value, _: Bounds) -> Result<String, Unread> {
        if let Value::String(text) = value { Ok(text) } else { expected(TEXT) }
    }

    fn to_json(value: &String) -> Value {
        value.clone().into()
    }
}

impl Reads<PathBuf> for Plain {
    const KIND: Kind = Kind::Path;

    fn from_text(text: &str, _: Bounds) -> Result<PathBuf, Unread> {
        Ok(text.into())
    }

    fn from_json(value: Value, bounds: Bounds) -> Result<PathBuf, Unread> {
        <Self as Reads<String>>::from_json(value, bounds).map(Into::into)
    }

    fn to_json(value: &PathBuf) -> Value {
        value.to_string_lossy().into_owned().into()
    }
}

/// Token ids: one is read as a list of one.
impl Reads<Vec<u32>> for Plain {
    const KIND: Kind = Kind::Tokens;
    const MANY: bool = true;

    fn from_text(text: &str, _: Bounds) -> Result<Vec<u32>, Unread> {
        let ids = text.split(',').map(|id| id.trim().parse());
        ids.collect::<Result<_, _>>().or_else(|_| expected(IDS))
    }

    fn from_json(value: Value, _: Bounds) -> Result<Vec<u32>, Unread> {
        let id = |value: Value| whole(&value).and_then(|id| id.try_into().ok());
        let ids = match value {
            Value::Array(list) => list.into_iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        ids.map_or_else(|| expected(IDS), Ok)
    }

    fn to_json(value: &Vec<u32>) -> Value {
        value.clone().into()
    }

    fn join(before: Option<Vec<u32>>, value: Vec<u32>) -> Vec<u32> {
        [before.unwrap_or_default(), value].concat()
    }
}

/// Numbers by token ids: an object in JSON, whose names are ids.
impl Reads<Vec<(u32, f32)>> for Plain {
    const KIND: Kind = Kind::Biases;
    const MANY: bool = true;

    fn from_text(text: &str, _: Bounds) -> Result<Vec<(u32, f32)>, Unread> {
        let one = |bias: &str| {
            let (id, number) = bias.split_once(':')?;
            Some((id.trim().parse().ok()?, number.trim().parse().ok()?))
        };
        text.split(',').map(one).collect::<Option<_>>().map_or_else(|| expected(BIASES), Ok)
    }

    fn from_json(value: Value, bounds: Bounds) -> Result<Vec<(u32, f32)>, Unread> {
        let Value::Object(map) = value else { return expected(BIASES) };
        let one = |(id, number): (String, Value)| {
            Some((id.parse().ok()?, <Self as Reads<f32>>::from_json(number, bounds).ok()?))
        };
        map.into_iter().map(one).collect::<Option<_>>().map_or_else(|| expected(BIASES), Ok)
    }

    fn to_json(value: &Vec<(u32, f32)>) -> Value {
        value.iter().map(|(id, number)| (id.to_string(), <Self as Reads<f32>>::to_json(number))).collect()
    }

    fn join(before: Option<Vec<(u32, f32)>>, value: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
        [before.unwrap_or_default(), value].concat()
    }
}

fn texts(value: Value) -> Option<Vec<String>> {
    let text = |value: Value| if let Value::String(text) = value { Some(text) } else { None };
    match value {
        Value::Array(list) => list.into_iter().map(text).collect(),
        one => text(one).map(|text| vec![text]),
    }
}

/// Texts: one is read as a list of one.
impl Reads<Vec<String>> for Plain {
    const KIND: Kind = Kind::Texts;
    const MANY: bool = true;

    fn from_text(text: &str, _: Bounds) -> Result<Vec<String>, Unread> {
        Ok(vec![text.to_owned()])
    }

    fn from_json(value: Value, _: Bounds) -> Result<Vec<String>, Unread> {
        texts(value).map_or_else(|| expected(TEXTS), Ok)
    }

    fn to_json(value: &Vec<String>) -> Value {
        value.clone().into()
    }

    fn join(before: Option<Vec<String>>, value: Vec<String>) -> Vec<String> {
        [before.unwrap_or_default(), value].concat()
    }
}

impl Reads<List> for Plain {
    const KIND: Kind = Kind::Texts;

    fn from_text(text: &str, _: Bounds) -> Result<List, Unread> {
        Ok(List::of(text))
    }

    fn from_json(value: Value, _: Bounds) -> Result<List, Unread> {
        match value {
            Value::String(text) => Ok(List::of(&text)),
            value => texts(value).map(List).map_or_else(|| expected(TEXTS), Ok),
        }
    }

    fn to_json(value: &List) -> Value {
        value.0.clone().into()
    }
}

impl Reads<Guides> for Plain {
    const KIND: Kind = Kind::Models;
    const MANY: bool = true;

    fn from_text(text: &str, _: Bounds) -> Result<Guides, Unread> {
        Ok(Guides::of(text))
    }

    fn from_json(value: Value, _: Bounds) -> Result<Guides, Unread> {
        Guides::of_json(value).map_or_else(|| expected(MODELS), Ok)
    }

    fn to_json(value: &Guides) -> Value {
        value.to_json()
    }

    fn join(before: Option<Guides>, value: Guides) -> Guides {
        Guides([before.unwrap_or_default().0, value.0].concat())
    }
}

impl<T: Clone + Display + FromStr<Err: Display>> Reads<T> for Word {
    const KIND: Kind = Kind::Word;

    fn from_text(text: &str, _: Bounds) -> Result<T, Unread> {
        text.parse().map_err(|error: T::Err| Unread::Content(error.to_string()))
    }

    fn from_json(value: Value, bounds: Bounds) -> Result<T, Unread> {
        match value {
            Value::String(text) => Self::from_text(&text, bounds),
            _ => expected("a name"),
        }
    }

    fn to_json(value: &T) -> Value {
        value.to_string().into()
    }
}

/// Longest document, in bytes.
const LONGEST_DOCUMENT: u64 = 1 << 20;

impl<T: Clone + Display + FromStr<Err: Display>> Reads<T> for Document {
    const KIND: Kind = Kind::Document;

    /// Reads the file of this name, or a document that is written out. A value of JSON never names a file: it may be a client's.
    fn from_text(text: &str, _: Bounds) -> Result<T, Unread> {
        let written = text.trim_start().starts_with('{') || ["true", "false"].contains(&text.trim());
        let content = if written { text.to_owned() } else { document(text)? };
        content.parse().map_err(|error: T::Err| Unread::Content(error.to_string()))
    }

    fn from_json(value: Value, _: Bounds) -> Result<T, Unread> {
        let text = match value {
            Value::String(text) => text,
            Value::Object(_) | Value::Bool(_) => value.to_string(),
            _ => return expected("an object"),
        };
        text.parse().map_err(|error: T::Err| Unread::Content(error.to_string()))
    }

    fn to_json(value: &T) -> Value {
        let text = value.to_string();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}

/// Content of a file.
fn document(name: &str) -> Result<String, Unread> {
    let cannot = |why: String| Unread::Content(format!("cannot read {name}: {why}"));
    let file = File::open(name).map_err(|error| cannot(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(LONGEST_DOCUMENT + 1).read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
    if read as u64 > LONGEST_DOCUMENT {
        return Err(cannot(format!("it has more than {LONGEST_DOCUMENT} bytes")));
    }
    Ok(text)
}

impl<T: Clone + Display + Serialize + DeserializeOwned + FromStr<Err: Display>> Reads<T> for Method {
    const KIND: Kind = Kind::Method;

    fn from_text(text: &str, _: Bounds) -> Result<T, Unread> {
        text.parse().map_err(|error: T::Err| Unread::Content(error.to_string()))
    }

    fn from_json(value: Value, _: Bounds) -> Result<T, Unread> {
        if !value.is_string() && !value.is_object() {
            return expected("name:key=value,key=value, or an object with a \"name\"");
        }
        serde_json::from_value(value).map_err(|error| Unread::Content(error.to_string()))
    }

    fn to_json(value: &T) -> Value {
        value.to_string().into()
    }
}

impl Unread {
    /// Returns the error of a setting's value.
    pub fn of(self, name: &'static str, found: impl FnOnce() -> String) -> SettingError {
        match self {
            Self::Expected(expected) => SettingError::Value { name, found: found(), expected },
            Self::Content(why) => SettingError::Content(why),
        }
    }
}
