//! Combinations of parts, and the claim of a run about its tokens. Everything follows from the declarations of the
//! methods.

use demask_step::{Mask, MaskKind, TokenId};

use crate::{
    constraint::TokenConstraint,
    error::{self, OptionsError},
    facts::CanvasSpec,
    method::{CacheMethod, CacheSpec, DecoderMethod, DecoderSpec, Promise, SessionOptions},
    policy::Memory,
    schedule::Schedule,
    spec::{Method, Spec, alternatives},
    transfer::{OwnRule, Remasking},
};

/// Claim that a result may make.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exactness {
    /// Static (or autoregressive) decoding, or a family's own sampler, with no cache or an exact one.
    Reference,
    /// Provably the tokens of another run.
    Lossless {
        /// Name of that run, for example `static, cache dual`.
        against: String,
    },
    /// No claim of equality.
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

impl std::fmt::Display for Exactness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Writes the word as `exactness`, and the run that a lossless result equals as `against`.
impl serde::Serialize for Exactness {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("exactness", self.name())?;
        map.serialize_entry("against", &self.against())?;
        map.end()
    }
}

/// Returns the exactness that a pair of methods may claim on every model and request.
pub fn exactness(decoder: &DecoderSpec, cache: &CacheSpec) -> Exactness {
    exactness_with(decoder, cache, cache.traits().memory, false)
}

/// Returns the exactness that a pair of methods may claim if the cache's slots have this memory. `greedy` says that
/// tokens are the most probable ones.
pub fn exactness_with(decoder: &DecoderSpec, cache: &CacheSpec, memory: Memory, greedy: bool) -> Exactness {
    let against = |other: &DecoderSpec| Exactness::Lossless { against: format!("{other}, cache {cache}") };
    match decoder.traits().promise {
        Promise::Reference | Promise::Official if cache.traits().exact => Exactness::Reference,
        Promise::OfRun(run) => Exactness::Lossless { against: run.into() },
        Promise::SameAs(other) if memory == Memory::OfState => against(&other),
        Promise::Greedy(other) if greedy && memory == Memory::OfState => against(&other),
        _ => Exactness::Approximate,
    }
}

/// Refuses methods that cannot decode the model, and what holds of all methods: why in one sentence, and what can. What
/// one method alone forbids is its own [`check`](crate::methods::DecoderKind::check).
pub fn check(options: &SessionOptions) -> Result<(), OptionsError> {
    let SessionOptions { facts, decoder, cache, remasking, .. } = options;
    check_model(cache, facts.mask.kind())?;
    decoder.check_bounds()?;
    cache.check_bounds()?;
    if *remasking == Remasking::Origin && !decoder.traits().takes_origin {
        return Err(origin(decoder.name()));
    }
    if options.schedule == Schedule::Rnd1 && options.top_k == 1 && options.temperature > 0.0 {
        let temperature = options.temperature;
        return Err(error::unfit(format_args!(
            "top_k is 1 at temperature {temperature}, and schedule rnd1 ranks by the entropy of what top_k leaves, \
             which is 0 of one token: for the most probable tokens use temperature 0, whose entropies are those at \
             temperature 1, no other"
        )));
    }
    if let (Some(name), Some(_)) = (options.adjustments.first(), options.traits().guide) {
        let decoder = decoder.name();
        return Err(error::value(
            name,
            format_args!(
                "decoder {decoder} commits what its guide agrees with, whose predictions `{name}` does not adjust: omit it, or \
                 use another decoder"
            ),
        ));
    }
    if let Some(constraint) = &options.constraint {
        check_constraint(constraint, options)?;
    }
    if decoder.traits().revises.is_some() {
        return check_revision(options);
    }
    Ok(())
}

/// Refuses what would write tokens that a constraint knows nothing of, or leave out those that it needs.
fn check_constraint(constraint: &TokenConstraint, options: &SessionOptions) -> Result<(), OptionsError> {
    let SessionOptions { facts, end_ids, stop_ids, suppress, stop, fill, .. } = options;
    let vocabulary = constraint.automaton.vocabulary();
    let known = |token: TokenId| !vocabulary.text(token).is_empty() || vocabulary.fills().contains(&token);
    let in_holes = matches!(options.canvas, CanvasSpec::Infill { .. });
    let (tokens, most) = (vocabulary.tokens(), facts.vocab);
    if tokens > most {
        let last = tokens as TokenId - 1;
        return Err(error::token_out_of_range("the constraint's token", last, most));
    }
    if facts.mask_id.is_some_and(known) {
        return Err(error::constrained(
            "a tokenizer that calls the mask text",
            "check that the tokenizer is the model's",
        ));
    }
    if options.decoder.traits().guide.is_some_and(|guide| guide.is_target) {
        return Err(error::constrained("the output of a guide, which knows none", "omit target=guide"));
    }
    if constraint.spelling.is_some() && options.decoder.traits().revises.is_some() {
        return Err(error::constrained(
            "text that it forces beside a decoder that revises tokens",
            "omit `constraint_forced`",
        ));
    }
    if !stop_ids.is_empty() {
        return Err(error::constrained("tokens that end an answer wherever they stand", "omit `stop_token_ids`"));
    }
    if !in_holes && !vocabulary.ends().iter().all(|end| end_ids.contains(end)) {
        return Err(error::constrained("an answer that its end does not end", "omit `ignore_eos`"));
    }
    if suppress.iter().any(|&token| known(token) && !(in_holes && vocabulary.fills().contains(&token))) {
        return Err(error::constrained("tokens that are never written", "omit `suppress_eos`"));
    }
    if stop.fills() && !vocabulary.fills().contains(fill) {
        return Err(error::constrained("a stop rule that fills with another token than ends", "omit `stop_rule`"));
    }
    Ok(())
}

