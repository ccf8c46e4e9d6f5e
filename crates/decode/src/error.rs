//! Options that cannot be decoded with.

use std::fmt;

use demask_step::TokenId;

use crate::{constraint::Needed, spec::SpecError};

/// A mistake in [`SessionOptions`](crate::SessionOptions). The message names the value found, the values expected and a
/// remedy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A value of one option, or a parameter in a method's text: then the option is `decoder` or `cache`.
    #[error("{text}")]
    Value {
        /// The option.
        option: &'static str,
        /// The mistake, in a line.
        text: String,
    },
    /// Options, methods, a model and a guide that do not go together.
    #[error("{0}")]
    Unfit(String),
    /// A method with a parameter out of bounds.
    #[error(transparent)]
    Parameter(#[from] SpecError),
    /// Error of a method's own: its words for the value found, the values expected and a remedy.
    #[error("{what} {name}: {reason}")]
    Method {
        /// `decoder` or `cache`.
        what: &'static str,
        /// The method.
        name: &'static str,
        /// Message of the method.
        reason: String,
    },
}

impl OptionsError {
    /// The option whose value is refused, where the refusal is of a number or of a parameter inside of a method's text:
    /// then it is the method's, `decoder` or `cache`. A method that does not go with another one is no option's fault alone.
    pub fn option(&self) -> Option<&'static str> {
        match self {
            Self::Value { option, .. } => Some(option),
            Self::Method { what, .. } => Some(what),
            Self::Unfit(_) | Self::Parameter(_) => None,
        }
    }

    /// Returns the refusal of a transfer rule of one's own beside a decoder, which has rules of its own.
    pub fn own_rule_beside_decoder(rule: &str, decoder: &str) -> Self {
        unfit(format_args!(
            "the transfer rule {rule} decides in the loop over blocks, and decoder {decoder} has its own rule: omit `decoder`, \
             or the rule"
        ))
    }

    /// Returns the refusal of a decoder that needs a guide, without one.
    pub fn guide_missing(decoder: &str) -> Self {
        unfit(format_args!(
            "decoder {decoder} needs an autoregressive model that judges its drafts: load one with the model, as `guide`"
        ))
    }
}

/// Options that do not go together.
pub(crate) fn unfit(text: impl fmt::Display) -> OptionsError {
    OptionsError::Unfit(text.to_string())
}

/// A value of an option.
pub(crate) fn value(option: &'static str, text: impl fmt::Display) -> OptionsError {
    OptionsError::Value { option, text: text.to_string() }
}

/// A method that cannot follow tokens that a stored block predicts.
pub(crate) fn seeds(what: impl fmt::Display, try_instead: &str) -> OptionsError {
    unfit(format_args!(
        "the model's stored blocks predict the token behind them, which {what} cannot follow: {try_instead}"
    ))
}

/// Drafts that are verified by the most probable token, and tokens that are drawn.
pub(crate) fn greedy_only(decoder: &str, found: f32) -> OptionsError {
    unfit(format_args!(
        "decoder {decoder} verifies its drafts by the most probable token, found temperature {found}: give 0, or use ar"
    ))
}

/// A token that the model does not have.
pub(crate) fn token_out_of_range(what: &str, token: TokenId, vocab: usize) -> OptionsError {
    unfit(format_args!(
        "{what} {token} is outside the vocabulary, expected ids below {vocab}: check that the tokenizer is the model's"
    ))
}

/// A canvas longer than the model's context.
pub(crate) fn context(needed: usize, available: usize) -> OptionsError {
    unfit(format_args!(
        "the canvas needs {needed} positions and the model's context holds {available}: shorten the prompt or the \
         generation length"
    ))
}

/// What does not go together with a constraint.
pub(crate) fn constrained(what: impl fmt::Display, try_instead: &str) -> OptionsError {
    value("constraint", format_args!("a constraint, and {what}: {try_instead}, or leave the constraint out"))
}

/// A constraint that nothing of this many tokens meets, and the number that it needs where more would do.
pub(crate) fn impossible(tokens: usize, needed: Option<Needed>) -> OptionsError {
    let text = match needed {
        Some(Needed { tokens: u32::MAX, .. }) => {
            "no text of the constraint can be written in the model's tokens: check its characters".to_owned()
        }
        Some(Needed { tokens: needed, as_bytes: true }) => format!(
            "the shortest text of the constraint has {needed} bytes, which may be as many tokens, and there is room for {tokens}: ask \
             for {needed} or more"
        ),
        Some(Needed { tokens: needed, as_bytes: false }) => format!(
            "the shortest text of the constraint takes {needed} tokens, and there is room for {tokens}: ask for {needed} or more"
        ),
        None => {
            format!("no text of the constraint takes up the {tokens} tokens that there are: ask for another length")
        }
    };
    value("constraint", text)
}

/// A parameter of a cache policy that nothing is made of.
pub(crate) fn useless_parameter(cache: impl fmt::Display, parameter: &str, of: &str) -> OptionsError {
    value("cache", format_args!("cache {cache}: {parameter} belongs to {of}: omit it"))
}
