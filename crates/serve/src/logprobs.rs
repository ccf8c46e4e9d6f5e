//! Log-probabilities of an answer's tokens, at the moment of their commit, in the two shapes that clients know.

use demask::{Generation, internals::checkpoint::Tokenizer};
use serde_json::{Value, json};

use crate::shape::Kind;

/// Returns those of a whole answer.
pub fn whole(_kind: Kind, _generation: &Generation, _tokenizer: Option<&Tokenizer>) -> Value {
    json!(null)
}
