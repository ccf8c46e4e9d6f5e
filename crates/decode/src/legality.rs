//! Which parts go together, and what a run may claim of its tokens. Everything follows from the registry entries.

use std::fmt;

use demask_step::Mask;

use crate::{
    cache::{CacheSpec, Memory},
    decoder::{DecoderSpec, Promise},
    error::OptionsError,
    guide::targets_guide,
    transfer::Remasking,
};

/// The families of models, by who sees whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Everyone sees everyone: LLaDA, Dream.
    Full,
    /// Blocks see the blocks up to their own: SDAR, TraDo.
    BlockCausal,
    /// Tokens see those before them: Qwen.
    Causal,
}

impl From<Mask> for Attention {
    fn from(mask: Mask) -> Self {
        match mask {
            Mask::Full => Self::Full,
            Mask::BlockCausal { .. } => Self::BlockCausal,
            Mask::Causal => Self::Causal,
        }
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full attention",
            Self::BlockCausal => "block-causal attention",
            Self::Causal => "causal attention",
        })
    }
}

/// What a result may claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exactness {
    /// Static (or autoregressive) decoding with no cache or an exact one.
    Reference,
    /// Provably the tokens of another run.
    Lossless {
        /// That run, for example `static, cache dual`.
        against: String,
    },
    /// Everything else.
    Approximate,
}

impl Exactness {
    /// The word used in receipts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Lossless { .. } => "lossless",
            Self::Approximate => "approximate",
        }
    }

    /// The run that a lossless result equals.
    pub fn against(&self) -> Option<&str> {
        if let Self::Lossless { against } = self { Some(against) } else { None }
    }
}

/// What a pair of methods may claim.
pub fn exactness(decoder: &DecoderSpec, cache: &CacheSpec) -> Exactness {
    match (decoder.method().promise, cache.method().memory) {
        (Promise::Reference, _) if cache.method().exact => Exactness::Reference,
        // Whatever is drafted: what the guide disagrees with is replaced by its own.
        (Promise::OfGuide, _) if targets_guide(decoder) && decoder.choice("match") == "exact" => {
            Exactness::Lossless { against: "ar of the guide, cache causal".into() }
        }
        (Promise::Lossless, Memory::OfState) => Exactness::Lossless { against: format!("static, cache {cache}") },
        _ => Exactness::Approximate,
    }
}

/// Whether a pair of methods can decode a model; if not, why in one sentence, and what can.
pub fn check(
    attention: Attention,
    decoder: &DecoderSpec,
    cache: &CacheSpec,
    remasking: Remasking,
) -> Result<(), OptionsError> {
    if !decoder.method().attention.contains(&attention) {
        let choices = crate::decoder::DECODERS.iter().filter(|method| method.attention.contains(&attention));
        return Err(OptionsError::MethodForModel {
            what: "decoder",
            name: decoder.name(),
            attention,
            choices: choices.map(|method| method.about.name).collect::<Vec<_>>().join(", "),
        });
    }
    if !cache.method().attention.contains(&attention) {
        let choices = crate::cache::CACHES.iter().filter(|method| method.attention.contains(&attention));
        return Err(OptionsError::MethodForModel {
            what: "cache",
            name: cache.name(),
            attention,
            choices: choices.map(|method| method.about.name).collect::<Vec<_>>().join(", "),
        });
    }
    if remasking == Remasking::Origin && !decoder.method().takes_origin {
        return Err(OptionsError::Origin { decoder: decoder.name() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::CACHES, decoder::DECODERS};

    #[test]
    fn every_model_has_a_decoder_and_a_cache() {
        for attention in [Attention::Full, Attention::BlockCausal, Attention::Causal] {
            let pairs = DECODERS.iter().flat_map(|decoder| CACHES.iter().map(move |cache| (decoder, cache)));
            let legal = pairs.filter(|(decoder, cache)| {
                let (decoder, cache) = (DecoderSpec::of(decoder), CacheSpec::of(cache));
                check(attention, &decoder, &cache, Remasking::default()).is_ok()
            });
            assert!(legal.count() > 0, "{attention}");
        }
    }

    #[test]
    fn claims_follow_from_the_parts() {
        let claim = |decoder: &str, cache: &str| exactness(&decoder.parse().unwrap(), &cache.parse().unwrap());
        assert_eq!(claim("static", "none"), Exactness::Reference);
        assert_eq!(claim("static", "block"), Exactness::Reference);
        assert_eq!(claim("ar", "causal"), Exactness::Reference);
        assert_eq!(claim("threshold", "none"), Exactness::Approximate);
        assert_eq!(claim("entropy_bounded", "block"), Exactness::Approximate);
        assert_eq!(claim("guided", "none"), Exactness::Approximate);
        assert_eq!(claim("guided:target=guide,match=topk", "none"), Exactness::Approximate);
        assert_eq!(claim("guided:target=guide", "none").against(), Some("ar of the guide, cache causal"));
    }

    #[test]
    fn refusals_name_what_can_be_used() {
        let refusal = |attention, decoder: &str, cache: &str, remasking| {
            check(attention, &decoder.parse().unwrap(), &cache.parse().unwrap(), remasking).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(Attention::Full, "ar", "none", Remasking::default()),
            "decoder ar cannot run a model with full attention: use static, threshold, entropy_bounded, guided"
        );
        assert_eq!(
            refusal(Attention::Full, "static", "block", Remasking::default()),
            "cache block cannot run a model with full attention: use none"
        );
        assert_eq!(
            refusal(Attention::Full, "threshold", "none", Remasking::Origin),
            "remasking origin picks positions by chance and decoder threshold by confidence: \
             use origin with decoder static"
        );
    }
}
