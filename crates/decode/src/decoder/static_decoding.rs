//! Static decoding: a fixed number of commits per step, the first in the order. The run that lossless methods must
//! reproduce (LLaDA `generate`, Dream `diffusion_generate`, SDAR's static strategies).

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderKind, DecoderTraits, Promise};
use crate::{
    cache::CachePolicy,
    method::Setup,
    parameters,
    spec::Kind,
    transfer::{Quota, Remasking, Transferred},
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

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        if setup.ranking.remasking == Remasking::Origin {
            Box::new(Blockwise::new(Transferred, setup))
        } else {
            Box::new(Blockwise::new(Quota, setup))
        }
    }
}