/// Refuses what takes a token as final that a decoder may still change.
fn check_revision(options: &SessionOptions) -> Result<(), OptionsError> {
    let SessionOptions { facts, decoder, cache, .. } = options;
    if facts.blocks.seeds {
        return Err(error::seeds("a decoder that revises tokens", "use decoder threshold"));
    }
    if cache.traits().revisable {
        return Ok(());
    }
    let caches = CacheMethod::known().iter().filter(|cache| cache.about.attention.contains(&facts.mask.kind()));
    let follows = caches.map(|cache| CacheSpec::of(cache)).filter(|cache| cache.traits().revisable);
    let choices = follows.map(|cache| cache.name()).collect::<Vec<_>>().join(" or ");
    let decoder = decoder.name();
    Err(error::unfit(format_args!(
        "decoder {decoder} changes tokens that it has written, and cache {cache} takes them as final: use cache \
         {choices}"
    )))
}

/// Refuses a rule of one's own for models without masks, and beside an order that chooses by itself.
pub(crate) fn check_own_rule(rule: &OwnRule, options: &SessionOptions) -> Result<(), OptionsError> {
    let attention = options.facts.mask.kind();
    if attention == MaskKind::Causal {
        let rule = rule.name();
        return Err(error::unfit(format_args!(
            "the transfer rule {rule} says which masks are filled, and a model with {attention} has none: omit \
             it"
        )));
    }
    if options.remasking == Remasking::Origin {
        return Err(origin("custom"));
    }
    Ok(())
}

/// `origin` with a decoder that chooses by itself.
fn origin(decoder: &str) -> OptionsError {
    error::unfit(format_args!(
        "remasking origin picks positions by chance and decoder {decoder} by confidence: use origin with decoder {}",
        alternatives::<DecoderMethod>(|decoder| decoder.traits().takes_origin)
    ))
}

