//! Workspace of a step: everything that it writes beside the K/V store, allocated once.

use std::sync::Arc;

use demask_tensor::{AttentionShape, Dtype, PAGE, Rows, WorkspaceShape};

use super::{
    launch::{Answers, CHUNK, PackedLaunch, bucket},
    memory::{Buffer, Failure, check},
    weights::DEPTH,
};
use crate::{
    gpu::{Address, Gpu, GpuError},
    kernels::attention::{partial_numbers, spans},
};

/// Head rows whose logits are computed together: enough to read the head's weights seldom, few enough that the logits of
/// a large vocabulary, and what sorting takes, stay in some hundreds of megabytes.
pub(super) const HEAD_CHUNK: usize = 128;

/// Numbers of spans' sums that are kept at most: 64 MiB, which a card writes and reads in the time that it needs for a
/// small weight matrix.
const MOST_PARTIAL: usize = 16 << 20;

/// Bytes of scratch for a logit.
const SCRATCH: usize = 8;

/// Width of all query heads together.
pub(super) fn query_width(shape: &AttentionShape) -> usize {
    shape.heads * shape.head_dim
}

/// Width of all K/V heads together.
pub(super) fn kv_width(shape: &AttentionShape) -> usize {
    shape.kv_heads * shape.head_dim
}

/// Distance of the rows of a product's inputs, in elements.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(DEPTH)
}

/// Bytes of each buffer.
struct Sizes {
    stream: usize,
    queries: usize,
    input: usize,
    projected: [usize; 3],
    attended: usize,
    partial: usize,
    ffn: usize,
    words: usize,
    scores: usize,
    logits: usize,
    scratch: usize,
    launch: usize,
    answers: usize,
}

impl Sizes {
    fn of(shape: &WorkspaceShape, dtype: Dtype) -> Self {
        let WorkspaceShape { hidden, ffn, attention, vocabulary, table_entries, .. } = *shape;
        let (rows, head_rows) = (bucket(shape.rows), bucket(shape.head_rows));
        let (chunk, head_chunk) = (rows.min(CHUNK), head_rows.min(HEAD_CHUNK));
        let (query, kv) = (query_width(&attention), kv_width(&attention));
        let (element, float) = (dtype.size(), size_of::<f32>());
        Self {
            stream: rows * hidden * float,
            queries: rows * query * element,
            // The head's inputs stand here too.
            input: chunk.max(head_chunk) * padded(hidden) * element,
            projected: [query, kv, kv].map(|width| chunk * width * float),
            attended: rows * padded(query) * element,
            partial: partial_numbers(&attention, rows as u32, spans(table_entries * PAGE)).min(MOST_PARTIAL) * float,
            ffn: chunk * padded(ffn) * element,
            // All rows, the computed ones, flags; the count of the computed ones behind.
            words: (3 * rows + 1) * size_of::<u32>(),
            scores: rows * size_of::<f64>(),
            logits: head_chunk * vocabulary * float,
            scratch: head_chunk * vocabulary * SCRATCH,
            launch: PackedLaunch::room(shape.rows, shape.head_rows, table_entries),
            answers: Answers::of(shape.head_rows, shape.head_rows, shape.head_rows).end,
        }
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        let Self { stream, queries, input, projected, attended, partial, ffn, .. } = *self;
        let Self { words, scores, logits, scratch, launch, answers, .. } = *self;
        [stream, queries, input, attended, partial, ffn, words, scores, logits, scratch, launch, answers]
            .into_iter()
            .chain(projected)
    }
}

/// Bytes that a workspace takes.
pub(super) fn needed(shape: &WorkspaceShape, dtype: Dtype) -> u64 {
    Sizes::of(shape, dtype).all().map(|bytes| bytes as u64).sum()
}

