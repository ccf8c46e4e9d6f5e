//! Proofs that no value holds two schemas, and `oneOf` by them.

use std::cmp::Ordering;

use super::{
    super::{automaton::Operation, decimal::Decimal, error::ConstraintError, json::Json},
    document::Place,
    shape::{ALL, ARRAY, NUMBER, OBJECT, Part, STRING, Shape, type_of},
    translator::Translator,
};

/// How deep properties are looked into.
const DEPTH: usize = 3;

impl<'a> Translator<'a, '_> {
    /// The branches of a `oneOf`, each with what keeps it apart from all others: types or properties that it is written
    /// without. Branches that cannot be kept apart are left out.
    pub(super) fn exclusive(
        &mut self,
        place: Place,
        base: &[Part],
        branches: &[Part],
    ) -> Result<Vec<Vec<Part>>, ConstraintError> {
        let mut opened = Vec::new();
        for branch in branches {
            opened.push(self.open(&[base, std::slice::from_ref(branch)].concat())?);
        }
        let mut shapes = Vec::new();
        for alternatives in &opened {
            let shapes_of: Result<Vec<_>, _> = alternatives.iter().map(|parts| self.quiet_shape(parts)).collect();
            shapes.push(shapes_of?);
        }
        let mut choices = Vec::new();
        let mut left_out = 0;
        'branches: for (at, branch) in branches.iter().enumerate() {
            let mut parts = vec![branch.clone()];
            for other in (0..branches.len()).filter(|&other| other != at) {
                if self.all_disjoint(&shapes[at], &shapes[other], DEPTH)? {
                    continue;
                }
                let Some(part) = apart(&shapes[at], &shapes[other]) else {
                    left_out += 1;
                    self.narrow(place, format!("oneOf is written without its branch {at}, which another may hold"));
                    continue 'branches;
                };
                if !parts.contains(&part) {
                    self.narrow(place, format!("oneOf is written with its branch {at} narrower, apart from others"));
                    parts.push(part);
                }
            }
            choices.push(parts);
        }
        if left_out == branches.len() {
            let reason = "has branches that one value may hold together: use anyOf, or give each a required property \
                          with a const of its own";
            return Err(self.document.refused(place, "oneOf", reason));
        }
        Ok(choices)
    }

    /// A shape whose unknown keywords are not noted.
    fn quiet_shape(&mut self, parts: &[Part]) -> Result<Shape<'a>, ConstraintError> {
        Shape::new(self.document, parts, &mut Vec::new(), self.fuel)
    }

    fn all_disjoint(&mut self, left: &[Shape<'a>], right: &[Shape<'a>], depth: usize) -> Result<bool, ConstraintError> {
        for left in left {
            for right in right {
                if !self.are_disjoint(left, right, depth)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reports whether it is certain that no value holds both.
    fn are_disjoint(&mut self, left: &Shape<'a>, right: &Shape<'a>, depth: usize) -> Result<bool, ConstraintError> {
        self.fuel.spend(1 + left.plains.len() + right.plains.len())?;
        for values in [&left.values, &right.values].into_iter().flatten() {
            let mut all = true;
            for value in values {
                all &= self.denies(left, value, depth)? || self.denies(right, value, depth)?;
            }
            if all {
                return Ok(true);
            }
        }
        let types = left.types & right.types;
        let above = |min: u32, max: Option<u32>| max.is_some_and(|max| max < min);
        let mut disjoint = types & !(NUMBER | STRING | ARRAY | OBJECT) == 0;
        if types & NUMBER != 0 {
            disjoint &= left.range.is_disjoint(&right.range);
        }
        if disjoint && types & STRING != 0 {
            disjoint = above(left.min_length, right.max_length)
                || above(right.min_length, left.max_length)
                || self.texts_disjoint(left, right)?;
        }
        if disjoint && types & ARRAY != 0 {
            disjoint = above(left.min_items, right.max_items) || above(right.min_items, left.max_items);
        }
        if disjoint && types & OBJECT != 0 {
            disjoint = self.objects_disjoint(left, right, depth)? || self.objects_disjoint(right, left, depth)?;
        }
        Ok(disjoint)
    }

    fn texts_disjoint(&mut self, left: &Shape<'a>, right: &Shape<'a>) -> Result<bool, ConstraintError> {
        if left.patterns.is_empty() || right.patterns.is_empty() {
            return Ok(false);
        }
        let mut both = self.any_text()?;
        for &(pattern, place) in left.patterns.iter().chain(&right.patterns) {
            let texts = self.pattern(pattern, place, "pattern")?;
            both = std::rc::Rc::new(both.combine(Operation::And, &texts, self.fuel)?);
        }
        Ok(both.is_empty())
    }

    /// Reports whether a property that the left one must have keeps the two apart.
    fn objects_disjoint(&mut self, left: &Shape<'a>, right: &Shape<'a>, depth: usize) -> Result<bool, ConstraintError> {
        for name in &left.required {
            if right.absent.contains(name) || left.absent.contains(name) {
                return Ok(true);
            }
            let theirs = self.property(right, name)?;
            let theirs = self.open(&theirs)?;
            if theirs.is_empty() {
                return Ok(true);
            }
            if depth == 0 || !right.required.contains(name) {
                continue;
            }
            let ours = self.property(left, name)?;
            let ours = self.open(&ours)?;
            let mut shapes =
                |of: &[Vec<Part>]| of.iter().map(|parts| self.quiet_shape(parts)).collect::<Result<Vec<_>, _>>();
            let (ours, theirs) = (shapes(&ours)?, shapes(&theirs)?);
            if self.all_disjoint(&ours, &theirs, depth - 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports whether it is certain that a value does not hold a shape. For values that are no arrays and no objects it
    /// is certain that they hold one that does not deny them.
    pub(super) fn denies(&mut self, shape: &Shape<'a>, value: &'a Json, depth: usize) -> Result<bool, ConstraintError> {
        self.fuel.spend(1 + shape.values.as_ref().map_or(0, Vec::len))?;
        if type_of(value) & shape.types == 0 {
            return Ok(true);
        }
        if shape.values.as_ref().is_some_and(|values| !values.iter().any(|of| of.equals(value))) {
            return Ok(true);
        }
        let outside = |count: usize, min: u32, max: Option<u32>| {
            count < min as usize || max.is_some_and(|max| count > max as usize)
        };
        match value {
            Json::Null | Json::Bool(_) => Ok(false),
            Json::Integer(_) | Json::Float(_) => Ok(value.decimal().is_some_and(|text| {
                let value = Decimal::parse(&text);
                let beyond = |bound: &Option<(Decimal, bool)>, side: Ordering| {
                    bound.as_ref().is_some_and(|(bound, exclusive)| match value.compare(bound) {
                        Ordering::Equal => *exclusive,
                        order => order == side,
                    })
                };
                beyond(&shape.range.low, Ordering::Less) || beyond(&shape.range.high, Ordering::Greater)
            })),
            Json::String(text) => {
                if outside(text.chars().count(), shape.min_length, shape.max_length) {
                    return Ok(true);
                }
                for &(pattern, place) in &shape.patterns {
                    if !self.pattern(pattern, place, "pattern")?.contains(text.chars().map(u32::from)) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Json::Array(items) => Ok(outside(items.len(), shape.min_items, shape.max_items)),
            Json::Object(pairs) => self.denies_object(shape, pairs, depth),
        }
    }

    fn denies_object(
        &mut self,
        shape: &Shape<'a>,
        pairs: &'a [(String, Json)],
        depth: usize,
    ) -> Result<bool, ConstraintError> {
        let has = |name: &str| pairs.iter().any(|pair| pair.0 == name);
        if shape.required.iter().any(|name| !has(name)) || shape.absent.iter().any(|name| has(name)) {
            return Ok(true);
        }
        if depth == 0 {
            return Ok(false);
        }
        for (name, value) in pairs {
            let parts = self.property(shape, name)?;
            let mut denied = true;
            for parts in self.open(&parts)? {
                let shape = self.quiet_shape(&parts)?;
                denied = denied && self.denies(&shape, value, depth - 1)?;
            }
            if denied {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What keeps the shapes of one branch apart from those of another: a property that all of those must have and none of
/// these must, or the types that those may not have.
fn apart(own: &[Shape], other: &[Shape]) -> Option<Part> {
    let (first, rest) = other.split_first()?;
    let name = first.required.iter().find(|name| {
        let all = rest.iter().all(|shape| shape.required.contains(name));
        all && !own.iter().any(|shape| shape.required.contains(name))
            && own.iter().any(|shape| shape.types & OBJECT != 0)
    });
    if let Some(name) = name {
        return Some(Part::Absent(name.clone()));
    }
    let types = |shapes: &[Shape]| shapes.iter().fold(0, |types, shape| types | shape.types);
    let rest = ALL & !types(other);
    (types(own) & rest != 0).then_some(Part::Types(rest))
}
