//! Methods, the options that name them, and what they are checked against and made from: these know each other.

use demask_step::{ConfidenceOf, FilterOrder, Mask, MaskKind, Position, TokenId};

use crate::{
    adjust::Adjustments,
    choices,
    constraint::TokenConstraint,
    error::OptionsError,
    facts::{CanvasSpec, ModelFacts},
    guide::{GuideOptions, GuideUse},
    layout::Layout,
    policy::{CachePolicy, Memory},
    schedule::{Clock, Schedule},
    spec::{About, Parameters, Spec, Value, require_sound},
    step::Decoder,
    stop_rule::StopRule,
    transfer::{OwnRule, Ranking, Remasking},
};

choices! {
    /// Forward that stores the prompt and a finished block.
    pub enum Store {
        /// The next one that predicts.
        Fused = "fused",
        /// One of its own, as released.
        Alone = "alone",
    }
}

/// A decoder by name, with its parameters.
pub type DecoderSpec = Spec<DecoderMethod>;

choices! {
    /// Distribution whose probabilities and entropies a decoder compares with its thresholds (specs/models.md#7).
    pub enum Confidence {
        /// The softmax of the logits, whatever the temperature and the filters.
        Clean = "clean",
        /// The tempered and filtered distribution, as programs of Dream, SDAR, LLaDA2 and RND1 read it.
        Tempered = "tempered",
    }
}

impl From<Confidence> for ConfidenceOf {
    fn from(confidence: Confidence) -> Self {
        match confidence {
            Confidence::Clean => Self::Raw,
            Confidence::Tempered => Self::Drawn,
        }
    }
}

/// A decoding method, described by its parameters, which [`parameters!`](crate::parameters) declares. They are a
/// [`Transfer`](crate::transfer::Transfer), the rule of the loop over blocks, or have a [loop](DecoderLoop) of their
/// own.
pub trait DecoderKind: Parameters + DecoderLoop {
    /// The name on the command line and in reports.
    const NAME: &'static str;
    /// Its effect in one line.
    const SUMMARY: &'static str;
    /// Paper or program.
    const SOURCE: &'static str;
    /// The models it decodes.
    const ATTENTION: &'static [MaskKind];

    /// Returns what others must know of it. By default it promises nothing.
    fn traits(&self) -> DecoderTraits {
        DecoderTraits::default()
    }

    /// Refuses what does not go together with it: its own parameters, the cache policy, the options.
    fn check(&self, _setup: &Setup<'_>) -> Result<(), OptionsError> {
        Ok(())
    }
}

/// The loop of a decoding method. A [`Transfer`](crate::transfer::Transfer) has
/// [`Blockwise`](crate::methods::Blockwise) for its loop.
pub trait DecoderLoop {
    /// Makes the decoder of a canvas whose forwards this cache policy plans.
    fn build(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> Box<dyn Decoder>;
}

/// Facts about a decoder with its parameters that other parts must know.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecoderTraits {
    /// Promise about its tokens.
    pub promise: Promise,
    /// Records whether Dream's `origin`, which chooses positions by itself, can drive it.
    pub takes_origin: bool,
    /// Records whether it names its commits before the forward ([`Query::foreseen`](crate::methods::Query::foreseen))
    /// wherever the order of commits does not depend on the predictions.
    pub foresees: bool,
    /// Steps over all blocks, if its parameters name them.
    pub steps: Option<usize>,
    /// Records whether it commits by confidence alone, so that a number of steps and a schedule change nothing.
    pub ignores_steps: bool,
    /// Use of a guide; none if it has none.
    pub guide: Option<GuideUse>,
    /// Distribution that its confidences and entropies are read from, if it compares them with numbers of its own; none: the
    /// family's.
    pub confidence: Option<ConfidenceOf>,
    /// Forward that stores finished blocks, if the decoder's claims about its forwards depend on it. A decoder that
    /// claims fewer forwards by fused stores is counted by the forwards that run.
    pub stores: Option<Store>,
    /// Records whether every pass that commits anything is causal, where the model leaves that open.
    pub causal: bool,
    /// Forwards that commit nothing before one that does, at most.
    pub idle: usize,
    /// Forwards of a block besides those that fill its masks, at most, of a decoder that revises written tokens: a
    /// token is open until the decoder [closes](crate::methods::Progress::closes) its block. None if a commit is final.
    pub revises: Option<usize>,
}

