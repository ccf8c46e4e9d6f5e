//! The CPU backend: the operations of [`demask_tensor::Backend`] put together.

mod adapter;
mod clock;
mod experts;
mod footprint;
mod layer;
mod weights;
mod workspace;

use std::sync::OnceLock;

use demask_step::{DeviceError, DeviceId, OutOfMemory};
use demask_tensor::{
    AttentionShape, Backend, Dtype, ExpertWeights, HeadOutput, HeadWeights, Launch, Lora, MlpWeights, PackError,
    PageKind, PartSeconds, QkvRows, QkvWeights, ReadError, Rows, Stage, StoredTensor, TensorView, WorkspaceShape,
};

use crate::{
    elementwise::{Rotation, Shared, for_ranges, rms_norm},
    head::Head,
    isa::{Isa, Tier},
    kv::{KvStore, Tensor, memory},
    linear::{Activations, Linear, Packed, PackedGateUp, Quantisation},
    pool::Pool,
};
use clock::{Clock, Part};
use layer::Increments;
use weights::{Embedding, Vector};
use workspace::Workspace;

/// Rows that hardly lengthen a forward: products with few rows are bound by reading weights. In `bench/record` 9 rows of bf16
/// (AVX-512-BF16) to 17 of f32 (AVX-512) take as long as reading the weights does, 10 to 20 of quantised ones.
const FREE_ROWS: usize = 16;
/// Rows of bf16 tiles that are nearly free where weights come from memory: 32 take 1.06 times as long as one.
const FREE_ROWS_OF_TILES: usize = 32;
/// Bytes of weights that caches may hold, which are read faster.
const CACHED: usize = 64 << 20;

/// Options of the backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuOptions {
    /// Instructions that it uses.
    pub isa: Isa,
    /// Element type of products and of K/V: [`Dtype::F32`] or [`Dtype::Bf16`].
    pub dtype: Dtype,
    /// Integers that matrices are rounded to when they are packed; none given: they stay in the blocks that they come in,
    /// or are kept in `dtype`. The embedding table and vectors are never quantised.
    pub quantisation: Option<Quantisation>,
    /// Sets whether inputs of matrix products are rounded to integers too, which needs quantised weights.
    pub activations: Activations,
    /// Threads, the caller's included.
    pub threads: usize,
}

/// Runs the transformer on the CPU.
///
/// ```
/// use demask_cpu::{CpuBackend, CpuOptions, isa::Isa, linear::Activations};
/// use demask_tensor::{Backend, Dtype};
///
/// let options = CpuOptions {
///     isa: Isa::best(),
///     dtype: Dtype::F32,
///     quantisation: None,
///     activations: Activations::Plain,
///     threads: 2,
/// };
/// let backend = CpuBackend::new(options);
/// assert_eq!(backend.dtype(), Dtype::F32);
/// ```
pub struct CpuBackend {
    options: CpuOptions,
    tools: Tools,
    workspace: Option<Workspace>,
    expert_bytes: u64,
    /// The first failure: a row of the embedding table that its file would not give.
    failure: Option<DeviceError>,
}

/// Instruction set and helpers that every operation of a step uses and none changes.
struct Tools {
    isa: Isa,
    pool: Pool,
    linear: Linear,
    /// Products of routers.
    router: Linear,
    rotation: Rotation,
    /// Rotation of queries, if it differs from the rotation of keys.
    query_rotation: Option<Rotation>,
    clock: Clock,
}

/// Tools of an operation, and the workspace that it changes.
type Parts<'a> = (&'a Tools, &'a mut Workspace);

impl CpuBackend {
    /// Starts the threads and chooses the kernels.
    ///
    /// # Panics
    /// If products in `options.dtype` are not known, or activations of int8 are to meet plain weights.
    pub fn new(options: CpuOptions) -> Self {
        let tools = Tools {
            isa: options.isa,
            pool: Pool::new(options.threads.max(1)),
            linear: options.linear(),
            router: Linear::new(options.isa, Dtype::F32),
            rotation: Rotation::default(),
            query_rotation: None,
            clock: Clock::default(),
        };
        Self { options, tools, workspace: None, expert_bytes: 0, failure: None }
    }

    /// Returns the options.
    pub fn options(&self) -> CpuOptions {
        self.options
    }

    /// Hands out what an operation takes.
    ///
    /// # Panics
    /// If nothing was reserved.
    fn parts(&mut self) -> Parts<'_> {
        let Some(workspace) = &mut self.workspace else { panic!("an operation runs before anything was reserved") };
        (&self.tools, workspace)
    }
}

impl Backend for CpuBackend {
    type Matrix = Packed;
    type GateUp = PackedGateUp;
    type Embedding = Embedding;
    type Vector = Vector;
    type Kv = KvStore;

