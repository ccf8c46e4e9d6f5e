//! The state machine of FreeDave: verifies the drafts of a forward, and makes those of the next.

use demask_step::{HeadAsk, NO_TOKEN, Position, Positions, Predictions, SequenceLimits};

use crate::{
    constraint::{Enforced, LaneOf},
    event::Commit,
    layout::Layout,
    method::{DecoderSpec, Setup},
    policy::CachePolicy,
    schedule::{Around, Clock, Tick},
    step::{
        Accepted, Answer, Decoder, Drafts, Judgement, Progress, Proposal, Query, StepContext, StepResult, View,
        take_musts,
    },
    transfer::{Candidate, LaneView, Ranking, State, Transfer, fit},
};

/// Position of static decoding: the block, and its next step.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    block: usize,
    step: usize,
}

#[derive(Debug)]
pub(super) struct Drafting {
    /// Its parameters, with the number of drafts.
    spec: DecoderSpec,
    rule: Box<dyn Transfer>,
    ranking: Ranking,
    clock: Clock,
    /// Most drafts of one forward.
    most: usize,
    /// Records whether their number was chosen by the rows that are nearly free.
    pub(super) fitted: bool,
    rolling: bool,
    pub(super) eager: bool,
    /// Positions predicted, and positions from the first to the last live row, both at most.
    window: usize,
    span: usize,
    /// Blocks that a forward predicts after the current one, at most.
    ahead: usize,
    pub(super) subset: bool,
    /// Records whether a step takes as many tokens as pass a threshold, so that how many it takes is unknown before.
    pub(super) parallel: bool,
    /// Records whether the cache's slots have a history. Every forward is part of it: steps of static decoding that
    /// take nothing are run, and a draft that leaves nothing to predict is not.
    pub(super) history: bool,
    /// Records whether a step that takes nothing is run because the same canvas may be predicted otherwise in the next
    /// forward.
    pub(super) starts_wide: bool,
    /// Records whether the forward takes tokens beside the step's own, so that the step counts even if it takes none.
    moves: bool,
    /// Masks that each block started with.
    at_start: Vec<usize>,
    /// The block that was current in the last forward.
    block: usize,
    /// Static decoding at the first draft, or at the canvas if there are no drafts.
    place: Standing,
    /// The drafts to run next, and the positions in them that a constraint leaves no choice about.
    drafts: Drafts,
    forced: Vec<Position>,
    candidates: Vec<Candidate>,
}

impl Drafting {
    /// One with these parameters, which predicts this many blocks after the current one; it has no other settings.
    pub(super) fn new(
        rule: Box<dyn Transfer>,
        setup: &Setup<'_>,
        cache: &dyn CachePolicy,
        (spec, most, rolling): (DecoderSpec, usize, bool),
        ahead: usize,
    ) -> Self {
        let layout = setup.layout;
        let window = ((ahead + 1) * layout.block_length()).min(layout.len());
        let mut drafts = Drafts::default();
        drafts.reserve(window, most.min(window + 1));
        Self {
            spec,
            rule,
            ranking: setup.ranking.clone(),
            clock: setup.clock.clone(),
            most,
            fitted: false,
            rolling,
            eager: false,
            window,
            span: cache.draft_span(layout, ahead + 1),
            ahead,
            subset: false,
            parallel: false,
            history: false,
            starts_wide: false,
            moves: false,
            at_start: Vec::with_capacity(layout.blocks()),
            block: 0,
            place: Standing::default(),
            drafts,
            forced: Vec::new(),
            candidates: Vec::with_capacity(window),
        }
    }

    /// Tick of static decoding at a place whose block has `masks` left, and all blocks after it `masks_after`. Steps that the
    /// clock lets pass without a token change no prediction: they are left out.
    fn tick(&self, place: &mut Standing, masks: usize, masks_after: usize) -> Tick {
        let (before, from) = self.at_start.split_at(place.block);
        let around = Around {
            blocks_before: before.iter().filter(|&&masks| masks > 0).count(),
            blocks_after: from[1..].iter().filter(|&&masks| masks > 0).count(),
            masks_after,
        };
        loop {
            let tick = self.clock.tick(place.step, from[0], masks, around);
            let runs = tick.quota > 0 || self.parallel || self.history || self.starts_wide || self.moves;
            if runs || place.step + 1 >= self.clock.steps {
                return tick;
            }
            place.step += 1;
        }
    }

