//! Static decoding: a fixed number of commits per step, the first in the order. The run that lossless methods must
//! reproduce (LLaDA `generate`, Dream `diffusion_generate`, SDAR's static strategies).

use demask_step::MaskKind;

use crate::{
    method::{DecoderKind, DecoderTraits, Promise},
    parameters,
    spec::Kind,
    transfer::{Candidate, Remasking, State, Transfer},
};

parameters! {
    /// A fixed number of tokens per step.
    pub struct Static {
        /// steps over all blocks; fitted: one token a step
        pub steps: Option<usize> = None, Kind::count(1, usize::MAX);
    }
}

impl DecoderKind for Static {
    const NAME: &'static str = "static";
    const SUMMARY: &'static str = "a fixed number of tokens per step, as the schedule says, the most confident first";
    const SOURCE: &'static str = "LLaDA generate.py, Dream diffusion_generate, SDAR generate.py, RND1 diffusion_sample; \
                                  specs/caches.md#1, specs/models.md#2.5, specs/models.md#3.5, specs/models.md#4.5 and \
                                  specs/families.md#6.7";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        DecoderTraits {
            promise: Promise::Reference,
            takes_origin: true,
            foresees: true,
            steps: self.steps,
            ..DecoderTraits::default()
        }
    }
}

/// Takes the schedule's count, which may be 0. Under Dream's `origin` each masked position is transferred by chance
/// (specs/caches.md#1.3): taken is every position whose draw, its score, falls within the schedule's rate, all of them at
/// rate 1.
impl Transfer for Static {
    fn takes_quota(&self) -> bool {
        true
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        if state.remasking != Remasking::Origin {
            return state.tick.quota.min(candidates.len());
        }
        let floor = 1.0 - f64::from(state.tick.rate);
        // Each block has its own order, so the prefix ends in the first block of which a position is not taken.
        candidates.iter().take_while(|candidate| candidate.score > floor).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Tick;

    fn origin(rate: f32) -> State {
        State { remasking: Remasking::Origin, ..State::from(Tick { quota: 0, rate }) }
    }

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
        let mut taken = |rate| Static::default().choose(&origin(rate), &mut candidates);
        assert_eq!((taken(0.0), taken(0.3), taken(1.0)), (0, 3, 10));
    }
}
