//! Fast-dLLM's prefix cache: what lies before the block is computed once, when the block starts; the block and all that
//! follows it are computed in each forward (Fast-dLLM, section 3.2 of the paper, llada and dream `generate`;
//! specs/caches.md#3.3, specs/caches.md#3.5 and specs/freedave.md#1.5).

use std::ops::Range;

use demask_step::{Lanes, MaskKind, Position, StepPlan};

use crate::{
    choices,
    error::{self, OptionsError},
    layout::Layout,
    method::{CacheKind, CacheTraits, Setup},
    parameters,
    policy::{CachePolicy, Maintenance, Memory},
    spec::{Field, Kind, Value},
    step::{Progress, Query, View},
};

choices! {
    /// Predictions of a block's first forward that may be committed, where rows predict the token after them: the first
    /// one's row is not live in later forwards.
    pub enum Start {
        /// All of them.
        All = "all",
        /// The first alone, as published for Dream.
        One = "one",
    }
}

/// Blocks whose first forward computes the prompt's rows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The first block.
    First,
    /// The first of each group with this number of blocks.
    Every(usize),
}

/// Word for the first block alone.
const FIRST: &str = "first";

impl Field for Renewal {
    const KIND: Kind = Kind::Or(FIRST, &Kind::count(1, usize::MAX));

    fn value(self) -> Value {
        match self {
            Self::First => Value::Choice(FIRST),
            Self::Every(blocks) => Value::Count(blocks),
        }
    }

    fn of_value(value: Value) -> Option<Self> {
        match value {
            Value::Choice(FIRST) => Some(Self::First),
            Value::Count(blocks) => Some(Self::Every(blocks)),
            _ => None,
        }
    }
}

parameters! {
    /// Cache of the positions before the block, kept from the block's first forward.
    pub struct PrefixCache {
        /// rows after the block that are live, what follows them is not seen; fitted: all
        pub horizon: Option<usize> = None;
        /// one idle forward where the first one completed the block (Fast-dLLM as first released)
        pub idle: bool = false;
        /// blocks from one computation of the prompt's rows to the next; first: they are computed once; fitted: 1, as
        /// published
        pub prompt: Option<Renewal> = None;
        /// predictions of a block's first forward that may be committed, where rows predict the token after them: all, or
        /// the first one alone as published for Dream
        pub start: Start = Start::All;
    }
}

impl CacheKind for PrefixCache {
    const NAME: &'static str = "prefix";
    const SUMMARY: &'static str =
        "what precedes the block is kept from the block's first forward; the block and what follows are live";
    const SOURCE: &'static str = "Fast-dLLM PrefixCache; specs/caches.md#3.3 and specs/freedave.md#1.5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> CacheTraits {
        let starts_wide = self.horizon.is_some();
        CacheTraits { memory: Memory::OfState, starts_wide, ..CacheTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        check_start(self.start, setup)
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        let Self { horizon, idle, prompt, start } = *self;
        Box::new(BlockStart::new(
            Behind::Nothing { horizon: horizon.unwrap_or(usize::MAX) },
            idle,
            prompt.unwrap_or(Renewal::Every(1)),
            start,
        ))
    }
}

/// Refuses a start of blocks that only the shift of a model makes different.
pub(super) fn check_start(start: Start, setup: &Setup<'_>) -> Result<(), OptionsError> {
    if start == Start::One && setup.options.facts.shift == 0 {
        let cache = setup.options.cache.to_string();
        let of = "models whose rows predict the token behind them";
        return Err(error::useless_parameter(cache, "start", of));
    }
    Ok(())
}

/// Treatment of the positions after the live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Invisible: `horizon` rows after the block are live, or as many as there are.
    Nothing { horizon: usize },
    /// Slots as they were when the block started; `horizon` rows after the block are live.
    Stale { horizon: usize },
}

/// State of both caches of Fast-dLLM: everything is computed when a block starts, then only the block and the positions
/// within the horizon. A block's first forward depends on the canvas alone and every slot outside the window is its,
/// every slot inside is the last forward's: a function of the canvas. The prompt's slots may be those of an earlier
/// block's start, which is a canvas that every run passes through.
#[derive(Debug)]
pub(super) struct BlockStart {
    behind: Behind,
    idle: bool,
    prompt: Renewal,
    start: Start,
    /// The block whose first forward filled the slots.
    filled: Option<usize>,
    /// Blocks begun since the prompt's rows last ran, the one with them included; 0 before they ever did.
    since: usize,
    /// Pending idle forward: the last forward completed the block.
    idle_due: bool,
}

