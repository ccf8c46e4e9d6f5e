//! The choice of a row by rounds of more and more items: who surely loses too much, or surely costs too much, leaves; of those that
//! answered all items, what costs least and reaches a floor of accuracy is chosen.
//!
//! A floor below a reference is one of pairs: rows answer the same items, so that only items count on which their verdicts differ.

use crate::report::{NORMAL_95, Summary};

/// Items of the first round, at least.
const FEWEST: usize = 8;
/// Factor of cost from which on a row is dropped, compared with another row that surely reaches the floor: less may be
/// noise.
const SURELY_DEARER: f64 = 1.25;
/// Slack of sums of shares.
const ROUNDING: f64 = 1e-9;

/// Cost to make as small as can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cost {
    /// Seconds of an item by the clock.
    #[default]
    Seconds,
    /// Forwards of an item, the guide's among them.
    Forwards,
    /// Operations of a token.
    Operations,
}

impl Cost {
    /// All costs by their names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("seconds", Self::Seconds), ("forwards", Self::Forwards), ("operations", Self::Operations)];

    /// Returns a row's cost: seconds an item, forwards an item, or GFLOP a token (infinite if unknown).
    pub fn of(self, row: &Summary) -> f64 {
        match self {
            Self::Seconds => row.seconds_per_item,
            Self::Forwards => row.nfe + row.guide_nfe,
            Self::Operations => row.gflop_per_token.unwrap_or(f64::INFINITY),
        }
    }
}

/// Lower bound of the accuracy, from 0 to 1. Neither asks more than the items can tell: a part of an item is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// Fixed bound, rounded down to whole items.
    At(f64),
    /// The reference's less this, or less a single item if that is more.
    Below(f64),
}

impl Floor {
    /// Returns the accuracy that is wanted of a row beside a reference on the same items.
    pub fn beside(self, reference: &Summary) -> f64 {
        match self {
            Self::At(floor) => floor,
            Self::Below(loss) => reference.accuracy - loss.max(1.0 / reference.items.max(1) as f64),
        }
    }

    /// Returns a row's accuracy above the floor: the sample's own, and the bounds of its 95 % interval.
    fn margin(self, row: &Summary) -> Margin {
        match (self, row.difference) {
            (Self::At(floor), _) => {
                let [low, high] = wilson(row);
                let items = row.items.max(1) as f64;
                let wanted = (floor * items + ROUNDING).floor() / items;
                Margin { found: row.accuracy - wanted, low: low - floor, high: high - floor }
            }
            (Self::Below(loss), Some(found)) => {
                let allowed = loss.max(1.0 / found.items.max(1) as f64);
                Margin { found: found.mean + allowed, low: found.low + loss, high: found.high + loss }
            }
            // The reference loses nothing.
            (Self::Below(loss), None) => Margin { found: loss, low: loss, high: loss },
        }
    }

    /// Returns whether a row reaches the floor on its items.
    pub fn is_reached(self, row: &Summary) -> bool {
        self.margin(row).found >= -ROUNDING
    }

    /// Returns how many items it takes to tell a row from the floor, if those that it answered do not; no number where it is on
    /// the floor.
    pub fn items_to_tell(self, row: &Summary) -> Option<Option<usize>> {
        let Margin { low, high, .. } = self.margin(row);
        if low > 0.0 || high < 0.0 {
            return None;
        }
        // One more item that differs: none of a few does not say that none would.
        let smooth = |share: f64, items: usize| (share * items as f64 + 1.0) / (items as f64 + 2.0);
        let (gap, variance) = match (self, row.difference) {
            (Self::Below(loss), found) => {
                let found = found?;
                (found.mean + loss, smooth(found.differing, found.items))
            }
            (Self::At(floor), _) => {
                let share = smooth(row.accuracy, row.items);
                (row.accuracy - floor, share * (1.0 - share))
            }
        };
        let needed = NORMAL_95.powi(2) * variance / gap.powi(2);
        Some(needed.is_finite().then(|| needed.ceil() as usize).filter(|needed| *needed < 1_000_000))
    }
}