/// Buffers of one shape. "T" is the type of the products.
pub(super) struct Workspace<G: Gpu> {
    pub(super) shape: WorkspaceShape,
    /// `f32[rows, hidden]`: the residual stream.
    pub(super) stream: Buffer<G>,
    /// `T[rows, heads * head_dim]`.
    pub(super) queries: Buffer<G>,
    /// `T[CHUNK, padded hidden]`.
    pub(super) input: Buffer<G>,
    /// `f32[CHUNK, width]` of q, K and V.
    pub(super) projected: [Buffer<G>; 3],
    /// `T[rows, padded heads * head_dim]`: attention's output.
    pub(super) attended: Buffer<G>,
    /// Parts of attention, see [`AttendArgs`](crate::arguments::AttendArgs).
    pub(super) partial: Buffer<G>,
    /// `T[CHUNK, padded ffn]`.
    pub(super) ffn: Buffer<G>,
    /// `u32[rows]` each: all rows, computed rows, flags; then how many are computed, as the device counts them.
    words: Buffer<G>,
    /// `f64[rows]`: of probed rows.
    pub(super) scores: Buffer<G>,
    /// `f32[HEAD_CHUNK, vocabulary]`.
    pub(super) logits: Buffer<G>,
    /// `[HEAD_CHUNK, vocabulary]` of 8 bytes.
    pub(super) scratch: Buffer<G>,
    /// The launch.
    pub(super) launch: Buffer<G>,
    /// See [`Answers`].
    pub(super) answers: Buffer<G>,
    /// Bytes that were read of the answers.
    pub(super) answered: Vec<u8>,
    pub(super) packed: PackedLaunch,
}

impl<G: Gpu> Workspace<G> {
    pub(super) fn new(gpu: &Arc<G>, shape: &WorkspaceShape, dtype: Dtype) -> Result<Self, Failure> {
        check(&**gpu, needed(shape, dtype)).map_err(Failure::Memory)?;
        let sizes = Sizes::of(shape, dtype);
        let buffer = |bytes: usize| Buffer::new(gpu, bytes);
        let [query, key, value] = sizes.projected;
        let words = buffer(sizes.words)?;
        let identity: Vec<u8> = (0..bucket(shape.rows) as u32).flat_map(u32::to_le_bytes).collect();
        words.upload(0, &identity)?;
        Ok(Self {
            shape: *shape,
            stream: buffer(sizes.stream)?,
            queries: buffer(sizes.queries)?,
            input: buffer(sizes.input)?,
            projected: [buffer(query)?, buffer(key)?, buffer(value)?],
            attended: buffer(sizes.attended)?,
            partial: buffer(sizes.partial)?,
            ffn: buffer(sizes.ffn)?,
            words,
            scores: buffer(sizes.scores)?,
            logits: buffer(sizes.logits)?,
            scratch: buffer(sizes.scratch)?,
            launch: buffer(sizes.launch)?,
            answers: answers_for(gpu, sizes.answers)?,
            answered: Vec::with_capacity(sizes.answers),
            packed: PackedLaunch::new(shape.rows),
        })
    }

    fn word(&self, which: usize) -> Address {
        self.words.address().offset(which * bucket(self.shape.rows) * size_of::<u32>())
    }

    /// `u32[rows]`: the computed rows.
    pub(super) fn computed(&self) -> Address {
        self.word(1)
    }

    /// `u32[rows]`: scratch.
    pub(super) fn flags(&self) -> Address {
        self.word(2)
    }

    /// `u32`: how many rows the device chose to compute.
    pub(super) fn computed_count(&self) -> Address {
        self.word(3)
    }

    /// Address of the list of a set of rows.
    pub(super) fn rows(&self, rows: Rows) -> Address {
        match rows {
            Rows::Live => self.word(0),
            Rows::Computed => self.computed(),
            Rows::Fixed => self.launch.address().offset(self.packed.fixed.at),
            Rows::Last => self.launch.address().offset(self.packed.last.at),
        }
    }

    /// Uploads the launch that was taken over, into a longer buffer if it is longer than any before.
    pub(super) fn upload_launch(&mut self, gpu: &Arc<G>) -> Result<(), Failure> {
        let bytes = self.packed.bytes().len();
        if bytes > self.launch.bytes() {
            self.launch = Buffer::new(gpu, bytes.next_power_of_two())?;
        }
        Ok(self.launch.upload(0, self.packed.bytes())?)
    }

    /// Makes room for answers that are longer than any before.
    pub(super) fn reserve_answers(&mut self, gpu: &Arc<G>, answers: &Answers) -> Result<(), Failure> {
        if answers.end > self.answers.bytes() {
            self.answers = answers_for(gpu, answers.end.next_power_of_two())?;
        }
        Ok(())
    }
}

/// Room for answers. A download takes all of them, so that those of padding, and those that are not requested, are zeros.
fn answers_for<G: Gpu>(gpu: &Arc<G>, bytes: usize) -> Result<Buffer<G>, GpuError> {
    let answers = Buffer::new(gpu, bytes)?;
    answers.zero(0, bytes)?;
    Ok(answers)
}
