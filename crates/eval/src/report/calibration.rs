//! Calibration of decisions: compares the probability that a model gives its choices with the share of them that is
//! right.

use serde::{Deserialize, Serialize};

/// Bins of equal width that probabilities are counted in.
pub(super) const BINS: usize = 10;

/// A decision whose right choice is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judged<'a> {
    /// Probability of each choice.
    pub probabilities: &'a [f64],
    /// The right choice.
    pub right: usize,
    /// Sum of the probabilities that the choices had among all texts.
    pub mass: f64,
}

/// The calibration of some decisions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Calibration {
    /// Brier score: mean over decisions of the sum over choices of `(p - 1)^2` of the right one and `p^2` of the others, from 0
    /// to 2.
    pub brier: f64,
    /// Expected calibration error: mean over decisions of how far the share of right ones in a bin is from the mean probability
    /// of the winners in it.
    pub error: f64,
    /// Mean mass.
    pub mass: f64,
    /// The bins with a decision, from the lowest probability of the winner to the highest.
    pub bins: Vec<Bin>,
}

/// Decisions whose winners are about equally probable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Bin {
    /// Its place, from 0 to 9: place 3 has probabilities from 0.3 up to 0.4.
    pub place: usize,
    /// Number of decisions.
    pub items: usize,
    /// Mean probability of the winners.
    pub confidence: f64,
    /// Share of right ones.
    pub accuracy: f64,
}

impl Calibration {
    /// Returns the calibration of decisions; none if there is none.
    pub(super) fn of(judged: &[Judged<'_>]) -> Option<Self> {
        let count = judged.len() as f64;
        let mut bins = vec![Bin::default(); BINS];
        let (mut brier, mut mass) = (0.0, 0.0);
        for one in judged {
            let wanted = |place| if place == one.right { 1.0 } else { 0.0 };
            brier += one.probabilities.iter().enumerate().map(|(place, p)| (p - wanted(place)).powi(2)).sum::<f64>();
            mass += one.mass;
            let best = one.probabilities.iter().copied().fold(0.0, f64::max);
            let winner = one.probabilities.iter().position(|&p| p == best)?;
            let place = ((best * BINS as f64) as usize).min(BINS - 1);
            let bin = &mut bins[place];
            bin.place = place;
            bin.items += 1;
            bin.confidence += best;
            bin.accuracy += wanted(winner);
        }
        bins.retain(|bin| bin.items > 0);
        let error: f64 = bins.iter().map(|bin| (bin.accuracy - bin.confidence).abs()).sum();
        for bin in &mut bins {
            (bin.confidence, bin.accuracy) = (bin.confidence / bin.items as f64, bin.accuracy / bin.items as f64);
        }
        (count > 0.0).then(|| Self { brier: brier / count, error: error / count, mass: mass / count, bins })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
    }

    #[test]
    fn sure_and_right_is_calibrated_and_sure_and_wrong_is_not() {
        let sure = |right| Judged { probabilities: &[1.0, 0.0], right, mass: 0.5 };
        let right = Calibration::of(&[sure(0), sure(0)]).unwrap();
        assert_eq!((right.brier, right.error, right.mass), (0.0, 0.0, 0.5));
        let wrong = Calibration::of(&[sure(1)]).unwrap();
        assert_eq!((wrong.brier, wrong.error), (2.0, 1.0));
        assert_eq!(Calibration::of(&[]), None);
    }

    #[test]
    fn bins_are_weighed_by_their_decisions() {
        let probable = [0.65, 0.35];
        let even = [0.25, 0.25, 0.3, 0.2];
        let of = |probabilities, right| Judged { probabilities, right, mass: 1.0 };
        let found = Calibration::of(&[of(&probable, 0), of(&probable, 0), of(&probable, 1), of(&even, 2)]).unwrap();
        assert_eq!(found.bins.iter().map(|bin| (bin.place, bin.items)).collect::<Vec<_>>(), [(3, 1), (6, 3)]);
        near(found.bins[1].accuracy, 2.0 / 3.0);
        near(found.bins[1].confidence, 0.65);
        near(found.error, (0.7 + 3.0 * (2.0 / 3.0 - 0.65)) / 4.0);
        let right = 2.0 * 0.35f64.powi(2);
        let wrong = 2.0 * 0.65f64.powi(2);
        near(found.brier, (2.0 * right + wrong + (0.0625 + 0.0625 + 0.49 + 0.04)) / 4.0);
    }
}
