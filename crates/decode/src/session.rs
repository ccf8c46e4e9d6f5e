//! The decoding of one canvas as a state machine without I/O.

mod request;

use std::{slice, vec};

use demask_step::{
    Blend, BlendWith, Keep, Lanes, Need, Pending, Position, Predictions, Request, SequenceNeeds, TokenId, Work,
};

use crate::{
    cache::{CachePolicy, Memory},
    canvas::Canvas,
    decoder::{Accepted, Answer, Decoder, Intent, Progress, Query, Turn, Turned, View, Whose},
    error::OptionsError,
    event::{Commit, Counts, Event, Finish, Output},
    layout::Layout,
    legality::{self, Exactness},
    options::{SessionOptions, StopRule},
    receipt::Receipt,
    resolve::{Resolved, Setup, resolve},
    transfer::Ranking,
};

use request::{Kept, helper_request, read, requests};

/// Index of the conditional sequence, the canvas itself, in the needs of a [`Session`].
const CANVAS: usize = 0;
/// Index of the unconditional sequence of classifier-free guidance.
const UNCONDITIONAL: usize = 1;

/// What the pending forward is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Prefill or store: predicts nothing.
    Upkeep,
    /// Answers the decoder's query.
    Predict,
    /// A helper is asked about what was predicted.
    Help,
    /// Nothing is pending.
    Over,
}

/// One canvas being decoded: a [`Work`] whose network 0 is the diffusion model and whose network 1 is the guide, if the
/// decoder has one. Its sequences are the canvas, with guidance the unconditional one behind it, then the guide's.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    layout: Layout,
    canvas: Canvas,
    steps: usize,
    most_forwards: usize,
    decoder: Box<dyn Decoder>,
    cache: Box<dyn CachePolicy>,
    needs: Vec<Need>,
    requests: Vec<Request>,
    /// How many of the requests the pending forward runs.
    running: usize,
    /// By sequence.
    kept: Vec<Kept>,
    /// What the decoder asks of a helper.
    helper: Request,
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
        let setup = Setup { layout: &layout, clock: &clock, ranking: &ranking, options: &options };
        options.cache.check(&setup)?;
        options.decoder.check(&setup)?;
        let mut cache = options.cache.build(&setup);
        let decoder = options.decoder.build(&setup, &*cache);
        if decoder.fuses() {
            cache.fuse();
        }
        let mut needs = cache.needs(&layout);
        decoder.reserve(&layout, &mut needs);
        needs.residual &= options.cfg_scale > 0.0;
        let mut all = vec![needs];
        if options.cfg_scale > 0.0 {
            canvas = canvas.with_unconditional();
            all.push(SequenceNeeds { predictions: 0, residual: false, ..all[CANVAS].clone() });
        }
        let requests = requests(&options, &*decoder, &all);
        let own = &all[CANVAS];
        let drafted = if own.drafts > 0 { layout.len() + 1 } else { 0 };
        // Commits of one forward: the draft that has most of them.
        let commits = own.predictions / own.drafts.max(1);
        let progress = Progress { commits: Vec::with_capacity(commits), ..Progress::default() };
        let mut query = Query::default();
        query.predict.reserve(layout.len());
        query.foreseen.reserve(layout.len());
        query.branches.reserve(drafted, own.drafts);
        let kept = requests.iter().map(|_| Kept::with_capacity(drafted)).collect();
        let helper = helper_request(&options, decoder.helpers());
        let group_rows = all.iter().map(|needs| needs.rows).sum();
        let own = all.into_iter().map(|needs| SequenceNeeds { group_rows, ..needs });
        let needs =
            own.map(|sequence| Need { network: 0, sequence }).chain(decoder.helpers().iter().cloned()).collect();
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
            helper,
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

    /// Returns what its sequences on a network need: 0 is the diffusion model, 1 the guide.
    pub fn needs_of(&self, network: usize) -> Vec<SequenceNeeds> {
        let own = self.needs.iter().filter(|need| need.network == network);
        own.map(|need| need.sequence.clone()).collect()
    }

    /// Returns whether nothing is pending any more.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether a helper, the guide, judges what this session drafts.
    pub fn has_guide(&self) -> bool {
        self.needs.len() > self.requests.len()
    }

    /// Takes the diffusion model's predictions.
    fn absorb(&mut self, predictions: &[Predictions]) -> Turned {
        self.ran = self.count(predictions);
        self.progress.clear();
        let Some(predictions) = predictions.first().filter(|_| self.phase == Phase::Predict) else {
            return Turned::Settled;
        };
        self.turn(Whose::Canvas, predictions)
    }

    /// Takes a helper's predictions.
    fn heed(&mut self, predictions: &[Predictions]) -> Turned {
        let counts = &mut self.counts.guide;
        counts.nfe += 1;
        counts.rows += self.helper.tokens.len();
        for prediction in predictions {
            counts.cost += prediction.cost;
        }
        self.turn(Whose::Helper, predictions.first().unwrap_or(&Predictions::default()))
    }

    /// Lets the decoder look at predictions.
    fn turn(&mut self, whose: Whose, predictions: &Predictions) -> Turned {
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let answer = Answer { whose, plan: &self.requests[CANVAS].plan, predictions };
        let turned =
            self.decoder.absorb(&view, &answer, &mut Turn { progress: &mut self.progress, helper: &mut self.helper });
        debug_assert!(turned == Turned::Settled || self.has_guide(), "a decoder asks a helper that it did not name");
        turned
    }

    /// Ends the diffusion model's last forward: commits what came of it, and prepares the next.
    fn conclude(&mut self) {
        let (step, rows, drafts) = self.ran;
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.cache.observe(&view, &self.requests[CANVAS].plan, &self.progress);
        if self.has_guide() {
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
            read(twin, tokens, drafts);
            self.running += usize::from(runs);
            let with = if runs { BlendWith::Behind(UNCONDITIONAL) } else { BlendWith::Stored };
            request.blend = predicts.then_some(Blend { scale: self.options.cfg_scale, with });
        }
        self.kept[CANVAS].fill(&mut request.plan);
        read(request, self.canvas.tokens(), drafts);
        request.ask.states.clear();
        let lanes = 0..request.plan.lanes.count();
        request.ask.states.extend(lanes.map(|lane| self.canvas.unmasked() + drafts.lane(lane).len() as u32));
    }
}

impl Work for Session {
    fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// One group: a request for each sequence that runs in the next forward (the canvas always does, the unconditional
    /// sequence if a pass is due), or the one of a helper.
    fn pending(&self) -> Pending<'_> {
        let requests = match self.phase {
            Phase::Upkeep | Phase::Predict => &self.requests[..self.running],
            Phase::Help => slice::from_ref(&self.helper),
            Phase::Over => return Pending::Done,
        };
        Pending::Run { requests, group: requests.len() }
    }

    /// Takes the predictions, commits, and prepares the next forward. While a helper is asked, nothing is committed.
    fn feed(&mut self, predictions: &[Predictions]) {
        let turned = match self.phase {
            Phase::Over => return,
            Phase::Help => self.heed(predictions),
            Phase::Upkeep | Phase::Predict => self.absorb(predictions),
        };
        match turned {
            Turned::Ask => self.phase = Phase::Help,
            Turned::Settled => self.conclude(),
        }
    }
}

/// What decoders and policies may look at.
fn view_of<'a>(canvas: &'a Canvas, layout: &'a Layout, block: usize, options: &SessionOptions) -> View<'a> {
    View { canvas, layout, block, shift: options.facts.shift }
}
