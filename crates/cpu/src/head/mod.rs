//! Head of the network, from the residual stream to tokens and their statistics.
//!
//! The product's epilogue keeps a few numbers for each tile of the vocabulary: the largest logits and sums that
//! probabilities, margin and entropy are made of, the winner of the draw, the best tokens if they are asked for. No logit
//! is stored. Only what takes all logits of a row at once stores those of some rows at a time, which never leave the
//! scratch unless asked for: filters (top-k and top-p of the draw), the ranks of given tokens, long lists of best tokens,
//! and logits themselves ([`RowRequest::takes_logits`]). Their tiles are then taken from the stored logits by the same
//! code, and put together in ascending order in either case, so that a row's numbers depend on no other row.

mod draw;
mod filter;
mod mark;
mod row;
mod statistics;
mod tiles;
mod top;

use demask_step::{HeadRequest, OutOfMemory, TokenScore};
use demask_tensor::{AlignedBytes, HeadLaunch, HeadOutput, HeadRow, NO_ROW, WorkspaceShape};

use crate::{
    elementwise::{Shared, dispatch, for_ranges, rms_norm},
    isa::Isa,
    kv::{KvStore, memory},
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
};
use mark::Marks;
use row::{Answer, RowRequest, Stored};
use statistics::TILE;
use tiles::{Look, Reduction, TileOutputs, Tiles};

/// Head rows whose logits are stored together: enough to read the head's weights seldom, few enough that the logits of a
/// large vocabulary take some tens of megabytes.
const STORED: usize = 64;
/// Head rows that are answered together without logits, unless so much is kept of their tiles that there is room for
/// fewer.
const CHUNK: usize = 256;
/// Tiles of a task that looks through stored logits.
const TASK_TILES: usize = 128;

/// Scratch of the head.
#[derive(Default)]
pub(crate) struct HeadScratch {
    /// Normed and blended rows of a chunk.
    input: Option<InputBuffer>,
    /// Memory for the tiles of a chunk's rows, and for their logits if they are stored.
    memory: Option<AlignedBytes>,
    /// `[CHUNK]`.
    answers: Vec<Answer>,
    /// `[CHUNK]`.
    marks: Vec<Marks>,
    /// `[head rows]`.
    places: Vec<Place>,
    /// One per thread, with room for the vocabulary.
    orders: Vec<Vec<u32>>,
}

/// Start of a head row's parts of the output's lists, and its blend.
#[derive(Debug, Clone, Copy)]
struct Place {
    top: usize,
    judged: usize,
    logits: usize,
    blend: u32,
}

/// Bytes that the scratch will take.
pub(crate) fn scratch_bytes(shape: &WorkspaceShape, threads: usize) -> usize {
    let inputs = CHUNK.min(shape.head_rows) * shape.hidden * size_of::<f32>();
    memory_bytes(shape) + inputs + threads * shape.vocabulary * size_of::<u32>()
}

/// Bytes of tiles and logits: room for [`STORED`] rows whose logits are stored, and for [`CHUNK`] of which no more than
/// statistics are kept. What fits of other rows is less than one and more than the other.
fn memory_bytes(shape: &WorkspaceShape) -> usize {
    let stored = STORED.min(shape.head_rows) * row_bytes(shape.vocabulary, TileOutputs { draws: true, top: 0 }, true);
    let listed = row_bytes(shape.vocabulary, TileOutputs { draws: true, top: top::MOST }, false);
    stored.max(listed).max(CHUNK.min(shape.head_rows) * row_bytes(shape.vocabulary, TileOutputs::default(), false))
}

/// Bytes of a row's tiles, and of its logits.
fn row_bytes(vocabulary: usize, kept: TileOutputs, stored: bool) -> usize {
    let logits = if stored { vocabulary * size_of::<f32>() } else { 0 };
    vocabulary.div_ceil(TILE) * kept.bytes() + logits
}

