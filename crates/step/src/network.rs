//! The network as decoding sees it: the trait `Network`, groups of steps and their checks, prefixes that sequences share,
//! costs, guidance blends and errors.

use std::{error, fmt};

use crate::{DeviceError, HeadAsk, Mask, OutOfMemory, Position, Predictions, SequenceLimits, StepPlan, TokenId};

/// A model that runs steps for open sequences: a diffusion model, an autoregressive guide, a scripted one in tests.
///
/// Its owner opens a sequence, hands over checked steps, and closes the sequence. A *group* is the steps of one
/// request, which must run in one forward.
pub trait Network: Send {
    /// Reserves everything that a sequence will ever need, the memory of all of its positions too: a step never allocates.
    fn open(&mut self, needs: &SequenceLimits) -> Result<SequenceId, OpenError>;

    /// Opens a sequence with memory for the positions that it [opens with](SequenceLimits::opens_with) and that begins
    /// with a prefix: as many of its leading slots as other sequences [published] for the same prefix are filled. No
    /// step may have such a position live or keep it. By default, and
    /// under full attention, where what stands after a token changes its K/V, none is filled.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// [published]: Self::cache_prefix
    fn open_with_prefix(&mut self, needs: &SequenceLimits, _prefix: Prefix<'_>) -> Result<OpenedSequence, OpenError> {
        Ok(OpenedSequence { sequence: self.open(needs)?, filled: 0 })
    }

    /// Returns the bytes that [growing](Self::grow) a sequence to this number of leading positions would take now. By default none: all
    /// is taken at opening.
    fn growth(&self, _sequence: SequenceId, _positions: usize) -> u64 {
        0
    }

    /// Takes memory for at least this number of leading positions of a sequence that was opened with fewer
    /// ([`SequenceLimits::opens_with`]), and returns how many have some now. By default all have.
    ///
    /// # Errors
    /// If the device has too little; nothing was taken then.
    fn grow(&mut self, _sequence: SequenceId, _positions: usize) -> Result<usize, OutOfMemory> {
        Ok(usize::MAX)
    }

    /// Lets later sequences begin with the leading slots of this one: those slots were written, depend on these tokens
    /// alone, and no step will have them live or keep them from now on. Sequences share whole units of them. A rest of
    /// less than a unit is copied, once `ends` says that no step of this sequence will run any more.
    fn cache_prefix(&mut self, _sequence: SequenceId, _prefix: Prefix<'_>, _ends: bool) {}

    /// Reports whether waiting pays for a sequence that begins with `prefix` while another one, which begins with `filler`, is
    /// about to write and publish that: more of its slots would be filled then, and they are at least half of those that the
    /// other one writes. By default never.
    fn gains(&self, _prefix: Prefix<'_>, _filler: Prefix<'_>) -> bool {
        false
    }

    /// Marks the slots that a sequence would find filled after a prefix as those to be evicted last, and returns the bytes
    /// of those of them that are idle.
    fn touch_prefix(&mut self, _prefix: Prefix<'_>) -> u64 {
        0
    }

    /// Gives up idle pages, the least recently used first, until no more than so many bytes are idle; returns how many are.
    fn evict(&mut self, _bytes: u64) -> u64 {
        0
    }

    /// Returns the counters of published prefixes so far. None if it keeps none.
    fn prefix_cache_stats(&self) -> Option<PrefixCacheStats> {
        None
    }

    /// Gives back the memory that `open` reserved. Published prefixes stay, as far as there is room. Closing twice is
    /// harmless.
    fn close(&mut self, sequence: SequenceId);

    /// Returns what opening a sequence with these needs would take now, or why it can never be opened. Changes nothing.
    fn memory_cost(&self, needs: &SequenceLimits) -> Result<MemoryCost, OpenError>;

    /// Finds the first fault of a group, by [`PlanLimits::check`](crate::PlanLimits::check). A group that passes cannot
    /// fail a batch, and a bug in one request's group fails that request alone.
    fn check(&self, group: &[SequenceStep<'_>]) -> Result<(), PlanError>;

    /// Runs the steps of several sequences as one forward; `out[i]` is filled with the predictions of `batch[i]`. The
    /// groups in the batch passed [`check`](Self::check), no sequence is in it twice, and it has at most
    /// [`RowBudget::capacity`] rows.
    ///
    /// # Errors
    /// If the device failed. Every open sequence's state is lost then.
    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), DeviceError>;

    /// Returns how many rows a forward may have, how many are nearly free, and how many make a piece.
    fn rows(&self) -> RowBudget;

    /// Returns the distance from a position back to the row that predicts it, for plans that do not name theirs.
    fn shift(&self) -> Position;

    /// Returns the pages of K/V that sequences hold, and those that were given back and are kept for the next ones.
    fn pages(&self) -> Pages;
}

/// Memory needed to open a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryCost {
    /// Bytes that opening it takes, which it holds until it is closed.
    pub own: u64,
    /// Bytes by which buffers that all sequences share would grow; they stay that large.
    pub growth: u64,
    /// Device whose memory is needed.
    pub device: DeviceId,
}

/// Names a memory that networks share: the computer's own, or a GPU's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceId(pub u32);

/// Pages of K/V.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Held by open sequences; those that several of them share count once.
    pub used: usize,
    /// Allocated and free.
    pub free: usize,
    /// Held by nobody, and kept because they hold a published prefix: they are as good as free.
    pub idle: usize,
}

/// Leading tokens of a sequence, and all else that their K/V depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefix<'a> {
    /// The tokens from position 0 on.
    pub tokens: &'a [TokenId],
    /// Attention mask, with the block length.
    pub mask: Mask,
    /// Prefixes of different salts are never shared.
    pub salt: u64,
}

