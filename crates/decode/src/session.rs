//! The decoding of one canvas as a state machine without I/O.

mod request;

use std::{slice, vec};

use demask_step::{Blend, BlendWith, Keep, Lanes, Position, Predictions, SequenceNeeds, TokenId};

use crate::{
    cache::{CachePolicy, Memory},
    canvas::Canvas,
    decoder::{Accepted, Decoder, Intent, Progress, Query, Setup, View},
    error::OptionsError,
    event::{Commit, Counts, Event, Finish, Output},
    layout::Layout,
    legality::{self, Exactness},
    options::{SessionOptions, StopRule},
    receipt::Receipt,
    resolve::{Resolved, resolve},
    transfer::Ranking,
};

pub use request::Request;
use request::{Kept, guide_request, requests};

/// Index of the conditional sequence, the canvas itself, in [`Session::needs`].
const CANVAS: usize = 0;
/// Index of the unconditional sequence of classifier-free guidance.
const UNCONDITIONAL: usize = 1;

/// What a session wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// One forward of the diffusion model that runs all [`requests`](Session::requests), then
    /// [`feed`](Session::feed).
    Step,
    /// The same of the guide.
    Guide,
    /// Nothing any more.
    Done,
}

/// What the pending forward is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Prefill or store: predicts nothing.
    Upkeep,
    /// Answers the decoder's query.
    Predict,
    /// The guide judges what was predicted.
    Guide,
    /// Nothing is pending.
    Over,
}

/// One canvas being decoded.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    layout: Layout,
    canvas: Canvas,
    steps: usize,
    most_forwards: usize,
    decoder: Box<dyn Decoder>,
    cache: Box<dyn CachePolicy>,
    needs: Vec<SequenceNeeds>,
    requests: Vec<Request>,
    /// How many of the requests the pending forward runs.
    running: usize,
    /// By sequence.
    kept: Vec<Kept>,
    guide_needs: Option<SequenceNeeds>,
    guide_request: Request,
    query: Query,
    progress: Progress,
    phase: Phase,
    /// The diffusion model's last forward: its index, its rows and its drafts.
    ran: (usize, usize, usize),
    /// The first block with a mask, and the first block that the stop rule has not looked at.
    block: usize,
    unchecked: usize,
    /// Response tokens looked at for end ids, and the length up to and including the first one.
    scanned: usize,
    ended: Option<usize>,
    /// Where a stop text ends the response.
    stopped: Option<usize>,
    counts: Counts,
    /// Forwards with drafts by the number of draft tokens accepted.
    acceptance: Vec<usize>,
    events: Vec<Event>,
}

