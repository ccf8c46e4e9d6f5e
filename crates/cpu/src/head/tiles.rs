//! Parts that are kept of each tile of the vocabulary, for a chunk of rows.
//!
//! Tiles come from a product's sums or from stored logits, by the same code: which of both is all the same to the bits.

use demask_tensor::Number;

use super::{
    draw::{Draw, Drawn},
    mark::Mark,
    statistics::{Statistics, TILE, tiles},
    top::{self, Best},
};
use crate::elementwise::{Lanes, Operation, Shared};

/// Parts that are kept beside statistics: as many as the row of a chunk with the largest request needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TileOutputs {
    /// Winners of the draw.
    pub(super) draws: bool,
    /// Number of best tokens.
    pub(super) top: usize,
}

impl TileOutputs {
    /// Joins the parts of rows that may need either.
    pub(super) fn and(self, other: Self) -> Self {
        Self { draws: self.draws || other.draws, top: self.top.max(other.top) }
    }

    /// Bytes of a tile.
    pub(super) fn bytes(self) -> usize {
        size_of::<Statistics>() + self.winners() * size_of::<Drawn>() + self.top * size_of::<Best>()
    }

    fn winners(self) -> usize {
        usize::from(self.draws)
    }
}

/// The tiles of some rows, all in ascending order.
pub(super) struct Tiles<'m> {
    pub(super) outputs: TileOutputs,
    /// Tiles of a row.
    per_row: usize,
    /// `[rows, per_row]`.
    statistics: &'m mut [Statistics],
    /// `[rows, per_row]`, or nothing.
    draws: &'m mut [Drawn],
    /// `[rows, per_row, top]`.
    lists: &'m mut [Best],
}

impl<'m> Tiles<'m> {
    /// Room for `rows` rows, and the memory after them.
    pub(super) fn split(
        memory: &'m mut [f32],
        kept: TileOutputs,
        rows: usize,
        per_row: usize,
    ) -> (Self, &'m mut [f32]) {
        let (statistics, memory) = cut(memory, rows * per_row);
        let (draws, memory) = cut(memory, rows * per_row * kept.winners());
        let (lists, memory) = cut(memory, rows * per_row * kept.top);
        (Self { outputs: kept, per_row, statistics, draws, lists }, memory)
    }

    /// Lets many tasks write.
    pub(super) fn writer(&mut self) -> Writer<'_> {
        Writer {
            outputs: self.outputs,
            per_row: self.per_row,
            statistics: Shared::new(self.statistics),
            draws: Shared::new(self.draws),
            lists: Shared::new(self.lists),
        }
    }

    /// The tiles of one row: statistics, winners, lists.
    pub(super) fn row(&self, row: usize) -> (&[Statistics], &[Drawn], &[Best]) {
        let (start, end) = (row * self.per_row, (row + 1) * self.per_row);
        let TileOutputs { top, .. } = self.outputs;
        let draws = self.outputs.winners();
        (&self.statistics[start..end], &self.draws[start * draws..end * draws], &self.lists[start * top..end * top])
    }
}

/// The first `count` values of some memory, and the rest.
fn cut<T: Number>(memory: &mut [f32], count: usize) -> (&mut [T], &mut [f32]) {
    const {
        assert!(align_of::<T>() == align_of::<f32>() && size_of::<T>().is_multiple_of(size_of::<f32>()));
    }
    let (part, rest) = memory.split_at_mut(count * size_of::<T>() / size_of::<f32>());
    // SAFETY: both are plain numbers of the same alignment; the part is as long as `count` values and borrowed
    // exclusively.
    (unsafe { std::slice::from_raw_parts_mut(part.as_mut_ptr().cast(), count) }, rest)
}

/// Tiles that many tasks write.
pub(super) struct Writer<'a> {
    outputs: TileOutputs,
    per_row: usize,
    statistics: Shared<'a, Statistics>,
    draws: Shared<'a, Drawn>,
    lists: Shared<'a, Best>,
}

/// Values that are looked for in the tiles of a row.
pub(super) struct Look<'a> {
    /// Tokens that the row cannot have, but that keep their share.
    pub(super) banned: &'a [u32],
    /// Tokens from here on cannot be the row's either.
    pub(super) limit: u32,
    /// Tokens that weigh nothing.
    pub(super) zero_confidence: &'a [u32],
    /// Factor of the distribution that statistics describe.
    pub(super) inverse: f32,
    /// Unless the most probable token is the row's.
    pub(super) draw: Option<Draw<'a>>,
    /// Number of best tokens.
    pub(super) top: usize,
    /// Lower bound of the last of them.
    pub(super) listed: &'a Mark,
}

