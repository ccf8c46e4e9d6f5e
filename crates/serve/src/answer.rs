//! Facts of an answer that several forms write: its counts, its tokens, how it ended.

use demask::{Finish, Generation, TokenId};
use serde_json::{Map, Value, json};

/// Tokens of an answer, and their speed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that an earlier request had computed.
    pub cached: usize,
    /// Tokens of the answer.
    pub generated: usize,
    /// Its tokens a second, once it is over.
    pub per_second: Option<f64>,
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
        Self {
            prompt,
            cached: answer.receipt.decoding.cached_tokens.min(prompt),
            generated,
            per_second: Some(answer.receipt.seconds.tokens_per_second),
        }
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

/// What all bodies and messages of a request say of it.
#[derive(Debug, Default)]
pub struct Head {
    /// The answer's name.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Tokens that end the model's answers.
    pub end_ids: Vec<TokenId>,
    /// Fields of the request that a dialect returns with its answer.
    pub request: Map<String, Value>,
}

impl Head {
    /// Returns the reason why an answer ended: the stop text, the token that the request stops at, or the deadline; null for the
    /// model's own end, and for a length.
    pub fn stop_reason(&self, generation: &Generation) -> Value {
        let token = generation.end_token.filter(|token| !self.end_ids.contains(token));
        match (&generation.stop_text, token, generation.finish) {
            (Some(text), ..) => json!(text),
            (None, Some(token), _) => json!(token),
            (None, None, Finish::Deadline) => json!("deadline"),
            _ => Value::Null,
        }
    }
}
