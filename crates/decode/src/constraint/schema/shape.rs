//! What several schemas say together of a value, sorted by the types of values that it is about.

use std::{collections::HashMap, rc::Rc};

use super::{
    super::{
        automaton::Fuel,
        decimal::{Decimal, Range},
        error::ConstraintError,
        json::Json,
    },
    document::{Document, Place},
};

/// Types of values, a bit each.
pub(super) type Types = u8;

pub(super) const NULL: Types = 1;
pub(super) const BOOL: Types = 2;
pub(super) const INTEGER: Types = 4;
/// Numbers that are no integers.
pub(super) const FRACTION: Types = 8;
pub(super) const NUMBER: Types = INTEGER | FRACTION;
pub(super) const STRING: Types = 16;
pub(super) const ARRAY: Types = 32;
pub(super) const OBJECT: Types = 64;
pub(super) const ALL: Types = 127;

/// The type of a value.
pub(super) fn type_of(value: &Json) -> Types {
    match value {
        Json::Null => NULL,
        Json::Bool(_) => BOOL,
        Json::Integer(_) => INTEGER,
        Json::Float(value) if value.fract() == 0.0 => INTEGER,
        Json::Float(_) => FRACTION,
        Json::String(_) => STRING,
        Json::Array(_) => ARRAY,
        Json::Object(_) => OBJECT,
    }
}

/// A thing that a value must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// All of a schema, with so many references back that may still be followed.
    Schema(Place, u8),
    /// A schema without its references and the schemas that it joins.
    Plain(Place, u8),
    /// It is an object without this property.
    Absent(Rc<str>),
    /// It is an object with this property.
    Required(Rc<str>),
    /// It has one of these types.
    Types(Types),
}

/// Schemas of a schema's object keyword, with whose own additional ones they go.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    pub(super) place: Place,
    pub(super) left: u8,
    pub(super) schema: &'a Json,
    /// Its `properties`.
    pub(super) listed: HashMap<&'a str, &'a Json>,
}

impl<'a> Plain<'a> {
    /// The part of a schema below this one.
    pub(super) fn below(&self, document: &Document<'a>, schema: &'a Json) -> Part {
        Part::Schema(document.place(schema), self.left)
    }
}

