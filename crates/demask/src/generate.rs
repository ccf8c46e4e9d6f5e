//! One answer: what is seen of it while it is made, and what it is in the end. It is made by a [`Batch`](crate::Batch)
//! of one.

use std::ops::ControlFlow;

use demask_decode::Event;
use demask_step::TokenId;

use crate::{GenerateError, GenerateOptions, Model, Prompt, receipt::Receipt};

/// What happens while an answer is made.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The canvas is laid out; nothing is decoded yet.
    Started {
        /// The canvas.
        canvas: &'a [TokenId],
        /// Prompt tokens.
        prompt_tokens: usize,
        /// Positions to decode, the last block's overhang included.
        positions: usize,
        /// The decoder, with its parameters.
        decoder: &'a str,
        /// The cache policy, with its parameters.
        cache: &'a str,
    },
    /// A commit, or the end of a step.
    Event(Event),
    /// The canvas after a step.
    Canvas(&'a [TokenId]),
    /// Text that can no longer change and was not told yet.
    Text(&'a str),
}

/// Sees the progress of a generation and may end it.
pub type Observer<'a> = dyn FnMut(Progress<'_>) -> ControlFlow<()> + 'a;

/// An answer.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Generation {
    /// The text without special tokens; none if the model has no tokenizer.
    pub text: Option<String>,
    /// All tokens after the prompt, up to and including the end token.
    pub tokens: Vec<TokenId>,
    /// `eos`, `stop` or `length`.
    pub finish: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// How it was made.
    pub receipt: Receipt,
    /// The whole canvas, for infilling and for those who want to see it.
    #[serde(skip)]
    pub canvas: Vec<TokenId>,
}

impl Model {
    /// Answers a prompt.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        options: &GenerateOptions,
        observer: &mut Observer<'_>,
    ) -> Result<Generation, GenerateError> {
        let mut batch = self.batch();
        batch.submit(prompt, options)?;
        loop {
            let finished = batch.step(&mut |_, progress| observer(progress))?;
            if let Some((_, answer)) = finished.into_iter().next() {
                return answer;
            }
        }
    }
}
