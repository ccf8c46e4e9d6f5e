//! Dream's `origin`: each masked position is transferred by chance (specs/caches.md#1.3).

use super::{Candidate, State, Transfer};

/// Takes every position whose draw, the score of [`Remasking::Origin`](super::Remasking::Origin), falls within the
/// schedule's rate; all of them at rate 1. May take none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred;

impl Transfer for Transferred {
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let floor = 1.0 - f64::from(state.tick.rate);
        // The order starts anew in each block, so the prefix ends at the first block with a position left behind.
        candidates.iter().take_while(|candidate| candidate.score > floor).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Tick;

    #[test]
    fn the_rate_is_the_share_that_is_taken() {
        let mut candidates: Vec<Candidate> = (0..10)
            .map(|i| Candidate {
                block: 0,
                position: i,
                token: 1,
                held: None,
                confidence: 0.5,
                entropy: 0.0,
                score: 0.95 - f64::from(i) / 10.0,
            })
            .collect();
        let mut taken = |rate| Transferred.choose(&State::from(Tick { quota: 0, rate }), &mut candidates);
        assert_eq!((taken(0.0), taken(0.3), taken(1.0)), (0, 3, 10));
    }
}
