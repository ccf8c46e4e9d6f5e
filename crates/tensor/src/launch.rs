//! One forward in rows: the integers that a backend needs beside the weights.
//!
//! Every array is filled by the model's lowering and checked there; a backend trusts it.

use std::ops::Range;

use demask_step::{Drift, HeadRequest, room};

use crate::ExpertShape;

/// Marks "no row" in row-valued arrays.
pub const NO_ROW: u32 = u32::MAX;

/// Shape of attention, the same in each layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// K/V heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// The largest launch that a workspace must hold, and the widths of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceShape {
    /// Rows of a launch.
    pub rows: usize,
    /// Rows that the head reads in a launch.
    pub head_rows: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the widest MLP that all rows take; 0: no layer has one.
    pub ffn: usize,
    /// Shape of layers of experts, if there are any.
    pub experts: Option<ExpertShape>,
    /// Attention.
    pub attention: AttentionShape,
    /// Rows of the head matrix.
    pub vocabulary: usize,
    /// Entries of all page tables of a launch.
    pub table_entries: usize,
    /// Largest rank of an adapter; 0: there is none.
    pub adapter_rank: usize,
}

/// One forward of any number of sequences and lanes, concatenated into rows.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Launch {
    /// `[rows]`: token ids.
    pub ids: Vec<u32>,
    /// `[rows]`: absolute positions, for the rotation.
    pub positions: Vec<u32>,
    /// `[rows]`: where the row's K/V (and increment) live: page times [`PAGE`](crate::PAGE) plus offset.
    pub slots: Vec<u32>,
    /// `[rows]`: how many keys the row sees, counted from position 0 of its lane; at least 1.
    pub limits: Vec<u32>,
    /// Runs of rows that share a page table: one per sequence and lane, ascending, covering all rows.
    pub segments: Vec<RowSegment>,
    /// Page tables, one after the other: entry `i` of a table is the page of positions `[i * PAGE, (i + 1) * PAGE)`.
    pub tables: Vec<u32>,
    /// First of all: slots copied one by one (the accepted draft becomes the canvas).
    pub keeps: Vec<SlotCopy>,
    /// Pages that are copied second (a draft's own copy of a page that it will write).
    pub copies: Vec<PageCopy>,
    /// Records whether any row of the launch is computed partly (see [`Rows`]).
    pub partial: bool,
    /// Rows computed in every probing layer whatever the probes say, ascending.
    pub fixed: Vec<u32>,
    /// Candidates of all probes, one after the other, ascending within a probe; none of them fixed, none twice.
    pub probed: Vec<u32>,
    /// One per sequence that probes; their parts of `probed` follow each other.
    pub probes: Vec<ProbeLaunch>,
    /// Rows whose increments are stored (their pages have room for them).
    pub held: Vec<u32>,
    /// Rows that take adapters, ascending; empty where the weights have none.
    pub adapted: Vec<u32>,
    /// Rows that the last layer must finish (attention and MLP): those that the head reads, ascending without repeats.
    /// Used only where no increments are held.
    pub last: Vec<u32>,
    /// Work of the head.
    pub head: HeadLaunch,
}

/// Selection of the rows of a launch that an operation runs on. Results go to the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// All live rows.
    Live,
    /// [`Launch::fixed`].
    Fixed,
    /// [`Launch::fixed`] and the choice of the last [`select`](crate::Backend::select), ascending.
    Computed,
    /// [`Launch::last`].
    Last,
}

/// A run of rows with one page table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSegment {
    /// The rows.
    pub rows: Range<u32>,
    /// Page table of the segment: a range of [`Launch::tables`].
    pub table: Range<u32>,
}

/// Copies K and V (and increments, where both pages have them) of one slot in each layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCopy {
    /// Slot read.
    pub from: u32,
    /// Slot written.
    pub to: u32,
}

/// Copies a page in each layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCopy {
    /// Page read.
    pub from: u32,
    /// Page written.
    pub to: u32,
}

/// A choice of the rows that have drifted most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeLaunch {
    /// Number of rows of [`Launch::probed`] that belong to this probe.
    pub rows: u32,
    /// Number of them that are chosen: lowest cosine similarity first, ties to the lowest row.
    pub keep: u32,
    /// Compared tensor: the fresh projection of a tensor with the stored one (of K, both rotated: rotation keeps cosines),
    /// over all K/V heads together. The fresh one then replaces the stored one for **all** probed rows.
    pub by: Drift,
}

/// Work of the head, and the rows that it runs on.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct HeadLaunch {
    /// Head rows in the order of the output.
    pub rows: Vec<HeadRow>,
    /// Requests; [`HeadRow::request`] points here.
    pub requests: Vec<HeadRequest>,
    /// Head rows that are blended with other rows first.
    pub blends: Vec<BlendRows>,
    /// Tokens to score, [`HeadRequest::score_width`] per head row of the requests that score, in head row order.
    pub score: Vec<u32>,
}

/// One row that the head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRow {
    /// Row of the launch.
    pub row: u32,
    /// Index into [`HeadLaunch::requests`].
    pub request: u32,
    /// Key of the row's noise, already mixed from seed, position and state.
    pub key: u64,
}

/// Classifier-free guidance on one head row, after the final norm: `row + scale * (row - other)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlendRows {
    /// Index into [`HeadLaunch::rows`].
    pub head_row: u32,
    /// Row of the launch with the unconditional input, or [`NO_ROW`]: use the stored difference.
    pub other: u32,
    /// Factor of the difference.
    pub scale: f32,
    /// Slot whose page stores the difference `row - other` (written if `other` is a row, read if not), or [`NO_ROW`]:
    /// not stored.
    pub slot: u32,
}

impl Launch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Makes room for launches of a shape.
    pub fn reserve(&mut self, shape: &WorkspaceShape) {
        let WorkspaceShape { rows, head_rows, table_entries, .. } = *shape;
        for array in [&mut self.ids, &mut self.positions, &mut self.slots, &mut self.limits] {
            room(array, rows);
        }
        for array in [&mut self.fixed, &mut self.probed, &mut self.held, &mut self.adapted, &mut self.last] {
            room(array, rows);
        }
        room(&mut self.tables, table_entries);
        // Each has a page at least.
        room(&mut self.segments, table_entries);
        room(&mut self.probes, table_entries);
        room(&mut self.copies, table_entries);
        room(&mut self.head.requests, table_entries);
        room(&mut self.keeps, rows);
        room(&mut self.head.rows, head_rows);
        room(&mut self.head.blends, head_rows);
    }

    /// Empties everything for refilling, keeping the allocations.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.limits.clear();
        self.segments.clear();
        self.tables.clear();
        self.keeps.clear();
        self.copies.clear();
        self.partial = false;
        self.fixed.clear();
        self.probed.clear();
        self.probes.clear();
        self.held.clear();
        self.adapted.clear();
        self.last.clear();
        self.head.rows.clear();
        self.head.requests.clear();
        self.head.blends.clear();
        self.head.score.clear();
    }

    /// Number of rows that `rows` names, chosen ones included.
    pub fn count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Live => self.len(),
            Rows::Fixed => self.fixed.len(),
            Rows::Computed => self.fixed.len() + self.probes.iter().map(|probe| probe.keep as usize).sum::<usize>(),
            Rows::Last => self.last.len(),
        }
    }
}
