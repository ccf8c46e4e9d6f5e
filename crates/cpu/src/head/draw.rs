//! The token that a row predicts where that is not simply its most probable one: by keyed noise, or among tokens that
//! weigh nothing.

use demask_step::random::{token_bits, token_gumbel};
use demask_tensor::Number;

use super::{
    mark::Mark,
    statistics::{Statistics, TILE, min_lanes},
};
use crate::{elementwise::Lanes, linear::activation::exp_f32};

/// No noise is larger: `-ln(-ln(1 - 2^-53))` is below it.
const MOST_NOISE: f32 = 37.0;

/// The winner of a tile or a row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Drawn {
    /// Noised logit.
    score: f32,
    /// Token that was drawn, the lowest of several.
    pub(super) token: u32,
    /// Logit of the token.
    pub(super) logit: f32,
}

// SAFETY: three plain numbers of four bytes each, without padding.
unsafe impl Number for Drawn {}

impl Drawn {
    /// Draw from no tokens.
    const NONE: Self = Self { score: f32::NEG_INFINITY, token: 0, logit: f32::NEG_INFINITY };

    /// The most probable token.
    pub(super) fn plain(statistics: &Statistics) -> Self {
        Self { score: statistics.best, token: statistics.token, logit: statistics.best }
    }

    /// Joins the tiles of a row, ascending.
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

/// Rules by which a row draws its token.
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
        Drawn { score: logit / self.temperature + token_gumbel(self.key, token), token, logit }
    }

    /// The winner of a tile whose first token is `first`, or none if it cannot be the row's. A logit that is not a number
    /// never wins.
    #[inline(always)]
    pub(super) fn of_tile<L: Lanes>(&self, logits: &[f32; TILE], first: u32) -> Drawn {
        if self.temperature <= 0.0 {
            return Drawn::plain(&Statistics::of_tile::<L>(logits, first, 1.0));
        }
        let mark = self.mark.get();
        if self.is_far::<L>(logits, first, mark) { Drawn::NONE } else { self.of_near_tile(logits, first, mark) }
    }

    /// Reports whether no token of a tile reaches the mark, as far as that is quick to see.
    ///
    /// Noise `-ln(-ln u)` lifts a token over a distance `t` if `1 - u <= 1 - exp(-exp(-t))`, which is at most `exp(-t)`:
    /// the smallest `1 - u` beside the largest logit tells it of a whole tile, without a logarithm.
    #[inline(always)]
    fn is_far<L: Lanes>(&self, logits: &[f32; TILE], first: u32, mark: f32) -> bool {
        let mut numbers = [f32::NEG_INFINITY; TILE];
        for lane in 0..TILE {
            numbers[lane] = if logits[lane] > numbers[lane] { logits[lane] } else { numbers[lane] };
        }
        let best = L::most_of(&numbers);
        if best / self.temperature + MOST_NOISE < mark {
            return true;
        }
        let mut rests = [0; TILE];
        for lane in 0..TILE {
            rests[lane] = self.rest(first + lane as u32);
        }
        self.is_beyond(min_lanes(rests), best, mark)
    }

    /// The upper 24 bits of `1 - u` of a token's noise.
    #[inline(always)]
    fn rest(&self, token: u32) -> u32 {
        (!token_bits(self.key, token) >> 40) as u32
    }

    /// Reports whether noise of this rest cannot lift a logit to the mark.
    #[inline(always)]
    fn is_beyond(&self, rest: u32, logit: f32, mark: f32) -> bool {
        // More than all that is rounded: scores in f32, the exponential, and the rest, of which only the upper bits count.
        let slack = 1e-3 + mark.abs() * 1e-6;
        rest as f32 * (1.0 / (1 << 24) as f32) > exp_f32(logit / self.temperature - mark + slack)
    }

    /// The winner of a tile of which a token may reach the mark, which then rises.
    #[cold]
    fn of_near_tile(&self, logits: &[f32; TILE], first: u32, mark: f32) -> Drawn {
        let mut winner = Drawn::NONE;
        for (token, &logit) in (first..).zip(logits) {
            if !self.is_beyond(self.rest(token), logit, mark) {
                winner.include(&self.scored(token, logit));
            }
        }
        self.mark.raise(winner.score);
        winner
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
    use crate::elementwise::Portable;

    #[test]
    fn no_token_that_reaches_the_mark_is_passed_over() {
        for temperature in [0.1, 1.0, 3.0] {
            let (key, mark) = (5, Mark::default());
            let draw = Draw { temperature, key, mark: &mark };
            let (mut reached, mut far) = (0, 0);
            for first in (0..64_000).step_by(TILE) {
                let logits: [f32; TILE] = std::array::from_fn(|lane| ((first + lane) as f32 * 0.37).sin() * 4.0);
                for mark in [-20.0, 0.0, 3.0, 9.0, 12.0] {
                    let tile_is_far = draw.is_far::<Portable>(&logits, first as u32, mark);
                    for (token, &logit) in (first as u32..).zip(&logits) {
                        let reaches = draw.scored(token, logit).score >= mark;
                        let beyond = draw.is_beyond(draw.rest(token), logit, mark);
                        assert!(!reaches || !beyond && !tile_is_far, "token {token} at {mark}");
                        reached += u32::from(reaches);
                        far += u32::from(beyond);
                    }
                }
            }
            // Of all that cannot reach it, nearly all are known to be far.
            assert!(reached > 1000 && reached + far > 5 * 64_000 * 9 / 10, "{reached} {far}");
        }
    }
}
