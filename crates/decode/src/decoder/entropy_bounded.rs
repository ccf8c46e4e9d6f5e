//! Entropy-bounded decoding: as many of the surest positions as a bound on their summed entropy allows (SDAR). The rule
//! itself: [`crate::transfer::EntropyBounded`].

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderKind};
use crate::{cache::CachePolicy, parameters, resolve::Setup, spec::Kind, transfer};

parameters! {
    /// Tokens of low entropy while the sum of their entropies stays below a bound.
    pub struct EntropyBounded {
        /// the bound in nats
        pub eb: f32 = 0.35, Kind::number(0.0, f32::MAX);
    }
}

impl DecoderKind for EntropyBounded {
    const NAME: &'static str = "entropy_bounded";
    const SUMMARY: &'static str =
        "the tokens of lowest entropy while the sum of their entropies stays below a bound, at least one";
    const SOURCE: &'static str = "SDAR entropy_bounded; specs/models.md#4.5 and specs/freedave.md#2.1";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Context];

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Blockwise::new(transfer::EntropyBounded { bound: self.eb }, setup))
    }
}
