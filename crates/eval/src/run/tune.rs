//! The choice of a row by successive halving: all candidates answer few items, the better half of them twice as many, and
//! so on; what costs least and reaches a floor of accuracy is chosen.

use crate::report::Summary;

/// Items of the first round, at least.
const FEWEST: usize = 8;
/// Slack of early rounds in standard errors: a candidate stays that is not surely below the floor.
const SLACK: f64 = 1.64;
/// Standard errors of a 95 % interval.
const CERTAIN: f64 = 1.96;

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

    /// Returns what a row costs.
    pub fn of(self, row: &Summary) -> f64 {
        match self {
            Self::Seconds => row.seconds_per_item,
            Self::Forwards => row.nfe + row.guide_nfe,
            Self::Operations => row.gflop_per_token.unwrap_or(f64::INFINITY),
        }
    }
}

/// Lower bound of the accuracy, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// Fixed bound.
    At(f64),
    /// The reference's less this.
    Below(f64),
}

impl Floor {
    /// Returns the floor beside a reference on the same items.
    pub fn beside(self, reference: &Summary) -> f64 {
        match self {
            Self::At(floor) => floor,
            Self::Below(loss) => reference.accuracy - loss,
        }
    }
}

/// Returns how many items the rounds have, the last one all of them.
pub fn rounds(candidates: usize, items: usize) -> Vec<usize> {
    let halvings = candidates.max(2).next_power_of_two().ilog2() - 1;
    let mut rounds: Vec<usize> =
        (0..=halvings).rev().map(|halving| (items >> halving).max(FEWEST).min(items)).collect();
    rounds.dedup();
    rounds
}

/// Standard error of a share that does not vanish where all answers are right or wrong.
fn error(row: &Summary) -> f64 {
    let count = row.items as f64 + 2.0;
    let share = (row.accuracy * row.items as f64 + 1.0) / count;
    (share * (1.0 - share) / count).sqrt()
}

/// Returns the rows that go on, cheapest first among those that may reach the floor, then the most accurate of the others.
pub fn better_half(rows: &[&Summary], floor: f64, cost: Cost) -> Vec<usize> {
    let reaches = |row: &Summary| row.accuracy + SLACK * error(row) >= floor;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (rows[a], rows[b]);
        let reaching = reaches(b).cmp(&reaches(a));
        let cheaper = cost.of(a).total_cmp(&cost.of(b));
        let likelier = b.accuracy.total_cmp(&a.accuracy);
        reaching.then(if reaches(a) && reaches(b) { cheaper } else { likelier.then(cheaper) })
    });
    order.truncate(rows.len().div_ceil(2));
    order
}

/// Returns the cheapest row that reaches the floor; of those that cost the same, the most accurate.
pub fn cheapest(rows: &[&Summary], floor: f64, cost: Cost) -> Option<usize> {
    let reaching = (0..rows.len()).filter(|&row| rows[row].accuracy >= floor);
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

/// Returns how many items it takes to tell a row from the floor, if those that it answered do not; no number where it lies
/// on the floor.
pub fn items_to_tell(row: &Summary, floor: f64) -> Option<Option<usize>> {
    let gap = (row.accuracy - floor).abs();
    if gap > CERTAIN * error(row) {
        return None;
    }
    let count = row.items as f64 + 2.0;
    let needed = (CERTAIN * error(row) / gap).powi(2) * count;
    Some(needed.is_finite().then(|| needed.ceil() as usize).filter(|needed| *needed < 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(accuracy: f64, seconds_per_item: f64, items: usize) -> Summary {
        Summary { items, accuracy, seconds_per_item, ..Summary::default() }
    }

    #[test]
    fn rounds_double_up_to_all_items() {
        assert_eq!(rounds(32, 128), [8, 16, 32, 64, 128]);
        assert_eq!(rounds(5, 100), [25, 50, 100]);
        assert_eq!(rounds(2, 100), [100]);
        assert_eq!(rounds(100, 20), [8, 10, 20]);
        assert_eq!(rounds(9, 4), [4]);
    }

    #[test]
    fn the_cheapest_that_reaches_the_floor_is_chosen() {
        let all = [row(0.9, 2.0, 100), row(0.8, 1.0, 100), row(0.5, 0.1, 100), row(0.9, 2.0, 100)];
        let rows: Vec<&Summary> = all.iter().collect();
        assert_eq!(cheapest(&rows, 0.8, Cost::Seconds), Some(1));
        assert_eq!(cheapest(&rows, 0.85, Cost::Seconds), Some(0));
        assert_eq!(cheapest(&rows, 0.95, Cost::Seconds), None);
        assert_eq!(most_accurate(&rows, Cost::Seconds), Some(0));
    }

    #[test]
    fn few_items_put_nobody_out_who_may_reach_the_floor() {
        // 0.75 of 8 items may be 0.9; of 400 items it is not.
        for (items, kept) in [(8, vec![1, 0]), (400, vec![0, 2])] {
            let all = [row(0.95, 2.0, items), row(0.75, 1.0, items), row(0.9, 3.0, items), row(0.1, 0.1, items)];
            assert_eq!(better_half(&all.iter().collect::<Vec<_>>(), 0.9, Cost::Seconds), kept);
        }
        // Where nobody reaches it, accuracy decides.
        let all = [row(0.1, 1.0, 400), row(0.2, 2.0, 400)];
        assert_eq!(better_half(&all.iter().collect::<Vec<_>>(), 0.9, Cost::Seconds), [1]);
    }

    #[test]
    fn a_small_sample_is_told_with_the_number_that_would_do() {
        assert_eq!(items_to_tell(&row(0.9, 1.0, 500), 0.8), None);
        let needed = items_to_tell(&row(0.9, 1.0, 20), 0.88).unwrap().unwrap();
        assert!((500..3000).contains(&needed), "{needed}");
        assert_eq!(items_to_tell(&row(0.9, 1.0, 20), 0.9), Some(None));
    }
}
