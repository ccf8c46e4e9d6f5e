//! A cache policy: each forward computes a few rows around the predicted positions, and the first one of a block
//! computes everything.

use demask::methods::{
    Memory, Progress, Query, Setup, View,
    caches::{CacheKind, CacheMethod, CachePolicy},
    parameters,
    step::{MaskKind, Position, StepPlan},
};

parameters! {
    /// Rows around the predicted positions.
    pub struct Near {
        /// rows computed on either side of the predicted positions
        pub rows: usize = 4;
    }
}

/// The entry of the registry.
pub static NEAR: CacheMethod = CacheMethod::of::<Near>();

impl CacheKind for Near {
    const NAME: &'static str = "near";
    const SUMMARY: &'static str = "everything in a block's first forward, then rows around what is decoded";
    const SOURCE: &'static str = "this example";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(Window { rows: Position::try_from(self.rows).unwrap_or(Position::MAX), block: None })
    }
}

#[derive(Debug)]
struct Window {
    rows: Position,
    /// Block whose first forward is over.
    block: Option<usize>,
}

impl CachePolicy for Window {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        // A decoder may leave the end of the canvas out.
        let end = query.end(view.canvas);
        plan.kv_len = end;
        plan.predict.clone_from(&query.predict);
        let window = query.predict.first().zip(query.predict.last()).filter(|_| self.block == Some(view.block));
        plan.query.set_range(window.map_or(0..end, |(first, last)| {
            // The row that predicts a position may stand before it, and must be live.
            let start = first.saturating_sub(view.shift).saturating_sub(self.rows);
            start..last.saturating_add(1).saturating_add(self.rows).min(end)
        }));
    }

    fn observe(&mut self, view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {
        self.block = Some(view.block);
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }
}
