//! Remasking: the score by which predictions are ordered (specs/freedave.md#2.1, specs/models.md#2.5,
//! specs/models.md#3.5 and specs/models.md#4.5).

use std::{cmp::Ordering, fmt, str::FromStr};

use demask_settings::names::{UnknownName, same};
use demask_step::{
    HeadAsk, NO_TOKEN, Position, Positions,
    random::{self, Use},
};

use super::{Candidate, LaneView};
use crate::step::View;

/// Quantity that ranks predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Remasking {
    /// The probability of the predicted token (LLaDA, SDAR).
    #[default]
    LowConfidence,
    /// A keyed uniform number (LLaDA).
    Random,
    /// The best probability minus the second.
    Margin,
    /// Minus the entropy (Dream).
    Entropy,
    /// Dream's name for the probability of the drawn token.
    MaskgitPlus,
    /// Dream's name for the margin.
    TopkMargin,
    /// Each position is transferred by chance, independent of the prediction (Dream).
    Origin,
    /// The leftmost first (SDAR's `sequential`, FreeDave's `alg_temp -1`).
    LeftToRight,
}

impl Remasking {
    /// All rankings, the default first.
    pub const ALL: [Self; 8] = [
        Self::LowConfidence,
        Self::Random,
        Self::Margin,
        Self::Entropy,
        Self::MaskgitPlus,
        Self::TopkMargin,
        Self::Origin,
        Self::LeftToRight,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowConfidence => "low_confidence",
            Self::Random => "random",
            Self::Margin => "margin",
            Self::Entropy => "entropy",
            Self::MaskgitPlus => "maskgit_plus",
            Self::TopkMargin => "topk_margin",
            Self::Origin => "origin",
            Self::LeftToRight => "left_to_right",
        }
    }
}

impl fmt::Display for Remasking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Remasking {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        if same(text, "sequential") {
            return Ok(Self::LeftToRight);
        }
        Self::ALL.into_iter().find(|remasking| same(remasking.name(), text)).ok_or_else(|| UnknownName {
            what: "remasking",
            found: text.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}

/// Puts predictions into the total order of commits.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// Quantity that ranks the predictions.
    pub remasking: Remasking,
    /// Above 0: positions are drawn without replacement from `softmax(score / alg_temp)` instead (Dream). Without
    /// effect on `origin`, as in the original, and on `left_to_right`, which has no score.
    pub alg_temp: f32,
    /// Key of the randomness.
    pub seed: u64,
    /// Under `random`: positions in the order in which they rank within their block, in place of keyed numbers;
    /// positions that are missing rank after them. Empty: keyed numbers.
    pub order: Vec<Position>,
}

impl Ranking {
    /// Reports whether predictions have no say in the order.
    pub fn foresees(remasking: Remasking) -> bool {
        matches!(remasking, Remasking::Random | Remasking::LeftToRight)
    }

    /// Replaces `out` by masked positions in the order that their predictions will have, whatever they are; their
    /// tokens are still unknown. `false` if the order depends on the predictions.
    pub fn foresee(&self, view: &View<'_>, masks: &Positions, out: &mut Vec<Candidate>) -> bool {
        out.clear();
        if !Self::foresees(self.remasking) {
            return false;
        }
        out.extend(masks.iter().map(|position| Candidate {
            block: view.layout.block_of(position),
            position,
            token: NO_TOKEN,
            held: None,
            confidence: f32::NEG_INFINITY,
            entropy: 0.0,
            score: self.score(position, view.canvas.writes(), f32::NEG_INFINITY, None, None),
        }));
        out.sort_unstable_by(total_order);
        true
    }

    /// Adds the numbers that the ranking reads at each position.
    pub fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.margin |= matches!(self.remasking, Remasking::Margin | Remasking::TopkMargin);
        ask.wanted.entropy |= self.remasking == Remasking::Entropy;
    }

    /// Replaces `out` by the lane's predictions at open positions, in the total order.
    pub fn rank(&self, lane: &LaneView<'_>, out: &mut Vec<Candidate>) {
        let predictions = lane.predictions;
        out.clear();
        for position in lane.among.iter() {
            let Some(index) = predictions.index(lane.lane, position) else { continue };
            let token = predictions.tokens.get(index).copied().unwrap_or(NO_TOKEN);
            if token == NO_TOKEN || !lane.canvas.is_open(position) {
                continue;
            }
            let written = !lane.canvas.is_masked(position);
            let held = lane.canvas.tokens().get(position as usize).copied().filter(|_| written);
            let known = |values: &[f32]| values.get(index).copied();
            let confidence = known(&predictions.confidence).unwrap_or(f32::NEG_INFINITY);
            let entropy = known(&predictions.entropy);
            let score = self.score(position, lane.writes, confidence, known(&predictions.margin), entropy);
            let block = lane.layout.block_of(position);
            out.push(Candidate { block, position, token, held, confidence, entropy: entropy.unwrap_or(0.0), score });
        }
        out.sort_unstable_by(total_order);
    }

