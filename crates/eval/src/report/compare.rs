//! Rows beside their baselines: differences on the same items, with an interval, and ratios.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Record, run::TURNS};

/// The normal distribution holds 95 % within so many standard deviations.
pub const NORMAL_95: f64 = 1.959_963_984_540_054;

/// A difference of accuracy on the same items.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Difference {
    /// The row's mean worth less the baseline's.
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Items that both answered.
    pub items: usize,
    /// Mean squared difference: the share of items on which verdicts differ, where none is right in part.
    #[serde(default)]
    pub differing: f64,
    /// Probability of such differences between equals (McNemar's exact test); none where answers can be right in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

impl Difference {
    /// Returns whether the sample separates the two.
    pub fn is_certain(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Returns the mean worth of each item, over its seeds.
pub fn worths<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<usize, f64> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for record in records {
        let (sum, count) = sums.entry(record.index).or_default();
        *sum += record.verdict.worth();
        *count += 1.0;
    }
    sums.into_iter().map(|(index, (sum, count))| (index, sum / count)).collect()
}

/// Compares two rows on the items that both have; none if there are none.
///
/// The interval is Agresti and Min's for matched pairs: Wald's, with one item right on one side only and one item wrong
/// there added by halves, and one on which both agree. It is honest where few items or none differ, and drawn without dice.
pub fn difference(row: &BTreeMap<usize, f64>, baseline: &BTreeMap<usize, f64>) -> Option<Difference> {
    let pairs = row.iter().filter_map(|(index, worth)| Some(worth - baseline.get(index)?));
    let differences: Vec<f64> = pairs.collect();
    let items = differences.len();
    if items == 0 {
        return None;
    }
    let sum: f64 = differences.iter().sum();
    let (count, squares) = (items as f64 + 2.0, differences.iter().map(|one| one * one).sum::<f64>() + 1.0);
    let width = NORMAL_95 * (squares - sum * sum / count).max(0.0).sqrt() / count;
    let whole = differences.iter().all(|one| [-1.0, 0.0, 1.0].contains(one));
    let number = |sign: f64| differences.iter().filter(|one| **one == sign).count();
    Some(Difference {
        mean: sum / items as f64,
        low: (sum / count - width).max(-1.0),
        high: (sum / count + width).min(1.0),
        items,
        differing: differences.iter().map(|one| one * one).sum::<f64>() / items as f64,
        p: whole.then(|| mcnemar(number(1.0), number(-1.0))),
    })
}

/// How many times as fast as another row one is on the same items, with its interval over turns.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Faster {
    /// The other's seconds by this one's.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Turns of an interval at least.
const FEWEST_TURNS: usize = 3;
/// Standard errors that hold 95 % of Student's distribution, by the number of turns, from the fewest on.
const STUDENT_95: [f64; 8] = [4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// Compares the seconds of items that two rows answered in turns; none where there are too few for an interval.
///
/// The items are cut into as many blocks as there were turns, and the interval is a jackknife of the logarithm over blocks:
/// what else the machine did in a turn fell on both.
pub fn faster(row: &BTreeMap<usize, f64>, baseline: &BTreeMap<usize, f64>) -> Option<Faster> {
    let pairs: Vec<(f64, f64)> =
        row.iter().filter_map(|(index, seconds)| Some((*baseline.get(index)?, *seconds))).collect();
    let turns = TURNS.min(pairs.len() / 2);
    let &width = STUDENT_95.get(turns.checked_sub(FEWEST_TURNS)?)?;
    let mut blocks = vec![(0.0, 0.0); turns];
    for (place, (base, own)) in pairs.iter().enumerate() {
        let block = &mut blocks[place * turns / pairs.len()];
        (block.0, block.1) = (block.0 + base, block.1 + own);
    }
    let sum = blocks.iter().fold((0.0, 0.0), |sum, block| (sum.0 + block.0, sum.1 + block.1));
    let log = |above: f64, below: f64| ratio(above, below).filter(|ratio| *ratio > 0.0).map(f64::ln);
    let (all, count) = (log(sum.0, sum.1)?, turns as f64);
    let without = |block: &(f64, f64)| Some(count * all - (count - 1.0) * log(sum.0 - block.0, sum.1 - block.1)?);
    let values: Vec<f64> = blocks.iter().map(without).collect::<Option<_>>()?;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = width * (squares / (count - 1.0) / count).sqrt();
    Some(Faster { ratio: all.exp(), low: (mean - error).exp(), high: (mean + error).exp() })
}

/// Ends of a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ends {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Returns the interval of a row's mean seconds over turns, in the way of [`faster`]. None if there are too few items.
pub fn mean_within(seconds: &BTreeMap<usize, f64>) -> Option<Ends> {
    let ones = seconds.keys().map(|&index| (index, 1.0)).collect();
    faster(&ones, seconds).map(|Faster { low, high, .. }| Ends { low, high })
}

/// McNemar's exact test, both sides: of the items on which two disagree, half would fall to each if they were equal.
fn mcnemar(better: usize, worse: usize) -> f64 {
    let (count, fewer) = (better + worse, better.min(worse));
    // Binomial weights by their logarithms: powers of two leave the range beyond a thousand items.
    let mut log_weight = -(count as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in 0..=fewer {
        if k > 0 {
            log_weight += ((count - k + 1) as f64 / k as f64).ln();
        }
        tail += log_weight.exp();
    }
    (2.0 * tail).min(1.0)
}

/// Returns a ratio where there is one.
pub fn ratio(above: f64, below: f64) -> Option<f64> {
    Some(above / below).filter(|ratio| below > 0.0 && ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use demask_step::random::{mix, uniform};

    use super::*;

    fn items(worths: &[f64]) -> BTreeMap<usize, f64> {
        worths.iter().copied().enumerate().collect()
    }

    #[test]
    fn intervals_are_those_of_the_textbook() {
        // Agresti and Min, 2005: n = 100, 12 better, 5 worse.
        let pairs = |better: usize, worse: usize, all: usize| {
            let of = |right: std::ops::Range<usize>| {
                items(&(0..all).map(|at| f64::from(right.contains(&at))).collect::<Vec<_>>())
            };
            difference(&of(0..better), &of(better..better + worse)).unwrap()
        };
        let found = pairs(12, 5, 100);
        let (center, width): (f64, f64) = (7.0 / 102.0, 1.96 * (18.0f64 - 49.0 / 102.0).sqrt() / 102.0);
        assert!((found.mean - 0.07).abs() < 1e-12 && found.items == 100);
        assert!((found.low - (center - width)).abs() < 1e-4 && (found.high - (center + width)).abs() < 1e-4);
        // Exact two-sided binomial of 5 out of 17.
        assert!((found.p.unwrap() - 0.143_463_134_765_625).abs() < 1e-12, "{found:?}");
        assert!(!found.is_certain() && pairs(20, 0, 100).is_certain());
        // Nothing differs in 10 items: that does not make them the same.
        let same = pairs(0, 0, 10);
        assert!(same.low < -0.1 && same.high > 0.1 && same.p == Some(1.0), "{same:?}");
        assert!((mcnemar(600, 600) - 1.0).abs() < 1e-9 && mcnemar(2000, 1000) < 1e-60);
    }

    #[test]
    fn items_that_only_one_has_do_not_count() {
        let (row, baseline) = (items(&[1.0, 1.0, 0.0]), items(&[1.0, 0.0]));
        assert_eq!(difference(&row, &baseline).map(|found| (found.mean, found.items)), Some((0.5, 2)));
        assert_eq!(difference(&row, &BTreeMap::new()), None);
        let part = difference(&items(&[0.25]), &items(&[0.0])).unwrap();
        assert_eq!((part.mean, part.p), (0.25, None));
    }

    #[test]
    fn a_row_beside_itself_is_as_fast_within_its_interval() {
        // Seconds of a machine on which other work comes and goes: slow for some turns, noisy in each item.
        let (mut within, mut widths) = (0, 0.0);
        for key in 0..200u64 {
            let draw = |at: u64| uniform(mix(mix(at) ^ key));
            let of = |row: u64| -> BTreeMap<usize, f64> {
                let busy = |turn: u64| 1.0 + 2.0 * draw(turn) + 0.2 * draw(1000 * (1 + row) + turn);
                (0..200)
                    .map(|at| (at, busy(at as u64 / 20) * (0.8 + 0.4 * draw(10_000 * (1 + row) + at as u64))))
                    .collect()
            };
            let found = faster(&of(1), &of(2)).unwrap();
            within += usize::from(found.low <= 1.0 && 1.0 <= found.high);
            widths += found.high - found.low;
        }
        assert!(within >= 186, "{within} of 200");
        // A tenth of noise in each turn leaves some hundredths, though the machine was up to 3 times as slow.
        assert!(widths / 200.0 < 0.1, "{}", widths / 200.0);
    }

    #[test]
    fn a_speed_up_without_turns_has_no_interval() {
        let seconds = |count: usize, each: f64| (0..count).map(|at| (at, each)).collect::<BTreeMap<_, _>>();
        assert_eq!(faster(&seconds(5, 1.0), &seconds(5, 2.0)), None);
        let found = faster(&seconds(40, 1.0), &seconds(40, 2.0)).unwrap();
        assert!((found.ratio - 2.0).abs() < 1e-12 && (found.low - 2.0).abs() < 1e-9 && (found.high - 2.0).abs() < 1e-9);
        assert_eq!(faster(&seconds(40, 0.0), &seconds(40, 2.0)), None);
        assert_eq!(mean_within(&seconds(5, 1.0)), None);
        let two = mean_within(&(0..40).map(|at| (at, 1.0 + f64::from(at % 8 < 4) * 2.0)).collect()).unwrap();
        assert!(two.low < 1.9 && two.high > 2.1 && two.low > 1.0 && two.high < 4.0, "{two:?}");
    }

    /// The naive way: means of the same items drawn again and again.
    #[test]
    fn the_interval_is_that_of_a_bootstrap() {
        let draw = |at: usize, key: u64| uniform(mix(mix(at as u64) ^ key));
        let of = |key: u64, right: f64| items(&(0..400).map(|at| f64::from(draw(at, key) < right)).collect::<Vec<_>>());
        let (row, baseline) = (of(1, 0.7), of(2, 0.6));
        let differences: Vec<f64> = row.values().zip(baseline.values()).map(|(a, b)| a - b).collect();
        let mut means: Vec<f64> = (0..2000u64)
            .map(|again| {
                let sum: f64 = (0..400).map(|at| differences[(draw(at, 77 + again) * 400.0) as usize]).sum();
                sum / 400.0
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let found = difference(&row, &baseline).unwrap();
        assert!((found.low - means[50]).abs() < 0.01 && (found.high - means[1949]).abs() < 0.01, "{found:?}");
    }
}
