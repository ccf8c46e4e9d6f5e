//! Requests to the head and its results: never whole logits unless they are asked for.

use crate::{
    Position, Positions, TokenId, TokenList,
    needs::{Cost, SequenceLimits},
    random::{self, Use},
    room,
};

/// Request of one step to the head.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadAsk {
    /// Wanted of each predicted position.
    pub wanted: HeadRequest,
    /// Filter of positions: only those that the lane holds as this token (the mask id) are predicted; the others return
    /// [`NO_TOKEN`](crate::NO_TOKEN).
    pub only_where: Option<TokenId>,
    /// One per lane: the number of tokens given and of writes in the lane so far, which keys its randomness. Missing entries
    /// count as 0.
    pub states: Vec<u32>,
    /// Keys the randomness of each position by the number of tokens before it, in place of the lane's state. A decoder
    /// from left to right has that number there, wherever the lane is.
    pub in_order: bool,
    /// The tokens to score, `[lanes, positions, score_width]`, positions as in [`Predictions::positions`].
    pub score: Vec<TokenId>,
}

impl HeadAsk {
    /// Returns the key of the noise by which a position's token is drawn in a lane.
    pub fn key(&self, lane: usize, position: Position) -> u64 {
        let state = if self.in_order { position } else { self.states.get(lane).copied().unwrap_or(0) };
        random::key(self.wanted.sampling.seed, Use::Token, position, state)
    }
}

impl From<HeadRequest> for HeadAsk {
    fn from(wanted: HeadRequest) -> Self {
        Self { wanted, ..Self::default() }
    }
}

/// Facts wanted of a predicted position. It goes to the head as it is: a clone allocates nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadRequest {
    /// Tokens that are never predicted, and never an alternative to the prediction (the mask id always). Each keeps its
    /// share of the distribution, unless it is muted too: then its logit counts as minus infinity everywhere
    /// (specs/models.md#6).
    pub banned: TokenList,
    /// Tokens from this id on are forbidden too, at the cost of none: 1 to the vocabulary's size; without it, none are.
    pub limit: Option<TokenId>,
    /// Tokens that weigh nothing in the distribution: every other one is renormalised without them. A position that
    /// predicts one, which it may unless it is forbidden, has confidence 0 (LLaDA's `confidence_eos_eot_inf`,
    /// specs/models.md#trap-7).
    pub zero_confidence: TokenList,
    /// Rules by which the token is drawn and its confidence is measured.
    pub sampling: Sampling,
    /// Wanted: the probability of the best token that may be predicted minus the second's.
    pub margin: bool,
    /// Wanted: the entropy of the distribution, `-sum p ln p`, in nats. Released programs add 1e-10 to `p` in the
    /// logarithm, which lowers it by at most as much for each token of the vocabulary.
    pub entropy: bool,
    /// Wanted: this many best tokens that may be predicted with their probabilities, best first.
    pub top: usize,
    /// Wanted: rank and probability of this many given tokens per lane and predicted position ([`HeadAsk::score`]).
    pub score_width: usize,
    /// Wanted: the raw logits, `[lanes, positions, vocabulary]`.
    pub logits: bool,
}

impl HeadRequest {
    /// Reports whether a token may be predicted.
    pub fn allows(&self, token: TokenId) -> bool {
        self.limit.is_none_or(|limit| token < limit) && self.banned.binary_search(&token).is_err()
    }

    /// Returns the tokens that no distribution knows: muted ones that are forbidden too.
    pub fn struck(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.zero_confidence.iter().copied().filter(|&token| !self.allows(token))
    }

    /// Returns the tokens of a vocabulary that it does not allow, ascending.
    pub fn refused(&self, vocabulary: usize) -> impl Iterator<Item = TokenId> + '_ {
        let bound = self.bound(vocabulary) as TokenId;
        self.banned.iter().copied().filter(move |&token| token < bound).chain(bound..vocabulary as TokenId)
    }

    /// Returns the number of leading tokens of a vocabulary that are below the limit.
    pub fn bound(&self, vocabulary: usize) -> usize {
        self.limit.map_or(vocabulary, |limit| vocabulary.min(limit as usize))
    }
}

/// Rules by which a token is drawn from its logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0: the most probable token (ties to the lowest id). Above: drawn from `softmax(logits / temperature)` by adding
    /// keyed Gumbel noise, which is both LLaDA's formula and a categorical draw.
    pub temperature: f32,
    /// Keep the `top_k` most probable tokens (and all that tie with the last of them); 0: all.
    pub top_k: u32,
    /// Keep tokens until their cumulative probability passes `top_p`, the first always; 1: all.
    pub top_p: f32,
    /// Of what both filters leave, keep tokens that are at least this share as probable as the best one, at the temperature; 0:
    /// all. See [`Sampling::reach`].
    pub min_p: f32,
    /// Order of the two filters; the second works on the renormalised rest of the first.
    pub order: FilterOrder,
    /// Choice of the probability that is the confidence.
    pub confidence: ConfidenceOf,
    /// Key of the noise.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            order: FilterOrder::TopPFirst,
            confidence: ConfidenceOf::Raw,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Returns how far below the best logit a token may be that passes `min_p`: 0 or less, minus infinity for every one. Added to
    /// the best logit in f32, so that each head leaves out the same tokens.
    pub fn reach(&self) -> f32 {
        let temperature = if self.temperature > 0.0 { self.temperature } else { 1.0 };
        if self.min_p > 0.0 { temperature * self.min_p.ln() } else { f32::NEG_INFINITY }
    }

    /// Reports whether a filter leaves out any token of a vocabulary.
    pub fn filters(&self, vocabulary: usize) -> bool {
        self.top_k > 0 && (self.top_k as usize) < vocabulary || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// Order of the two filters (specs/models.md#trap-23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOrder {
    /// Dream: temperature, top-p, top-k.
    TopPFirst,
    /// SDAR, TraDo, FreeDave: temperature, top-k, top-p.
    TopKFirst,
}

