//! Best token, second best and the sum of exponentials of a row of logits.
//!
//! A row is cut into tiles of fixed length, so that several threads can share one row: the tiles' results are then put
//! together in ascending order.

use crate::{
    elementwise::{LANES, Lanes, Operation, dispatch, sum_lanes},
    isa::Isa,
    linear::activation::exp_f32,
};

/// Logits of a tile: they stay in the first cache between the two passes over them.
pub(super) const TILE: usize = 4096;

/// What is known of a tile or a row: of the distribution `softmax(logit * inverse)`.
#[derive(Debug, Clone, Copy, PartialEq)]
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

impl Statistics {
    /// Of no tokens.
    pub(super) const NONE: Self = Self { best: f32::NEG_INFINITY, token: 0, second: f32::NEG_INFINITY, sum: 0.0 };

    /// Puts tiles together, ascending.
    pub(super) fn join(tiles: &[Self], inverse: f32) -> Self {
        let mut joined = Self { token: tiles.first().map_or(0, |tile| tile.token), ..Self::NONE };
        for tile in tiles {
            if tile.best > joined.best {
                let second = if joined.best > tile.second { joined.best } else { tile.second };
                joined = Self { second, ..*tile };
            } else if tile.best > joined.second {
                joined.second = tile.best;
            }
        }
        let part = |tile: &&Self| tile.sum * exp_f32((tile.best - joined.best) * inverse);
        joined.sum = tiles.iter().filter(|tile| tile.sum > 0.0).map(|tile| part(&tile)).sum();
        joined
    }

    /// Of a whole row.
    pub(super) fn of_row(isa: Isa, row: &[f32], inverse: f32) -> Self {
        // A row at a time: joined as it goes would be another order than that of `join`, so the tiles are kept.
        const MOST: usize = 128;
        let mut tiles = [Self::NONE; MOST];
        assert!(row.len() <= MOST * TILE, "{} logits", row.len());
        let count = row.len().div_ceil(TILE);
        for (index, (tile, values)) in tiles.iter_mut().zip(row.chunks(TILE)).enumerate() {
            *tile = Self::of_tile(isa, values, (index * TILE) as u32, inverse);
        }
        Self::join(&tiles[..count], inverse)
    }

    /// Of one tile whose first token is `first`.
    pub(super) fn of_tile(isa: Isa, values: &[f32], first: u32, inverse: f32) -> Self {
        let best = dispatch(isa, Best { values, first });
        if best.best == f32::NEG_INFINITY {
            return best;
        }
        Self { sum: dispatch(isa, Sum { values, best: best.best, inverse, entropy: None }), ..best }
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
    let best = statistics.best;
    let tiles =
        row.chunks(TILE).map(|values| dispatch(isa, Sum { values, best, inverse, entropy: Some(statistics.sum) }));
    tiles.map(f64::from).sum::<f64>() as f32
}

/// The summand of the entropy.
#[inline(always)]
pub(super) fn entropy_part(probability: f32) -> f32 {
    -probability * (probability + 1e-10).ln()
}

struct Best<'a> {
    values: &'a [f32],
    first: u32,
}

impl Operation for Best<'_> {
    type Output = Statistics;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Statistics {
        let mut best = [f32::NEG_INFINITY; LANES];
        let mut second = [f32::NEG_INFINITY; LANES];
        let mut at = [0u32; LANES];
        for_tiles(self.values, |index, tile| {
            for lane in 0..LANES {
                let value = tile[lane];
                let wins = value > best[lane];
                let loser = if wins { best[lane] } else { value };
                second[lane] = if loser > second[lane] { loser } else { second[lane] };
                best[lane] = if wins { value } else { best[lane] };
                at[lane] = if wins { index } else { at[lane] };
            }
        });
        let mut joined = Statistics { token: self.first, ..Statistics::NONE };
        for lane in 0..LANES {
            let token = self.first + at[lane] * LANES as u32 + lane as u32;
            let wins = best[lane] > joined.best || best[lane] == joined.best && token < joined.token;
            let loser = if wins { joined.best } else { best[lane] };
            let loser = if second[lane] > loser { second[lane] } else { loser };
            joined.second = if loser > joined.second { loser } else { joined.second };
            if wins {
                (joined.best, joined.token) = (best[lane], token);
            }
        }
        joined
    }
}

/// Sum of exponentials, or with the whole row's sum in `entropy` the entropy's part.
struct Sum<'a> {
    values: &'a [f32],
    best: f32,
    inverse: f32,
    entropy: Option<f32>,
}

impl Operation for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let Self { values, best, inverse, entropy } = self;
        let mut sums = [0.0; LANES];
        match entropy {
            None => for_tiles(values, |_, tile| {
                for lane in 0..LANES {
                    sums[lane] += exp_f32((tile[lane] - best) * inverse);
                }
            }),
            Some(sum) => for_tiles(values, |_, tile| {
                for lane in 0..LANES {
                    sums[lane] += entropy_part(exp_f32((tile[lane] - best) * inverse) / sum);
                }
            }),
        }
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
