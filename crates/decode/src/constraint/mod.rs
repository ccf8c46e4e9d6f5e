//! Constraints: a regular language of answer texts, held to after every commit in whatever order tokens are committed
//! (specs/structure.md).

mod automaton;
mod bytes;
mod classes;
mod decimal;
mod ecma;
mod enforcer;
mod error;
mod grammar;
mod heard;
mod json;
mod language;
mod live;
#[cfg(test)]
mod oracle;
mod pattern;
mod ranks;
mod schema;
mod tokens;
mod vocabulary;
mod words;

use std::{fmt, sync::Arc};

use demask_step::TokenId;
use serde::Serialize;

use crate::event::ConstraintCounts;

pub use bytes::{ByteAutomaton, ByteState};
pub use enforcer::Enforced;
pub(crate) use enforcer::{Enforcer, LaneOf, Needed, tokens_of};
pub use error::ConstraintError;
pub(crate) use heard::Heard;
pub use language::{Compiled, Constraint, Difference, Language};
pub(crate) use ranks::{GuideRow, Ranks};
pub use tokens::{Limits, TokenAutomaton};
pub use vocabulary::{Ends, Role, Vocabulary, VocabularyError};
pub use words::{AtDeadline, Forced, Measured, Space};

/// What an answer's text must be, for the options of a session.
#[derive(Debug, Clone)]
pub struct TokenConstraint {
    /// The language over the model's tokens. Requests share it.
    pub automaton: Arc<TokenAutomaton>,
    /// Kind and fingerprint of its language, and its differences from the request.
    pub source: Arc<Source>,
    /// Distribution that confidences, margins and entropies speak of.
    pub confidence: Measured,
    /// The tokenizer's own tokens of a text, to commit text that every answer has at once. None: only tokens that every answer
    /// has are committed without a forward.
    pub spelling: Option<Spelling>,
    /// Sets whether the language says where a text ends. In one that does not, every beginning of a text is one, and an answer of
    /// all tokens that it may have is cut.
    pub says_end: bool,
    /// Answer whose time is over.
    pub deadline: AtDeadline,
}

impl TokenConstraint {
    /// Makes one with the usual settings.
    pub fn new(automaton: Arc<TokenAutomaton>, source: Source) -> Self {
        Self {
            automaton,
            source: Arc::new(source),
            confidence: Measured::Raw,
            spelling: None,
            says_end: true,
            deadline: AtDeadline::Settled,
        }
    }
}

impl PartialEq for TokenConstraint {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.automaton, &other.automaton)
            && self.source == other.source
            && self.confidence == other.confidence
            && self.spelling == other.spelling
            && self.says_end == other.says_end
            && self.deadline == other.deadline
    }
}

/// Origin of a constraint, as receipts name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Source {
    /// `bad_words`, `regex`, `choice`, `json_object` or `json_schema`.
    pub kind: String,
    /// Fingerprint of the language, the tokenizer and the options.
    pub hash: String,
    /// What accepts less than was asked for, with its place.
    pub narrowed: Vec<String>,
    /// Parts that were read as a note.
    pub ignored: Vec<String>,
}

/// A tokenizer's own tokens of a text.
#[derive(Clone)]
pub struct Spelling(Arc<Spell>);

/// Encoder of bytes.
type Spell = dyn Fn(&[u8]) -> Vec<TokenId> + Send + Sync;

impl Spelling {
    /// Makes one of an encoder.
    pub fn new(encode: impl Fn(&[u8]) -> Vec<TokenId> + Send + Sync + 'static) -> Self {
        Self(Arc::new(encode))
    }

    /// Returns the tokens of a text.
    fn encode(&self, bytes: &[u8]) -> Vec<TokenId> {
        (self.0)(bytes)
    }
}

impl fmt::Debug for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spelling")
    }
}

impl PartialEq for Spelling {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A constraint in a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConstraintReceipt {
    /// Kind and fingerprint of its language, and its differences from the request.
    #[serde(flatten)]
    pub source: Source,
    /// States of the language.
    pub states: usize,
    /// Classes of tokens that were found so far, by this request and others.
    pub classes: usize,
    /// Counts of its commits, changes and fallbacks.
    #[serde(flatten)]
    pub counts: ConstraintCounts,
}