    fn describe(&self) -> String {
        let threads = self.tools.pool.threads();
        let activations = match self.tools.linear.activations() {
            Activations::Plain => "",
            Activations::Int8 => ", int8 activations",
        };
        format!(
            "cpu {}, {} thread{}, {}{activations}",
            self.options.isa.tier(),
            threads,
            if threads == 1 { "" } else { "s" },
            self.tools.linear.dtype()
        )
    }

    fn time_parts(&mut self, on: bool) {
        self.tools.clock = Clock::new(on);
    }

    fn part_seconds(&self) -> PartSeconds {
        self.tools.clock.seconds()
    }

    fn dtype(&self) -> Dtype {
        self.tools.linear.dtype()
    }

    fn pack<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Packed, PackError> {
        self.tools.linear.pack(&self.tools.pool, weight)
    }

    fn pack_gate_up<'a>(
        &self,
        gate: impl Into<StoredTensor<'a>>,
        up: impl Into<StoredTensor<'a>>,
    ) -> Result<PackedGateUp, PackError> {
        self.tools.linear.pack_gate_up(&self.tools.pool, gate, up)
    }

    fn pack_router<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Packed, PackError> {
        let weight = weight.into();
        if weight.dtype() == Dtype::F32 {
            return self.tools.router.pack(&self.tools.pool, weight);
        }
        // A file's blocks would be kept as they are.
        let wide: Vec<u8> = weight.to_f32()?.into_iter().flat_map(f32::to_le_bytes).collect();
        self.tools.router.pack(&self.tools.pool, TensorView::new(Dtype::F32, weight.rows(), weight.columns(), &wide))
    }

    fn pack_embedding<'a>(&self, table: impl Into<StoredTensor<'a>>) -> Result<Embedding, PackError> {
        Embedding::new(table.into(), self.dtype())
    }

    fn vector(&self, values: &[f32]) -> Result<Vector, PackError> {
        Ok(Vector::new(values))
    }

    fn matrix_bytes(&self, matrix: &Packed) -> usize {
        matrix.bytes()
    }

    fn gate_up_bytes(&self, matrix: &PackedGateUp) -> usize {
        matrix.bytes()
    }

    fn matrix_format(&self, matrix: &Packed) -> String {
        matrix.kept_in()
    }

    fn gate_up_format(&self, matrix: &PackedGateUp) -> String {
        matrix.kept_in()
    }

    fn embedding_bytes(&self, table: &Embedding) -> usize {
        table.bytes()
    }

    fn device(&self) -> DeviceId {
        DeviceId(0)
    }

    fn available(&self) -> u64 {
        memory::available()
    }

    fn free_rows(&self, weights: usize) -> usize {
        let CpuOptions { isa, dtype, quantisation, .. } = self.options;
        let tiles = isa.has(Tier::Amx) && dtype == Dtype::Bf16 && quantisation.is_none();
        if tiles && weights > CACHED { FREE_ROWS_OF_TILES } else { FREE_ROWS }
    }

    fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64 {
        self.options.workspace_bytes(shape)
    }

    fn reserve(&mut self, shape: &WorkspaceShape) -> Result<(), OutOfMemory> {
        // The old one goes first: there may be no room for both.
        self.workspace = None;
        self.workspace =
            Some(Workspace::new(shape, [&self.tools.linear, &self.tools.router], self.tools.pool.threads())?);
        Ok(())
    }

    fn set_rotation(&mut self, cos: &[f32], sin: &[f32], rotated: usize) -> Result<(), OutOfMemory> {
        assert_eq!(cos.len(), sin.len(), "as many cosines as sines");
        memory::check(2 * size_of_val(cos) as u64)?;
        self.tools.rotation = Rotation { cos: cos.to_vec(), sin: sin.to_vec(), half: rotated / 2 };
        self.tools.query_rotation = None;
        Ok(())
    }

    fn set_query_rotation(&mut self, cos: &[f32], sin: &[f32]) -> Result<(), OutOfMemory> {
        assert_eq!([cos.len(), sin.len()], [self.tools.rotation.cos.len(); 2], "a table as long as that of keys");
        memory::check(2 * size_of_val(cos) as u64)?;
        self.tools.query_rotation =
            Some(Rotation { cos: cos.to_vec(), sin: sin.to_vec(), half: self.tools.rotation.half });
        Ok(())
    }

    fn new_kv(&self, shape: &AttentionShape, layers: usize, hidden: usize) -> KvStore {
        KvStore::new(self.options.isa, *shape, self.dtype(), layers, hidden)
    }

    fn allocate_pages(
        &self,
        kv: &mut KvStore,
        count: usize,
        kind: PageKind,
        pages: &mut Vec<u32>,
    ) -> Result<(), OutOfMemory> {
        kv.allocate(count, kind, pages)
    }

    fn release_pages(&self, kv: &mut KvStore, pages: &[u32]) {
        kv.release(pages);
    }

    fn page_bytes(&self, kv: &KvStore, kind: PageKind) -> usize {
        kv.page_bytes(kind)
    }

    fn begin(&mut self, launch: &Launch, kv: &mut KvStore) {
        let (tools, work) = self.parts();
        work.prepared.take(launch);
        kv.begin(&tools.pool, launch);
    }

    fn embed(&mut self, table: &Embedding) {
        let (tools, work) = self.parts();
        if let Err(error) = embed(tools, work, table) {
            self.failure.get_or_insert(DeviceError(error.to_string()));
        }
    }

    fn qkv(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, rows: QkvRows, kv: &mut KvStore) {
        layer::qkv(self.parts(), layer, weights, rows, kv);
    }

    fn attend(&mut self, layer: usize, rows: Rows, kv: &KvStore) {
        layer::attend(self.parts(), layer, rows, kv);
    }

    fn project_add(&mut self, weight: &Packed, adapter: Option<Lora<'_, Self>>, rows: Rows) {
        layer::project_add(self.parts(), weight, adapter, rows);
    }

    fn mlp(&mut self, weights: &MlpWeights<'_, Self>, rows: Rows) {
        layer::mlp(self.parts(), weights, rows);
    }

    fn experts(&mut self, weights: &ExpertWeights<'_, Self>, rows: Rows) {
        self.expert_bytes += experts::run(self.parts(), weights, rows);
    }

    fn expert_bytes_read(&self) -> u64 {
        self.expert_bytes
    }

    fn select(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, kv: &mut KvStore) {
        layer::select(self.parts(), layer, weights, kv);
    }

    fn hold(&mut self, layer: usize, rows: Rows, kv: &mut KvStore) {
        layer::keep_increments(self.parts(), layer, rows, kv, Increments::Hold);
    }

    fn settle(&mut self, layer: usize, rows: Rows, kv: &mut KvStore) {
        layer::keep_increments(self.parts(), layer, rows, kv, Increments::Settle);
    }

    fn head(&mut self, weights: &HeadWeights<'_, Self>, kv: &mut KvStore, out: &mut HeadOutput) {
        let (tools, work) = self.parts();
        let Workspace { prepared: taken, stream, scratch, head, .. } = work;
        let run = Head {
            isa: tools.isa,
            pool: &tools.pool,
            linear: &tools.linear,
            launch: &taken.launch.head,
            stream: stream.as_slice(),
            norm: weights.norm.as_slice(),
            epsilon: weights.epsilon,
            weight: weights.head,
        };
        tools.clock.time(Part::Head, || run.run(kv, head, scratch.as_mut_slice(), out));
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn read(&mut self, stage: Stage<'_, Self>, out: &mut Vec<f32>) {
        let (tools, work) = self.parts();
        let hidden = work.shape.hidden;
        let stream = &work.stream.as_slice::<f32>()[..work.prepared.launch.len() * hidden];
        out.clear();
        match stage {
            Stage::Residual => out.extend_from_slice(stream),
            Stage::Normed(weight, epsilon) => {
                out.resize(stream.len(), 0.0);
                for (row, out) in stream.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
                    rms_norm(tools.isa, row, weight.as_slice(), epsilon, out);
                }
            }
            Stage::Key(layer, kv) => kv.read_rows(&work.prepared.launch.slots, layer, Tensor::Key, out),
            Stage::Value(layer, kv) => kv.read_rows(&work.prepared.launch.slots, layer, Tensor::Value, out),
        }
    }
}

/// Fills the residual stream with rows of the table.
fn embed(tools: &Tools, work: &mut Workspace, table: &Embedding) -> Result<(), ReadError> {
    let (hidden, ids) = (work.shape.hidden, &work.prepared.launch.ids);
    let row_bytes = hidden * size_of::<f32>();
    let (stream, scratch) = (Shared::new(work.stream.as_mut_slice::<f32>()), Shared::new(work.scratch.as_mut_slice()));
    let failure = OnceLock::new();
    for_ranges(&tools.pool, ids.len(), tools.pool.threads(), |part, range| {
        // SAFETY: the part is this task's alone.
        let scratch = unsafe { scratch.row(part, row_bytes) };
        for row in range.clone() {
            // SAFETY: each row is in one range.
            let out = unsafe { stream.row(row, hidden) };
            if row > range.start && ids[row] == ids[row - 1] {
                // Masks come one after the other.
                // SAFETY: the row before is in this range, too.
                out.copy_from_slice(unsafe { stream.row(row - 1, hidden) });
            } else if let Err(error) = table.read(ids[row], scratch, out) {
                let _ = failure.set(error);
            }
        }
    });
    failure.into_inner().map_or(Ok(()), Err)?;
    table.check_unwritten()
}
