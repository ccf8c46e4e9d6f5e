//! The decoding of one canvas as a state machine without I/O.

mod constrain;
mod guidance;
mod logprobs;
mod outcome;
mod recompute;
mod request;
mod start;
mod stop;
mod tally;

use std::slice;

use demask_step::{
    ForwardInput, Job, Lanes, Mask, NO_TOKEN, Pending, Position, Predictions, Prefix, Retain, SequenceSpec, Stores,
    TokenId,
};

use crate::{
    adjust::Adjuster,
    canvas::Canvas,
    constraint::{Enforced, Enforcer, Heard},
    event::{Commit, Event, Replacement},
    layout::Layout,
    method::SessionOptions,
    policy::{CachePolicy, Maintenance, Memory},
    step::{
        Accepted, Answer, AnswerSource, Decoder, Progress, Proposal, Query, StepContext, StepResult, View, take_musts,
    },
};

use guidance::Unconditional;
use logprobs::Logprobs;
use recompute::Recompute;
use request::{RetainedDraft, read};
use stop::{Ending, Fill, Verdict};
use tally::Tally;

/// Index of the conditional sequence, the canvas itself, in the needs of a [`Session`].
const CANVAS: usize = 0;
/// Index of the unconditional sequence of classifier-free guidance.
const UNCONDITIONAL: usize = 1;

/// Purpose of the pending forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Prefill or store: predicts nothing.
    Maintenance,
    /// Answers the decoder's query.
    Predict,
    /// A helper is asked about the predictions.
    Help,
    /// No pending forward.
    Over,
}

/// Reason for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A forward's predictions.
    Forward,
    /// A constraint, which leaves no choice.
    Constraint,
    /// A stop rule.
    Rule,
}

/// One canvas being decoded: a [`Job`] whose network 0 is the diffusion model and whose network 1 is the guide, if the
/// decoder has one. Its sequences are the canvas, with guidance the unconditional one after it, then the guide's.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    layout: Layout,
    canvas: Canvas,
    steps: usize,
    most_forwards: usize,
    decoder: Box<dyn Decoder>,
    cache: Box<dyn CachePolicy>,
    needs: Vec<SequenceSpec>,
    requests: Vec<ForwardInput>,
    /// Number of the requests that the pending forward runs.
    running: usize,
    /// Records whether the pending forward also has the rows of a prefill or store that a published program runs alone.
    rides: bool,
    /// Records whether such rows count as a forward: not of a decoder whose own forwards have them.
    counts_stores: bool,
    /// Kept drafts, by sequence.
    retained: Vec<RetainedDraft>,
    /// Request of the decoder to a helper.
    helper: ForwardInput,
    query: Query,
    progress: Progress,
    /// Adjustments of logits, and predictions that are read from adjusted ones.
    adjuster: Option<Adjuster>,
    adjusted: Predictions,
    /// The constraint on this canvas, and predictions as they are read through it.
    enforcer: Option<Enforcer>,
    read: Predictions,
    /// The last predictions, kept where they complete the answer when the time is over.
    last: Option<Predictions>,
    /// The token that the model predicted last at each position; empty without a constraint.
    unconstrained: Vec<TokenId>,
    phase: Phase,
    /// The first block that is open.
    block: usize,
    ending: Ending,
    tally: Tally,
    events: Vec<Event>,
    tells_drafts: bool,
    /// Salt of the slots: only sessions of the same salt take slots from each other.
    salt: u64,
    /// Shift of passes that do not say theirs, if it is not the model's own.
    shift: Option<Position>,
    /// Slots to compute again before the pending forward, after its memory was given up.
    recompute: Option<Recompute>,
    /// Log-probabilities; none unless requested.
    logprobs: Option<Logprobs>,
    /// Reason why it failed.
    fault: Option<String>,
}

impl Session {
    /// Takes the diffusion model's predictions.
    fn accept(&mut self, predictions: &[Predictions]) -> StepResult {
        let ran = &self.requests[..self.running];
        let nfe = self.cache.nfe(ran.len()) * (1 + usize::from(self.rides));
        self.tally.forward(ran, nfe, predictions);
        self.progress.clear();
        let Some(predictions) = predictions.first() else { return StepResult::Settled };
        let Some(adjuster) = &mut self.adjuster else { return self.decide(predictions) };
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let request = &self.requests[CANVAS];
        let heard = Heard { predictions, ask: &request.ask };
        let is_causal = request.plan.mask == Mask::Causal;
        adjuster.read(&self.canvas, |lane| self.query.branches.lane(lane), is_causal, heard, &mut adjusted);
        let result = self.decide(&adjusted);
        self.adjusted = adjusted;
        result
    }

