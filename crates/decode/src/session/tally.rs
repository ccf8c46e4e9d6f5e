//! Counts of a session, and its receipt.

use demask_step::{ForwardInput, Lanes, Predictions};

use crate::{
    event::{Commit, Counts, Event},
    legality::Exactness,
    method::SessionOptions,
    receipt::{DecodingReceipt, Rounds},
    step::{Judgement, Progress},
};

/// A forward of the diffusion model.
#[derive(Debug, Clone, Copy, Default)]
struct LastForward {
    index: usize,
    rows: usize,
    drafts: usize,
}

/// The counts of a session.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    /// Forwards with drafts by the number of draft tokens accepted.
    acceptance: Vec<usize>,
    /// The same by the number of their draft tokens.
    drafted: Vec<usize>,
    last: LastForward,
}

impl Tally {
    /// One with room for so many draft tokens.
    pub(super) fn with_capacity(drafted: usize) -> Self {
        let [acceptance, drafted] = [drafted; 2].map(Vec::with_capacity);
        Self { counts: Counts::default(), acceptance, drafted, last: LastForward::default() }
    }

    /// Index of the last forward; 0 before the first.
    pub(super) fn step(&self) -> usize {
        self.counts.forwards.saturating_sub(1)
    }

    /// Counts a forward of the diffusion model that ran these requests, the canvas's first.
    pub(super) fn forward(&mut self, requests: &[ForwardInput], nfe: usize, predictions: &[Predictions]) {
        let drafts = match requests.first().map(|request| request.plan.lanes) {
            Some(Lanes::Drafts(drafts)) => drafts as usize,
            Some(Lanes::Canvas) | None => 0,
        };
        let rows = requests.iter().map(|request| request.tokens.len()).sum();
        self.last = LastForward { index: self.counts.forwards, rows, drafts };
        self.counts.forwards += 1;
        self.counts.nfe += nfe;
        self.counts.rows += rows;
        for prediction in predictions {
            self.counts.cost += prediction.cost;
        }
    }

    /// Counts a forward of the guide.
    pub(super) fn guide(&mut self, request: &ForwardInput, predictions: &[Predictions]) {
        let counts = &mut self.counts.guide;
        counts.nfe += 1;
        counts.rows += request.tokens.len();
        for prediction in predictions {
            counts.cost += prediction.cost;
        }
    }

    /// Counts what came of the last forward.
    pub(super) fn progress(&mut self, progress: &Progress, has_guide: bool) {
        if has_guide {
            self.counts.guide.accepted += progress.accepted;
            self.counts.guide.rejected += progress.rejected;
        }
        if self.last.drafts > 0 {
            count(&mut self.acceptance, progress.accepted);
            count(&mut self.drafted, progress.accepted + progress.rejected);
        }
    }

    /// Emits the drafts that the last forward verified, and the predictions in them.
    pub(super) fn tell_drafts(&self, progress: &Progress, events: &mut Vec<Event>) {
        let step = self.last.index;
        let Progress { drafted, targets, accepted, .. } = progress;
        let known = drafted.sizes.first().copied().unwrap_or(0);
        for (index, &Commit { position, token, confidence }) in drafted.commits.iter().enumerate() {
            // What no draft holds was a candidate and no more.
            let Some(draft) = drafted.sizes.iter().position(|&size| size > index) else { break };
            let accepted = index < known + accepted;
            events.push(Event::Draft { step, draft, position, token, confidence, accepted });
        }
        // Without drafts, what was predicted is what is committed.
        for &Judgement { draft, commit, by_guide } in targets.iter().filter(|_| !drafted.is_empty()) {
            let Commit { position, token, confidence } = commit;
            events.push(Event::Target { step, draft, position, token, confidence, by_guide });
        }
    }

    /// The event that ends the last forward.
    pub(super) fn event(&self, progress: &Progress, masks: usize, settled: usize) -> Event {
        let LastForward { index, rows, drafts } = self.last;
        let Progress { accepted, rejected, .. } = *progress;
        let (nfe, merged) = (self.counts.nfe, 0);
        Event::Step { step: index, nfe, rows, drafts, accepted, rejected, masks, settled, merged }
    }

    /// The receipt of an answer of so many tokens, decoded in so many steps and blocks of this length.
    pub(super) fn receipt(
        &self,
        options: &SessionOptions,
        decoder: String,
        exactness: Exactness,
        (steps, block_length): (usize, usize),
        generated_tokens: usize,
    ) -> DecodingReceipt {
        let Counts { nfe, forwards, cached, preempted, recomputed, replaced, rows, cost, .. } = self.counts;
        DecodingReceipt {
            decoder,
            cache: options.cache.to_string(),
            remasking: options.remasking.name(),
            schedule: options.schedule.name(),
            steps,
            block_length,
            exactness,
            seed: options.seed,
            nfe,
            forwards,
            generated_tokens,
            constraint: None,
            given_up: None,
            out_of_memory: false,
            preempted,
            recomputed_rows: recomputed,
            tokens_per_nfe: if nfe == 0 { 0.0 } else { generated_tokens as f64 / nfe as f64 },
            rows,
            cached_tokens: cached,
            acceptance: self.acceptance.clone(),
            rounds: Rounds::new(forwards, &self.drafted, &self.acceptance),
            replaced,
            computed_rows: cost.computed_rows.round() as u64,
            head_rows: cost.head_rows,
            flops: cost.flops(),
        }
    }
}

/// Counts one forward more of this number.
fn count(forwards: &mut Vec<usize>, number: usize) {
    forwards.resize(forwards.len().max(number + 1), 0);
    forwards[number] += 1;
}
