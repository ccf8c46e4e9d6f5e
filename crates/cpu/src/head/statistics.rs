//! Best token, second best and the sum of exponentials of a row of logits.
//!
//! A row is cut into tiles of fixed length, so that several threads can share one row and no logit need be kept: the
//! tiles' results are then put together in ascending order. A tile is what the epilogue of a product sees of a row at
//! least, whatever the number of rows and threads.

use demask_tensor::Number;

use crate::{
    elementwise::{LANES, Lanes, Operation, Shared, dispatch, max_lanes, sum_lanes},
    isa::Isa,
    linear::{Sums, activation::exp_f32},
};

/// Logits of a tile.
pub(super) const TILE: usize = Sums::COLUMNS;
const _: () = assert!(TILE == LANES, "a tile is one step of vectors");
/// Logits whose parts of the entropy are added in f32.
const ENTROPY_PART: usize = 4096;

/// What is known of a tile or a row: of the distribution `softmax(logit * inverse)`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Statistics {
    /// Largest logit.
    pub(super) best: f32,
    /// Its token, the lowest of several.
    pub(super) token: u32,
    /// Largest logit of the other tokens.
    pub(super) second: f32,
    /// `sum exp((logit - best) * inverse)`; 0 if there is no finite logit.
    pub(super) sum: f32,
}

// SAFETY: four plain numbers of four bytes each, without padding, aligned like each of them.
unsafe impl Number for Statistics {}

impl Statistics {
    /// Of no tokens.
    pub(super) const NONE: Self = Self { best: f32::NEG_INFINITY, token: 0, second: f32::NEG_INFINITY, sum: 0.0 };

    /// Memory of floats as statistics.
    pub(super) fn view(memory: &mut [f32]) -> &mut [Self] {
        let count = memory.len() / (size_of::<Self>() / size_of::<f32>());
        // SAFETY: both are plain numbers of the same alignment, and the memory is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), count) }
    }

    /// Puts the tiles of a row together, ascending.
    pub(super) fn join(isa: Isa, tiles: &[Self], inverse: f32) -> Self {
        dispatch(isa, Join { tiles, inverse })
    }

    /// Of a whole row: what joining its tiles gives, without room for them.
    pub(super) fn of_row(isa: Isa, values: &[f32], inverse: f32) -> Self {
        dispatch(isa, Whole { values, inverse })
    }

    /// Best and second best with those of a later tile.
    #[inline(always)]
    fn include(&mut self, tile: &Self) {
        if tile.best > self.best {
            let second = if self.best > tile.second { self.best } else { tile.second };
            *self = Self { second, ..*tile };
        } else if tile.best > self.second {
            self.second = tile.best;
        }
    }

    /// A tile's part of the sum of its row, whose largest logit is `best`. Parts are added in f64: there are thousands.
    #[inline(always)]
    fn part(&self, best: f32, inverse: f32) -> f32 {
        // The exponential is computed in any case, so that many tiles are looked at together.
        let part = self.sum * exp_f32((self.best - best) * inverse);
        if self.sum > 0.0 { part } else { 0.0 }
    }

    /// Of one tile whose first token is `first`. A logit that is not a number counts as minus infinity.
    #[inline(always)]
    pub(super) fn of_tile(logits: &[f32; TILE], first: u32, inverse: f32) -> Self {
        let mut values = [f32::NEG_INFINITY; TILE];
        for lane in 0..TILE {
            values[lane] = if logits[lane] > values[lane] { logits[lane] } else { values[lane] };
        }
        let best = max_lanes(values);
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
        for lane in 0..LANES {
            others[lane] = if lanes[lane] == at { f32::NEG_INFINITY } else { values[lane] };
            weights[lane] = exp_f32((values[lane] - best) * inverse);
        }
        Self { best, token: first + at, second: max_lanes(others), sum: sum_lanes(weights) }
    }

    /// How much more probable the best token is than the second.
    pub(super) fn margin(&self, inverse: f32) -> f32 {
        self.probability(self.best, inverse) - self.probability(self.second, inverse)
    }

    /// Probability of a logit.
    pub(super) fn probability(&self, logit: f32, inverse: f32) -> f32 {
        if self.sum > 0.0 { exp_f32((logit - self.best) * inverse) / self.sum } else { 0.0 }
    }
}

/// `-sum p ln(p + 1e-10)` over a row.
pub(super) fn entropy(isa: Isa, row: &[f32], statistics: &Statistics, inverse: f32) -> f32 {
    if statistics.sum <= 0.0 {
        return 0.0;
    }
    let Statistics { best, sum, .. } = *statistics;
    let parts = row.chunks(ENTROPY_PART).map(|values| dispatch(isa, Entropy { values, best, inverse, sum }));
    parts.map(f64::from).sum::<f64>() as f32
}

/// The summand of the entropy.
#[inline(always)]
pub(super) fn entropy_part(probability: f32) -> f32 {
    -probability * (probability + 1e-10).ln()
}

