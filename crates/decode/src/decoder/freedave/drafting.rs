//! The state machine of FreeDave: verifies the drafts of a forward, and makes those of the next.

use demask_step::{HeadAsk, Lanes, Position, Positions, Predictions, SequenceNeeds, StepPlan};

use super::{
    super::{
        Accepted, Answer, Decoder, Drafted, Drafts, Forecast, Intent, Judgement, Progress, Query, Turn, Turned, View,
        take_musts,
    },
    acceptance::{Acceptance, Place},
    choice::{AsMany, Choice, Choose, Offer, Priced, Reach},
};
use crate::{
    cache::CachePolicy,
    event::Commit,
    layout::Layout,
    resolve::Setup,
    schedule::{Around, Clock, Tick},
    transfer::{Candidate, LaneView, Ranking, State, Transfer},
};

/// Position of static decoding: the block, and its next step.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    block: usize,
    step: usize,
}

#[derive(Debug)]
pub(super) struct Drafting {
    rule: Box<dyn Transfer>,
    ranking: Ranking,
    clock: Clock,
    /// Most drafts of one forward.
    most: usize,
    rolling: bool,
    pub(super) eager: bool,
    /// Positions predicted, and positions from the first to the last live row, both at most.
    window: usize,
    span: usize,
    /// Reach of each forward, and of the next one.
    reaches: Vec<Reach>,
    reach: Reach,
    /// End of the positions that the next forward predicts.
    end: Position,
    pub(super) chooser: Box<dyn Choose>,
    pub(super) chooses: bool,
    /// Choices for the next forward, with their prices.
    choices: Vec<Priced>,
    chances: Vec<f64>,
    acceptance: Acceptance,
    /// Bucket of each draft.
    buckets: Vec<usize>,
    /// Sequences that run in each forward.
    pub(super) sequences: usize,
    /// Rows, keys and head rows of the last forward, and what all of them took and gave.
    last: (usize, usize, usize),
    spent: f64,
    gained: usize,
    /// Forwards by the number of drafts that ran.
    told: Vec<usize>,
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
    /// The drafts to run next.
    drafts: Drafts,
    candidates: Vec<Candidate>,
}

impl Drafting {
    /// One with up to so many drafts of a forward, rolling or not, and what they may reach; it has no other settings.
    pub(super) fn new(
        rule: Box<dyn Transfer>,
        setup: &Setup<'_>,
        cache: &dyn CachePolicy,
        (most, rolling): (usize, bool),
        reaches: Vec<Reach>,
    ) -> Self {
        let layout = setup.layout;
        let reach = reaches.last().copied().unwrap_or(Reach { ahead: 0, whole: true });
        let ahead = reaches.iter().map(|reach| reach.ahead).max().unwrap_or(0);
        let window = ((ahead + 1) * layout.block_length()).min(layout.len());
        let lanes = most.min(window + 1);
        let mut drafts = Drafts::default();
        drafts.reserve(window, lanes);
        Self {
            rule,
            ranking: setup.ranking.clone(),
            clock: setup.clock.clone(),
            most,
            rolling,
            eager: false,
            window,
            span: cache.draft_span(layout, ahead + 1),
            choices: Vec::with_capacity(lanes * reaches.len()),
            reaches,
            reach,
            end: 0,
            chooser: Box::new(AsMany),
            chooses: false,
            chances: Vec::with_capacity(lanes),
            acceptance: Acceptance::new(),
            buckets: Vec::with_capacity(lanes),
            sequences: 1,
            last: (0, 0, 0),
            spent: 0.0,
            gained: 0,
            told: vec![0; lanes + 1],
            subset: false,
            parallel: false,
            history: false,
            starts_wide: false,
            moves: false,
            at_start: Vec::with_capacity(layout.blocks()),
            block: 0,
            place: Standing::default(),
            drafts,
            candidates: Vec::with_capacity(window),
        }
    }

    /// Counts a forward by its drafts; 0: it ran the canvas.
    fn count(&mut self, lanes: Lanes) {
        let drafts = if let Lanes::Drafts(drafts) = lanes { drafts as usize } else { 0 };
        if let Some(forwards) = self.told.get_mut(drafts) {
            *forwards += 1;
        }
    }