    /// Lets the predictions decide.
    fn decide(&mut self, predictions: &Predictions) -> StepResult {
        if self.phase == Phase::Predict {
            return self.hand_over(AnswerSource::Canvas, predictions);
        }
        self.read(predictions);
        // What stores a block may predict the token behind it.
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let plan = &self.requests[CANVAS].plan;
        let read = if self.enforcer.is_some() { &self.read } else { predictions };
        take_musts(&view, plan, read, &mut self.progress);
        constrain::note(&self.progress, predictions, &mut self.unconstrained);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.note(plan, read, &self.progress, &self.canvas);
        }
        StepResult::Settled
    }

    /// Reads the diffusion model's predictions through the constraint, if there is one.
    fn read(&mut self, predictions: &Predictions) {
        let Some(enforcer) = &self.enforcer else { return };
        let drafts = &self.query.branches;
        let heard = Heard { predictions, ask: &self.requests[CANVAS].ask };
        enforcer.read(&self.canvas, |lane| drafts.lane(lane), heard, &mut self.read);
    }

    /// Takes a helper's predictions.
    fn heed(&mut self, predictions: &[Predictions]) -> StepResult {
        self.tally.guide(&self.helper, predictions);
        self.hand_over(AnswerSource::Helper, predictions.first().unwrap_or(&Predictions::default()))
    }

    /// Lets the decoder look at predictions.
    fn hand_over(&mut self, source: AnswerSource, predictions: &Predictions) -> StepResult {
        let mut read = predictions;
        if source == AnswerSource::Canvas && self.enforcer.is_some() {
            self.read(predictions);
            read = &self.read;
        }
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let request = &self.requests[CANVAS];
        let heard = Heard { predictions, ask: &request.ask };
        let constraint = self.enforcer.as_ref().map(|enforcer| Enforced { enforcer, heard });
        let answer = Answer { source, plan: &request.plan, predictions: read, constraint };
        let result = self.decoder.accept(
            &view,
            &answer,
            &mut StepContext { progress: &mut self.progress, helper: &mut self.helper },
        );
        if let (AnswerSource::Canvas, Some(logprobs)) = (source, &mut self.logprobs) {
            logprobs.note(&request.plan, read, &self.progress, &self.canvas);
        }
        match source {
            AnswerSource::Canvas => {
                constrain::note(&self.progress, predictions, &mut self.unconstrained);
                if let Some(last) = &mut self.last {
                    last.clone_from(predictions);
                }
            }
            AnswerSource::Helper => constrain::note_guide(&self.progress, &mut self.unconstrained),
        }
        debug_assert!(result != StepResult::Ask || self.has_guide(), "a decoder asks a helper that it did not name");
        result
    }

    /// Ends the diffusion model's last forward: commits what came of it, and prepares the next.
    fn conclude(&mut self) {
        self.close();
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.cache.observe(&view, &self.requests[CANVAS].plan, &self.progress);
        self.tally.progress(&self.progress, self.has_guide());
        self.keep_accepted();
        for request in &mut self.requests {
            self.cache.reclaim(std::mem::take(&mut request.plan.layers));
        }
        if self.tells_drafts {
            self.tally.tell_drafts(&self.progress, &mut self.events);
        }
        for index in 0..self.progress.commits.len() {
            let commit = self.progress.commits[index];
            if self.ending.is_over_before(&self.canvas, &self.layout, commit.position) {
                break;
            }
            let forced = self.progress.forced.contains(&commit.position);
            self.commit(commit, if forced { By::Constraint } else { By::Forward });
        }
        self.revise();
        self.look_back();
        if let Some(fill) = self.ending.early(&self.canvas, &self.layout) {
            self.fill(fill);
        }
        self.advance();
        let (masks, settled) = (self.masks(), self.settled());
        self.events.push(self.tally.event(&self.progress, masks, settled));
    }

    /// Keeps the rows that the accepted draft computed: all of them under a cache policy whose slots have a history,
    /// else those that the policy names.
    fn keep_accepted(&mut self) {
        let rows = self.cache.retains();
        for (request, kept) in self.requests[..self.running].iter_mut().zip(&mut self.retained) {
            if let Some(Retain { positions, .. }) = request.plan.retain.take() {
                kept.positions = positions;
            }
            let Some(Accepted { lane, .. }) = self.progress.draft else { continue };
            match (self.cache.memory(), &rows) {
                (Memory::OfHistory, _) => kept.positions.clone_from(&request.plan.query),
                (Memory::OfState, Some(rows)) => kept.positions.set_range(rows.clone()),
                (Memory::OfState, None) => continue,
            }
            kept.lane = Some(lane);
        }
    }

    fn commit(&mut self, Commit { position, token, confidence }: Commit, by: By) {
        let step = self.tally.step();
        if !self.canvas.commit(position, token) {
            return;
        }
        self.tally.counts.commits += 1;
        let (forced, changed) = (by == By::Constraint, by == By::Forward && self.changes(position, token));
        self.tally.counts.constraint.forced += usize::from(forced);
        match &mut self.logprobs {
            Some(logprobs) if by == By::Forward => logprobs.settle(position, token, confidence),
            Some(logprobs) => logprobs.forget(position),
            None => {}
        }
        self.events.push(Event::Commit { step, position, token, confidence, forced, changed });
    }

    /// Writes the changes of tokens that are open, and closes their block.
    fn revise(&mut self) {
        let step = self.tally.step();
        for index in 0..self.progress.replaced.len() {
            let Replacement { position, token: to, confidence } = self.progress.replaced[index];
            let Some(from) = self.canvas.replace(position, to) else { continue };
            self.tally.counts.replaced += 1;
            if let Some(logprobs) = &mut self.logprobs {
                logprobs.settle(position, to.unwrap_or(NO_TOKEN), confidence);
            }
            let changed = to.is_some_and(|token| self.changes(position, token));
            self.events.push(Event::Replace { step, position, from, to, confidence, changed });
        }
        if self.progress.closes {
            self.canvas.close(self.layout.block(self.block).end);
        }
    }

    /// Moves on to the first block that is open and looks for end ids in what has settled.
    fn look_back(&mut self) {
        while self.block < self.layout.blocks() && self.canvas.is_complete(self.layout.block(self.block)) {
            self.block += 1;
        }
        self.ending.look_back(&self.canvas, &self.layout);
    }

    /// Prepares the next forward, or finds that there is none.
    fn advance(&mut self) {
        self.rides = false;
        self.phase = self.phase_after();
        if self.phase != Phase::Over {
            self.fill_requests();
        }
    }

    fn phase_after(&mut self) -> Phase {
        if self.stops(self.ending.of_prefix(&self.canvas)) {
            return Phase::Over;
        }
        if self.layout.has_spare() && self.settled() == self.layout.gen_length() {
            return Phase::Over;
        }
        // A constraint may leave nothing to decide.
        if self.tally.counts.forwards == 0 && self.block >= self.layout.blocks() {
            return Phase::Over;
        }
        if self.tally.counts.forwards >= self.most_forwards {
            self.fault = self.unfinished();
            return Phase::Over;
        }
        // SDAR stores a block before it looks whether the block ends the text.
        let stores_first = self.options.facts.blocks.stores == Stores::Always;
        if !stores_first && self.ends_behind_blocks() {
            return Phase::Over;
        }
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let plan = &mut self.requests[CANVAS].plan;
        plan.clear();
        // Maintenance runs the canvas.
        self.query.clear();
        let maintenance = self.cache.maintenance(&view, plan);
        if maintenance == Maintenance::Alone {
            return Phase::Maintenance;
        }
        self.rides = self.counts_stores && maintenance == Maintenance::Rides;
        if stores_first && self.ends_behind_blocks() {
            return self.over();
        }
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        self.query.clear();
        match self.decoder.propose(&view, &mut self.query) {
            Proposal::Done => self.over(),
            Proposal::Predict => {
                self.plan_prediction();
                Phase::Predict
            }
        }
    }

    /// Describes the masks that are left where no more forwards may run. None if no block is open.
    fn unfinished(&self) -> Option<String> {
        let (most, masks) = (self.most_forwards, self.canvas.masks());
        (self.block < self.layout.blocks()).then(|| {
            format!(
                "{most} forwards ran, the most that this canvas may take, and {masks} masks are left: the rule that decides, or \
                 the network, commits nothing"
            )
        })
    }

    /// Ends a canvas whose last block is not stored: nobody reads it, but published programs count it.
    fn over(&mut self) -> Phase {
        self.tally.counts.nfe += self.cache.nfe(self.requests.len()) * usize::from(self.rides);
        Phase::Over
    }

    /// Applies the stop rules that look at finished blocks; `true` if decoding is over.
    fn ends_behind_blocks(&mut self) -> bool {
        let verdict = self.ending.of_blocks(&self.canvas, &self.layout, self.block);
        self.stops(verdict)
    }

    /// Lets the cache policy plan the query's forward.
    fn plan_prediction(&mut self) {
        let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
        let plan = &mut self.requests[CANVAS].plan;
        plan.clear();
        self.cache.plan(&view, &self.query, plan);
        if !self.query.branches.is_empty() {
            plan.lanes = Lanes::Drafts(self.query.branches.sizes.len() as u32);
        }
    }

    /// Plans the first forward again, for a canvas whose first slots are filled. The questions to the head stay: a
    /// decoder is asked once. A store that is no longer needed still counts: NFE are the method's, whatever others
    /// left.
    fn begin_behind(&mut self, filled: Position) {
        let stored = self.phase == Phase::Maintenance || self.rides;
        self.cache.resume(filled);
        match self.phase {
            Phase::Maintenance => self.advance(),
            Phase::Predict => {
                let view = view_of(&self.canvas, &self.layout, self.block, &self.options);
                let maintenance = self.cache.maintenance(&view, &mut self.requests[CANVAS].plan);
                self.rides = self.counts_stores && maintenance == Maintenance::Rides;
                self.plan_prediction();
                self.fill_requests();
            }
            Phase::Help | Phase::Over => {}
        }
        if stored && self.phase != Phase::Maintenance && !self.rides {
            self.tally.counts.nfe += self.cache.nfe(self.requests.len());
        }
    }

    /// Prepares the next recomputing forward after slots that are there, or goes on where none is missing.
    fn recompute_from(&mut self, from: Position) {
        let Some(mut recompute) = self.recompute.take() else { return };
        let mask = self.prefix(recompute.end()).mask;
        if recompute.fill(from, self.canvas.tokens(), mask) {
            self.recompute = Some(recompute);
        }
    }

    /// The canvas's tokens up to a position, as others may share them.
    fn prefix(&self, end: Position) -> Prefix<'_> {
        let tokens = &self.canvas.tokens()[..self.canvas.len().min(end as usize)];
        Prefix { tokens, mask: self.layout.attention().stored(), salt: self.salt }
    }

    /// A helper's tokens, as others may share them.
    fn prefix_of_helper<'a>(&'a self, tokens: &'a [TokenId]) -> Prefix<'a> {
        Prefix { tokens, mask: Mask::Causal, salt: self.salt }
    }

    /// Follows the verdict of a stop rule. Returns `true` if decoding is over.
    fn stops(&mut self, verdict: Verdict) -> bool {
        if let Verdict::Over(Some(fill)) = verdict {
            self.fill(fill);
        }
        verdict != Verdict::GoOn
    }

    fn fill(&mut self, Fill { start, token }: Fill) {
        for position in start..self.canvas.len() as Position {
            self.commit(Commit { position, token, confidence: 1.0 }, By::Rule);
        }
        self.canvas.close(self.canvas.len() as Position);
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
        let (own, others) = self.retained.split_at_mut(UNCONDITIONAL);
        if let (Some(second), Some(kept), Some(tokens)) =
            (unconditional.first_mut(), others.first_mut(), self.canvas.unconditional())
        {
            let query = predicts.then_some(&self.query);
            let runs = Unconditional { request: second, retained: kept, tokens }.fill(
                &mut *self.cache,
                &view,
                query,
                request,
                drafts,
            );
            self.running += usize::from(runs);
            let blended = || guidance::blend(self.options.cfg_scale, runs.then_some(UNCONDITIONAL));
            request.blend = predicts.then(blended);
        }
        own[CANVAS].fill(&mut request.plan);
        request.plan.shift = request.plan.shift.or(self.shift);
        read(request, self.canvas.tokens(), drafts);
        request.ask.score.clone_from(&self.query.score);
        request.ask.states.clear();
        let lanes = 0..request.plan.lanes.count();
        request.ask.states.extend(lanes.map(|lane| self.canvas.writes() + drafts.lane(lane).len() as u32));
    }
}

