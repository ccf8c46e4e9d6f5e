//! Confidence-aware parallel decoding: all predictions above a threshold (Fast-dLLM, section 3.3 of the paper; SDAR's
//! dynamic strategy). The rule itself: [`crate::transfer::Threshold`].

use demask_step::MaskKind;

use super::{Blockwise, Confidence, Decoder, DecoderKind, DecoderTraits};
use crate::{
    cache::CachePolicy,
    method::Setup,
    parameters,
    spec::Kind,
    transfer::{self, Capped, Remasking},
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
        DecoderTraits { confidence: Some(self.confidence.into()), ..DecoderTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let rule = self.rule(setup.ranking.remasking);
        if self.cap {
            return Box::new(Blockwise::new(Capped(rule), setup).in_parts(self.sub));
        }
        Box::new(Blockwise::new(rule, setup).in_parts(self.sub))
    }
}

impl Threshold {
    /// The rule of each step, but for the cap.
    pub(super) fn rule(self, remasking: Remasking) -> transfer::Threshold {
        let Self { tau, strict, quota, .. } = self;
        transfer::Threshold { tau, strict, quota, run: remasking == Remasking::LeftToRight }
    }
}
