//! Which parts go together, and what a run may claim of its tokens. Everything follows from the registry entries.

use demask_step::MaskKind;

use crate::{
    cache::{self, CachePolicy, CacheSpec, Memory},
    decoder::{DecoderSpec, Promise, freedave},
    error::OptionsError,
    guide::targets_guide,
    transfer::{Ranking, Remasking},
};

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

/// What a pair of methods may claim, whatever they decode.
pub fn exactness(decoder: &DecoderSpec, cache: &CacheSpec) -> Exactness {
    exactness_with(decoder, cache, cache.method().memory)
}

/// What a pair of methods may claim if the cache's slots depend on this.
pub fn exactness_with(decoder: &DecoderSpec, cache: &CacheSpec, memory: Memory) -> Exactness {
    match (decoder.method().promise, memory) {
        (Promise::Reference, _) if cache.method().exact => Exactness::Reference,
        // Whatever is drafted: what the guide disagrees with is replaced by its own.
        (Promise::OfGuide, _) if targets_guide(decoder) && decoder.choice("match") == "exact" => {
            Exactness::Lossless { against: "ar of the guide, cache causal".into() }
        }
        (Promise::Lossless, Memory::OfState) => match freedave::baseline(decoder) {
            Some(baseline) => Exactness::Lossless { against: format!("{baseline}, cache {cache}") },
            None => Exactness::Approximate,
        },
        _ => Exactness::Approximate,
    }
}

/// Whether a pair of methods can decode a model; if not, why in one sentence, and what can.
pub fn check(
    attention: MaskKind,
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
        let choices = cache::CACHES.iter().filter(|method| method.attention.contains(&attention));
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
    cache::dkv::check(cache)?;
    let foresees = decoder.name() == "static" && Ranking::foresees(remasking);
    if cache::dkv::wants_foresight(cache) && !foresees {
        let (cache, remasking) = (cache.to_string(), remasking.name());
        return Err(OptionsError::Foresight { cache, decoder: decoder.name(), remasking });
    }
    Ok(())
}

