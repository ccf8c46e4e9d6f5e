//! Self-speculation: a model with attention by pass drafts a window in one pass that sees ahead, and verifies it in one
//! causal pass; the tokens are those of its own autoregressive decoding (Nemotron-Labs-Diffusion `linear_spec_generate`;
//! specs/families.md#5).

use demask_step::{HeadAsk, MaskKind, Position, Positions, SequenceLimits};

use super::{
    ar::{Ar, predicted},
    speculation::{self, Speculation},
};
use crate::{
    constraint::LaneOf,
    error::OptionsError,
    event::Commit,
    layout::Layout,
    method::{DecoderKind, DecoderLoop, DecoderTraits, Promise, Setup},
    parameters,
    policy::CachePolicy,
    spec::Kind,
    step::{Answer, Decoder, Proposal, Query, StepContext, StepResult, View},
};

parameters! {
    /// Drafts of one pass that sees ahead, verified in one causal pass.
    pub struct SelfSpec {
        /// rows of a window: the last settled token, and drafts after it
        pub block: usize = 32, Kind::count(2, 1024);
        /// drafts below this confidence are masks again in the next drafting pass; 0: one pass drafts everything
        pub tau: f32 = 0.0, Kind::number(0.0, 1.0);
    }
}

impl DecoderKind for SelfSpec {
    const NAME: &'static str = "selfspec";
    const SUMMARY: &'static str =
        "drafts of one pass that sees ahead, verified in one causal pass; the tokens of ar of the same weights";
    const SOURCE: &'static str = "Nemotron-Labs-Diffusion linear_spec_generate; specs/families.md#5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        // A pass that commits one draft at least, until the window is full.
        let passes = if self.tau > 0.0 { self.block } else { 1 };
        let promise = Promise::SameAs(Ar::default().into());
        DecoderTraits { promise, causal: true, idle: passes, ..DecoderTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        speculation::check(Self::NAME, setup)
    }
}

impl DecoderLoop for SelfSpec {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Speculating {
            response: setup.layout.response() as Position,
            window: self.block,
            tau: self.tau,
            speculation: Speculation::with_capacity(self.block),
            found: Vec::with_capacity(self.block),
            role: Role::Read,
        })
    }
}

/// Purpose of the pending forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// One token, as autoregressive decoding has it: the first, and the last of the canvas.
    Read,
    Draft,
    Verify,
}

#[derive(Debug)]
struct Speculating {
    /// Start of the response: the token there is predicted by the prompt's last row.
    response: Position,
    /// Rows of a cycle: the last settled token, and drafts after it.
    window: usize,
    tau: f32,
    /// Drafts of this cycle, by position from the first mask on once all are there.
    speculation: Speculation,
    /// Predictions of one drafting pass.
    found: Vec<Commit>,
    role: Role,
}

impl Speculating {
    /// Keeps the predictions that a drafting pass is sure of, or the best one.
    fn draft(&mut self, view: &View<'_>, asked: &Positions, answer: &Answer<'_>) {
        let predictions = answer.predictions;
        let Self { speculation: Speculation { drafts }, found, tau, .. } = self;
        found.clear();
        let open = |&position: &Position| drafts.iter().all(|draft| draft.position != position);
        found.extend(asked.iter().filter(open).filter_map(|position| predicted(predictions, position)));
        let sure = |draft: &&Commit| draft.confidence >= *tau;
        if found.iter().any(|draft| sure(&draft)) {
            found.retain(|draft| sure(&draft));
        } else {
            let surer = |best: Commit, next: Commit| if next.confidence > best.confidence { next } else { best };
            let best = found.iter().copied().reduce(surer);
            found.clear();
            found.extend(best);
        }
        if let Some(constraint) = answer.constraint {
            constraint.fit(LaneOf { canvas: view.canvas, index: 0, filled: drafts }, &[], found);
        }
        drafts.extend_from_slice(found);
        drafts.sort_unstable_by_key(|draft| draft.position);
    }
}

impl Decoder for Speculating {
    fn ask(&self, ask: &mut HeadAsk) {
        speculation::ask(ask);
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        let window = self.window.min(layout.len());
        needs.predictions = needs.predictions.max(window);
        needs.rows = needs.rows.max(window);
        needs.drafts = 1;
        needs.draft_span = window;
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        let (next, length) = (view.canvas.first_open() as Position, view.canvas.len() as Position);
        if next >= length {
            return Proposal::Done;
        }
        let end = length.min(next - 1 + self.window as Position);
        if next == self.response || end <= next || next + 1 == length {
            self.role = Role::Read;
            query.predict.push(next);
            return Proposal::Predict;
        }
        if self.speculation.drafts.len() < (end - next) as usize {
            self.role = Role::Draft;
            query.ahead = true;
            query.predict.set_range(next..end);
        } else {
            self.role = Role::Verify;
            query.predict.set_range(next..length.min(end + 1));
        }
        self.speculation.run(query);
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let next = view.canvas.first_open() as Position;
        match self.role {
            Role::Read => context.progress.commits.extend(predicted(answer.predictions, next)),
            Role::Draft => self.draft(view, &answer.plan.hint, answer),
            Role::Verify => {
                let pass = (next, answer.predictions);
                self.speculation.verify(answer.plan, pass, context.progress, |found, _| found);
            }
        }
        StepResult::Settled
    }
}
