//! Methods that nobody names: for each kind of attention the fastest pair that is lossless or whose loss on the demo tasks
//! is within noise, and how a half-named pair is completed. The figures of the choice are in `docs/methods.md`.

use demask_step::{Mask, MaskKind};

use crate::{
    caches::{Block, Causal, Dual, NoCache, PrefixCache},
    method::{CacheSpec, DecoderSpec, Promise, SessionOptions},
    methods::{DECODERS, Isd, Threshold},
    options::exact_cache,
    resolve,
    spec::Method,
};

/// Methods of a request, as far as it names them, and what else decides about the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    /// The decoder, if it is named.
    pub decoder: Option<DecoderSpec>,
    /// The cache policy, if it is named.
    pub cache: Option<CacheSpec>,
    /// Source of a method that is not named.
    pub others: Others,
}

/// Source of the methods that nobody names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Others {
    /// The recommendation for the model's attention.
    #[default]
    Recommended,
    /// The recommendation for a causal model whose masks are trained to guess tokens: the same tokens in fewer forwards.
    Guesses,
    /// The reference decoder over the recommended caches: of the holes of a text, where thresholds lose.
    ReferenceOverCache,
    /// The reference: of a family with a sampler of its own, and beside settings that only the reference has.
    Reference,
}

impl Others {
    /// Returns the decoder and the cache of those who name neither.
    pub fn methods(self, mask: Mask) -> (DecoderSpec, CacheSpec) {
        let (decoder, cache) =
            (decoders(mask.kind(), self).into_iter().next(), caches(mask.kind(), self).into_iter().next());
        (decoder.unwrap_or_default(), cache.unwrap_or_default())
    }
}

/// Returns the recommended decoder and cache for a model's attention.
pub fn recommended(mask: Mask) -> (DecoderSpec, CacheSpec) {
    Others::Recommended.methods(mask)
}

/// Completes a request's methods. Candidates are the decoders and caches that it names and, for a kind that it does not
/// name, those of its source. The first pair that can run is taken. A named reference, or a family's own sampler, has
/// its missing cache from the reference, because it is named for its tokens.
#[must_use]
pub fn complete(options: &SessionOptions, named: Named) -> SessionOptions {
    let attention = options.facts.mask.kind();
    let Named { decoder, cache, others } = named;
    let is_reference =
        |decoder: &DecoderSpec| matches!(decoder.traits().promise, Promise::Reference | Promise::Official);
    let others = if decoder.as_ref().is_some_and(is_reference) { Others::Reference } else { others };
    let decoders = decoder.map_or_else(|| decoders(attention, others), |decoder| vec![decoder]);
    let pairs = decoders.into_iter().flat_map(|decoder| {
        // Where the model leaves open whether passes are causal, the decoder decides.
        let causal = attention == MaskKind::Context && decoder.traits().causal;
        let attention = if causal { MaskKind::Causal } else { attention };
        let caches = cache.clone().map_or_else(|| caches(attention, others), |cache| vec![cache]);
        caches.into_iter().map(move |cache| (decoder.clone(), cache))
    });
    let pairs: Vec<(DecoderSpec, CacheSpec)> = pairs.collect();
    let with = |(decoder, cache): &(DecoderSpec, CacheSpec)| SessionOptions {
        decoder: decoder.clone(),
        cache: cache.clone(),
        ..options.clone()
    };
    if let [only] = &pairs[..] {
        return with(only);
    }
    let found = pairs.iter().map(with).find(|pair| resolve::check(pair).is_ok());
    // Where no pair can run, the first decoder over its last cache says why: the cache that stands least in its way.
    let refused = || pairs.iter().rev().find(|(decoder, _)| *decoder == pairs[0].0).map(with);
    found.or_else(refused).unwrap_or_else(|| options.clone())
}

/// The decoders for a kind of attention, the first choice first.
fn decoders(attention: MaskKind, others: Others) -> Vec<DecoderSpec> {
    // Fast-dLLM's setting (specs/caches.md#3.6).
    let threshold = (others == Others::Recommended).then(|| Threshold { tau: 0.9, ..Threshold::default() }.into());
    let strides = (others == Others::Guesses).then(|| Isd::default().into());
    let references = DECODERS.iter().map(DecoderSpec::of);
    let references = references.filter(|decoder: &DecoderSpec| decoder.traits().promise == Promise::Reference);
    let all = threshold.into_iter().chain(strides).chain(references);
    all.filter(|decoder| decoder.method().about().attention.contains(&attention)).collect()
}

