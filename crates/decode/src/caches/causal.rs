//! The cache of causal models: the K/V of everything read so far; only new tokens are fed.

use std::ops::Range;

use demask_step::{Lanes, Mask, MaskKind, Position, SequenceLimits, StepPlan};

use crate::{
    layout::Layout,
    method::{CacheKind, CacheTraits, Setup},
    parameters,
    policy::{CachePolicy, Memory},
    step::{Progress, Query, View},
};

parameters! {
    /// Cache of everything that a causal model has read.
    pub struct Causal {}
}

impl CacheKind for Causal {
    const NAME: &'static str = "causal";
    const SUMMARY: &'static str = "exact cache of autoregressive models: every token is read once";
    const SOURCE: &'static str = "transformers generate; specs/models.md#5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Causal];

    fn traits(&self) -> CacheTraits {
        CacheTraits { exact: true, memory: Memory::OfState, ..CacheTraits::default() }
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(CausalCache { read: 0, written: 0, shift: 0, keep: None })
    }
}

/// Slots `[0, read)` hold the K/V of final tokens, or will with the next forward.
#[derive(Debug)]
struct CausalCache {
    read: Position,
    /// Slots `[0, written)` hold them already.
    written: Position,
    /// Rows of the last forward's accepted draft that the next one has to keep.
    keep: Option<Range<Position>>,
    /// Distance from a prediction back to its row: that row may have to be read again.
    shift: Position,
}

impl CachePolicy for CausalCache {
    fn needs(&self, layout: &Layout) -> SequenceLimits {
        // The prompt is read in one forward.
        SequenceLimits { positions: layout.len(), rows: layout.response().max(1), ..SequenceLimits::default() }
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        if query.ahead {
            // Nothing of this pass is kept: the rows see each other, and their slots are written anew.
            let first = query.predict.first().unwrap_or(self.read).saturating_sub(1).min(self.read);
            let end = query.predict.last().map_or(self.read, |last| last + 1);
            plan.mask = Mask::Full;
            plan.shift = Some(0);
            plan.query.set_range(first..end);
            plan.kv_len = end;
            plan.hint.clone_from(&query.predict);
            return;
        }
        let end = query.predict.last().unwrap_or(self.read);
        // A prediction that was refused is asked for again: its row must be live, so it is read again.
        let first = query.predict.first().unwrap_or(self.read);
        let from = self.read.min(first.saturating_sub(view.shift));
        plan.mask = view.layout.attention();
        plan.query.set_range(from..end);
        plan.kv_len = end;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        self.shift = view.shift;
        // The plan kept what its last one's drafts had of it.
        self.written = self.read;
        if plan.predict.is_empty() {
            return;
        }
        // Of the rows that were fed, those whose tokens stand in the canvas now; those of masks are read again.
        let from = plan.query.first().unwrap_or(self.read);
        let fed = view.canvas.first_open_after(progress.held()) as Position;
        let end = fed.min(plan.kv_len).max(from);
        match (plan.lanes, progress.draft) {
            (Lanes::Canvas, _) => (self.read, self.written) = (end, end),
            (Lanes::Drafts(_), Some(_)) => (self.keep, self.read) = (Some(from..end), end),
            (Lanes::Drafts(_), None) => {}
        }
    }

    fn retains(&mut self) -> Option<Range<Position>> {
        self.keep.take()
    }

    /// The prompt but for its last token, whose row makes the first prediction.
    fn reusable_on_open(&self, layout: &Layout) -> Position {
        (layout.response() as Position).saturating_sub(1)
    }

    fn recomputes(&self) -> bool {
        true
    }

    fn resume(&mut self, filled: Position) {
        (self.read, self.written) = (filled, filled);
    }

    fn reusable(&self) -> Position {
        self.written.saturating_sub(self.shift)
    }

    fn memory(&self) -> Memory {
        Memory::OfState
    }
}
