//! The automaton over a vocabulary's tokens, whose rows are made when they are first needed (specs/structure.md#4).

use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use demask_step::TokenId;

use super::{
    automaton::distances,
    bytes::ByteAutomaton,
    classes::{Classes, NOTHING, Set, better},
    vocabulary::Vocabulary,
};

/// A state: one of the automaton over bytes, the one after an end, or that at the start of an answer.
pub(super) type State = u32;

/// Bounds of the classes and rows that a token automaton keeps. Its answers never depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most classes of tokens; rows that would make more keep their tokens.
    pub classes: usize,
    /// Most memory of rows in bytes; rows beyond it are made again for each use.
    pub memory: usize,
    /// Most states whose distances are counted in tokens; with more they are counted in bytes.
    pub states: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { classes: 4096, memory: 256 << 20, states: 4096 }
    }
}

/// Tokens that lead from one state to another.
#[derive(Debug)]
pub(super) struct Edge {
    pub target: State,
    /// Number of tokens, and the lowest of them.
    pub count: u32,
    pub lowest: TokenId,
    tokens: Tokens,
}

/// The tokens of an edge: as sets of classes, or one by one.
#[derive(Debug)]
enum Tokens {
    Sets(Vec<Set>),
    Listed(Vec<TokenId>),
}

/// All edges of a state, by ascending target.
#[derive(Debug)]
pub(super) struct Row {
    edges: Box<[Edge]>,
    /// Their targets.
    targets: Span,
}

/// A row: a kept one, or one that was made for this use.
pub(super) enum RowOf<'a> {
    Kept(&'a Row),
    Made(Row),
}

impl Deref for RowOf<'_> {
    type Target = Row;

    fn deref(&self) -> &Row {
        match self {
            Self::Kept(row) => row,
            Self::Made(row) => row,
        }
    }
}

impl Row {
    fn new(edges: Box<[Edge]>) -> Self {
        let targets = Span::new(edges.iter().map(|edge| edge.target));
        Self { edges, targets }
    }

    /// Returns the edges.
    pub(super) fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the targets.
    pub(super) fn targets(&self) -> &Span {
        &self.targets
    }

    fn memory(&self) -> usize {
        let edges = self.edges.iter().map(|edge| size_of::<Edge>() + edge.tokens.memory());
        edges.sum::<usize>() + size_of_val(&self.targets.words[..])
    }
}

/// A set of ascending states as bits, from the word of the lowest one on.
#[derive(Debug)]
pub(super) struct Span {
    first: usize,
    words: Box<[u64]>,
}

impl Span {
    fn new(states: impl Iterator<Item = State> + Clone) -> Self {
        let first = states.clone().next().map_or(0, |state| state as usize / 64);
        let words = states.clone().last().map_or(0, |state| state as usize / 64 + 1 - first);
        let mut words = vec![0; words].into_boxed_slice();
        states.for_each(|state| words[state as usize / 64 - first] |= 1 << (state % 64));
        Self { first, words }
    }

    /// Adds its states to a set.
    pub(super) fn add_to(&self, set: &mut [u64]) {
        set[self.first..].iter_mut().zip(&self.words).for_each(|(to, word)| *to |= word);
    }

    /// Reports whether it has a state of a set.
    pub(super) fn meets(&self, set: &[u64]) -> bool {
        set[self.first..].iter().zip(&self.words).any(|(one, other)| one & other != 0)
    }
}

/// A language of byte strings as an automaton over the tokens of a vocabulary. It is shared between requests: rows and classes
/// are made by the request that needs them first, and nothing that it says depends on which ones exist.
#[derive(Debug)]
pub struct TokenAutomaton {
    bytes: Arc<ByteAutomaton>,
    vocabulary: Arc<Vocabulary>,
    limits: Limits,
    rows: Box<[OnceLock<Row>]>,
    /// Memory of the rows that are kept.
    cached_bytes: AtomicUsize,
    classes: RwLock<Classes>,
    /// Fewest tokens from each state to acceptance.
    distances: OnceLock<Vec<u32>>,
}

impl TokenAutomaton {
    /// Makes the automaton of a language over a vocabulary. No row is made yet. Automata over several vocabularies share that
    /// over bytes.
    pub fn new(bytes: impl Into<Arc<ByteAutomaton>>, vocabulary: Arc<Vocabulary>, limits: Limits) -> Self {
        let bytes = bytes.into();
        let rows = (0..bytes.states() + 2).map(|_| OnceLock::new()).collect();
        let classes = RwLock::new(Classes::new(vocabulary.tokens(), limits.classes));
        Self { bytes, vocabulary, limits, rows, cached_bytes: AtomicUsize::new(0), classes, distances: OnceLock::new() }
    }