impl Session {
    /// Checks the options, chooses what was not given, and prepares the first step.
    pub fn new(options: SessionOptions) -> Result<Self, OptionsError> {
        let Resolved { layout, clock, mut canvas, steps, most_forwards } = resolve(&options)?;
        let SessionOptions { remasking, alg_temp, seed, .. } = options;
        let ranking = Ranking { remasking, alg_temp, seed, order: options.order.clone() };
        let mut cache = (options.cache.method().build)(&options.cache, &layout);
        legality::check_drafts(&options.decoder, &options.cache, &*cache)?;
        let setup = Setup { layout: &layout, clock: &clock, ranking: &ranking, cache: &*cache, options: &options };
        let decoder = (options.decoder.method().build)(&options.decoder, &setup);
        if decoder.fuses() {
            cache.fuse();
        }
        let mut needs = vec![cache.needs(&layout)];
        decoder.reserve(&layout, &mut needs[CANVAS]);
        if options.cfg_scale > 0.0 {
            canvas = canvas.with_unconditional();
            needs.push(SequenceNeeds { predictions: 0, residual: false, ..needs[CANVAS].clone() });
        } else {
            needs[CANVAS].residual = false;
        }
        let requests = requests(&options, &*decoder, &needs);
        let drafted = if needs[CANVAS].drafts > 0 { layout.len() + 1 } else { 0 };
        // Commits of one forward: the draft that has most of them.
        let commits = needs[CANVAS].predictions / needs[CANVAS].drafts.max(1);
        let progress = Progress { commits: Vec::with_capacity(commits), ..Progress::default() };
        let mut query = Query::default();
        query.predict.reserve(layout.len());
        query.foreseen.reserve(layout.len());
        query.branches.reserve(drafted, needs[CANVAS].drafts);
        let kept = requests.iter().map(|_| Kept::with_capacity(drafted)).collect();
        let guide_needs = decoder.guide_needs();
        let guide_request = guide_request(&options, guide_needs.as_ref());
        let mut session = Self {
            options,
            layout,
            canvas,
            steps,
            most_forwards,
            decoder,
            cache,
            needs,
            kept,
            requests,
            running: 0,
            guide_needs,
            guide_request,
            query,
            progress,
            phase: Phase::Over,
            ran: (0, 0, 0),
            block: 0,
            unchecked: 0,
            scanned: 0,
            ended: None,
            stopped: None,
            counts: Counts::default(),
            acceptance: Vec::with_capacity(drafted),
            events: Vec::with_capacity(commits + 1),
        };
        session.look_back();
        session.advance();
        Ok(session)
    }

    /// What each sequence needs: the canvas, and with guidance the unconditional one behind it.
    pub fn needs(&self) -> &[SequenceNeeds] {
        &self.needs
    }

    /// What the guide's sequence needs; empty if there is no guide.
    pub fn guide_needs(&self) -> &[SequenceNeeds] {
        self.guide_needs.as_slice()
    }

    /// Whether a forward is wanted, and of which network; the same answer until [`feed`](Self::feed).
    pub fn next(&self) -> Next {
        match self.phase {
            Phase::Upkeep | Phase::Predict => Next::Step,
            Phase::Guide => Next::Guide,
            Phase::Over => Next::Done,
        }
    }

    /// The requests of the pending forward, one for each sequence that runs in it (the canvas always does, the
    /// unconditional sequence if a pass is due); none if nothing is pending.
    pub fn requests(&self) -> &[Request] {
        match self.phase {
            Phase::Upkeep | Phase::Predict => &self.requests[..self.running],
            Phase::Guide => slice::from_ref(&self.guide_request),
            Phase::Over => &[],
        }
    }

    /// Takes the answers, one for each request, commits, and prepares the next forward. While a guide judges, nothing is
    /// committed.
    pub fn feed(&mut self, predictions: &[Predictions]) {
        match self.phase {
            Phase::Over => return,
            Phase::Guide => self.heed(predictions),
            Phase::Upkeep | Phase::Predict => self.absorb(predictions),
        }
        let consults = self.phase == Phase::Guide || (self.phase == Phase::Predict && !predictions.is_empty());
        if consults && self.decoder.consult(&mut self.guide_request, &mut self.progress) {
            self.phase = Phase::Guide;
            return;
        }
        self.conclude();
    }

    /// Takes the diffusion model's answers.
    fn absorb(&mut self, predictions: &[Predictions]) {
        self.ran = self.count(predictions);
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.progress.clear();
        if let (Phase::Predict, Some(answer)) = (self.phase, predictions.first()) {
            self.decoder.absorb(&view, &self.requests[CANVAS].plan, answer, &mut self.progress);
        }
    }

    /// Takes the guide's answer.
    fn heed(&mut self, predictions: &[Predictions]) {
        let counts = &mut self.counts.guide;
        counts.nfe += 1;
        counts.rows += self.guide_request.tokens.len();
        for prediction in predictions {
            counts.cost += prediction.cost;
        }
        match predictions.first() {
            Some(answer) => self.decoder.heed(&self.guide_request, answer),
            None => self.decoder.heed(&self.guide_request, &Predictions::default()),
        }
    }

