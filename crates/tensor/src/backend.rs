//! The operations that a device must offer to run the transformer.
//!
//! # Promises
//!
//! *Row invariance*: what an operation computes for a row depends on nothing but that row's inputs: not on how many
//! other rows, sequences or drafts are in the launch, nor on the number of threads. One order of summation per weight
//! matrix; keys in ascending position, page by page; masked keys weigh exactly 0. A row's experts are summed in ascending
//! number, whatever rows they are computed with.
//!
//! *No allocation*: after [`Backend::reserve`] and [`Backend::allocate_pages`] no operation of a step allocates.
//!
//! # One forward
//!
//! `begin`, `embed`, then per layer `qkv`, `attend`, `project_add`, `mlp` or `experts`, and at the end `head` and `finish`. A partial
//! launch adds `hold` before and `settle` after each layer, and `select` in front of `qkv` in every layer that chooses
//! rows.
//! The residual stream, queries and attention outputs live in the backend's workspace.

use std::sync::Arc;

use crate::{AttentionShape, Dtype, Launch, ReadError, RouterRule, Rows, StoredTensor, WorkspaceShape};
use demask_step::{DeviceError, DeviceId, MemoryMeter, OutOfMemory, TokenScore};

/// Seconds by kind of work. The rest of a step is everything else.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PartSeconds {
    /// Products with the weights of the layers.
    pub linear: f64,
    /// Products with keys and values.
    pub attention: f64,
    /// The head.
    pub head: f64,
}

/// A device that can run the transformer.
pub trait Backend: Send {
    /// A weight matrix `[out, in]` in the layout that the device wants.
    type Matrix: Send + Sync;
    /// Gate and up projections, packed so that `silu(gate) * up` falls out of one product.
    type GateUp: Send + Sync;
    /// The embedding table, readable row by row: in memory, or in its file.
    type Embedding: Send + Sync;
    /// A short f32 vector: norm weights, biases.
    type Vector: Send + Sync;
    /// The paged K/V store of one model.
    type Kv: Send;

    /// One line: tier, threads, element type of the products.
    fn describe(&self) -> String;

    /// Begins to count the seconds of parts from 0, or ends it. What does not count them costs nothing.
    fn time_parts(&mut self, on: bool);

    /// Seconds counted so far.
    fn part_seconds(&self) -> PartSeconds;

    /// The element type that products take their inputs in: `F32` or `Bf16`. K/V are stored in it too.
    fn dtype(&self) -> Dtype;

