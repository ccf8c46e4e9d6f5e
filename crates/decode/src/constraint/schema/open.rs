//! References, and schemas that join others, as alternatives of plain parts.

use std::{collections::VecDeque, rc::Rc};

use super::{
    super::{error::ConstraintError, json::Json},
    document::{Place, Returns},
    shape::{ALL, ANNOTATIONS, OBJECT, Part, is_true, types},
    translator::Translator,
};

/// Most alternatives of one value.
const ALTERNATIVES: usize = 1_000;

/// What there are too many of where a value has more. No limit of an attempt makes them fewer.
pub(in super::super) const MANY: &str = "alternatives of one value";

/// Parts of which one group must hold.
#[derive(Debug, Clone)]
enum Group {
    Any(Vec<Vec<Part>>),
    /// Exactly one; with the schema that says so.
    One(Place, Vec<Part>),
}

/// Parts on their way.
#[derive(Debug, Clone, Default)]
struct Opening {
    todo: VecDeque<Part>,
    done: Vec<Part>,
    groups: VecDeque<Group>,
}

impl<'a> Translator<'a, '_> {
    /// Returns the alternatives of what holds all of these parts: lists in which no schema is left to be opened.
    pub(super) fn open(&mut self, parts: &[Part]) -> Result<Vec<Vec<Part>>, ConstraintError> {
        self.fuel.spend(20)?;
        let mut found = Vec::new();
        let opening = Opening { todo: parts.iter().cloned().collect(), ..Opening::default() };
        self.deeper(|translator| translator.alternatives(opening, &mut found))?;
        Ok(found)
    }

    fn alternatives(&mut self, mut opening: Opening, found: &mut Vec<Vec<Part>>) -> Result<(), ConstraintError> {
        while let Some(part) = opening.todo.pop_front() {
            self.fuel.spend(1 + opening.done.len())?;
            match part {
                Part::Schema(place, left) => {
                    if !self.schema(place, left, &mut opening)? {
                        return Ok(());
                    }
                }
                other if opening.done.contains(&other) => (),
                other => opening.done.push(other),
            }
        }
        let Some(group) = opening.groups.pop_front() else {
            if found.len() == ALTERNATIVES {
                return Err(ConstraintError::TooLarge { limit: ALTERNATIVES, unit: MANY });
            }
            self.fuel.spend(found.len() + opening.done.len())?;
            if !found.contains(&opening.done) {
                found.push(opening.done);
            }
            return Ok(());
        };
        let choices = match group {
            Group::Any(choices) => choices,
            Group::One(place, branches) => self.exclusive(place, &opening.done, &branches)?,
        };
        for choice in choices {
            let next = Opening { todo: choice.into(), ..opening.clone() };
            self.deeper(|translator| translator.alternatives(next, found))?;
        }
        Ok(())
    }

    /// Opens one schema; `false` if nothing holds it.
    fn schema(&mut self, place: Place, left: u8, opening: &mut Opening) -> Result<bool, ConstraintError> {
        let schema = self.document.value(place);
        let keywords = match schema {
            Json::Bool(allowed) => return Ok(*allowed),
            Json::Object(keywords) => keywords,
            _ => {
                let reason = "is no schema, expected an object or a truth value";
                return Err(self.document.refused(place, "value", reason));
            }
        };
        let plain = Part::Plain(place, left);
        if opening.done.contains(&plain) {
            return Ok(true);
        }
        if says_anything(keywords) {
            opening.done.push(plain);
        }
        for (keyword, value) in keywords.iter().rev() {
            let below = |value| Part::Schema(self.document.place(value), left);
            let list = || -> Result<Vec<Part>, ConstraintError> {
                let schemas = value.array().filter(|schemas| !schemas.is_empty());
                let schemas = schemas.ok_or_else(|| self.document.refused(place, keyword, "is no list of schemas"))?;
                Ok(schemas.iter().map(below).collect())
            };
            match keyword.as_str() {
                "allOf" => list()?.into_iter().rev().for_each(|part| opening.todo.push_front(part)),
                "anyOf" => opening.groups.push_back(Group::Any(list()?.into_iter().map(|part| vec![part]).collect())),
                "oneOf" => opening.groups.push_back(Group::One(place, list()?)),
                "not" => {
                    let Some(choices) = negated(value) else {
                        let reason = "is supported for required, type and anyOf of these alone: say what is allowed";
                        return Err(self.document.refused(place, keyword, reason));
                    };
                    let known = |of: &(String, Json)| matches!(of.0.as_str(), "required" | "type" | "anyOf");
                    if value.object().is_some_and(|keywords| !keywords.iter().all(known)) {
                        self.narrow(place, "not is held by its required, type and anyOf alone".to_owned());
                    }
                    opening.groups.push_front(Group::Any(choices));
                }
                "dependentRequired" | "dependentSchemas" | "dependencies" => {
                    self.dependencies(place, left, keyword, value, opening)?;
                }
                "if" if schema.get("then").or(schema.get("else")).is_some() => {
                    return Err(self.document.refused(place, keyword, "is not supported: use anyOf"));
                }
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(self.document.refused(place, keyword, "is not supported: use $ref"));
                }
                _ => (),
            }
        }
        let Some(reference) = schema.get("$ref") else { return Ok(true) };
        let target = self.document.resolve(place, reference)?;
        let left = match self.document.returns(place, target) {
            Returns::Leaves => self.limits.recursion,
            Returns::On => left,
            Returns::Back if left == 0 => {
                self.narrow(place, format!("$ref comes back at most {} times", self.limits.recursion));
                return Ok(false);
            }
            Returns::Back => left - 1,
        };
        opening.todo.push_front(Part::Schema(target, left));
        Ok(true)
    }

    /// Either a property is not there, or what depends on it holds.
    fn dependencies(
        &self,
        place: Place,
        left: u8,
        keyword: &str,
        value: &'a Json,
        opening: &mut Opening,
    ) -> Result<(), ConstraintError> {
        let wrong = || self.document.refused(place, keyword, "has no usable value, expected names or schemas by names");
        for (name, depends) in value.object().ok_or_else(wrong)? {
            let name: Rc<str> = name.as_str().into();
            let mut with = vec![Part::Required(name.clone())];
            match depends {
                Json::Array(names) if keyword != "dependentSchemas" => {
                    for other in names {
                        with.push(Part::Required(other.string().ok_or_else(wrong)?.into()));
                    }
                }
                schema if keyword != "dependentRequired" => with.push(Part::Schema(self.document.place(schema), left)),
                _ => return Err(wrong()),
            }
            let without = vec![Part::Absent(name)];
            let other = vec![Part::Types(ALL & !OBJECT)];
            opening.groups.push_back(Group::Any(vec![with, without, other]));
        }
        Ok(())
    }
}