    /// Commits what came of the diffusion model's last forward, and prepares the next.
    fn conclude(&mut self) {
        let (step, rows, drafts) = self.ran;
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.cache.observe(&view, &self.requests[CANVAS].plan, &self.progress);
        if self.guide_needs.is_some() {
            self.counts.guide.accepted += self.progress.accepted;
            self.counts.guide.rejected += self.progress.rejected;
        }
        self.keep_accepted();
        for request in &mut self.requests {
            self.cache.reclaim(std::mem::take(&mut request.plan.layers));
        }
        if drafts > 0 {
            let accepted = self.progress.accepted;
            self.acceptance.resize(self.acceptance.len().max(accepted + 1), 0);
            self.acceptance[accepted] += 1;
        }
        for index in 0..self.progress.commits.len() {
            let commit = self.progress.commits[index];
            if self.over_before(commit.position) {
                break;
            }
            self.commit(step, commit);
        }
        self.look_back();
        self.fill_early();
        self.advance();
        let Progress { accepted, rejected, .. } = self.progress;
        self.events.push(Event::Step { step, nfe: self.counts.nfe, rows, drafts, accepted, rejected });
    }

    /// Under a cache policy whose slots have a history, what the accepted draft computed is part of it.
    fn keep_accepted(&mut self) {
        if self.cache.memory() == Memory::OfState {
            return;
        }
        for (request, kept) in self.requests[..self.running].iter_mut().zip(&mut self.kept) {
            if let Some(Keep { positions, .. }) = request.plan.keep.take() {
                kept.positions = positions;
            }
            if let Some(Accepted { lane, .. }) = self.progress.draft {
                kept.lane = Some(lane);
                kept.positions.clone_from(&request.plan.live);
            }
        }
    }

    /// What happened since the last call. A forward's commits come before its step.
    pub fn events(&mut self) -> vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Ends the response after `length` tokens: a stop text was found there. Nothing is run any more.
    pub fn finish_at(&mut self, length: usize) {
        self.stopped = Some(self.stopped.map_or(length, |stopped| stopped.min(length)));
        self.phase = Phase::Over;
    }

    /// All tokens, masks as the mask id.
    pub fn canvas(&self) -> &[TokenId] {
        self.canvas.tokens()
    }

    /// Where the blocks lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many tokens of the response, from its start, can no longer change and belong to the answer.
    pub fn settled(&self) -> usize {
        let free_of_masks = self.canvas.first_mask().saturating_sub(self.layout.response());
        let end = self.ended.unwrap_or(usize::MAX).min(self.stopped.unwrap_or(usize::MAX));
        free_of_masks.min(self.layout.gen_length()).min(end)
    }