/// Refuses a guide that no decoder asks, a decoder without the guide that it needs, and a model that is no guide.
pub(crate) fn check_guide(options: &SessionOptions) -> Result<(), OptionsError> {
    let decoder = options.decoder.name();
    match (options.decoder.traits().guide, &options.guide) {
        (Some(_), None) => Err(OptionsError::guide_missing(decoder)),
        (None, Some(_)) => Err(error::unfit(format_args!(
            "decoder {decoder} has no guide: omit the guide, or use decoder {}",
            alternatives::<DecoderMethod>(|decoder| decoder.traits().guide.is_some())
        ))),
        (Some(_), Some(guide)) if guide.facts.mask != Mask::Causal => {
            let attention = guide.facts.mask.kind();
            Err(error::unfit(format_args!(
                "the guide has {attention}, expected an autoregressive model: use a Qwen2.5, Qwen3 or Llama model"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a decoder that cannot decode the model, whose passes it may not have chosen yet.
pub(crate) fn check_decoder(options: &SessionOptions) -> Result<(), OptionsError> {
    check_model(&options.decoder, options.facts.mask.kind())
}

fn check_model<M: Method>(spec: &Spec<M>, attention: MaskKind) -> Result<(), OptionsError> {
    let runs = |method: &M| method.about().attention.contains(&attention);
    if runs(spec.method()) {
        return Ok(());
    }
    let choices = M::known().iter().filter(|method| runs(method)).map(|method| method.about().name);
    let choices = choices.collect::<Vec<_>>().join(", ");
    let (what, name) = (M::WHAT, spec.name());
    Err(error::unfit(format_args!("{what} {name} cannot run a model with {attention}: use {choices}")))
}

#[cfg(test)]
mod tests {
    use demask_step::Mask;

    use super::*;
    use crate::{CanvasSpec, ModelFacts, Session, caches::CACHES, methods::DECODERS};

    /// Reports whether a session can be made of these methods.
    fn refusal(mask: Mask, decoder: &str, cache: &str, remasking: Remasking) -> Result<(), String> {
        let mask_id = (mask != Mask::Causal).then_some(9);
        let facts = ModelFacts {
            mask,
            shift: 0,
            mask_id,
            vocab: 10,
            context: 64,
            layers: 3,
            blocks: demask_step::BlockRules::default(),
            free_rows: crate::FREE_ROWS,
        };
        let mut options = SessionOptions::new(facts, CanvasSpec::Prompt { tokens: vec![1, 2], gen_length: 8 });
        (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
        options.remasking = remasking;
        Session::new(options).map(|_| ()).map_err(|error| error.to_string())
    }

    const BLOCKS: Mask = Mask::blocks(4);

    #[test]
    fn every_model_has_a_decoder_and_a_cache() {
        for mask in [Mask::Full, BLOCKS, Mask::Causal] {
            let pairs = DECODERS.iter().flat_map(|decoder| CACHES.iter().map(move |cache| (decoder, cache)));
            let legal = pairs.filter(|(decoder, cache)| {
                refusal(mask, decoder.about().name, cache.about().name, Remasking::default()).is_ok()
            });
            assert!(legal.count() > 0, "{mask:?}");
        }
    }

    #[test]
    fn parameters_out_of_bounds_are_refused() {
        let facts = ModelFacts {
            mask: Mask::Full,
            shift: 0,
            mask_id: Some(9),
            vocab: 10,
            context: 64,
            layers: 3,
            blocks: demask_step::BlockRules::default(),
            free_rows: crate::FREE_ROWS,
        };
        let mut options = SessionOptions::new(facts, CanvasSpec::Prompt { tokens: vec![1], gen_length: 8 });
        options.decoder = crate::methods::FreeDave { d: crate::spec::OrAuto::Given(0), ..Default::default() }.into();
        assert_eq!(
            Session::new(options).unwrap_err().to_string(),
            "freedave: d is \"0\", expected auto or a whole number from 1 to 256 (default: auto)"
        );
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

    #[test]
    fn drafts_follow_from_what_a_cache_says_of_itself() {
        for decoder in ["static", "freedave", "freedave:eager=false"] {
            assert_eq!(refusal(Mask::Full, decoder, "dual", Remasking::default()), Ok(()), "{decoder}");
        }
        assert_eq!(
            refusal(Mask::Full, "freedave:eager", "dual", Remasking::default()).unwrap_err(),
            "decoder freedave with eager drafts reaches into the next block, and cache dual has a forward predict one \
             block only: omit eager, or use cache none or block"
        );
        for memory in [Memory::OfState, Memory::OfHistory] {
            let claim = exactness_with(&"freedave".parse().unwrap(), &"none".parse().unwrap(), memory, true);
            assert_eq!(claim == Exactness::Approximate, memory == Memory::OfHistory);
        }
    }

    #[test]
    fn refusals_name_what_can_be_used() {
        assert_eq!(
            refusal(Mask::Full, "ar", "none", Remasking::default()).unwrap_err(),
            "decoder ar cannot run a model with full attention: use static, threshold, factor, entropy_bounded, slowfast, p2, \
             freedave, guided"
        );
        assert_eq!(
            refusal(Mask::Full, "static", "block", Remasking::default()).unwrap_err(),
            "cache block cannot run a model with full attention: use none, prefix, dual, freecache, dkv, dllm"
        );
        assert_eq!(
            refusal(Mask::Full, "threshold", "none", Remasking::Origin).unwrap_err(),
            "remasking origin picks positions by chance and decoder threshold by confidence: \
             use origin with decoder static"
        );
    }

    /// Every decoder with every variant of the inexact caches, on every family: allowed, or the reason why not.
    #[test]
    fn inexact_caches_and_decoders() {
        let full = |decoder, cache, remasking| refusal(Mask::Full, decoder, cache, remasking);
        let confident = Remasking::LowConfidence;
        for cache in ["dkv", "dkv:variant=prefill", "dkv:variant=pd,shift=un_right", "dllm", "dllm:probe=k"] {
            for decoder in ["static", "threshold", "entropy_bounded", "slowfast"] {
                assert_eq!(full(decoder, cache, confident), Ok(()), "{decoder} {cache}");
            }
            assert_eq!(full("static", cache, Remasking::Origin), Ok(()), "{cache}");
            for (mask, decoder) in [(BLOCKS, "static"), (Mask::Causal, "ar")] {
                let refused = refusal(mask, decoder, cache, confident).unwrap_err();
                assert!(refused.contains("cannot run a model with"), "{cache}: {refused}");
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
            ("dkv:window=2", "cache dkv:window=2: window belongs to variant=greedy: omit it"),
            (
                "dkv:variant=prefill,refresh=4",
                "cache dkv:variant=prefill,refresh=4: refresh belongs to the variants that refresh: omit it",
            ),
            (
                "dkv:variant=prefill,shift=un_right",
                "cache dkv:variant=prefill,shift=un_right: shift belongs to variant=decode and pd: omit it",
            ),
        ] {
            assert_eq!(full("static", cache, confident), Err(reason.into()));
        }
    }
}