/// Conditions on a value, all of which must hold.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    pub(super) plains: Vec<Plain<'a>>,
    /// Types that it may have.
    pub(super) types: Types,
    /// Types that keywords are about.
    pub(super) stated: Types,
    /// Reports whether a type was asked for, or values.
    pub(super) is_typed: bool,
    /// Values of which it is one.
    pub(super) values: Option<Vec<&'a Json>>,
    pub(super) range: Range,
    pub(super) min_length: u32,
    pub(super) max_length: Option<u32>,
    /// Patterns with the schemas that have them.
    pub(super) patterns: Vec<(&'a str, Place)>,
    pub(super) formats: Vec<(&'a str, Place)>,
    pub(super) min_items: u32,
    pub(super) max_items: Option<u32>,
    pub(super) min_properties: u32,
    pub(super) max_properties: Option<u32>,
    pub(super) required: Vec<Rc<str>>,
    pub(super) absent: Vec<Rc<str>>,
    /// Keywords that no automaton can hold to, with the types that they are about.
    pub(super) refused: Vec<(Types, &'static str, Place, String)>,
}

/// Keywords that say nothing of values.
pub(super) const ANNOTATIONS: &[&str] = &[
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$comment",
    "$defs",
    "definitions",
    "$vocabulary",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
];

/// Keywords that are opened before shapes are made, and those that others ask for.
const ELSEWHERE: &[&str] = &[
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "minContains",
    "maxContains",
    "if",
    "then",
    "else",
    "$dynamicRef",
    "$recursiveRef",
];

impl<'a> Shape<'a> {
    /// Puts parts together; parts that are still to be opened are no part of a shape. Adds the names of unknown
    /// keywords, by their places.
    pub(super) fn new(
        document: &Document<'a>,
        parts: &[Part],
        ignored: &mut Vec<(Place, String)>,
        fuel: &mut Fuel,
    ) -> Result<Self, ConstraintError> {
        let mut shape = Self { types: ALL, ..Self::default() };
        for part in parts {
            match part {
                Part::Schema(..) => (),
                Part::Absent(name) => shape.object(name, true),
                Part::Required(name) => shape.object(name, false),
                &Part::Types(types) => shape.limit(types),
                &Part::Plain(place, left) => {
                    let schema = document.value(place);
                    let listed = schema.get("properties").and_then(Json::object).unwrap_or_default();
                    let listed = listed.iter().map(|(name, schema)| (name.as_str(), schema)).collect();
                    shape.plains.push(Plain { place, left, schema, listed });
                    for (keyword, value) in schema.object().into_iter().flatten() {
                        let old = shape.values.as_ref().map_or(0, Vec::len);
                        let new = value.array().map_or(0, <[_]>::len) + value.object().map_or(0, <[_]>::len);
                        fuel.spend(10 + new.max(new * old))?;
                        shape.keyword(document, place, keyword, value, ignored)?;
                    }
                }
            }
        }
        Ok(shape)
    }

    fn limit(&mut self, types: Types) {
        self.types &= types;
        self.is_typed = true;
    }

    fn object(&mut self, name: &Rc<str>, absent: bool) {
        self.limit(OBJECT);
        self.stated |= OBJECT;
        let names = if absent { &mut self.absent } else { &mut self.required };
        if !names.contains(name) {
            names.push(name.clone());
        }
    }

    fn keyword(
        &mut self,
        document: &Document<'a>,
        place: Place,
        keyword: &'a str,
        value: &'a Json,
        ignored: &mut Vec<(Place, String)>,
    ) -> Result<(), ConstraintError> {
        let wrong =
            |expected: &str| document.refused(place, keyword, format!("has no usable value, expected {expected}"));
        let count = || value.count().ok_or_else(|| wrong("a whole number that is not negative"));
        let about = match keyword {
            "type" => {
                let types = types(value).ok_or_else(|| {
                    wrong("object, array, string, number, integer, boolean or null, or a list of them")
                })?;
                self.limit(types);
                0
            }
            "enum" | "const" => {
                let values: Vec<&Json> = match value {
                    value if keyword == "const" => vec![value],
                    Json::Array(values) => values.iter().collect(),
                    _ => return Err(wrong("a list of values")),
                };
                self.is_typed = true;
                let old = self.values.take();
                let both = |old: Vec<&'a Json>| {
                    old.into_iter().filter(|old| values.iter().any(|value| value.equals(old))).collect()
                };
                self.values = Some(old.map_or_else(|| values.clone(), both));
                0
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                self.bound(document, place, keyword, value).ok_or_else(|| wrong("a number"))?;
                NUMBER
            }
            "multipleOf" => {
                if value.decimal().ok_or_else(|| wrong("a number"))? == "1" {
                    self.types &= !FRACTION;
                } else {
                    let reason = "is not supported unless it is 1: leave it out".to_owned();
                    self.refused.push((NUMBER, "multipleOf", place, reason));
                }
                NUMBER
            }
            "minLength" => {
                self.min_length = self.min_length.max(count()?);
                STRING
            }
            "maxLength" => {
                lower(&mut self.max_length, count()?);
                STRING
            }
            "pattern" => {
                self.patterns.push((value.string().ok_or_else(|| wrong("a regular expression"))?, place));
                STRING
            }
            "format" => {
                self.formats.push((value.string().ok_or_else(|| wrong("a format's name"))?, place));
                STRING
            }
            "minItems" => {
                self.min_items = self.min_items.max(count()?);
                ARRAY
            }
            "maxItems" => {
                lower(&mut self.max_items, count()?);
                ARRAY
            }
            "uniqueItems" => {
                if *value == Json::Bool(true) {
                    let reason = "is true, which no automaton remembers: leave it out, or give maxItems 1".to_owned();
                    self.refused.push((ARRAY, "uniqueItems", place, reason));
                }
                ARRAY
            }
            "contains" => {
                self.refused.push((ARRAY, "contains", place, "is not supported: leave it out".to_owned()));
                ARRAY
            }
            "unevaluatedItems" => self.unevaluated(place, ARRAY, "unevaluatedItems", "items", value),
            "unevaluatedProperties" => {
                self.unevaluated(place, OBJECT, "unevaluatedProperties", "additionalProperties", value)
            }
            "minProperties" => {
                self.min_properties = self.min_properties.max(count()?);
                OBJECT
            }
            "maxProperties" => {
                lower(&mut self.max_properties, count()?);
                OBJECT
            }
            "required" => {
                let names = value.array().and_then(|names| names.iter().map(Json::string).collect::<Option<Vec<_>>>());
                for name in names.ok_or_else(|| wrong("a list of names"))? {
                    if !self.required.iter().any(|known| **known == *name) {
                        self.required.push(name.into());
                    }
                }
                OBJECT
            }
            "properties" | "patternProperties" => {
                value.object().ok_or_else(|| wrong("an object of schemas"))?;
                OBJECT
            }
            "additionalProperties" | "propertyNames" | "dependentRequired" | "dependentSchemas" | "dependencies" => {
                OBJECT
            }
            "items" | "prefixItems" => ARRAY,
            known if ANNOTATIONS.contains(&known) || ELSEWHERE.contains(&known) => 0,
            unknown => {
                ignored.push((place, unknown.to_owned()));
                0
            }
        };
        self.stated |= about;
        Ok(())
    }

    fn unevaluated(&mut self, place: Place, about: Types, name: &'static str, other: &str, value: &Json) -> Types {
        if is_true(value) {
            return 0;
        }
        self.refused.push((about, name, place, format!("is not supported: use {other}")));
        about
    }

    /// Takes a bound into account; draft 4 says by a truth value that a bound is left out itself.
    fn bound(&mut self, document: &Document<'a>, place: Place, keyword: &str, value: &Json) -> Option<()> {
        let schema = document.value(place);
        if let (Json::Bool(_), "exclusiveMinimum" | "exclusiveMaximum") = (value, keyword) {
            return Some(());
        }
        let bound = Decimal::parse(&value.decimal()?);
        let old = |name| schema.get(name) == Some(&Json::Bool(true));
        match keyword {
            "minimum" => self.range.at_least((bound, old("exclusiveMinimum"))),
            "maximum" => self.range.at_most((bound, old("exclusiveMaximum"))),
            "exclusiveMinimum" => self.range.at_least((bound, true)),
            _ => self.range.at_most((bound, true)),
        }
        Some(())
    }
}

fn lower(most: &mut Option<u32>, new: u32) {
    *most = Some(most.map_or(new, |old| old.min(new)));
}

/// Reports whether a schema allows everything.
pub(super) fn is_true(schema: &Json) -> bool {
    *schema == Json::Bool(true) || schema.object().is_some_and(<[_]>::is_empty)
}

/// The types that `type` names.
pub(super) fn types(value: &Json) -> Option<Types> {
    if let Json::Array(names) = value {
        return names
            .iter()
            .try_fold(0, |types, name| Some(types | self::types(name).filter(|_| name.string().is_some())?));
    }
    Some(match value.string()? {
        "null" => NULL,
        "boolean" => BOOL,
        "integer" => INTEGER,
        "number" => NUMBER,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => return None,
    })
}
