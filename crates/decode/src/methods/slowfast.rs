//! SlowFast Sampling: a few forwards explore how far predictions are sure, then the region up to there is decoded fast
//! with the rest of the canvas left out (SlowFast, arXiv 2506.10848; specs/caches.md#5).
//!
//! As released for LLaDA, with one difference: where a block is complete before exploring ends, the released code runs
//! the rest of its forwards for nothing.
//!
//! Published with no cache and with dLLM-Cache. Every other one runs it by the same rule: a forward that leaves out the
//! end computes the rows that the cache would compute before it, and sees nothing after it. Where the cache has a
//! forward of its own that must take a token (Dream's first of a block), that forward belongs to neither phase.

use std::collections::VecDeque;

use demask_step::{HeadAsk, MaskKind, Position};

use super::threshold::Threshold;
use crate::{
    constraint::LaneOf,
    event::Commit,
    method::{Confidence, DecoderKind, DecoderLoop, DecoderTraits, Setup},
    parameters,
    policy::CachePolicy,
    schedule::Tick,
    spec::Kind,
    step::{Answer, Decoder, Progress, Proposal, Query, StepContext, StepResult, View, take_musts},
    transfer::{Candidate, LaneView, Ranking, State, Transfer, fit},
};

parameters! {
    /// Exploring how far predictions are sure, then decoding up to there.
    pub struct SlowFast {
        /// forwards that explore
        pub explore: usize = 6, Kind::count(1, usize::MAX);
        /// the farthest token of this confidence ends the region
        pub tau_min: f32 = 0.3, Kind::number(0.0, 1.0);
        /// tokens of this confidence are taken together; above 1: one token a forward
        pub tau: f32 = 0.9, Kind::number(0.0, f32::MAX);
        /// estimates of the region's end that must agree
        pub window: usize = 2, Kind::count(1, usize::MAX);
        /// they agree if their standard deviation stays below this
        pub sigma: f32 = 1.0, Kind::number(0.0, f32::MAX);
        /// confidences of the model's own distribution, or of the tempered and filtered one that tokens are drawn from (as
        /// released for Dream, SDAR, LLaDA2 and RND1), which calls nearly everything sure at low temperatures
        pub confidence: Confidence = Confidence::Clean;
    }
}

impl DecoderKind for SlowFast {
    const NAME: &'static str = "slowfast";
    const SUMMARY: &'static str =
        "explores how far predictions are sure, then decodes up to there without what lies behind";
    const SOURCE: &'static str = "SlowFast Sampling; specs/caches.md#5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> DecoderTraits {
        let confidence = Some(self.confidence.into());
        DecoderTraits { confidence, ignores_steps: true, ..DecoderTraits::default() }
    }
}

impl DecoderLoop for SlowFast {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Regions {
            parameters: *self,
            // More than one that passes, or else the best one: the same as all that pass, or else the best one.
            transfer: Threshold { tau: self.tau, ..Threshold::default() },
            ranking: setup.ranking.clone(),
            block: usize::MAX,
            region: 0..0,
            stage: Stage::Explore,
            forwards: 0,
            estimates: VecDeque::new(),
            candidates: Vec::with_capacity(setup.layout.block_length()),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The region's end is being estimated.
    Explore,
    /// Accepted; exploring goes on to its last forward.
    Determined,
    /// The region is decoded.
    Fast,
}

#[derive(Debug)]
struct Regions {
    parameters: SlowFast,
    transfer: Threshold,
    ranking: Ranking,
    block: usize,
    /// Counted from the block's start: everything before the region is decoded.
    region: std::ops::Range<usize>,
    stage: Stage,
    /// Forwards of the phase; exploring is one phase, determined or not.
    forwards: usize,
    /// The last estimates of the region's end.
    estimates: VecDeque<usize>,
    candidates: Vec<Candidate>,
}

impl Regions {
    /// Begins to explore what lies after the region.
    fn explore_from(&mut self, start: usize) {
        self.region = start..start;
        self.stage = Stage::Explore;
        self.forwards = 0;
        self.estimates.clear();
    }