/// A sequence that was opened after a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedSequence {
    /// Name of the opened sequence.
    pub sequence: SequenceId,
    /// Number of leading positions whose slots are filled.
    pub filled: Position,
}

/// Bytes that published prefixes may take, and counters of their lookups and of the hits, which only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixCacheStats {
    /// Bytes of pages that no sequence holds that are kept at most.
    pub capacity: u64,
    /// Tokens of the prefixes that sequences were opened after.
    pub queries: u64,
    /// Tokens of those prefixes whose slots were filled.
    pub hits: u64,
}

/// Rows of a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowBudget {
    /// Most rows of one forward, all sequences and lanes together.
    pub capacity: usize,
    /// Rows that hardly lengthen a forward: the same in every run on a device. What running forwards show takes its place where
    /// requests share a forward.
    pub free: usize,
    /// Most rows of a request in one forward, where it can be cut.
    pub piece: usize,
}

/// Names an open sequence of one denoiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u32);

/// One sequence's part of a step.
#[derive(Debug, Clone, Copy)]
pub struct SequenceStep<'a> {
    /// Sequence to be run.
    pub sequence: SequenceId,
    /// The tokens at the live positions, lane after lane.
    pub tokens: &'a [TokenId],
    /// Plan of the step.
    pub plan: &'a StepPlan,
    /// Request to the head.
    pub ask: &'a HeadAsk,
    /// Classifier-free guidance: how the rows that the head sees are mixed with another sequence's.
    pub blend: Option<Blend>,
}

/// Classifier-free guidance in hidden space: the head is linear, so blending the normed rows that enter it equals
/// blending logits (LLaDA's `logits = un + (scale + 1) (cond - un)`), at the price of one head pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blend {
    /// `row + scale * (row - unconditional)`.
    pub scale: f32,
    /// Source of the unconditional row.
    pub with: BlendWith,
}

/// Source of the unconditional rows of a [`Blend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlendWith {
    /// Unconditional rows of the step this many places later in the same group, whose live set contains the same rows;
    /// the difference is stored if the sequence reserved a residual.
    Behind(usize),
    /// Difference stored when it was last computed (dLLM-Cache's interval of the unconditional pass).
    Stored,
}

/// A sequence could not be opened: the only out-of-memory there is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Error: not enough memory for the needs of the sequence.
    Memory(OutOfMemory),
    /// Error: more positions than the model was trained for.
    Context {
        /// Positions that the sequence needs.
        needed: usize,
        /// The model's context length.
        available: usize,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(OutOfMemory { needed, available }) => write!(
                f,
                "the sequence needs {} MiB of memory and {} MiB are available: shorten it or free memory",
                needed >> 20,
                available >> 20
            ),
            Self::Context { needed, available } => write!(
                f,
                "the sequence needs {needed} positions and the model's context holds {available}: \
                 shorten the prompt or the generation length"
            ),
        }
    }
}

impl error::Error for OpenError {}

impl From<OutOfMemory> for OpenError {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

/// A bug in one request's plan, found before it joins a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The sequence is not open.
    UnknownSequence(SequenceId),
    /// The number of tokens differs from the number of rows of all lanes.
    TokenCount {
        /// Rows of all lanes.
        expected: usize,
        /// Tokens given.
        found: usize,
    },
    /// The number of tokens to score differs from the number of predictions times their width.
    ScoreCount {
        /// Lanes times predicted positions times the width.
        expected: usize,
        /// Tokens given.
        found: usize,
    },
    /// A token outside the vocabulary, in the canvas or in the request to the head.
    TokenOutOfRange(TokenId),
    /// A live or visible position beyond the reserved ones.
    PositionOutOfRange {
        /// The position.
        position: Position,
        /// The reserved positions.
        reserved: usize,
    },
    /// A live position outside the visible keys.
    LiveNotVisible(Position),
    /// The row that predicts this position is not live.
    RowNotLive {
        /// The predicted position.
        position: Position,
        /// The position whose row predicts it.
        row: Position,
    },
    /// A visible slot was never written and is not live.
    SlotNeverWritten(Position),
    /// A computed or probed row is not live.
    ComputedNotLive(Position),
    /// A kept position was not live in the last step's drafts, or the lane did not exist.
    NothingToKeep(Position),
    /// Error: the step needs more of a resource than was reserved.
    BeyondReserve {
        /// Name of the resource.
        what: &'static str,
        /// Amount that was requested.
        needed: usize,
        /// Amount that was reserved.
        reserved: usize,
    },
    /// The plan contradicts itself.
    Contradiction(&'static str),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("step plan refused (a bug, please report it): ")?;
        match self {
            Self::UnknownSequence(id) => write!(f, "sequence {} is not open", id.0),
            Self::TokenCount { expected, found } => write!(f, "{found} tokens for {expected} rows"),
            Self::ScoreCount { expected, found } => write!(f, "{found} tokens to judge, expected {expected}"),
            Self::TokenOutOfRange(token) => write!(f, "token {token} is outside the vocabulary"),
            Self::PositionOutOfRange { position, reserved } => write!(f, "position {position} of {reserved} reserved"),
            Self::LiveNotVisible(position) => write!(f, "live position {position} is not visible"),
            Self::RowNotLive { position, row } => write!(f, "position {position} needs row {row}, which is not live"),
            Self::SlotNeverWritten(position) => write!(f, "slot {position} is visible and was never written"),
            Self::ComputedNotLive(position) => write!(f, "computed position {position} is not live"),
            Self::NothingToKeep(position) => write!(f, "position {position} was not in the last step's drafts"),
            Self::BeyondReserve { what, needed, reserved } => write!(f, "{needed} {what}, {reserved} reserved"),
            Self::Contradiction(what) => f.write_str(what),
        }
    }
}

impl error::Error for PlanError {}
