//! Transfer rules: the predictions that are taken. Pure rules over one total order.
//!
//! [`Ranking`] turns the predictions of one lane into candidates in the total order of commits: block ascending, score
//! descending, position ascending. A [`Transfer`] then says how many of the first are taken. Because every rule takes a
//! prefix, its selections are nested for one set of predictions, which is what drafts need (specs/freedave.md#0).

mod fit;
mod own;
mod ranking;

use std::fmt;

use demask_step::{HeadAsk, Position, Positions, Predictions, TokenId};

use crate::{canvas::Canvas, event::Commit, layout::Layout, schedule::Tick};

pub(crate) use fit::fit;
pub use own::OwnRule;
pub use ranking::{Ranking, Remasking};

/// A prediction that may be taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The block of its position: earlier blocks come first.
    pub block: usize,
    /// Canvas position.
    pub position: Position,
    /// Token id.
    pub token: TokenId,
    /// Token id that stands there, of a decoder that revises; none for a mask.
    pub held: Option<TokenId>,
    /// The token's probability.
    pub confidence: f32,
    /// Entropy of the distribution in nats; 0 if it was not asked for.
    pub entropy: f32,
    /// Key of the order: higher is taken earlier.
    pub score: f64,
}

impl From<Candidate> for Commit {
    fn from(Candidate { position, token, confidence, .. }: Candidate) -> Self {
        Self { position, token, confidence }
    }
}

/// The state that a choice is made in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// Content of the schedule for this step.
    pub tick: Tick,
    /// Share of the block's steps that are left behind this one.
    pub left: f64,
    /// Passes over the block that began without a mask, this one included; of decoders that revise.
    pub posts: usize,
    /// Quantity that ranks the candidates.
    pub remasking: Remasking,
}

impl State {
    /// Reports whether the order is by position, so that a candidate may only be taken with all those before it.
    pub fn is_run(&self) -> bool {
        self.remasking == Remasking::LeftToRight
    }
}

impl From<Tick> for State {
    /// Returns the state of a rule that asks for the schedule alone.
    fn from(tick: Tick) -> Self {
        Self { tick, left: 0.0, posts: 0, remasking: Remasking::LowConfidence }
    }
}

/// State of a block after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Masks that are left.
    pub masks: usize,
    /// Records whether a token was written, replaced or taken back.
    pub changed: bool,
    /// Passes over the block that began without a mask, this one included.
    pub posts: usize,
}

/// One lane of the predictions, with the canvas and the layout by which they are read.
#[derive(Debug, Clone, Copy)]
pub struct LaneView<'a> {
    /// The predictions of all lanes.
    pub predictions: &'a Predictions,
    /// Index of the lane.
    pub lane: usize,
    /// The positions whose predictions count.
    pub among: &'a Positions,
    /// The canvas that the lane extends: a prediction counts only where it is open. Positions that the lane itself has
    /// filled answer [`NO_TOKEN`](demask_step::NO_TOKEN).
    pub canvas: &'a Canvas,
    /// Tokens given and writes of the lane so far: keys its randomness.
    pub writes: u32,
    /// Layout of the blocks.
    pub layout: &'a Layout,
}

/// A rule that says which predictions are taken. Pure: the same for the canvas and for drafts.
pub trait Transfer: fmt::Debug + Send {
    /// Adds the numbers that the rule reads at each position.
    fn ask(&self, _ask: &mut HeadAsk) {}

    /// Reports whether the part of its quota that a step does not take is added to the next step's
    /// ([`Clock::carried`](crate::schedule::Clock)).
    fn carries(&self) -> bool {
        false
    }

    /// Reports whether the schedule's count is taken whatever is predicted, wherever the order is known before.
    fn takes_quota(&self) -> bool {
        false
    }

    /// Returns the positions of the parts that each block is decoded in, from left to right. By default the block is decoded
    /// at once.
    fn part(&self) -> Option<usize> {
        None
    }

    /// Shows the rule the canvas and the head's answers from which the candidates of its next choice come. By default
    /// it looks at nothing.
    fn look(&self, _lane: &LaneView<'_>, _candidates: &[Candidate]) {}

    /// `candidates` come in the total order; the rule may reorder them and returns how many of the first are taken.
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize;

    /// Candidates that were chosen, in their order, whose tokens a constraint may have changed; the rule may reorder them and returns
    /// how many of the first still pass its test, each by its own confidence. By default it has no test: all of them.
    fn keeps(&self, _state: &State, wanted: &mut [Candidate]) -> usize {
        wanted.len()
    }

    /// Reports whether tokens of its block that were written before and are not among those taken become masks again,
    /// and those among them stay as they are. Otherwise those among them are replaced by the predictions, and the
    /// others stay. By default no written token is a candidate.
    fn takes_back(&self) -> bool {
        false
    }

    /// Reports whether a decoder that revises closes its block after a pass. By default as soon as no mask is left.
    fn closes(&self, pass: &Pass) -> bool {
        pass.masks == 0
    }

    /// Returns why its last choice is none: the request ends there. By default it never fails.
    fn fault(&self) -> Option<String> {
        None
    }
}

impl<T: Transfer + ?Sized> Transfer for Box<T> {
    fn ask(&self, ask: &mut HeadAsk) {
        (**self).ask(ask);
    }

    fn carries(&self) -> bool {
        (**self).carries()
    }

    fn takes_quota(&self) -> bool {
        (**self).takes_quota()
    }

    fn part(&self) -> Option<usize> {
        (**self).part()
    }

    fn look(&self, lane: &LaneView<'_>, candidates: &[Candidate]) {
        (**self).look(lane, candidates);
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        (**self).choose(state, candidates)
    }

    fn keeps(&self, state: &State, wanted: &mut [Candidate]) -> usize {
        (**self).keeps(state, wanted)
    }

    fn takes_back(&self) -> bool {
        (**self).takes_back()
    }

    fn closes(&self, pass: &Pass) -> bool {
        (**self).closes(pass)
    }

    fn fault(&self) -> Option<String> {
        (**self).fault()
    }
}

/// Candidates of one block with these confidences, for the tests of rules.
#[cfg(test)]
pub(crate) fn candidates(confidence: &[f32]) -> Vec<Candidate> {
    let with = |(&confidence, position)| Candidate {
        block: 0,
        position,
        token: 1,
        held: None,
        confidence,
        entropy: 0.0,
        score: 0.0,
    };
    confidence.iter().zip(0..).map(with).collect()
}
