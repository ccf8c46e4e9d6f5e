//! One page of keys for a batch of queries.

use std::marker::PhantomData;

use demask_tensor::PAGE;

use super::BATCH;
use crate::{
    elementwise::{Element, LANES, Lanes, Operation, max_lanes, sum_lanes},
    linear::activation::exp_f32,
};

/// Queries on their way through the pages.
pub(super) struct Batch<'a, T> {
    head_dim: usize,
    /// `head_dim^-0.5`.
    scale: f32,
    queries: [Query<'a>; BATCH],
    count: usize,
    element: PhantomData<T>,
}

/// One head of one row.
struct Query<'a> {
    row: &'a [f32],
    /// Visible keys.
    limit: usize,
    /// Largest score so far.
    maximum: f32,
    /// Sum of the weights so far, relative to the largest score.
    sum: f32,
    /// Weighted sum of the values so far, likewise.
    out: &'a mut [f32],
}

impl<'a, T: Element> Batch<'a, T> {
    pub(super) fn new(head_dim: usize) -> Self {
        let queries = std::array::from_fn(|_| Query { row: &[], limit: 0, maximum: 0.0, sum: 0.0, out: &mut [] });
        Self { head_dim, scale: 1.0 / (head_dim as f32).sqrt(), queries, count: 0, element: PhantomData }
    }

    /// Adds a query; there must be room.
    pub(super) fn push(&mut self, row: &'a [f32], limit: usize, out: &'a mut [f32]) {
        assert!(row.len() == self.head_dim && out.len() == self.head_dim, "width of a query");
        self.queries[self.count] = Query { row, limit, maximum: f32::NEG_INFINITY, sum: 0.0, out };
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == BATCH
    }

    pub(super) fn largest_limit(&self) -> usize {
        self.queries[..self.count].iter().map(|query| query.limit).max().unwrap_or(0)
    }

    /// The page of the keys from `first` on: K `[head_dim, PAGE]`, V `[PAGE, head_dim]`.
    pub(super) fn page<'p>(&'p mut self, first: usize, keys: &'p [T], values: &'p [T]) -> Page<'p, 'a, T> {
        assert!(keys.len() == self.head_dim * PAGE && values.len() == self.head_dim * PAGE, "size of a page");
        Page { batch: self, first, keys, values }
    }

    /// Divides by the sums and empties the batch.
    pub(super) fn finish(&mut self) {
        for query in &mut self.queries[..self.count] {
            let factor = 1.0 / query.sum;
            query.out.iter_mut().for_each(|value| *value *= factor);
        }
        self.count = 0;
    }
}

/// One page for a batch.
pub(super) struct Page<'p, 'a, T> {
    batch: &'p mut Batch<'a, T>,
    first: usize,
    keys: &'p [T],
    values: &'p [T],
}

impl<T: Element> Operation for Page<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { batch, first, keys, values } = self;
        let tile = Tile { keys, values, head_dim: batch.head_dim, scale: batch.scale, first };
        let mut rest = &mut batch.queries[..batch.count];
        // As many queries at once as the registers hold, if they see the same keys.
        while let Some(query) = rest.first() {
            let visible = tile.visible(query);
            let same = rest.iter().take(L::SUMS).take_while(|query| tile.visible(query) == visible).count();
            let taken = if same >= 8 {
                tile.take::<L, 8>(&mut rest[..8], visible);
                8
            } else if same >= 4 {
                tile.take::<L, 4>(&mut rest[..4], visible);
                4
            } else if same >= 2 {
                tile.take::<L, 2>(&mut rest[..2], visible);
                2
            } else {
                tile.take::<L, 1>(&mut rest[..1], visible);
                1
            };
            rest = &mut rest[taken..];
        }
    }
}

/// The keys of a page and their values.
struct Tile<'p, T> {
    keys: &'p [T],
    values: &'p [T],
    head_dim: usize,
    scale: f32,
    /// Position of the first key.
    first: usize,
}

