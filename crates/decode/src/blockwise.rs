//! The loop that most decoders share: block after block, all that is open in the block predicted in each forward, a transfer
//! rule taking some of it (LLaDA, Dream, SDAR, Fast-dLLM; specs/caches.md#1 and specs/caches.md#3).

use demask_step::{HeadAsk, Position, SequenceLimits};

use crate::{
    constraint::LaneOf,
    event::{Commit, Replacement},
    layout::Layout,
    method::{DecoderLoop, Setup},
    policy::CachePolicy,
    schedule::{Around, Clock},
    step::{Answer, Decoder, Progress, Proposal, Query, StepContext, StepResult, View, take_musts},
    transfer::{Candidate, LaneView, Pass, Ranking, State, Transfer, fit},
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
    /// Records of each block whether it had masks at the start.
    masked: Vec<bool>,
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
            masked: Vec::with_capacity(setup.layout.blocks()),
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
        let written = if takes_back { others } else { taken }.iter();
        let written =
            written.filter(|candidate| !is_mask(candidate) && (takes_back || candidate.held != Some(candidate.token)));
        let change = |&Candidate { position, token, confidence, .. }: &Candidate| Replacement {
            position,
            token: (!takes_back).then_some(token),
            confidence,
        };
        progress.replaced.extend(written.map(change));
    }

    /// The blocks around the one being decoded, which has `masks` left.
    fn around(&self, view: &View<'_>, masks: usize) -> Around {
        let (before, after) = self.masked.split_at(self.block.min(self.masked.len()));
        let count = |blocks: &[bool]| blocks.iter().filter(|&&masked| masked).count();
        Around {
            blocks_before: count(before),
            blocks_after: count(after.get(1..).unwrap_or(&[])),
            masks_after: view.canvas.masks() - masks,
        }
    }
}

impl<T: Transfer> Decoder for Blockwise<T> {
    fn ask(&self, ask: &mut HeadAsk) {
        self.ranking.ask(ask);
        self.transfer.ask(ask);
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        needs.predictions = needs.predictions.max(layout.block_length());
        let mut ask = HeadAsk::default();
        self.transfer.ask(&mut ask);
        needs.top = needs.top.max(ask.wanted.top);
        needs.logits |= ask.wanted.logits;
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        if view.block >= view.layout.blocks() {
            return Proposal::Done;
        }
        view.canvas.open_positions(view.layout.block(view.block), &mut query.predict);
        if self.block != view.block {
            if self.masked.is_empty() {
                let masked = |block: usize| !view.canvas.is_complete(view.layout.block(block));
                self.masked.extend((0..view.layout.blocks()).map(masked));
            }
            (self.block, self.at_start) = (view.block, query.predict.len());
            (self.step, self.posts) = (0, 0);
        }
        self.confine(view, query);
        if self.transfer.takes_quota() && self.ranking.foresee(view, &query.predict, &mut self.candidates) {
            let masks = query.predict.len();
            let quota = self.clock.tick(self.step, self.at_start, masks, self.around(view, masks)).quota;
            query.foreseen.extend(self.candidates.iter().take(quota).map(|candidate| candidate.position));
        }
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let (&Answer { plan, predictions, .. }, progress) = (answer, &mut *context.progress);
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
        self.transfer.look(&lane, &self.candidates);
        let taken = self.transfer.choose(&state, &mut self.candidates).min(self.candidates.len());
        self.fault = self.transfer.fault();
        if self.fault.is_some() {
            return StepResult::Failed;
        }
        let mut taken = taken;
        if let Some(constraint) = answer.constraint {
            let (rule, lane) = ((&self.transfer, &state), (constraint, LaneOf { canvas, index: 0, filled: &[] }));
            let Progress { commits, fallbacks, .. } = &mut *progress;
            taken = fit(rule, lane, commits, &mut self.candidates, taken, fallbacks);
        }
        self.write(taken, progress);
        if answer.constraint.is_some() {
            progress.judge_commits();
        }
        let masks = masks.saturating_sub(progress.commits.len()) + progress.taken_back();
        let changed = !(progress.commits.is_empty() && progress.replaced.is_empty());
        progress.closes = self.transfer.closes(&Pass { masks, changed, posts: self.posts });
        self.step += 1;
        StepResult::Settled
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}