    /// Ranks the predictions of a lane and returns how many of the first are what static decoding takes there.
    fn target(
        &mut self,
        view: &View<'_>,
        answer: &Answer<'_>,
        (lane, among): (usize, &Positions),
        (musts, fallbacks): (&mut [Commit], &mut usize),
    ) -> usize {
        let (canvas, layout, predictions) = (view.canvas, view.layout, answer.predictions);
        let filled = self.drafts.lane(lane);
        let writes = canvas.writes() + filled.len() as u32;
        let of_lane = LaneView { predictions, lane, among, canvas, writes, layout };
        self.ranking.rank(&of_lane, &mut self.candidates);
        self.candidates.retain(|candidate| filled.iter().all(|commit| commit.position != candidate.position));
        let masks_of = |block: usize| {
            let within = layout.block(block);
            canvas.masks_in(within.clone()) - filled.iter().filter(|commit| within.contains(&commit.position)).count()
        };
        let block = (view.block..layout.blocks()).find(|&block| masks_of(block) > 0);
        let within = self.candidates.iter().take_while(|candidate| Some(candidate.block) == block).count();
        let (Some(block), true) = (block, within > 0) else {
            // Nothing is known of the block that is next, so nothing is known of those behind it.
            self.candidates.clear();
            return 0;
        };
        let masks = masks_of(block);
        let masks_after = (block + 1..layout.blocks()).map(masks_of).sum();
        let mut place = if self.place.block == block { self.place } else { Standing { block, step: 0 } };
        if place.step == 0 {
            // What a constraint forced before the block began is no part of it.
            self.at_start[block] = masks;
        }
        let state = State { remasking: self.ranking.remasking, ..self.tick(&mut place, masks, masks_after).into() };
        self.place = place;
        let taken = self.rule.choose(&state, &mut self.candidates[..within]).min(within);
        let Some(constraint) = answer.constraint else { return taken };
        let lane = LaneOf { canvas, index: lane, filled };
        fit((&*self.rule, &state), (constraint, lane), musts, &mut self.candidates[..within], taken, fallbacks)
    }

    /// The largest draft after `lane` that agrees with the first `taken` candidates, which were predicted in it.
    fn agreeing(&self, lane: usize, taken: usize) -> Option<usize> {
        let Drafts { commits, sizes, .. } = &self.drafts;
        let chosen = &self.candidates[..taken];
        let agrees = |&next: &usize| {
            let decided = |commit: &&Commit| !self.forced.contains(&commit.position);
            let added = || commits[sizes[lane]..sizes[next]].iter().filter(decided);
            let equal = |commit: &Commit| {
                chosen.iter().any(|chosen| (chosen.position, chosen.token) == (commit.position, commit.token))
            };
            added().next().is_some() && (self.subset || added().count() == taken) && added().all(equal)
        };
        (lane + 1..sizes.len()).rev().find(agrees)
    }

