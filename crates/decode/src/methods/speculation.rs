//! Causal self-speculation: drafts of the next tokens, and the causal pass that verifies them. A decoder says what drafts
//! them, and which token a verifying row settles.

use demask_step::{HeadAsk, Lanes, Position, Predictions, StepPlan};

use super::ar::predicted;
use crate::{
    error::{self, OptionsError},
    event::Commit,
    method::Setup,
    step::{Accepted, Judgement, Progress, Query},
};

/// Refuses caches that keep nothing of a causal pass.
pub(super) fn check(decoder: &str, setup: &Setup<'_>) -> Result<(), OptionsError> {
    let cache = &setup.options.cache;
    if cache.name() == "causal" {
        return Ok(());
    }
    Err(error::unfit(format_args!(
        "decoder {decoder} keeps the K/V of its causal passes, found cache {cache}: use cache causal"
    )))
}

/// Keys the draws of each position by the tokens before it, as in autoregressive decoding: drafts and checks of a position
/// share their noise.
pub(super) fn ask(ask: &mut HeadAsk) {
    ask.in_order = true;
}

/// Drafts of the next tokens of a canvas, from its first open position on.
#[derive(Debug)]
pub(super) struct Speculation {
    pub(super) drafts: Vec<Commit>,
}

impl Speculation {
    /// Makes a list with room for a number of drafts.
    pub(super) fn with_capacity(most: usize) -> Self {
        Self { drafts: Vec::with_capacity(most) }
    }

    /// Puts the drafts before a query's forward.
    pub(super) fn run(&self, query: &mut Query) {
        if !self.drafts.is_empty() {
            query.branches.commits.extend_from_slice(&self.drafts);
            query.branches.sizes.push(self.drafts.len());
        }
    }

    /// Takes a causal pass's verdict on the drafts: those that came true, and the token after them. `settle` returns
    /// the token of a position from its row's prediction, and from the draft there with its index, if there is one. The
    /// drafts are dropped.
    pub(super) fn verify(
        &mut self,
        plan: &StepPlan,
        (first, predictions): (Position, &Predictions),
        progress: &mut Progress,
        mut settle: impl FnMut(Commit, Option<(usize, Commit)>) -> Commit,
    ) {
        let judged = (first..).map_while(|position| predicted(predictions, position));
        for (index, found) in judged.enumerate() {
            let draft = self.drafts.get(index).copied();
            let commit = settle(found, draft.map(|draft| (index, draft)));
            progress.targets.push(Judgement { draft: 0, commit, by_guide: false });
            progress.commits.push(commit);
            if draft.is_none_or(|draft| draft.token != commit.token) {
                break;
            }
        }
        let held = progress.commits.iter().zip(&self.drafts);
        progress.accepted = held.take_while(|(commit, draft)| commit.token == draft.token).count();
        progress.rejected = self.drafts.len() - progress.accepted;
        if plan.lanes != Lanes::Canvas {
            progress.draft = Some(Accepted { lane: 0, commits: progress.accepted });
        }
        if !self.drafts.is_empty() {
            progress.drafted.commits.extend_from_slice(&self.drafts);
            // For those who watch, the canvas is a draft too: none of these tokens was known to be right.
            progress.drafted.sizes.extend([0, self.drafts.len()]);
        }
        self.drafts.clear();
    }
}
