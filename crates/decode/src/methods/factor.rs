//! Factor-based parallel decoding: the more predictions are taken together, the surer each must be (Fast-dLLM, section 3.3
//! and theorem 1 of the paper; specs/caches.md#3.1).

use demask_step::MaskKind;

use crate::{
    choices,
    method::{Confidence, DecoderKind, DecoderTraits},
    parameters,
    spec::Kind,
    transfer::{Candidate, State, Transfer},
};

choices! {
    /// Factor rule of the decoder.
    pub enum FactorRule {
        /// The theorem's.
        Clean = "clean",
        /// The released one, where a failing last candidate is taken with all the others.
        Code = "code",
    }
}

parameters! {
    /// The most confident tokens as long as their doubts stay within a factor.
    pub struct Factor {
        /// the factor: more takes more
        pub f: f32 = 1.0, Kind::number(0.0, f32::MAX);
        /// the theorem's; or as released, where a failing last candidate is taken with all the others
        pub rule: FactorRule = FactorRule::Clean;
        /// confidences of the model's own distribution, or of the tempered and filtered one that tokens are drawn from (as
        /// released for Dream, SDAR, LLaDA2 and RND1), which calls nearly everything sure at low temperatures
        pub confidence: Confidence = Confidence::Clean;
    }
}

impl DecoderKind for Factor {
    const NAME: &'static str = "factor";
    const SUMMARY: &'static str =
        "the most confident tokens as long as (n + 1) (1 - confidence of the n-th) stays within a factor";
    const SOURCE: &'static str = "Fast-dLLM (factor); specs/caches.md#3.1";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        let confidence = Some(self.confidence.into());
        DecoderTraits { confidence, ignores_steps: true, ..DecoderTraits::default() }
    }
}

/// Takes the most confident predictions of the first block, as many as pass: the best always, the `n`-th if its
/// confidence is at least `1 - f / (n + 1)`, which is the theorem's `(n + 1) (1 - c) <= f`. An order by position is kept, and
/// then what comes first must pass too.
impl Transfer for Factor {
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let confidence = |candidate: &Candidate| {
            if candidate.confidence.is_nan() { f32::NEG_INFINITY } else { candidate.confidence + 0.0 }
        };
        let Some(first) = candidates.first() else { return 0 };
        let block = first.block;
        let within = candidates.iter().take_while(|candidate| candidate.block == block).count();
        let candidates = &mut candidates[..within];
        if !state.is_run() {
            candidates.sort_unstable_by(|left, right| {
                confidence(right).total_cmp(&confidence(left)).then(left.position.cmp(&right.position))
            });
        }
        let mut lowest = f32::INFINITY;
        let passing = candidates.iter().zip(1u32..).take_while(|(candidate, count)| {
            lowest = lowest.min(confidence(candidate));
            let least = 1.0 - f64::from(self.f) / f64::from(count + 1);
            *count == 1 || f64::from(lowest) >= least
        });
        let passing = passing.count();
        if self.rule == FactorRule::Code && passing + 1 == within { within } else { passing }
    }

    /// Keeps those that still pass; the best too only if its own doubt stays within the factor.
    fn keeps(&self, state: &State, wanted: &mut [Candidate]) -> usize {
        let kept = self.choose(state, wanted);
        let passes = |first: &Candidate| f64::from(first.confidence) >= 1.0 - f64::from(self.f) / 2.0;
        if kept == 1 && !wanted.first().is_some_and(passes) { 0 } else { kept }
    }
}

#[cfg(test)]
mod tests {
    use demask_testkit::property;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        schedule::Tick,
        transfer::{Remasking, candidates},
    };

    fn chosen(rule: Factor, confidence: &[f32]) -> Vec<u32> {
        chosen_by(Remasking::LowConfidence, rule, confidence)
    }

    fn chosen_by(remasking: Remasking, rule: Factor, confidence: &[f32]) -> Vec<u32> {
        let mut candidates = candidates(confidence);
        let state = State { remasking, ..State::from(Tick { quota: 1, rate: 0.0 }) };
        let count = rule.choose(&state, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    fn clean(f: f32) -> Factor {
        Factor { f, rule: FactorRule::Clean, ..Factor::default() }
    }

    fn released(f: f32) -> Factor {
        Factor { rule: FactorRule::Code, ..clean(f) }
    }

    // The examples of specs/caches.md#3.1: thresholds -1, .667, .75, .8.
    #[test]
    fn the_n_th_must_pass_its_own_threshold() {
        assert_eq!(chosen(clean(1.0), &[0.8, 0.4, 0.99, 0.7]), [2, 0]);
        assert_eq!(chosen(clean(1.0), &[0.99, 0.80, 0.76, 0.40]), [0, 1, 2]);
        assert_eq!(chosen(released(1.0), &[0.99, 0.80, 0.70, 0.40]), [0, 1]);
        assert_eq!(chosen(released(1.0), &[0.99, 0.80, 0.76, 0.40]), [0, 1, 2, 3], "the failing last one too");
        assert_eq!(chosen(released(1.0), &[0.3, 0.2]), [0, 1], "two masks are always taken together");
        assert_eq!(chosen(clean(1.0), &[0.1]), [0]);
        assert_eq!(chosen(released(1.0), &[0.1]), [0]);
        assert_eq!(chosen(released(1.0), &[]), [] as [u32; 0], "none is no crash");
        assert_eq!(chosen(clean(1.0), &[f32::NAN, 0.2]), [1]);
    }

    #[test]
    fn a_run_keeps_its_order() {
        assert_eq!(chosen_by(Remasking::LeftToRight, clean(1.0), &[0.7, 0.9, 0.99]), [0, 1]);
        assert_eq!(chosen_by(Remasking::LeftToRight, clean(1.0), &[0.1, 0.9, 0.99]), [0]);
    }

    #[test]
    fn caches_f3_a_factor_of_zero_takes_one_and_a_large_one_all() {
        let doubts = [0.9999, 0.999, 0.5, 0.1];
        assert_eq!(chosen(clean(1e-6), &doubts).len(), 1);
        assert_eq!(chosen(clean(0.0), &doubts).len(), 1);
        assert_eq!(chosen(clean(0.0), &[1.0, 1.0, 0.5]).len(), 2, "certainty passes any threshold");
        assert_eq!(chosen(clean(doubts.len() as f32 + 1.0), &[0.0; 4]).len(), 4);
    }

    proptest! {
        #![proptest_config(property::cases(256))]

        #[test]
        fn caches_f4_a_prefix_of_the_sorted_list_that_grows_with_the_factor(
            confidence in proptest::collection::vec(0.0f32..=1.0, 1..20),
            low in 0.0f32..8.0,
            more in 0.0f32..8.0,
        ) {
            let mut sorted: Vec<u32> = (0..confidence.len() as u32).collect();
            sorted.sort_by(|&a, &b| {
                confidence[b as usize].total_cmp(&confidence[a as usize]).then(a.cmp(&b))
            });
            for rule in [clean, released] {
                let (few, many) = (chosen(rule(low), &confidence), chosen(rule(low + more), &confidence));
                prop_assert!(!few.is_empty() && sorted.starts_with(&few) && sorted.starts_with(&many));
                prop_assert!(few.len() <= many.len());
            }
        }
    }
}
