//! The CUDA backend: the operations of [`demask_tensor::Backend`] put together.
//!
//! An operation adds launches to a list; the list runs at the end of the step, as a graph if the same was run before.
//! The data that differs from step to step is in the launch's own buffer, which is uploaded once. The head's answers
//! are downloaded once. Operations cannot fail: the first error stays, nothing is run any more, and [`Backend::finish`]
//! returns it.

mod commands;
#[cfg(test)]
mod fake;
mod footprint;
mod head;
mod launch;
mod layer;
mod memory;
mod pages;
mod products;
mod shapes;
pub mod trial;
mod weights;
mod workspace;

use std::sync::Arc;

use demask_step::{DeviceError, DeviceId, MemoryMeter, OutOfMemory};
use demask_tensor::{
    AttentionShape, Backend, Dtype, ExpertWeights, HeadOutput, HeadWeights, Launch, Lora, MlpWeights, PackError,
    PageKind, PartSeconds, QkvRows, QkvWeights, Quantisation, Rows, Stage, StoredTensor, WorkspaceShape, widen_bf16,
};

use crate::gpu::{Gpu, Limits};
use commands::Queue;
use layer::Step;
pub use memory::Failure;
use memory::{Buffer, Meter};
use pages::Layout;
pub use pages::Pages;
pub use shapes::Unfit;
use weights::MatrixFormat;
pub use weights::{Embedding, Matrix, Vector};
use workspace::Workspace;

/// Rows that hardly lengthen a forward: products with few rows are bound by reading weights.
const FREE_ROWS: usize = 128;

/// Options of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaOptions {
    /// Element type of products and of K/V: [`Dtype::F32`] or [`Dtype::Bf16`].
    pub dtype: Dtype,
    /// Integers that matrices are rounded to when they are packed; none given: those in ggml's `Q8_0` and `Q4_0` stay
    /// what they are, all others are kept in `dtype`. The embedding table and vectors are never quantised.
    pub quantisation: Option<Quantisation>,
}

/// Runs the transformer on a GPU, or on what takes its place.
pub struct CudaBackend<G: Gpu> {
    gpu: Arc<G>,
    limits: Limits,
    options: CudaOptions,
    queue: Queue<G>,
    rotation: Option<Rotation<G>>,
    /// Rotation of queries, if it differs from the rotation of keys.
    query_rotation: Option<Rotation<G>>,
    workspace: Option<Workspace<G>>,
    /// The rows that are marked on the device.
    marked: Option<Rows>,
}

/// `f32[positions, half]` each.
struct Rotation<G: Gpu> {
    cos: Buffer<G>,
    sin: Buffer<G>,
    half: usize,
}

impl<G: Gpu> CudaBackend<G> {
    /// Takes a device; nothing is allocated yet.
    ///
    /// # Panics
    /// If products in `options.dtype` are not known.
    pub fn new(gpu: G, options: CudaOptions) -> Self {
        assert!(matches!(options.dtype, Dtype::F32 | Dtype::Bf16), "products in {}", options.dtype);
        let (limits, gpu) = (gpu.limits(), Arc::new(gpu));
        Self {
            queue: Queue::new(&gpu),
            gpu,
            limits,
            options,
            rotation: None,
            query_rotation: None,
            workspace: None,
            marked: None,
        }
    }

