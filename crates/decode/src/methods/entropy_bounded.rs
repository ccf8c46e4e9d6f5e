//! Entropy-bounded decoding: as many of the surest positions as a bound on their summed entropy allows. SDAR's
//! `entropy_bounded`, whose released branch cannot run (implemented from its definition, specs/models.md#4.5 and
//! specs/freedave.md#2.1), and RND1's `eb_gamma` (specs/families.md#6.7).

use std::cmp::Ordering;

use demask_step::{HeadAsk, MaskKind};

use crate::{
    choices,
    method::{Confidence, DecoderKind, DecoderTraits},
    parameters,
    spec::Kind,
    transfer::{Candidate, State, Transfer},
};

choices! {
    /// Rule that says which entropies are summed.
    pub enum EntropyRule {
        /// Sums from the lowest on.
        Sdar = "sdar",
        /// Sums from the most confident token on, without the largest.
        Rnd1 = "rnd1",
    }
}

parameters! {
    /// Tokens of low entropy while the sum of their entropies stays below a bound.
    pub struct EntropyBounded {
        /// the bound in nats
        pub eb: f32 = 0.35, Kind::number(0.0, f32::MAX);
        /// SDAR's, from the lowest entropy on; or RND1's, from the most confident token on, without the largest entropy, and
        /// everything that is left in the last of the steps
        pub rule: EntropyRule = EntropyRule::Sdar;
        /// entropies of the model's own distribution, or of the tempered and filtered one that tokens are drawn from (as
        /// released for Dream, SDAR, LLaDA2 and RND1), which calls nearly everything sure at low temperatures
        pub confidence: Confidence = Confidence::Clean;
    }
}

impl DecoderKind for EntropyBounded {
    const NAME: &'static str = "entropy_bounded";
    const SUMMARY: &'static str =
        "the tokens of lowest entropy while the sum of their entropies stays below a bound, at least one";
    const SOURCE: &'static str = "SDAR entropy_bounded, RND1 diffusion_sample with eb_gamma; \
                                  specs/models.md#4.5, specs/freedave.md#2.1 and specs/families.md#6.7";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        let confidence = Some(self.confidence.into());
        DecoderTraits { confidence, ignores_steps: self.rule == EntropyRule::Sdar, ..DecoderTraits::default() }
    }
}

impl Transfer for EntropyBounded {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.entropy = true;
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        match self.rule {
            EntropyRule::Sdar => self.below(candidates),
            EntropyRule::Rnd1 => self.within(candidates, state.left <= 0.0),
        }
    }
}

impl EntropyBounded {
    /// Takes the positions of lowest entropy of the first block as long as the sum of their entropies stays below the bound,
    /// at least one.
    fn below(self, candidates: &mut [Candidate]) -> usize {
        sort(candidates, |left, right| entropy(left).total_cmp(&entropy(right)));
        let Some(first) = candidates.first() else { return 0 };
        let (block, mut sum) = (first.block, 0.0);
        let below = candidates.iter().take_while(|candidate| {
            sum += f64::from(entropy(candidate));
            candidate.block == block && sum < f64::from(self.eb)
        });
        below.count().max(1)
    }

    /// Takes the most confident positions of the first block as long as the sum of their entropies, without the largest of
    /// them, stays within the bound: the first always. The last step of the schedule takes the whole block.
    fn within(self, candidates: &mut [Candidate], is_last: bool) -> usize {
        let confidence = |candidate: &Candidate| {
            if candidate.confidence.is_nan() { f32::NEG_INFINITY } else { candidate.confidence + 0.0 }
        };
        sort(candidates, |left, right| confidence(right).total_cmp(&confidence(left)));
        let Some(first) = candidates.first() else { return 0 };
        let block = first.block;
        let (mut sum, mut most) = (0.0, 0.0f64);
        let within = candidates.iter().take_while(|candidate| {
            let entropy = f64::from(entropy(candidate));
            (sum, most) = (sum + entropy, most.max(entropy));
            // Never more than before: what passes is the beginning of the order.
            candidate.block == block && (is_last || sum - most <= f64::from(self.eb))
        });
        within.count().max(1)
    }
}

