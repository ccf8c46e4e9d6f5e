//! Receipt of an answer, as far as decoding knows it.

use serde::Serialize;

use crate::Exactness;

/// Methods, claims and counts of one session. Whoever runs the model adds seconds and memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DecodingReceipt {
    /// The decoder in canonical text, with the parameters that it chose.
    pub decoder: String,
    /// The cache policy in canonical text.
    pub cache: String,
    /// Quantity that ranked predictions.
    pub remasking: &'static str,
    /// Rule by which steps shared the masks.
    pub schedule: &'static str,
    /// Steps over all blocks, as resolved.
    pub steps: usize,
    /// Positions of a block, as resolved.
    pub block_length: usize,
    /// Claim about the tokens; in JSON `exactness`, and `against` for the run that a lossless result equals.
    #[serde(flatten)]
    pub exactness: Exactness,
    /// Key of all randomness.
    pub seed: u64,
    /// Forwards as the method's paper counts them.
    pub nfe: usize,
    /// Forwards that were really run, each piece of a long prompt one.
    pub forwards: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Masks among the positions to decode that were given up when the time was over, or the memory; none if neither was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<usize>,
    /// Records whether they were given up for want of memory; absent if they were not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// Times that other requests needed its K/V memory, so that it waited; absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub preempted: usize,
    /// Rows that were computed again after that, which no other count has; absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub recomputed_rows: usize,
    /// Tokens of the answer for each NFE; 0 before the first.
    pub tokens_per_nfe: f64,
    /// Tokens of the prompt that were not computed, because another request had left their K/V; absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: usize,
    /// Forwards with drafts by the number of draft tokens that each accepted, from 0; empty without drafts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<usize>,
    /// Tokens that took the place of others, and tokens that were taken back; absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub replaced: usize,
    /// Live rows of all forwards, lanes and sequences.
    pub rows: usize,
    /// Rows that ran attention and MLP.
    pub computed_rows: u64,
    /// Rows that the head answered.
    pub head_rows: u64,
    /// Floating point operations by formula.
    pub flops: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
