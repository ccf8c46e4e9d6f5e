//! Workspace of a step: everything that it writes beside the K/V store, allocated once.

use demask_step::OutOfMemory;
use demask_tensor::{AlignedBytes, AttentionShape, Launch, Rows, WorkspaceShape};

use super::adapter::AdapterWork;
use crate::{
    attention::RowBlock,
    head::{self, HeadScratch},
    kv::memory,
    linear::{InputBuffer, Linear, ROWS_BEHIND},
    routing::ExpertWork,
    select::Candidate,
};

/// Rows that go through a product together: inputs and the MLP's intermediate stay small, weights are still read
/// seldom.
pub(crate) const CHUNK: usize = 256;

/// Buffers of one shape.
pub(crate) struct Workspace {
    pub(crate) shape: WorkspaceShape,
    /// `[rows, hidden]`: the residual stream.
    pub(crate) stream: AlignedBytes,
    /// `[rows, heads * head_dim]`.
    pub(crate) queries: AlignedBytes,
    /// `[rows, heads * head_dim]`: attention's output.
    pub(crate) attended: AlignedBytes,
    /// `[2, CHUNK, kv_heads * head_dim]`: fresh K and V.
    pub(crate) fresh: AlignedBytes,
    /// `[threads, 2, widest row]`.
    pub(crate) scratch: AlignedBytes,
    /// `[CHUNK, hidden]`.
    pub(crate) hidden_input: InputBuffer,
    /// `[CHUNK, heads * head_dim]`.
    pub(crate) attended_input: InputBuffer,
    /// `[CHUNK, ffn]`.
    pub(crate) ffn_input: InputBuffer,
    /// Memory of layers of experts, if there are any.
    pub(crate) experts: Option<ExpertWork>,
    /// Memory of products with adapters, if there are any.
    pub(crate) adapter: Option<AdapterWork>,
    pub(crate) head: HeadScratch,
    pub(crate) blocks: Vec<RowBlock>,
    pub(crate) candidates: Vec<Candidate>,
    /// Scratch: probed rows that compare the same tensor, and their places among the candidates.
    pub(crate) compared: Vec<u32>,
    pub(crate) places: Vec<u32>,
    /// `[rows]`: scratch for sets of rows.
    pub(crate) marked: Vec<bool>,
    pub(crate) prepared: PreparedLaunch,
}

/// Width of all query heads together.
pub(crate) fn query_width(shape: &AttentionShape) -> usize {
    shape.heads * shape.head_dim
}

/// Width of all K/V heads together.
pub(crate) fn kv_width(shape: &AttentionShape) -> usize {
    shape.kv_heads * shape.head_dim
}

/// A row of scratch that any operation can use.
pub(crate) fn scratch_width(shape: &WorkspaceShape) -> usize {
    let scores = shape.experts.map_or(0, |experts| experts.count);
    let widths = [shape.hidden, query_width(&shape.attention), kv_width(&shape.attention), scores];
    widths.into_iter().fold(0, usize::max).next_multiple_of(16)
}

impl Workspace {
    pub(crate) fn new(
        shape: &WorkspaceShape,
        [linear, router]: [&Linear; 2],
        threads: usize,
    ) -> Result<Self, OutOfMemory> {
        memory::check(needed(shape, threads))?;
        let chunk = CHUNK.min(shape.rows);
        // Adapters multiply runs of rows, which may be the last ones.
        let inputs = chunk + if shape.adapter_rank > 0 { ROWS_BEHIND } else { 0 };
        let (query, kv) = (query_width(&shape.attention), kv_width(&shape.attention));
        let floats = |count: usize| memory::zeroed(count * size_of::<f32>());
        let input = |width: usize| {
            linear.try_new_input(inputs, width).ok_or_else(|| memory::refused(inputs * width * size_of::<f32>()))
        };
        Ok(Self {
            shape: *shape,
            stream: floats(shape.rows * shape.hidden)?,
            queries: floats(shape.rows * query)?,
            attended: floats(shape.rows * query)?,
            fresh: floats(2 * chunk * kv)?,
            scratch: floats(threads * 2 * scratch_width(shape))?,
            hidden_input: input(shape.hidden)?,
            attended_input: input(query)?,
            ffn_input: input(shape.ffn)?,
            experts: shape.experts.map(|experts| ExpertWork::new(shape, experts, [linear, router])).transpose()?,
            adapter: (shape.adapter_rank > 0).then(|| AdapterWork::new(shape, chunk, linear)).transpose()?,
            head: HeadScratch::new(shape, linear, threads)?,
            blocks: Vec::with_capacity(shape.rows),
            candidates: Vec::with_capacity(shape.rows),
            compared: Vec::with_capacity(shape.rows),
            places: Vec::with_capacity(shape.rows),
            marked: vec![false; shape.rows],
            prepared: PreparedLaunch::new(shape),
        })
    }
}

