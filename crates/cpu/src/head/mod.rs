//! From the residual stream to tokens and what is known about them.
//!
//! Most rows want the best token and its probability: of those, the product's epilogue keeps a few numbers for each tile
//! of the vocabulary, and no logit is stored. Where a row wants more (noise, filters, several tokens, entropy, logits),
//! those of some rows at a time are stored and never leave the scratch unless asked for. Both ways see the same tiles of
//! fixed length, put together in ascending order, so that a row's numbers depend on no other row.

mod filter;
mod row;
mod statistics;

use demask_tensor::{AlignedBytes, HeadLaunch, HeadOutput, HeadRequest, NO_ROW, OutOfMemory, WorkspaceShape};

use crate::{
    elementwise::{Shared, dispatch, for_ranges, rms_norm},
    isa::Isa,
    kv::{KvStore, memory},
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
};
use row::{Answer, Row};
use statistics::{Statistics, Summaries, SummedBlock, TILE};

/// Head rows whose logits are stored together: enough to read the head's weights seldom, few enough that the logits of a
/// large vocabulary take some tens of megabytes.
const STORED: usize = 64;
/// Head rows that are answered together without logits: their tiles take half of that.
const CHUNK: usize = 256;
/// Tiles of a task that looks through stored logits.
const TASK_TILES: usize = 128;
/// Forbidden tokens of a row that the epilogue looks for in each tile; more are struck out of stored logits.
const FEW: usize = 16;

/// Scratch of the head.
#[derive(Default)]
pub(crate) struct HeadScratch {
    /// Normed and blended rows of a chunk.
    input: Option<InputBuffer>,
    /// `[CHUNK, tiles of a row]` of statistics; or of [`STORED`] rows, with `[STORED, vocabulary]` logits behind.
    memory: Option<AlignedBytes>,
    /// `[CHUNK]`.
    answers: Vec<Answer>,
    /// `[head rows]`.
    places: Vec<Place>,
    /// One per thread, with room for the vocabulary.
    orders: Vec<Vec<u32>>,
}

/// Where a head row's parts of the output's lists begin, and what blends it.
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

/// Bytes of statistics and logits.
fn memory_bytes(shape: &WorkspaceShape) -> usize {
    let tiles = shape.vocabulary.div_ceil(TILE) * size_of::<Statistics>();
    let stored = STORED.min(shape.head_rows) * (tiles + shape.vocabulary * size_of::<f32>());
    stored.max(CHUNK.min(shape.head_rows) * tiles)
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
            places: Vec::with_capacity(shape.head_rows),
            orders: (0..threads).map(|_| Vec::with_capacity(shape.vocabulary)).collect(),
        })
    }
}

/// What the head reads.
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
    judged: Shared<'a, (u32, f32, f32)>,
    logits: Shared<'a, f32>,
}