    /// Packs a weight matrix.
    fn pack<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Self::Matrix, PackError>;
    /// Packs gate and up projections, both `[ffn, hidden]`.
    fn pack_gate_up<'a>(
        &self,
        gate: impl Into<StoredTensor<'a>>,
        up: impl Into<StoredTensor<'a>>,
    ) -> Result<Self::GateUp, PackError>;
    /// Packs the matrix that scores experts, `[experts, hidden]`: in f32 whatever type products take, never in integers.
    fn pack_router<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Self::Matrix, PackError>;
    /// Takes over the embedding table `[vocabulary, hidden]`. A backend may hold on to its bytes and read rows as
    /// [`embed`](Self::embed) wants them.
    fn pack_embedding<'a>(&self, table: impl Into<StoredTensor<'a>>) -> Result<Self::Embedding, PackError>;
    /// Takes over a vector.
    fn vector(&self, values: &[f32]) -> Result<Self::Vector, PackError>;
    /// Bytes that packed weights take: for receipts.
    fn matrix_bytes(&self, matrix: &Self::Matrix) -> usize;
    /// Bytes of packed gate and up.
    fn gate_up_bytes(&self, matrix: &Self::GateUp) -> usize;
    /// Storage format of packed weights, in a word: a type, or a format of blocks.
    fn matrix_format(&self, matrix: &Self::Matrix) -> String;
    /// Format of packed gate and up, in a word.
    fn gate_up_format(&self, matrix: &Self::GateUp) -> String;
    /// Bytes that the embedding table takes in memory: none if its rows are read from a file.
    fn embedding_bytes(&self, table: &Self::Embedding) -> usize;

    /// Device whose memory the backend uses.
    fn device(&self) -> DeviceId;
    /// Bytes of memory that it may still take.
    fn available(&self) -> u64;
    /// A reader of the memory that it takes on a device of its own; none if that is the computer's.
    fn memory_meter(&self) -> Option<Arc<dyn MemoryMeter>> {
        None
    }
    /// Rows that hardly lengthen a forward that reads this many bytes of weights. The same in every run on a device.
    fn free_rows(&self, weights: usize) -> usize;
    /// Bytes of a workspace for launches up to this shape, roughly from above.
    fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64;
    /// Makes room for launches up to this shape; growing keeps nothing of the old contents.
    fn reserve(&mut self, shape: &WorkspaceShape) -> Result<(), OutOfMemory>;
    /// Sets the rotation table, `[positions, rotated / 2]` each, for all positions that sequences may use.
    fn set_rotation(&mut self, cos: &[f32], sin: &[f32], rotated: usize) -> Result<(), OutOfMemory>;
    /// Sets another table of the same size for queries, where they are not turned as keys are: after
    /// [`set_rotation`](Self::set_rotation), which makes the two the same again.
    fn set_query_rotation(&mut self, cos: &[f32], sin: &[f32]) -> Result<(), OutOfMemory>;
    /// An empty K/V store.
    fn new_kv(&self, shape: &AttentionShape, layers: usize, hidden: usize) -> Self::Kv;
    /// Appends the ids of `count` pages to `pages`; freed pages are reused. Their residuals are zeros. K, V and increments
    /// are whatever they are: plans see no slot before it was written, and no operation multiplies what lies beyond a row's
    /// keys.
    fn allocate_pages(
        &self,
        kv: &mut Self::Kv,
        count: usize,
        kind: PageKind,
        pages: &mut Vec<u32>,
    ) -> Result<(), OutOfMemory>;
    /// Gives pages back.
    fn release_pages(&self, kv: &mut Self::Kv, pages: &[u32]);
    /// Bytes of one page of a kind.
    fn page_bytes(&self, kv: &Self::Kv, kind: PageKind) -> usize;

    /// Takes the launch over and runs its keeps, then its copies.
    fn begin(&mut self, launch: &Launch, kv: &mut Self::Kv);
    /// Residual stream := embeddings of the launch's ids, all rows.
    fn embed(&mut self, table: &Self::Embedding);
    /// Norm, projections, biases, per-head norms, rotation; q stays in the workspace, K and V go to the rows' slots.
    fn qkv(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, rows: QkvRows, kv: &mut Self::Kv);
    /// Attention of `rows` (the q rows of the last [`Backend::qkv`]) over their visible keys; the output stays in the
    /// workspace.
    fn attend(&mut self, layer: usize, rows: Rows, kv: &Self::Kv);
    /// Residual stream `+=` output projection of the last [`Backend::attend`], for the same `rows`.
    fn project_add(&mut self, weight: &Self::Matrix, adapter: Option<Lora<'_, Self>>, rows: Rows);
    /// Residual stream `+= down(silu(gate(h)) * up(h))` with `h` the normed residual stream, for `rows`.
    fn mlp(&mut self, weights: &MlpWeights<'_, Self>, rows: Rows);
    /// Residual stream `+=` the weighted sum of the MLPs of the experts that each row chooses, and the shared one's, for
    /// `rows`, all of the normed residual stream; the router sees it in f32. A row's sum starts at 0 and takes its experts
    /// in ascending number, each multiplied by its weight after its last product, then the shared one. A row with a score
    /// that is not a number becomes one.
    fn experts(&mut self, weights: &ExpertWeights<'_, Self>, rows: Rows);
    /// Bytes of packed experts that were read so far: each expert of a layer counts once in each pass over rows that chose
    /// it. A pass takes all rows of a launch if they are not too many for the workspace.
    fn expert_bytes_read(&self) -> u64;

    /// Runs the launch's probes in one layer: fresh projections of the probed rows, comparison with the stored ones,
    /// replacement, choice. Defines [`Rows::Computed`] until the next call.
    fn select(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, kv: &mut Self::Kv);
    /// Remembers the residual stream of the held rows among `rows`, as the start of their increment.
    fn hold(&mut self, layer: usize, rows: Rows, kv: &mut Self::Kv);
    /// Completes the increments of the held rows among `rows`, and adds the stored increment to every row that is not
    /// in `rows`.
    fn settle(&mut self, layer: usize, rows: Rows, kv: &mut Self::Kv);

    /// Final norm, blends, logits and the answers from them, for the launch's head rows.
    fn head(&mut self, weights: &HeadWeights<'_, Self>, kv: &mut Self::Kv, out: &mut HeadOutput);

    /// Ends the work of a launch: whatever was begun is done. Operations cannot say that the device failed; this does, and
    /// a device that failed once does so in every launch that follows. Nothing that a failed launch left is of any worth.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// Copies an intermediate of all rows, `[rows, width]`, for inspection; may allocate.
    fn read(&mut self, stage: Stage<'_, Self>, out: &mut Vec<f32>);
}

/// Buffer that [`Backend::read`] reads.
pub enum Stage<'a, B: Backend + ?Sized> {
    /// The residual stream.
    Residual,
    /// The residual stream after the final norm (weight, epsilon).
    Normed(&'a B::Vector, f32),
    /// K of a layer as the rows' slots hold it: rotated, in the type of the store, widened.
    Key(usize, &'a B::Kv),
    /// V of a layer as the rows' slots hold it.
    Value(usize, &'a B::Kv),
}

/// Adapter of one product (LoRA): the rows of [`Launch::adapted`] get `scale * b (a x)` beside their product with `x`. No bit
/// of another row depends on it.
pub struct Lora<'a, B: Backend + ?Sized> {
    /// `[rank, in]`.
    pub a: &'a B::Matrix,
    /// `[out, rank]`.
    pub b: &'a B::Matrix,
    /// Factor of the product.
    pub scale: f32,
}

impl<B: Backend + ?Sized> Clone for Lora<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend + ?Sized> Copy for Lora<'_, B> {}

/// Rows of the parts of [`Backend::qkv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QkvRows {
    /// Rows that need queries.
    pub query: Rows,
    /// Rows that write K.
    pub key: Rows,
    /// Rows that write V.
    pub value: Rows,
}

/// Weights of the attention's input side.
pub struct QkvWeights<'a, B: Backend + ?Sized> {
    /// Norm in front.
    pub norm: &'a B::Vector,
    /// Epsilon of the layer norm and of the per-head norms.
    pub epsilon: f32,
    /// `[heads * head_dim, hidden]`.
    pub query: &'a B::Matrix,
    /// `[kv_heads * head_dim, hidden]`.
    pub key: &'a B::Matrix,
    /// `[kv_heads * head_dim, hidden]`.
    pub value: &'a B::Matrix,
    /// Biases of the three, all or none.
    pub biases: Option<[&'a B::Vector; 3]>,
    /// Norms over each head of q and of k, `[head_dim]`, before the rotation.
    pub head_norms: Option<[&'a B::Vector; 2]>,
    /// Adapters of the three, added before the norms of heads.
    pub adapters: [Option<Lora<'a, B>>; 3],
}

/// Weights of the MLP.
pub struct MlpWeights<'a, B: Backend + ?Sized> {
    /// Norm in front.
    pub norm: &'a B::Vector,
    /// Epsilon of the norm.
    pub epsilon: f32,
    /// Gate and up.
    pub gate_up: &'a B::GateUp,
    /// `[hidden, ffn]`.
    pub down: &'a B::Matrix,
    /// Adapters of gate and up, added before the SiLU.
    pub gate_up_adapters: [Option<Lora<'a, B>>; 2],
    /// Adapter of `down`.
    pub down_adapter: Option<Lora<'a, B>>,
}

/// Weights of a layer of experts.
pub struct ExpertWeights<'a, B: Backend + ?Sized> {
    /// Norm in front.
    pub norm: &'a B::Vector,
    /// Its epsilon.
    pub epsilon: f32,
    /// `[experts, hidden]`, by [`Backend::pack_router`].
    pub router: &'a B::Matrix,
    /// `[experts]`: addition to scores for the choice alone, not for the weights.
    pub bias: Option<&'a B::Vector>,
    /// How rows choose.
    pub rule: &'a RouterRule,
    /// `[experts]`: gate and up of each.
    pub gate_up: &'a [B::GateUp],
    /// `[experts]`: `[hidden, ffn]` of each.
    pub down: &'a [B::Matrix],
    /// Gate and up, and the last product, of the MLP that every row takes.
    pub shared: Option<(&'a B::GateUp, &'a B::Matrix)>,
}

/// Weights of the head.
pub struct HeadWeights<'a, B: Backend + ?Sized> {
    /// Final norm.
    pub norm: &'a B::Vector,
    /// Epsilon of the norm.
    pub epsilon: f32,
    /// `[vocabulary, hidden]`.
    pub head: &'a B::Matrix,
}

/// Content of a page beside K and V.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageKind {
    /// Increments of each layer, `[layers, PAGE, hidden]`.
    pub increments: bool,
    /// Guidance differences, `[PAGE, hidden]`.
    pub residual: bool,
}

/// The head's results, in the order of the launch's head rows. Arrays that were not asked for are empty; a request
/// that asks for less than others leaves its rows' entries out.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct HeadOutput {
    /// `[head rows]`: the drawn token.
    pub tokens: Vec<u32>,
    /// `[head rows]`: its probability.
    pub confidence: Vec<f32>,
    /// `[head rows]`, 0 where not asked for; empty if nobody asked.
    pub margin: Vec<f32>,
    /// `[head rows]`, 0 where not asked for; empty if nobody asked.
    pub entropy: Vec<f32>,
    /// `top` entries for each row whose request has one, in row order: token and probability, best first.
    pub top: Vec<(u32, f32)>,
    /// `score_width` entries for each row whose request scores.
    pub scores: Vec<TokenScore>,
    /// One vocabulary row for each row whose request wants logits.
    pub logits: Vec<f32>,
}

impl HeadOutput {
    /// Empties everything, keeping the allocations.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.confidence.clear();
        self.margin.clear();
        self.entropy.clear();
        self.top.clear();
        self.scores.clear();
        self.logits.clear();
    }
}

/// A weight cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The file that it is in cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Numbers that are none, where what they become would hide it.
    #[error("it has numbers that are infinite or not numbers (NaN): the file is damaged; fetch the model again")]
    NotFinite,
    /// No memory for it.
    #[error("packing a {rows}x{columns} weight: {source}")]
    Memory {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
        /// Error with the missing amount.
        source: OutOfMemory,
    },
    /// The device fails.
    #[error("packing a {rows}x{columns} weight: {source}")]
    Device {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
        /// Error of the device.
        source: DeviceError,
    },
}
