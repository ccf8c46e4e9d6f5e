//! The loop that most decoders share: block after block, all masks of the block predicted in each forward, a transfer
//! rule taking some of them (LLaDA, Dream, SDAR, Fast-dLLM; specs/caches.md#1 and specs/caches.md#3).

use demask_step::{HeadAsk, Position};

use super::{Answer, Decoder, Intent, Query, Turn, Turned, View, take_musts};
use crate::{
    resolve::Setup,
    schedule::{Around, Clock},
    transfer::{Candidate, LaneView, Ranking, State, Transfer},
};

/// Decodes the blocks from left to right by a transfer rule.
#[derive(Debug)]
pub struct Blockwise<T> {
    transfer: T,
    ranking: Ranking,
    clock: Clock,
    /// The block being decoded, the masks it started with, and its next step.
    block: usize,
    at_start: usize,
    step: usize,
    /// Blocks that started with masks, all of them and those that were begun.
    blocks: usize,
    begun: usize,
    /// Positions of the parts that a block is decoded in; 0: the whole block.
    part: usize,
    candidates: Vec<Candidate>,
    /// Reason why its rule could not choose.
    fault: Option<String>,
}

impl<T: Transfer> Blockwise<T> {
    /// A loop around `transfer`.
    pub fn new(transfer: T, setup: &Setup<'_>) -> Self {
        Self {
            transfer,
            ranking: setup.ranking.clone(),
            clock: setup.clock.clone(),
            block: usize::MAX,
            at_start: 0,
            step: 0,
            blocks: 0,
            begun: 0,
            part: 0,
            candidates: Vec::with_capacity(setup.layout.block_length()),
            fault: None,
        }
    }

    /// Decodes each block in parts of so many positions, from left to right.
    #[must_use]
    pub fn in_parts(self, positions: Option<usize>) -> Self {
        Self { part: positions.unwrap_or(0), ..self }
    }

    /// Confines a query to the first part of its block that has masks.
    fn confine(&self, view: &View<'_>, query: &mut Query) {
        let (block, part) = (view.layout.block(view.block), self.part as Position);
        let Some(first) = query.predict.first().filter(|_| part > 0) else { return };
        let start = block.start + (first - block.start) / part * part;
        let within = start..block.end.min(start.saturating_add(part));
        view.canvas.masked_positions(within.clone(), &mut query.predict);
        query.within = Some(within);
    }

    /// The blocks around the one being decoded, which has `masks` left.
    fn around(&self, view: &View<'_>, masks: usize) -> Around {
        Around {
            blocks_before: self.begun.saturating_sub(1),
            blocks_after: self.blocks.saturating_sub(self.begun),
            masks_after: view.canvas.masks() - masks,
        }
    }
}

impl<T: Transfer> Decoder for Blockwise<T> {
    fn ask(&self, ask: &mut HeadAsk) {
        self.ranking.ask(ask);
        self.transfer.ask(ask);
    }

    fn intend(&mut self, view: &View<'_>, query: &mut Query) -> Intent {
        if view.block >= view.layout.blocks() {
            return Intent::Done;
        }
        view.canvas.masked_positions(view.layout.block(view.block), &mut query.predict);
        if self.block != view.block {
            if self.begun == 0 {
                let masked = |&block: &usize| !view.canvas.is_complete(view.layout.block(block));
                self.blocks = (0..view.layout.blocks()).filter(masked).count();
            }
            self.begun += 1;
            (self.block, self.at_start, self.step) = (view.block, query.predict.len(), 0);
        }
        self.confine(view, query);
        if self.transfer.takes_quota() && self.ranking.foresee(view, &query.predict, &mut self.candidates) {
            let masks = query.predict.len();
            let quota = self.clock.tick(self.step, self.at_start, masks, self.around(view, masks)).quota;
            query.foreseen.extend(self.candidates.iter().take(quota).map(|candidate| candidate.position));
        }
        Intent::Predict
    }

    fn absorb(&mut self, view: &View<'_>, answer: &Answer<'_>, turn: &mut Turn<'_>) -> Turned {
        let (&Answer { plan, predictions, .. }, progress) = (answer, &mut *turn.progress);
        let canvas = view.canvas;
        let masks = canvas.masks_in(view.layout.block(self.block));
        take_musts(view, plan, predictions, progress);
        let (among, layout) = (&plan.predict, view.layout);
        let lane = LaneView { predictions, lane: 0, among, canvas, unmasked: canvas.unmasked(), layout };
        self.ranking.rank(&lane, &mut self.candidates);
        let mut tick = self.clock.tick(self.step, self.at_start, masks, self.around(view, masks));
        if self.transfer.carries() {
            tick.quota = self.clock.carried(self.step, self.at_start, masks).unwrap_or(tick.quota);
        }
        let state = State { tick };
        let taken = self.transfer.choose(&state, &mut self.candidates).min(self.candidates.len());
        self.fault = self.transfer.fault();
        if self.fault.is_some() {
            return Turned::Failed;
        }
        progress.commits.extend(self.candidates[..taken].iter().map(|&candidate| crate::Commit::from(candidate)));
        self.step += 1;
        Turned::Settled
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}
