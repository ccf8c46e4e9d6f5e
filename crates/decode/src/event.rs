//! Events of a session: commits, steps, counts and the answer.

use std::{ops::Range, time::Instant};

use demask_step::{Cost, Position, Predictions, TokenId};

/// A prediction that is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Commit {
    /// Canvas position.
    pub position: Position,
    /// Token id.
    pub token: TokenId,
    /// The token's probability as the head reported it; 1 where a rule, not the model, chose it.
    pub confidence: f32,
}

/// A change of a token that was committed before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replacement {
    /// Canvas position.
    pub position: Position,
    /// Token id to stand there; none for a mask.
    pub token: Option<TokenId>,
    /// The token's probability as the head reported it. A token that is taken back has the probability of the
    /// prediction that fell short.
    pub confidence: f32,
}

/// Probability of a committed token, and alternatives to it: of the prediction that was taken.
///
/// Probabilities are those of the distribution that [confidence](demask_step::ConfidenceOf) speaks of: `softmax(logits)` of
/// the row that the token was taken from, in the forward that predicted it. The mask, which is never predicted, keeps its
/// share. Where the decoder reads the draw's distribution, tempered and filtered as the draw was (specs/models.md#7).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logprob<'a> {
    /// Natural logarithm of the token's probability; minus infinity of one that weighs nothing.
    pub log_probability: f32,
    /// The most probable tokens with the natural logarithms of their probabilities, best first: as many as were asked for,
    /// fewer if no more have a probability above 0.
    pub top: &'a [(TokenId, f32)],
}

/// Something that happens to a request, in order. Steps are counted over forwards, from 0.
///
/// A session says commits, replacements and steps, and drafts where it is asked to. The request around it adds the canvas at
/// its start, text, holes and log-probabilities. Traces, streams and pictures read nothing else.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The canvas is laid out. Nothing is decoded yet.
    Started(Box<Started>),
    /// The first forward has begun and ended.
    Began {
        /// Start of the first forward: until then the request waited.
        at: Instant,
    },
    /// A position got its token. Commits of one step come in the total order of commits: block, then score descending,
    /// then position.
    Commit {
        /// The forward whose predictions were taken.
        step: usize,
        /// Canvas position.
        position: Position,
        /// Token id.
        token: TokenId,
        /// The token's probability.
        confidence: f32,
        /// Records whether no forward decided it: a constraint leaves no choice there.
        forced: bool,
        /// Records whether a constraint changed it: the network whose prediction was taken predicted another token there.
        changed: bool,
    },
    /// A position got another token, or a mask again, by a decoder that revises written tokens. Comes after the commits
    /// of the same forward, position by position.
    Replace {
        /// The forward whose predictions were taken.
        step: usize,
        /// Canvas position.
        position: Position,
        /// Token id before.
        from: TokenId,
        /// Token id after; none if the token was taken back and the position is masked again.
        to: Option<TokenId>,
        /// Probability of the new token; of one that was taken back, of the prediction that fell short.
        confidence: f32,
        /// Records whether a constraint changed the new token, as of a commit.
        changed: bool,
    },
    /// Log-probability of the token that the commit or replacement before it wrote, where they are wanted.
    Logprob {
        /// Canvas position.
        position: Position,
        /// Natural logarithm of the token's probability; none of a token that weighs nothing or was not predicted.
        logprob: Option<f32>,
        /// The most probable tokens with the natural logarithms of their probabilities, best first.
        top: Vec<(TokenId, f32)>,
    },
    /// A token of the drafts that a forward verified, in the order in which drafts hold them. Comes before the forward's
    /// commits, from a session that was asked to ([`Session::tell_drafts`](crate::Session::tell_drafts)).
    Draft {
        /// The forward that verified it.
        step: usize,
        /// The first draft that holds it, and so do all larger ones; 0 is the draft that is known to be good.
        draft: usize,
        /// Canvas position.
        position: Position,
        /// Token id.
        token: TokenId,
        /// The token's probability when it was drafted.
        confidence: f32,
        /// Records whether it is kept.
        accepted: bool,
    },
    /// Prediction in a draft that decides about the next draft; emitted for the drafts that were reached, after all
    /// [`Draft`](Self::Draft) of the same forward.
    Target {
        /// The forward.
        step: usize,
        /// The draft in which it was predicted.
        draft: usize,
        /// Canvas position.
        position: Position,
        /// Token id; of a guide, one of its own tokens.
        token: TokenId,
        /// The token's probability.
        confidence: f32,
        /// Records whether a guide predicted it, where it disagreed.
        by_guide: bool,
    },
    /// Predictions of a network for one sequence in one forward, where they are recorded. Comes before the step.
    Predicted {
        /// Index of the feed of the session, from 0.
        step: usize,
        /// Index of the network: 0 is the model, 1 its guide.
        network: usize,
        /// The predictions.
        predictions: Box<Predictions>,
    },
    /// Text that can no longer change and was not reported yet; of a text with holes see `Hole`.
    Text(String),
    /// A hole is filled: its text can no longer change.
    Hole {
        /// Index of the hole, from 0.
        index: usize,
        /// Text of the hole.
        text: String,
    },
    /// A forward is over, all its commits reported.
    Step {
        /// Index of the forward, from 0.
        step: usize,
        /// NFE so far, this forward included.
        nfe: usize,
        /// Rows that entered this forward: live rows of all lanes and sequences.
        rows: usize,
        /// Drafts that ran in it.
        drafts: usize,
        /// Draft tokens that were accepted.
        accepted: usize,
        /// Draft tokens that were not: those of the largest draft that static decoding did not come to, or the one at
        /// which a guide stopped.
        rejected: usize,
        /// Masks that are left in the canvas, those after the answer in its last block included.
        masks: usize,
        /// Number of leading positions after the prompt that can no longer change and belong to the answer.
        settled: usize,
        /// Forwards that are merged into this one because nothing was read for long. 0 of one that is listed by itself.
        merged: usize,
    },
    /// Parts of a likelihood that are done, or of an answer's forward that runs in pieces, as the first one of a long prompt
    /// does.
    Progress {
        /// Number of finished canvases, of which draws that hide the same have one; or of rows that have run.
        done: usize,
        /// Number of all canvases, or of the forward's rows.
        all: usize,
    },
    /// The session is over. Nothing follows.
    Finished(Finish),
}

