//! Single operations on noise, for benchmarks: what they compute is of no use, how long it takes is. Kernels, geometry and
//! layouts are those of the backend's steps; times are the device's own.

use std::sync::Arc;

use demask_step::DeviceError;
use demask_tensor::{
    AttentionShape, Backend, Dtype, Launch, PAGE, PackError, PageKind, RowSegment, Rows, TensorView, WorkspaceShape,
    round_bf16,
};

use super::{
    CudaBackend, CudaOptions, Pages,
    launch::{CHUNK, bucket},
    memory::{Buffer, Failure},
    products::kind,
    weights::{Matrix, MatrixFormat},
};
use crate::{
    arguments::{GemmArgs, GemmPart, List},
    gpu::{Address, Geometry, Gpu, GpuError, Limits},
    kernels::gemm::{self, End},
};

/// Launches between two looks at the clock, which takes as long as a short one.
const LAUNCHES: usize = 16;
/// Bytes of weights that take turns: twice the second-level cache of any card.
const STREAMED: usize = 256 << 20;
/// Rows of noise that differ, of weights and of inputs.
const DIFFERENT: usize = 256;
/// Copies of a weight begin at multiples of so many rows, as they would in an allocation of their own.
const STEP: usize = 64;

/// Numbers between -1 and 1 that look like nothing in particular.
struct Noise(u32);