/// Promise of a decoder about its tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Promise {
    /// No promise.
    #[default]
    Approximate,
    /// Tokens of the reference, over a cache that is itself exact: static or autoregressive decoding.
    Reference,
    /// Tokens of a family's own sampler, over a cache that is itself exact: of its models it is the reference.
    Official,
    /// Tokens of this decoder over the same cache, if the cache's slots are a function of the canvas.
    SameAs(DecoderSpec),
    /// The same at temperature 0 only. Above it, no promise about each token.
    Greedy(DecoderSpec),
    /// Tokens of this run, over any cache.
    OfRun(&'static str),
}

/// An entry of a registry: a [`DecoderKind`] whose type is erased.
#[derive(Debug)]
pub struct DecoderMethod {
    /// Name, models, parameters, source.
    pub about: About,
    traits: fn(&[Value]) -> DecoderTraits,
    check: fn(&[Value], &Setup<'_>) -> Result<(), OptionsError>,
    build: fn(&[Value], &Setup<'_>, &dyn CachePolicy) -> Box<dyn Decoder>,
}

impl DecoderMethod {
    /// Makes the entry of a method. A name or parameters that could not be typed, read and printed do not compile.
    pub const fn of<K: DecoderKind>() -> Self {
        const { require_sound(K::NAME, K::TABLE) };
        Self {
            about: About::new::<K>(K::NAME, K::SUMMARY, K::SOURCE, K::ATTENTION),
            traits: |values| K::of_values(values).traits(),
            check: |values, setup| K::of_values(values).check(setup),
            build: |values, setup, cache| K::of_values(values).build(setup, cache),
        }
    }
}

impl<K: DecoderKind> From<K> for DecoderSpec {
    /// Returns the method with these parameters. A session refuses those that are out of bounds.
    fn from(parameters: K) -> Self {
        Self::with(const { &DecoderMethod::of::<K>() }, &parameters)
    }
}

impl DecoderSpec {
    /// Returns what others must know of it.
    pub fn traits(&self) -> DecoderTraits {
        (self.method().traits)(self.bare())
    }

    /// Refuses what does not go together with it.
    pub fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        (self.method().check)(self.bare(), setup)
    }

    /// Makes one for a canvas whose forwards this cache policy plans; what [`check`](Self::check) refuses may not work.
    pub fn build(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        (self.method().build)(self.bare(), setup, cache)
    }
}

/// A cache policy by name, with its parameters.
pub type CacheSpec = Spec<CacheMethod>;

/// A caching method, described by its parameters, which [`parameters!`](crate::parameters) declares and which make a
/// [`CachePolicy`].
pub trait CacheKind: Parameters {
    /// The name on the command line and in reports.
    const NAME: &'static str;
    /// Its effect in one line.
    const SUMMARY: &'static str;
    /// Paper or program.
    const SOURCE: &'static str;
    /// The models it serves.
    const ATTENTION: &'static [MaskKind];

    /// Returns what others must know of it. By default it is not exact, and its slots have a history.
    fn traits(&self) -> CacheTraits {
        CacheTraits::default()
    }

    /// Refuses what does not go together with it: its own parameters, the decoder, the options.
    fn check(&self, _setup: &Setup<'_>) -> Result<(), OptionsError> {
        Ok(())
    }

    /// Makes one for a canvas.
    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy>;
}

/// Facts about a cache policy with its parameters that other parts must know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTraits {
    /// Records whether predictions are those of a run without any cache.
    pub exact: bool,
    /// Memory of its slots, at worst: on a given canvas a policy may declare less ([`CachePolicy::memory`]).
    pub memory: Memory,
    /// Records whether one forward may predict positions of several blocks: nothing is computed anew because a block
    /// starts. Drafts that reach into the next blocks need it.
    pub spans_blocks: bool,
    /// Records whether a block's first forward sees keys that its later ones do not, so that the same canvas, run
    /// again, may be predicted otherwise.
    pub starts_wide: bool,
    /// Records whether it takes no token as final before the canvas does, so that decoders may revise what they have
    /// written.
    pub revisable: bool,
}

