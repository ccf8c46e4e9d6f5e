//! Languages of texts over two bytes, and vocabularies for them, as tables: what constraints are compared with. Nothing here
//! knows how a constraint is kept.

use std::sync::Arc;

use demask_decode::constraint::{
    ByteAutomaton, Ends, Limits, Role, Source, TokenAutomaton, TokenConstraint, Vocabulary,
};
use demask_step::{TokenId, random};

/// A random number generator.
#[derive(Debug, Clone)]
pub struct Rolls(pub u64);

impl Rolls {
    /// Returns a number below `sides`.
    pub fn below(&mut self, sides: usize) -> usize {
        self.0 = random::mix(self.0);
        ((self.0 >> 8) % sides as u64) as usize
    }

    /// Returns `true` once in `sides` times.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }
}

/// A language by its table over two bytes, and tokens by their texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Language {
    /// The state after each byte, of each state.
    pub next: Vec<[Option<usize>; 2]>,
    /// Records of each state whether a text may be over there. Texts start in state 0.
    pub accepting: Vec<bool>,
    /// Texts of tokens after others, and at the start of an answer: numbers of bytes, empty for tokens without text.
    pub texts: [Vec<Vec<usize>>; 2],
    /// Tokens that end an answer.
    pub ends: Vec<TokenId>,
    /// Tokens that may stand after an end, the ends among them.
    pub fills: Vec<TokenId>,
    /// The one of them that fills.
    pub fill: TokenId,
}

/// State of an answer, none after its end.
type State = Option<usize>;

impl Language {
    /// All texts, over a number of tokens without ends.
    pub fn all(tokens: usize) -> Self {
        let texts = vec![vec![0]; tokens];
        Self {
            next: vec![[Some(0); 2]],
            accepting: vec![true],
            texts: [texts.clone(), texts],
            ends: Vec::new(),
            fills: Vec::new(),
            fill: 0,
        }
    }

    /// A random language with a few states, over a number of tokens; with the given ends, or random ones.
    pub fn roll(rolls: &mut Rolls, tokens: usize, ends: Option<&[TokenId]>) -> Self {
        let states = 1 + rolls.below(5);
        let mut next = vec![[None; 2]; states];
        for to in next.iter_mut().flatten() {
            *to = (!rolls.one_in(3)).then(|| rolls.below(states));
        }
        let mut accepting: Vec<bool> = (0..states).map(|_| rolls.one_in(3)).collect();
        let one = rolls.below(states);
        accepting[one] = true;
        let mut text = || {
            let length = [1, 1, 1, 2, 2, 3, 0][rolls.below(7)];
            (0..length).map(|_| rolls.below(2)).collect::<Vec<_>>()
        };
        let mut behind: Vec<Vec<usize>> = (0..tokens).map(|_| text()).collect();
        let mut first: Vec<Vec<usize>> = (0..tokens).map(|_| text()).collect();
        if !rolls.one_in(4) {
            first.clone_from(&behind);
        }
        let mut list = |lengths: [usize; 5]| -> Vec<TokenId> {
            (0..lengths[rolls.below(5)]).map(|_| rolls.below(tokens) as TokenId).collect()
        };
        let ends = ends.map_or_else(|| list([0, 1, 1, 1, 2]), <[TokenId]>::to_vec);
        let mut fills = [ends.clone(), list([0, 0, 0, 1, 1])].concat();
        if ends.is_empty() {
            fills.clear();
        }
        for texts in [&mut behind, &mut first] {
            for &token in &fills {
                texts[token as usize].clear();
            }
        }
        for (text, behind) in first.iter_mut().zip(&behind) {
            if behind.is_empty() {
                text.clear();
            }
        }
        let fill = if fills.is_empty() { 0 } else { fills[rolls.below(fills.len())] };
        Self { next, accepting, texts: [behind, first], ends, fills, fill }
    }