/// The smallest lane.
#[inline(always)]
fn min_lanes(mut lanes: [u32; LANES]) -> u32 {
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
        for_tiles(values, |_, tile| {
            for lane in 0..LANES {
                most[lane] = if tile[lane] > most[lane] { tile[lane] } else { most[lane] };
            }
        });
        let (best, mut joined, mut sum) = (max_lanes(most), Statistics::NONE, 0.0);
        for_tiles(values, |index, tile| {
            let tile = Statistics::of_tile(tile, index * TILE as u32, inverse);
            joined.include(&tile);
            sum += f64::from(tile.part(best, inverse));
        });
        Statistics { sum: sum as f32, ..joined }
    }
}

/// Statistics of a part of a row, tile by tile.
pub(super) struct Summaries<'a> {
    pub(super) values: &'a [f32],
    /// Token of the first value.
    pub(super) first: u32,
    pub(super) out: &'a mut [Statistics],
}

impl Operation for Summaries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { values, first, out } = self;
        for_tiles(values, |index, tile| {
            out[index as usize] = Statistics::of_tile(tile, first + index * TILE as u32, 1.0);
        });
    }
}

/// Statistics of a block of a product's sums, tile by tile.
pub(super) struct SummedBlock<'a, F> {
    pub(super) sums: &'a Sums<'a>,
    pub(super) vocabulary: usize,
    /// Tokens that a row cannot have.
    pub(super) forbidden: &'a F,
    /// `[rows, per_row]`; the block's are written by nobody else at the same time.
    pub(super) tiles: &'a Shared<'a, Statistics>,
    pub(super) per_row: usize,
}

impl<'f, F: Fn(usize) -> &'f [u32]> Operation for SummedBlock<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { sums, vocabulary, forbidden, tiles, per_row } = self;
        for row in 0..sums.rows {
            let forbidden = forbidden(sums.first_row + row);
            let (groups, _) = sums.row(row).as_chunks::<TILE>();
            let first = sums.first_column() / TILE;
            let start = (sums.first_row + row) * per_row + first;
            // SAFETY: a product hands out each sum once, and these are the tiles of this block's sums.
            let out = unsafe { tiles.part(start..start + groups.len()) };
            for ((group, out), first) in groups.iter().zip(out).zip((first * TILE..).step_by(TILE)) {
                let inside = first..first + TILE;
                let whole = inside.end <= vocabulary;
                // Nearly all tiles are taken as they are, without a way through memory.
                *out = if whole && forbidden.iter().all(|&token| !inside.contains(&(token as usize))) {
                    Statistics::of_tile(group, first as u32, 1.0)
                } else {
                    Statistics::of_tile(&struck_out(group, first, vocabulary, forbidden), first as u32, 1.0)
                };
            }
        }
    }
}

/// A tile without the tokens that a row cannot have.
#[cold]
fn struck_out(values: &[f32; TILE], first: usize, vocabulary: usize, forbidden: &[u32]) -> [f32; TILE] {
    let mut left = *values;
    left[(vocabulary - first).min(TILE)..].fill(f32::NEG_INFINITY);
    for lane in forbidden.iter().filter_map(|&token| (token as usize).checked_sub(first)).filter(|&lane| lane < TILE) {
        left[lane] = f32::NEG_INFINITY;
    }
    left
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
        let mut sum = 0.0;
        // The exponentials many at a time, then one addition after the other.
        for tiles in tiles.chunks(LANES) {
            let mut parts = [0.0; LANES];
            for (part, tile) in parts.iter_mut().zip(tiles) {
                *part = tile.part(joined.best, inverse);
            }
            for part in parts {
                sum += f64::from(part);
            }
        }
        Statistics { sum: sum as f32, ..joined }
    }
}

/// The entropy's part of some values.
struct Entropy<'a> {
    values: &'a [f32],
    best: f32,
    inverse: f32,
    sum: f32,
}

impl Operation for Entropy<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let Self { values, best, inverse, sum } = self;
        let mut sums = [0.0; LANES];
        for_tiles(values, |_, tile| {
            for lane in 0..LANES {
                sums[lane] += entropy_part(exp_f32((tile[lane] - best) * inverse) / sum);
            }
        });
        sum_lanes(sums)
    }
}

/// Calls `take` with the number of each group of [`LANES`] values and the values, the last group filled up with minus
/// infinity.
#[inline(always)]
fn for_tiles(values: &[f32], mut take: impl FnMut(u32, &[f32; LANES])) {
    let (groups, rest) = values.as_chunks::<LANES>();
    for (index, group) in groups.iter().enumerate() {
        take(index as u32, group);
    }
    if !rest.is_empty() {
        let mut group = [f32::NEG_INFINITY; LANES];
        group[..rest.len()].copy_from_slice(rest);
        take(groups.len() as u32, &group);
    }
}
