//! Best token, second best, and the sums of a row of logits that its probabilities and its entropy are made of.
//!
//! A row is cut into tiles of fixed length, so that several threads can share one row and no logit need be kept: the
//! tiles' results are then put together in ascending order. A tile is the smallest part of a row that the epilogue of a
//! product sees, whatever the number of rows and threads.

use demask_tensor::Number;

use crate::{
    elementwise::{LANES, Lanes, Operation, dispatch},
    isa::Isa,
    linear::{Sums, activation::exp_f32},
};

/// Logits of a tile.
pub(super) const TILE: usize = Sums::COLUMNS;
const _: () = assert!(TILE == LANES, "a tile is one step of vectors");

/// Statistics of a tile or a row: of the distribution `softmax(logit * inverse)`, and of the tokens that may be predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Statistics {
    /// Largest logit of those that may be predicted.
    pub(super) best: f32,
    /// Their best token, the lowest of several.
    pub(super) token: u32,
    /// Largest logit of the others of them.
    pub(super) second: f32,
    /// Largest logit of all: a forbidden token keeps its share.
    pub(super) base: f32,
    /// `sum exp((logit - base) * inverse)`; 0 if there is no finite logit.
    pub(super) sum: f32,
    /// `sum (logit - base) * exp((logit - base) * inverse)`, without tokens that weigh nothing; never above 0.
    pub(super) moment: f32,
}

// SAFETY: six plain numbers of four bytes each, without padding, aligned like each of them.
unsafe impl Number for Statistics {}

impl Statistics {
    /// Statistics of no tokens.
    pub(super) const NONE: Self = Self {
        best: f32::NEG_INFINITY,
        token: 0,
        second: f32::NEG_INFINITY,
        base: f32::NEG_INFINITY,
        sum: 0.0,
        moment: 0.0,
    };

    /// Puts the tiles of a row together, ascending.
    pub(super) fn join(isa: Isa, tiles: &[Self], inverse: f32) -> Self {
        dispatch(isa, Join { tiles, inverse })
    }

    /// Computes the statistics of a whole row: the same as joining its tiles, without room for them.
    pub(super) fn of_row(isa: Isa, values: &[f32], inverse: f32) -> Self {
        dispatch(isa, Whole { values, inverse })
    }

    /// The distribution of these tokens, with the best ones of others: of those that may be predicted.
    #[inline(always)]
    pub(super) fn with_best_of(self, allowed: &Self) -> Self {
        Self { best: allowed.best, token: allowed.token, second: allowed.second, ..self }
    }

    /// Best, second best and largest with those of a later tile.
    #[inline(always)]
    fn include(&mut self, tile: &Self) {
        if tile.base > self.base {
            self.base = tile.base;
        }
        if tile.best > self.best {
            let second = if self.best > tile.second { self.best } else { tile.second };
            *self = Self { second, ..self.with_best_of(tile) };
        } else if tile.best > self.second {
            self.second = tile.best;
        }
    }

    /// A tile's parts of the sum and the moment of its row, whose largest logit is `base`. Parts are added in f64: there
    /// are thousands.
    #[inline(always)]
    fn parts(&self, base: f32, inverse: f32) -> (f32, f32) {
        // All is computed in any case, so that many tiles are looked at together.
        let distance = self.base - base;
        let weight = exp_f32(distance * inverse);
        let (sum, moment) = (self.sum * weight, (self.moment + distance * self.sum) * weight);
        let weighs = self.sum > 0.0 && weight > 0.0;
        (if weighs { sum } else { 0.0 }, if weighs { moment } else { 0.0 })
    }

    /// Computes the statistics of one tile whose first token is `first`. A logit that is not a number counts as minus
    /// infinity.
    #[inline(always)]
    pub(super) fn of_tile<L: Lanes>(logits: &[f32; TILE], first: u32, inverse: f32) -> Self {
        let mut values = [f32::NEG_INFINITY; TILE];
        for lane in 0..TILE {
            values[lane] = if logits[lane] > values[lane] { logits[lane] } else { values[lane] };
        }
        let best = L::most_of(&values);
        if best == f32::NEG_INFINITY {
            return Self { token: first, ..Self::NONE };
        }
        let mut lanes = [0u32; LANES];
        for lane in 0..LANES {
            lanes[lane] = if values[lane] == best { lane as u32 } else { LANES as u32 };
        }
        let at = min_lanes(lanes);
        let mut others = [0.0; LANES];
        let mut weights = [0.0; LANES];
        let mut moments = [0.0; LANES];
        for lane in 0..LANES {
            others[lane] = if lanes[lane] == at { f32::NEG_INFINITY } else { values[lane] };
            let distance = values[lane] - best;
            weights[lane] = exp_f32(distance * inverse);
            moments[lane] = if weights[lane] > 0.0 { distance * weights[lane] } else { 0.0 };
        }
        let (sum, moment) = (L::sum_of(&weights), L::sum_of(&moments));
        Self { best, token: first + at, second: L::most_of(&others), base: best, sum, moment }
    }