/// Accuracy above a floor.
struct Margin {
    found: f64,
    low: f64,
    high: f64,
}

/// Wilson's 95 % interval of an accuracy.
fn wilson(row: &Summary) -> [f64; 2] {
    let (items, share, square) = (row.items as f64, row.accuracy, NORMAL_95.powi(2));
    let (center, count) = (share * items + square / 2.0, items + square);
    let width = NORMAL_95 * (share * (1.0 - share) * items + square / 4.0).sqrt();
    [(center - width) / count, (center + width) / count]
}

/// Returns how many items the rounds have, the last one all of them.
pub fn rounds(candidates: usize, items: usize) -> Vec<usize> {
    let halvings = candidates.max(2).next_power_of_two().ilog2() - 1;
    let mut rounds: Vec<usize> =
        (0..=halvings).rev().map(|halving| (items >> halving).max(FEWEST).min(items)).collect();
    rounds.dedup();
    rounds
}

/// Returns the rows that go on: all that may still be chosen. Where none may reach the floor, it is the most accurate one.
pub fn still_possible(rows: &[&Summary], floor: Floor, cost: Cost) -> Vec<usize> {
    let sure = rows.iter().filter(|row| floor.margin(row).low >= 0.0).map(|row| cost.of(row));
    let most = sure.fold(f64::INFINITY, f64::min) * SURELY_DEARER;
    let possible = |&row: &usize| floor.margin(rows[row]).high >= 0.0 && cost.of(rows[row]) <= most;
    let left: Vec<usize> = (0..rows.len()).filter(possible).collect();
    if left.is_empty() { most_accurate(rows, cost).into_iter().collect() } else { left }
}

/// Returns the cheapest row that reaches the floor; of those that cost the same, the most accurate.
pub fn cheapest(rows: &[&Summary], floor: Floor, cost: Cost) -> Option<usize> {
    let reaching = (0..rows.len()).filter(|&row| floor.is_reached(rows[row]));
    reaching.min_by(|&a, &b| {
        let (a, b) = (rows[a], rows[b]);
        cost.of(a).total_cmp(&cost.of(b)).then(b.accuracy.total_cmp(&a.accuracy))
    })
}