    /// Returns the vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Returns the automaton over bytes.
    pub fn bytes(&self) -> &Arc<ByteAutomaton> {
        &self.bytes
    }

    /// Returns the memory of its table and of the rows that are kept, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.memory() + self.cached_bytes.load(Ordering::Relaxed)
    }

    /// Number of states of the language.
    pub fn states(&self) -> usize {
        self.bytes.states()
    }

    /// Number of classes of tokens so far.
    pub fn classes(&self) -> usize {
        self.read_classes().len()
    }

    /// The state after an end.
    pub(super) fn end(&self) -> State {
        self.bytes.states() as State
    }

    /// The state before an answer's first token. In a hole, whose text follows another one, the state before its own
    /// text.
    pub(super) fn start(&self, in_hole: bool) -> State {
        if self.vocabulary.starts_apart() && !in_hole { self.end() + 1 } else { self.bytes.start() }
    }

    /// The state of the language that a state has before its next byte; none after an end.
    fn text_state(&self, state: State) -> Option<State> {
        match state.checked_sub(self.end()) {
            None => Some(state),
            Some(0) => None,
            Some(_) => Some(self.bytes.start()),
        }
    }

    /// Reports whether an answer may be over here.
    pub(super) fn accepts(&self, state: State) -> bool {
        self.text_state(state).is_none_or(|state| self.bytes.accepts(state))
    }

    /// Returns the state after a token, none if no answer continues so.
    pub(super) fn next(&self, state: State, token: TokenId) -> Option<State> {
        let listed = |tokens: &[TokenId]| tokens.binary_search(&token).is_ok();
        let Some(from) = self.text_state(state) else {
            return listed(self.vocabulary.fills()).then_some(state);
        };
        if listed(self.vocabulary.ends()) {
            return self.bytes.accepts(from).then_some(self.end());
        }
        let text = self.vocabulary.texts(state > self.end()).of(token);
        if text.is_empty() { None } else { self.bytes.run(from, text) }
    }

    /// Returns the bytes that every accepted text continues with after a state, up to where one may be over.
    pub(super) fn shared_bytes(&self, state: State, most: usize) -> Vec<u8> {
        let mut found = Vec::new();
        let Some(mut at) = self.text_state(state) else { return found };
        while found.len() < most && !self.bytes.accepts(at) {
            let mut next = (0..=255).filter_map(|byte| Some((byte, self.bytes.next(at, byte)?)));
            let (Some((byte, to)), None) = (next.next(), next.next()) else { break };
            found.push(byte);
            at = to;
        }
        found
    }

    /// Returns the edges of a state.
    pub(super) fn row(&self, state: State) -> RowOf<'_> {
        let place = &self.rows[state as usize];
        if let Some(row) = place.get() {
            return RowOf::Kept(row);
        }
        let row = Row::new(self.make_edges(state));
        let memory = row.memory();
        if self.cached_bytes.fetch_add(memory, Ordering::Relaxed) + memory > self.limits.memory {
            self.cached_bytes.fetch_sub(memory, Ordering::Relaxed);
            return RowOf::Made(row);
        }
        // Another request may have been first; both rows say the same.
        RowOf::Kept(place.get_or_init(|| row))
    }

    fn make_edges(&self, state: State) -> Box<[Edge]> {
        let Some(from) = self.text_state(state) else {
            return Box::new([Edge::listed(state, self.vocabulary.fills().to_vec())]);
        };
        // Number of each target among those that were met, in the order of their first tokens.
        let mut places = vec![u32::MAX; self.states()];
        let mut targets: Vec<(State, Vec<TokenId>)> = Vec::new();
        self.vocabulary.texts(state > self.end()).walk(&self.bytes, from, |target, token| {
            let place = &mut places[target as usize];
            if *place == u32::MAX {
                *place = targets.len() as u32;
                targets.push((target, Vec::new()));
            }
            targets[*place as usize].1.push(token);
        });
        targets.sort_unstable_by_key(|target| target.0);
        let ends = self.vocabulary.ends();
        let end = (self.bytes.accepts(from) && !ends.is_empty()).then(|| Edge::listed(self.end(), ends.to_vec()));
        let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
        let edge = |(target, tokens): (State, Vec<TokenId>)| match classes.refine(&tokens) {
            Some(sets) => {
                let lowest = tokens.iter().copied().min().unwrap_or(TokenId::MAX);
                Edge { target, count: tokens.len() as u32, lowest, tokens: Tokens::Sets(sets) }
            }
            None => Edge::listed(target, tokens),
        };
        targets.into_iter().map(edge).chain(end).collect()
    }

    fn read_classes(&self) -> RwLockReadGuard<'_, Classes> {
        self.classes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an edge's best token with its score, the lowest of several.
    pub(super) fn best(&self, edge: &Edge, scores: &mut Scores) -> (f64, TokenId) {
        match &edge.tokens {
            Tokens::Sets(sets) => {
                // Another request may have divided classes since.
                if sets.iter().any(|&set| set as usize >= scores.of_sets.len()) {
                    self.read_classes().best(&scores.of_tokens, &mut scores.of_sets);
                }
                sets.iter().map(|&set| scores.of_sets[set as usize]).fold(NOTHING, better)
            }
            Tokens::Listed(tokens) => {
                tokens.iter().map(|&token| (scores.of_tokens[token as usize], token)).fold(NOTHING, better)
            }
        }
    }

    /// Marks the tokens that lead from a state to any of these targets.
    pub(super) fn mark(&self, state: State, is_target: impl Fn(State) -> bool, marks: &mut [bool]) {
        let row = self.row(state);
        let mut all = Vec::new();
        for edge in row.edges().iter().filter(|edge| is_target(edge.target)) {
            match &edge.tokens {
                Tokens::Sets(sets) => all.extend_from_slice(sets),
                Tokens::Listed(tokens) => tokens.iter().for_each(|&token| marks[token as usize] = true),
            }
        }
        self.read_classes().mark(&all, marks);
    }

    /// Reports whether distances are known for states of this number: counted in tokens, or in bytes that are tokens each.
    pub(super) fn knows_distances(&self) -> bool {
        !self.counts_bytes() || self.vocabulary.has_every_byte()
    }

    /// Reports whether distances count each byte as a token.
    pub(super) fn counts_bytes(&self) -> bool {
        self.states() > self.limits.states
    }

    /// Returns the fewest tokens from a state to one where the answer may be over: 0 there. In an automaton of many states it
    /// is the number of bytes, which is never less where every byte is a token.
    pub(super) fn distance(&self, state: State) -> u32 {
        let Some(from) = self.text_state(state).filter(|&from| !self.bytes.accepts(from)) else { return 0 };
        if state > self.end() {
            let least = self.row(state).edges().iter().map(|edge| self.distance(edge.target)).min();
            least.map_or(u32::MAX, |least| least.saturating_add(1))
        } else if self.counts_bytes() {
            self.bytes.distance(from)
        } else {
            self.distances.get_or_init(|| self.count_distances())[from as usize]
        }
    }

    /// Counts tokens from each state to acceptance.
    fn count_distances(&self) -> Vec<u32> {
        let states = 0..self.states() as State;
        let accepting: Vec<bool> = states.clone().map(|state| self.bytes.accepts(state)).collect();
        // Rows may have to be made: each once.
        let targets =
            |state| self.row(state).edges().iter().map(|edge| edge.target).filter(|&to| to < self.end()).collect();
        let targets: Vec<Vec<State>> = states.map(targets).collect();
        distances(&accepting, |state| targets[state].iter().copied())
    }
}

/// Scores of all tokens at one position, and the best token of each set of classes once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Scores {
    of_tokens: Vec<f64>,
    of_sets: Vec<(f64, TokenId)>,
}

impl Scores {
    /// Returns the scores by token.
    #[cfg(test)]
    pub(super) fn of_tokens(&self) -> &[f64] {
        &self.of_tokens
    }

    /// Replaces the scores; none of them is below every number.
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut Vec<f64>)) {
        self.of_sets.clear();
        self.of_tokens.clear();
        fill(&mut self.of_tokens);
    }
}

impl Edge {
    fn listed(target: State, tokens: Vec<TokenId>) -> Self {
        let lowest = tokens.iter().copied().min().unwrap_or(TokenId::MAX);
        Self { target, count: tokens.len() as u32, lowest, tokens: Tokens::Listed(tokens) }
    }
}

impl Tokens {
    fn memory(&self) -> usize {
        match self {
            Self::Sets(sets) => size_of_val(&sets[..]),
            Self::Listed(tokens) => size_of_val(&tokens[..]),
        }
    }
}