/// Reports whether a schema says something of values itself, beside the schemas that it joins.
fn says_anything(keywords: &[(String, Json)]) -> bool {
    let joins = |keyword: &str| matches!(keyword, "$ref" | "allOf" | "anyOf" | "oneOf");
    keywords.iter().any(|(keyword, _)| !joins(keyword) && !ANNOTATIONS.contains(&keyword.as_str()))
}

/// What does not hold a schema, where that can be said; each alternative may be narrower than it must be.
fn negated(schema: &Json) -> Option<Vec<Vec<Part>>> {
    if is_true(schema) {
        return Some(Vec::new());
    }
    if *schema == Json::Bool(false) {
        return Some(vec![Vec::new()]);
    }
    let mut choices = Vec::new();
    for (keyword, value) in schema.object()? {
        match keyword.as_str() {
            "required" => {
                for name in value.array()? {
                    choices.push(vec![Part::Absent(name.string()?.into())]);
                }
            }
            "type" => choices.push(vec![Part::Types(ALL & !types(value)?)]),
            "anyOf" => {
                // None of them holds: all that deny one, with all that deny the next.
                let mut all = vec![Vec::new()];
                for schema in value.array()? {
                    let denied = negated(schema)?;
                    all = all
                        .iter()
                        .flat_map(|of| denied.iter().map(|denied| [of.as_slice(), denied].concat()))
                        .collect();
                    if all.len() > ALTERNATIVES {
                        return None;
                    }
                }
                choices.extend(all);
            }
            // One more that must hold: to deny any other is enough.
            _ => (),
        }
    }
    Some(choices).filter(|choices| !choices.is_empty())
}
