//! A validator of JSON schemas, as naive as the standard reads, which knows nothing of automata.

use std::{cell::RefCell, collections::HashMap};

use regex::Regex;
use serde_json::Value;

/// A schema's document.
pub struct Validator<'a> {
    root: &'a Value,
    patterns: RefCell<HashMap<String, Regex>>,
}

impl<'a> Validator<'a> {
    pub fn new(root: &'a Value) -> Self {
        Self { root, patterns: RefCell::default() }
    }

    pub fn is_valid(&self, value: &Value) -> bool {
        self.holds(self.root, value, 0)
    }

    /// Reports whether a pattern is found in a text; its classes are those of ECMA-262.
    fn finds(&self, pattern: &str, text: &str) -> bool {
        let mut patterns = self.patterns.borrow_mut();
        let regex = patterns.entry(pattern.to_owned()).or_insert_with(|| {
            let ours = translated(pattern);
            Regex::new(&ours).unwrap_or_else(|error| panic!("{pattern}: {error}"))
        });
        regex.is_match(text)
    }

    fn holds(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        assert!(depth < 400, "a reference comes back without an end");
        let Value::Object(keywords) = schema else { return *schema != Value::Bool(false) };
        let below = |schema: &Value, value: &Value| self.holds(schema, value, depth + 1);
        let all = |schemas: &Value, count: fn(usize, usize) -> bool| {
            let schemas = schemas.as_array().unwrap();
            count(schemas.iter().filter(|schema| below(schema, value)).count(), schemas.len())
        };
        keywords.iter().all(|(keyword, of)| match keyword.as_str() {
            "$ref" => {
                // Only references within the document come here.
                let pointer = of.as_str().unwrap().split_once('#').map_or("", |of| of.1);
                let pointer = pointer.replace("%25", "%").replace("%22", "\"").replace("%5E", "^").replace("%7C", "|");
                below(self.root.pointer(&pointer).unwrap(), value)
            }
            "allOf" => all(of, |held, of| held == of),
            "anyOf" => all(of, |held, _| held > 0),
            "oneOf" => all(of, |held, _| held == 1),
            "not" => !below(of, value),
            "enum" => of.as_array().unwrap().iter().any(|of| equal(of, value)),
            "const" => equal(of, value),
            "type" => match of {
                Value::Array(names) => names.iter().any(|name| has_type(name, value)),
                name => has_type(name, value),
            },
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                of.as_object().unwrap().iter().all(|(name, depends)| match (value.get(name), depends) {
                    (None, _) => true,
                    (_, Value::Array(names)) => names.iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
                    (_, schema) => below(schema, value),
                })
            }
            _ => match value {
                Value::Number(_) => number(keyword, of, keywords, value.as_f64().unwrap()),
                Value::String(text) => {
                    let length = text.chars().count() as f64;
                    match keyword.as_str() {
                        "minLength" => length >= of.as_f64().unwrap(),
                        "maxLength" => length <= of.as_f64().unwrap(),
                        "pattern" => self.finds(of.as_str().unwrap(), text),
                        _ => true,
                    }
                }
                Value::Array(items) => {
                    let prefix = keywords.get("prefixItems").or(keywords.get("items").filter(|of| of.is_array()));
                    let prefix = prefix.and_then(Value::as_array).map_or(0, Vec::len);
                    match keyword.as_str() {
                        "minItems" => items.len() as f64 >= of.as_f64().unwrap(),
                        "maxItems" => items.len() as f64 <= of.as_f64().unwrap(),
                        "items" | "prefixItems" if of.is_array() => {
                            of.as_array().unwrap().iter().zip(items).all(|(schema, item)| below(schema, item))
                        }
                        "additionalItems" if !keywords.get("items").is_some_and(Value::is_array) => true,
                        "items" | "additionalItems" => items.iter().skip(prefix).all(|item| below(of, item)),
                        "uniqueItems" if *of == Value::Bool(true) => {
                            (0..items.len()).all(|at| !items[..at].iter().any(|other| equal(other, &items[at])))
                        }
                        _ => true,
                    }
                }
                Value::Object(pairs) => match keyword.as_str() {
                    "minProperties" => pairs.len() as f64 >= of.as_f64().unwrap(),
                    "maxProperties" => pairs.len() as f64 <= of.as_f64().unwrap(),
                    "required" => of.as_array().unwrap().iter().all(|name| pairs.contains_key(name.as_str().unwrap())),
                    "properties" => of
                        .as_object()
                        .unwrap()
                        .iter()
                        .all(|(name, of)| pairs.get(name).is_none_or(|value| below(of, value))),
                    "patternProperties" => of.as_object().unwrap().iter().all(|(pattern, of)| {
                        pairs.iter().all(|(name, value)| !self.finds(pattern, name) || below(of, value))
                    }),
                    "propertyNames" => pairs.keys().all(|name| below(of, &Value::String(name.clone()))),
                    "additionalProperties" => pairs.iter().all(|(name, value)| {
                        let listed = keywords.get("properties").is_some_and(|of| of.get(name).is_some());
                        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
                        let matched = patterns.is_some_and(|of| of.keys().any(|pattern| self.finds(pattern, name)));
                        listed || matched || below(of, value)
                    }),
                    _ => true,
                },
                _ => true,
            },
        })
    }
}

/// A pattern of ECMA-262 in the syntax of the crate `regex`: its classes are those of ASCII, and brackets in classes are
/// themselves.
fn translated(pattern: &str) -> String {
    let mut ours = String::new();
    let mut in_class = false;
    let mut symbols = pattern.chars();
    while let Some(symbol) = symbols.next() {
        match symbol {
            '\\' => ours.extend([match symbols.next().unwrap() {
                'd' => "[0-9]".to_owned(),
                'D' => "[^0-9]".to_owned(),
                'w' => "[0-9A-Za-z_]".to_owned(),
                'W' => "[^0-9A-Za-z_]".to_owned(),
                's' => r"[\s\x{FEFF}--\x{85}]".to_owned(),
                'S' => r"[^\s\x{FEFF}--[\x{85}]]".to_owned(),
                'c' => format!("\\x{:02X}", symbols.next().unwrap() as u32 % 32),
                '/' => "/".to_owned(),
                other => format!("\\{other}"),
            }]),
            '.' if !in_class => ours += r"[^\n\r\x{2028}\x{2029}]",
            '[' if in_class => ours += "\\[",
            '[' | ']' => {
                in_class = symbol == '[';
                ours.push(symbol);
            }
            other => ours.push(other),
        }
    }
    ours
}

fn number(keyword: &str, of: &Value, keywords: &serde_json::Map<String, Value>, value: f64) -> bool {
    let old = |name: &str| keywords.get(name) == Some(&Value::Bool(true));
    let Some(bound) = of.as_f64() else { return true };
    match keyword {
        "minimum" if old("exclusiveMinimum") => value > bound,
        "minimum" => value >= bound,
        "maximum" if old("exclusiveMaximum") => value < bound,
        "maximum" => value <= bound,
        "exclusiveMinimum" => value > bound,
        "exclusiveMaximum" => value < bound,
        "multipleOf" => (value / bound).fract() == 0.0,
        _ => true,
    }
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|value| value.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

/// Equality of values, numbers by value.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), Value::Number(_)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => left == right,
    }
}
