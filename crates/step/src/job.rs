//! Job for networks: something that wants forwards, is fed their predictions, and is over one day.

use std::any::Any;

use crate::{
    Blend, HeadAsk, Position, Predictions, Prefix, SequenceId, SequenceLimits, SequenceStep, StepPlan, TokenId,
};

/// A state machine that runs on networks without owning them: the decoding of a canvas, the draws of a likelihood.
///
/// The owner of the networks opens a sequence for each of [`needs`](Self::needs), runs leading groups of the
/// [`pending`](Self::pending) requests and feeds the predictions back, until nothing is pending.
///
/// Where networks keep prefixes, sequences are opened after the tokens that they [begin](Self::prefix_tokens) with.
/// Their [reusable](Self::reusable) tokens are published once their first forwards are in, and when they are closed.
pub trait Job: Any + Send {
    /// Returns the sequences that it needs, all of them open from its first forward to its end. The same in each call.
    fn needs(&self) -> &[SequenceSpec];

    /// Returns the groups of requests to run next. The same in each call until it is fed: the first group may run in
    /// pieces before that ([`StepPlan::piece_end`]).
    fn pending(&self) -> Pending<'_>;

    /// Takes the predictions of the leading groups that ran, one for each request.
    fn feed(&mut self, answers: &[Predictions]);

    /// Returns why it cannot go on, asked after it was fed. By default it always can.
    fn fault(&self) -> Option<&str> {
        None
    }

    /// Returns how many of its parts are done, and of how many, where it counts them. By default it does not.
    fn progress(&self) -> Option<(usize, usize)> {
        None
    }

    /// Returns the tokens with which one of [`needs`](Self::needs) begins, as far as it takes their slots filled, so that
    /// no request ever has them live. The same in each call before it is opened. By default none.
    fn prefix_tokens(&self, _sequence: usize) -> Prefix<'_> {
        Prefix::default()
    }

    /// Learns how many leading slots of each of [`needs`](Self::needs) are filled, at most those that it begins with.
    /// Called before its first forward, and again each time that it was [preempted](Self::preempted). The pending
    /// requests may differ after it.
    fn opened(&mut self, _filled: &[Position]) {}

    /// Learns that its sequences were closed although it is not over, to be opened again later: their memory was needed. What
    /// it [needs](Self::needs) and [begins](Self::prefix_tokens) with from now on restores them. Called only of a job
    /// with a sequence that [grows](SequenceLimits::opens_with), between two of its forwards. By default nothing
    /// changes.
    fn preempted(&mut self) {}

    /// Returns the tokens after the leading slots of one of [`needs`](Self::needs) that are written, depend on these
    /// tokens alone and will never be live or kept again. By default none.
    fn reusable(&self, _sequence: usize) -> Prefix<'_> {
        Prefix::default()
    }
}

/// A sequence that a [`Job`] needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceSpec {
    /// Index of the network among the work's networks: 0 is the first that it was submitted to.
    pub network: usize,
    /// Upper bounds of the sequence's needs.
    pub limits: SequenceLimits,
}

/// A sequence of the first network, for work that needs no other.
impl From<SequenceLimits> for SequenceSpec {
    fn from(limits: SequenceLimits) -> Self {
        Self { network: 0, limits }
    }
}

/// Next request of a [`Job`].
#[derive(Debug, Clone, Copy)]
pub enum Pending<'a> {
    /// Groups of `group` requests each, all of one network. The requests of a group run in one forward, in their order;
    /// any number of leading groups may run before the rest.
    Run {
        /// The requests, group after group.
        requests: &'a [ForwardInput],
        /// Requests of a group, at least 1; a divisor of their number.
        group: usize,
    },
    /// End: nothing left to run.
    Done,
}

impl<'a> Pending<'a> {
    /// Returns the requests, none if nothing is pending.
    pub fn requests(self) -> &'a [ForwardInput] {
        match self {
            Self::Run { requests, .. } => requests,
            Self::Done => &[],
        }
    }
}

/// One sequence's part of a forward that a [`Job`] wants.
#[derive(Debug, Clone, Default)]
pub struct ForwardInput {
    /// Index of the sequence in [`Job::needs`].
    pub sequence: usize,
    /// The tokens at the live positions, lane after lane.
    pub tokens: Vec<TokenId>,
    /// Plan of the step.
    pub plan: StepPlan,
    /// Wanted of the head.
    pub ask: HeadAsk,
    /// Classifier-free guidance by another request of the group.
    pub blend: Option<Blend>,
}

impl ForwardInput {
    /// Returns the request as a step of an open sequence.
    pub fn step(&self, sequence: SequenceId) -> SequenceStep<'_> {
        SequenceStep { sequence, tokens: &self.tokens, plan: &self.plan, ask: &self.ask, blend: self.blend }
    }

    /// Makes room for every step of a sequence with these needs.
    pub fn reserve(&mut self, needs: &SequenceLimits) {
        self.tokens.reserve(needs.rows);
        self.plan.reserve(needs.positions);
        self.ask.states.reserve(needs.drafts.max(1));
        self.ask.score.reserve(needs.predictions * needs.score_width);
    }
}
