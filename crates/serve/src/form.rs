//! The form of an endpoint's answers in JSON.

use std::fmt;

use demask::Generation;
use serde_json::{Value, json};

/// Form of an endpoint's answers in JSON: their names, and where their parts are. What is not said otherwise is the form of
/// completions.
pub trait Form: fmt::Debug + Sync {
    /// Returns the beginning of an answer's name.
    fn prefix(&self) -> &'static str;

    /// Returns the value of `object`, of a chunk or of a whole body.
    fn object(&self, chunk: bool) -> &'static str;

    /// Returns whether answers are in a list `choices`, beside the model's fingerprint. If not, a body has the fields of its one
    /// answer.
    fn is_list(&self) -> bool {
        true
    }

    /// Returns whether chunks have the fields of their answer, too.
    fn is_flat(&self) -> bool {
        false
    }

    /// Returns whether log-probabilities are an object for each token, with its bytes. If not, they are lists over all tokens.
    fn logprobs_by_token(&self) -> bool {
        false
    }

    /// Returns whether the text of an answer with holes is all of it. If not, it is what fills the holes.
    fn has_whole_text(&self) -> bool {
        false
    }

    /// Returns whether chunks say that their texts replace each other.
    fn says_diffusing(&self) -> bool {
        false
    }

    /// Returns the part of an answer in a chunk. `first`: no text of it was sent before.
    fn part(&self, index: usize, text: &str, _first: bool, logprobs: Option<&Value>) -> Value {
        json!({"index": index, "text": text, "finish_reason": null, "logprobs": logprobs})
    }

    /// Returns the part that ends an answer in a stream, which has no text, as this form has it.
    fn last(&self, part: Value, _: &Generation) -> Value {
        part
    }

    /// Returns the place of the text in the part that ends an answer. `first`: no text of it was sent before.
    fn text<'v>(&self, part: &'v mut Value, _first: bool) -> &'v mut Value {
        &mut part["text"]
    }

    /// Returns an answer in a whole body.
    fn choice(&self, choice: Choice<'_>) -> Value {
        let Choice { index, text, logprobs, finish, stop, .. } = choice;
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": stop})
    }
}

/// Parts of an answer in a whole body.
pub struct Choice<'a> {
    /// Number of the answer.
    pub index: usize,
    /// Its text.
    pub text: String,
    /// Log-probabilities, if they are wanted.
    pub logprobs: Option<Value>,
    /// Word for how it ended.
    pub finish: &'static str,
    /// Reason why it ended.
    pub stop: Value,
    /// Texts of its holes.
    pub holes: &'a [String],
}

/// Form of completions.
#[derive(Debug)]
pub struct Completion;

impl Form for Completion {
    fn prefix(&self) -> &'static str {
        "cmpl-"
    }

    fn object(&self, _: bool) -> &'static str {
        "text_completion"
    }
}
