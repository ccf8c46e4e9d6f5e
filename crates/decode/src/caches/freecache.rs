//! FreeCache: the prompt's K/V are kept from the first forward, those of finished blocks are frozen one after another,
//! and nothing is ever refreshed (FlashDLM, section 3.2.1 of the paper; specs/flashdlm.md#1).

use demask_step::{Lanes, MaskKind, Position, StepPlan};

use crate::{
    choices,
    layout::Layout,
    method::{CacheKind, Setup},
    parameters,
    policy::{CachePolicy, Memory},
    spec::Kind,
    step::{Progress, Query, View},
};

choices! {
    /// Moment when a finished block is frozen.
    pub enum Freeze {
        /// Once a forward has computed it without a mask.
        Exact = "exact",
        /// Frozen with the forward that completes it: the last tokens keep the K/V of masks, as in the released
        /// program.
        Reference = "reference",
        /// Never: only the prompt is.
        Prompt = "prompt",
    }
}

parameters! {
    /// Prompt and finished blocks, frozen and never computed again.
    pub struct FreeCache {
        /// positions that are frozen together, counted from the response's start
        pub block: usize = 256, Kind::count(1, usize::MAX);
        /// after a forward that saw the block finished; with the one that finished it, as released; never
        pub freeze: Freeze = Freeze::Exact;
        /// live rows from the first mask on, what follows keeps its slots; fitted: all
        pub lookahead: Option<usize> = None, Kind::count(1, usize::MAX);
        /// live positions before the end of the frozen blocks; fitted: none
        pub lag: Option<usize> = None;
    }
}

/// Memory of its slots: it depends on the canvas at hand; the traits give the worst case, the steps.
impl CacheKind for FreeCache {
    const NAME: &'static str = "freecache";
    const SUMMARY: &'static str = "prompt and finished blocks are frozen and never computed again";
    const SOURCE: &'static str = "FlashDLM FreeCache; specs/flashdlm.md#1 and specs/caches.md#6";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        let Self { block, freeze, lookahead, lag } = *self;
        Box::new(Freezing {
            block,
            freeze,
            lookahead: lookahead.unwrap_or(usize::MAX),
            lag: lag.unwrap_or(0),
            memory: memory(freeze, block, lookahead, setup.layout),
            begun: false,
            computed: 0,
            finished: setup.layout.response(),
        })
    }
}

/// A block that is frozen clean has the K/V of the canvas at the moment it was completed, which is a moment that every
/// run passes through if it ends where a block of the decoder ends. A block that freezes only at the end has no history
/// either.
fn memory(freeze: Freeze, block: usize, lookahead: Option<usize>, layout: &Layout) -> Memory {
    let frozen_early = freeze != Freeze::Prompt && block < layout.len() - layout.response();
    let of_state = freeze == Freeze::Exact && block.is_multiple_of(layout.block_length());
    if lookahead.is_none() && (!frozen_early || of_state) { Memory::OfState } else { Memory::OfHistory }
}

#[derive(Debug)]
struct Freezing {
    block: usize,
    freeze: Freeze,
    lookahead: usize,
    lag: usize,
    memory: Memory,
    /// Records whether the first forward, which computes everything, was run.
    begun: bool,
    /// End of the live rows of the last forward: positions after it have older K/V.
    computed: usize,
    /// The end of the last block that was frozen, or of the prompt. With a shift the last row before it stays live: it
    /// predicts the first position after it.
    finished: usize,
}

impl Freezing {
    /// The first row that is live after the first forward.
    fn start(&self, view: &View<'_>) -> usize {
        let response = view.layout.response();
        self.finished.saturating_sub(self.lag).max(response).saturating_sub(view.shift as usize)
    }

    /// Freezes the blocks that end before the first mask, as far as the last forward computed them.
    fn freeze(&mut self, first_mask: usize, length: usize) {
        let clean = first_mask.min(self.computed);
        while self.finished < length {
            let next = self.finished.saturating_add(self.block).min(length);
            if next > clean {
                break;
            }
            self.finished = next;
        }
    }
}

impl CachePolicy for Freezing {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let length = view.layout.len();
        let (mut start, mut end, visible) = (0, length, query.end(view.canvas) as usize);
        if self.begun {
            let first_mask = view.canvas.first_open_after(query.branches.lane(0));
            if self.freeze == Freeze::Reference {
                // What the last forward decided, and drafts may only hold so far, is frozen as it was computed.
                self.freeze(first_mask, length);
            }
            let shift = view.shift as usize;
            let asked = |position: Position| position as usize;
            // What is asked for is live, wherever it is: a refused prediction is asked for again.
            start = self.start(view);
            start = query.predict.first().map_or(start, |first| start.min(asked(first).saturating_sub(shift)));
            end = first_mask.saturating_add(self.lookahead).min(length);
            end = query.predict.last().map_or(end, |last| end.max(asked(last) + 1));
        }
        plan.query.set_range(start as Position..end.min(visible) as Position);
        plan.kv_len = visible as Position;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        if plan.lanes != Lanes::Canvas && self.memory == Memory::OfState {
            return;
        }
        self.begun = true;
        self.computed = plan.query.last().map_or(0, |last| last as usize + 1);
        if self.freeze == Freeze::Exact {
            self.freeze(view.canvas.first_open_after(progress.held()), view.layout.len());
        }
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    /// Drafts run after the prompt, and in the row that predicts the first position after it: the first forward is the
    /// canvas's.
    fn draft_span(&self, layout: &Layout, _blocks: usize) -> usize {
        (layout.len() - layout.response() + 1).min(layout.len())
    }
}
