//! Languages of JSON texts as a few kinds of expressions, and their automaton over bytes.

use std::{collections::HashMap, rc::Rc};

use regex_syntax::utf8::Utf8Sequences;

use super::{
    automaton::{Dfa, Fuel, Kind, Nfa, Node},
    error::ConstraintError,
};

/// An expression of a [`Grammar`].
pub(super) type Expr = u32;

/// How the characters of an automaton are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Spelling {
    /// As they are.
    Plain,
    /// As those of a JSON string, without its quotes.
    Quoted,
    /// The same, without the control characters that have no escape of one letter.
    Short,
}

/// Texts around items, and between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Brackets {
    pub(super) open: Expr,
    /// Before the first item.
    pub(super) lead: Expr,
    pub(super) comma: Expr,
    pub(super) close: Expr,
    /// The end where there is no item.
    pub(super) bare: Expr,
}

/// A list between brackets: an array, or an object as a map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct List {
    pub(super) brackets: Brackets,
    /// The first items.
    pub(super) items: Vec<Expr>,
    /// All others; [`Grammar::NEVER`] if there are none.
    pub(super) rest: Expr,
    pub(super) min: u32,
    pub(super) max: Option<u32>,
}

/// Pairs between braces in their order, some of which may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) brackets: Brackets,
    /// Pairs, and whether each must be there.
    pub(super) pairs: Vec<(Expr, bool)>,
    pub(super) min: u32,
    pub(super) max: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Form {
    Never,
    Empty,
    Bytes(Vec<u8>),
    Text(usize, Spelling),
    Concat(Vec<Expr>),
    Union(Vec<Expr>),
    List(Rc<List>),
    Record(Rc<Record>),
}

/// Expressions, each of which is there once.
#[derive(Debug)]
pub(super) struct Grammar {
    forms: Vec<Form>,
    known: HashMap<Form, Expr>,
    texts: Vec<Rc<Dfa>>,
}

impl Grammar {
    /// No text.
    pub(super) const NEVER: Expr = 0;
    /// The empty text.
    pub(super) const EMPTY: Expr = 1;

    /// A grammar without expressions but the two constants.
    pub(super) fn new() -> Self {
        let forms = vec![Form::Never, Form::Empty];
        let known = HashMap::from([(Form::Never, Self::NEVER), (Form::Empty, Self::EMPTY)]);
        Self { forms, known, texts: Vec::new() }
    }

    fn add(&mut self, form: Form) -> Expr {
        let next = self.forms.len() as Expr;
        *self.known.entry(form).or_insert_with_key(|form| {
            self.forms.push(form.clone());
            next
        })
    }

    /// One text.
    pub(super) fn bytes(&mut self, text: impl Into<Vec<u8>>) -> Expr {
        let text = text.into();
        if text.is_empty() { Self::EMPTY } else { self.add(Form::Bytes(text)) }
    }

    /// The texts of an automaton over characters.
    pub(super) fn text(&mut self, dfa: &Rc<Dfa>, spelling: Spelling) -> Expr {
        if dfa.is_empty() {
            return Self::NEVER;
        }
        let place = self.texts.iter().position(|known| Rc::ptr_eq(known, dfa)).unwrap_or_else(|| {
            self.texts.push(dfa.clone());
            self.texts.len() - 1
        });
        self.add(Form::Text(place, spelling))
    }

    /// Texts of these one after the other.
    pub(super) fn concat(&mut self, parts: &[Expr]) -> Expr {
        if parts.contains(&Self::NEVER) {
            return Self::NEVER;
        }
        let parts: Vec<Expr> = parts.iter().copied().filter(|&part| part != Self::EMPTY).collect();
        match parts[..] {
            [] => Self::EMPTY,
            [part] => part,
            _ => self.add(Form::Concat(parts)),
        }
    }

    /// Texts of any of these.
    pub(super) fn union(&mut self, parts: &[Expr]) -> Expr {
        let mut parts: Vec<Expr> = parts.iter().copied().filter(|&part| part != Self::NEVER).collect();
        parts.sort_unstable();
        parts.dedup();
        match parts[..] {
            [] => Self::NEVER,
            [part] => part,
            _ => self.add(Form::Union(parts)),
        }
    }

    /// A list.
    pub(super) fn list(&mut self, mut list: List) -> Expr {
        let never = list.items.iter().position(|&item| item == Self::NEVER);
        if let Some(count) = never.or((list.rest == Self::NEVER).then_some(list.items.len())) {
            list.max = Some(list.max.map_or(count as u32, |max| max.min(count as u32)));
            list.rest = Self::NEVER;
        }
        if let Some(max) = list.max {
            list.items.truncate(max as usize);
            if max as usize <= list.items.len() {
                list.rest = Self::NEVER;
            }
        }
        if list.max.is_some_and(|max| max < list.min) { Self::NEVER } else { self.add(Form::List(Rc::new(list))) }
    }