impl BlockStart {
    pub(super) fn new(behind: Behind, idle: bool, prompt: Renewal, start: Start) -> Self {
        Self { behind, idle, prompt, start, filled: None, since: 0, idle_due: false }
    }

    /// The live rows of a block's later forwards, and how many keys they see. A query that reaches into later blocks
    /// takes them into the window.
    fn window(&self, layout: &Layout, block: usize, last: Option<Position>) -> (Range<Position>, Position) {
        let length = layout.len() as Position;
        let end = layout.block(last.map_or(block, |last| layout.block_of(last).max(block))).end;
        let behind = |horizon: usize| (end as usize).saturating_add(horizon).min(layout.len()) as Position;
        let (end, visible) = match self.behind {
            Behind::Nothing { horizon } => (behind(horizon), behind(horizon)),
            Behind::Stale { horizon } => (behind(horizon), length),
        };
        (layout.block(block).start..end, visible)
    }

    /// The first row of a block's first forward.
    fn first_row(&self, view: &View<'_>) -> Position {
        let renews = match self.prompt {
            // The same forward again has the same rows.
            _ if self.filled == Some(view.block) => self.since == 1,
            Renewal::First => self.since == 0,
            Renewal::Every(blocks) => self.since.is_multiple_of(blocks),
        };
        if renews { 0 } else { view.layout.response() as Position }
    }

    /// The first forward of a block. A prediction whose row leaves the live set has to be taken from it. As published it
    /// is then all that is taken (Dream; specs/caches.md#3.5): the others can only seed drafts.
    fn fill(&self, view: &View<'_>, query: &Query, start: Position, plan: &mut StepPlan) {
        let length = view.layout.len() as Position;
        plan.query.set_range(self.first_row(view)..length);
        plan.kv_len = length;
        let leaves = |&position: &Position| position.saturating_sub(view.shift) < start;
        for position in query.predict.iter().take_while(leaves) {
            plan.must.push(position);
        }
        let others = query.predict.iter().skip_while(leaves);
        if plan.must.is_empty() || self.start == Start::All {
            others.for_each(|position| plan.predict.push(position));
        } else if query.drafts {
            others.for_each(|position| plan.hint.push(position));
        }
    }
}

impl CachePolicy for BlockStart {
    fn maintenance(&mut self, view: &View<'_>, plan: &mut StepPlan) -> Maintenance {
        let (Some(block), true) = (self.filled, std::mem::take(&mut self.idle_due)) else { return Maintenance::None };
        let (window, visible) = self.window(view.layout, block, None);
        plan.query.set_range(window);
        plan.kv_len = visible;
        Maintenance::Alone
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let (window, visible) = self.window(view.layout, view.block, query.predict.last());
        let first_row = query.predict.first().map_or(window.start, |first| first.saturating_sub(view.shift));
        // A prediction that had to be taken and was refused is asked for again: its row must be live.
        if self.filled != Some(view.block) || first_row < window.start {
            self.fill(view, query, window.start, plan);
            return;
        }
        let end = query.end(view.canvas);
        plan.query.set_range(window.start..window.end.min(end));
        plan.kv_len = visible.min(end);
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        if self.filled == Some(view.block) || plan.lanes != Lanes::Canvas || plan.predicts_nothing() {
            return;
        }
        self.since = if plan.query.first() == Some(0) { 1 } else { self.since + 1 };
        self.filled = Some(view.block);
        let block = view.layout.block(view.block);
        let taken = progress.commits.iter().filter(|commit| block.contains(&commit.position)).count();
        self.idle_due = self.idle && taken > 0 && taken == view.canvas.masks_in(block);
    }

    fn memory(&self) -> Memory {
        Memory::OfState
    }

    /// Drafts run in the window alone: the forward that fills the slots is the canvas's.
    fn draft_span(&self, layout: &Layout, blocks: usize) -> usize {
        let (Behind::Nothing { horizon } | Behind::Stale { horizon }) = self.behind;
        let behind = layout.len() - layout.start().min(layout.len());
        blocks.saturating_mul(layout.block_length()).saturating_add(horizon).min(behind)
    }
}
