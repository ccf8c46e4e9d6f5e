//! Entropy-bounded unmasking (SDAR `entropy_bounded`, whose released branch cannot run: implemented from its
//! definition, specs/models.md#4.5 and specs/freedave.md#2.1).

use demask_step::HeadAsk;

use super::{Candidate, State, Transfer};

/// Takes the surest positions of the first block as long as the sum of their entropies stays below the bound, at least
/// one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntropyBounded {
    /// The bound in nats.
    pub bound: f32,
}

impl Transfer for EntropyBounded {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.entropy = true;
    }

    fn choose(&self, _state: &State, candidates: &mut [Candidate]) -> usize {
        let entropy = |candidate: &Candidate| {
            if candidate.entropy.is_nan() { f32::INFINITY } else { candidate.entropy + 0.0 }
        };
        candidates.sort_unstable_by(|left, right| {
            let by_entropy = entropy(left).total_cmp(&entropy(right));
            left.block.cmp(&right.block).then(by_entropy).then(left.position.cmp(&right.position))
        });
        let Some(first) = candidates.first() else { return 0 };
        let (block, mut sum) = (first.block, 0.0);
        let below = candidates.iter().take_while(|candidate| {
            sum += f64::from(entropy(candidate));
            candidate.block == block && sum < f64::from(self.bound)
        });
        below.count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Tick;

    fn taken(bound: f32, entropies: &[f32]) -> Vec<u32> {
        let mut candidates: Vec<Candidate> = entropies
            .iter()
            .zip(0..)
            .map(|(&entropy, position)| Candidate {
                block: 0,
                position,
                token: 1,
                held: None,
                confidence: 0.5,
                entropy,
                score: 0.0,
            })
            .collect();
        let state = State::from(Tick { quota: 1, rate: 0.0 });
        let count = EntropyBounded { bound }.choose(&state, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    #[test]
    fn the_longest_prefix_below_the_bound() {
        assert_eq!(taken(0.35, &[0.2, 0.1, 0.04, 0.3]), [2, 1, 0]);
        assert_eq!(taken(0.34, &[0.2, 0.1, 0.04, 0.3]), [2, 1], "the bound itself is outside");
        assert_eq!(taken(0.35, &[2.0, 1.0]), [1], "at least one");
        assert_eq!(taken(0.35, &[f32::NAN, 3.0]), [1]);
        assert_eq!(taken(9.0, &[0.1, 0.1]), [0, 1], "ties to the lowest position");
        assert_eq!(taken(0.35, &[]), [] as [u32; 0]);
    }
}