impl Noise {
    /// Draws this many numbers, in a type of products.
    fn take(&mut self, dtype: Dtype, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * dtype.size());
        for _ in 0..count {
            self.0 = self.0.wrapping_mul(0x915f_77f5).wrapping_add(0x3c6e_f35f);
            let value = (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0;
            match dtype {
                Dtype::Bf16 => bytes.extend(round_bf16(value).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes
    }
}

/// Fills a buffer with bytes, again and again.
fn fill<G: Gpu>(buffer: &Buffer<G>, bytes: &[u8]) -> Result<(), GpuError> {
    let starts = (0..buffer.bytes()).step_by(bytes.len().max(1));
    starts.into_iter().try_for_each(|at| buffer.upload(at, &bytes[..bytes.len().min(buffer.bytes() - at)]))
}

/// One product of rows with a weight that comes from memory, as the weights of a model do: each launch takes the next of
/// so many copies that no cache holds it still, as far as there is memory.
pub struct LinearTrial<G: Gpu> {
    gpu: Arc<G>,
    limits: Limits,
    dtype: Dtype,
    inputs: usize,
    outputs: usize,
    /// All copies, one below the other.
    weights: Matrix<G>,
    copies: usize,
    /// The copy that is multiplied next.
    next: usize,
    /// `T[CHUNK or less, padded inputs]`: of every chunk of rows.
    input: Buffer<G>,
    /// `u32` for each chunk.
    counts: Buffer<G>,
    /// `f32[CHUNK or less, outputs]`, likewise.
    out: Buffer<G>,
}

impl<G: Gpu> LinearTrial<G> {
    /// A weight `[outputs, inputs]` as the backend keeps it, and at most `rows` rows.
    ///
    /// # Errors
    /// If there is no memory for it, or the device fails.
    pub fn new(backend: &CudaBackend<G>, rows: usize, inputs: usize, outputs: usize) -> Result<Self, PackError> {
        let (gpu, CudaOptions { dtype, quantisation }) = (&backend.gpu, backend.options);
        let kept = MatrixFormat::of([Dtype::Bf16; 2], dtype, quantisation);
        let (step, different) = (outputs.next_multiple_of(STEP), outputs.min(DIFFERENT));
        let copy = kept.bytes(step, inputs).unwrap_or(usize::MAX).max(1);
        let room = (gpu.available() / 2) as usize;
        let copies = STREAMED.div_ceil(copy).min(room / copy).max(1);
        let mut noise = Noise(1);
        let bytes = noise.take(Dtype::Bf16, different * inputs);
        let view = TensorView::new(Dtype::Bf16, different, inputs, &bytes);
        let weights = Matrix::of_rows(gpu, kept, [copies * step, inputs], |row| (view.into(), row % step % different))?;
        let failed = |error: GpuError| Failure::from(error).packing(outputs, inputs);
        let most = bucket(rows);
        let chunk = most.min(CHUNK);
        let buffer = |bytes: usize| Buffer::new(gpu, bytes).map_err(failed);
        let input = buffer(chunk * weights.depth() * dtype.size())?;
        fill(&input, &padded_rows(&mut noise, dtype, chunk.min(DIFFERENT), [inputs, weights.depth()]))
            .map_err(failed)?;
        Ok(Self {
            limits: backend.limits,
            dtype,
            inputs,
            outputs,
            weights,
            copies,
            next: 0,
            input,
            counts: buffer(most.div_ceil(CHUNK) * size_of::<u32>())?,
            out: buffer(chunk * outputs * size_of::<f32>())?,
            gpu: Arc::clone(gpu),
        })
    }

    /// Format of a weight's numbers, in a word.
    pub fn format(&self) -> String {
        self.weights.format().to_string()
    }

    /// All kernels that can multiply `rows` rows, the one that steps take first; of more than a chunk, the first chunk's.
    pub fn kernels(&self, rows: usize) -> Vec<&'static str> {
        let mut kernels = self.variants(bucket(rows).min(CHUNK));
        kernels.sort_by(|(.., one), (.., other)| one.total_cmp(other));
        kernels.into_iter().map(|(name, ..)| name).collect()
    }

    /// Bytes that multiplying `rows` rows cannot but read and write.
    pub fn bytes(&self, rows: usize) -> usize {
        let weight = self.weights.format().bytes(self.outputs, self.inputs).unwrap_or(usize::MAX);
        weight + rows * (self.weights.depth() * self.dtype.size() + self.outputs * size_of::<f32>())
    }

    /// Multiplies the first `rows` rows a few times by one of their [kernels](Self::kernels); seconds of one time.
    ///
    /// # Errors
    /// If the device fails, or there is no such kernel.
    pub fn run(&mut self, rows: usize, kernel: &str) -> Result<f64, GpuError> {
        let firsts = (0..bucket(rows)).step_by(CHUNK);
        let counts = firsts.flat_map(|first| (rows.saturating_sub(first).min(CHUNK) as u32).to_le_bytes());
        self.counts.upload(0, &counts.collect::<Vec<_>>())?;
        let began = self.gpu.seconds()?;
        for _ in 0..LAUNCHES {
            self.multiply_all(rows, kernel)?;
        }
        Ok((self.gpu.seconds()? - began) / LAUNCHES as f64)
    }

    /// Multiplies all chunks of rows with the next copy.
    fn multiply_all(&mut self, rows: usize, kernel: &str) -> Result<(), GpuError> {
        let room = bucket(rows);
        let next = self.next;
        self.next = (next + 1) % self.copies;
        (0..room).step_by(CHUNK).try_for_each(|first| self.multiply(next, first, CHUNK.min(room - first), kernel))
    }

    fn variants(&self, rows: usize) -> Vec<(&'static str, Geometry, f64)> {
        let product = kind(self.weights.format(), self.dtype);
        let columns = [self.outputs as u32];
        let all = gemm::variants(&self.limits, (product, End::Store), &columns, rows as u32);
        all.collect()
    }

    /// Multiplies the chunk that begins with row `first` with a copy.
    fn multiply(&self, copy: usize, first: usize, rows: usize, kernel: &str) -> Result<(), GpuError> {
        let step = self.outputs.next_multiple_of(STEP);
        let part = self.weights.rows_part(copy * step, self.outputs, self.out.address());
        let nothing = GemmPart { columns: 0, ..part };
        let count = self.counts.address().offset(first / CHUNK * size_of::<u32>());
        let argument = GemmArgs {
            input: self.input.address(),
            list: List { rows: Address::NULL, count },
            part: [part, nothing, nothing],
            parts: 1,
            depth: self.weights.depth() as u32,
            first: 0,
            rows: rows as u32,
        };
        let variant = self.variants(rows).into_iter().find(|(name, ..)| *name == kernel);
        let (kernel, geometry, _) = variant.ok_or_else(|| GpuError::Kernel(kernel.to_owned()))?;
        // SAFETY: the buffers have room for a chunk, and stay until all work was waited for.
        unsafe { self.gpu.launch(kernel, geometry, &argument) }
    }
}

/// Rows of noise with zeros after them.
fn padded_rows(noise: &mut Noise, dtype: Dtype, rows: usize, [width, padded]: [usize; 2]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows * padded * dtype.size());
    for row in 1..=rows {
        bytes.extend(noise.take(dtype, width));
        bytes.resize(row * padded * dtype.size(), 0);
    }
    bytes
}

/// Attention of rows that all see the same keys.
pub struct AttentionTrial<'a, G: Gpu> {
    backend: &'a mut CudaBackend<G>,
    kv: Pages<G>,
}

