//! A session under a constraint: commits without a forward, and their counts.

use demask_step::{Mask, NO_TOKEN, Position, Predictions, TokenId};

use super::{By, CANVAS, Session, request::MOST_FORCED};
use crate::{
    constraint::{ConstraintReceipt, Heard, TokenConstraint},
    event::Commit,
    layout::Layout,
    step::Progress,
};

impl Session {
    /// Adds the commits that the constraint forces after the forward's. If the forward's do not fit together, which a
    /// loop that knows no constraints may cause, only the leading ones that fit are taken.
    pub(super) fn close(&mut self) {
        let Some(enforcer) = &self.enforcer else { return };
        let Progress { commits, forced, fallbacks, replaced, .. } = &mut self.progress;
        let closed = loop {
            let changes = replaced.iter().map(|change| (change.position, change.token));
            match enforcer.closure(&self.canvas, commits, changes) {
                Some(closed) => break closed,
                None if replaced.is_empty() && commits.is_empty() => break Vec::new(),
                // Replacements were chosen together with the commits: they go first.
                None if !replaced.is_empty() => replaced.clear(),
                None => commits.truncate(commits.len() - 1),
            }
            *fallbacks += 1;
        };
        let closed = within(closed, &self.layout);
        self.tally.counts.constraint.fallbacks += *fallbacks;
        forced.extend(closed.iter().map(|commit| commit.position));
        commits.extend(closed);
    }

    /// Commits the tokens that the constraint forces from the start.
    pub(super) fn open_closed(&mut self) {
        let closed = self.enforcer.as_ref().and_then(|enforcer| enforcer.closure(&self.canvas, &[], []));
        for commit in within(closed.unwrap_or_default(), &self.layout) {
            self.commit(commit, By::Constraint);
        }
    }

    /// Completes the answer by the last predictions, if the constraint says so. Returns `true` if it did.
    pub(super) fn complete(&mut self) -> bool {
        let (Some(enforcer), Some(predictions)) = (&self.enforcer, &self.last) else { return false };
        let lane = self.progress.draft.map_or(0, |draft| draft.lane as usize);
        let heard = Heard { predictions, ask: &self.requests[CANVAS].ask };
        let Some(commits) = enforcer.complete(&self.canvas, lane, heard) else { return false };
        for commit in &commits {
            take(predictions, (lane, commit.position), &mut self.unconstrained);
        }
        for commit in commits {
            self.commit(commit, By::Forward);
        }
        self.canvas.close(self.canvas.len() as Position);
        self.look_back();
        true
    }

    /// Reports whether a constraint made a token another one than was predicted at its position, and counts it.
    pub(super) fn changes(&mut self, position: Position, token: TokenId) -> bool {
        let predicted = self.unconstrained.get(position as usize).filter(|&&predicted| predicted != NO_TOKEN);
        let changes = predicted.is_some_and(|&predicted| predicted != token);
        self.tally.counts.constraint.changed += usize::from(changes);
        changes
    }

    /// Returns the constraint's part of the receipt. None without a constraint.
    pub(super) fn constraint_receipt(&self) -> Option<ConstraintReceipt> {
        let TokenConstraint { automaton, source, .. } = &self.enforcer.as_ref()?.constraint;
        let (states, classes) = (automaton.states(), automaton.classes());
        Some(ConstraintReceipt { source: (**source).clone(), states, classes, counts: self.tally.counts.constraint })
    }
}

/// Leaves as many of the tokens that are forced as the next forward can read. Those that are left out stay forced.
fn within(mut closed: Vec<Commit>, layout: &Layout) -> Vec<Commit> {
    if layout.attention() == Mask::Causal {
        closed.truncate(MOST_FORCED);
    }
    closed
}

/// Notes the model's predictions where it decided: in a draft, or on the canvas. Nothing is noted without a constraint.
pub(super) fn note(progress: &Progress, predictions: &Predictions, last: &mut [TokenId]) {
    if last.is_empty() {
        return;
    }
    predictions.positions.iter().for_each(|position| take(predictions, (0, position), last));
    let targets = progress.targets.iter().filter(|target| !target.by_guide);
    targets.for_each(|target| take(predictions, (target.draft, target.commit.position), last));
}

/// Notes the prediction at a position of a lane, if there is one.
fn take(predictions: &Predictions, (lane, position): (usize, Position), last: &mut [TokenId]) {
    let token = predictions.index(lane, position).and_then(|index| predictions.tokens.get(index));
    let place = last.get_mut(position as usize);
    if let (Some(place), Some(&token)) = (place, token.filter(|&&token| token != NO_TOKEN)) {
        *place = token;
    }
}

/// Notes a guide's predictions where it decided: the token that it commits in the place of a draft is its own.
pub(super) fn note_guide(progress: &Progress, last: &mut [TokenId]) {
    for commit in progress.commits.iter().filter(|commit| !progress.drafted.commits.contains(commit)) {
        if let Some(place) = last.get_mut(commit.position as usize) {
            *place = commit.token;
        }
    }
}
