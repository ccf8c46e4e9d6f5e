//! Defaults of a session's options.

use demask_step::{ConfidenceOf, FilterOrder, MaskKind};

use crate::{
    adjust::Adjustments,
    caches::{Block, Causal, NoCache},
    facts::{CanvasSpec, ModelFacts},
    method::{CacheSpec, DecoderSpec, SessionOptions},
    methods::DECODERS,
    schedule::Schedule,
    spec::Method,
    stop_rule::StopRule,
    transfer::Remasking,
};

impl SessionOptions {
    /// Greedy reference decoding with the family's exact cache: `static` with `none` (full attention) or `block`
    /// (block-causal), `ar` with `causal`.
    pub fn new(facts: ModelFacts, canvas: CanvasSpec) -> Self {
        let (decoder, cache) = default_methods(facts.mask.kind());
        Self {
            facts,
            canvas,
            max_tokens: None,
            constraint: None,
            tail: Vec::new(),
            block_length: None,
            steps: None,
            remasking: Remasking::default(),
            order: Vec::new(),
            schedule: Schedule::default(),
            eps: 1e-3,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            adjustments: Adjustments::default(),
            alg_temp: 0.0,
            cfg_scale: 0.0,
            filter_order: FilterOrder::TopPFirst,
            confidence: ConfidenceOf::Raw,
            decoder,
            rule: None,
            cache,
            seed: 0,
            end_ids: Vec::new(),
            stop_ids: Vec::new(),
            stop: StopRule::default(),
            fill: 0,
            suppress: Vec::new(),
            zero_confidence: Vec::new(),
            guide: None,
            top_logprobs: None,
        }
    }
}

/// The first decoder that is listed for a family, and its exact cache.
fn default_methods(attention: MaskKind) -> (DecoderSpec, CacheSpec) {
    let decoder = DECODERS.iter().find(|method| method.about().attention.contains(&attention));
    (decoder.map(DecoderSpec::of).unwrap_or_default(), exact_cache(attention))
}

/// The exact cache of a kind of attention, the cheaper one where `none` is exact too.
pub(crate) fn exact_cache(attention: MaskKind) -> CacheSpec {
    match attention {
        MaskKind::Full => NoCache::default().into(),
        MaskKind::BlockCausal | MaskKind::Context => Block::default().into(),
        MaskKind::Causal => Causal::default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cache_of_each_attention_is_exact_and_serves_it() {
        for attention in [MaskKind::Full, MaskKind::BlockCausal, MaskKind::Causal, MaskKind::Context] {
            let cache = exact_cache(attention);
            assert!(cache.traits().exact && cache.method().about().attention.contains(&attention), "{cache}");
        }
        assert_eq!(exact_cache(MaskKind::Causal).name(), "causal");
    }
}