    /// A table on the device.
    fn table(&self, values: &[f32]) -> Result<Buffer<G>, Failure> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Buffer::holding(&self.gpu, &bytes).map_err(Failure::from)
    }

    /// Returns the options.
    pub fn options(&self) -> CudaOptions {
        self.options
    }

    /// The device.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// Returns the context of an operation; none once the device has failed.
    ///
    /// # Panics
    /// If nothing was reserved.
    fn step(&mut self) -> Option<Step<'_, G>> {
        let Self { limits, options, queue, rotation, query_rotation, workspace, marked, .. } = self;
        if !queue.works() {
            return None;
        }
        match (workspace, rotation) {
            (Some(work), Some(rotation)) => {
                let rotation = &*rotation;
                let query_rotation = query_rotation.as_ref().unwrap_or(rotation);
                Some(Step { limits: *limits, dtype: options.dtype, queue, work, rotation, query_rotation, marked })
            }
            _ => panic!("an operation runs before anything was reserved"),
        }
    }

    /// Reports a lack of memory; a failing device shows in the next launch.
    fn memory<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, OutOfMemory> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Failure::Memory(error)) => Err(error),
            Err(Failure::Device(error)) => {
                self.queue.fail(error);
                Ok(None)
            }
        }
    }

    /// The value, or nothing once the device has failed.
    fn keep<T>(&self, result: Result<T, Failure>) -> Option<T> {
        match self.memory(result) {
            Ok(value) => value,
            Err(error) => {
                self.queue.fail(DeviceError(format!("no memory on the device for a step: {error}")));
                None
            }
        }
    }

    /// The rows of the residual stream, after a norm if there is one.
    fn read_stream(&mut self, norm: Option<(&Vector<G>, f32)>) -> Option<Vec<f32>> {
        let step = self.step()?;
        let (hidden, rows) = (step.work.shape.hidden, step.rows());
        let read = |buffer: &Buffer<G>, stride: usize| -> Result<Vec<f32>, Failure> {
            let mut bytes = vec![0; rows * stride * size_of::<f32>()];
            buffer.download(0, &mut bytes)?;
            let values = bytes.as_chunks::<4>().0.chunks_exact(stride);
            Ok(values.flat_map(|row| &row[..hidden]).map(|value| f32::from_le_bytes(*value)).collect())
        };
        let values = match norm {
            None => {
                step.queue.flush();
                read(&step.work.stream, hidden)
            }
            Some((weight, epsilon)) => {
                let stride = workspace::padded(hidden);
                let room = launch::bucket(rows) * stride * size_of::<f32>();
                let normed = self.keep(Buffer::new(&self.gpu, room).map_err(Failure::from))?;
                let mut step = self.step()?;
                step.normalise_to(normed.address(), Dtype::F32, (weight, epsilon));
                step.queue.flush();
                read(&normed, stride)
            }
        };
        self.keep(values)
    }

    /// K or V of the rows' slots, widened.
    fn read_store(&mut self, kv: &Pages<G>, layer: usize, value: bool) -> Option<Vec<f32>> {
        let step = self.step()?;
        step.queue.flush();
        let slots = &step.work.packed.row_slots;
        let read = kv.read_rows(slots, layer, value);
        self.keep(read)
    }
}

impl<G: Gpu> Backend for CudaBackend<G> {
    type Matrix = Matrix<G>;
    type GateUp = Matrix<G>;
    type Embedding = Embedding<G>;
    type Vector = Vector<G>;
    type Kv = Pages<G>;

    fn describe(&self) -> String {
        format!("{}, {}", self.gpu.describe(), self.options.dtype)
    }

    fn time_parts(&mut self, on: bool) {
        self.queue.time_parts(on);
    }

    fn part_seconds(&self) -> PartSeconds {
        self.queue.part_seconds()
    }

    fn dtype(&self) -> Dtype {
        self.options.dtype
    }

    fn pack<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Matrix<G>, PackError> {
        let weight = weight.into();
        let CudaOptions { dtype, quantisation } = self.options;
        Matrix::new(&self.gpu, MatrixFormat::of([weight.dtype(); 2], dtype, quantisation), weight)
    }

