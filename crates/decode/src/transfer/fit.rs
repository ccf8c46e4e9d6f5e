//! Wanted predictions that a constraint makes fit together (specs/structure.md#6).

use demask_step::Position;

use super::{Candidate, State, Transfer};
use crate::{
    constraint::{Enforced, LaneOf},
    event::Commit,
};

/// Makes the first `taken` candidates fit together, with each other, with `musts` and with the canvas; returns how many of
/// them the rule still takes. If it takes none, it is the first alone, as it was predicted, and one more of `fallbacks`.
pub(crate) fn fit<T: Transfer + ?Sized>(
    (rule, state): (&T, &State),
    (constraint, lane): (Enforced<'_>, LaneOf<'_>),
    musts: &mut [Commit],
    candidates: &mut [Candidate],
    taken: usize,
    fallbacks: &mut usize,
) -> usize {
    let takes_back = rule.takes_back();
    let is_written = |candidate: &Candidate| candidate.held.is_none() || !takes_back;
    let (wish, others) = candidates.split_at_mut(taken);
    let masks_again = others.iter().filter(|candidate| takes_back && candidate.held.is_some());
    let opened: Vec<Position> = masks_again.map(|candidate| candidate.position).collect();
    let mut wanted = musts.to_vec();
    wanted.extend(wish.iter().filter(|wish| is_written(wish)).map(|&wish| Commit::from(wish)));
    let (2.., Some(&first)) = (wanted.len(), wish.first()) else { return taken };
    constraint.fit(lane, &opened, &mut wanted);
    let (fitted, rest) = wanted.split_at(musts.len());
    musts.copy_from_slice(fitted);
    for (candidate, commit) in wish.iter_mut().filter(|wish| is_written(wish)).zip(rest) {
        (candidate.token, candidate.confidence) = (commit.token, commit.confidence);
    }
    // One that is wanted alone passes whatever it is.
    let kept = if taken == 1 { 1 } else { rule.keeps(state, wish).min(taken) };
    if kept > 0 || !musts.is_empty() {
        return kept;
    }
    wish[0] = first;
    *fallbacks += 1;
    1
}