    /// Follows the drafts as long as they agree; returns the last one, and how many of its candidates come next.
    fn verify(
        &mut self,
        view: &View<'_>,
        answer: &Answer<'_>,
        among: &Positions,
        progress: &mut Progress,
    ) -> (usize, usize) {
        let mut lane = 0;
        let musts = progress.commits.len();
        progress.commits.extend_from_slice(self.drafts.lane(lane));
        progress.drafted.copy(&self.drafts);
        let is_forced = |forced: &[Position], commit: &Commit| forced.contains(&commit.position);
        progress.forced.extend(
            self.drafts
                .lane(lane)
                .iter()
                .map(|commit| commit.position)
                .filter(|position| self.forced.contains(position)),
        );
        loop {
            let Progress { commits, fallbacks, .. } = &mut *progress;
            let musts = if lane == 0 { &mut commits[..musts] } else { &mut [] };
            let taken = self.target(view, answer, (lane, among), (musts, fallbacks));
            let target = |&taken: &Candidate| Judgement { draft: lane, commit: taken.into(), by_guide: false };
            progress.targets.extend(self.candidates[..taken].iter().map(target));
            let Some(next) = self.agreeing(lane, taken) else { return (lane, taken) };
            let added = &self.drafts.commits[self.drafts.sizes[lane]..self.drafts.sizes[next]];
            let drafted = |candidate: &&Candidate| added.iter().any(|commit| commit.position == candidate.position);
            progress.commits.extend(self.candidates[..taken].iter().filter(drafted).map(|&taken| Commit::from(taken)));
            let forced = added.iter().copied().filter(|commit| is_forced(&self.forced, commit));
            progress.forced.extend(forced.clone().map(|commit| commit.position));
            progress.commits.extend(forced);
            self.place.step += 1;
            lane = next;
        }
    }

    /// Takes the first candidates.
    fn take(&mut self, taken: usize, progress: &mut Progress) {
        progress.commits.extend(self.candidates[..taken].iter().map(|&candidate| Commit::from(candidate)));
        self.place.step += 1;
    }