impl HeadScratch {
    /// Room for launches up to a shape.
    pub(crate) fn new(shape: &WorkspaceShape, linear: &Linear, threads: usize) -> Result<Self, OutOfMemory> {
        let chunk = CHUNK.min(shape.head_rows);
        let failed = |needed: usize| OutOfMemory { needed: needed as u64, available: memory::available() };
        let (bytes, width) = (memory_bytes(shape), shape.hidden);
        Ok(Self {
            input: Some(linear.try_new_input(chunk, width).ok_or_else(|| failed(chunk * width * size_of::<f32>()))?),
            memory: Some(AlignedBytes::try_zeroed(bytes).ok_or_else(|| failed(bytes))?),
            answers: vec![Answer::default(); chunk],
            marks: (0..chunk).map(|_| Marks::default()).collect(),
            places: Vec::with_capacity(shape.head_rows),
            orders: (0..threads).map(|_| Vec::with_capacity(shape.vocabulary)).collect(),
        })
    }
}

/// Inputs of the head.
pub(crate) struct Head<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a Pool,
    pub(crate) linear: &'a Linear,
    pub(crate) launch: &'a HeadLaunch,
    /// Residual stream, `[rows, hidden]`.
    pub(crate) stream: &'a [f32],
    pub(crate) norm: &'a [f32],
    pub(crate) epsilon: f32,
    pub(crate) weight: &'a Packed,
}

/// The part of the output's lists that grows before the rows are answered.
struct Lists<'a> {
    top: Shared<'a, (u32, f32)>,
    scores: Shared<'a, TokenScore>,
    logits: Shared<'a, f32>,
}