/// The entropy of a candidate; one that is no number is the largest.
fn entropy(candidate: &Candidate) -> f32 {
    if candidate.entropy.is_nan() { f32::INFINITY } else { candidate.entropy + 0.0 }
}

/// Puts candidates into an order of their own within each block; of equal ones the lower position comes first.
fn sort(candidates: &mut [Candidate], order: impl Fn(&Candidate, &Candidate) -> Ordering) {
    candidates.sort_unstable_by(|left, right| {
        left.block.cmp(&right.block).then(order(left, right)).then(left.position.cmp(&right.position))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Tick;

    /// Candidates of one block, from their confidences and entropies.
    fn candidates(of: impl Iterator<Item = (f32, f32)>) -> Vec<Candidate> {
        let candidate = |((confidence, entropy), position)| Candidate {
            block: 0,
            position,
            token: 1,
            held: None,
            confidence,
            entropy,
            score: 0.0,
        };
        of.zip(0..).map(candidate).collect()
    }

    /// The positions that a rule takes with so much of the block's steps left.
    fn chosen(rule: &impl Transfer, left: f64, mut candidates: Vec<Candidate>) -> Vec<u32> {
        let state = State { left, ..State::from(Tick { quota: 1, rate: 0.0 }) };
        let count = rule.choose(&state, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    fn chosen_of(bound: f32, entropies: &[f32]) -> Vec<u32> {
        let even = entropies.iter().map(|&entropy| (0.5, entropy));
        let rule = EntropyBounded { eb: bound, ..EntropyBounded::default() };
        chosen(&rule, 0.5, candidates(even))
    }

    #[test]
    fn the_longest_prefix_below_the_bound() {
        assert_eq!(chosen_of(0.35, &[0.2, 0.1, 0.04, 0.3]), [2, 1, 0]);
        assert_eq!(chosen_of(0.34, &[0.2, 0.1, 0.04, 0.3]), [2, 1], "the bound itself is outside");
        assert_eq!(chosen_of(0.35, &[2.0, 1.0]), [1], "at least one");
        assert_eq!(chosen_of(0.35, &[f32::NAN, 3.0]), [1]);
        assert_eq!(chosen_of(9.0, &[0.1, 0.1]), [0, 1], "ties to the lowest position");
        assert_eq!(chosen_of(0.35, &[]), [] as [u32; 0]);
    }

    // specs/families.md#6.7.
    #[test]
    fn the_largest_entropy_is_not_counted_and_the_last_step_takes_all() {
        let gap = |eb, left, of: &[(f32, f32)]| {
            let rule = EntropyBounded { eb, rule: EntropyRule::Rnd1, ..EntropyBounded::default() };
            chosen(&rule, left, candidates(of.iter().copied()))
        };
        let four = [(0.5, 1.0), (0.9, 0.25), (0.25, 2.0), (0.75, 0.5)];
        assert_eq!(gap(0.0, 0.5, &four), [1], "the first always");
        assert_eq!(gap(0.25, 0.5, &four), [1, 3], "0.75 without 0.5; the bound itself is inside");
        assert_eq!(gap(0.75, 0.5, &four), [1, 3, 0]);
        assert_eq!(gap(1.75, 0.5, &four), [1, 3, 0, 2]);
        assert_eq!(gap(0.0, 0.0, &four), [1, 3, 0, 2], "nothing is left of the steps");
        assert_eq!(gap(9.0, 0.5, &[(0.5, 0.0), (0.5, -0.0)]), [0, 1], "ties to the lowest position");
        assert_eq!(gap(9.0, 0.5, &[(f32::NAN, 0.1), (0.5, f32::NAN), (0.25, 0.1)]), [1]);
        assert_eq!(gap(9.0, 0.0, &[]), [] as [u32; 0]);
    }
}
