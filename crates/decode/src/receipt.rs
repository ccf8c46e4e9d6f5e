//! How an answer was made, as far as decoding knows.

use serde::Serialize;

use crate::Exactness;

/// Methods, claims and counts of one session. Whoever runs the model adds seconds and memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DecodingReceipt {
    /// The decoder in canonical text.
    pub decoder: String,
    /// The cache policy in canonical text.
    pub cache: String,
    /// What ranked predictions.
    pub remasking: &'static str,
    /// How steps shared the masks.
    pub schedule: &'static str,
    /// Steps over all blocks, as resolved.
    pub steps: usize,
    /// Positions of a block, as resolved.
    pub block_length: usize,
    /// What the tokens may claim; in JSON `exactness`, and `against` for the run that a lossless result equals.
    #[serde(flatten)]
    pub exactness: Exactness,
    /// Key of all randomness.
    pub seed: u64,
    /// Forwards as the method's paper counts them.
    pub nfe: usize,
    /// Forwards that were really run.
    pub forwards: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Tokens of the answer for each NFE; 0 before the first.
    pub tokens_per_nfe: f64,
    /// Forwards with drafts by the number of draft tokens that each accepted, from 0; empty without drafts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<usize>,
    /// Live rows of all forwards, lanes and sequences.
    pub rows: usize,
    /// Rows that ran attention and MLP.
    pub computed_rows: u64,
    /// Rows that the head answered.
    pub head_rows: u64,
    /// Floating point operations by formula.
    pub flops: f64,
}
