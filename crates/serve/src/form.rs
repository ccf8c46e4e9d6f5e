//! The form of an endpoint's answers in JSON.

use std::fmt;

use demask::{Generation, parts::AnswerPart};
use serde_json::{Value, json};

use crate::{
    Refusal,
    answer::{Counts, Head},
    random,
};

/// Form of an endpoint's answers in JSON: their names, and where their parts are. The defaults are the form of
/// completions.
pub trait Form: fmt::Debug + Sync {
    /// Returns the beginning of an answer's name.
    fn prefix(&self) -> &'static str;

    /// Returns the interface that writes bodies and streams, where it is another one than OpenAI's first: then nothing else of
    /// a form is asked for.
    fn dialect(&self) -> Option<&dyn Dialect> {
        None
    }

    /// Returns the value of `object`, of a chunk or of a whole body.
    fn object(&self, _chunk: bool) -> &'static str {
        ""
    }

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

    /// Returns a thought or a call of an answer in a chunk; `number` counts its calls.
    fn aside(&self, index: usize, _part: &AnswerPart, _number: usize) -> Value {
        self.part(index, "", false, None)
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

/// A message of a stream: its event's name, and its content.
pub type Message = (&'static str, Value);

/// Returns a message whose content names its event, too.
pub fn named(name: &'static str, mut content: Value) -> Message {
    content["type"] = json!(name);
    (name, content)
}

/// A block of an answer in an interface of its own: a thought, a text, or a call.
#[derive(Debug)]
pub struct Block {
    /// Number of those before it.
    pub index: usize,
    /// Random letters and digits, for its names.
    pub name: String,
    /// Its content, as far as it was written.
    pub part: AnswerPart,
}

impl Block {
    /// Makes the next block of an answer.
    pub fn new(index: usize, part: AnswerPart) -> Self {
        Self { index, name: random::name(""), part }
    }

    /// Returns the blocks of parts: neighbours of one kind are one. An answer of no part is an empty text.
    pub fn all(parts: impl IntoIterator<Item = AnswerPart>) -> Vec<Self> {
        let mut blocks: Vec<Self> = Vec::new();
        for part in parts {
            match blocks.last_mut().and_then(|last| last.grows(&part)) {
                Some((text, more)) => text.push_str(more),
                None => blocks.push(Self::new(blocks.len(), part)),
            }
        }
        if blocks.is_empty() {
            blocks.push(Self::new(0, AnswerPart::Content(String::new())));
        }
        blocks
    }

    /// Returns the block's text, and that by which it grows, if a part belongs to it.
    pub fn grows<'p>(&mut self, part: &'p AnswerPart) -> Option<(&mut String, &'p str)> {
        match (&mut self.part, part) {
            (AnswerPart::Content(text), AnswerPart::Content(more))
            | (AnswerPart::Reasoning(text), AnswerPart::Reasoning(more)) => Some((text, more)),
            _ => None,
        }
    }
}

/// An answer that is over, in an interface of its own.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The answer.
    pub answer: &'a Generation,
    /// Its blocks.
    pub blocks: &'a [Block],
    /// Tokens of its thoughts.
    pub thought: usize,
}

impl Answered<'_> {
    /// Reports whether functions are called in it.
    pub fn calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.part, AnswerPart::Call(_)))
    }
}

/// An interface of its own, with one answer to a request: its body, and the messages of its stream.
pub trait Dialect {
    /// Returns the body of an answer that is over.
    fn body(&self, head: &Head, answered: &Answered<'_>) -> Value;

    /// Returns the messages before the first block, whose counts are the prompt's.
    fn begun(&self, head: &Head, counts: Counts) -> Vec<Message>;

    /// Returns the messages before the content of a block.
    fn opened(&self, block: &Block) -> Vec<Message>;

    /// Returns the message of content by which a block grows: of a call all of its arguments.
    fn grown(&self, block: &Block, more: &str) -> Message;

    /// Returns the messages after the content of a block, which is complete.
    fn closed(&self, block: &Block) -> Vec<Message>;

    /// Returns the messages of an answer that is over, after its blocks.
    fn over(&self, head: &Head, answered: &Answered<'_>) -> Vec<Message>;

    /// Returns the message of an error in the place of the rest.
    fn broken(&self, head: &Head, refusal: &Refusal) -> Message;

    /// Reports whether each message has its number.
    fn numbers(&self) -> bool {
        false
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
    /// Its thought, and the calls that it asks for.
    pub asides: &'a [AnswerPart],
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