    /// Returns the states after a token at a position, none if no answer has it there. Text is written within the budget alone.
    fn after(
        &self,
        state: State,
        (position, token): (usize, TokenId),
        (budget, in_hole): (usize, bool),
    ) -> Option<State> {
        let Some(mut state) = state else { return self.fills.contains(&token).then_some(None) };
        if self.ends.contains(&token) {
            return (!in_hole && self.accepting[state]).then_some(None);
        }
        let text = self.texts[usize::from(position == 0 && !in_hole)].get(token as usize)?;
        if text.is_empty() || position >= budget {
            return None;
        }
        for &byte in text {
            state = self.next[state][byte]?;
        }
        Some(Some(state))
    }

    /// Reports whether these tokens are an answer: a text of the language within the budget, and fills after its end. A hole has
    /// no end, and no text of its own at its start.
    pub fn accepts(&self, filling: &[TokenId], budget: usize, in_hole: bool) -> bool {
        let mut state = Some(0);
        for (position, &token) in filling.iter().enumerate() {
            let Some(next) = self.after(state, (position, token), (budget, in_hole)) else { return false };
            state = next;
        }
        state.is_none_or(|state| self.accepting[state])
    }

    /// Reports whether some answer has all these tokens, and any at the open positions.
    pub fn completes(&self, canvas: &[Option<TokenId>], budget: usize) -> bool {
        let mut states = vec![Some(0)];
        for (position, token) in canvas.iter().enumerate() {
            let tokens = token.map_or(0..self.texts[0].len() as TokenId, |token| token..token + 1);
            let mut next: Vec<State> = Vec::new();
            for &state in &states {
                let all = tokens.clone().filter_map(|token| self.after(state, (position, token), (budget, false)));
                next.extend(all);
            }
            next.sort_unstable();
            next.dedup();
            states = next;
        }
        states.iter().any(|state| state.is_none_or(|state| self.accepting[state]))
    }

    /// All accepted fillings of a small canvas.
    pub fn fillings(&self, canvas: &[Option<TokenId>], budget: usize, in_hole: bool) -> Vec<Vec<TokenId>> {
        let mut all = vec![Vec::new()];
        for token in canvas {
            let of = token.map_or(0..self.texts[0].len() as TokenId, |token| token..token + 1);
            let longer =
                |before: &Vec<TokenId>| of.clone().map(|token| [&before[..], &[token]].concat()).collect::<Vec<_>>();
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|filling| self.accepts(filling, budget, in_hole));
        all
    }

    /// Makes a token one that is no text.
    pub fn leave_out(&mut self, token: TokenId) {
        for texts in &mut self.texts {
            texts[token as usize].clear();
        }
    }

    /// Returns the constraint of this language; none if it has no text.
    pub fn constraint(&self, mask: Option<TokenId>, limits: Limits) -> Option<TokenConstraint> {
        let bytes = ByteAutomaton::new(&self.table(), &self.accepting)?;
        let role = |(token, text): (TokenId, &Vec<usize>)| match mask {
            Some(mask) if mask == token => Role::Mask,
            _ => Role::Text(Self::spell(text)),
        };
        let roles: Vec<Role> = (0..).zip(&self.texts[0]).map(role).collect();
        let ends = Ends { ends: self.ends.clone(), padding: self.fills.clone(), fill: self.fill };
        let start: Vec<Vec<u8>> = self.texts[1].iter().map(|text| Self::spell(text)).collect();
        let vocabulary = Vocabulary::new(&roles, ends).and_then(|vocabulary| vocabulary.with_start(&start)).ok()?;
        let automaton = TokenAutomaton::new(bytes, Arc::new(vocabulary), limits);
        let source = Source { kind: "table".into(), hash: "H".into(), ..Source::default() };
        Some(TokenConstraint::new(Arc::new(automaton), source))
    }

    /// Returns a text as bytes.
    pub fn spell(text: &[usize]) -> Vec<u8> {
        text.iter().map(|&byte| b"ab"[byte]).collect()
    }

    /// Returns the table over all bytes.
    pub fn table(&self) -> Vec<[Option<u32>; 256]> {
        let row = |next: &[Option<usize>; 2]| {
            let mut row = [None; 256];
            (row[usize::from(b'a')], row[usize::from(b'b')]) =
                (next[0].map(|to| to as u32), next[1].map(|to| to as u32));
            row
        };
        self.next.iter().map(row).collect()
    }
}