/// Some tiles of some rows, on their way from logits to results.
pub(super) struct Reduction<'a, V, W> {
    /// Rows of the chunk.
    pub(super) rows: std::ops::Range<usize>,
    /// Logits from the token `first` on.
    pub(super) values: V,
    /// Values that are looked for in them.
    pub(super) look: W,
    /// First token, a multiple of a tile.
    pub(super) first: usize,
    pub(super) vocabulary: usize,
    /// Writer of these tiles, which no other thread writes at the same time.
    pub(super) writer: &'a Writer<'a>,
}

impl<'a, V: Fn(usize) -> &'a [f32], W: Fn(usize) -> Look<'a>> Operation for Reduction<'a, V, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { rows, values, look, first, vocabulary, writer } = self;
        for row in rows {
            let (look, values) = (look(row), values(row));
            let place = row * writer.per_row + first / TILE;
            for (index, tile) in tiles(values, &mut [0.0; TILE]).enumerate() {
                let token = (first + index * TILE) as u32;
                // SAFETY: our maker promises that these tiles are ours.
                unsafe { writer.reduce::<L>(place + index, tile, (token, vocabulary as u32), &look) }
            }
        }
    }
}

impl Writer<'_> {
    /// Keeps the wanted values of a tile.
    ///
    /// # Safety
    /// Nobody else writes this tile at the same time.
    #[inline(always)]
    unsafe fn reduce<L: Lanes>(
        &self,
        tile: usize,
        logits: &[f32; TILE],
        (first, vocabulary): (u32, u32),
        look: &Look<'_>,
    ) {
        let inside = |tokens: &[u32]| tokens.iter().any(|&token| (first..first + TILE as u32).contains(&token));
        // Nearly all tiles are taken as they are, without a way through memory.
        let (is_barred, is_muted) =
            (first + TILE as u32 > look.limit || inside(look.banned), inside(look.zero_confidence));
        let (open, weighed, both);
        let (mut allowed, mut listed) = (logits, logits);
        if is_barred {
            open = struck_out(&cut_off(logits, first, look.limit), first, look.banned);
            (allowed, listed) = (&open, &open);
        }
        if is_muted {
            both = struck_out(allowed, first, look.zero_confidence);
            listed = &both;
        }
        let statistics = match (is_barred, is_muted) {
            (false, _) => Statistics::of_tile::<L>(listed, first, look.inverse),
            (true, false) => of_shares::<L>(logits, listed, (first, look.inverse)),
            (true, true) => {
                weighed = struck_out(logits, first, look.zero_confidence);
                of_shares::<L>(&weighed, listed, (first, look.inverse))
            }
        };
        // SAFETY: as our caller promises; each tile has parts of its own.
        unsafe {
            if let Some(draw) = &look.draw {
                self.draws.row(tile, 1)[0] = draw.of_tile::<L>(allowed, first);
            }
            self.statistics.row(tile, 1)[0] = statistics;
            if look.top > 0 {
                let list = &mut self.lists.row(tile, self.outputs.top)[..look.top];
                top::list_tile::<L>(listed, (first, vocabulary), (look.listed, list));
            }
        }
    }
}

/// Statistics of a tile of whose tokens some may not be predicted.
#[inline(always)]
fn of_shares<L: Lanes>(weighed: &[f32; TILE], listed: &[f32; TILE], (first, inverse): (u32, f32)) -> Statistics {
    Statistics::of_tile::<L>(weighed, first, inverse).with_best_of(&Statistics::of_tile::<L>(listed, first, inverse))
}

/// A tile without the tokens from `limit` on.
#[cold]
fn cut_off(logits: &[f32; TILE], first: u32, limit: u32) -> [f32; TILE] {
    let mut left = *logits;
    left[limit.saturating_sub(first).min(TILE as u32) as usize..].fill(f32::NEG_INFINITY);
    left
}

/// A tile without some tokens.
#[cold]
fn struck_out(logits: &[f32; TILE], first: u32, tokens: &[u32]) -> [f32; TILE] {
    let mut left = *logits;
    let lanes = tokens.iter().filter_map(|&token| token.checked_sub(first)).filter(|&lane| lane < TILE as u32);
    lanes.for_each(|lane| left[lane as usize] = f32::NEG_INFINITY);
    left
}
