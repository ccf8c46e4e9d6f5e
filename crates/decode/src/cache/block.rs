//! The exact cache of block-causal models: the K/V of finished blocks, stored from their clean tokens (SDAR
//! `block_diffusion_generate`; specification models, section 4.5, caches, section 6, and freedave, section 1.8).

use demask_step::{Keep, Lanes, MaskKind, Position, SequenceNeeds, StepPlan};

use super::{CacheKind, CachePolicy, CacheTraits, Extent, Memory};
use crate::{
    decoder::{Accepted, Progress, Query, View},
    event::Commit,
    layout::Layout,
    parameters,
    resolve::Setup,
};

parameters! {
    /// Finished blocks of a block-diffusion model, stored from their clean tokens.
    pub struct Block {}
}

impl CacheKind for Block {
    const NAME: &'static str = "block";
    const SUMMARY: &'static str =
        "exact cache of block-diffusion models: finished blocks are stored by one clean forward each";
    const SOURCE: &'static str = "SDAR block_diffusion_generate; specification caches 6, freedave 1.8";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::BlockCausal];

    fn traits(&self) -> CacheTraits {
        CacheTraits { exact: true, memory: Memory::OfState, spans_blocks: true, ..CacheTraits::default() }
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(BlockCache { stored: 0, written: 0, fused: false, keep: None })
    }
}

/// Slots `[0, stored)` hold the K/V of final tokens, or will with the next forward; `stored` is where a block starts.
#[derive(Debug)]
struct BlockCache {
    stored: Position,
    /// Slots `[0, written)` hold them already.
    written: Position,
    /// Finished blocks and the prompt are stored by the forwards that predict (specification freedave, section 8.1).
    fused: bool,
    /// What the next forward has to keep of the last one's drafts.
    keep: Option<Keep>,
}

impl BlockCache {
    /// Live rows from what is stored up to `end`.
    fn fill(&self, view: &View<'_>, end: Position, plan: &mut StepPlan) {
        plan.mask = view.layout.attention();
        plan.live.set_range(self.stored..end);
        plan.visible = end;
    }

    /// Where the blocks end, from what is stored on, that a forward computed without a mask; `filled` says what else
    /// than the canvas's own tokens it saw.
    fn clean(&self, view: &View<'_>, visible: Position, filled: &[Commit]) -> Position {
        let holds = |position: Position| !view.canvas.is_masked_after(position, filled);
        let start = view.layout.start() as Position;
        let mut end = if visible < start { self.stored } else { self.stored.max(start) };
        loop {
            let mut block = view.layout.block(view.layout.block_of(end));
            if block.is_empty() || block.end > visible || !block.all(holds) {
                return end;
            }
            end = view.layout.block(view.layout.block_of(end)).end;
        }
    }
}

impl CachePolicy for BlockCache {
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        let rows = layout.start().max(layout.block_length());
        SequenceNeeds { positions: layout.len(), rows, ..SequenceNeeds::default() }
    }

    fn upkeep(&mut self, view: &View<'_>, plan: &mut StepPlan) -> bool {
        if self.fused {
            return false;
        }
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
        plan.keep = self.keep.take();
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        // The plan kept what its last one's drafts had of it.
        self.written = self.stored;
        match (plan.lanes, progress.draft) {
            // What was run without a mask in it is final.
            (Lanes::Canvas, _) => {
                self.stored = self.clean(view, plan.visible, &[]);
                self.written = self.stored;
            }
            (Lanes::Drafts(_), Some(Accepted { lane, .. })) if self.fused => {
                let end = self.clean(view, plan.visible, progress.held());
                if end > self.stored {
                    self.keep = Some(Keep { lane, positions: (self.stored..end).into() });
                    self.stored = end;
                }
            }
            // Without fusing, drafts leave nothing behind: their blocks are stored by a forward of their own.
            (Lanes::Drafts(_), _) => {}
        }
    }

    fn extent(&self, _view: &View<'_>, end: Position) -> Extent {
        Extent { rows: end.saturating_sub(self.stored) as usize, keys: end as usize }
    }

    fn memory(&self) -> Memory {
        Memory::OfState
    }

    fn draft_span(&self, layout: &Layout, blocks: usize) -> usize {
        // One finished block may still wait to be stored.
        ((blocks + 1) * layout.block_length()).min(layout.len())
    }

    /// Whole blocks of the prompt.
    fn takes(&self, layout: &Layout) -> Position {
        layout.start() as Position
    }

    fn resume(&mut self, filled: Position) {
        (self.stored, self.written) = (filled, filled);
    }

    fn reusable(&self) -> Position {
        self.written
    }

    fn fuse(&mut self) {
        self.fused = true;
    }
}
