//! All predictions that are sure enough (Fast-dLLM, specs/caches.md#3.1; SDAR `low_confidence_dynamic`,
//! specs/models.md#4.5 and specs/freedave.md#2.2).

use super::{Candidate, State, Transfer};

/// Takes every candidate of the first block whose confidence passes, or else the first few of the order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The confidence to pass.
    pub tau: f32,
    /// Records whether equality fails.
    pub strict: bool,
    /// Rule if too few pass. `false`: the first of the order is taken if none passes (Fast-dLLM). `true`: the
    /// schedule's count is taken if fewer than that pass (SDAR).
    pub quota: bool,
    /// Rule that only a run from the front of the order may pass, so that order is kept (FreeDave's left-to-right
    /// threshold, specs/freedave.md#1.2).
    pub run: bool,
}

impl Threshold {
    fn passes(self, candidate: &Candidate) -> bool {
        if self.strict { candidate.confidence > self.tau } else { candidate.confidence >= self.tau }
    }
}

impl Transfer for Threshold {
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let Some(first) = candidates.first() else { return 0 };
        let block = first.block;
        let within = candidates.iter().take_while(|candidate| candidate.block == block).count();
        let candidates = &mut candidates[..within];
        let passing = if self.run {
            candidates.iter().take_while(|candidate| self.passes(candidate)).count()
        } else {
            candidates.iter().filter(|candidate| self.passes(candidate)).count()
        };
        let least = if self.quota { state.tick.quota.max(1) } else { 1 };
        if passing < least {
            return least.min(within);
        }
        // Those that pass lead already unless the order is not by confidence; a stable sort keeps their order.
        if !candidates[..passing].iter().all(|candidate| self.passes(candidate)) {
            candidates.sort_by_key(|candidate| !self.passes(candidate));
        }
        passing
    }
}

/// A threshold with a ceiling: of the schedule's count, the first of the order, those that pass; how many failed is
/// added to the next step's count (Fast-dLLM on Dream without blocks; specs/caches.md#3.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capped(
    /// Threshold that candidates have to pass.
    pub Threshold,
);

impl Transfer for Capped {
    fn carries(&self) -> bool {
        true
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let most = state.tick.quota.min(candidates.len());
        self.0.choose(state, &mut candidates[..most])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schedule::Tick, transfer::candidates};

    fn taken(rule: Threshold, quota: usize, confidence: &[f32]) -> Vec<u32> {
        let mut candidates = candidates(confidence);
        let count = rule.choose(&State::from(Tick { quota, rate: 0.0 }), &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    const FAST: Threshold = Threshold { tau: 0.9, strict: false, quota: false, run: false };
    const SDAR: Threshold = Threshold { tau: 0.9, strict: true, quota: true, run: false };

    #[test]
    fn without_quota_the_best_is_always_taken() {
        assert_eq!(taken(FAST, 1, &[0.95, 0.9, 0.89]), [0, 1]);
        assert_eq!(taken(FAST, 3, &[0.5, 0.4, 0.3]), [0]);
        assert_eq!(taken(FAST, 1, &[]), [] as [u32; 0]);
        assert_eq!(taken(FAST, 1, &[f32::NAN]), [0]);
    }

    #[test]
    fn with_quota_too_few_fall_back_to_the_schedule() {
        assert_eq!(taken(SDAR, 1, &[0.95, 0.91, 0.9]), [0, 1], "strict");
        assert_eq!(taken(SDAR, 2, &[0.95, 0.91, 0.9]), [0, 1]);
        assert_eq!(taken(SDAR, 3, &[0.95, 0.91, 0.9, 0.1]), [0, 1, 2]);
        assert_eq!(taken(SDAR, 3, &[0.5, 0.4]), [0, 1], "never more than there are");
        assert_eq!(taken(SDAR, 0, &[0.5, 0.4]), [0], "never none");
    }

    #[test]
    fn a_cap_is_the_schedules_count() {
        let capped = |quota, confidence: &[f32]| {
            let mut candidates = candidates(confidence);
            Capped(FAST).choose(&State::from(Tick { quota, rate: 0.0 }), &mut candidates)
        };
        let confidence = [0.99, 0.98, 0.95, 0.9, 0.1];
        assert_eq!([0, 1, 3, 5].map(|quota| capped(quota, &confidence)), [0, 1, 3, 4]);
        assert_eq!(capped(2, &[0.5, 0.4, 0.3]), 1, "the best all the same");
    }

    #[test]
    fn another_order_takes_all_that_pass_unless_it_must_run() {
        let confidence = [0.95, 0.5, 0.92];
        assert_eq!(taken(FAST, 1, &confidence), [0, 2]);
        assert_eq!(taken(Threshold { run: true, ..FAST }, 1, &confidence), [0]);
        assert_eq!(taken(Threshold { run: true, ..FAST }, 1, &confidence[1..]), [0]);
    }
}