/// Bytes that a workspace takes, roughly from above.
pub(crate) fn needed(shape: &WorkspaceShape, threads: usize) -> u64 {
    let chunk = CHUNK.min(shape.rows);
    let (query, kv) = (query_width(&shape.attention), kv_width(&shape.attention));
    let by_row = shape.rows * (shape.hidden + 2 * query);
    let by_chunk = chunk * (shape.hidden + query + shape.ffn + 2 * kv);
    let by_thread = threads * 2 * scratch_width(shape);
    let lists = 16 * (shape.rows + shape.table_entries);
    let experts = shape.experts.map_or(0, |experts| ExpertWork::floats(shape, experts));
    let floats = by_row + by_chunk + by_thread + lists + experts + AdapterWork::floats(shape, chunk);
    (floats * size_of::<f32>() + head::scratch_bytes(shape, threads)) as u64
}

/// The launch as it was taken over, and the sets of rows that follow from it.
pub(crate) struct PreparedLaunch {
    pub(crate) launch: Launch,
    /// `[rows]`: all of them.
    identity: Vec<u32>,
    /// `[rows]`: segment of each row.
    pub(crate) segment_of: Vec<u32>,
    /// Fixed and chosen rows.
    pub(crate) computed: Vec<u32>,
    /// `[rows]`: whether a row takes adapters; empty if none does.
    pub(crate) adapted: Vec<bool>,
}

impl PreparedLaunch {
    fn new(shape: &WorkspaceShape) -> Self {
        let list = || Vec::with_capacity(shape.rows);
        let mut launch = Launch::default();
        launch.reserve(shape);
        launch.head.score.reserve(shape.head_rows);
        let identity = (0..shape.rows as u32).collect();
        Self { launch, identity, segment_of: list(), computed: list(), adapted: Vec::with_capacity(shape.rows) }
    }

    /// Copies a launch without allocating, but for lists that were never as long.
    ///
    /// # Panics
    /// If it has more rows than were reserved.
    pub(crate) fn take(&mut self, launch: &Launch) {
        let rows = launch.len();
        assert!(rows <= self.identity.len(), "{rows} rows in a workspace for {}", self.identity.len());
        let arrays = [&launch.positions, &launch.slots, &launch.limits];
        assert!(arrays.iter().all(|array| array.len() == rows), "one position, slot and limit for each row");
        let own = &mut self.launch;
        own.ids.clone_from(&launch.ids);
        own.positions.clone_from(&launch.positions);
        own.slots.clone_from(&launch.slots);
        own.limits.clone_from(&launch.limits);
        own.segments.clone_from(&launch.segments);
        own.tables.clone_from(&launch.tables);
        own.partial = launch.partial;
        own.fixed.clone_from(&launch.fixed);
        own.probed.clone_from(&launch.probed);
        own.probes.clone_from(&launch.probes);
        own.held.clone_from(&launch.held);
        own.last.clone_from(&launch.last);
        own.adapted.clone_from(&launch.adapted);
        own.head.rows.clone_from(&launch.head.rows);
        own.head.blends.clone_from(&launch.head.blends);
        own.head.score.clone_from(&launch.head.score);
        own.head.requests.clone_from(&launch.head.requests);
        self.computed.clear();
        self.adapted.clear();
        if !launch.adapted.is_empty() {
            self.adapted.resize(rows, false);
            launch.adapted.iter().for_each(|&row| self.adapted[row as usize] = true);
        }
        self.find_segments();
    }

    /// # Panics
    /// If the segments do not cover the rows in order.
    fn find_segments(&mut self) {
        self.segment_of.clear();
        for (index, segment) in self.launch.segments.iter().enumerate() {
            assert_eq!(segment.rows.start as usize, self.segment_of.len(), "segments follow each other");
            self.segment_of.extend(segment.rows.clone().map(|_| index as u32));
        }
        assert_eq!(self.segment_of.len(), self.launch.len(), "segments cover all rows");
    }

    /// The rows of a set.
    pub(crate) fn list(&self, rows: Rows) -> &[u32] {
        match rows {
            Rows::Live => &self.identity[..self.launch.len()],
            Rows::Fixed => &self.launch.fixed,
            Rows::Computed => &self.computed,
            Rows::Last => &self.launch.last,
        }
    }
}