    /// Makes drafts of the candidates from `first` on, which are left when what came of the forward is committed; the
    /// first draft holds `known` of them.
    fn draft(
        &mut self,
        view: &View<'_>,
        (answer, lane): (&Answer<'_>, usize),
        (first, known): (usize, usize),
        written: &[Commit],
    ) {
        self.drafts.clear();
        self.forced.clear();
        if let Some(constraint) = answer.constraint {
            return self.draft_under(constraint, (view, lane), (first, known), written);
        }
        self.drafts.commits.extend(self.candidates[first..].iter().map(|&candidate| Commit::from(candidate)));
        let (mut size, mut place) = (known, self.place);
        self.drafts.sizes.push(size);
        while self.drafts.sizes.len() < self.most && size < self.drafts.commits.len() {
            let block = view.layout.block_of(self.drafts.commits[size].position);
            let of_block = |commit: &&Commit| view.layout.block_of(commit.position) == block;
            let masks = self.drafts.commits[size..].iter().take_while(of_block).count();
            if place.block != block {
                place = Standing { block, step: 0 };
            }
            size += self.foreseen(&mut place, masks).min(masks);
            self.drafts.sizes.push(size);
        }
        self.drop_empty();
    }

    /// The tokens that the next step of a place is likely to take.
    fn foreseen(&self, place: &mut Standing, masks: usize) -> usize {
        let after = self.at_start[place.block + 1..].iter().sum();
        let step = if self.parallel { 1 } else { self.tick(place, masks, after).quota.max(1) };
        place.step += 1;
        step
    }

    /// Makes drafts under a constraint: each is decided as static decoding would decide on it, if the predictions stayed what they
    /// are. `written` are the commits of this forward.
    fn draft_under(
        &mut self,
        constraint: Enforced<'_>,
        (view, lane): (&View<'_>, usize),
        (first, known): (usize, usize),
        written: &[Commit],
    ) {
        let canvas = view.canvas;
        let mut filled = written.to_vec();
        filled.extend(constraint.closure(canvas, &filled));
        let from = filled.len();
        let mut rest = self.candidates.split_off(first.min(self.candidates.len()));
        let (mut read, mut place) = (Predictions::default(), self.place);
        let mut step = known;
        loop {
            let added = filled.len();
            let mut chosen: Vec<Commit> = rest.drain(..step).map(Commit::from).collect();
            if self.drafts.sizes.is_empty() {
                // Known to be right.
                filled.append(&mut chosen);
            } else {
                constraint.fit(LaneOf { canvas, index: lane, filled: &filled }, &[], &mut chosen);
                filled.append(&mut chosen);
            }
            if filled.len() > added {
                let closed = constraint.closure(canvas, &filled);
                self.forced.extend(closed.iter().map(|commit| commit.position));
                filled.extend(closed);
            }
            self.drafts.sizes.push(filled.len() - from);
            rest.retain(|candidate| filled.iter().all(|commit| commit.position != candidate.position));
            let Some(next) = rest.first().filter(|_| self.drafts.sizes.len() < self.most) else { break };
            if place.block != next.block {
                place = Standing { block: next.block, step: 0 };
            }
            let masks = rest.iter().take_while(|candidate| candidate.block == place.block).count();
            step = self.foreseen(&mut place, masks).min(masks);
            constraint.read_again(LaneOf { canvas, index: lane, filled: &filled }, &mut read);
            for candidate in &mut rest {
                let index = read.index(lane, candidate.position).unwrap_or(usize::MAX);
                candidate.token = read.tokens.get(index).copied().unwrap_or(NO_TOKEN);
                candidate.confidence = read.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY);
            }
            if rest[..step].iter().any(|candidate| candidate.token == NO_TOKEN) {
                break;
            }
        }
        self.drafts.commits.extend_from_slice(&filled[from..]);
        self.drop_empty();
    }

    /// Leaves the canvas itself where no draft holds anything.
    fn drop_empty(&mut self) {
        let empty = self.drafts.sizes.last().is_none_or(|&size| size == 0);
        if empty && (self.rolling || self.drafts.commits.is_empty()) {
            // The canvas itself.
            self.drafts.clear();
        }
    }

    /// The last block that a forward predicts.
    fn last_block(&self, view: &View<'_>) -> usize {
        (view.block + self.ahead).min(view.layout.blocks() - 1)
    }

    /// Leaves the drafts that can run. A draft that leaves no position to predict is not run, because its tokens follow
    /// from the draft before it. A canvas that something else was written to has no drafts.
    fn trim(&mut self, view: &View<'_>) {
        if self.drafts.commits.iter().any(|commit| !view.canvas.is_masked(commit.position)) {
            self.drafts.clear();
        }
        let blocks = view.block..=self.last_block(view);
        let open: usize = blocks.map(|block| view.canvas.masks_in(view.layout.block(block))).sum();
        self.drafts.sizes.retain(|&size| size < open);
        if self.drafts.sizes.len() < 2 {
            // The canvas itself.
            self.drafts.clear();
        }
    }

    /// Takes commits from the drafts and from the predictions in the accepted one, and drafts the next steps.
    fn follow(&mut self, view: &View<'_>, answer: &Answer<'_>, progress: &mut Progress) {
        let (lane, taken) = self.verify(view, answer, &answer.plan.predict, progress);
        if !self.drafts.is_empty() {
            let sizes = &self.drafts.sizes;
            progress.accepted = sizes[lane] - sizes[0];
            progress.rejected = sizes[sizes.len() - 1] - sizes[lane];
            progress.draft = Some(Accepted { lane: lane as u32, commits: progress.commits.len() });
        }
        // Beside tokens that had to be taken, the program's first draft would not be the next canvas.
        if self.rolling || std::mem::take(&mut self.moves) {
            self.take(taken, progress);
            self.moves = false;
            self.draft(view, (answer, lane), (taken, 0), &progress.commits);
        } else {
            self.follow_reference(view, (answer, lane), taken, progress);
        }
    }

    /// Follows the released program: the known step is the first draft, unless it ends the block.
    fn follow_reference(
        &mut self,
        view: &View<'_>,
        (answer, lane): (&Answer<'_>, usize),
        taken: usize,
        progress: &mut Progress,
    ) {
        let block = view.layout.block(view.block);
        let left_by = |commits: &[Commit]| {
            let closed = answer.constraint.map(|constraint| constraint.closure(view.canvas, commits));
            let all = commits.iter().chain(closed.iter().flatten());
            view.canvas.masks_in(block.clone()) - all.filter(|commit| block.contains(&commit.position)).count()
        };
        let left = left_by(&progress.commits);
        let wish = self.candidates[..taken].iter().map(|&candidate| Commit::from(candidate));
        // Under a constraint a few tokens may leave no choice about all others.
        let ends = answer.constraint.is_some()
            && left_by(&progress.commits.iter().copied().chain(wish).collect::<Vec<_>>()) == 0;
        let last = view.block + 1 >= view.layout.blocks();
        let known = if left == 0 {
            // The block is complete, and what comes next of the one behind it is known.
            self.eager
        } else {
            // The program, which knows no other static step than one token, looks at a single mask only.
            let takes_all = taken >= left || ends;
            left <= 1 && (last || !self.eager) || left > 1 && (self.history || !self.parallel) && takes_all
        };
        if known {
            self.take(taken, progress);
        }
        if known || left == 0 {
            self.drafts.clear();
        } else {
            self.place.step += 1;
            self.draft(view, (answer, lane), (0, taken), &progress.commits);
        }
    }
}

impl Decoder for Drafting {
    fn ask(&self, ask: &mut HeadAsk) {
        self.ranking.ask(ask);
        self.rule.ask(ask);
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        let drafts = self.most.min(self.window + 1);
        needs.drafts = needs.drafts.max(drafts);
        needs.draft_span = needs.draft_span.max(self.span);
        // The cache policy counts the rows of one block that is predicted.
        let ahead = (needs.rows + self.window - layout.block_length().min(self.window)).min(layout.len());
        needs.rows = needs.rows.max(ahead).max(drafts * self.span);
        needs.predictions = drafts * needs.predictions.max(self.window);
    }

    fn chosen(&self) -> Option<String> {
        Some(self.spec.to_string())
    }

    fn rule(&self) -> Option<String> {
        let Self { spec, most, .. } = self;
        self.fitted.then(|| match most {
            1 => format!("{spec}, which is static decoding: the rows of a second draft are not nearly free"),
            _ => format!("{spec}, as the rows of {most} drafts are nearly free"),
        })
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        if view.block >= view.layout.blocks() {
            return Proposal::Done;
        }
        let View { canvas, layout, .. } = *view;
        if self.at_start.is_empty() {
            let at_start = |block| canvas.masks_in(layout.block(block));
            self.at_start.extend((0..layout.blocks()).map(at_start));
        }
        if self.rolling {
            self.trim(view);
        } else if self.block != view.block {
            self.drafts.clear();
        }
        self.block = view.block;
        // What every draft holds is predicted in none of them.
        let window = layout.block(view.block).start..layout.block(self.last_block(view)).end;
        let held = self.drafts.lane(0);
        for position in window.clone().filter(|&position| canvas.is_open_after(position, held)) {
            query.predict.push(position);
        }
        if query.predict.is_empty() {
            // As released, complete drafts are run as well.
            canvas.open_positions(window, &mut query.predict);
        }
        query.drafts = self.most > 1;
        query.branches.copy(&self.drafts);
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let (&Answer { plan, predictions, .. }, progress) = (answer, &mut *context.progress);
        take_musts(view, plan, predictions, progress);
        let taken = |position| progress.commits.iter().any(|commit| commit.position == position);
        let refused = plan.must.iter().any(|position| view.canvas.is_masked(position) && !taken(position));
        self.moves = !plan.must.is_empty();
        if self.moves && plan.predict.is_empty() {
            // Static decoding takes these alone; whatever else was predicted can only seed drafts of later steps.
            self.drafts.clear();
            let step = if self.place.block == view.block { self.place.step } else { 0 };
            self.target(view, answer, (0, &plan.hint), (&mut [], &mut 0));
            self.place = Standing { block: view.block, step: step + 1 };
            self.moves = false;
            self.draft(view, (answer, 0), (0, 0), &progress.commits);
        } else {
            self.follow(view, answer, progress);
        }
        if refused {
            // It is asked for again, of the whole canvas: no draft runs there.
            self.drafts.clear();
        }
        StepResult::Settled
    }
}
