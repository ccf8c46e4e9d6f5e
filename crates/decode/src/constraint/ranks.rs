//! A guide's rows under a constraint: tokens that no text of the language goes on with do not count among its ranks
//! (specs/structure.md#7).

use std::sync::Arc;

use demask_step::{Predictions, TokenId, TokenScore};

use super::tokens::{State, TokenAutomaton};
use crate::{distribution::better, guide::Text};

/// A guide's row: the token that it predicts, its probability, and the scores of the tokens that it was asked about.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GuideRow {
    pub token: Option<TokenId>,
    pub confidence: f32,
    pub scores: Vec<TokenScore>,
}

impl GuideRow {
    /// Becomes the row of this index, as the network predicted it.
    pub(crate) fn copy(&mut self, predictions: &Predictions, index: usize, width: usize) {
        self.token = predictions.tokens.get(index).copied();
        self.confidence = predictions.confidence.get(index).copied().unwrap_or(0.0);
        self.scores.clear();
        self.scores.extend_from_slice(predictions.scores.get(index * width..(index + 1) * width).unwrap_or(&[]));
    }
}

/// A constraint over a guide's tokens. Its budget has no bound: the canvas's own automaton holds the answer to its length.
#[derive(Debug)]
pub(crate) struct Ranks {
    automaton: Arc<TokenAutomaton>,
    /// Tokens that end a text of the guide, which may be others than the automaton's.
    ends: Vec<TokenId>,
    in_holes: bool,
    /// The tokens that are live in a state, and the state.
    live: Vec<bool>,
    marked: Option<State>,
}

impl Ranks {
    /// Makes the ranks of a guide that ends its texts with these tokens. In holes nothing ends a text.
    pub(crate) fn new(automaton: Arc<TokenAutomaton>, ends: &[TokenId], in_holes: bool) -> Self {
        let ends = if in_holes { Vec::new() } else { ends.to_vec() };
        Self { automaton, ends, in_holes, live: Vec::new(), marked: None }
    }

    /// Reads the row after a text: its best token and its ranks are among live ones. A token that
    /// is not live keeps its rank among all, and so does every token after a text that no text of the language begins with.
    pub(crate) fn read(&mut self, text: Text<'_>, (logits, asked): (&[f32], &[TokenId]), row: &mut GuideRow) {
        let likeliest = row.token.and_then(|token| logits.get(token as usize)).filter(|logit| logit.is_finite());
        let (Some(&likeliest), Some(state)) = (likeliest, self.after(text)) else { return };
        self.mark(state);
        let live = || (0..).zip(logits.iter().copied()).zip(&self.live).filter(|(_, is_live)| **is_live);
        let known = || live().map(|(found, _)| found).filter(|found| found.1 > f32::NEG_INFINITY);
        let Some(best) = known().min_by(|&left, &right| better(left, right)) else { return };
        let is_live = |token: TokenId| self.live.get(token as usize) == Some(&true);
        for (score, &token) in row.scores.iter_mut().zip(asked).filter(|(_, token)| is_live(**token)) {
            let Some(&logit) = logits.get(token as usize) else { continue };
            let before = known().filter(|&found| better(found, (token, logit)).is_lt()).count();
            score.rank = score.rank.min(before as u32);
            score.best *= beside(likeliest, best.1);
        }
        if row.token != Some(best.0) {
            row.token = Some(best.0);
            row.confidence *= beside(likeliest, best.1);
        }
    }

    /// Returns the state after a text; none if no text of the language begins so.
    fn after(&self, text: Text<'_>) -> Option<State> {
        let (automaton, start) = (&self.automaton, self.automaton.start(self.in_holes));
        match text {
            Text::Tokens(tokens) => tokens.iter().try_fold(start, |state, &token| automaton.next(state, token)),
            Text::Bytes([]) => Some(start),
            Text::Bytes(bytes) => automaton.bytes().run(automaton.bytes().start(), bytes),
        }
    }

    /// Marks the tokens that are live in a state.
    fn mark(&mut self, state: State) {
        if self.marked.replace(state) == Some(state) {
            return;
        }
        let automaton = &self.automaton;
        let last_end = self.ends.iter().max().map_or(0, |&end| end as usize + 1);
        self.live.clear();
        self.live.resize(automaton.vocabulary().tokens().max(last_end), false);
        automaton.mark(state, |target| !self.in_holes || target != automaton.end(), &mut self.live);
        for &end in &self.ends {
            self.live[end as usize] |= automaton.accepts(state);
        }
    }
}

/// The share of one token's probability that another one has, by their logits.
fn beside(logit: f32, other: f32) -> f32 {
    (f64::from(other) - f64::from(logit)).exp() as f32
}
