//! Recorded predictions: what networks predicted in a run, kept for its trace.

use demask_step::{NO_TOKEN, Predictions, TokenId, TokenScore};
use serde::{Deserialize, Serialize};

/// Predictions of one sequence in one forward, as a trace holds them. Arrays run lane after lane, position after position.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Index of the feed of the session, from 0.
    pub step: usize,
    /// Index of the network: 0 is the model, 1 its guide.
    #[serde(default)]
    pub network: usize,
    /// Number of lanes.
    pub lanes: usize,
    /// Predicted positions.
    pub positions: Vec<u32>,
    /// `[lanes, positions]`: tokens; none where none was asked for.
    pub tokens: Vec<Option<TokenId>>,
    /// `[lanes, positions]`: probabilities of the tokens.
    pub confidence: Vec<Number>,
    /// `[lanes, positions]` if the decoder asked for it: the probability of the best token minus the second's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub margin: Vec<Number>,
    /// `[lanes, positions]` if the decoder asked for it: entropy of the distribution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entropy: Vec<Number>,
    /// `[lanes, positions, top]` if the decoder asked for it: best tokens with their probabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<(TokenId, Number)>,
    /// `[lanes, positions, width]` if the decoder asked for it: rank and log-probability of given tokens, probability of the
    /// best.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<(u32, Number, Number)>,
}

/// A number of a trace. JSON has no infinite ones: they are words.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A finite number.
    Finite(f32),
    /// An infinite one.
    Infinite(Infinite),
}

/// Words for infinite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Infinite {
    /// Plus infinity.
    #[serde(rename = "inf")]
    Plus,
    /// Minus infinity.
    #[serde(rename = "-inf")]
    Minus,
}

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        match value {
            f32::INFINITY => Self::Infinite(Infinite::Plus),
            f32::NEG_INFINITY => Self::Infinite(Infinite::Minus),
            value => Self::Finite(value),
        }
    }
}

impl From<Number> for f32 {
    fn from(value: Number) -> Self {
        match value {
            Number::Finite(value) => value,
            Number::Infinite(Infinite::Plus) => Self::INFINITY,
            Number::Infinite(Infinite::Minus) => Self::NEG_INFINITY,
        }
    }
}

fn numbers(values: &[f32]) -> Vec<Number> {
    values.iter().map(|&value| value.into()).collect()
}

impl Record {
    /// Writes down a network's predictions.
    pub(crate) fn of(step: usize, network: usize, predictions: &Predictions) -> Self {
        let token = |&token: &TokenId| (token != NO_TOKEN).then_some(token);
        let judged = |judged: &TokenScore| (judged.rank, judged.log_probability.into(), judged.best.into());
        Self {
            step,
            network,
            lanes: predictions.lanes,
            positions: predictions.positions.iter().collect(),
            tokens: predictions.tokens.iter().map(token).collect(),
            confidence: numbers(&predictions.confidence),
            margin: numbers(&predictions.margin),
            entropy: numbers(&predictions.entropy),
            top: predictions.top.iter().map(|&(token, probability)| (token, probability.into())).collect(),
            judged: predictions.scores.iter().map(judged).collect(),
        }
    }
}
