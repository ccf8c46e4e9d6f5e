//! Entropy-bounded decoding: as many of the surest positions as a bound on their summed entropy allows (SDAR, RND1). The
//! rules: [`crate::transfer::EntropyBounded`] and [`crate::transfer::EntropyGap`].

use demask_step::MaskKind;

use super::{Blockwise, Confidence, Decoder, DecoderKind, DecoderTraits};
use crate::{cache::CachePolicy, choices, method::Setup, parameters, spec::Kind, transfer};

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
        DecoderTraits { confidence: Some(self.confidence.into()), ..DecoderTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        match self.rule {
            EntropyRule::Sdar => Box::new(Blockwise::new(transfer::EntropyBounded { bound: self.eb }, setup)),
            EntropyRule::Rnd1 => Box::new(Blockwise::new(transfer::EntropyGap { bound: self.eb }, setup)),
        }
    }
}
