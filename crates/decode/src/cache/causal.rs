//! The cache of causal models: the K/V of everything read so far; only new tokens are fed.

use demask_step::{MaskKind, Position, SequenceNeeds, StepPlan};

use super::{CacheKind, CachePolicy, CacheTraits, Memory};
use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    parameters,
    resolve::Setup,
};

parameters! {
    /// Everything that a causal model has read.
    pub struct Causal {}
}

impl CacheKind for Causal {
    const NAME: &'static str = "causal";
    const SUMMARY: &'static str = "exact cache of autoregressive models: every token is read once";
    const SOURCE: &'static str = "transformers generate; specification models 5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Causal];

    fn traits(&self) -> CacheTraits {
        CacheTraits { exact: true, memory: Memory::OfState, ..CacheTraits::default() }
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(CausalCache { read: 0, shift: 0 })
    }
}

/// Slots `[0, read)` hold the K/V of final tokens.
#[derive(Debug)]
struct CausalCache {
    read: Position,
    /// How far before a prediction its row is: that row may have to be read again.
    shift: Position,
}

impl CachePolicy for CausalCache {
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        // The prompt is read in one forward.
        SequenceNeeds { positions: layout.len(), rows: layout.response().max(1), ..SequenceNeeds::default() }
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let end = query.predict.last().unwrap_or(self.read);
        // A prediction that was refused is asked for again: its row must be live, so it is read again.
        let from = self.read.min(end.saturating_sub(view.shift));
        plan.mask = view.layout.attention();
        plan.live.set_range(from..end);
        plan.visible = end;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, _progress: &Progress) {
        (self.read, self.shift) = (plan.visible, view.shift);
    }

    /// The prompt but for its last token, whose row makes the first prediction.
    fn takes(&self, layout: &Layout) -> Position {
        (layout.response() as Position).saturating_sub(1)
    }

    fn resume(&mut self, filled: Position) {
        self.read = filled;
    }

    fn reusable(&self) -> Position {
        self.read.saturating_sub(self.shift)
    }

    fn memory(&self) -> Memory {
        Memory::OfState
    }
}
