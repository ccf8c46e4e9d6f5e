//! A schema on its way into a grammar.

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use super::{
    super::{
        automaton::{Dfa, Fuel},
        decimal::Range,
        error::ConstraintError,
        grammar::{Brackets, Expr, Grammar},
        json::Json,
    },
    document::{Document, Place},
    shape::Part,
};

/// Deepest nesting of schemas, along references.
const LEVELS: usize = 120;

/// Where a schema is narrowed so that its automaton is not too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Limits {
    /// How often a reference may come back.
    pub(in super::super) recursion: u8,
    /// How deep values are nested that no schema describes.
    pub(in super::super) depth: u8,
    /// Most characters of a string that has a greatest length.
    pub(in super::super) length: u32,
    /// Most items of an array that has a greatest number.
    pub(in super::super) items: u32,
    /// Reports whether strings have no escapes by code.
    pub(in super::super) short: bool,
}

/// Texts around values.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Layout {
    pub(in super::super) colon: Expr,
    pub(in super::super) array: Brackets,
    pub(in super::super) object: Brackets,
}

/// A schema's grammar, and its differences from the schema.
#[derive(Debug)]
pub(in super::super) struct Translated {
    pub(in super::super) texts: Expr,
    /// Paths, and the narrower part of each.
    pub(in super::super) narrowed: Vec<(String, String)>,
    /// Paths, and keywords without meaning there.
    pub(in super::super) ignored: Vec<(String, String)>,
    /// The first part without which there is no text, if there is none.
    pub(in super::super) empty: Option<String>,
}

/// Translates a schema into a grammar.
pub(in super::super) fn translate(
    schema: &Json,
    limits: Limits,
    grammar: &mut Grammar,
    layout: Layout,
    fuel: &mut Fuel,
) -> Result<Translated, ConstraintError> {
    let document = Document::new(schema);
    let mut translator = Translator {
        document: &document,
        grammar,
        fuel,
        limits,
        layout,
        values: HashMap::new(),
        anything: Vec::new(),
        ranges: HashMap::new(),
        wholes: HashMap::new(),
        patterns: HashMap::new(),
        products: HashMap::new(),
        narrowed: BTreeSet::new(),
        ignored: BTreeSet::new(),
        level: 0,
    };
    let texts = translator.value(&[Part::Schema(0, limits.recursion)])?;
    let empty = (texts == Grammar::NEVER).then(|| translator.without_text()).flatten();
    let paths =
        |of: BTreeSet<(Place, String)>| of.into_iter().map(|(place, what)| (document.path(place), what)).collect();
    Ok(Translated { texts, narrowed: paths(translator.narrowed), ignored: paths(translator.ignored), empty })
}

/// Two automata, which are kept so that their addresses stay theirs, and what both have.
pub(super) type Product = (Rc<Dfa>, Rc<Dfa>, Rc<Dfa>);

/// A schema on its way into a grammar.
pub(super) struct Translator<'a, 'b> {
    pub(super) document: &'b Document<'a>,
    pub(super) grammar: &'b mut Grammar,
    pub(super) fuel: &'b mut Fuel,
    pub(super) limits: Limits,
    pub(super) layout: Layout,
    /// Texts of lists of parts.
    pub(super) values: HashMap<Vec<Part>, Expr>,
    /// Any value, by its depth.
    pub(super) anything: Vec<Expr>,
    pub(super) ranges: HashMap<(Range, bool), Rc<Dfa>>,
    /// Automata of patterns of ours, which match whole texts.
    pub(super) wholes: HashMap<String, Rc<Dfa>>,
    /// Automata of the schema's patterns.
    pub(super) patterns: HashMap<&'a str, Rc<Dfa>>,
    /// What two automata have both, by their addresses.
    pub(super) products: HashMap<(*const Dfa, *const Dfa), Product>,
    pub(super) narrowed: BTreeSet<(Place, String)>,
    pub(super) ignored: BTreeSet<(Place, String)>,
    pub(super) level: usize,
}

impl Translator<'_, '_> {
    /// Does what may come back to itself, at most so often that the stack holds it.
    pub(super) fn deeper<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ConstraintError>,
    ) -> Result<T, ConstraintError> {
        if self.level == LEVELS {
            return Err(ConstraintError::TooLarge { limit: LEVELS, unit: "levels of schemas" });
        }
        self.level += 1;
        let done = work(self);
        self.level -= 1;
        done
    }

    /// Notes that fewer texts are written than the schema at this place allows.
    pub(super) fn narrow(&mut self, place: Place, what: String) {
        self.narrowed.insert((place, what));
    }

    /// The innermost schema that allows nothing.
    pub(super) fn without_text(&self) -> Option<String> {
        let empty = self.values.iter().filter(|&(_, &texts)| texts == Grammar::NEVER);
        let places = empty.filter_map(|(parts, _)| match parts[..] {
            [Part::Schema(place, _)] => Some(place),
            _ => None,
        });
        places.max().map(|place| self.document.path(place))
    }
}