/// Returns the most accurate row; of those as accurate, the cheapest.
pub fn most_accurate(rows: &[&Summary], cost: Cost) -> Option<usize> {
    (0..rows.len()).min_by(|&a, &b| {
        let (a, b) = (rows[a], rows[b]);
        b.accuracy.total_cmp(&a.accuracy).then(cost.of(a).total_cmp(&cost.of(b)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::difference;

    /// A row of which so many items are right, beside a reference.
    fn row(right: usize, seconds_per_item: f64, items: usize) -> Summary {
        Summary { items, accuracy: right as f64 / items as f64, seconds_per_item, ..Summary::default() }
    }

    /// A row that gains and loses so many items against a reference.
    fn beside(reference: &Summary, (gained, lost): (usize, usize), seconds_per_item: f64) -> Summary {
        let right = (reference.accuracy * reference.items as f64).round() as usize;
        let worths =
            |right: &dyn Fn(usize) -> bool| (0..reference.items).map(|at| (at, f64::from(right(at)))).collect();
        let (own, base) = (worths(&|at| at >= lost && at < right + gained), worths(&|at| at < right));
        let found = row(right + gained - lost, seconds_per_item, reference.items);
        Summary { difference: difference(&own, &base), ..found }
    }

    #[test]
    fn rounds_double_up_to_all_items() {
        assert_eq!(rounds(32, 128), [8, 16, 32, 64, 128]);
        assert_eq!(rounds(5, 100), [25, 50, 100]);
        assert_eq!(rounds(2, 100), [100]);
        assert_eq!(rounds(100, 20), [8, 10, 20]);
        assert_eq!(rounds(9, 4), [4]);
    }

    /// An item of 64 is 1.56 points: nothing that lost one reached a floor of 1.5, and the slowest row was advised.
    #[test]
    fn a_single_lost_item_is_no_loss_that_the_items_can_tell() {
        let reference = row(56, 18.0, 64);
        let one = beside(&reference, (0, 1), 1.0);
        assert_eq!(cheapest(&[&reference, &one], Floor::Below(0.015), Cost::Seconds), Some(1));
        let two = beside(&reference, (1, 3), 0.5);
        assert_eq!(cheapest(&[&reference, &two], Floor::Below(0.015), Cost::Seconds), Some(0));
        assert!((Floor::Below(0.015).beside(&reference) - 55.0 / 64.0).abs() < 1e-12);
        // 7 of 8 are as near to 90 % as 8 items come from below.
        assert!(Floor::At(0.9).is_reached(&row(7, 1.0, 8)) && !Floor::At(0.9).is_reached(&row(89, 1.0, 100)));
    }

    #[test]
    fn the_cheapest_that_reaches_the_floor_is_chosen() {
        let all = [row(90, 2.0, 100), row(80, 1.0, 100), row(50, 0.1, 100), row(90, 2.0, 100)];
        let rows: Vec<&Summary> = all.iter().collect();
        assert_eq!(cheapest(&rows, Floor::At(0.8), Cost::Seconds), Some(1));
        assert_eq!(cheapest(&rows, Floor::At(0.85), Cost::Seconds), Some(0));
        assert_eq!(cheapest(&rows, Floor::At(0.95), Cost::Seconds), None);
        assert_eq!(most_accurate(&rows, Cost::Seconds), Some(0));
    }

    /// Half of the rows left in each round, two of them with 16 of 16 right.
    #[test]
    fn nobody_leaves_who_may_still_reach_the_floor() {
        let reference = row(16, 4.0, 16);
        let all = [
            reference.clone(),
            beside(&reference, (0, 0), 3.0),
            beside(&reference, (0, 0), 2.0),
            beside(&reference, (0, 1), 1.0),
            beside(&reference, (0, 12), 0.1),
        ];
        let rows: Vec<&Summary> = all.iter().collect();
        assert_eq!(still_possible(&rows, Floor::Below(0.015), Cost::Seconds), [0, 1, 2, 3]);
        // 75 of 100 are surely below 90; where none can reach it, accuracy decides.
        let few = [row(95, 2.0, 100), row(75, 1.0, 100), row(90, 3.0, 100), row(1, 0.1, 100)];
        assert_eq!(still_possible(&few.iter().collect::<Vec<_>>(), Floor::At(0.9), Cost::Seconds), [0, 2]);
        let none = [row(10, 1.0, 100), row(20, 2.0, 100)];
        assert_eq!(still_possible(&none.iter().collect::<Vec<_>>(), Floor::At(0.9), Cost::Seconds), [1]);
        // Much dearer than one that surely reaches it.
        let sure = [row(399, 1.0, 400), row(399, 1.1, 400), row(400, 2.0, 400)];
        assert_eq!(still_possible(&sure.iter().collect::<Vec<_>>(), Floor::At(0.9), Cost::Seconds), [0, 1]);
    }

    /// The advice took the two samples for independent: 2011 items where some 770 pairs are enough.
    #[test]
    fn a_small_sample_is_told_with_the_number_of_pairs_that_would_do() {
        let reference = row(186, 18.0, 200);
        let even = beside(&reference, (4, 4), 1.0);
        let needed = Floor::Below(0.015).items_to_tell(&even).unwrap().unwrap();
        assert!((700..850).contains(&needed), "{needed}");
        assert_eq!(Floor::Below(0.015).items_to_tell(&reference), None);
        assert_eq!(Floor::Below(0.015).items_to_tell(&beside(&row(190, 1.0, 200), (0, 40), 1.0)), None);
        assert_eq!(Floor::At(0.8).items_to_tell(&row(450, 1.0, 500)), None);
        let needed = Floor::At(0.88).items_to_tell(&row(18, 1.0, 20)).unwrap().unwrap();
        assert!((500..3000).contains(&needed), "{needed}");
        assert_eq!(Floor::At(0.9).items_to_tell(&row(18, 1.0, 20)), Some(None));
    }
}
