//! JSON with the order of its keys, read to a depth.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::error::ConstraintError;

/// Longest document, in bytes.
pub(super) const LONGEST: usize = 256 << 10;

/// Deepest nesting.
const NESTING: usize = 64;

/// A value, with the keys of objects in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// A number without fraction and exponent.
    Integer(i128),
    Float(f64),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Result<Self, ConstraintError> {
        if text.len() > LONGEST {
            return Err(ConstraintError::TooLarge { limit: LONGEST, unit: "bytes of a schema" });
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = Value { depth: 0 }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
        read.map_err(|error| ConstraintError::Json(error.to_string().replace('\n', " ")))
    }

    /// The value of an object's key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.object()?.iter().find(|of| of.0 == key).map(|of| &of.1)
    }

    /// Keys and values of an object.
    pub(super) fn object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(pairs) = self { Some(pairs) } else { None }
    }

    /// Values of an array.
    pub(super) fn array(&self) -> Option<&[Self]> {
        if let Self::Array(values) = self { Some(values) } else { None }
    }

    /// A text.
    pub(super) fn string(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// A count: a whole number that is not negative.
    pub(super) fn count(&self) -> Option<u32> {
        match *self {
            Self::Integer(count) => u32::try_from(count.min(i128::from(u32::MAX))).ok(),
            Self::Float(count) if count >= 0.0 && count.fract() == 0.0 => Some(count as u32),
            _ => None,
        }
    }

    /// The number written in decimal digits, without an exponent.
    pub(super) fn decimal(&self) -> Option<String> {
        match self {
            Self::Integer(value) => Some(value.to_string()),
            // `-0` is 0.
            Self::Float(value) => Some((value + 0.0).to_string()),
            _ => None,
        }
    }

    /// Reports whether two values are equal as schemas compare them: numbers by value, objects in any order.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(left), Self::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.equals(right))
            }
            (Self::Object(left), Self::Object(right)) => {
                left.len() == right.len()
                    && left.iter().all(|(key, value)| other.get(key).is_some_and(|other| value.equals(other)))
            }
            (Self::Integer(_) | Self::Float(_), Self::Integer(_) | Self::Float(_)) => self.decimal() == other.decimal(),
            _ => self == other,
        }
    }
}

/// Reads one value, so many levels below the document.
#[derive(Clone, Copy)]
struct Value {
    depth: usize,
}

impl Value {
    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth == NESTING {
            return Err(E::custom(format_args!("it is nested more than {NESTING} deep")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Json, A::Error> {
        let below = self.below()?;
        let mut array = Vec::new();
        while let Some(value) = values.next_element_seed(below)? {
            array.push(value);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Json, A::Error> {
        let below = self.below()?;
        let mut object = Vec::new();
        let mut keys = std::collections::HashSet::new();
        while let Some(key) = pairs.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            object.push((key, pairs.next_value_seed(below)?));
        }
        Ok(Json::Object(object))
    }
}
