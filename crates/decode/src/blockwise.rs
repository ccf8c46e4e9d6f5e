//! The loop that most decoders share: block after block, all that is open in the block predicted in each forward, a transfer
//! rule taking some of it (LLaDA, Dream, SDAR, Fast-dLLM; specs/caches.md#1 and specs/caches.md#3).

use demask_step::{HeadAsk, Position};

use crate::{
    event::{Commit, Replacement},
    method::{DecoderLoop, Setup},
    policy::CachePolicy,
    schedule::{Around, Clock},
    transfer::{Candidate, LaneView, Pass, Ranking, State, Transfer},
    turn::{Answer, Decoder, Intent, Progress, Query, Turn, Turned, View, take_musts},
};

/// The loop of a method whose parameters are a rule.
impl<T: Transfer + Copy + 'static> DecoderLoop for T {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Blockwise::new(*self, setup))
    }
}

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
    /// Passes over the block that began without a mask, of a rule that revises.
    posts: usize,
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
        let part = transfer.part().unwrap_or(0);
        Self {
            transfer,
            ranking: setup.ranking.clone(),
            clock: setup.clock.clone(),
            block: usize::MAX,
            at_start: 0,
            step: 0,
            posts: 0,
            blocks: 0,
            begun: 0,
            part,
            candidates: Vec::with_capacity(setup.layout.block_length()),
            fault: None,
        }
    }

    /// Confines a query to the first part of its block that has masks.
    fn confine(&self, view: &View<'_>, query: &mut Query) {
        let (block, part) = (view.layout.block(view.block), self.part as Position);
        let Some(first) = query.predict.first().filter(|_| part > 0) else { return };
        let start = block.start + (first - block.start) / part * part;
        let within = start..block.end.min(start.saturating_add(part));
        view.canvas.open_positions(within.clone(), &mut query.predict);
        query.within = Some(within);
    }

    /// Writes what becomes of the candidates, of which so many of the first are taken.
    fn write(&self, taken: usize, progress: &mut Progress) {
        let (taken, others) = self.candidates.split_at(taken);
        let is_mask = |candidate: &&Candidate| candidate.held.is_none();
        progress.commits.extend(taken.iter().filter(is_mask).map(|&candidate| Commit::from(candidate)));
        let takes_back = self.transfer.takes_back();
        let written = if takes_back { others } else { taken }.iter().filter(|candidate| !is_mask(candidate));
        let change = |&Candidate { position, token, confidence, .. }: &Candidate| Replacement {
            position,
            token: (!takes_back).then_some(token),
            confidence,
        };
        progress.replaced.extend(written.map(change));
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
        view.canvas.open_positions(view.layout.block(view.block), &mut query.predict);
        if self.block != view.block {
            if self.begun == 0 {
                let masked = |&block: &usize| !view.canvas.is_complete(view.layout.block(block));
                self.blocks = (0..view.layout.blocks()).filter(masked).count();
            }
            self.begun += 1;
            (self.block, self.at_start) = (view.block, query.predict.len());
            (self.step, self.posts) = (0, 0);
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
        self.posts += usize::from(masks == 0);
        take_musts(view, plan, predictions, progress);
        let (among, layout) = (&plan.predict, view.layout);
        let lane = LaneView { predictions, lane: 0, among, canvas, writes: canvas.writes(), layout };
        self.ranking.rank(&lane, &mut self.candidates);
        let mut tick = self.clock.tick(self.step, self.at_start, masks, self.around(view, masks));
        if self.transfer.carries() {
            tick.quota = self.clock.carried(self.step, self.at_start, masks).unwrap_or(tick.quota);
        }
        let left = (1.0 - (self.step + 1) as f64 / self.clock.steps as f64).max(0.0);
        let state = State { tick, left, posts: self.posts, remasking: self.ranking.remasking };
        let taken = self.transfer.choose(&state, &mut self.candidates).min(self.candidates.len());
        self.fault = self.transfer.fault();
        if self.fault.is_some() {
            return Turned::Failed;
        }
        self.write(taken, progress);
        let masks = masks.saturating_sub(progress.commits.len()) + progress.taken_back();
        let changed = !(progress.commits.is_empty() && progress.replaced.is_empty());
        progress.closes = self.transfer.closes(&Pass { masks, changed, posts: self.posts });
        self.step += 1;
        Turned::Settled
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}
