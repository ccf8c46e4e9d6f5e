//! The exact cache of block-causal models: the K/V of finished blocks, stored from their clean tokens (SDAR
//! `block_diffusion_generate`; specification models, section 4.5, caches, section 6, and freedave, section 1.8).

use demask_step::{Position, SequenceNeeds, StepPlan};

use super::{CacheMethod, CachePolicy, CacheSpec, Memory};
use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    legality::Attention,
    spec::About,
};

pub(super) const METHOD: CacheMethod = CacheMethod {
    about: About {
        name: "block",
        summary: "exact cache of block-diffusion models: finished blocks are stored by one clean forward each",
        source: "SDAR block_diffusion_generate; specification caches 6, freedave 1.8",
        parameters: &[],
    },
    attention: &[Attention::BlockCausal],
    exact: true,
    memory: Memory::OfState,
    build,
};

fn build(_spec: &CacheSpec, _layout: &Layout) -> Box<dyn CachePolicy> {
    Box::new(BlockCache { stored: 0 })
}

/// Slots `[0, stored)` hold the K/V of final tokens; `stored` is where a block starts.
#[derive(Debug)]
struct BlockCache {
    stored: Position,
}

impl BlockCache {
    /// Live rows from what is stored up to `end`.
    fn fill(&self, view: &View<'_>, end: Position, plan: &mut StepPlan) {
        plan.mask = view.layout.attention();
        plan.live.set_range(self.stored..end);
        plan.visible = end;
    }
}

impl CachePolicy for BlockCache {
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        let rows = layout.start().max(layout.block_length());
        SequenceNeeds { positions: layout.len(), rows, ..SequenceNeeds::default() }
    }

    fn upkeep(&mut self, view: &View<'_>, plan: &mut StepPlan) -> bool {
        let start = view.layout.start() as Position;
        let end = if self.stored < start {
            // All whole prompt blocks in one forward.
            start
        } else {
            let block = view.layout.block(view.layout.block_of(self.stored));
            if block.is_empty() || !view.canvas.is_complete(block.clone()) {
                return false;
            }
            block.end
        };
        self.fill(view, end, plan);
        true
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let last = query.predict.last().unwrap_or(self.stored);
        self.fill(view, view.layout.block(view.layout.block_of(last)).end, plan);
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, _progress: &Progress) {
        // What was run without a mask in it is final.
        if view.canvas.first_mask() >= plan.visible as usize {
            self.stored = plan.visible;
        }
    }

    fn memory(&self) -> Memory {
        METHOD.memory
    }
}
