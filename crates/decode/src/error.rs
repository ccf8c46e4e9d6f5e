//! Options that cannot be decoded with.

use demask_step::{MaskKind, Position, TokenId};

use crate::{SpecError, cache::CacheMethod, decoder::DecoderMethod, registry::alternatives, spec::Value};

/// A mistake in [`SessionOptions`](crate::SessionOptions): what was found, what was expected, what to try.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Error: the response has no position to generate.
    #[error("the generation length is 0, expected at least 1: ask for more tokens")]
    NothingToGenerate,
    /// A transfer rule of one's own, and a model that has no masks.
    #[error("the transfer rule {rule} says which masks are filled, and a model with {attention} has none: omit it")]
    OwnRuleForModel {
        /// The rule.
        rule: String,
        /// The model's.
        attention: MaskKind,
    },
    /// A transfer rule of one's own beside a decoder, which has rules of its own.
    #[error(
        "the transfer rule {rule} decides in the loop over blocks, and decoder {decoder} has its own rule: omit `decoder`, or \
         the rule"
    )]
    OwnRuleBesideDecoder {
        /// The rule.
        rule: String,
        /// The decoder.
        decoder: String,
    },
    /// Fixed tokens behind the response of a model that does not see them.
    #[error("tokens behind the response are for models with full attention, found {attention}: leave the tail empty")]
    TailNeedsFull {
        /// The model's.
        attention: MaskKind,
    },
    /// A mask behind the response.
    #[error("the tokens behind the response hold the mask (token {mask_id}), expected fixed ones: ask for more tokens")]
    MaskInTail {
        /// The mask token.
        mask_id: TokenId,
    },
    /// An infill canvas without a mask.
    #[error("nothing to fill in, expected at least one mask (token {mask_id}): put masks where text is wanted")]
    NothingToFill {
        /// The mask token.
        mask_id: TokenId,
    },
    /// A method that cannot follow tokens that a stored block predicts.
    #[error("the model's stored blocks predict the token behind them, which {what} cannot follow: {try_instead}")]
    Seeds {
        /// The method.
        what: &'static str,
        /// Advice on how to go on.
        try_instead: &'static str,
    },
    /// A decoder whose passes only one cache follows.
    #[error("decoder {decoder} keeps the K/V of its causal passes, found cache {cache}: use cache causal")]
    NeedsCache {
        /// The decoder.
        decoder: &'static str,
        /// The cache.
        cache: String,
    },
    /// A canvas of masks alone, and a model that predicts what a block starts with.
    #[error("cache block with canvas=masks is for models with attention by pass, found {attention}: omit canvas")]
    CanvasForContext {
        /// The model's.
        attention: MaskKind,
    },
    /// Drafts that are verified by the most probable token, and tokens that are drawn.
    #[error(
        "decoder {decoder} verifies its drafts by the most probable token, found temperature {found}: give 0, or use ar"
    )]
    GreedyOnly {
        /// The decoder.
        decoder: &'static str,
        /// The temperature.
        found: f32,
    },
    /// Infilling with a model that decodes from left to right.
    #[error("infilling needs full attention, found a model with {attention}: use a LLaDA or Dream model")]
    InfillNeedsFull {
        /// The model's.
        attention: MaskKind,
    },
    /// A prompt that holds the mask token.
    #[error(
        "the prompt holds the mask token ({mask_id}) at position {position}, expected text only: \
         remove it, or use infilling"
    )]
    MaskInPrompt {
        /// The mask token.
        mask_id: TokenId,
        /// Position of the mask.
        position: Position,
    },
    /// A causal model without anything to read.
    #[error("the prompt is empty, expected at least one token for an autoregressive model: start with its bos token")]
    EmptyPrompt,
    /// A diffusion model without a mask token.
    #[error("the model names no mask token and {attention} needs one: give the mask id in the model's configuration")]
    MaskIdMissing {
        /// The model's.
        attention: MaskKind,
    },
    /// A token that the model does not have.
    #[error(
        "{what} {token} is outside the vocabulary, expected ids below {vocab}: check that the tokenizer is the model's"
    )]
    TokenOutOfRange {
        /// Name of the setting: `token`, `mask id`, `suppressed token`.
        what: &'static str,
        /// The token.
        token: TokenId,
        /// Number of tokens that there are.
        vocab: usize,
    },
    /// A canvas longer than the model's context.
    #[error(
        "the canvas needs {needed} positions and the model's context holds {available}: \
         shorten the prompt or the generation length"
    )]
    Context {
        /// Positions of the canvas.
        needed: usize,
        /// Positions that the model knows.
        available: usize,
    },
    /// A block length of 0.
    #[error("the block length is 0, expected at least 1: omit it to have it chosen")]
    BlockLengthZero,
    /// A block length that does not divide the generation length.
    #[error("block length {block_length} does not divide the generation length {gen_length}: try {nearest}")]
    BlockLength {
        /// Block length that was requested.
        block_length: usize,
        /// Positions to decode.
        gen_length: usize,
        /// The divisor that is nearest.
        nearest: usize,
    },
    /// No steps.
    #[error("the number of steps is 0, expected at least 1: omit it for one token a step")]
    StepsZero,
    /// More steps than the canvas can use.
    #[error(
        "{steps} steps for {masks} masks, expected at most {most}: a step that takes no token is a forward for nothing"
    )]
    StepsMany {
        /// Number of steps that was requested.
        steps: usize,
        /// Masks to decode.
        masks: usize,
        /// Most steps of so many.
        most: usize,
        /// The option that requested them: `steps`, or `decoder` with a parameter of its own.
        option: &'static str,
    },
    /// Steps that the blocks cannot share.
    #[error("{steps} steps do not divide over {blocks} blocks: try {nearest}, or another block length")]
    Steps {
        /// Number of steps that was requested.
        steps: usize,
        /// Blocks to decode.
        blocks: usize,
        /// The multiple of `blocks` that is nearest.
        nearest: usize,
        /// The option that requested them: `steps`, or `decoder` with a parameter of its own.
        option: &'static str,
    },
    /// Steps given to the decoder and beside it, and not the same.
    #[error("steps is {option} and the decoder says steps={decoder}, expected one number: give only one of them")]
    StepsTwice {
        /// The option.
        option: usize,
        /// The decoder's parameter.
        decoder: usize,
    },
    /// A number of diffusion decoding, given to a causal model.
    #[error("{what} has no meaning for autoregressive decoding (one token a forward): omit it")]
    NotForAutoregressive {
        /// Name of the option.
        what: &'static str,
    },
    /// A number out of bounds.
    #[error("`{name}` is {found}, expected {expected}")]
    Number {
        /// Name of the option.
        name: &'static str,
        /// Value that was given.
        found: f32,
        /// Expected values.
        expected: &'static str,
    },
    /// Guidance for a causal model.
    #[error(
        "classifier-free guidance hides the prompt behind masks, and a model with causal attention has none: \
         set the scale to 0"
    )]
    GuidanceNeedsMask,
    /// A method with a parameter out of bounds.
    #[error(transparent)]
    Parameter(#[from] SpecError),
    /// Error of a method's own: its words for what was found, what was expected and what to try.
    #[error("{what} {name}: {reason}")]
    Method {
        /// `decoder` or `cache`.
        what: &'static str,
        /// The method.
        name: &'static str,
        /// Message of the method.
        reason: String,
    },
    /// A method that cannot run this model.
    #[error("{what} {name} cannot run a model with {attention}: use {choices}")]
    MethodForModel {
        /// `decoder` or `cache`.
        what: &'static str,
        /// The method.
        name: &'static str,
        /// The model's.
        attention: MaskKind,
        /// Methods that can.
        choices: String,
    },
    /// Drafts that reach into the next block over a cache that does not.
    #[error(
        "decoder {decoder} with eager drafts reaches into the next block, and cache {cache} has a forward predict one \
         block only: omit eager, or use cache {}",
        alternatives::<CacheMethod>(|cache| cache.traits().spans_blocks)
    )]
    EagerNeedsSpan {
        /// The decoder.
        decoder: &'static str,
        /// The cache with its parameters.
        cache: String,
    },
    /// Stores of another kind than the decoder's forwards have.
    #[error("decoder {decoder} stores blocks with store={expected}, and cache {cache} says otherwise: omit store")]
    Stores {
        /// The decoder with its parameters.
        decoder: String,
        /// What it expects.
        expected: Value,
        /// The cache with its parameters.
        cache: String,
    },
    /// Parameters of the threshold rule without a threshold.
    #[error("decoder {decoder} has {parameter} without tau, expected it with a threshold only: add tau or omit it")]
    ThresholdMissing {
        /// The decoder.
        decoder: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
    },
    /// RND1's `greedy` at a temperature, asked for by filters.
    #[error(
        "top_k is 1 at temperature {temperature}, and schedule rnd1 ranks by the entropy of what top_k leaves, which is 0 \
         of one token: for the most probable tokens use temperature 0, whose entropies are those at temperature 1, no other"
    )]
    GreedyEntropies {
        /// The temperature.
        temperature: f32,
    },
    /// `origin` with a decoder that chooses by itself.
    #[error(
        "remasking origin picks positions by chance and decoder {decoder} by confidence: use origin with decoder {}",
        alternatives::<DecoderMethod>(|decoder| decoder.traits().takes_origin)
    )]
    Origin {
        /// The decoder.
        decoder: &'static str,
    },
    /// A cache policy that must know what a step commits before it is run, and a decoder that does not.
    #[error(
        "cache {cache} computes the rows that a step will decode, and decoder {decoder} with remasking {remasking} \
         finds them by their predictions: use decoder {} with remasking random or left_to_right",
        alternatives::<DecoderMethod>(|decoder| decoder.traits().foresees)
    )]
    Foresight {
        /// The cache policy in canonical text.
        cache: String,
        /// The decoder.
        decoder: &'static str,
        /// The remasking.
        remasking: &'static str,
    },
    /// A decoder that revises tokens, and a cache policy that keeps K/V of tokens as they were first written.
    #[error(
        "decoder {decoder} changes tokens that it has written, and cache {cache} takes them as final: use cache {choices}"
    )]
    Revision {
        /// The decoder.
        decoder: &'static str,
        /// The cache policy in canonical text.
        cache: String,
        /// Cache policies that can follow it.
        choices: String,
    },
    /// A parameter of a cache policy that nothing is made of.
    #[error("cache {cache}: {parameter} belongs to {of}: omit it")]
    UselessParameter {
        /// The cache policy in canonical text.
        cache: String,
        /// The parameter.
        parameter: &'static str,
        /// Method that it belongs to.
        of: &'static str,
    },
    /// A decoder that needs a guide, without one.
    #[error("decoder {decoder} needs an autoregressive model that judges its drafts: name one with `guide`")]
    GuideMissing {
        /// The decoder.
        decoder: &'static str,
    },
    /// A guide for a decoder that has none.
    #[error(
        "decoder {decoder} has no guide: omit the guide, or use decoder {}",
        alternatives::<DecoderMethod>(|decoder| decoder.traits().guide.is_some())
    )]
    GuideUnused {
        /// The decoder.
        decoder: &'static str,
    },
    /// A guide that does not read from left to right.
    #[error("the guide has {attention}, expected an autoregressive model: use a Qwen2.5, Qwen3 or Llama model")]
    GuideNotCausal {
        /// The guide's.
        attention: MaskKind,
    },
    /// A guide that cannot hold prompt and response.
    #[error(
        "the guide must read {needed} positions and its context holds {available}: \
         shorten the prompt or the generation length, or use another guide"
    )]
    GuideContext {
        /// Positions of its prompt and the response.
        needed: usize,
        /// Positions that it knows.
        available: usize,
    },
    /// Error: no token stands before the first draft.
    #[error(
        "nothing stands before the first mask, expected at least one token for the guide to start from: add a prompt"
    )]
    GuideEmptyPrompt,
    /// Ids that mean different things.
    #[error("{decoder}: align=ids, and the guide has another vocabulary: omit align, or use align=bytes")]
    GuideVocabulary {
        /// The decoder.
        decoder: &'static str,
    },
    /// Two vocabularies and no text to go through.
    #[error(
        "{decoder}: the guide has another vocabulary and there are no two tokenizers to go through: \
         use a guide with the model's vocabulary"
    )]
    GuideWithoutText {
        /// The decoder.
        decoder: &'static str,
    },
    /// Tokens of the guide on a canvas of other tokens.
    #[error("{decoder}: {parameter} writes tokens of the guide, which has another vocabulary: omit it")]
    GuideWrites {
        /// The decoder.
        decoder: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A temperature for an output that does not depend on it.
    #[error("{decoder}: target=guide gives the guide's greedy output, expected temperature 0: omit the temperature")]
    GuideTemperature {
        /// The decoder.
        decoder: &'static str,
    },
}

impl OptionsError {
    /// The option whose value is refused, where the refusal is of a number or of a parameter inside of a method's text:
    /// then it is the method's, `decoder` or `cache`. A method that does not go with another one is no option's fault alone.
    pub fn option(&self) -> Option<&'static str> {
        match self {
            Self::StepsMany { option, .. } | Self::Steps { option, .. } => Some(option),
            Self::Number { name, .. } => Some(name),
            Self::Method { what, .. } => Some(what),
            Self::StepsTwice { .. }
            | Self::EagerNeedsSpan { .. }
            | Self::ThresholdMissing { .. }
            | Self::GuideVocabulary { .. }
            | Self::GuideWrites { .. }
            | Self::GuideTemperature { .. } => Some("decoder"),
            Self::CanvasForContext { .. }
            | Self::UselessParameter { .. }
            | Self::Stores { .. } => Some("cache"),
            _ => None,
        }
    }
}