/// Whether drafts can run over a cache policy; if not, why in one sentence, and what can. Everything follows from what
/// the policy says of itself: [`CachePolicy::spans_blocks`] whether they may reach into the next blocks, and
/// [`CachePolicy::memory`] whether they are lossless over it. A new policy needs no line here.
pub(crate) fn check_drafts(
    decoder: &DecoderSpec,
    cache: &CacheSpec,
    policy: &dyn CachePolicy,
) -> Result<(), OptionsError> {
    if !freedave::runs(decoder) {
        return Ok(());
    }
    freedave::check(decoder)?;
    if decoder.flag("eager") && !policy.spans_blocks() {
        return Err(OptionsError::EagerNeedsSpan { decoder: decoder.name(), cache: cache.to_string() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use demask_step::{SequenceNeeds, StepPlan};

    use super::*;
    use crate::{
        cache::CACHES,
        decoder::{DECODERS, Progress, Query, View},
        layout::Layout,
    };

    #[test]
    fn every_model_has_a_decoder_and_a_cache() {
        for attention in [MaskKind::Full, MaskKind::BlockCausal, MaskKind::Causal] {
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
        for cache in ["dkv", "dkv:variant=greedy", "dkv:variant=prefill", "dkv:refresh=1", "dllm", "dllm:response=1"] {
            assert_eq!(claim("static", cache), Exactness::Approximate, "an inexact cache is no reference");
        }
        for cache in ["none", "dkv", "dllm"] {
            assert_eq!(claim("slowfast", cache), Exactness::Approximate);
        }
    }

    /// A policy that remembers, and one that starts anew where a block starts.
    #[derive(Debug)]
    struct Policy(Memory);

    impl CachePolicy for Policy {
        fn needs(&self, _layout: &Layout) -> SequenceNeeds {
            SequenceNeeds::default()
        }
        fn upkeep(&mut self, _view: &View<'_>, _plan: &mut StepPlan) -> bool {
            false
        }
        fn plan(&mut self, _view: &View<'_>, _query: &Query, _plan: &mut StepPlan) {}
        fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {}
        fn memory(&self) -> Memory {
            self.0
        }
    }

    #[test]
    fn drafts_follow_from_what_a_cache_says_of_itself() {
        for memory in [Memory::OfState, Memory::OfHistory] {
            let check = |decoder: &str| {
                let found = check_drafts(&decoder.parse().unwrap(), &"none".parse().unwrap(), &Policy(memory));
                found.map_err(|error| error.to_string())
            };
            for decoder in ["static", "freedave", "freedave:eager=false"] {
                assert_eq!(check(decoder), Ok(()), "{decoder}");
            }
            assert!(check("freedave:eager").unwrap_err().contains("leave eager out"));
            let claim = exactness_with(&"freedave".parse().unwrap(), &"none".parse().unwrap(), memory);
            assert_eq!(claim == Exactness::Approximate, memory == Memory::OfHistory);
        }
    }

    #[test]
    fn refusals_name_what_can_be_used() {
        let refusal = |attention, decoder: &str, cache: &str, remasking| {
            check(attention, &decoder.parse().unwrap(), &cache.parse().unwrap(), remasking).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(MaskKind::Full, "ar", "none", Remasking::default()),
            "decoder ar cannot run a model with full attention: use static, threshold, factor, entropy_bounded, slowfast, \
             freedave, guided"
        );
        assert_eq!(
            refusal(MaskKind::Full, "static", "block", Remasking::default()),
            "cache block cannot run a model with full attention: use none, prefix, dual, freecache, dkv, dllm"
        );
        assert_eq!(
            refusal(MaskKind::Full, "threshold", "none", Remasking::Origin),
            "remasking origin picks positions by chance and decoder threshold by confidence: \
             use origin with decoder static"
        );
    }

    /// Every decoder with every variant of the inexact caches, on every family: allowed, or the reason why not.
    #[test]
    fn inexact_caches_and_decoders() {
        let full = |decoder: &str, cache: &str, remasking| {
            let (decoder, cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
            check(MaskKind::Full, &decoder, &cache, remasking).map_err(|error| error.to_string())
        };
        let confident = Remasking::LowConfidence;
        for cache in ["dkv", "dkv:variant=prefill", "dkv:variant=pd,shift=un_right", "dllm", "dllm:probe=k"] {
            for decoder in ["static", "threshold", "entropy_bounded", "slowfast"] {
                assert_eq!(full(decoder, cache, confident), Ok(()), "{decoder} {cache}");
            }
            assert_eq!(full("static", cache, Remasking::Origin), Ok(()), "{cache}");
            for attention in [MaskKind::BlockCausal, MaskKind::Causal] {
                let decoder = if attention == MaskKind::Causal { "ar" } else { "static" };
                let refused = check(attention, &decoder.parse().unwrap(), &cache.parse().unwrap(), confident);
                assert!(refused.unwrap_err().to_string().contains("cannot run a model with"), "{cache}");
            }
        }
        for remasking in [Remasking::Random, Remasking::LeftToRight] {
            assert_eq!(full("static", "dkv:variant=greedy", remasking), Ok(()));
        }
        let refused = "cache dkv:variant=greedy computes the rows that a step will decode, and decoder threshold with \
                       remasking random finds them by their predictions: use decoder static with remasking random or \
                       left_to_right";
        assert_eq!(full("threshold", "dkv:variant=greedy", Remasking::Random), Err(refused.into()));
        for (decoder, remasking) in [("static", confident), ("static", Remasking::Origin), ("slowfast", confident)] {
            assert!(full(decoder, "dkv:variant=greedy", remasking).is_err(), "{decoder} {remasking}");
        }
        for (cache, reason) in [
            ("dkv:window=2", "cache dkv:window=2: window belongs to variant=greedy: leave it out"),
            (
                "dkv:variant=prefill,refresh=4",
                "cache dkv:variant=prefill,refresh=4: refresh belongs to the variants that refresh: leave it out",
            ),
            (
                "dkv:variant=prefill,shift=un_right",
                "cache dkv:variant=prefill,shift=un_right: shift belongs to variant=decode and pd: leave it out",
            ),
        ] {
            assert_eq!(full("static", cache, confident), Err(reason.into()));
        }
    }
}