    /// Difference of probability between the best token that may be predicted and the second.
    pub(super) fn margin(&self, inverse: f32) -> f32 {
        self.probability(self.best, inverse) - self.probability(self.second, inverse)
    }

    /// Probability of a logit.
    pub(super) fn probability(&self, logit: f32, inverse: f32) -> f32 {
        if self.sum > 0.0 { exp_f32((logit - self.base) * inverse) / self.sum } else { 0.0 }
    }

    /// `-sum p ln p` with `p = exp((logit - base) * inverse) / sum`, taken apart: `ln sum - inverse * moment / sum`.
    pub(super) fn entropy(&self, inverse: f32) -> f32 {
        let Self { sum, moment, .. } = *self;
        if sum > 0.0 { sum.ln() - inverse * moment / sum } else { 0.0 }
    }
}

/// The smallest lane.
#[inline(always)]
pub(super) fn min_lanes(mut lanes: [u32; LANES]) -> u32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = lanes[lane].min(lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Statistics of a row of any length.
struct Whole<'a> {
    values: &'a [f32],
    inverse: f32,
}

impl Operation for Whole<'_> {
    type Output = Statistics;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Statistics {
        let Self { values, inverse } = self;
        let mut most = [f32::NEG_INFINITY; LANES];
        let last = &mut [0.0; TILE];
        for tile in tiles(values, last) {
            for lane in 0..LANES {
                most[lane] = if tile[lane] > most[lane] { tile[lane] } else { most[lane] };
            }
        }
        let (base, mut joined, mut sums) = (L::most_of(&most), Statistics::NONE, [0.0; 2]);
        for (tile, first) in tiles(values, last).zip((0..).step_by(TILE)) {
            let tile = Statistics::of_tile::<L>(tile, first, inverse);
            joined.include(&tile);
            let (sum, moment) = tile.parts(base, inverse);
            sums[0] += f64::from(sum);
            sums[1] += f64::from(moment);
        }
        Statistics { sum: sums[0] as f32, moment: sums[1] as f32, ..joined }
    }
}

/// Tiles put together.
struct Join<'a> {
    tiles: &'a [Statistics],
    inverse: f32,
}

impl Operation for Join<'_> {
    type Output = Statistics;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Statistics {
        let Self { tiles, inverse } = self;
        let mut joined = Statistics::NONE;
        for tile in tiles {
            joined.include(tile);
        }
        let mut sums = [0.0; 2];
        // The exponentials many at a time, then one addition after the other.
        for tiles in tiles.chunks(LANES) {
            let mut parts = [(0.0, 0.0); LANES];
            for (part, tile) in parts.iter_mut().zip(tiles) {
                *part = tile.parts(joined.base, inverse);
            }
            for (sum, moment) in parts {
                sums[0] += f64::from(sum);
                sums[1] += f64::from(moment);
            }
        }
        Statistics { sum: sums[0] as f32, moment: sums[1] as f32, ..joined }
    }
}

/// The tiles of some values; the last one, if it is not whole, is filled up with minus infinity in `last`.
///
/// An iterator, because the work on a tile must be inlined into code that is compiled for an instruction set: a
/// closure that is called from two places is not.
#[inline(always)]
pub(super) fn tiles<'v>(values: &'v [f32], last: &'v mut [f32; TILE]) -> impl Iterator<Item = &'v [f32; TILE]> {
    let (whole, rest) = values.as_chunks::<TILE>();
    // Nearly all values come in whole tiles.
    if !rest.is_empty() {
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()..].fill(f32::NEG_INFINITY);
    }
    whole.iter().chain((!rest.is_empty()).then_some(&*last))
}