    /// A record: pairs that cannot be are left out, and leave nothing if they must be there.
    pub(super) fn record(&mut self, mut record: Record) -> Expr {
        if record.pairs.contains(&(Self::NEVER, true)) {
            return Self::NEVER;
        }
        record.pairs.retain(|pair| pair.0 != Self::NEVER);
        record.max = record.max.min(record.pairs.len() as u32);
        let required = record.pairs.iter().filter(|pair| pair.1).count() as u32;
        record.min = record.min.max(required);
        if record.max < record.min { Self::NEVER } else { self.add(Form::Record(Rc::new(record))) }
    }

    /// The automaton over bytes of an expression.
    pub(super) fn automaton(&self, of: Expr, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
        let mut nfa = Nfa::default();
        let accept = nfa.add(Kind::Accept)?;
        let mut builder = Builder { grammar: self, nfa, fuel, memo: HashMap::new(), ranges: HashMap::new() };
        let start = builder.node(of, accept)?;
        let Builder { nfa, memo, ranges, .. } = builder;
        drop((memo, ranges));
        nfa.determinize(start, fuel)
    }
}

/// Builds nodes from the end of an expression to its start; what goes on in the same way is built once.
struct Builder<'a> {
    grammar: &'a Grammar,
    nfa: Nfa,
    fuel: &'a mut Fuel,
    memo: HashMap<(Expr, Node), Node>,
    /// Nodes of one byte of a range, then a node: rows of characters share their ends.
    ranges: HashMap<(u8, u8, Node), Node>,
}

