//! Factor-based parallel decoding (Fast-dLLM, section 3.3 of the paper). The rule itself: [`crate::transfer::Factor`].

use demask_step::MaskKind;

use super::{Blockwise, Confidence, Decoder, DecoderKind, DecoderTraits};
use crate::{
    cache::CachePolicy,
    choices,
    method::Setup,
    parameters,
    spec::Kind,
    transfer::{self, Remasking},
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
        DecoderTraits { confidence: Some(self.confidence.into()), ..DecoderTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let rule = transfer::Factor {
            factor: self.f,
            as_released: self.rule == FactorRule::Code,
            run: setup.ranking.remasking == Remasking::LeftToRight,
        };
        Box::new(Blockwise::new(rule, setup))
    }
}
