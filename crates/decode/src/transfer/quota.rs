//! Transfer of the schedule's number of tokens, the first in the order (LLaDA, Dream, SDAR `low_confidence_static` and
//! `sequential`).

use super::{Candidate, State, Transfer};

/// Takes the schedule's count, which may be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota;

impl Transfer for Quota {
    fn takes_quota(&self) -> bool {
        true
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        state.tick.quota.min(candidates.len())
    }
}