impl Builder<'_> {
    fn node(&mut self, of: Expr, next: Node) -> Result<Node, ConstraintError> {
        self.fuel.spend(1)?;
        if let Some(&node) = self.memo.get(&(of, next)) {
            return Ok(node);
        }
        let grammar = self.grammar;
        let node = match &grammar.forms[of as usize] {
            Form::Never => self.nfa.edges(&[])?,
            Form::Empty => next,
            Form::Bytes(text) => text.iter().rev().try_fold(next, |next, &byte| self.range(byte, byte, next))?,
            Form::Text(place, spelling) => self.text(&grammar.texts[*place], *spelling, next)?,
            Form::Concat(parts) => parts.iter().rev().try_fold(next, |next, &part| self.node(part, next))?,
            Form::Union(parts) => {
                let nodes: Vec<Node> = parts.iter().map(|&part| self.node(part, next)).collect::<Result<_, _>>()?;
                self.nfa.split(&nodes)?
            }
            Form::List(list) => self.list(list, next)?,
            Form::Record(record) => self.record(record, next)?,
        };
        self.memo.insert((of, next), node);
        Ok(node)
    }

    /// A byte of a range, then `next`.
    fn range(&mut self, low: u8, high: u8, next: Node) -> Result<Node, ConstraintError> {
        if let Some(&node) = self.ranges.get(&(low, high, next)) {
            return Ok(node);
        }
        self.fuel.spend(1)?;
        let node = self.nfa.edges(&[(low.into(), high.into(), next)])?;
        self.ranges.insert((low, high, next), node);
        Ok(node)
    }

    fn list(&mut self, list: &List, next: Node) -> Result<Node, ConstraintError> {
        let Brackets { open, lead, comma, close, bare } = list.brackets;
        let end = self.node(close, next)?;
        // From the last item to the first: what comes after so many of them.
        let known = list.items.len() as u32;
        let (mut after, mut count) = if let Some(max) = list.max {
            (end, max)
        } else {
            let again = self.nfa.hole()?;
            let item = self.node(list.rest, again)?;
            let item = self.node(comma, item)?;
            let kind = self.nfa.split_kind(&[item, end]);
            self.nfa.fill(again, kind);
            (again, known.max(list.min).max(1))
        };
        while count > 0 {
            self.fuel.spend(1)?;
            count -= 1;
            let item = list.items.get(count as usize).copied().unwrap_or(list.rest);
            let node = self.node(item, after)?;
            let node = self.node(if count > 0 { comma } else { lead }, node)?;
            let stops = if count > 0 { end } else { self.node(bare, next)? };
            after = if count >= list.min { self.nfa.split(&[node, stops])? } else { node };
        }
        if list.max == Some(0) {
            after = self.node(bare, next)?;
        }
        self.node(open, after)
    }

    fn record(&mut self, record: &Record, next: Node) -> Result<Node, ConstraintError> {
        let end = self.node(record.brackets.close, next)?;
        let bare = self.node(record.brackets.bare, next)?;
        let required = record.pairs.iter().filter(|pair| pair.1).count() as u32;
        let counts = record.min > required || (record.max as usize) < record.pairs.len();
        // Pairs are counted only where their number matters: `after[n]` is what follows where `n` are written (0, or any,
        // if none is counted).
        let top = if counts { record.max } else { 1 };
        let dead = self.nfa.edges(&[])?;
        let ends = |n| if n == 0 { bare } else { end };
        let mut after: Vec<Node> = (0..=top).map(|n| if !counts || n >= record.min { ends(n) } else { dead }).collect();
        for (place, &(pair, is_required)) in record.pairs.iter().enumerate().rev() {
            let mut before = Vec::with_capacity(after.len());
            for n in 0..=top {
                self.fuel.spend(1)?;
                // More pairs than are in front of this one, or no pair after the first one: this is not reached.
                if n as usize > place {
                    before.push(dead);
                    continue;
                }
                let to = if counts { n + 1 } else { 1 };
                let written = if to > top { dead } else { self.pair(record, pair, n > 0, after[to as usize])? };
                before.push(if is_required { written } else { self.nfa.split(&[written, after[n as usize]])? });
            }
            after = before;
        }
        self.node(record.brackets.open, after[0])
    }

    fn pair(&mut self, record: &Record, pair: Expr, is_next: bool, after: Node) -> Result<Node, ConstraintError> {
        let node = self.node(pair, after)?;
        self.node(if is_next { record.brackets.comma } else { record.brackets.lead }, node)
    }

    fn text(&mut self, dfa: &Dfa, spelling: Spelling, next: Node) -> Result<Node, ConstraintError> {
        let holes: Vec<Node> = (0..dfa.states()).map(|_| self.nfa.hole()).collect::<Result<_, _>>()?;
        for state in 0..dfa.states() as u32 {
            let mut choices = Vec::new();
            for (low, high, to) in dfa.row(state) {
                self.characters(low, high, spelling, holes[to as usize], &mut choices)?;
            }
            if dfa.accepts(state) {
                choices.push(next);
            }
            let kind = self.nfa.split_kind(&choices);
            self.nfa.fill(holes[state as usize], kind);
        }
        Ok(holes[0])
    }

    /// Adds the nodes of a character of a range, then `next`.
    fn characters(
        &mut self,
        low: u32,
        high: u32,
        spelling: Spelling,
        next: Node,
        choices: &mut Vec<Node>,
    ) -> Result<(), ConstraintError> {
        let high = high.min(char::MAX.into());
        let mut plain = vec![(low, high)];
        if spelling != Spelling::Plain {
            for code in
                (low..=high.min(0x1F)).chain([0x22, 0x5C].into_iter().filter(|code| (low..=high).contains(code)))
            {
                if let Some(node) = self.escape(code as u8, spelling, next)? {
                    choices.push(node);
                }
            }
            plain = vec![(low.max(0x20), high.min(0x21)), (low.max(0x23), high.min(0x5B)), (low.max(0x5D), high)];
        }
        for (low, high) in plain {
            if low > high {
                continue;
            }
            // Surrogates are no characters: the ends are moved over them.
            let low = char::from_u32(low).unwrap_or('\u{E000}');
            let high = char::from_u32(high).unwrap_or('\u{D7FF}');
            if low > high {
                continue;
            }
            for sequence in Utf8Sequences::new(low, high) {
                let ranges = sequence.as_slice().iter().rev();
                choices
                    .push(ranges.into_iter().try_fold(next, |next, range| self.range(range.start, range.end, next))?);
            }
        }
        Ok(())
    }

    /// The escape of a character in a JSON string, if there is one in this spelling.
    fn escape(&mut self, code: u8, spelling: Spelling, next: Node) -> Result<Option<Node>, ConstraintError> {
        let letter = match code {
            b'"' | b'\\' => code,
            0x08 => b'b',
            0x09 => b't',
            0x0A => b'n',
            0x0C => b'f',
            0x0D => b'r',
            _ if spelling == Spelling::Short => return Ok(None),
            _ => {
                let digit = b"0123456789abcdef"[usize::from(code % 16)];
                let mut node = self.range(digit, digit, next)?;
                node = self.range(b'0' + code / 16, b'0' + code / 16, node)?;
                for byte in [b'0', b'0', b'u', b'\\'] {
                    node = self.range(byte, byte, node)?;
                }
                return Ok(Some(node));
            }
        };
        let node = self.range(letter, letter, next)?;
        self.range(b'\\', b'\\', node).map(Some)
    }
}