/// The distribution that confidence, margin and entropy speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfidenceOf {
    /// `softmax(logits)`: without temperature and filters (LLaDA, and the sane choice everywhere).
    Raw,
    /// The tempered, filtered and renormalised distribution that the token is drawn from (Dream, SDAR as released).
    Drawn,
}

/// Rank and probability of a given token in a predicted row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenScore {
    /// Number of tokens that come before it (higher logit, or equal logit and lower id): 0 is the best. Forbidden tokens
    /// come after all others.
    pub rank: u32,
    /// Natural-log probability under `softmax(logits)`, its share also where it is forbidden. It is not a number where no
    /// logit of the row is one, or the best one infinite.
    pub log_probability: f32,
    /// The probability of the best token of the row that may be predicted.
    pub best: f32,
}

impl TokenScore {
    /// Value for a token in a row that was not predicted.
    pub const NONE: Self = Self { rank: u32::MAX, log_probability: f32::NEG_INFINITY, best: 0.0 };
}

/// The answer to one step of one sequence. All arrays run lane after lane, position after position.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    /// Number of lanes.
    pub lanes: usize,
    /// The predicted positions: the union of the plan's `predict`, `must` and `hint`.
    pub positions: Positions,
    /// `[lanes, positions]`: the drawn token, or [`NO_TOKEN`](crate::NO_TOKEN) where none was asked for.
    pub tokens: Vec<TokenId>,
    /// `[lanes, positions]`: the drawn token's probability; minus infinity where none was asked for, and not a number where
    /// no logit was one, or the best one infinite.
    pub confidence: Vec<f32>,
    /// `[lanes, positions]` if asked for.
    pub margin: Vec<f32>,
    /// `[lanes, positions]` if asked for.
    pub entropy: Vec<f32>,
    /// `[lanes, positions, top]` if asked for, best first.
    pub top: Vec<(TokenId, f32)>,
    /// `[lanes, positions, score_width]` if asked for.
    pub scores: Vec<TokenScore>,
    /// `[lanes, positions, vocabulary]` if asked for.
    pub logits: Vec<f32>,
    /// Cost of the step.
    pub cost: Cost,
}

impl Predictions {
    /// The first predicted position where nothing can be predicted, for no logit is a number, or the best one is infinite.
    pub fn without_numbers(&self) -> Option<Position> {
        let width = self.scores.len() / self.confidence.len().max(1);
        let is_none = |&index: &usize| {
            let judged = &self.scores[index * width..(index + 1) * width];
            self.confidence[index].is_nan() || judged.iter().any(|judged| judged.log_probability.is_nan())
        };
        let found = (0..self.confidence.len()).find(is_none)?;
        self.positions.iter().nth(found % self.positions.len().max(1))
    }

    /// Index of a lane's position in the `[lanes, positions]` arrays.
    pub fn index(&self, lane: usize, position: Position) -> Option<usize> {
        self.positions.rank(position).map(|rank| lane * self.positions.len() + rank)
    }

    /// Makes room for the answers of a sequence with these needs, but for logits.
    pub fn reserve(&mut self, needs: &SequenceLimits) {
        let predictions = needs.predictions;
        self.positions.reserve(predictions);
        room(&mut self.tokens, predictions);
        room(&mut self.confidence, predictions);
        room(&mut self.margin, predictions);
        room(&mut self.entropy, predictions);
        room(&mut self.top, predictions * needs.top);
        room(&mut self.scores, predictions * needs.score_width);
    }

    /// Becomes a copy of another's tokens and their numbers, without lists of best tokens and logits, in its own allocations.
    pub fn copy_tokens(&mut self, other: &Self) {
        self.clear();
        (self.lanes, self.cost) = (other.lanes, other.cost);
        self.positions.clone_from(&other.positions);
        self.tokens.extend_from_slice(&other.tokens);
        self.confidence.extend_from_slice(&other.confidence);
        self.margin.extend_from_slice(&other.margin);
        self.entropy.extend_from_slice(&other.entropy);
    }

    /// Empties all arrays for refilling, keeping their allocations.
    pub fn clear(&mut self) {
        self.lanes = 0;
        self.positions.clear();
        self.tokens.clear();
        self.confidence.clear();
        self.margin.clear();
        self.entropy.clear();
        self.top.clear();
        self.scores.clear();
        self.logits.clear();
        self.cost = Cost::default();
    }
}
