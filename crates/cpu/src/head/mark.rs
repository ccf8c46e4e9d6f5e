//! Marks by which threads inform each other about a row while they reduce its tiles.
//!
//! The moment at which a thread sees a mark is chance. It changes the amount of needless work, never the result: a
//! bound is never above the row's final value.

use std::sync::atomic::{AtomicI32, Ordering};

/// The bounds of a row.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Mark of the winner's score.
    pub(super) score: Mark,
    /// Mark of the logit of the last of the best tokens.
    pub(super) listed: Mark,
}

/// A bound that only rises, minus infinity at first.
#[derive(Debug)]
pub(super) struct Mark(AtomicI32);

impl Default for Mark {
    fn default() -> Self {
        Self(AtomicI32::new(ordered(f32::NEG_INFINITY)))
    }
}

impl Mark {
    pub(super) fn get(&self) -> f32 {
        let order = self.0.load(Ordering::Relaxed);
        f32::from_bits(folded(order) as u32)
    }

    pub(super) fn raise(&self, score: f32) {
        self.0.fetch_max(ordered(score), Ordering::Relaxed);
    }
}

/// An integer in the order of numbers.
fn ordered(value: f32) -> i32 {
    folded(value.to_bits() as i32)
}

/// Turns the order of negative numbers around, or back.
fn folded(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & 0x7fff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_the_highest_score() {
        let mark = Mark::default();
        assert_eq!(mark.get(), f32::NEG_INFINITY);
        for (score, highest) in [(-3.5, -3.5), (-4.0, -3.5), (-0.0, -0.0), (0.0, 0.0), (7.25, 7.25), (-9.0, 7.25)] {
            mark.raise(score);
            assert_eq!(mark.get().to_bits(), f32::to_bits(highest));
        }
    }
}
