//! A schema's document: its places, where its references lead, and which of them come back.

use std::collections::{HashMap, HashSet};

use super::super::{error::ConstraintError, json::Json};

/// A value of the document, by its number. A value inside another one has a larger number.
pub(super) type Place = u32;

/// A document whose values have numbers.
#[derive(Debug)]
pub(super) struct Document<'a> {
    values: Vec<&'a Json>,
    parents: Vec<(Place, String)>,
    places: HashMap<*const Json, Place>,
    /// Records whether a value, or one around it, has an `$id` of its own: the document's own does not count.
    identified: Vec<bool>,
    /// Values that references lead to, and the first one.
    targets: HashSet<Place>,
    /// Targets that references lead from one to the other and back have one number.
    circles: HashMap<Place, u32>,
}

impl<'a> Document<'a> {
    /// Numbers the values of a document.
    pub(super) fn new(root: &'a Json) -> Self {
        let (mut values, mut parents, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        let mut identified: Vec<bool> = Vec::new();
        let mut stack = vec![(root, 0, String::new())];
        while let Some((value, parent, key)) = stack.pop() {
            let place = values.len() as Place;
            identified.push(place != 0 && (identified[parent as usize] || has_identifier(value)));
            values.push(value);
            parents.push((parent, key));
            places.insert(std::ptr::from_ref(value), place);
            match value {
                Json::Array(items) => {
                    stack.extend(items.iter().enumerate().rev().map(|(at, item)| (item, place, at.to_string())));
                }
                Json::Object(pairs) => stack.extend(pairs.iter().rev().map(|(key, item)| (item, place, key.clone()))),
                _ => (),
            }
        }
        let (targets, circles) = (HashSet::from([0]), HashMap::new());
        let mut document = Self { values, parents, places, identified, targets, circles };
        document.follow();
        document
    }

    pub(super) fn value(&self, place: Place) -> &'a Json {
        self.values[place as usize]
    }

    /// The place of a value of this document.
    pub(super) fn place(&self, value: &'a Json) -> Place {
        self.places[&std::ptr::from_ref(value)]
    }

    /// The JSON pointer of a place, with `#` before it.
    pub(super) fn path(&self, mut place: Place) -> String {
        let mut keys = Vec::new();
        while place != 0 {
            let (parent, key) = &self.parents[place as usize];
            keys.push(key.replace('~', "~0").replace('/', "~1"));
            place = *parent;
        }
        let path: String = keys.iter().rev().flat_map(|key| ["/", key]).collect();
        // A key may have any character, a message has one line.
        format!("#{}", path.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'"))
    }

    /// An error about a keyword of the schema at this place.
    pub(super) fn refused(&self, place: Place, keyword: &str, reason: impl Into<String>) -> ConstraintError {
        ConstraintError::Keyword { keyword: keyword.to_owned(), path: self.path(place), reason: reason.into() }
    }

    /// The schema that a reference of the schema at `place` leads to.
    pub(super) fn resolve(&self, place: Place, reference: &Json) -> Result<Place, ConstraintError> {
        let refused = |reason: &str| self.refused(place, "$ref", reason);
        let Some(text) = reference.string() else { return Err(refused("is no text, expected a reference")) };
        // An identifier of its own changes what `#` means inside a part of the document.
        if self.identified[place as usize] {
            return Err(refused("is inside a schema with an $id of its own: not supported"));
        }
        let own = self.value(0).get("$id").and_then(Json::string).map(|id| id.trim_end_matches('#'));
        let fragment = match text.split_once('#') {
            Some((document, fragment)) if document.is_empty() || Some(document) == own => fragment,
            None if Some(text) == own => "",
            _ => return Err(refused("leads to another document: copy it into $defs")),
        };
        let fragment = percent_decoded(fragment);
        if fragment.is_empty() {
            return Ok(0);
        }
        let Some(pointer) = fragment.strip_prefix('/') else {
            return Err(refused("leads to an anchor: not supported, use a JSON pointer (#/$defs/name)"));
        };
        let found = pointer.split('/').try_fold(self.value(0), |value, key| {
            let key = key.replace("~1", "/").replace("~0", "~");
            match value {
                Json::Object(_) => value.get(&key),
                Json::Array(items) => items.get(key.parse::<usize>().ok()?),
                _ => None,
            }
        });
        found.map(|value| self.place(value)).ok_or_else(|| refused("leads to nothing in the document"))
    }

    /// Reports whether a reference from `place` to `target` is part of a circle, and goes back in the document. There
    /// is no circle without one that does.
    pub(super) fn returns(&self, place: Place, target: Place) -> Returns {
        let from = self.owner(place);
        match self.circles.get(&from) == self.circles.get(&target) {
            false => Returns::Leaves,
            true if target <= from => Returns::Back,
            true => Returns::On,
        }
    }

    /// The nearest target around a place.
    fn owner(&self, mut place: Place) -> Place {
        while !self.targets.contains(&place) {
            place = self.parents[place as usize].0;
        }
        place
    }

    /// Finds the targets, and which of them are in circles.
    fn follow(&mut self) {
        let mut references = Vec::new();
        for place in 0..self.values.len() as Place {
            if let Some(reference) = self.value(place).get("$ref")
                && let Ok(target) = self.resolve(place, reference)
            {
                references.push((place, target));
                self.targets.insert(target);
            }
        }
        let mut arrows: HashMap<Place, Vec<Place>> = HashMap::new();
        let mut against: HashMap<Place, Vec<Place>> = HashMap::new();
        let inside: Vec<(Place, Place)> = self
            .targets
            .iter()
            .filter(|&&target| target != 0)
            .map(|&target| (self.owner(self.parents[target as usize].0), target))
            .collect();
        let outside = references.iter().map(|&(place, target)| (self.owner(place), target));
        for (from, to) in outside.chain(inside) {
            arrows.entry(from).or_default().push(to);
            against.entry(to).or_default().push(from);
        }
        let mut order = Vec::new();
        let mut met = HashSet::new();
        for &target in &self.targets {
            visit(target, &arrows, &mut met, &mut order);
        }
        met.clear();
        for (number, &target) in order.iter().rev().enumerate() {
            let mut circle = Vec::new();
            visit(target, &against, &mut met, &mut circle);
            self.circles.extend(circle.into_iter().map(|member| (member, number as u32)));
        }
    }
}

/// How a reference goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Returns {
    /// To where none comes back from.
    Leaves,
    /// Along a circle.
    On,
    /// Along a circle, to the value itself or one before it.
    Back,
}

/// Adds the values that are reached and were not met, each after all that it reaches.
fn visit(from: Place, arrows: &HashMap<Place, Vec<Place>>, met: &mut HashSet<Place>, order: &mut Vec<Place>) {
    let mut stack = vec![(from, 0)];
    if !met.insert(from) {
        return;
    }
    while let Some((place, done)) = stack.last_mut() {
        if let Some(&target) = arrows.get(place).and_then(|targets| targets.get(*done)) {
            *done += 1;
            if met.insert(target) {
                stack.push((target, 0));
            }
        } else {
            order.push(*place);
            stack.pop();
        }
    }
}

/// Reports whether a schema names itself as a document of its own.
fn has_identifier(schema: &Json) -> bool {
    let is_name = |key| schema.get(key).and_then(Json::string).is_some_and(|name| !name.starts_with('#'));
    is_name("$id") || is_name("id")
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = (byte == b'%').then(|| tail.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
