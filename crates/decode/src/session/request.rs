//! What a session asks of a network in one forward, sequence by sequence.

use demask_step::{
    Blend, BlendWith, HeadAsk, Keep, Mask, Positions, Sampling, SequenceId, SequenceNeeds, SequenceStep, StepPlan,
    TokenId,
};

use crate::{
    decoder::{Decoder, Drafts},
    options::SessionOptions,
};

/// One sequence's part of the forward that a session wants.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Index of the sequence in [`Session::needs`], or in [`Session::guide_needs`].
    ///
    /// [`Session::needs`]: super::Session::needs
    /// [`Session::guide_needs`]: super::Session::guide_needs
    pub sequence: usize,
    /// `[lanes, live]`: the tokens at the live positions.
    pub tokens: Vec<TokenId>,
    /// What to run.
    pub plan: StepPlan,
    /// What to answer.
    pub ask: HeadAsk,
    /// Classifier-free guidance; [`BlendWith::Step`] counts within these requests.
    pub blend: Option<Blend>,
}

impl Request {
    /// The request as a step of an open sequence. `first` is where the session's requests start in the batch.
    pub fn step(&self, sequence: SequenceId, first: usize) -> SequenceStep<'_> {
        let blend = self.blend.map(|blend| match blend.with {
            BlendWith::Step(index) => Blend { with: BlendWith::Step(first + index), ..blend },
            BlendWith::Stored => blend,
        });
        SequenceStep { sequence, tokens: &self.tokens, plan: &self.plan, ask: &self.ask, blend }
    }

    /// Makes room for every step of a sequence with these needs.
    fn reserve(&mut self, needs: &SequenceNeeds) {
        self.tokens.reserve(needs.rows);
        self.plan.reserve(needs.positions);
        self.ask.states.reserve(needs.drafts.max(1));
        self.ask.judge.reserve(needs.predictions * needs.judge_width);
    }

    /// Refills the tokens for the plan's live positions, lane after lane.
    pub(super) fn read(&mut self, tokens: &[TokenId], drafts: &Drafts) {
        self.tokens.clear();
        let live = &self.plan.live;
        for lane in 0..self.plan.lanes.count() {
            let start = self.tokens.len();
            self.tokens.extend(live.iter().map(|position| tokens[position as usize]));
            for commit in drafts.lane(lane) {
                if let Some(rank) = live.rank(commit.position) {
                    self.tokens[start + rank] = commit.token;
                }
            }
        }
    }
}

/// What the next forward of a sequence keeps of its last one's drafts, if the cache policy's slots have a history.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// None if the last forward ran no drafts.
    pub(super) lane: Option<u32>,
    pub(super) positions: Positions,
}

impl Kept {
    /// Of a sequence with so many positions.
    pub(super) fn with_capacity(positions: usize) -> Self {
        Self { lane: None, positions: Positions::with_capacity(positions) }
    }

    /// Hands it over to the plan of that forward; its list comes back with the plan.
    pub(super) fn fill(&mut self, plan: &mut StepPlan) {
        if let Some(lane) = self.lane.take() {
            plan.keep = Some(Keep { lane, positions: std::mem::take(&mut self.positions) });
        }
    }
}

/// One request for each sequence, with everything in it that never changes, and room for all that does.
pub(super) fn requests(options: &SessionOptions, decoder: &dyn Decoder, needs: &[SequenceNeeds]) -> Vec<Request> {
    let mut forbid: Vec<TokenId> = options.facts.mask_id.into_iter().chain(options.suppress.iter().copied()).collect();
    forbid.sort_unstable();
    forbid.dedup();
    let causal = options.facts.mask == Mask::Causal;
    let mut ask = HeadAsk {
        forbid,
        mute: options.mute.clone(),
        only_where: options.facts.mask_id.filter(|_| !causal),
        sampling: Sampling {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            order: options.filter_order,
            confidence: options.confidence,
            seed: options.seed,
        },
        ..HeadAsk::default()
    };
    decoder.ask(&mut ask);
    let request = |(sequence, needs): (usize, &SequenceNeeds)| {
        let mut request = Request { sequence, ask: ask.clone(), ..Request::default() };
        request.reserve(needs);
        request
    };
    needs.iter().enumerate().map(request).collect()
}

/// The guide's request, with everything in it that never changes: its best token, greedy, wherever it judges.
pub(super) fn guide_request(options: &SessionOptions, needs: Option<&SequenceNeeds>) -> Request {
    let (Some(guide), Some(needs)) = (&options.guide, needs) else { return Request::default() };
    // The canvas can hold neither its own mask nor what is suppressed in it; ids are compared where they mean the same.
    let own = options.facts.mask_id.into_iter().chain(options.suppress.iter().copied());
    let mut forbid: Vec<TokenId> =
        own.filter(|&token| guide.shared_vocabulary && (token as usize) < guide.facts.vocab).collect();
    forbid.sort_unstable();
    forbid.dedup();
    let mut request = Request { ask: HeadAsk { forbid, ..HeadAsk::default() }, ..Request::default() };
    request.reserve(needs);
    request
}
