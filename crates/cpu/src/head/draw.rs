//! The token that a row predicts where that is not simply its most probable one: by keyed noise, or among tokens that
//! weigh nothing.

use std::sync::atomic::{AtomicI32, Ordering};

use demask_tensor::{Number, gumbel_bits, gumbel_noise};

use super::statistics::{Statistics, TILE, min_lanes};
use crate::{elementwise::max_lanes, linear::activation::exp_f32};

/// No noise is larger: `-ln(-ln(1 - 2^-53))` is below it.
const MOST_NOISE: f32 = 37.0;

/// The winner of a tile or a row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Drawn {
    /// Noised logit.
    score: f32,
    /// Its token, the lowest of several.
    pub(super) token: u32,
    /// Its logit.
    pub(super) logit: f32,
}

// SAFETY: three plain numbers of four bytes each, without padding.
unsafe impl Number for Drawn {}

impl Drawn {
    /// Of no tokens.
    const NONE: Self = Self { score: f32::NEG_INFINITY, token: 0, logit: f32::NEG_INFINITY };

    /// The most probable token.
    pub(super) fn plain(statistics: &Statistics) -> Self {
        Self { score: statistics.best, token: statistics.token, logit: statistics.best }
    }

    /// Of the tiles of a row, ascending.
    pub(super) fn join(tiles: &[Self]) -> Self {
        let mut winner = Self::NONE;
        tiles.iter().filter(|tile| tile.score > f32::NEG_INFINITY).for_each(|tile| winner.include(tile));
        winner
    }

    /// The better of two.
    #[inline(always)]
    fn include(&mut self, other: &Self) {
        if other.score > self.score || other.score == self.score && other.token < self.token {
            *self = *other;
        }
    }
}

/// The highest score that a row is known to reach, shared by the threads that look for it. What threads see of it is
/// chance, and decides nothing but how many tokens are looked at in vain: it is never above the winner's score.
#[derive(Debug)]
pub(super) struct Mark(AtomicI32);

impl Default for Mark {
    fn default() -> Self {
        Self(AtomicI32::new(ordered(f32::NEG_INFINITY)))
    }
}

impl Mark {
    fn get(&self) -> f32 {
        let order = self.0.load(Ordering::Relaxed);
        f32::from_bits(folded(order) as u32)
    }

    fn raise(&self, score: f32) {
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

/// How a row draws its token.
#[derive(Clone, Copy)]
pub(super) struct Draw<'a> {
    /// 0: the most probable.
    pub(super) temperature: f32,
    /// Key of the noise.
    pub(super) key: u64,
    pub(super) mark: &'a Mark,
}

impl Draw<'_> {
    fn scored(&self, token: u32, logit: f32) -> Drawn {
        Drawn { score: logit / self.temperature + gumbel_noise(self.key, token), token, logit }
    }

    /// The winner of a tile whose first token is `first`, or none if it cannot be the row's. A logit that is not a number
    /// never wins.
    #[inline(always)]
    pub(super) fn of_tile(&self, logits: &[f32; TILE], first: u32) -> Drawn {
        if self.temperature <= 0.0 {
            return Drawn::plain(&Statistics::of_tile(logits, first, 1.0));
        }
        let mark = self.mark.get();
        let mut winner = Drawn::NONE;
        if self.is_far(logits, mark) {
            return winner;
        }
        let far = self.far(logits, first, mark);
        if min_lanes(far) == 1 {
            return winner;
        }
        for lane in (0..TILE).filter(|&lane| far[lane] == 0) {
            winner.include(&self.scored(first + lane as u32, logits[lane]));
        }
        self.mark.raise(winner.score);
        winner
    }

    /// Whether no noise can lift a token of a tile to the mark.
    #[inline(always)]
    fn is_far(&self, logits: &[f32; TILE], mark: f32) -> bool {
        let mut numbers = [f32::NEG_INFINITY; TILE];
        for lane in 0..TILE {
            numbers[lane] = if logits[lane] > numbers[lane] { logits[lane] } else { numbers[lane] };
        }
        max_lanes(numbers) / self.temperature + MOST_NOISE < mark
    }

    /// 1 for each token that is surely below the mark.
    ///
    /// Noise `-ln(-ln u)` lifts a token over a distance `t` if `1 - u <= 1 - exp(-exp(-t))`, which is at most `exp(-t)`:
    /// that is quick to see for many tokens, without a logarithm.
    #[inline(always)]
    fn far(&self, logits: &[f32; TILE], first: u32, mark: f32) -> [u32; TILE] {
        // More than all that is rounded: scores in f32, the exponential, and `1 - u`, of which the upper bits count.
        let slack = 1e-3 + mark.abs() * 1e-6;
        // The same in loops of their own, for vectors of 64 bits and of 32.
        let mut bits = [0; TILE];
        for lane in 0..TILE {
            bits[lane] = (!gumbel_bits(self.key, first + lane as u32) >> 40) as u32;
        }
        let mut far = [0; TILE];
        for lane in 0..TILE {
            let rest = bits[lane] as i32 as f32 * (1.0 / (1 << 24) as f32);
            let reach = exp_f32(logits[lane] / self.temperature - mark + slack);
            far[lane] = u32::from(rest > reach);
        }
        far
    }

    /// The winner among some tokens, best first.
    pub(super) fn among(&self, values: &[f32], order: &[u32]) -> Drawn {
        let mut winner = Drawn::NONE;
        for &token in order {
            let logit = values[token as usize];
            if logit / self.temperature + MOST_NOISE < winner.score {
                break;
            }
            winner.include(&self.scored(token, logit));
        }
        winner
    }
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

    #[test]
    fn no_token_that_reaches_the_mark_is_far() {
        for temperature in [0.1, 1.0, 3.0] {
            let (key, mark) = (5, Mark::default());
            let draw = Draw { temperature, key, mark: &mark };
            let (mut reached, mut far) = (0, 0);
            for first in (0..64_000).step_by(TILE) {
                let logits: [f32; TILE] = std::array::from_fn(|lane| ((first + lane) as f32 * 0.37).sin() * 4.0);
                for mark in [-20.0, 0.0, 3.0, 9.0, 12.0] {
                    let seen = draw.far(&logits, first as u32, mark);
                    for lane in 0..TILE {
                        let reaches = draw.scored((first + lane) as u32, logits[lane]).score >= mark;
                        assert!(!reaches || seen[lane] == 0, "token {} at {mark}", first + lane);
                        reached += u32::from(reaches);
                        far += seen[lane];
                    }
                }
            }
            // Of all that cannot reach it, nearly all are known to be far.
            assert!(reached > 1000 && reached + far > 5 * 64_000 * 9 / 10, "{reached} {far}");
        }
    }
}
