//! Options of a session.

use demask_step::{BlockRules, ConfidenceOf, FilterOrder, Mask, MaskKind, Position, TokenId};

use crate::{
    cache::{Block, CacheSpec, Causal, NoCache},
    decoder::{DECODERS, DecoderSpec, DecoderTraits},
    guide::GuideOptions,
    schedule::Schedule,
    spec::Method,
    stop_rule::StopRule,
    transfer::{OwnRule, Remasking},
};

/// Facts about a model that decoding must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// Attention mask of the model.
    pub mask: Mask,
    /// The row of position `p - shift` predicts position `p`: 1 for causal models and Dream, 0 for the others.
    pub shift: u32,
    /// The mask token; causal models have none.
    pub mask_id: Option<TokenId>,
    /// Number of tokens that there are.
    pub vocab: usize,
    /// Positions that the model knows.
    pub context: usize,
    /// Layers that it has.
    pub layers: usize,
    /// Rules for its blocks, if it decodes block by block.
    pub blocks: BlockRules,
    /// Rows that hardly lengthen a forward on the device that runs it; [`FREE_ROWS`] without one.
    pub free_rows: usize,
}

/// Rows that are taken as nearly free where no device runs the model.
pub const FREE_ROWS: usize = 16;

/// First content of the canvas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CanvasSpec {
    /// A prompt, and a response of this many positions behind it.
    Prompt {
        /// The prompt.
        tokens: Vec<TokenId>,
        /// Positions to decode.
        gen_length: usize,
    },
    /// Tokens with the mask id wherever something is to be filled in; full attention only.
    Infill {
        /// The whole canvas.
        tokens: Vec<TokenId>,
    },
}

/// Options that a session is made from. [`SessionOptions::new`] gives the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOptions {
    /// The model.
    pub facts: ModelFacts,
    /// The canvas.
    pub canvas: CanvasSpec,
    /// Tokens behind all that is decoded: fixed, seen by every row, and no part of the answer. Full attention only.
    pub tail: Vec<TokenId>,
    /// Positions of a block; chosen to fit if not given. For block-causal models it is the block of the attention too.
    pub block_length: Option<usize>,
    /// Steps over all blocks; one token a step if not given.
    pub steps: Option<usize>,
    /// Quantity that ranks predictions.
    pub remasking: Remasking,
    /// Under `random` remasking: the order of positions within their blocks, in place of keyed numbers, to replay what
    /// another program drew. Empty: keyed numbers.
    pub order: Vec<Position>,
    /// Rule by which steps share the masks.
    pub schedule: Schedule,
    /// End of Dream's time, in (0, 1).
    pub eps: f32,
    /// 0: the most probable token.
    pub temperature: f32,
    /// Probability kept by top-p filtering, in (0, 1]; 1: all.
    pub top_p: f32,
    /// Tokens kept by top-k filtering; 0: all.
    pub top_k: u32,
    /// Temperature of the order of commits (Dream); 0: the best first.
    pub alg_temp: f32,
    /// Scale of classifier-free guidance; 0: none.
    pub cfg_scale: f32,
    /// Order of the filters.
    pub filter_order: FilterOrder,
    /// Choice of the probability that is the confidence, unless the [decoder](DecoderTraits::confidence) has its own.
    pub confidence: ConfidenceOf,
    /// The decoder.
    pub decoder: DecoderSpec,
    /// A transfer rule that decides in the place of the decoder, which is `static` then.
    pub rule: Option<OwnRule>,
    /// The cache policy.
    pub cache: CacheSpec,
    /// Key of all randomness.
    pub seed: u64,
    /// Tokens that end a response; none to have all of it.
    pub end_ids: Vec<TokenId>,
    /// Tokens that end a response as well; nothing else is different about them.
    pub stop_ids: Vec<TokenId>,
    /// Rule for stopping early.
    pub stop: StopRule,
    /// Token that a stop rule fills masks with.
    pub fill: TokenId,
    /// Tokens that are never predicted, beside the mask; they keep their share of the distribution.
    pub suppress: Vec<TokenId>,
    /// Tokens that weigh nothing in the distribution: predicted with confidence 0 or, if they are suppressed too, unknown to
    /// it (specs/models.md#6).
    pub mute: Vec<TokenId>,
    /// The guide, for decoders that have one.
    pub guide: Option<GuideOptions>,
    /// Keep the log-probability of each committed token, and this many of the most probable tokens beside it
    /// ([`Session::logprob`](crate::Session::logprob)). Tokens never depend on it.
    pub top_logprobs: Option<usize>,
}

impl SessionOptions {
    /// Greedy reference decoding with the family's exact cache: `static` with `none` (full attention) or `block`
    /// (block-causal), `ar` with `causal`.
    pub fn new(facts: ModelFacts, canvas: CanvasSpec) -> Self {
        let (decoder, cache) = default_methods(facts.mask.kind());
        Self {
            facts,
            canvas,
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
            mute: Vec::new(),
            guide: None,
            top_logprobs: None,
        }
    }
}

impl SessionOptions {
    /// Marks all passes that commit anything as causal, of a model whose passes may be causal, if the decoder requires
    /// it: the decoding is then that of a causal model. Returns the shift of its passes too, which then differs from
    /// the model's own.
    pub(crate) fn decoded(mut self) -> (Self, Option<Position>) {
        if self.facts.mask.kind() != MaskKind::Context || !self.traits().causal {
            return (self, None);
        }
        (self.facts.mask, self.facts.shift) = (Mask::Causal, 1);
        (self, Some(1))
    }

    /// Returns what others must know of whatever decodes: of a rule of one's own, that it promises nothing.
    pub fn traits(&self) -> DecoderTraits {
        if self.rule.is_some() { DecoderTraits::default() } else { self.decoder.traits() }
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