    /// The answer, or as much of it as is settled.
    pub fn output(&self) -> Output {
        let length = self.settled();
        let response = self.layout.response();
        let finish = if self.stopped == Some(length) {
            Finish::Stop
        } else if self.ended == Some(length) {
            Finish::Eos
        } else {
            Finish::Length
        };
        let tokens = self.canvas.tokens()[response..response + length].to_vec();
        Output { tokens, finish, canvas: self.canvas.tokens().to_vec() }
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What the answer may claim.
    pub fn exactness(&self) -> Exactness {
        legality::exactness_with(&self.options.decoder, &self.options.cache, self.cache.memory())
    }

    /// How the answer was made.
    pub fn receipt(&self) -> Receipt {
        let Counts { nfe, forwards, rows, cost, .. } = self.counts;
        let exactness = self.exactness();
        let generated_tokens = self.settled();
        Receipt {
            decoder: self.options.decoder.to_string(),
            cache: self.options.cache.to_string(),
            remasking: self.options.remasking.name(),
            schedule: self.options.schedule.name(),
            steps: self.steps,
            block_length: self.layout.block_length(),
            exactness: exactness.name(),
            against: exactness.against().map(str::to_owned),
            seed: self.options.seed,
            nfe,
            forwards,
            generated_tokens,
            tokens_per_nfe: if nfe == 0 { 0.0 } else { generated_tokens as f64 / nfe as f64 },
            rows,
            acceptance: self.acceptance.clone(),
            computed_rows: cost.computed_rows,
            head_rows: cost.head_rows,
            flops: cost.flops,
        }
    }

    /// Counts the forward that was run: its index, its rows and its drafts.
    fn count(&mut self, predictions: &[Predictions]) -> (usize, usize, usize) {
        let step = self.counts.forwards;
        let rows = self.requests[..self.running].iter().map(|request| request.tokens.len()).sum();
        let drafts = match self.requests[CANVAS].plan.lanes {
            Lanes::Canvas => 0,
            Lanes::Drafts(drafts) => drafts as usize,
        };
        self.counts.forwards += 1;
        self.counts.nfe += self.cache.nfe(self.running);
        self.counts.rows += rows;
        for prediction in predictions {
            self.counts.cost += prediction.cost;
        }
        (step, rows, drafts)
    }

    fn commit(&mut self, step: usize, Commit { position, token, confidence }: Commit) {
        if self.canvas.commit(position, token) {
            self.counts.commits += 1;
            self.events.push(Event::Commit { step, position, token, confidence });
        }
    }

    /// Moves on to the first block with a mask and looks for end ids in what has settled.
    fn look_back(&mut self) {
        while self.block < self.layout.blocks() && self.canvas.is_complete(self.layout.block(self.block)) {
            self.block += 1;
        }
        if self.ended.is_some() {
            return;
        }
        let response = self.layout.response();
        let settled = self.settled();
        let mut fresh = response + self.scanned..response + settled;
        self.ended = fresh.find(|&position| self.is_end(position)).map(|position| position + 1 - response);
        self.scanned = settled;
    }

    /// Whether an end id was decoded at a position: given tokens end nothing.
    fn is_end(&self, position: usize) -> bool {
        !self.canvas.is_given(position as Position) && self.options.end_ids.contains(&self.canvas.tokens()[position])
    }

    /// Prepares the next forward, or finds that there is none.
    fn advance(&mut self) {
        self.phase = self.phase_after();
        if self.phase != Phase::Over {
            self.fill_requests();
        }
    }

    fn phase_after(&mut self) -> Phase {
        match self.options.stop {
            StopRule::Prefix if self.ended.is_some() => return Phase::Over,
            StopRule::PrefixFill { fill } if self.ended.is_some() => {
                self.fill_from(self.canvas.first_mask() as Position, fill);
                return Phase::Over;
            }
            _ if self.counts.forwards >= self.most_forwards => return Phase::Over,
            _ => {}
        }
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let plan = &mut self.requests[CANVAS].plan;
        plan.clear();
        // Upkeep runs the canvas.
        self.query.clear();
        if self.cache.upkeep(&view, plan) {
            return Phase::Upkeep;
        }
        if self.stops_at_block() {
            return Phase::Over;
        }
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.query.clear();
        match self.decoder.intend(&view, &mut self.query) {
            Intent::Done => Phase::Over,
            Intent::Predict => {
                let plan = &mut self.requests[CANVAS].plan;
                plan.clear();
                self.cache.plan(&view, &self.query, plan);
                if !self.query.branches.is_empty() {
                    plan.lanes = Lanes::Drafts(self.query.branches.sizes.len() as u32);
                }
                Phase::Predict
            }
        }
    }

    /// Applies the stop rules that look at finished blocks; `true` if decoding is over.
    fn stops_at_block(&mut self) -> bool {
        while self.unchecked < self.block {
            let block = self.unchecked;
            self.unchecked += 1;
            if self.stops_behind(block) {
                if let StopRule::WholeBlock { fill } = self.options.stop {
                    self.fill_from(self.layout.block(block).end, fill);
                }
                return true;
            }
        }
        false
    }

    /// Applies the stop rules that fill what lies behind an end token.
    fn fill_early(&mut self) {
        let tokens = self.canvas.tokens();
        let decoded = |place: usize, fill: TokenId| tokens[place] == fill && !self.canvas.is_given(place as Position);
        let (response, length) = (self.layout.response(), self.canvas.len());
        let (start, fill) = match self.options.stop {
            StopRule::FillBehind { fill } => ((response..length).find(|&place| decoded(place, fill)), fill),
            StopRule::EndRun { fill, run } => {
                let (end, run) = (self.canvas.first_mask(), run.max(1));
                let ends = response + run <= end && (end - run..end).all(|place| decoded(place, fill));
                ((ends && self.canvas.masks() == length - end).then_some(end), fill)
            }
            _ => return,
        };
        if let Some(start) = start {
            self.fill_from(start as Position, fill);
        }
    }

    /// Whether a finished block is one behind which nothing is decoded.
    fn stops_behind(&self, block: usize) -> bool {
        let mut block = self.layout.block(block);
        match self.options.stop {
            StopRule::Block => (self.layout.response()..block.end as usize).any(|place| self.is_end(place)),
            StopRule::WholeBlock { fill } => block.all(|place| self.canvas.tokens()[place as usize] == fill),
            _ => false,
        }
    }

    /// Whether a block finished before this position ends decoding: drafts may have reached beyond it.
    fn over_before(&self, position: Position) -> bool {
        let mut finished = self.unchecked..self.layout.block_of(position);
        finished.any(|block| self.canvas.is_complete(self.layout.block(block)) && self.stops_behind(block))
    }

    fn fill_from(&mut self, start: Position, token: TokenId) {
        let step = self.counts.forwards.saturating_sub(1);
        for position in start..self.canvas.len() as Position {
            self.commit(step, Commit { position, token, confidence: 1.0 });
        }
        self.look_back();
    }

    /// Completes the requests around the canvas's new plan.
    fn fill_requests(&mut self) {
        let predicts = self.phase == Phase::Predict;
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let (canvas, unconditional) = self.requests.split_at_mut(UNCONDITIONAL);
        let request = &mut canvas[CANVAS];
        let drafts = &self.query.branches;
        self.running = UNCONDITIONAL;
        request.blend = None;
        if let (Some(twin), Some(tokens)) = (unconditional.first_mut(), self.canvas.unconditional()) {
            twin.plan.clear();
            let runs = if predicts {
                self.cache.guide(&view, &self.query, &mut request.plan, &mut twin.plan)
            } else {
                // Prefill and store are the same rows for both.
                twin.plan.clone_from(&request.plan);
                true
            };
            twin.plan.lanes = request.plan.lanes;
            if runs {
                self.kept[UNCONDITIONAL].fill(&mut twin.plan);
            }
            // Nothing of the head.
            twin.plan.predict.clear();
            twin.plan.must.clear();
            twin.plan.hint.clear();
            twin.read(tokens, drafts);
            self.running += usize::from(runs);
            let with = if runs { BlendWith::Step(UNCONDITIONAL) } else { BlendWith::Stored };
            request.blend = predicts.then_some(Blend { scale: self.options.cfg_scale, with });
        }
        self.kept[CANVAS].fill(&mut request.plan);
        request.read(self.canvas.tokens(), drafts);
        request.ask.states.clear();
        let lanes = 0..request.plan.lanes.count();
        request.ask.states.extend(lanes.map(|lane| self.canvas.unmasked() + drafts.lane(lane).len() as u32));
    }
}

/// What decoders and policies may look at.
fn view_of<'a>(canvas: &'a Canvas, layout: &'a Layout, block: usize, options: &SessionOptions) -> View<'a> {
    View { canvas, layout, block, shift: options.facts.shift }
}