impl<'a, G: Gpu> AttentionTrial<'a, G> {
    /// `rows` rows over `keys` keys, K and V stored in the type of the backend's products. Earlier reserves go.
    ///
    /// # Errors
    /// If there is no memory for it, or the device fails.
    pub fn new(
        backend: &'a mut CudaBackend<G>,
        shape: AttentionShape,
        (rows, keys): (usize, usize),
    ) -> Result<Self, Failure> {
        let (entries, dtype) = (keys.div_ceil(PAGE), backend.options.dtype);
        let work = WorkspaceShape {
            rows,
            head_rows: 0,
            hidden: 0,
            ffn: 0,
            experts: None,
            attention: shape,
            vocabulary: 0,
            adapter_rank: 0,
            table_entries: entries,
        };
        backend.reserve(&work)?;
        backend.queue.failure()?;
        // Queries and keys were rotated before.
        backend.set_rotation(&[], &[], 0)?;
        let (mut kv, mut tables) = (backend.new_kv(&shape, 1, 0), Vec::new());
        backend.allocate_pages(&mut kv, entries, PageKind::default(), &mut tables)?;
        backend.queue.failure()?;
        let mut noise = Noise(2);
        let numbers = kv.layout.page(PageKind::default()) / dtype.size();
        tables.iter().try_for_each(|&page| kv.write(page, &noise.take(dtype, numbers)))?;
        let launch = Launch {
            ids: vec![0; rows],
            positions: vec![0; rows],
            slots: vec![0; rows],
            limits: vec![keys as u32; rows],
            segments: vec![RowSegment { rows: 0..rows as u32, table: 0..entries as u32 }],
            tables,
            ..Launch::default()
        };
        backend.begin(&launch, &mut kv);
        backend.queue.failure()?;
        if let Some(work) = &backend.workspace {
            let width = shape.heads * shape.head_dim;
            fill(&work.queries, &noise.take(dtype, rows.min(DIFFERENT) * width))?;
        }
        Ok(Self { backend, kv })
    }

    /// The kernels of all ways to do it, the one that steps take first.
    pub fn kernels(&mut self) -> Vec<&'static str> {
        let ways = self.backend.step().map(|step| step.ways(Rows::Live));
        ways.into_iter().flatten().map(|way| way.attend.0).collect()
    }

    /// Attends a few times by one of the [kernels](Self::kernels); seconds of one time.
    ///
    /// # Errors
    /// If the device fails, or there is no such kernel.
    pub fn run(&mut self, kernel: &str) -> Result<f64, DeviceError> {
        for _ in 0..LAUNCHES {
            let Some(mut step) = self.backend.step() else { break };
            let way = step.ways(Rows::Live).find(|way| way.attend.0 == kernel);
            let way = way.ok_or_else(|| DeviceError(GpuError::Kernel(kernel.to_owned()).to_string()))?;
            step.attend_by(way, 0, Rows::Live, &self.kv);
        }
        let CudaBackend { queue, gpu, .. } = &mut *self.backend;
        let began = queue.keep(gpu.seconds());
        queue.flush();
        let ended = queue.keep(gpu.seconds());
        queue.failure()?;
        Ok(ended.zip(began).map_or(f64::NAN, |(ended, began)| (ended - began) / LAUNCHES as f64))
    }
}

#[cfg(test)]
mod tests;
