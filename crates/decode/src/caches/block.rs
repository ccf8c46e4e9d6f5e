//! The exact cache of block-causal models: the K/V of finished blocks, stored from their clean tokens (SDAR
//! `block_diffusion_generate`; specs/models.md#4.5, specs/caches.md#6 and specs/freedave.md#1.8).

use std::ops::Range;

use demask_step::{Lanes, Mask, MaskKind, Position, SequenceLimits, StepPlan, Stores};

use crate::{
    choices,
    error::{self, OptionsError},
    layout::Layout,
    method::{CacheKind, CacheTraits, Setup, Store},
    parameters,
    policy::{CachePolicy, Maintenance, Memory},
    spec::Field,
    step::{Progress, Query, View},
};

choices! {
    /// Rows that run of a block that is decoded in parts.
    pub enum Live {
        /// All rows of the block: exact.
        Whole = "whole",
        /// Rows of the part alone, over K/V that the block's last whole pass left (Fast-dLLM v2 `use_block_cache`).
        Dual = "dual",
    }
}

choices! {
    /// First canvas of a block, for models whose stored blocks predict the token after them.
    pub enum BlockCanvas {
        /// Predicted token, followed by masks.
        Seeded = "seeded",
        /// Masks alone.
        Masks = "masks",
    }
}

parameters! {
    /// Finished blocks of a block-diffusion model, stored from their clean tokens.
    pub struct Block {
        /// rows that run where a block is decoded in parts: all, or the part's over the K/V of the last whole pass
        pub live: Live = Live::Whole;
        /// blocks of models with attention by pass start with the token that the stored block predicts, or with masks alone
        /// (ports of Nemotron-Labs-Diffusion differ)
        pub canvas: BlockCanvas = BlockCanvas::Seeded;
        /// forward that stores the prompt and a finished block: the next one that predicts, or one of its own as released;
        /// fitted: as the decoder asks, else the next one, unless the stored rows predict the next block's first token
        pub store: Option<Store> = None;
    }
}

impl CacheKind for Block {
    const NAME: &'static str = "block";
    const SUMMARY: &'static str =
        "exact cache of block-diffusion models: finished blocks are stored clean, by the next forward that predicts";
    const SOURCE: &'static str = "SDAR block_diffusion_generate; specs/caches.md#6 and specs/freedave.md#1.8";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::BlockCausal, MaskKind::Context];

    fn traits(&self) -> CacheTraits {
        let exact = self.live == Live::Whole && self.canvas == BlockCanvas::Seeded;
        let memory = if self.live == Live::Whole { Memory::OfState } else { Memory::OfHistory };
        let whole = self.live == Live::Whole;
        CacheTraits { exact, memory, spans_blocks: whole, revisable: whole, ..CacheTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let context = setup.layout.attention().kind() == MaskKind::Context;
        if self.canvas == BlockCanvas::Masks && !context {
            let attention = setup.layout.attention().kind();
            let text = format!(
                "cache block with canvas=masks is for models with attention by pass, found {attention}: omit \
                 canvas"
            );
            return Err(error::value("cache", text));
        }
        let seeds = setup.options.facts.blocks.seeds;
        if self.store == Some(Store::Fused) && (context || seeds) {
            return Err(error::seeds("store=fused", "omit store"));
        }
        match (self.store, setup.options.traits().stores) {
            (Some(store), Some(expected)) if store != expected => {
                let (decoder, cache, expected) = (&setup.options.decoder, &setup.options.cache, expected.value());
                let text = format!(
                    "decoder {decoder} stores blocks with store={expected}, and cache {cache} says otherwise: omit \
                     store"
                );
                Err(error::value("cache", text))
            }
            _ => Ok(()),
        }
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        let rules = setup.options.facts.blocks;
        Box::new(BlockCache {
            stored: 0,
            written: 0,
            // A context is read by another rule than the block that follows it.
            fused: self.store.or(setup.options.traits().stores) != Some(Store::Alone)
                && setup.layout.attention().kind() == MaskKind::BlockCausal,
            keep: None,
            stores_last: rules.stores != Stores::IfRead,
            seeds: rules.seeds && self.canvas == BlockCanvas::Seeded,
            dual: self.live == Live::Dual,
            ran: None,
        })
    }
}

/// Slots `[0, stored)` hold the K/V of final tokens, or will with the next forward; `stored` is where a block starts.
#[derive(Debug)]
struct BlockCache {
    stored: Position,
    /// Slots `[0, written)` hold them already.
    written: Position,
    /// Finished blocks and the prompt are stored by the forwards that predict (specs/freedave.md#8.1).
    fused: bool,
    /// Rows of the last forward's accepted draft that the next one has to keep.
    keep: Option<Range<Position>>,
    /// Records whether the last block is stored, which nobody reads.
    stores_last: bool,
    /// Records whether the stored rows also predict the token after them.
    seeds: bool,
    /// Records whether only the rows of a part run once those of its block have.
    dual: bool,
    /// Start of the block whose rows have all run as it is decoded, if `dual` asks for it.
    ran: Option<Position>,
}

impl BlockCache {
    /// Makes the rows after the stored ones live, up to `end`. A context is read causally, and a block over it sees
    /// itself.
    fn fill(&self, view: &View<'_>, end: Position, predicts: bool, plan: &mut StepPlan) {
        plan.mask = match view.layout.attention() {
            Mask::Context { .. } if predicts => Mask::Full,
            mask => mask.stored(),
        };
        plan.query.set_range(self.stored..end);
        plan.kv_len = end;
    }