    fn pack_gate_up<'a>(
        &self,
        gate: impl Into<StoredTensor<'a>>,
        up: impl Into<StoredTensor<'a>>,
    ) -> Result<Matrix<G>, PackError> {
        let (gate, up) = (gate.into(), up.into());
        let CudaOptions { dtype, quantisation } = self.options;
        Matrix::gate_up(&self.gpu, MatrixFormat::of([gate.dtype(), up.dtype()], dtype, quantisation), [gate, up])
    }

    fn pack_router<'a>(&self, weight: impl Into<StoredTensor<'a>>) -> Result<Matrix<G>, PackError> {
        Matrix::new(&self.gpu, MatrixFormat::F32, weight.into())
    }

    fn pack_embedding<'a>(&self, table: impl Into<StoredTensor<'a>>) -> Result<Embedding<G>, PackError> {
        Embedding::new(&self.gpu, self.options.dtype, table.into())
    }

    fn vector(&self, values: &[f32]) -> Result<Vector<G>, PackError> {
        Vector::new(&self.gpu, values)
    }

    fn matrix_bytes(&self, matrix: &Matrix<G>) -> usize {
        matrix.bytes()
    }

    fn gate_up_bytes(&self, matrix: &Matrix<G>) -> usize {
        matrix.bytes()
    }

    fn matrix_format(&self, matrix: &Matrix<G>) -> String {
        matrix.format().to_string()
    }

    fn gate_up_format(&self, matrix: &Matrix<G>) -> String {
        matrix.format().to_string()
    }

    fn embedding_bytes(&self, table: &Embedding<G>) -> usize {
        table.bytes()
    }

    fn device(&self) -> DeviceId {
        DeviceId(1 + self.gpu.number())
    }

    fn available(&self) -> u64 {
        self.gpu.available()
    }

    fn memory_meter(&self) -> Option<Arc<dyn MemoryMeter>> {
        Some(Arc::new(Meter(Arc::clone(&self.gpu))))
    }

    fn free_rows(&self, _weights: usize) -> usize {
        FREE_ROWS
    }

    fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64 {
        self.options.workspace_bytes(shape)
    }

    fn reserve(&mut self, shape: &WorkspaceShape) -> Result<(), OutOfMemory> {
        // The old one goes first: there may be no room for both.
        self.workspace = None;
        if let Err(unfit) = self.options.check(shape, 0) {
            self.queue.fail(DeviceError(unfit.to_string()));
            return Ok(());
        }
        self.workspace = self.memory(Workspace::new(&self.gpu, shape, self.options.dtype))?;
        Ok(())
    }

    fn set_rotation(&mut self, cos: &[f32], sin: &[f32], rotated: usize) -> Result<(), OutOfMemory> {
        assert_eq!(cos.len(), sin.len(), "as many cosines as sines");
        let tables = self.table(cos).and_then(|cos| Ok((cos, self.table(sin)?)));
        self.rotation = self.memory(tables)?.map(|(cos, sin)| Rotation { cos, sin, half: rotated / 2 });
        self.query_rotation = None;
        Ok(())
    }

    fn set_query_rotation(&mut self, cos: &[f32], sin: &[f32]) -> Result<(), OutOfMemory> {
        let half = self.rotation.as_ref().map_or(0, |rotation| rotation.half);
        let tables = self.table(cos).and_then(|cos| Ok((cos, self.table(sin)?)));
        self.query_rotation = self.memory(tables)?.map(|(cos, sin)| Rotation { cos, sin, half });
        Ok(())
    }

    fn new_kv(&self, shape: &AttentionShape, layers: usize, hidden: usize) -> Pages<G> {
        Pages::new(&self.gpu, Layout { shape: *shape, dtype: self.options.dtype, layers, hidden })
    }

    fn allocate_pages(
        &self,
        kv: &mut Pages<G>,
        count: usize,
        kind: PageKind,
        pages: &mut Vec<u32>,
    ) -> Result<(), OutOfMemory> {
        let allocated = kv.allocate(count, kind, pages);
        if self.memory(allocated)?.is_none() {
            // The caller counts on them; no step will read them.
            kv.allocate_nothing(count, pages);
        }
        Ok(())
    }

    fn release_pages(&self, kv: &mut Pages<G>, pages: &[u32]) {
        kv.release(pages);
    }

    fn page_bytes(&self, kv: &Pages<G>, kind: PageKind) -> usize {
        kv.layout.page(kind)
    }

    fn begin(&mut self, launch: &Launch, kv: &mut Pages<G>) {
        self.marked = None;
        let gpu = Arc::clone(&self.gpu);
        let Some(step) = &mut self.step() else { return };
        step.queue.begin();
        step.work.packed.take(launch);
        let uploaded = step.work.upload_launch(&gpu);
        if self.keep(uploaded).is_some()
            && let Some(mut step) = self.step()
        {
            step.copy(kv);
        }
    }

    fn embed(&mut self, table: &Embedding<G>) {
        if let Some(mut step) = self.step() {
            step.embed(table);
        }
    }

    fn qkv(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, rows: QkvRows, kv: &mut Pages<G>) {
        if let Some(mut step) = self.step() {
            step.qkv(layer, weights, rows, kv);
        }
    }

    fn attend(&mut self, layer: usize, rows: Rows, kv: &Pages<G>) {
        if let Some(mut step) = self.step() {
            step.attend(layer, rows, kv);
        }
    }

    fn project_add(&mut self, weight: &Matrix<G>, _: Option<Lora<'_, Self>>, rows: Rows) {
        if let Some(mut step) = self.step() {
            step.project_add(weight, rows);
        }
    }

    fn mlp(&mut self, weights: &MlpWeights<'_, Self>, rows: Rows) {
        if let Some(mut step) = self.step() {
            step.mlp(weights, rows);
        }
    }

    fn experts(&mut self, weights: &ExpertWeights<'_, Self>, _: Rows) {
        // A model with experts is refused when its workspace is reserved; no launch computes without them.
        self.queue.fail(DeviceError(shapes::experts(weights.gate_up.len()).to_string()));
    }

    fn expert_bytes_read(&self) -> u64 {
        0
    }

    fn select(&mut self, layer: usize, weights: &QkvWeights<'_, Self>, kv: &mut Pages<G>) {
        if let Some(mut step) = self.step() {
            step.select(layer, weights, kv);
        }
    }

    fn hold(&mut self, layer: usize, rows: Rows, kv: &mut Pages<G>) {
        if let Some(mut step) = self.step() {
            step.hold(layer, rows, kv);
        }
    }

    fn settle(&mut self, layer: usize, rows: Rows, kv: &mut Pages<G>) {
        if let Some(mut step) = self.step() {
            step.settle(layer, rows, kv);
        }
    }

    fn head(&mut self, weights: &HeadWeights<'_, Self>, kv: &mut Pages<G>, out: &mut HeadOutput) {
        out.clear();
        let gpu = Arc::clone(&self.gpu);
        let Some(mut step) = self.step() else { return };
        let answered = step.head(&gpu, weights, kv, out);
        self.keep(answered);
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.queue.wait();
        self.queue.failure()
    }

    fn read(&mut self, stage: Stage<'_, Self>, out: &mut Vec<f32>) {
        let values = match stage {
            Stage::Residual => self.read_stream(None),
            Stage::Normed(weight, epsilon) => self.read_stream(Some((weight, epsilon))),
            Stage::Key(layer, kv) => self.read_store(kv, layer, false),
            Stage::Value(layer, kv) => self.read_store(kv, layer, true),
        };
        // After a failure nobody believes what was read, but it may be looked at.
        out.clear();
        out.extend(values.into_iter().flatten());
    }
}

/// Numbers as a device keeps them, widened.
fn widened(dtype: Dtype, bytes: &[u8], out: &mut Vec<f32>) {
    match dtype {
        Dtype::Bf16 => {
            out.extend(bytes.as_chunks::<2>().0.iter().map(|value| widen_bf16(u16::from_le_bytes(*value))));
        }
        _ => out.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value))),
    }
}

#[cfg(test)]
mod tests;
