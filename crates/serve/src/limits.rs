//! The bounds of what one request may ask.

/// Bounds of what one request may ask, and of how many there may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Bytes of all bodies together that are held, those on their way included.
    pub all_bodies: usize,
    /// Positions that are decoded for an answer. For full attention the canvas is the cost: each forward runs all of it.
    pub gen_length: usize,
    /// Answers to a prompt.
    pub choices: usize,
    /// Prompts of a request.
    pub prompts: usize,
    /// Stop texts of a request.
    pub stops: usize,
    /// Bytes of a stop text.
    pub stop_bytes: usize,
    /// Alternatives of a token that are returned.
    pub top_logprobs: usize,
    /// Log-probabilities of a request's answers, those of alternatives included.
    pub listed: usize,
    /// Answers that are made or wait at the same time.
    pub places: usize,
}