    /// Tick of static decoding at a place whose block has this many masks left; all blocks behind it are as they were
    /// at the start. Steps that the clock lets pass without a token change no prediction: they are left out.
    fn tick(&self, place: &mut Standing, masks: usize) -> Tick {
        let (before, from) = self.at_start.split_at(place.block);
        let around = Around {
            blocks_before: before.iter().filter(|&&masks| masks > 0).count(),
            blocks_after: from[1..].iter().filter(|&&masks| masks > 0).count(),
            masks_after: from[1..].iter().sum(),
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
    fn target(&mut self, view: &View<'_>, predictions: &Predictions, lane: usize, among: &Positions) -> usize {
        let (canvas, layout) = (view.canvas, view.layout);
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
        let mut place = if self.place.block == block { self.place } else { Standing { block, step: 0 } };
        let state = State::from(self.tick(&mut place, masks));
        self.place = place;
        self.rule.choose(&state, &mut self.candidates[..within]).min(within)
    }

    /// The largest draft behind `lane` that agrees with the first `taken` candidates, which were predicted in it.
    fn agreeing(&self, lane: usize, taken: usize) -> Option<usize> {
        let Drafts { commits, sizes, .. } = &self.drafts;
        let chosen = &self.candidates[..taken];
        let agrees = |&next: &usize| {
            let added = &commits[sizes[lane]..sizes[next]];
            let equal = |commit: &Commit| {
                chosen.iter().any(|chosen| (chosen.position, chosen.token) == (commit.position, commit.token))
            };
            !added.is_empty() && (self.subset || added.len() == taken) && added.iter().all(equal)
        };
        (lane + 1..sizes.len()).rev().find(agrees)
    }

    /// Follows the drafts as long as they agree; returns the last one, and how many of its candidates come next.
    fn verify(
        &mut self,
        view: &View<'_>,
        predictions: &Predictions,
        among: &Positions,
        progress: &mut Progress,
    ) -> (usize, usize) {
        let mut lane = 0;
        progress.commits.extend_from_slice(self.drafts.lane(lane));
        progress.drafted.copy(&self.drafts);
        loop {
            let taken = self.target(view, predictions, lane, among);
            let target = |&taken: &Candidate| Judgement { draft: lane, commit: taken.into(), by_guide: false };
            progress.targets.extend(self.candidates[..taken].iter().map(target));
            let agreed = self.agreeing(lane, taken);
            let ran = taken > 0 && lane + 1 < self.drafts.sizes.len();
            if let Some(&bucket) = self.buckets.get(lane + 1).filter(|_| ran) {
                self.acceptance.learn(bucket, agreed.is_some());
            }
            let Some(next) = agreed else { return (lane, taken) };
            let added = &self.drafts.commits[self.drafts.sizes[lane]..self.drafts.sizes[next]];
            let drafted = |candidate: &&Candidate| added.iter().any(|commit| commit.position == candidate.position);
            progress.commits.extend(self.candidates[..taken].iter().filter(drafted).map(|&taken| Commit::from(taken)));
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
    /// first draft holds `known` of them. They are of the canvas as it was predicted, or `stale`.
    fn draft(&mut self, view: &View<'_>, first: usize, known: usize, stale: bool) {
        self.drafts.clear();
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
            let step = if self.parallel { 1 } else { self.tick(&mut place, masks).quota.max(1) };
            place.step += 1;
            size += step.min(masks);
            self.drafts.sizes.push(size);
        }
        self.sort_into_buckets(first, stale);
        let empty = self.drafts.sizes.last().is_none_or(|&size| size == 0);
        if empty && (self.rolling || self.drafts.commits.is_empty()) {
            // The canvas itself.
            self.drafts.clear();
        }
    }

    /// Finds the bucket of each draft among the candidates from `first` on.
    fn sort_into_buckets(&mut self, first: usize, stale: bool) {
        let candidates = &self.candidates[first..];
        let block = candidates.first().map_or(0, |candidate| candidate.block);
        self.buckets.clear();
        // Of the first draft nothing is to be verified.
        self.buckets.push(usize::MAX);
        for (behind, sizes) in self.drafts.sizes.windows(2).enumerate() {
            let added = &candidates[sizes[0]..sizes[1]];
            let ahead = stale || added.iter().any(|candidate| candidate.block != block);
            let place = if ahead { Place::Ahead } else { Place::behind(behind) };
            self.buckets.push(Acceptance::bucket(added, candidates.get(sizes[1]), place));
        }
    }

    /// The last block that a forward of this reach predicts while `block` is the current one.
    fn last_block(view: &View<'_>, block: usize, reach: Reach) -> usize {
        (block + reach.ahead).min(view.layout.blocks() - 1)
    }

    /// Lists what the next forward may draft. A draft that leaves nothing to predict is not run: what it holds follows
    /// from the one before.
    fn price(&mut self, view: &View<'_>, forecast: &Forecast<'_>) {
        self.choices.clear();
        let none = [0];
        let sizes = if self.drafts.is_empty() { &none[..] } else { &self.drafts.sizes };
        for &reach in &self.reaches {
            let last = Self::last_block(view, view.block, reach);
            let masks_of = |block: usize| view.canvas.masks_in(view.layout.block(block));
            let all: usize = (view.block..=last).map(masks_of).sum();
            // The first block that the draft leaves incomplete, and the masks up to its end.
            let (mut block, mut masks) = (view.block, masks_of(view.block));
            let (mut rows, mut keys, mut head) = (0, 0, 0);
            for (index, &size) in sizes.iter().enumerate().take_while(|&(_, &size)| size < all) {
                while masks <= size {
                    block += 1;
                    masks += masks_of(block);
                }
                let (end, open) = if reach.whole { (last, all - size) } else { (block, masks - size) };
                let extent = forecast.cache.extent(view, view.layout.block(end).end);
                (rows, keys, head) = (rows + extent.rows, keys.max(extent.keys), head + open);
                let seconds = forecast.curve.seconds(rows * self.sequences, keys, head);
                self.choices.push(Priced { choice: Choice { drafts: index + 1, reach }, seconds });
            }
        }
    }

    /// Leaves the drafts that are chosen, and says where each of them ends.
    fn apply(&mut self, view: &View<'_>, Choice { drafts, reach }: Choice) {
        self.reach = reach;
        let last = Self::last_block(view, view.block, reach);
        self.end = view.layout.block(if reach.whole { last } else { view.block }).end;
        self.drafts.ends.clear();
        self.drafts.sizes.truncate(drafts);
        if drafts == 1 {
            // The canvas itself.
            self.drafts.clear();
        } else if !reach.whole {
            let (mut block, mut masks) = (view.block, view.canvas.masks_in(view.layout.block(view.block)));
            for &size in &self.drafts.sizes {
                while masks <= size && block < last {
                    block += 1;
                    masks += view.canvas.masks_in(view.layout.block(block));
                }
                self.end = view.layout.block(block).end;
                self.drafts.ends.push(self.end);
            }
            if self.drafts.ends.first() == Some(&self.end) {
                self.drafts.ends.clear();
            }
        }
    }

    /// Takes what the drafts and the predictions in the accepted one say, and drafts what comes next.
    fn follow(&mut self, view: &View<'_>, plan: &StepPlan, predictions: &Predictions, progress: &mut Progress) {
        let (lane, taken) = self.verify(view, predictions, &plan.predict, progress);
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
            self.draft(view, taken, 0, false);
        } else {
            self.follow_reference(view, taken, progress);
        }
    }

    /// Follows the released program: the known step is the first draft, unless it ends the block.
    fn follow_reference(&mut self, view: &View<'_>, taken: usize, progress: &mut Progress) {
        let block = view.layout.block(view.block);
        let done = progress.commits.iter().filter(|commit| block.contains(&commit.position)).count();
        let left = view.canvas.masks_in(block) - done;
        let last = view.block + 1 >= view.layout.blocks();
        let known = if left == 0 {
            // The block is complete, and what comes next of the one behind it is known.
            self.eager
        } else {
            // The program, which knows no other static step than one token, looks at a single mask only.
            left <= 1 && (last || !self.eager) || left > 1 && (self.history || !self.parallel) && taken >= left
        };
        if known {
            self.take(taken, progress);
        }
        if known || left == 0 {
            self.drafts.clear();
        } else {
            self.place.step += 1;
            self.draft(view, 0, taken, false);
        }
    }
}

impl Decoder for Drafting {
    fn ask(&self, ask: &mut HeadAsk) {
        self.ranking.ask(ask);
        self.rule.ask(ask);
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceNeeds) {
        let drafts = self.most.min(self.window + 1);
        needs.drafts = needs.drafts.max(drafts);
        needs.draft_span = needs.draft_span.max(self.span);
        // The cache policy counts the rows of one block that is predicted.
        let ahead = (needs.rows + self.window - layout.block_length().min(self.window)).min(layout.len());
        needs.rows = needs.rows.max(ahead).max(drafts * self.span);
        needs.predictions = drafts * needs.predictions.max(self.window);
    }

    fn look_ahead(&mut self, view: &View<'_>, forecast: &Forecast<'_>) {
        if !self.rolling || view.block >= view.layout.blocks() {
            return;
        }
        let (rows, keys, head) = std::mem::take(&mut self.last);
        if rows > 0 {
            self.spent += forecast.curve.seconds(rows, keys, head);
        }
        if self.drafts.commits.iter().any(|commit| !view.canvas.is_masked(commit.position)) {
            // Something else stands there now.
            self.drafts.clear();
        }
        self.price(view, forecast);
        self.chances.clear();
        let acceptance = &self.acceptance;
        self.chances.extend(self.buckets.iter().skip(1).map(|&bucket| acceptance.estimate(bucket)));
        let Self { choices, chances, gained, spent, chooser, .. } = self;
        let chosen = chooser.choose(&Offer { choices, chances, gained: *gained, spent: *spent });
        if let Some(&Priced { choice, .. }) = self.choices.get(chosen).or(self.choices.last()) {
            self.apply(view, choice);
        }
    }

    fn chooses(&self) -> bool {
        self.chooses
    }

    fn drafted(&self) -> Option<Drafted> {
        Some(Drafted { forwards: self.told.clone(), verified: self.acceptance.told() })
    }

    fn intend(&mut self, view: &View<'_>, query: &mut Query) -> Intent {
        if view.block >= view.layout.blocks() {
            return Intent::Done;
        }
        let View { canvas, layout, .. } = *view;
        if self.at_start.is_empty() {
            let at_start = |block| layout.block(block).filter(|&position| !canvas.is_given(position)).count();
            self.at_start.extend((0..layout.blocks()).map(at_start));
        }
        if self.block != view.block && !self.rolling {
            self.drafts.clear();
        }
        self.block = view.block;
        if !self.rolling {
            self.end = layout.block(Self::last_block(view, view.block, self.reach)).end;
        }
        // What every draft holds is predicted in none of them.
        let (window, held) = (layout.block(view.block).start..self.end, self.drafts.lane(0));
        for position in window.clone().filter(|&position| canvas.is_open_after(position, held)) {
            query.predict.push(position);
        }
        if query.predict.is_empty() {
            // As released, complete drafts are run as well.
            canvas.open_positions(window, &mut query.predict);
        }
        query.drafts = self.most > 1;
        query.branches.copy(&self.drafts);
        Intent::Predict
    }

    fn absorb(&mut self, view: &View<'_>, answer: &Answer<'_>, turn: &mut Turn<'_>) -> Turned {
        let (&Answer { plan, predictions, .. }, progress) = (answer, &mut *turn.progress);
        let asked = plan.predictions() * plan.lanes.count();
        self.last = (plan.rows() * self.sequences, plan.visible as usize, asked);
        self.count(plan.lanes);
        take_musts(view, plan, predictions, progress);
        let taken = |position| progress.commits.iter().any(|commit| commit.position == position);
        let refused = plan.must.iter().any(|position| view.canvas.is_masked(position) && !taken(position));
        self.moves = !plan.must.is_empty();
        if self.moves && plan.predict.is_empty() {
            // Static decoding takes these alone; whatever else was predicted can only seed drafts of later steps.
            self.drafts.clear();
            let step = if self.place.block == view.block { self.place.step } else { 0 };
            self.target(view, predictions, 0, &plan.hint);
            self.place = Standing { block: view.block, step: step + 1 };
            self.moves = false;
            self.draft(view, 0, 0, true);
        } else {
            self.follow(view, plan, predictions, progress);
        }
        if refused {
            // It is asked for again, of the whole canvas: no draft runs there.
            self.drafts.clear();
        }
        self.gained += progress.commits.len();
        Turned::Settled
    }
}