/// An entry of a registry: a [`CacheKind`] whose type is erased.
#[derive(Debug)]
pub struct CacheMethod {
    /// Name, models, parameters, source.
    pub about: About,
    traits: fn(&[Value]) -> CacheTraits,
    check: fn(&[Value], &Setup<'_>) -> Result<(), OptionsError>,
    build: fn(&[Value], &Setup<'_>) -> Box<dyn CachePolicy>,
}

impl CacheMethod {
    /// Makes the entry of a method. A name or parameters that could not be typed, read and printed do not compile.
    pub const fn of<K: CacheKind>() -> Self {
        const { require_sound(K::NAME, K::TABLE) };
        Self {
            about: About::new::<K>(K::NAME, K::SUMMARY, K::SOURCE, K::ATTENTION),
            traits: |values| K::of_values(values).traits(),
            check: |values, setup| K::of_values(values).check(setup),
            build: |values, setup| K::of_values(values).build(setup),
        }
    }
}

impl<K: CacheKind> From<K> for CacheSpec {
    /// Returns the method with these parameters. A session refuses those that are out of bounds.
    fn from(parameters: K) -> Self {
        Self::with(const { &CacheMethod::of::<K>() }, &parameters)
    }
}

impl CacheSpec {
    /// Returns what others must know of it.
    pub fn traits(&self) -> CacheTraits {
        (self.method().traits)(self.bare())
    }

    /// Refuses what does not go together with it.
    pub fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        (self.method().check)(self.bare(), setup)
    }

    /// Makes one for a canvas; what [`check`](Self::check) refuses may not work.
    pub fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        (self.method().build)(self.bare(), setup)
    }
}

/// Options that a session is made from. [`SessionOptions::new`] gives the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOptions {
    /// The model.
    pub facts: ModelFacts,
    /// The canvas.
    pub canvas: CanvasSpec,
    /// Tokens of the answer, at most; the canvas keeps its length, whose blocks may not end there. Decoding is over once these
    /// tokens are settled.
    pub max_tokens: Option<usize>,
    /// Constraint on the answer's text. None: any text.
    pub constraint: Option<TokenConstraint>,
    /// Tokens after all that is decoded: fixed, seen by every row, and no part of the answer. Full attention only.
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
    /// Tokens kept are at least this share as probable as the best one; 0: all.
    pub min_p: f32,
    /// Adjustments of logits before anything is read from them.
    pub adjustments: Adjustments,
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
    pub zero_confidence: Vec<TokenId>,
    /// The guide, for decoders that have one.
    pub guide: Option<GuideOptions>,
    /// Keep the log-probability of each committed token, and this many of the most probable tokens beside it
    /// ([`Session::logprob`](crate::Session::logprob)). Tokens never depend on it.
    pub top_logprobs: Option<usize>,
}

impl SessionOptions {
    /// Marks all passes that commit anything as causal, of a model whose passes may be causal, if the decoder requires
    /// it: such a decoding is a causal model's. Returns the shift of its passes too, which then differs from the
    /// model's own.
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

    /// Returns the order of predictions that is asked for.
    pub(crate) fn ranking(&self) -> Ranking {
        let Self { remasking, alg_temp, seed, ref order, .. } = *self;
        Ranking { remasking, alg_temp, seed, order: order.clone() }
    }
}

/// Facts that a method is checked against and made from.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Layout of the blocks.
    pub layout: &'a Layout,
    /// The schedule of each block.
    pub clock: &'a Clock,
    /// Steps over all blocks.
    pub steps: usize,
    /// The order of predictions.
    pub ranking: &'a Ranking,
    /// Options of the session: model, canvas, both methods, seed, guide.
    pub options: &'a SessionOptions,
}

impl Setup<'_> {
    /// Lets each method refuse the options and the other method.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        self.options.cache.check(self)?;
        self.options.decoder.check(self)
    }
}
