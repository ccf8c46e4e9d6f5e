//! A session under a constraint: what is committed without a forward, and what is counted.

use demask_step::{Mask, NO_TOKEN, Position, Predictions, TokenId};

use super::{By, CANVAS, Session, request::MOST_FORCED};
use crate::{
    constraint::{ConstraintReceipt, Heard, TokenConstraint},
    event::Commit,
    layout::Layout,
    turn::Progress,
};

impl Session {
    /// Adds what the constraint leaves no choice about after the forward's commits. Should these not fit together, as those
    /// of a loop that knows no constraints may, the first of them are taken that do.
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

    /// Commits what the constraint leaves no choice about from the start.
    pub(super) fn open_closed(&mut self) {
        let closed = self.enforcer.as_ref().and_then(|enforcer| enforcer.closure(&self.canvas, &[], []));
        for commit in within(closed.unwrap_or_default(), &self.layout) {
            self.commit(commit, By::Constraint);
        }
    }

    /// Completes the answer by what was predicted last, if the constraint says so; `true` if it did.
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

    /// Returns what the receipt says of the constraint.
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

/// Notes what the model predicted where it decided: in a draft, or on the canvas. Nothing is noted without a constraint.
pub(super) fn note(progress: &Progress, predictions: &Predictions, last: &mut [TokenId]) {
    if last.is_empty() {
        return;
    }
    predictions.positions.iter().for_each(|position| take(predictions, (0, position), last));
    let targets = progress.targets.iter().filter(|target| !target.by_guide);
    targets.for_each(|target| take(predictions, (target.draft, target.commit.position), last));
}

/// Notes what was predicted at a position of a lane, if anything was.
fn take(predictions: &Predictions, (lane, position): (usize, Position), last: &mut [TokenId]) {
    let token = predictions.index(lane, position).and_then(|index| predictions.tokens.get(index));
    let place = last.get_mut(position as usize);
    if let (Some(place), Some(&token)) = (place, token.filter(|&&token| token != NO_TOKEN)) {
        *place = token;
    }
}

/// Notes what a guide predicted where it decided: what it commits in the place of a draft is its own token.
pub(super) fn note_guide(progress: &Progress, last: &mut [TokenId]) {
    for commit in progress.commits.iter().filter(|commit| !progress.drafted.commits.contains(commit)) {
        if let Some(place) = last.get_mut(commit.position as usize) {
            *place = commit.token;
        }
    }
}
