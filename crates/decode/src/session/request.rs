//! Requests of a session to a network in one forward, sequence by sequence.

use demask_step::{
    ForwardInput, HeadAsk, HeadRequest, Mask, Positions, Retain, Sampling, SequenceLimits, SequenceSpec, StepPlan,
    TokenId,
};

use crate::{
    layout::Layout,
    method::SessionOptions,
    policy::CachePolicy,
    step::{Decoder, Drafts},
};

/// Refills a request's tokens for its plan's live positions, lane after lane.
pub(super) fn read(request: &mut ForwardInput, tokens: &[TokenId], drafts: &Drafts) {
    let ForwardInput { tokens: rows, plan, .. } = request;
    rows.clear();
    for lane in 0..plan.lanes.count() {
        let start = rows.len();
        let live = plan.query.as_slice();
        rows.extend(live.iter().map(|&position| tokens[position as usize]));
        for commit in drafts.lane(lane) {
            if let Some(rank) = plan.query.rank(commit.position) {
                rows[start + rank] = commit.token;
            }
        }
    }
}

/// Drafts of the last forward that the next forward of a sequence keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct RetainedDraft {
    /// Lane of the kept draft; none if nothing of the last forward is kept.
    pub(super) lane: Option<u32>,
    pub(super) positions: Positions,
}

impl RetainedDraft {
    /// Creates the record of a sequence with a number of positions.
    pub(super) fn with_capacity(positions: usize) -> Self {
        Self { lane: None, positions: Positions::with_capacity(positions) }
    }

    /// Hands it over to the plan of that forward; its list comes back with the plan.
    pub(super) fn fill(&mut self, plan: &mut StepPlan) {
        if let Some(lane) = self.lane.take() {
            plan.retain = Some(Retain { lane, positions: std::mem::take(&mut self.positions) });
        }
    }
}

impl SessionOptions {
    /// Returns the part of the head's request that does not depend on the decoder.
    pub(crate) fn wanted(&self) -> HeadRequest {
        HeadRequest {
            // Forbidden alone: the mask keeps its share of the softmax, as in all families' own programs.
            banned: self.facts.mask_id.into_iter().chain(self.suppress.iter().copied()).collect(),
            zero_confidence: self.zero_confidence.iter().copied().collect(),
            sampling: Sampling {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                order: self.filter_order,
                confidence: self.traits().confidence.unwrap_or(self.confidence),
                seed: self.seed,
            },
            ..HeadRequest::default()
        }
    }
}

/// Tokens that a constraint forces at once, at most, where each has a row of its own: with the next forward's.
pub(super) const MOST_FORCED: usize = 32;

/// Needs of each sequence on the diffusion model: the canvas's and, with guidance, the unconditional one's.
pub(super) fn needs(
    options: &SessionOptions,
    decoder: &dyn Decoder,
    cache: &dyn CachePolicy,
    layout: &Layout,
) -> Vec<SequenceLimits> {
    let guided = options.cfg_scale > 0.0;
    let mut needs = cache.needs(layout);
    decoder.reserve(layout, &mut needs);
    needs.residual &= guided;
    needs.top = needs.top.max(options.top_logprobs.unwrap_or(0));
    needs.logits |= options.adjustments.first().is_some();
    if options.constraint.is_some() {
        needs.logits = true;
        // What is forced after a forward has to be read by the next one: of blocks, all that may follow. Fewer at a time would
        // begin a block with other masks in it than another method finds.
        needs.rows += match layout.attention() {
            Mask::Full => 0,
            Mask::Causal => MOST_FORCED.min(layout.len().saturating_sub(needs.rows)),
            _ => layout.gen_length(),
        };
    }
    // The unconditional sequence asks nothing of the head.
    let unconditional = guided.then(|| SequenceLimits { predictions: 0, residual: false, ..needs.clone() });
    [Some(needs), unconditional].into_iter().flatten().collect()
}

/// One request for each sequence, with everything in it that never changes, and room for all that does.
pub(super) fn requests(options: &SessionOptions, decoder: &dyn Decoder, needs: &[SequenceLimits]) -> Vec<ForwardInput> {
    let causal = options.facts.mask == Mask::Causal;
    let only_where = options.facts.mask_id.filter(|_| !causal);
    let mut ask = HeadAsk { wanted: options.wanted(), only_where, ..HeadAsk::default() };
    decoder.ask(&mut ask);
    ask.wanted.top = ask.wanted.top.max(options.top_logprobs.unwrap_or(0));
    ask.wanted.logits |= options.constraint.is_some() || options.adjustments.first().is_some();
    let request = |(sequence, needs): (usize, &SequenceLimits)| {
        let mut request = ForwardInput { sequence, ask: ask.clone(), ..ForwardInput::default() };
        request.reserve(needs);
        request
    };
    needs.iter().enumerate().map(request).collect()
}

/// The request of the decoder's helper, with everything in it that never changes: its best token, greedy, wherever it
/// judges.
pub(super) fn helper_request(options: &SessionOptions, helpers: &[SequenceSpec]) -> ForwardInput {
    let (Some(guide), Some(need)) = (&options.guide, helpers.first()) else { return ForwardInput::default() };
    // The canvas can hold neither its own mask nor what is suppressed in it; ids are compared where they mean the same.
    let own = options.facts.mask_id.into_iter().chain(options.suppress.iter().copied());
    let banned = own.filter(|&token| guide.shared_vocabulary && (token as usize) < guide.facts.vocab).collect();
    let ask = HeadRequest { banned, ..HeadRequest::default() }.into();
    let sequence = 1 + usize::from(options.cfg_scale > 0.0);
    let mut request = ForwardInput { sequence, ask, ..ForwardInput::default() };
    request.reserve(&need.limits);
    request
}
