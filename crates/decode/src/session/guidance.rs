//! The unconditional sequence of classifier-free guidance, beside the canvas.

use demask_step::{Blend, BlendWith, ForwardInput, TokenId};

use super::request::{RetainedDraft, read};
use crate::{
    policy::CachePolicy,
    step::{Drafts, Query, View},
};

/// The unconditional sequence of the next forward.
pub(super) struct Unconditional<'a> {
    pub(super) request: &'a mut ForwardInput,
    pub(super) retained: &'a mut RetainedDraft,
    pub(super) tokens: &'a [TokenId],
}

impl Unconditional<'_> {
    /// Completes its request beside the canvas's, whose plan is complete: for the forward that answers the query, or for
    /// maintenance, which is the same rows for both. Returns whether it runs.
    pub(super) fn fill(
        self,
        cache: &mut dyn CachePolicy,
        view: &View<'_>,
        query: Option<&Query>,
        canvas: &mut ForwardInput,
        drafts: &Drafts,
    ) -> bool {
        let plan = &mut self.request.plan;
        plan.clear();
        let runs = if let Some(query) = query {
            cache.guide(view, query, &mut canvas.plan, plan)
        } else {
            plan.clone_from(&canvas.plan);
            true
        };
        plan.lanes = canvas.plan.lanes;
        if runs {
            self.retained.fill(plan);
        }
        plan.predict.clear();
        plan.must.clear();
        plan.hint.clear();
        read(self.request, self.tokens, drafts);
        runs
    }
}

/// Blend of the canvas with the unconditional sequence that stands at this place of the group, or with the difference
/// that was stored when it last ran.
pub(super) fn blend(scale: f32, running: Option<usize>) -> Blend {
    Blend { scale, with: running.map_or(BlendWith::Stored, BlendWith::Behind) }
}
