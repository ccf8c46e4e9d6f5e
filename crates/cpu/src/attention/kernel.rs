//! A stride of keys for a batch of queries.

use std::marker::PhantomData;

use demask_tensor::PAGE;

use super::BATCH;
use crate::{
    elementwise::{Element, LANES, Lanes, Operation, dispatch},
    isa::Isa,
    linear::activation::exp_f32,
};

/// Pages that are taken together: the largest score, the sum and the rescaling come once for all of them.
pub(super) const STRIDE_PAGES: usize = 4;
/// Keys of a stride.
const STRIDE: usize = STRIDE_PAGES * PAGE;
// A page's keys are one tile.
const _: () = assert!(PAGE == LANES);
/// Width of a head up to which pages are widened for many queries.
const MOST_WIDENED: usize = 128;
/// Numbers that are widened at a time: K of a page, or a tile of V of all keys of a stride. With a part of the queries
/// and their weights they fill a first-level cache of 32 KiB.
const WIDENED: usize = if MOST_WIDENED > STRIDE { MOST_WIDENED * PAGE } else { STRIDE * LANES };

/// Widened numbers.
#[repr(align(64))]
struct Widened([f32; WIDENED]);

/// Queries on their way through the strides.
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

    /// The keys from `first` on: of each page K `[head_dim, PAGE]` and V `[PAGE, head_dim]`. Pages that no query sees may
    /// be missing. `ahead` is K that is read next, page after page.
    pub(super) fn stride<'p>(
        &'p mut self,
        first: usize,
        pages: &'p [(&'p [T], &'p [T])],
        ahead: &'p [&'p [T]],
    ) -> Stride<'p, 'a, T> {
        let size = self.head_dim * PAGE;
        assert!(pages.iter().all(|(keys, values)| keys.len() == size && values.len() == size), "size of a page");
        let seen = self.largest_limit().saturating_sub(first).min(STRIDE);
        assert!(pages.len() <= STRIDE_PAGES && seen <= pages.len() * PAGE, "pages of a stride");
        Stride { batch: self, first, pages, ahead }
    }

    /// Divides by the sums and empties the batch.
    pub(super) fn finish(&mut self, isa: Isa) {
        dispatch(isa, Finish(&mut self.queries[..self.count]));
        self.count = 0;
    }
}

/// Queries that have seen all their keys.
struct Finish<'p, 'a>(&'p mut [Query<'a>]);

impl Operation for Finish<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for query in self.0 {
            let factor = 1.0 / query.sum;
            query.out.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

/// One stride for a batch.
pub(super) struct Stride<'p, 'a, T> {
    batch: &'p mut Batch<'a, T>,
    first: usize,
    pages: &'p [(&'p [T], &'p [T])],
    ahead: &'p [&'p [T]],
}

/// Does something for as many of `$count` queries at once as the registers hold, part after part: `$part` is their range,
/// `$queries` the constant how many they are.
macro_rules! in_parts {
    ($lanes:ident, $count:expr, |$part:ident, $queries:ident| $body:expr) => {
        let (count, mut first) = ($count, 0);
        while first < count {
            let most = (count - first).min($lanes::SUMS);
            in_parts!(@ most, first, $part, $queries, $body, 12 8 4 2 1);
        }
    };
    (@ $most:ident, $first:ident, $part:ident, $queries:ident, $body:expr, $size:literal $($smaller:literal)*) => {
        if $most >= $size {
            const $queries: usize = $size;
            let $part = $first..$first + $size;
            $body;
            $first += $size;
        } else {
            in_parts!(@ $most, $first, $part, $queries, $body, $($smaller)*);
        }
    };
    (@ $most:ident, $first:ident, $part:ident, $queries:ident, $body:expr,) => {};
}

