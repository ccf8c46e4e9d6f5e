//! An ascending set of canvas positions.

use std::{fmt, ops::Range};

use crate::{Position, room};

/// A strictly ascending list of absolute canvas positions.
///
/// Ascending order everywhere is what makes "a policy with everything live" the same computation as no policy at all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Positions(Vec<Position>);

impl Clone for Positions {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
    // Plans are refilled every step: the allocation is kept.
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl Positions {
    /// No position at all.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Room for `capacity` positions without another allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Makes room for `positions` positions in all.
    pub fn reserve(&mut self, positions: usize) {
        room(&mut self.0, positions);
    }

    /// Forgets every position, keeps the allocation.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds one position after the last.
    ///
    /// # Panics
    /// If `position` is not above the last one.
    pub fn push(&mut self, position: Position) {
        assert!(self.0.last().is_none_or(|&last| last < position), "positions must ascend: {position} after {self}");
        self.0.push(position);
    }

    /// Adds a run of positions after the last.
    ///
    /// # Panics
    /// If the run does not start above the last position.
    pub fn extend_range(&mut self, range: Range<Position>) {
        if range.is_empty() {
            return;
        }
        assert!(self.0.last().is_none_or(|&last| last < range.start), "positions must ascend: {range:?} after {self}");
        self.0.extend(range);
    }

    /// Replaces the set by one run of positions.
    pub fn set_range(&mut self, range: Range<Position>) {
        self.0.clear();
        self.0.extend(range);
    }

    /// Adds `position` wherever it belongs; adding it twice changes nothing.
    pub fn insert(&mut self, position: Position) {
        if let Err(at) = self.0.binary_search(&position) {
            self.0.insert(at, position);
        }
    }

    /// Keeps the positions that a condition holds for.
    pub fn retain(&mut self, mut keep: impl FnMut(Position) -> bool) {
        self.0.retain(|&position| keep(position));
    }

    /// Sets `self` to the union of `sets`, keeping the allocation.
    pub fn set_union(&mut self, sets: &[&Positions]) {
        self.0.clear();
        for set in sets {
            self.0.extend_from_slice(&set.0);
        }
        self.0.sort_unstable();
        self.0.dedup();
    }

    /// All positions, ascending.
    pub fn as_slice(&self) -> &[Position] {
        &self.0
    }

    /// All positions, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Position> + DoubleEndedIterator + '_ {
        self.0.iter().copied()
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether `position` is in the set.
    pub fn contains(&self, position: Position) -> bool {
        self.rank(position).is_some()
    }

    /// Number of positions of the set below `position`, if `position` is in the set.
    pub fn rank(&self, position: Position) -> Option<usize> {
        // A contiguous run is by far the most common set: answer it without a search.
        let first = *self.0.first()?;
        let guess = position.checked_sub(first)? as usize;
        if self.0.get(guess) == Some(&position) {
            return Some(guess);
        }
        self.0.binary_search(&position).ok()
    }

    /// The smallest position.
    pub fn first(&self) -> Option<Position> {
        self.0.first().copied()
    }

    /// The largest position.
    pub fn last(&self) -> Option<Position> {
        self.0.last().copied()
    }

    /// Reports whether every position of `self` is in `other`.
    pub fn is_subset(&self, other: &Positions) -> bool {
        self.iter().all(|position| other.contains(position))
    }
}

impl FromIterator<Position> for Positions {
    /// Collects an ascending sequence.
    ///
    /// # Panics
    /// If the sequence does not ascend.
    fn from_iter<I: IntoIterator<Item = Position>>(iter: I) -> Self {
        let mut positions = Self::new();
        for position in iter {
            positions.push(position);
        }
        positions
    }
}

impl From<Range<Position>> for Positions {
    fn from(range: Range<Position>) -> Self {
        Self(range.collect())
    }
}

/// Runs joined by commas, half-open: `0..4,7,9..12`.
impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.as_slice();
        let mut separator = "";
        if rest.is_empty() {
            return f.write_str("none");
        }
        while let Some(&start) = rest.first() {
            let run = rest.iter().zip(start..).take_while(|&(&position, expected)| position == expected).count();
            f.write_str(separator)?;
            match run {
                1 => write!(f, "{start}")?,
                _ => write!(f, "{start}..{}", start + run as Position)?,
            }
            separator = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_runs() {
        let positions: Positions = [0, 1, 2, 5, 7, 8].into_iter().collect();
        assert_eq!(positions.to_string(), "0..3,5,7..9");
        assert_eq!(Positions::new().to_string(), "none");
    }

    #[test]
    fn rank_finds_members_of_runs_and_of_scattered_sets() {
        let run = Positions::from(4..9);
        assert_eq!((run.rank(3), run.rank(4), run.rank(8), run.rank(9)), (None, Some(0), Some(4), None));
        let scattered: Positions = [1, 4, 6].into_iter().collect();
        assert_eq!(
            (scattered.rank(1), scattered.rank(2), scattered.rank(4), scattered.rank(6)),
            (Some(0), None, Some(1), Some(2))
        );
    }

    #[test]
    fn union_and_insert_keep_order() {
        let mut union = Positions::new();
        union.set_union(&[&Positions::from(3..5), &Positions::from(0..4)]);
        assert_eq!(union, Positions::from(0..5));
        union.insert(9);
        union.insert(9);
        union.insert(7);
        assert_eq!(union.to_string(), "0..5,7,9");
    }

    #[test]
    #[should_panic(expected = "positions must ascend")]
    fn push_refuses_to_go_back() {
        Positions::from(0..3).push(1);
    }
}
