//! Probability that a draft is accepted: a Beta mean for each bucket of confidence and of the gap to the next in rank.
//!
//! A draft fails if its token changes, which its confidence says something about, or if another position overtakes it,
//! which the distance to that one says something about. What is known before a request are the counts of the demo
//! models' development problems ([`PRIORS`]); each verified draft of the request adds to them.

use serde::Serialize;

use super::priors::PRIORS;
use crate::transfer::Candidate;

/// Lower ends of the buckets of confidence but the first, which starts at 0.
const CONFIDENCES: [f32; 9] = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999];
/// Lower ends of the buckets of gaps but the first, which starts at 0. Behind the last in rank of a block nothing can
/// overtake: that gap is infinite.
const GAPS: [f64; 5] = [0.000_1, 0.001, 0.01, 0.1, 2.0];
/// Number of buckets.
pub(super) const BUCKETS: usize = Place::ALL.len() * (CONFIDENCES.len() + 1) * (GAPS.len() + 1);
/// Largest weight of the knowledge from before a request, in drafts of the request.
const PRIOR_WEIGHT: f64 = 12.0;

/// Place of a draft among those of its forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The first.
    First,
    /// The second or third.
    Early,
    /// One behind them.
    Late,
    /// Predicted when static decoding was not there yet: in a block behind one with masks, or from a canvas that has
    /// changed since.
    Ahead,
}

impl Place {
    const ALL: [Self; 4] = [Self::First, Self::Early, Self::Late, Self::Ahead];

    /// Returns the place of a draft behind so many others.
    pub(super) fn behind(drafts: usize) -> Self {
        match drafts {
            0 => Self::First,
            1 | 2 => Self::Early,
            _ => Self::Late,
        }
    }
}

/// Drafts of a bucket that were verified.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Verified {
    /// Lower bound of the bucket's confidence.
    pub confidence: f32,
    /// Lower bound of the bucket's gap; none behind the last in rank.
    pub gap: Option<f64>,
    /// Place of the drafts.
    pub place: Place,
    /// Number of drafts whose earlier steps were all accepted.
    pub tried: u32,
    /// Number of these that were accepted.
    pub accepted: u32,
}

/// Counts of a request's drafts, by bucket.
#[derive(Debug, Clone)]
pub(super) struct Acceptance {
    counts: [(u32, u32); BUCKETS],
}

impl Acceptance {
    pub(super) fn new() -> Self {
        Self { counts: [(0, 0); BUCKETS] }
    }

    /// The bucket of what one step takes: candidates that follow each other in the order, and the one behind them.
    pub(super) fn bucket(taken: &[Candidate], next: Option<&Candidate>, place: Place) -> usize {
        let least = taken.iter().map(|candidate| candidate.confidence).fold(f32::INFINITY, f32::min);
        let confidence = CONFIDENCES.partition_point(|&end| end <= least);
        let rival = taken.last().zip(next.filter(|next| taken.last().is_some_and(|last| last.block == next.block)));
        let gap = rival.map_or(f64::INFINITY, |(last, next)| last.score - next.score);
        let gap = GAPS.partition_point(|&end| end <= gap);
        (place as usize * (CONFIDENCES.len() + 1) + confidence) * (GAPS.len() + 1) + gap
    }

    /// Counts a draft whose steps before were accepted.
    pub(super) fn learn(&mut self, bucket: usize, accepted: bool) {
        if let Some((tried, right)) = self.counts.get_mut(bucket) {
            *tried += 1;
            *right += u32::from(accepted);
        }
    }

    /// The probability that a draft of this bucket is accepted once those before it are.
    pub(super) fn estimate(&self, bucket: usize) -> f64 {
        let (tried, accepted) = self.counts.get(bucket).copied().unwrap_or((0, 0));
        let (prior_tried, prior_accepted) = PRIORS.get(bucket).copied().unwrap_or((0, 0));
        // One of each is known of every bucket, so that no estimate is certain.
        let (known, right) = (f64::from(prior_tried) + 2.0, f64::from(prior_accepted) + 1.0);
        let weight = known.min(PRIOR_WEIGHT);
        (weight * right / known + f64::from(accepted)) / (weight + f64::from(tried))
    }

    /// Buckets of which a draft was verified.
    pub(super) fn told(&self) -> Vec<Verified> {
        let told = |(bucket, &(tried, accepted)): (usize, &(u32, u32))| {
            let (rest, gap) = (bucket / (GAPS.len() + 1), bucket % (GAPS.len() + 1));
            let (place, confidence) = (rest / (CONFIDENCES.len() + 1), rest % (CONFIDENCES.len() + 1));
            let start = |ends: &[f64], index: usize| index.checked_sub(1).map_or(0.0, |index| ends[index]);
            Verified {
                confidence: confidence.checked_sub(1).map_or(0.0, |index| CONFIDENCES[index]),
                gap: (gap < GAPS.len()).then(|| start(&GAPS, gap)),
                place: Place::ALL[place],
                tried,
                accepted,
            }
        };
        self.counts.iter().enumerate().filter(|(_, (tried, _))| *tried > 0).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(confidence: f32, block: usize) -> Candidate {
        Candidate { block, position: 0, token: 1, held: None, confidence, entropy: 0.0, score: f64::from(confidence) }
    }

    #[test]
    fn buckets_are_of_confidence_gap_and_place() {
        let sure = candidate(0.995, 0);
        let bucket = |next: Option<&Candidate>, place| Acceptance::bucket(&[sure], next, place);
        let all = [
            bucket(None, Place::First),
            bucket(None, Place::Ahead),
            bucket(Some(&candidate(0.994, 0)), Place::First),
            bucket(Some(&candidate(0.5, 0)), Place::First),
        ];
        assert!(all.iter().all(|&bucket| bucket < BUCKETS));
        assert!((0..4).all(|index| !all[..index].contains(&all[index])), "{all:?}");
        assert_eq!(bucket(Some(&candidate(0.99, 1)), Place::First), all[0], "another block cannot overtake");
    }

    #[test]
    fn what_a_request_learns_outweighs_what_was_known() {
        let mut acceptance = Acceptance::new();
        let bucket = Acceptance::bucket(&[candidate(0.995, 0)], None, Place::First);
        let before = acceptance.estimate(bucket);
        for _ in 0..200 {
            acceptance.learn(bucket, false);
        }
        let after = acceptance.estimate(bucket);
        assert!(before > 0.5 && after < 0.1, "{before} {after}");
        let told = acceptance.told();
        assert_eq!((told.len(), told[0].tried, told[0].accepted, told[0].gap), (1, 200, 0, None));
    }

    #[test]
    fn every_bucket_has_a_prior_and_no_estimate_is_certain() {
        assert_eq!(PRIORS.len(), BUCKETS);
        let acceptance = Acceptance::new();
        for (bucket, &(tried, accepted)) in PRIORS.iter().enumerate() {
            assert!(accepted <= tried);
            let estimate = acceptance.estimate(bucket);
            assert!(estimate > 0.0 && estimate < 1.0, "bucket {bucket}: {estimate}");
        }
    }
}