impl Head<'_> {
    /// Answers all head rows. `rows` is scratch: two rows of `hidden` for each thread.
    pub(crate) fn run(&self, kv: &mut KvStore, scratch: &mut HeadScratch, rows: &mut [f32], out: &mut HeadOutput) {
        let HeadScratch { input: Some(input), memory: Some(memory), answers, marks, places, orders } = scratch else {
            panic!("the head runs before anything was reserved");
        };
        out.clear();
        self.place(places, out);
        let asked = |what: fn(&HeadRequest) -> bool| self.launch.rows.iter().any(|row| what(self.request(row.request)));
        let (margin, entropy) = (asked(|request| request.margin), asked(|request| request.entropy));
        let HeadOutput { tokens, confidence, margin: margins, entropy: entropies, top, scores, logits: copied } = out;
        let lists = Lists { top: Shared::new(top), scores: Shared::new(scores), logits: Shared::new(copied) };
        let mut first = 0;
        while first < self.launch.rows.len() {
            let (count, kept, stored) = self.next_chunk(first, (input.capacity(), memory.len()));
            marks[..count].fill_with(Marks::default);
            let chunk = Chunk { first, count, stored, places: &places[first..first + count], marks: &marks[..count] };
            self.prepare(&chunk, kv, input, rows);
            let (mut tiles, logits) = Tiles::split(memory.as_mut_slice(), kept, count, self.tiles());
            let logits = &mut logits[..if stored { count * self.weight.rows() } else { 0 }];
            if stored {
                let store = Output::Store { out: &mut *logits, stride: self.weight.rows() };
                self.linear.matmul(self.pool, input, count, self.weight, None, store);
                self.strike(&chunk, logits, &lists);
                self.scan(&chunk, logits, &mut tiles);
            } else {
                self.reduce(&chunk, input, &mut tiles);
            }
            self.answer(&chunk, logits, &tiles, &lists, orders, answers);
            for answer in &answers[..count] {
                tokens.push(answer.token);
                confidence.push(answer.confidence);
                margins.extend(margin.then_some(answer.margin));
                entropies.extend(entropy.then_some(answer.entropy));
            }
            first += count;
        }
    }

    /// Number of rows from `first` on that are answered together, of at most `most` rows and bytes; the parts of their
    /// tiles that are kept; and whether that takes their logits.
    fn next_chunk(&self, first: usize, (most, bytes): (usize, usize)) -> (usize, TileOutputs, bool) {
        let rows = first..self.launch.rows.len().min(first + most);
        let stored = rows.clone().any(|row| self.row_request(row).takes_logits());
        let kept = rows
            .clone()
            .map(|row| self.row_request(row).tile_outputs(stored))
            .fold(TileOutputs::default(), TileOutputs::and);
        let fit = bytes / row_bytes(self.weight.rows(), kept, stored);
        (rows.len().min(if stored { fit.min(STORED) } else { fit }), kept, stored)
    }

    /// Tiles of a row.
    fn tiles(&self) -> usize {
        self.weight.rows().div_ceil(TILE)
    }

    fn request(&self, index: u32) -> &HeadRequest {
        &self.launch.requests[index as usize]
    }

    /// Request of a head row.
    fn row_request(&self, row: usize) -> RowRequest<'_> {
        let HeadRow { request, key, .. } = self.launch.rows[row];
        RowRequest { request: self.request(request), key, vocabulary: self.weight.rows() }
    }

    /// Finds each row's parts of the lists, and makes room for all.
    fn place(&self, places: &mut Vec<Place>, out: &mut HeadOutput) {
        let mut next = Place { top: 0, judged: 0, logits: 0, blend: NO_ROW };
        places.clear();
        for row in &self.launch.rows {
            places.push(next);
            let request = self.request(row.request);
            next.top += request.top;
            next.judged += request.score_width;
            next.logits += if request.logits { self.weight.rows() } else { 0 };
        }
        for (index, blend) in self.launch.blends.iter().enumerate() {
            places[blend.head_row as usize].blend = index as u32;
        }
        out.top.resize(next.top, (0, 0.0));
        out.scores.resize(next.judged, TokenScore::NONE);
        out.logits.resize(next.logits, 0.0);
    }

    /// Norms and blends the rows of a chunk.
    fn prepare(&self, chunk: &Chunk<'_>, kv: &mut KvStore, input: &mut InputBuffer, rows: &mut [f32]) {
        let Chunk { first, places, .. } = *chunk;
        let hidden = self.norm.len();
        let threads = self.pool.threads();
        let writer = input.writer();
        let scratch = Shared::new(&mut *rows);
        for_ranges(self.pool, places.len(), threads, |part, range| {
            // SAFETY: the part is this task's alone.
            let normed = unsafe { scratch.row(part, hidden) };
            for index in range.filter(|&index| places[index].blend == NO_ROW) {
                self.norm(self.launch.rows[first + index].row, normed);
                // SAFETY: each row is in one range.
                unsafe { writer.set_row(index, normed) }
            }
        });
        let (normed, rest) = rows.split_at_mut(hidden);
        for (index, place) in places.iter().enumerate().filter(|(_, place)| place.blend != NO_ROW) {
            self.norm(self.launch.rows[first + index].row, normed);
            self.blend(place.blend, normed, &mut rest[..hidden], kv);
            input.set_row(index, normed);
        }
    }

    fn norm(&self, row: u32, out: &mut [f32]) {
        let hidden = self.norm.len();
        let row = row as usize * hidden;
        rms_norm(self.isa, &self.stream[row..row + hidden], self.norm, self.epsilon, out);
    }

    /// `row + scale * (row - other)`.
    fn blend(&self, blend: u32, row: &mut [f32], difference: &mut [f32], kv: &mut KvStore) {
        let blend = self.launch.blends[blend as usize];
        if blend.other == NO_ROW {
            difference.copy_from_slice(kv.residual(blend.slot));
        } else {
            self.norm(blend.other, difference);
            difference.iter_mut().zip(&*row).for_each(|(other, row)| *other = row - *other);
            if blend.slot != NO_ROW {
                kv.residual(blend.slot).copy_from_slice(difference);
            }
        }
        row.iter_mut().zip(&*difference).for_each(|(row, difference)| *row += blend.scale * difference);
    }

    /// Copies the logits that are asked for, then strikes out what no distribution knows.
    fn strike(&self, chunk: &Chunk<'_>, logits: &mut [f32], lists: &Lists<'_>) {
        let vocabulary = self.weight.rows();
        let logits = Shared::new(logits);
        self.pool.run(chunk.count, &|index| {
            // SAFETY: each row is one task's.
            let values = unsafe { logits.row(index, vocabulary) };
            let request = self.request(self.launch.rows[chunk.first + index].request);
            if request.logits {
                let start = chunk.places[index].logits;
                // SAFETY: rows have parts of their own.
                unsafe { lists.logits.part(start..start + vocabulary).copy_from_slice(values) }
            }
            request.struck().for_each(|token| values[token as usize] = f32::NEG_INFINITY);
        });
    }

    /// Tiles of a chunk, from stored logits.
    fn scan(&self, chunk: &Chunk<'_>, logits: &[f32], tiles: &mut Tiles<'_>) {
        let (vocabulary, per_row) = (self.weight.rows(), self.tiles());
        let tasks = per_row.div_ceil(TASK_TILES);
        let writer = &tiles.writer();
        self.pool.run(chunk.count * tasks, &|task| {
            let (row, part) = (task / tasks, task % tasks);
            let first = part * TASK_TILES * TILE;
            let last = (first + TASK_TILES * TILE).min(vocabulary);
            let values = |row: usize| &logits[row * vocabulary + first..row * vocabulary + last];
            let look = |row| self.look(chunk, row);
            dispatch(self.isa, Reduction { rows: row..row + 1, values, look, first, vocabulary, writer });
        });
    }

    /// Tiles of a chunk, from the product's sums.
    fn reduce(&self, chunk: &Chunk<'_>, input: &InputBuffer, tiles: &mut Tiles<'_>) {
        let vocabulary = self.weight.rows();
        let writer = &tiles.writer();
        self.linear.sums(self.pool, input, chunk.count, self.weight, &|sums| {
            let (first, rows) = (sums.first_column(), sums.first_row..sums.first_row + sums.rows);
            let values = |row: usize| {
                let values = sums.row(row - sums.first_row);
                &values[..values.len().min(vocabulary - first)]
            };
            let look = |row| self.look(chunk, row);
            dispatch(self.isa, Reduction { rows, values, look, first, vocabulary, writer });
        });
    }

    #[inline(always)]
    fn look<'c>(&'c self, chunk: &'c Chunk<'_>, row: usize) -> Look<'c> {
        let asked = self.row_request(chunk.first + row);
        asked.look(&chunk.marks[row], asked.tile_outputs(chunk.stored))
    }

    /// Answers the rows of a chunk.
    fn answer(
        &self,
        chunk: &Chunk<'_>,
        logits: &mut [f32],
        tiles: &Tiles<'_>,
        lists: &Lists<'_>,
        orders: &mut [Vec<u32>],
        answers: &mut [Answer],
    ) {
        let (vocabulary, logits, parts) = (self.weight.rows(), Shared::new(logits), orders.len());
        let (orders, answers) = (Shared::new(orders), Shared::new(answers));
        for_ranges(self.pool, chunk.count, parts, |part, range| {
            // SAFETY: the part is this task's alone.
            let order = unsafe { &mut orders.row(part, 1)[0] };
            for index in range {
                let asked = self.row_request(chunk.first + index);
                let Place { top, judged, .. } = chunk.places[index];
                let judged = judged..judged + asked.request.score_width;
                // SAFETY: rows have parts of their own, and each row is in one range.
                unsafe {
                    let stored = chunk.stored.then(|| Stored {
                        values: logits.row(index, vocabulary),
                        score: &self.launch.score[judged.clone()],
                        scores: lists.scores.part(judged),
                        order: &mut *order,
                    });
                    let top = lists.top.part(top..top + asked.request.top);
                    answers.row(index, 1)[0] = asked.answer(self.isa, (tiles, index), stored, top);
                }
            }
        });
    }
}

/// Head rows that are answered together.
struct Chunk<'a> {
    first: usize,
    count: usize,
    /// Records whether their logits are stored.
    stored: bool,
    places: &'a [Place],
    marks: &'a [Marks],
}

#[cfg(test)]
mod tests;