impl<T: Element> Tile<'_, T> {
    /// How many keys of this page a query sees.
    #[inline(always)]
    fn visible(&self, query: &Query<'_>) -> usize {
        query.limit.saturating_sub(self.first).min(PAGE)
    }

    /// Takes `Q` queries that see the first `visible` keys.
    #[inline(always)]
    fn take<L: Lanes, const Q: usize>(&self, queries: &mut [Query<'_>], visible: usize) {
        if visible == 0 {
            return;
        }
        let mut weights = [[0.0; LANES]; Q];
        self.scores::<L, Q>(queries, &mut weights);
        let mut decay = [0.0; Q];
        for query in 0..Q {
            decay[query] = weigh(&mut queries[query], &mut weights[query], self.scale, visible);
        }
        self.add_values::<L, Q>(queries, &weights, &decay, visible);
    }

    /// Products of the queries with all keys of the page, summed over the head in ascending order.
    #[inline(always)]
    fn scores<L: Lanes, const Q: usize>(&self, queries: &[Query<'_>], scores: &mut [[f32; LANES]; Q]) {
        let mut sums = [L::zero(); Q];
        let rows: [&[f32]; Q] = std::array::from_fn(|query| &queries[query].row[..self.head_dim]);
        for column in 0..self.head_dim {
            // SAFETY: K has `head_dim` rows of a tile each, checked when the page was made.
            let keys = unsafe { T::load::<L>(self.keys.as_ptr().add(column * LANES)) };
            for query in 0..Q {
                // SAFETY: the rows were cut to `head_dim`.
                sums[query] = L::scale_add(sums[query], keys, unsafe { *rows[query].get_unchecked(column) });
            }
        }
        for query in 0..Q {
            // SAFETY: the array is one tile long.
            unsafe { L::store(sums[query], scores[query].as_mut_ptr()) }
        }
    }

    /// `out = out * decay + sum of weight * value` over the visible keys in ascending order.
    #[inline(always)]
    fn add_values<L: Lanes, const Q: usize>(
        &self,
        queries: &mut [Query<'_>],
        weights: &[[f32; LANES]; Q],
        decay: &[f32; Q],
        visible: usize,
    ) {
        let begun = self.first > 0;
        let tiles = self.head_dim / LANES;
        for tile in 0..tiles {
            let mut sums = [L::zero(); Q];
            for query in 0..Q {
                if begun {
                    // SAFETY: the output is `head_dim` long, checked when the query was added.
                    let old = unsafe { L::load(queries[query].out.as_ptr().add(tile * LANES)) };
                    sums[query] = L::scale(old, decay[query]);
                }
            }
            for key in 0..visible {
                // SAFETY: V has PAGE rows of `head_dim`, checked when the page was made, and `visible` is at most PAGE.
                let values = unsafe { T::load::<L>(self.values.as_ptr().add(key * self.head_dim + tile * LANES)) };
                for query in 0..Q {
                    // SAFETY: `visible` is at most PAGE, the length of a tile.
                    let weight = unsafe { *weights[query].get_unchecked(key) };
                    sums[query] = L::scale_add(sums[query], values, weight);
                }
            }
            for query in 0..Q {
                // SAFETY: as for reading it.
                unsafe { L::store(sums[query], queries[query].out.as_mut_ptr().add(tile * LANES)) }
            }
        }
        for column in tiles * LANES..self.head_dim {
            for query in 0..Q {
                let mut sum = if begun { queries[query].out[column] * decay[query] } else { 0.0 };
                for key in 0..visible {
                    let value = self.values[key * self.head_dim + column].widen();
                    sum = L::scale_add_one(sum, value, weights[query][key]);
                }
                queries[query].out[column] = sum;
            }
        }
    }
}

/// Turns scores into weights relative to the new maximum; those of masked keys are exactly 0. Returns the factor of
/// what was summed before.
#[inline(always)]
fn weigh(query: &mut Query<'_>, scores: &mut [f32; LANES], scale: f32, visible: usize) -> f32 {
    for (lane, score) in scores.iter_mut().enumerate() {
        *score = if lane < visible { *score * scale } else { f32::NEG_INFINITY };
    }
    let largest = max_lanes(*scores);
    let maximum = if largest > query.maximum { largest } else { query.maximum };
    for score in scores.iter_mut() {
        *score = exp_f32(*score - maximum);
    }
    let decay = exp_f32(query.maximum - maximum);
    query.sum = query.sum * decay + sum_lanes(*scores);
    query.maximum = maximum;
    decay
}