    fn score(
        &self,
        position: Position,
        writes: u32,
        confidence: f32,
        margin: Option<f32>,
        entropy: Option<f32>,
    ) -> f64 {
        let key = |purpose| random::key(self.seed, purpose, position, writes);
        let score = match self.remasking {
            Remasking::LowConfidence | Remasking::MaskgitPlus => f64::from(confidence),
            Remasking::Random if !self.order.is_empty() => {
                let rank = self.order.iter().position(|&other| other == position).unwrap_or(self.order.len());
                return -(rank as f64);
            }
            Remasking::Random => random::uniform(key(Use::Confidence)),
            Remasking::Margin | Remasking::TopkMargin => margin.map_or(f64::NEG_INFINITY, f64::from),
            Remasking::Entropy => entropy.map_or(f64::NEG_INFINITY, |entropy| -f64::from(entropy)),
            // Transferred with probability `rate`: those whose draw lies above `1 - rate`.
            Remasking::Origin => return random::uniform(key(Use::Transfer)),
            Remasking::LeftToRight => return -f64::from(position),
        };
        if score.is_nan() {
            return f64::NEG_INFINITY;
        }
        if self.alg_temp > 0.0 {
            // Gumbel-top-k: the order of perturbed logits is a draw without replacement.
            return score / f64::from(self.alg_temp) + random::gumbel(key(Use::Order));
        }
        score
    }
}

/// Block ascending, score descending, position ascending.
fn total_order(left: &Candidate, right: &Candidate) -> Ordering {
    // Adding 0.0 makes -0.0 and 0.0 one score, as they are one number.
    let by_score = (right.score + 0.0).total_cmp(&(left.score + 0.0));
    left.block.cmp(&right.block).then(by_score).then(left.position.cmp(&right.position))
}

#[cfg(test)]
mod tests {
    use demask_step::Predictions;

    use super::*;
    use crate::{canvas::Canvas, layout::Layout};

    fn predictions(confidence: &[f32], margin: &[f32], entropy: &[f32]) -> Predictions {
        Predictions {
            lanes: 1,
            positions: Positions::from(2..2 + confidence.len() as u32),
            tokens: (0..confidence.len() as u32).map(|token| 10 + token).collect(),
            confidence: confidence.to_vec(),
            margin: margin.to_vec(),
            entropy: entropy.to_vec(),
            ..Predictions::default()
        }
    }

    fn order(remasking: Remasking, alg_temp: f32, block: usize, predictions: &Predictions) -> Vec<Position> {
        let layout = Layout::full(2, 2 + predictions.positions.len(), block);
        let canvas = Canvas::new(&[0, 1], layout.len(), Some(99));
        let lane = LaneView {
            predictions,
            lane: 0,
            among: &predictions.positions,
            canvas: &canvas,
            writes: 2,
            layout: &layout,
        };
        let mut out = Vec::new();
        Ranking { remasking, alg_temp, seed: 7, order: Vec::new() }.rank(&lane, &mut out);
        out.iter().map(|candidate| candidate.position).collect()
    }

    #[test]
    fn each_remasking_orders_by_its_own_score() {
        let known = predictions(&[0.2, 0.9, 0.5], &[0.3, 0.1, 0.2], &[2.0, 3.0, 1.0]);
        assert_eq!(order(Remasking::LowConfidence, 0.0, 3, &known), [3, 4, 2]);
        assert_eq!(order(Remasking::MaskgitPlus, 0.0, 3, &known), [3, 4, 2]);
        assert_eq!(order(Remasking::Margin, 0.0, 3, &known), [2, 4, 3]);
        assert_eq!(order(Remasking::TopkMargin, 0.0, 3, &known), [2, 4, 3]);
        assert_eq!(order(Remasking::Entropy, 0.0, 3, &known), [4, 2, 3]);
        assert_eq!(order(Remasking::LeftToRight, 0.0, 3, &known), [2, 3, 4]);
    }

    #[test]
    fn order_is_total() {
        let ties = predictions(&[0.5, 0.5, -0.0, 0.0, f32::NAN, 0.9], &[], &[]);
        assert_eq!(order(Remasking::LowConfidence, 0.0, 6, &ties), [7, 2, 3, 4, 5, 6]);
        assert_eq!(order(Remasking::LowConfidence, 0.0, 3, &ties), [2, 3, 4, 7, 5, 6], "earlier blocks first");
    }

    #[test]
    fn missing_numbers_rank_last_and_never_panic() {
        let mut broken = predictions(&[0.5, 0.6], &[], &[]);
        assert_eq!(order(Remasking::Margin, 0.0, 2, &broken), [2, 3]);
        broken.confidence.clear();
        assert_eq!(order(Remasking::LowConfidence, 0.0, 2, &broken), [2, 3]);
        broken.tokens.truncate(1);
        assert_eq!(order(Remasking::LowConfidence, 0.0, 2, &broken), [2]);
    }

    #[test]
    fn alg_temp_draws_in_proportion_to_the_softmax() {
        // Confidences ln(3) * alg_temp apart: the better one comes first three times out of four.
        let known = predictions(&[0.5 + 0.1 * 3f32.ln(), 0.5], &[], &[]);
        let layout = Layout::full(2, 4, 2);
        let canvas = Canvas::new(&[0, 1], 4, Some(99));
        let first = (0..4000)
            .filter(|&seed| {
                let lane = LaneView {
                    predictions: &known,
                    lane: 0,
                    among: &known.positions,
                    canvas: &canvas,
                    writes: 2,
                    layout: &layout,
                };
                let mut out = Vec::new();
                Ranking { remasking: Remasking::LowConfidence, alg_temp: 0.1, seed, order: Vec::new() }
                    .rank(&lane, &mut out);
                out[0].position == 2
            })
            .count();
        assert!((2900..3100).contains(&first), "{first} of 4000");
    }

    #[test]
    fn names_round_trip() {
        for remasking in Remasking::ALL {
            assert_eq!(remasking.to_string().parse(), Ok(remasking));
        }
        assert_eq!("sequential".parse(), Ok(Remasking::LeftToRight));
        assert_eq!("Topk-Margin".parse(), Ok(Remasking::TopkMargin));
        assert!("low_confidense".parse::<Remasking>().unwrap_err().to_string().contains("\"low_confidence\"?"));
    }
}