    /// Confines the rows of a block to those of its part, if all of them have run and the part's first is no mask.
    fn confine(&mut self, view: &View<'_>, within: &Range<Position>, plan: &mut StepPlan) {
        if !self.dual {
            return;
        }
        let start = view.layout.block(view.block).start;
        if self.ran.replace(start) == Some(start) && !view.canvas.is_masked(within.start) {
            plan.query.set_range(within.clone());
        }
    }

    /// Returns the end of the rows to store next: all whole prompt blocks, then each finished block. None if nothing is
    /// due.
    fn due(&self, view: &View<'_>) -> Option<Position> {
        let start = view.layout.start() as Position;
        if self.stored < start {
            return Some(start);
        }
        let block = view.layout.block(view.layout.block_of(self.stored));
        let unread = !self.stores_last && block.end as usize >= view.canvas.len();
        let due = !block.is_empty() && !unread && view.canvas.is_complete(block.clone());
        due.then_some(block.end)
    }

    /// Returns the end of the stored blocks whose final tokens a forward computed. The progress lists the tokens that
    /// the forward held besides the canvas's own, or says that the forward ran the final tokens of the block that it
    /// closes.
    fn clean(&self, view: &View<'_>, visible: Position, progress: &Progress) -> Position {
        let (held, confirms) = (progress.held(), progress.confirms());
        let holds = |position: Position| {
            !view.canvas.is_open_after(position, held) || confirms && !view.canvas.is_masked(position)
        };
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
    fn needs(&self, layout: &Layout) -> SequenceLimits {
        let (start, block) = (layout.start(), layout.block_length());
        // With a store, a forward has the rows of the block that it predicts as well.
        let rows = if self.fused { (start.max(block) + block).min(layout.len()) } else { start.max(block) };
        SequenceLimits { positions: layout.len(), rows, ..SequenceLimits::default() }
    }

    fn maintenance(&mut self, view: &View<'_>, plan: &mut StepPlan) -> Maintenance {
        let Some(end) = self.due(view) else { return Maintenance::None };
        let predicts = self.seeds && view.canvas.is_masked(end);
        if self.fused && !predicts {
            return Maintenance::Rides;
        }
        self.fill(view, end, false, plan);
        if predicts {
            plan.shift = Some(1);
            plan.must.push(end);
        }
        Maintenance::Alone
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let last = query.predict.last().unwrap_or(self.stored);
        self.fill(view, view.layout.block(view.layout.block_of(last)).end, true, plan);
        if let Some(within) = &query.within {
            self.confine(view, within, plan);
        }
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        // The plan kept what its last one's drafts had of it.
        self.written = self.stored;
        match (plan.lanes, progress.draft) {
            // What was run with nothing open in it is final, and what came to rest by it.
            (Lanes::Canvas, _) => {
                self.stored = self.clean(view, plan.kv_len, progress);
                self.written = self.stored;
            }
            (Lanes::Drafts(_), Some(_)) if self.fused => {
                let end = self.clean(view, plan.kv_len, progress);
                if end > self.stored {
                    self.keep = Some(self.stored..end);
                    self.stored = end;
                }
            }
            // Without fusing, drafts leave nothing behind: their blocks are stored by a forward of their own.
            (Lanes::Drafts(_), _) => {}
        }
    }

    fn retains(&mut self) -> Option<Range<Position>> {
        self.keep.take()
    }

    fn memory(&self) -> Memory {
        if self.dual { Memory::OfHistory } else { Memory::OfState }
    }

    fn draft_span(&self, layout: &Layout, blocks: usize) -> usize {
        // One finished block may still wait to be stored.
        ((blocks + 1) * layout.block_length()).min(layout.len())
    }

    fn draft_rows(&self, layout: &Layout, blocks: usize) -> usize {
        (blocks * layout.block_length()).min(layout.len())
    }

    /// Whole blocks of the prompt, but for the row that predicts the token after them.
    fn reusable_on_open(&self, layout: &Layout) -> Position {
        (layout.start() as Position).saturating_sub(Position::from(self.seeds))
    }

    fn recomputes(&self) -> bool {
        !self.dual
    }

    fn resume(&mut self, filled: Position) {
        (self.stored, self.written) = (filled, filled);
    }

    fn reusable(&self) -> Position {
        self.written
    }
}