impl Head<'_> {
    /// Answers all head rows. `rows` is scratch: two rows of `hidden` for each thread.
    pub(crate) fn run(&self, kv: &mut KvStore, scratch: &mut HeadScratch, rows: &mut [f32], out: &mut HeadOutput) {
        let HeadScratch { input: Some(input), memory: Some(memory), answers, places, orders } = scratch else {
            panic!("the head runs before anything was reserved");
        };
        out.clear();
        self.place(places, out);
        let asked = |what: fn(&HeadRequest) -> bool| self.launch.rows.iter().any(|row| what(self.request(row.request)));
        let (margin, entropy) = (asked(|request| request.margin), asked(|request| request.entropy));
        let HeadOutput { tokens, confidence, margin: margins, entropy: entropies, top, judged, logits: copied } = out;
        let lists = Lists { top: Shared::new(top), judged: Shared::new(judged), logits: Shared::new(copied) };
        let mut first = 0;
        while first < self.launch.rows.len() {
            let (count, stored) = self.next_chunk(first, input.capacity());
            let chunk = Chunk { first, count, places: &places[first..first + count] };
            self.prepare(&chunk, kv, input, rows);
            if stored {
                let (tiles, logits) = self.split(memory, count);
                let store = Output::Store { out: &mut *logits, stride: self.weight.rows() };
                self.linear.matmul(self.pool, input, count, self.weight, None, store);
                self.forbid(&chunk, logits, &lists);
                self.scan(count, logits, tiles);
                self.answer(&chunk, logits, tiles, &lists, orders, answers);
            } else {
                let tiles = &mut memory.as_mut_slice::<Statistics>()[..count * self.tiles()];
                self.summarise(&chunk, input, tiles);
                self.answer_from_tiles(&chunk, tiles, answers);
            }
            for answer in &answers[..count] {
                tokens.push(answer.token);
                confidence.push(answer.confidence);
                margins.extend(margin.then_some(answer.margin));
                entropies.extend(entropy.then_some(answer.entropy));
            }
            first += count;
        }
    }

    /// How many rows from `first` on are answered together, and whether that takes their logits.
    fn next_chunk(&self, first: usize, most: usize) -> (usize, bool) {
        let rest = &self.launch.rows[first..];
        let count = most.min(rest.len());
        let stored = rest[..count].iter().any(|row| takes_logits(self.request(row.request), self.weight.rows()));
        (if stored { count.min(STORED) } else { count }, stored)
    }

    /// Tiles of a row.
    fn tiles(&self) -> usize {
        self.weight.rows().div_ceil(TILE)
    }

    /// Statistics and logits of some rows.
    fn split<'m>(&self, memory: &'m mut AlignedBytes, count: usize) -> (&'m mut [Statistics], &'m mut [f32]) {
        let floats = count * self.tiles() * (size_of::<Statistics>() / size_of::<f32>());
        let (tiles, logits) = memory.as_mut_slice::<f32>().split_at_mut(floats);
        (Statistics::view(tiles), &mut logits[..count * self.weight.rows()])
    }

    fn request(&self, index: u32) -> &HeadRequest {
        &self.launch.requests[index as usize]
    }

    /// Finds each row's parts of the lists, and makes room for all.
    fn place(&self, places: &mut Vec<Place>, out: &mut HeadOutput) {
        let mut next = Place { top: 0, judged: 0, logits: 0, blend: NO_ROW };
        places.clear();
        for row in &self.launch.rows {
            places.push(next);
            let request = self.request(row.request);
            next.top += request.top as usize;
            next.judged += request.judge_width as usize;
            next.logits += if request.logits { self.weight.rows() } else { 0 };
        }
        for (index, blend) in self.launch.blends.iter().enumerate() {
            places[blend.head_row as usize].blend = index as u32;
        }
        out.top.resize(next.top, (0, 0.0));
        out.judged.resize(next.judged, (0, 0.0, 0.0));
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

    /// Copies the logits that are asked for, then strikes out the forbidden ones.
    fn forbid(&self, chunk: &Chunk<'_>, logits: &mut [f32], lists: &Lists<'_>) {
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
            request.forbid.iter().for_each(|&token| values[token as usize] = f32::NEG_INFINITY);
        });
    }

    /// Statistics of all tiles of a chunk, from stored logits.
    fn scan(&self, count: usize, logits: &[f32], tiles: &mut [Statistics]) {
        let (vocabulary, per_row) = (self.weight.rows(), self.tiles());
        let tasks = per_row.div_ceil(TASK_TILES);
        let tiles = Shared::new(tiles);
        self.pool.run(count * tasks, &|task| {
            let (row, first) = (task / tasks, task % tasks * TASK_TILES);
            let last = (first + TASK_TILES).min(per_row);
            let values = &logits[row * vocabulary..(row + 1) * vocabulary][first * TILE..(last * TILE).min(vocabulary)];
            // SAFETY: each tile is one task's.
            let out = unsafe { tiles.part(row * per_row + first..row * per_row + last) };
            dispatch(self.isa, Summaries { values, first: (first * TILE) as u32, out });
        });
    }

    /// Statistics of all tiles of a chunk, from the product's sums.
    fn summarise(&self, chunk: &Chunk<'_>, input: &InputBuffer, tiles: &mut [Statistics]) {
        let (vocabulary, per_row) = (self.weight.rows(), self.tiles());
        let tiles = Shared::new(tiles);
        let forbidden = |row: usize| &self.request(self.launch.rows[chunk.first + row].request).forbid[..];
        self.linear.sums(self.pool, input, chunk.count, self.weight, &|sums| {
            dispatch(self.isa, SummedBlock { sums, vocabulary, forbidden: &forbidden, tiles: &tiles, per_row });
        });
    }

    /// Answers the rows of a chunk that ask for no more than their tiles tell.
    fn answer_from_tiles(&self, chunk: &Chunk<'_>, tiles: &[Statistics], answers: &mut [Answer]) {
        let per_row = self.tiles();
        let answers = Shared::new(answers);
        for_ranges(self.pool, chunk.count, self.pool.threads(), |_, range| {
            for index in range {
                let request = self.request(self.launch.rows[chunk.first + index].request);
                let row = &tiles[index * per_row..(index + 1) * per_row];
                let answer = Answer::plain(&Statistics::join(self.isa, row, 1.0), request);
                // SAFETY: each row is in one range.
                unsafe { answers.row(index, 1)[0] = answer }
            }
        });
    }

    /// Answers the rows of a chunk.
    fn answer(
        &self,
        chunk: &Chunk<'_>,
        logits: &mut [f32],
        tiles: &[Statistics],
        lists: &Lists<'_>,
        orders: &mut [Vec<u32>],
        answers: &mut [Answer],
    ) {
        let (vocabulary, per_row) = (self.weight.rows(), self.tiles());
        let (logits, parts) = (Shared::new(logits), orders.len());
        let (orders, answers) = (Shared::new(orders), Shared::new(answers));
        for_ranges(self.pool, chunk.count, parts, |part, range| {
            // SAFETY: the part is this task's alone.
            let order = unsafe { &mut orders.row(part, 1)[0] };
            for index in range {
                let head_row = self.launch.rows[chunk.first + index];
                let request = self.request(head_row.request);
                let Place { top, judged, .. } = chunk.places[index];
                let judged = judged..judged + request.judge_width as usize;
                // SAFETY: rows have parts of their own, and each row is in one range.
                let row = unsafe {
                    Row {
                        isa: self.isa,
                        values: logits.row(index, vocabulary),
                        statistics: Statistics::join(self.isa, &tiles[index * per_row..(index + 1) * per_row], 1.0),
                        request,
                        key: head_row.key,
                        judge: &self.launch.judge[judged.clone()],
                        judged: lists.judged.part(judged),
                        top: lists.top.part(top..top + request.top as usize),
                        order: &mut *order,
                    }
                };
                // SAFETY: as above.
                unsafe { answers.row(index, 1)[0] = row.answer() }
            }
        });
    }
}

/// Whether a request cannot be answered from the statistics of the plain logits.
fn takes_logits(request: &HeadRequest, vocabulary: usize) -> bool {
    let HeadRequest { forbid, mute, temperature, filter, drawn, entropy, top, judge_width, logits, .. } = request;
    let listed = *entropy || *top > 0 || *judge_width > 0 || *logits;
    let filtered = *drawn && !filter::passes_all(filter, vocabulary);
    *temperature > 0.0 || filtered || listed || !mute.is_empty() || forbid.len() > FEW
}

/// Head rows that are answered together.
struct Chunk<'a> {
    first: usize,
    count: usize,
    places: &'a [Place],
}

#[cfg(test)]
mod tests;
