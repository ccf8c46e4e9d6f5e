//! Facts of an answer that several forms write: its counts, its tokens, how it ended.

use demask::{Finish, Generation, TokenId};

/// Tokens of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that an earlier request had computed.
    pub cached: usize,
    /// Tokens of the answer.
    pub generated: usize,
}

impl Counts {
    /// Returns those of an answer that is over.
    pub fn of(answer: &Generation) -> Self {
        let generated = answer.generated_tokens;
        // Of a text with holes, everything between and behind them was given, too.
        let prompt = if answer.hole_positions.is_empty() {
            answer.prompt_tokens
        } else {
            answer.canvas.len() - answer.hole_positions.iter().map(ExactSizeIterator::len).sum::<usize>()
        };
        Self { prompt, cached: answer.receipt.decoding.cached_tokens.min(prompt), generated }
    }
}

/// A token with its log-probability, and the most probable ones in its place.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The token.
    pub token: TokenId,
    /// The natural logarithm of its probability.
    pub logprob: Option<f32>,
    /// Others with theirs, best first.
    pub top: &'a [(TokenId, f32)],
}

/// Returns the word of OpenAI's interface for how an answer ended.
pub fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Eos | Finish::Stop => "stop",
        // What was given up at a deadline is cut off, too.
        _ => "length",
    }
}
