//! Receipt of an answer, as far as decoding knows it.

use std::fmt;

use serde::Serialize;

use crate::{Exactness, constraint::ConstraintReceipt};

/// Methods, claims and counts of one session. The program that runs the model adds seconds and memory.
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
    /// The constraint that claims are under; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<ConstraintReceipt>,
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
    /// Rounds of a decoder that verifies drafts in the model's own forwards; absent if it verified none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
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

/// Forwards of a decoder that verifies drafts, by kind, and the draft tokens by their place in a forward's drafts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rounds {
    /// Forwards that verified drafts.
    pub verify: usize,
    /// Forwards that verified none: they make drafts, or settle what no draft foretold.
    pub cold: usize,
    /// Forwards that verified a draft token at each place, from the first.
    pub drafted: Vec<usize>,
    /// Forwards that accepted the draft token at each place, and with it all before it.
    pub accepted: Vec<usize>,
}

impl Rounds {
    /// Counts rounds: `drafted` and `accepted` have the forwards with drafts by their number of draft tokens and of accepted ones,
    /// from 0.
    pub(crate) fn new(forwards: usize, drafted: &[usize], accepted: &[usize]) -> Option<Self> {
        let verify = accepted.iter().sum::<usize>();
        let reach = |counts: &[usize]| (1..counts.len()).map(|place| counts[place..].iter().sum()).collect();
        let rounds = Self { verify, cold: forwards - verify, drafted: reach(drafted), accepted: reach(accepted) };
        (verify > 0).then_some(rounds)
    }
}

/// Most places whose shares are written one by one.
const PLACES: usize = 8;

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verify, cold, drafted, accepted } = self;
        write!(f, "{verify} verify and {cold} cold rounds, accepted by place")?;
        for (place, &count) in drafted.iter().enumerate().take(PLACES) {
            let share = accepted.get(place).copied().unwrap_or(0) as f64 / count as f64;
            write!(f, " {share:.2}")?;
        }
        f.write_str(if drafted.len() > PLACES { " .." } else { "" })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
