//! Fast-dLLM's prefix cache: what lies before the block is computed once, when the block starts; the block and all that
//! follows it are computed in each forward (Fast-dLLM, section 3.2 of the paper, llada and dream `generate`;
//! specs/caches.md#3.3, specs/caches.md#3.5 and specs/freedave.md#1.5).

use std::ops::Range;

use demask_step::{Lanes, MaskKind, Position, StepPlan};

use super::{CacheKind, CachePolicy, CacheTraits, Extent, Memory};
use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    parameters,
    resolve::Setup,
};

parameters! {
    /// Cache of the positions before the block, kept from the block's first forward.
    pub struct Prefix {
        /// rows behind the block that are live, what follows them is not seen; fitted: all
        pub horizon: Option<usize> = None;
        /// one idle forward where the first one completed the block (Fast-dLLM as first released)
        pub idle: bool = false;
    }
}

impl CacheKind for Prefix {
    const NAME: &'static str = "prefix";
    const SUMMARY: &'static str =
        "what precedes the block is kept from the block's first forward; the block and what follows are live";
    const SOURCE: &'static str = "Fast-dLLM PrefixCache; specs/caches.md#3.3 and specs/freedave.md#1.5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> CacheTraits {
        let starts_wide = self.horizon.is_some();
        CacheTraits { memory: Memory::OfState, starts_wide, ..CacheTraits::default() }
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(BlockStart::new(Behind::Nothing { horizon: self.horizon.unwrap_or(usize::MAX) }, self.idle))
    }
}

/// Treatment of the positions behind the live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Invisible: `horizon` rows behind the block are live, or as many as there are.
    Nothing { horizon: usize },
    /// Slots as they were when the block started; `horizon` rows behind the block are live.
    Stale { horizon: usize },
}

/// State of both caches of Fast-dLLM: everything is computed when a block starts, then only the block and the positions
/// within the horizon. A block's first forward depends on the canvas alone and every slot outside the window is its,
/// every slot inside is the last forward's: a function of the canvas.
#[derive(Debug)]
pub(super) struct BlockStart {
    behind: Behind,
    idle: bool,
    /// The block whose first forward filled the slots.
    filled: Option<usize>,
    /// Pending idle forward: the last forward completed the block.
    idle_due: bool,
}

impl BlockStart {
    pub(super) fn new(behind: Behind, idle: bool) -> Self {
        Self { behind, idle, filled: None, idle_due: false }
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

    /// The first forward of a block. A prediction whose row leaves the live set has to be taken from it, and then it is
    /// all that is taken (Dream; specs/caches.md#3.5): the others can only seed drafts.
    fn fill(view: &View<'_>, query: &Query, start: Position, plan: &mut StepPlan) {
        let length = view.layout.len() as Position;
        plan.live.set_range(0..length);
        plan.visible = length;
        for position in query.predict.iter().take_while(|position| position.saturating_sub(view.shift) < start) {
            plan.must.push(position);
        }
        if plan.must.is_empty() {
            plan.predict.clone_from(&query.predict);
        } else if query.drafts {
            for position in query.predict.iter().skip(plan.must.len()) {
                plan.hint.push(position);
            }
        }
    }
}

impl CachePolicy for BlockStart {
    fn upkeep(&mut self, view: &View<'_>, plan: &mut StepPlan) -> bool {
        let (Some(block), true) = (self.filled, std::mem::take(&mut self.idle_due)) else { return false };
        let (window, visible) = self.window(view.layout, block, None);
        plan.live.set_range(window);
        plan.visible = visible;
        true
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let (window, visible) = self.window(view.layout, view.block, query.predict.last());
        let first_row = query.predict.first().map_or(window.start, |first| first.saturating_sub(view.shift));
        // A prediction that had to be taken and was refused is asked for again: its row must be live.
        if self.filled != Some(view.block) || first_row < window.start {
            Self::fill(view, query, window.start, plan);
            return;
        }
        let end = query.end(view.canvas);
        plan.live.set_range(window.start..window.end.min(end));
        plan.visible = visible.min(end);
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        if self.filled == Some(view.block) || plan.lanes != Lanes::Canvas || plan.live.len() < view.layout.len() {
            return;
        }
        self.filled = Some(view.block);
        let block = view.layout.block(view.block);
        let taken = progress.commits.iter().filter(|commit| block.contains(&commit.position)).count();
        self.idle_due = self.idle && taken > 0 && taken == view.canvas.masks_in(block);
    }

    fn extent(&self, view: &View<'_>, end: Position) -> Extent {
        if self.filled != Some(view.block) {
            return Extent { rows: view.layout.len(), keys: view.layout.len() };
        }
        let (window, visible) = self.window(view.layout, view.block, end.checked_sub(1));
        Extent { rows: window.len(), keys: visible as usize }
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
