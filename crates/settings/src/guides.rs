use std::{collections::BTreeMap, fmt};

use serde_json::Value;

/// A model beside another one, and the name that requests choose it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guide {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The model, as the setting `model` names one.
    pub model: String,
}

/// Models beside another one: `MODEL`, or `NAME=MODEL,NAME=MODEL` where they are typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guides(pub Vec<Guide>);

impl Guides {
    /// Returns one guide without a name.
    pub fn one(model: impl Into<String>) -> Self {
        Self(vec![Guide { name: None, model: model.into() }])
    }

    /// Reads typed text.
    pub fn of(text: &str) -> Self {
        let guide = |text: &str| match text.split_once('=') {
            Some((name, model)) => Guide { name: Some(name.to_owned()), model: model.to_owned() },
            None => Guide { name: None, model: text.to_owned() },
        };
        Self(text.split(',').map(|text| guide(text.trim())).collect())
    }

    /// Reads JSON: a model's text is one model as it is, an object has models by their names, a list has typed ones.
    pub fn of_json(value: Value) -> Option<Self> {
        let text = |value: Value| if let Value::String(text) = value { Some(text) } else { None };
        match value {
            Value::String(model) => Some(Self::one(model)),
            Value::Array(list) => {
                let lists = list.into_iter().map(|value| text(value).map(|text| Self::of(&text).0));
                lists.collect::<Option<Vec<_>>>().map(|lists| Self(lists.concat()))
            }
            Value::Object(map) => {
                let models: BTreeMap<String, Value> = map.into_iter().collect();
                let guide = |(name, model)| text(model).map(|model| Guide { name: Some(name), model });
                models.into_iter().map(guide).collect::<Option<_>>().map(Self)
            }
            _ => None,
        }
    }

    /// Returns the form that [`of_json`](Self::of_json) reads.
    pub fn to_json(&self) -> Value {
        match &self.0[..] {
            [Guide { name: None, model }] => model.clone().into(),
            several => several.iter().map(Guide::to_string).collect(),
        }
    }
}

impl fmt::Display for Guide {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(out, "{name}={}", self.model),
            None => out.write_str(&self.model),
        }
    }
}