impl<T: Element> Operation for Stride<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { batch, first, pages, ahead } = self;
        let tiles = Tiles { pages, ahead, head_dim: batch.head_dim, scale: batch.scale, first };
        let mut rest = &mut batch.queries[..batch.count];
        while let Some(query) = rest.first() {
            let visible = tiles.visible(query);
            let same = rest.iter().take_while(|query| tiles.visible(query) == visible).count();
            let (queries, behind) = rest.split_at_mut(same);
            if visible > 0 && same > L::SUMS && tiles.can_be_widened() {
                tiles.take_widened::<L>(queries, visible);
            } else if visible > 0 {
                in_parts!(L, same, |part, Q| tiles.take::<L, Q>(&mut queries[part], visible));
            }
            rest = behind;
        }
    }
}

/// The keys of a stride and their values.
struct Tiles<'p, T> {
    pages: &'p [(&'p [T], &'p [T])],
    /// K that is read next.
    ahead: &'p [&'p [T]],
    head_dim: usize,
    scale: f32,
    /// Position of the first key.
    first: usize,
}

impl<T: Element> Tiles<'_, T> {
    /// Number of keys of this stride that a query sees.
    #[inline(always)]
    fn visible(&self, query: &Query<'_>) -> usize {
        query.limit.saturating_sub(self.first).min(STRIDE)
    }

    /// Takes `Q` queries that see the first `visible` keys.
    #[inline(always)]
    fn take<L: Lanes, const Q: usize>(&self, queries: &mut [Query<'_>], visible: usize) {
        let mut weights = [[0.0; STRIDE]; Q];
        for (page, &(keys, values)) in self.pages[..visible.div_ceil(PAGE)].iter().enumerate() {
            self.scores::<L, Q, T>((keys, values), queries, (&mut weights, page * PAGE));
        }
        let mut decay = [0.0; Q];
        weigh::<L, Q>(queries, &mut weights, (self.scale, visible), &mut decay);
        for tile in 0..self.head_dim / LANES {
            self.add_tile::<L, Q>(queries, (&weights, &decay), (tile, visible), |page, key| {
                fetch_tile::<L, T>(self.ahead.get(page).copied().unwrap_or(&[]), tile * PAGE + key);
                let place = key * self.head_dim + tile * LANES;
                // SAFETY: V has PAGE rows of `head_dim`, checked when the stride was made.
                unsafe { T::load::<L>(self.pages[page].1.as_ptr().add(place)) }
            });
        }
        self.add_rest::<L, Q>(queries, (&weights, &decay), visible);
    }

    /// Reports whether [`Tiles::take_widened`] gains anything, and has room.
    #[inline(always)]
    fn can_be_widened(&self) -> bool {
        size_of::<T>() < size_of::<f32>() && self.head_dim.is_multiple_of(LANES) && self.head_dim <= MOST_WIDENED
    }

    /// Takes more queries than the registers hold, all of which see the first `visible` keys: each part of K and of V is
    /// widened once and stays in the first-level cache until all queries have met it. A query meets the same numbers in
    /// the same order as in [`Tiles::take`].
    #[inline(always)]
    fn take_widened<L: Lanes>(&self, queries: &mut [Query<'_>], visible: usize) {
        let mut wide = Widened([0.0; WIDENED]);
        #[expect(clippy::large_stack_arrays, reason = "24 KiB of a thread's stack, where allocating is ruled out")]
        let mut weights = [[0.0; STRIDE]; BATCH];
        let mut decay = [0.0; BATCH];
        for (page, &(keys, values)) in self.pages[..visible.div_ceil(PAGE)].iter().enumerate() {
            let wide = &mut wide.0[..self.head_dim * PAGE];
            for (keys, wide) in keys.as_chunks::<LANES>().0.iter().zip(wide.as_chunks_mut::<LANES>().0) {
                widen::<L, T>(keys, wide);
            }
            in_parts!(L, queries.len(), |part, Q| {
                // One part of the queries is enough to fetch the values.
                let values = if part.start == 0 { values } else { &[] };
                if let Some(weights) = weights[part.start..].first_chunk_mut::<Q>() {
                    self.scores::<L, Q, f32>((wide, values), &queries[part], (weights, page * PAGE));
                }
            });
        }
        in_parts!(L, queries.len(), |part, Q| {
            let parts = (weights[part.start..].first_chunk_mut::<Q>(), decay[part.start..].first_chunk_mut::<Q>());
            if let (Some(weights), Some(decay)) = parts {
                weigh::<L, Q>(&mut queries[part], weights, (self.scale, visible), decay);
            }
        });
        for tile in 0..self.head_dim / LANES {
            for (page, wide) in
                wide.0.as_chunks_mut::<{ PAGE * LANES }>().0[..visible.div_ceil(PAGE)].iter_mut().enumerate()
            {
                self.widen_values::<L>((page, tile), wide);
            }
            in_parts!(L, queries.len(), |part, Q| {
                let parts = (weights[part.start..].first_chunk::<Q>(), decay[part.start..].first_chunk::<Q>());
                if let (Some(weights), Some(decay)) = parts {
                    self.add_tile::<L, Q>(&mut queries[part], (weights, decay), (tile, visible), |page, key| {
                        // SAFETY: there is room for a tile of each key of a stride.
                        unsafe { L::load(wide.0.as_ptr().add((page * PAGE + key) * LANES)) }
                    });
                }
            });
        }
    }

    /// Widens a tile of V of all keys of a page, seen or not. The next reads come near meanwhile.
    #[inline(always)]
    fn widen_values<L: Lanes>(&self, (page, tile): (usize, usize), wide: &mut [f32; PAGE * LANES]) {
        let (values, ahead) = (self.pages[page].1, self.ahead.get(page).copied().unwrap_or(&[]));
        assert!(values.len() == PAGE * self.head_dim && (tile + 1) * LANES <= self.head_dim, "size of a page");
        for key in 0..PAGE {
            fetch_tile::<L, T>(ahead, tile * PAGE + key);
            // SAFETY: V has PAGE rows of `head_dim`, `wide` as many tiles.
            unsafe {
                let value = T::load::<L>(values.as_ptr().add(key * self.head_dim + tile * LANES));
                L::store(value, wide.as_mut_ptr().add(key * LANES));
            }
        }
    }

    /// Products of the queries with all keys of a page, summed over the head in ascending order. The page's values come
    /// near meanwhile: as many of them as of the keys.
    #[inline(always)]
    fn scores<L: Lanes, const Q: usize, K: Element>(
        &self,
        (keys, values): (&[K], &[T]),
        queries: &[Query<'_>],
        (scores, first): (&mut [[f32; STRIDE]; Q], usize),
    ) {
        let mut sums = [L::zero(); Q];
        let rows: [&[f32]; Q] = std::array::from_fn(|query| &queries[query].row[..self.head_dim]);
        for column in 0..self.head_dim {
            fetch_tile::<L, T>(values, column);
            // SAFETY: K has `head_dim` rows of a tile each, checked when the stride was made.
            let keys = unsafe { K::load::<L>(keys.as_ptr().add(column * LANES)) };
            for query in 0..Q {
                // SAFETY: the rows were cut to `head_dim`.
                sums[query] = L::scale_add(sums[query], keys, unsafe { *rows[query].get_unchecked(column) });
            }
        }
        for query in 0..Q {
            let scores = &mut scores[query][first..first + LANES];
            // SAFETY: the slice is one tile long.
            unsafe { L::store(sums[query], scores.as_mut_ptr()) }
        }
    }

    /// `out = out * decay + sum of weight * value` over the visible keys in ascending order, of one tile of the head's
    /// columns. `value` returns the V of a key of a page.
    #[inline(always)]
    fn add_tile<L: Lanes, const Q: usize>(
        &self,
        queries: &mut [Query<'_>],
        (weights, decay): (&[[f32; STRIDE]; Q], &[f32; Q]),
        (tile, visible): (usize, usize),
        value: impl Fn(usize, usize) -> L::Tile,
    ) {
        let mut sums = [L::zero(); Q];
        for query in 0..Q {
            if self.first > 0 {
                // SAFETY: the output is `head_dim` long, checked when the query was added.
                let old = unsafe { L::load(queries[query].out.as_ptr().add(tile * LANES)) };
                sums[query] = L::scale(old, decay[query]);
            }
        }
        for page in 0..visible.div_ceil(PAGE) {
            for key in 0..PAGE.min(visible - page * PAGE) {
                let value = value(page, key);
                for query in 0..Q {
                    // SAFETY: `visible` is at most STRIDE.
                    let weight = unsafe { *weights[query].get_unchecked(page * PAGE + key) };
                    sums[query] = L::scale_add(sums[query], value, weight);
                }
            }
        }
        for query in 0..Q {
            // SAFETY: as for reading it.
            unsafe { L::store(sums[query], queries[query].out.as_mut_ptr().add(tile * LANES)) }
        }
    }

    /// Adds the columns after the last tile.
    #[inline(always)]
    fn add_rest<L: Lanes, const Q: usize>(
        &self,
        queries: &mut [Query<'_>],
        (weights, decay): (&[[f32; STRIDE]; Q], &[f32; Q]),
        visible: usize,
    ) {
        for column in self.head_dim / LANES * LANES..self.head_dim {
            for query in 0..Q {
                let mut sum = if self.first > 0 { queries[query].out[column] * decay[query] } else { 0.0 };
                for (key, &weight) in weights[query][..visible].iter().enumerate() {
                    let value = self.pages[key / PAGE].1[key % PAGE * self.head_dim + column].widen();
                    sum = L::scale_add_one(sum, value, weight);
                }
                queries[query].out[column] = sum;
            }
        }
    }
}

/// Widens a tile.
#[inline(always)]
fn widen<L: Lanes, T: Element>(from: &[T; LANES], to: &mut [f32; LANES]) {
    // SAFETY: both are a tile long.
    unsafe { L::store(T::load::<L>(from.as_ptr()), to.as_mut_ptr()) }
}

/// Fetches a tile of a page. Places after the page's end, or of no page, do no harm.
#[inline(always)]
fn fetch_tile<L: Lanes, T>(page: &[T], tile: usize) {
    let start = page.as_ptr().wrapping_add(tile * LANES).cast::<u8>();
    for line in (0..LANES * size_of::<T>()).step_by(64) {
        L::fetch(start.wrapping_add(line));
    }
}

/// Turns scores into weights relative to the new maxima; those of masked keys are exactly 0. `decay` becomes the factors
/// of the earlier sums.
#[inline(always)]
fn weigh<L: Lanes, const Q: usize>(
    queries: &mut [Query<'_>],
    scores: &mut [[f32; STRIDE]; Q],
    (scale, visible): (f32, usize),
    decay: &mut [f32; Q],
) {
    let (mut maxima, mut sums) = ([0.0; Q], [0.0; Q]);
    for query in 0..Q {
        let (tiles, _) = scores[query][..visible.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
        let mut largest = [f32::NEG_INFINITY; LANES];
        for (index, tile) in tiles.iter_mut().enumerate() {
            for lane in 0..LANES {
                let score = if index * LANES + lane < visible { tile[lane] * scale } else { f32::NEG_INFINITY };
                tile[lane] = score;
                largest[lane] = if score > largest[lane] { score } else { largest[lane] };
            }
        }
        // SAFETY: the array is one tile long.
        let largest = L::most(unsafe { L::load(largest.as_ptr()) });
        maxima[query] = if largest > queries[query].maximum { largest } else { queries[query].maximum };
        decay[query] = queries[query].maximum - maxima[query];
    }
    for query in 0..Q {
        let (tiles, _) = scores[query][..visible.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
        let mut lanes = [0.0; LANES];
        for tile in tiles {
            for lane in 0..LANES {
                tile[lane] = exp_f32(tile[lane] - maxima[query]);
                lanes[lane] += tile[lane];
            }
        }
        // SAFETY: the array is one tile long.
        sums[query] = L::sum(unsafe { L::load(lanes.as_ptr()) });
    }
    // The exponentials of all queries side by side.
    for decay in &mut *decay {
        *decay = exp_f32(*decay);
    }
    for query in 0..Q {
        queries[query].sum = queries[query].sum * decay[query] + sums[query];
        queries[query].maximum = maxima[query];
    }
}
