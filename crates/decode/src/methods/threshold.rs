//! Confidence-aware parallel decoding: all predictions that are sure enough (Fast-dLLM, section 3.3 of the paper,
//! specs/caches.md#3.1; SDAR `low_confidence_dynamic`, specs/models.md#4.5 and specs/freedave.md#2.2).

use demask_step::MaskKind;

use crate::{
    method::{Confidence, DecoderKind, DecoderTraits},
    parameters,
    spec::Kind,
    transfer::{Candidate, State, Transfer},
};

parameters! {
    /// Every token whose confidence passes a threshold.
    pub struct Threshold {
        /// the confidence to pass
        pub tau: f32 = 0.9, Kind::number(0.0, 1.0);
        /// only confidences above tau pass, not those equal to it
        pub strict: bool = false;
        /// take the schedule's count if fewer than that pass (SDAR's dynamic rule)
        pub quota: bool = false;
        /// take at most the schedule's count, what fails is added to the next step's (Fast-dLLM on Dream)
        pub cap: bool = false;
        /// decode each block in parts of so many positions, from left to right (Fast-dLLM v2: 8); fitted: the block at once
        pub sub: Option<usize> = None, Kind::count(1, 65536);
        /// confidences of the model's own distribution, or of the tempered and filtered one that tokens are drawn from (as
        /// released for Dream, SDAR, LLaDA2 and RND1), which calls nearly everything sure at low temperatures
        pub confidence: Confidence = Confidence::Clean;
    }
}

impl DecoderKind for Threshold {
    const NAME: &'static str = "threshold";
    const SUMMARY: &'static str = "every token whose confidence passes the threshold, and always the best one";
    const SOURCE: &'static str =
        "Fast-dLLM (threshold), SDAR low_confidence_dynamic; specs/caches.md#3.1 and specs/models.md#4.5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        let confidence = Some(self.confidence.into());
        DecoderTraits { confidence, ignores_steps: !(self.quota || self.cap), ..DecoderTraits::default() }
    }
}

impl Threshold {
    fn passes(self, candidate: &Candidate) -> bool {
        if self.strict { candidate.confidence > self.tau } else { candidate.confidence >= self.tau }
    }
}

/// Takes every candidate of the first block whose confidence passes, or else the first few of the order: the first alone if
/// none passes (Fast-dLLM), with `quota` the schedule's count if fewer than that pass (SDAR). In an order by position only a
/// run from its front may pass (FreeDave's left-to-right threshold, specs/freedave.md#1.2). With `cap`, candidates are the
/// schedule's count, and how many of them failed is added to the next step's count (Fast-dLLM on Dream without blocks;
/// specs/caches.md#3.5).
impl Transfer for Threshold {
    fn carries(&self) -> bool {
        self.cap
    }

    fn part(&self) -> Option<usize> {
        self.sub
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let most = if self.cap { state.tick.quota.min(candidates.len()) } else { candidates.len() };
        let candidates = &mut candidates[..most];
        let Some(first) = candidates.first() else { return 0 };
        let block = first.block;
        let within = candidates.iter().take_while(|candidate| candidate.block == block).count();
        let candidates = &mut candidates[..within];
        let passing = if state.is_run() {
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

    /// Keeps those that still pass, and with `quota` the schedule's count.
    fn keeps(&self, state: &State, wanted: &mut [Candidate]) -> usize {
        if !state.is_run() {
            wanted.sort_by_key(|candidate| !self.passes(candidate));
        }
        let passing = wanted.iter().take_while(|candidate| self.passes(candidate)).count();
        passing.max(if self.quota { state.tick.quota.min(wanted.len()) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schedule::Tick,
        transfer::{Remasking, candidates},
    };

    fn chosen(rule: Threshold, quota: usize, confidence: &[f32]) -> Vec<u32> {
        let mut candidates = candidates(confidence);
        let count = rule.choose(&State::from(Tick { quota, rate: 0.0 }), &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    /// The positions that are taken in an order by position.
    fn run(confidence: &[f32]) -> Vec<u32> {
        let mut candidates = candidates(confidence);
        let state = State { remasking: Remasking::LeftToRight, ..State::from(Tick { quota: 1, rate: 0.0 }) };
        let count = FAST.choose(&state, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    const FAST: Threshold =
        Threshold { tau: 0.9, strict: false, quota: false, cap: false, sub: None, confidence: Confidence::Clean };
    const SDAR: Threshold = Threshold { strict: true, quota: true, ..FAST };

    #[test]
    fn without_quota_the_best_is_always_taken() {
        assert_eq!(chosen(FAST, 1, &[0.95, 0.9, 0.89]), [0, 1]);
        assert_eq!(chosen(FAST, 3, &[0.5, 0.4, 0.3]), [0]);
        assert_eq!(chosen(FAST, 1, &[]), [] as [u32; 0]);
        assert_eq!(chosen(FAST, 1, &[f32::NAN]), [0]);
    }

    #[test]
    fn with_quota_too_few_fall_back_to_the_schedule() {
        assert_eq!(chosen(SDAR, 1, &[0.95, 0.91, 0.9]), [0, 1], "strict");
        assert_eq!(chosen(SDAR, 2, &[0.95, 0.91, 0.9]), [0, 1]);
        assert_eq!(chosen(SDAR, 3, &[0.95, 0.91, 0.9, 0.1]), [0, 1, 2]);
        assert_eq!(chosen(SDAR, 3, &[0.5, 0.4]), [0, 1], "never more than there are");
        assert_eq!(chosen(SDAR, 0, &[0.5, 0.4]), [0], "never none");
    }

    #[test]
    fn a_cap_is_the_schedules_count() {
        let capped = |quota, confidence: &[f32]| {
            let mut candidates = candidates(confidence);
            Threshold { cap: true, ..FAST }.choose(&State::from(Tick { quota, rate: 0.0 }), &mut candidates)
        };
        let confidence = [0.99, 0.98, 0.95, 0.9, 0.1];
        assert_eq!([0, 1, 3, 5].map(|quota| capped(quota, &confidence)), [0, 1, 3, 4]);
        assert_eq!(capped(2, &[0.5, 0.4, 0.3]), 1, "the best all the same");
    }

    #[test]
    fn another_order_takes_all_that_pass_unless_it_must_run() {
        let confidence = [0.95, 0.5, 0.92];
        assert_eq!(chosen(FAST, 1, &confidence), [0, 2]);
        assert_eq!(run(&confidence), [0]);
        assert_eq!(run(&confidence[1..]), [0]);
    }
}