/// A canvas as it is laid out.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Started {
    /// All tokens: the prompt, and masks where something is decoded.
    pub canvas: Vec<TokenId>,
    /// Tokens of the prompt: those in front of the first mask.
    pub prompt_tokens: usize,
    /// Positions after the prompt, the last block's overhang included.
    pub positions: usize,
    /// Positions of a block.
    pub block_length: usize,
    /// The decoder, with its parameters.
    pub decoder: String,
    /// The cache policy, with its parameters.
    pub cache: String,
    /// Positions of the holes in the canvas; none if the answer follows the prompt. Everything between them was given.
    pub holes: Vec<Range<usize>>,
    /// Masks in the canvas.
    pub masks: usize,
}

/// Reason why a response ends where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Finish {
    /// An end token stands there.
    Eos,
    /// A stop text was found, or the text of a constraint is complete without an end token.
    Stop,
    /// Full length: everything requested was decoded.
    Length,
    /// Deadline: the time was over; the answer is the part that was settled by then.
    Deadline,
}

impl Finish {
    /// The word used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Deadline => "deadline",
        }
    }
}

/// The answer of a session, complete or so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Tokens after the prompt, up to and including the first end id; never a mask,
    /// never more than the generation length.
    pub tokens: Vec<TokenId>,
    /// Reason why it ends there.
    pub finish: Finish,
    /// The whole canvas: prompt, response, tokens that a block model decoded beyond it, and masks where decoding
    /// stopped early.
    pub canvas: Vec<TokenId>,
}

/// Counts of a session so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Forwards of the diffusion model as the method's paper counts them: a batch of drafts, or two sequences stacked
    /// for guidance, is one.
    pub nfe: usize,
    /// Forwards that it asked for.
    pub forwards: usize,
    /// Leading tokens of the canvas that were not computed: their slots were filled when its sequence was opened.
    pub cached: usize,
    /// Times that its memory was given up to other requests.
    pub preempted: usize,
    /// Rows that were computed again after that; no other count has them.
    pub recomputed: usize,
    /// Tokens committed, one that was taken back once for each time.
    pub commits: usize,
    /// Tokens that took the place of others, and tokens that were taken back.
    pub replaced: usize,
    /// Live rows of all lanes and sequences, summed over forwards.
    pub rows: usize,
    /// Cost that the network reported, summed over sequences and forwards.
    pub cost: Cost,
    /// Counts of the guide.
    pub guide: GuideCounts,
    /// Counts of the constraint.
    pub constraint: ConstraintCounts,
}

/// Counts of a guide so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GuideCounts {
    /// Forwards of the guide.
    pub nfe: usize,
    /// Leading tokens that it did not have to read: their slots were filled when its sequence was opened.
    pub cached: usize,
    /// Live rows of the guide's forwards.
    pub rows: usize,
    /// Drafts that it agreed with.
    pub accepted: usize,
    /// Drafts that it was the first to disagree with in their step.
    pub rejected: usize,
    /// Cost that the guide's network reported.
    pub cost: Cost,
}

/// Counts of a constraint's commits, changes and fallbacks in one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ConstraintCounts {
    /// Tokens that were committed because every answer has them.
    pub forced: usize,
    /// Tokens in whose place the network whose prediction was taken predicted another one.
    pub changed: usize,
    /// Steps that took a single token because none of several still passed the rule's test.
    pub fallbacks: usize,
}
