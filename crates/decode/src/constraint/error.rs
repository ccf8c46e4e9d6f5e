//! Refusals of constraints: one line each, with the place in the given text or option.

use thiserror::Error;

/// Why a constraint is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConstraintError {
    /// A pattern is no regular expression, or has a part that no automaton over texts has.
    #[error("the regular expression is not usable at byte {position}: {reason}")]
    Pattern {
        /// Byte in the pattern.
        position: usize,
        /// Found, and what to try.
        reason: String,
    },
    /// The list of choices cannot be used.
    #[error("the choices are not usable: {0}")]
    Choice(String),
    /// A schema is no JSON, or is nested or repeated in a way that no schema is.
    #[error("the JSON schema is not readable: {0}")]
    Json(String),
    /// A keyword is refused, or its value is none that it can have.
    #[error("the JSON schema's {keyword} at {path} {reason}")]
    Keyword {
        /// The keyword's name.
        keyword: String,
        /// JSON pointer of the schema that has it, with `#` before it.
        path: String,
        /// The fault, and a remedy.
        reason: String,
    },
    /// An option cannot be used.
    #[error("the constraint's option {option} {reason}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Found, expected.
        reason: String,
    },
    /// No text is in the language.
    #[error("no text fits the form{}: expected at least one", .path.as_ref().map_or(String::new(), |path| format!(" (nothing is valid at {path})")))]
    Empty {
        /// The part of a schema that allows nothing, if it is one.
        path: Option<String>,
    },
    /// The empty text is the only one in the language.
    #[error("the form has the empty text alone, which is no answer: expected a text")]
    OnlyEmpty,
    /// The automaton would be larger than automata may be.
    #[error("the constraint needs more than {limit} {unit}: make it smaller, or its repetitions shorter")]
    TooLarge {
        /// Most that there may be.
        limit: usize,
        /// Of what.
        unit: &'static str,
    },
}