/// The caches for a kind of attention, the cheapest first, the reference's last.
fn caches(attention: MaskKind, others: Others) -> Vec<CacheSpec> {
    if others == Others::Reference {
        return vec![exact_cache(attention)];
    }
    let all: [CacheSpec; 5] = [
        Dual::default().into(),
        PrefixCache::default().into(),
        Block::default().into(),
        Causal::default().into(),
        NoCache::default().into(),
    ];
    all.into_iter().filter(|cache| cache.method().about().attention.contains(&attention)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CanvasSpec, ModelFacts, Remasking, Session};

    const BLOCKS: Mask = Mask::blocks(4);
    const BY_PASS: Mask = Mask::Context { context: 0, block: 4 };

    fn options(mask: Mask) -> SessionOptions {
        let facts = ModelFacts {
            mask,
            shift: 0,
            mask_id: (mask != Mask::Causal).then_some(9),
            vocab: 10,
            context: 64,
            layers: 3,
            blocks: demask_step::BlockRules::default(),
            free_rows: crate::FREE_ROWS,
        };
        SessionOptions::new(facts, CanvasSpec::Prompt { tokens: vec![1, 2], gen_length: 8 })
    }

    fn completed(options: &SessionOptions, decoder: &str, cache: &str, others: Others) -> String {
        let named = Named {
            decoder: (!decoder.is_empty()).then(|| decoder.parse().unwrap()),
            cache: (!cache.is_empty()).then(|| cache.parse().unwrap()),
            others,
        };
        let options = complete(options, named);
        let told = format!("{} {}", options.decoder, options.cache);
        match Session::new(options) {
            Ok(_) => told,
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn every_model_has_a_recommendation() {
        for (mask, expected) in [
            (Mask::Full, "threshold:tau=0.9 dual"),
            (BLOCKS, "threshold:tau=0.9 block"),
            (BY_PASS, "threshold:tau=0.9 block"),
            (Mask::Causal, "ar causal"),
        ] {
            let (decoder, cache) = recommended(mask);
            assert_eq!(format!("{decoder} {cache}"), expected);
            assert_eq!(completed(&options(mask), "", "", Others::Recommended), expected);
        }
    }

    #[test]
    fn naming_one_method_does_not_drop_the_other_to_the_reference() {
        for (mask, decoder, cache, expected) in [
            (Mask::Full, "", "dual", "threshold:tau=0.9 dual"),
            (Mask::Full, "", "prefix", "threshold:tau=0.9 prefix"),
            (Mask::Full, "", "none", "threshold:tau=0.9 none"),
            (Mask::Full, "", "dllm", "threshold:tau=0.9 dllm:prompt=auto,response=2,rho=0.25"),
            (Mask::Full, "threshold:tau=0.95", "", "threshold:tau=0.95 dual"),
            (Mask::Full, "factor", "", "factor:f=1 dual"),
            (Mask::Full, "freedave:d=4", "", "freedave:d=4 dual"),
            (BLOCKS, "", "none", "threshold:tau=0.9 none"),
            (BLOCKS, "threshold:tau=0.95", "", "threshold:tau=0.95 block"),
            (BY_PASS, "threshold:tau=0.95", "", "threshold:tau=0.95 block"),
            (Mask::Causal, "", "none", "ar none"),
        ] {
            let found = completed(&options(mask), decoder, cache, Others::Recommended);
            let same = |method: &str| method.split(':').next().map(str::to_owned);
            let (found, expected) = (found.split_once(' ').unwrap(), expected.split_once(' ').unwrap());
            assert_eq!((found.0, same(found.1)), (expected.0, same(expected.1)), "{mask:?} {decoder} {cache}");
        }
    }

    #[test]
    fn a_named_reference_keeps_the_reference_s_cache() {
        for (mask, decoder, expected) in [
            (Mask::Full, "static", "static none"),
            (Mask::Full, "static:steps=4", "static:steps=4 none"),
            (Mask::Full, "p2", "p2 none"),
            (BLOCKS, "static", "static block"),
            (BY_PASS, "static", "static block"),
            (BY_PASS, "ar", "ar causal"),
            (Mask::Causal, "ar", "ar causal"),
        ] {
            assert_eq!(completed(&options(mask), decoder, "", Others::Recommended), expected, "{mask:?}");
        }
        let edit = completed(&options(BLOCKS), "edit", "", Others::Recommended);
        assert!(edit.starts_with("edit") && edit.ends_with(" block"), "{edit}");
    }

    #[test]
    fn settings_of_the_reference_and_holes_have_their_own_source() {
        let completed = |decoder, cache, others| completed(&options(Mask::Full), decoder, cache, others);
        assert_eq!(completed("", "", Others::Reference), "static none");
        assert_eq!(completed("", "dual", Others::Reference), "static dual");
        assert_eq!(completed("threshold", "", Others::Reference), "threshold:tau=0.9 none");
        assert_eq!(completed("", "", Others::ReferenceOverCache), "static dual");
        assert_eq!(completed("", "prefix", Others::ReferenceOverCache), "static prefix");
        assert_eq!(completed("static", "", Others::ReferenceOverCache), "static none");
        assert_eq!(completed("threshold", "", Others::ReferenceOverCache), "threshold:tau=0.9 dual");
    }

    #[test]
    fn what_cannot_run_over_the_recommended_cache_has_the_cheapest_that_it_can_run_over() {
        let eager = completed(&options(Mask::Full), "freedave:d=4,eager", "", Others::Recommended);
        assert_eq!(eager, "freedave:d=4,eager=true none");
        // Passes are causal, and their cache is the causal one.
        let causal = |decoder, cache| completed(&options(BY_PASS), decoder, cache, Others::Recommended);
        assert_eq!(causal("selfspec", "").rsplit(' ').next(), Some("causal"));
        assert_eq!(causal("", "causal"), "ar causal");
    }

    #[test]
    fn a_refusal_names_what_is_named() {
        let refused = |mask, decoder, cache| completed(&options(mask), decoder, cache, Others::Recommended);
        assert!(refused(Mask::Full, "ar", "").starts_with("decoder ar cannot run a model with full attention"));
        assert!(refused(Mask::Full, "", "block").starts_with("cache block cannot run a model with full attention"));
        assert!(refused(BY_PASS, "", "dual").starts_with("cache dual cannot run a model with attention"));
        let origin = SessionOptions { remasking: Remasking::Origin, ..options(Mask::Full) };
        let refused = completed(&origin, "threshold", "", Others::Reference);
        assert!(refused.starts_with("remasking origin picks positions by chance and decoder threshold"), "{refused}");
    }
}
