//! Steps of a decoder: its view of the session, its query to a forward, and the progress that follows from the
//! predictions.

use std::{fmt, ops::Range};

use demask_step::{
    ForwardInput, HeadAsk, NO_TOKEN, Position, Positions, Predictions, SequenceLimits, SequenceSpec, StepPlan, TokenId,
};

use crate::{
    canvas::Canvas,
    constraint::Enforced,
    event::{Commit, Replacement},
    layout::Layout,
};

/// Facts that decoders and cache policies may read.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The tokens.
    pub canvas: &'a Canvas,
    /// Layout of the blocks.
    pub layout: &'a Layout,
    /// The first block that is open; the number of blocks if none is.
    pub block: usize,
    /// The row of position `p - shift` predicts position `p`.
    pub shift: u32,
}

/// Query of a decoder for the next forward.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Positions whose predictions may be committed.
    pub predict: Positions,
    /// Records whether predictions that may not be committed are of use, as seeds of drafts.
    pub drafts: bool,
    /// The positions among them that will be committed whatever is predicted, in the order of the commits; empty if
    /// the decoder cannot know.
    pub foreseen: Vec<Position>,
    /// The part of the block around them whose rows have to run, if the block is decoded in parts.
    pub within: Option<Range<Position>>,
    /// Records whether the predictions only seed drafts and the rows see each other, over a causal context.
    pub ahead: bool,
    /// End of the forward, if set: positions from here on are neither live nor visible.
    pub end: Option<Position>,
    /// The drafts to run instead of the canvas; none to run the canvas itself.
    pub branches: Drafts,
    /// The tokens to judge, one for each position of `predict`, by a decoder that asks for one each.
    pub score: Vec<TokenId>,
}

impl Query {
    /// Empties it for the next forward, keeping its allocations.
    pub fn clear(&mut self) {
        self.predict.clear();
        self.foreseen.clear();
        (self.within, self.ahead, self.end) = (None, false, None);
        self.drafts = false;
        self.branches.clear();
        self.score.clear();
    }

    /// End of the forward: the end of the canvas, unless set.
    pub fn end(&self, canvas: &Canvas) -> Position {
        let whole = canvas.len() as Position;
        self.end.map_or(whole, |end| end.min(whole))
    }
}

/// Nested drafts: each is the canvas and the first so many of one list of commits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drafts {
    /// Tokens of the largest draft, in the order in which the drafts take them.
    pub commits: Vec<Commit>,
    /// Number of commits in each draft, ascending; empty if there is no draft.
    pub sizes: Vec<usize>,
}

impl Drafts {
    /// Reports whether there is no draft.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Tokens that a draft fills in; empty if there is no such draft.
    pub fn lane(&self, lane: usize) -> &[Commit] {
        &self.commits[..self.sizes.get(lane).map_or(0, |&size| size.min(self.commits.len()))]
    }

    /// Removes all drafts, keeping the allocations.
    pub fn clear(&mut self) {
        self.commits.clear();
        self.sizes.clear();
    }

    /// Makes room for so many commits and drafts.
    pub fn reserve(&mut self, commits: usize, drafts: usize) {
        self.commits.reserve(commits);
        self.sizes.reserve(drafts);
    }

    /// Becomes a copy of others in its own allocations.
    pub fn copy(&mut self, others: &Self) {
        self.clear();
        self.commits.extend_from_slice(&others.commits);
        self.sizes.extend_from_slice(&others.sizes);
    }
}

/// Wish of a decoder for its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposal {
    /// The query's forward.
    Predict,
    /// End: the canvas is complete.
    Done,
}

/// Progress that came of a forward.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Predictions taken, in the total order of commits.
    pub commits: Vec<Commit>,
    /// Positions among them that were no decision: a constraint leaves no choice there.
    pub forced: Vec<Position>,
    /// Steps that took a single token, because several that a constraint lets stand together fell short of the rule.
    pub fallbacks: usize,
    /// Tokens of the open block that change, of a decoder that revises.
    pub replaced: Vec<Replacement>,
    /// Records whether the open block is closed after these changes, by a decoder that revises: its tokens are final.
    pub closes: bool,
    /// Draft tokens among them that were accepted.
    pub accepted: usize,
    /// Draft tokens that were rejected: of drafts that were run, those of the largest beyond the accepted one; by a guide,
    /// none or one.
    pub rejected: usize,
    /// The draft that the canvas becomes, if drafts were run.
    pub draft: Option<Accepted>,
    /// The drafts that were verified, for those who watch.
    pub drafted: Drafts,
    /// Predictions in the drafts that were reached, for observers: with drafts, the log-probabilities of commits are
    /// read here.
    pub targets: Vec<Judgement>,
}

/// A prediction that decides about the next draft.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// The draft in which it was predicted.
    pub draft: usize,
    /// Position and token; of a guide, one of its own tokens.
    pub commit: Commit,
    /// Records whether a guide predicted it.
    pub by_guide: bool,
}

/// The accepted draft of a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Index of the lane.
    pub lane: u32,
    /// Number of the first commits that it held; those after them follow from the predictions in it.
    pub commits: usize,
}