impl Job for Session {
    fn needs(&self) -> &[SequenceSpec] {
        &self.needs
    }

    /// One group: a request for each sequence that runs in the next forward (the canvas always does, the unconditional
    /// sequence if a pass is due), or the one of a helper.
    fn pending(&self) -> Pending<'_> {
        if let Some(recompute) = &self.recompute {
            return Pending::Run { requests: slice::from_ref(recompute.request()), group: 1 };
        }
        let requests = match self.phase {
            Phase::Maintenance | Phase::Predict => &self.requests[..self.running],
            Phase::Help => slice::from_ref(&self.helper),
            Phase::Over => return Pending::Done,
        };
        Pending::Run { requests, group: requests.len() }
    }

    /// Takes the predictions, commits, and prepares the next forward. While a helper is asked, nothing is committed.
    fn feed(&mut self, predictions: &[Predictions]) {
        if let Some(recompute) = &self.recompute {
            self.tally.counts.recomputed += recompute.request().tokens.len();
            return self.recompute_from(recompute.request().plan.kv_len);
        }
        let result = match self.phase {
            Phase::Over => return,
            Phase::Help => self.heed(predictions),
            Phase::Maintenance | Phase::Predict => self.accept(predictions),
        };
        match result {
            StepResult::Ask => self.phase = Phase::Help,
            StepResult::Settled => self.conclude(),
            StepResult::Failed => {
                self.fault = self.decoder.fault();
                self.phase = Phase::Over;
            }
        }
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns an empty prefix with guidance: the canvas's plans are those of the unconditional sequence too, which has
    /// other tokens.
    fn prefix_tokens(&self, sequence: usize) -> Prefix<'_> {
        match (sequence, &self.recompute) {
            (CANVAS, Some(recompute)) => self.prefix(recompute.end()),
            (CANVAS, None) if self.requests.len() == UNCONDITIONAL => {
                self.prefix(self.cache.reusable_on_open(&self.layout))
            }
            _ if sequence < self.requests.len() => Prefix::default(),
            _ => self.prefix_of_helper(self.decoder.prefix_tokens()),
        }
    }

    fn opened(&mut self, filled: &[Position]) {
        let of = |sequence: usize| filled.get(sequence).copied().unwrap_or(0);
        if self.recompute.is_some() {
            return self.recompute_from(of(CANVAS));
        }
        let (canvas, helper) = (of(CANVAS), of(self.requests.len()));
        (self.tally.counts.cached, self.tally.counts.guide.cached) = (canvas as usize, helper as usize);
        if helper > 0 {
            self.decoder.opened(helper);
        }
        if canvas > 0 {
            self.begin_behind(canvas);
        }
    }

    /// Keeps the pending forward as it is: the slots before its first live row are computed again first.
    fn preempted(&mut self) {
        let (plan, kept) = (&mut self.requests[CANVAS].plan, &mut self.retained[CANVAS]);
        // The accepted draft's rows are among those that are computed again.
        if let Some(keep) = plan.retain.take() {
            kept.positions = keep.positions;
        }
        let end = plan.query.first().unwrap_or(plan.kv_len);
        self.recompute = Some(Recompute::new(CANVAS, &mut self.needs[CANVAS].limits, end, plan.kv_len));
        self.tally.counts.preempted += 1;
    }

    /// The unconditional sequence of guidance has masks for the prompt, and shares nothing. Slots that are being computed again
    /// are not all there.
    fn reusable(&self, sequence: usize) -> Prefix<'_> {
        match sequence {
            CANVAS if self.recompute.is_some() => Prefix::default(),
            CANVAS => self.prefix(self.cache.reusable()),
            _ if sequence < self.requests.len() => Prefix::default(),
            _ => self.prefix_of_helper(self.decoder.reusable()),
        }
    }
}

/// Facts that decoders and policies may read.
fn view_of<'a>(canvas: &'a Canvas, layout: &'a Layout, block: usize, options: &SessionOptions) -> View<'a> {
    View { canvas, layout, block, shift: options.facts.shift }
}