    /// Ends exploring where it is over, and a region where it is complete.
    fn advance(&mut self, view: &View<'_>) {
        if self.stage != Stage::Fast && self.forwards == self.parameters.explore {
            if self.stage == Stage::Explore {
                let sum: usize = self.estimates.iter().sum();
                self.region.end = sum / self.estimates.len().max(1);
            }
            (self.stage, self.forwards) = (Stage::Fast, 0);
        }
        if self.stage == Stage::Fast {
            let start = view.layout.block(self.block).start;
            let region = start + self.region.start as Position..start + self.region.end as Position;
            if view.canvas.is_complete(region) {
                self.explore_from(self.region.end);
            }
        }
    }

    /// Learns from the ranked predictions of one exploring forward how far they are sure.
    fn estimate(&mut self, block: std::ops::Range<Position>) {
        let sure = self.candidates.iter().filter(|candidate| candidate.confidence >= self.parameters.tau_min);
        let farthest = sure.map(|candidate| (candidate.position - block.start) as usize + 1).max();
        if self.estimates.len() == self.parameters.window {
            self.estimates.pop_front();
        }
        self.estimates.push_back(farthest.unwrap_or(self.region.start + 1).min(block.len()));
        let deviation = deviation(&self.estimates);
        if let Some(&last) = self.estimates.back().filter(|_| self.estimates.len() == self.parameters.window)
            && deviation < f64::from(self.parameters.sigma)
        {
            self.region.end = last;
            self.stage = Stage::Determined;
        }
    }
}

/// Standard deviation of a population.
fn deviation(values: &VecDeque<usize>) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<usize>() as f64 / count;
    (values.iter().map(|&value| (value as f64 - mean).powi(2)).sum::<f64>() / count).sqrt()
}

impl Decoder for Regions {
    fn ask(&self, ask: &mut HeadAsk) {
        self.ranking.ask(ask);
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        if view.block >= view.layout.blocks() {
            return Proposal::Done;
        }
        if self.block != view.block {
            self.block = view.block;
            self.explore_from(0);
        }
        self.advance(view);
        let mut wanted = view.layout.block(view.block);
        if self.stage == Stage::Fast {
            wanted.end = wanted.start + self.region.end as Position;
            // The first fast forward is a whole one.
            query.end = (self.forwards > 0).then_some(wanted.end);
        }
        view.canvas.open_positions(wanted, &mut query.predict);
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let (&Answer { plan, predictions, .. }, progress) = (answer, &mut *context.progress);
        take_musts(view, plan, predictions, progress);
        if plan.predict.is_empty() {
            return StepResult::Settled;
        }
        let (canvas, layout) = (view.canvas, view.layout);
        let lane = LaneView { predictions, lane: 0, among: &plan.predict, canvas, writes: canvas.writes(), layout };
        self.ranking.rank(&lane, &mut self.candidates);
        if self.stage == Stage::Explore {
            self.estimate(layout.block(self.block));
        }
        // By the schedule alone: in an order by position, too, all that pass are taken.
        let state = State::from(Tick { quota: 1, rate: 0.0 });
        let mut taken = self.transfer.choose(&state, &mut self.candidates);
        if let Some(constraint) = answer.constraint {
            let (rule, lane) = ((&self.transfer, &state), (constraint, LaneOf { canvas, index: 0, filled: &[] }));
            let Progress { commits, fallbacks, .. } = &mut *progress;
            taken = fit(rule, lane, commits, &mut self.candidates, taken, fallbacks);
        }
        progress.commits.extend(self.candidates[..taken].iter().map(|&candidate| Commit::from(candidate)));
        if answer.constraint.is_some() {
            progress.judge_commits();
        }
        self.forwards += 1;
        StepResult::Settled
    }
}