impl Progress {
    /// Returns the commits that the forward's tokens held already: the accepted draft's; none if no drafts were run.
    pub fn held(&self) -> &[Commit] {
        &self.commits[..self.draft.map_or(0, |draft| draft.commits.min(self.commits.len()))]
    }

    /// Says what its commits and changes are for those who watch: a constraint may have chosen other tokens than were predicted.
    pub(crate) fn judge_commits(&mut self) {
        let changed = |change: &Replacement| {
            let Replacement { position, token, confidence } = *change;
            Some(Commit { position, token: token?, confidence })
        };
        let all = self.commits.iter().copied().chain(self.replaced.iter().filter_map(changed));
        self.targets.extend(all.map(|commit| Judgement { draft: 0, commit, by_guide: false }));
    }

    /// Returns how many tokens are taken back.
    pub(crate) fn taken_back(&self) -> usize {
        self.replaced.iter().filter(|change| change.token.is_none()).count()
    }

    /// Reports whether the forward ran the final tokens of a block that it closes: its K/V need no other forward.
    pub fn confirms(&self) -> bool {
        self.closes && self.commits.is_empty() && self.replaced.is_empty()
    }

    /// Empties it for the next forward, keeping its allocation.
    pub fn clear(&mut self) {
        self.commits.clear();
        self.forced.clear();
        self.fallbacks = 0;
        self.replaced.clear();
        self.closes = false;
        self.accepted = 0;
        self.rejected = 0;
        self.draft = None;
        self.drafted.clear();
        self.targets.clear();
    }
}

/// Takes the predictions that had to be taken: their rows leave the live set.
pub(crate) fn take_musts(view: &View<'_>, plan: &StepPlan, predictions: &Predictions, progress: &mut Progress) {
    for position in plan.must.iter().filter(|&position| view.canvas.is_masked(position)) {
        let Some(index) = predictions.index(0, position) else { continue };
        let token = predictions.tokens.get(index).copied().unwrap_or(NO_TOKEN);
        let confidence = predictions.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY);
        if token != NO_TOKEN {
            progress.commits.push(Commit { position, token, confidence });
        }
    }
}

/// A decoding method: a state machine between queries and their predictions.
pub trait Decoder: fmt::Debug + Send {
    /// Adds the numbers that this decoder reads from the head in every forward. An observer may want longer lists of
    /// best tokens than this: each prediction has `top.len() / tokens.len()` of them.
    fn ask(&self, ask: &mut HeadAsk);

    /// Adds what its steps need beyond the cache policy's rows: predictions, drafts. By default it predicts a block.
    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        needs.predictions = needs.predictions.max(layout.block_length());
    }

    /// Returns the method in canonical text with the parameters that it runs with, where it chose any of them.
    fn chosen(&self) -> Option<String> {
        None
    }

    /// Describes its choice for the device in half a sentence. None, the default, if it chose nothing.
    fn rule(&self) -> Option<String> {
        None
    }

    /// Returns the next proposal and fills the (empty) query. Called once for each forward.
    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal;

    /// Takes the predictions for the plan of its last query, or those of the helper that it asked since. The view is
    /// the canvas that was run. It completes the progress, or fills the helper's next request and is called again with
    /// the helper's predictions. The session writes the commits once the progress is settled.
    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult;

    /// Returns why it cannot go on, once its step has ended so. By default it always can.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Returns the sequences of the networks that it asks beside the diffusion model.
    fn helpers(&self) -> &[SequenceSpec] {
        &[]
    }

    /// Returns the tokens that its helper reads first, whatever is decoded, as far as it takes them from another request that
    /// read them: it never asks the helper to read them then. The helper is causal. By default none.
    fn prefix_tokens(&self) -> &[TokenId] {
        &[]
    }

    /// Learns, before its first step, that its helper has so many of [these](Self::prefix_tokens) tokens already.
    fn opened(&mut self, _filled: Position) {}

    /// Returns the tokens that its helper has read and will never be asked to read again. By default none.
    fn reusable(&self) -> &[TokenId] {
        &[]
    }
}

/// Predictions that a decoder waited for.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Predictor.
    pub source: AnswerSource,
    /// The plan of the diffusion model's forward.
    pub plan: &'a StepPlan,
    /// Predictions for that plan, or for the request to the helper. The diffusion model's are read through the constraint.
    pub predictions: &'a Predictions,
    /// The constraint, for who takes several predictions at once.
    pub constraint: Option<Enforced<'a>>,
}

/// Predictor of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// The diffusion model, for the canvas or its drafts.
    Canvas,
    /// The helper that was asked.
    Helper,
}

/// Outputs that a decoder fills in a step.
#[derive(Debug)]
pub struct StepContext<'a> {
    /// Progress of the forward.
    pub progress: &'a mut Progress,
    /// Request for the helper to run. It holds the request that the helper ran last.
    pub helper: &'a mut ForwardInput,
}

/// Result of a decoder's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepResult {
    /// The progress is complete.
    Settled,
    /// The helper runs its request first.
    Ask,
    /// Failure: [`Decoder::fault`] gives the reason.
    Failed,
}
