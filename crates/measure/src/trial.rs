//! Single operations on noise, for benchmarks: what they compute is of no use, how long it takes is.

use std::ops::Range;

use demask_cpu::{
    CpuBackend, CpuOptions, available_memory,
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
};
use demask_step::{HeadRequest, OutOfMemory};
use demask_tensor::{
    AttentionShape, Backend, Dtype, HeadOutput, HeadRow, HeadWeights, Launch, PAGE, PackError, PageKind, QkvRows,
    QkvWeights, RowSegment, Rows, TensorView, WorkspaceShape, round_bf16,
};

use crate::{check_memory, reading::streamed_bytes};

/// Width of the residual stream from which attention's queries, keys and values are projected.
const HIDDEN: usize = 32;
/// Tokens that have embeddings.
const TOKENS: usize = 256;
/// Rows that are projected together.
const CHUNK: usize = 256;
/// Epsilon of norms.
const EPSILON: f32 = 1e-6;

/// A trial cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// No memory for pages or for the workspace.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A weight cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// A table of embeddings.
type Embedding = <CpuBackend as Backend>::Embedding;
/// A vector of weights.
type Vector = <CpuBackend as Backend>::Vector;
/// Pages of keys and values.
type Kv = <CpuBackend as Backend>::Kv;

/// Numbers between -1 and 1 that look like nothing in particular.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(0x915f_77f5).wrapping_add(0x3c6e_f35f);
        (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    fn take(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Draws this many numbers of bf16.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).flat_map(|_| round_bf16(self.next()).to_le_bytes()).collect()
    }

    /// Draws this many bytes of blocks, with a bit cleared in each that would make a scale infinite.
    fn blocks(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() * 128.0) as i8 as u8 & 0xbf).collect()
    }

    /// Packs a matrix of noise.
    fn matrix(&mut self, backend: &CpuBackend, rows: usize, columns: usize) -> Result<Packed, PackError> {
        backend.pack(TensorView::new(Dtype::Bf16, rows, columns, &self.bytes(rows * columns)))
    }

    /// Packs a table of embeddings.
    fn table(&mut self, backend: &CpuBackend, columns: usize) -> Result<Embedding, PackError> {
        backend.pack_embedding(TensorView::new(Dtype::Bf16, TOKENS, columns, &self.bytes(TOKENS * columns)))
    }
}

/// One product of rows with a weight that comes from memory, as the weights of a model do: each run takes the next of
/// so many copies that no cache holds it still.
pub struct LinearTrial {
    linear: Linear,
    weights: Vec<Packed>,
    /// The copy that is multiplied next.
    next: usize,
    input: InputBuffer,
    out: Vec<f32>,
}

impl LinearTrial {
    /// Sets up a weight `[outputs, inputs]` stored as `stored`, bf16 or blocks, and at most `rows` rows.
    ///
    /// # Errors
    /// If there is no memory for it.
    ///
    /// # Panics
    /// If `inputs` are not a multiple of a block's.
    pub fn new(
        linear: Linear,
        pool: &Pool,
        stored: Dtype,
        rows: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, PackError> {
        let mut noise = Noise(1);
        let bytes = match stored {
            Dtype::Block(format) => noise.blocks(inputs * outputs / format.elements() * format.bytes()),
            _ => noise.bytes(inputs * outputs),
        };
        let weight = linear.pack(pool, TensorView::new(stored, outputs, inputs, &bytes))?;
        let mut input = linear.new_input(rows, inputs);
        (0..rows).for_each(|row| input.set_row(row, &noise.take(inputs)));
        Ok(Self { linear, weights: copies(weight)?, next: 0, input, out: vec![0.0; rows * outputs] })
    }

    /// Multiplies the first `rows` rows.
    pub fn run(&mut self, pool: &Pool, rows: usize) {
        let weight = &self.weights[self.next];
        self.next = (self.next + 1) % self.weights.len();
        let output = Output::Store { out: &mut self.out, stride: weight.rows() };
        self.linear.matmul(pool, &self.input, rows, weight, None, output);
    }

    /// Name of the kernel that multiplies.
    pub fn kernel(&self) -> &'static str {
        self.linear.name_for(&self.weights[0])
    }

    /// Bytes that multiplying `rows` rows cannot but read and write.
    pub fn bytes(&self, rows: usize) -> usize {
        let weight = &self.weights[0];
        let row = self.input.bytes() / self.input.capacity().max(1) + weight.rows() * size_of::<f32>();
        weight.bytes() + rows * row
    }
}

/// The weight as often as takes it out of every cache before its next turn.
fn copies(weight: Packed) -> Result<Vec<Packed>, PackError> {
    let count = streamed_bytes().div_ceil(weight.bytes().max(1));
    let needed = (count * weight.bytes()) as u64;
    let (rows, columns) = (weight.rows(), weight.columns());
    check_memory(needed).map_err(|source| PackError::Memory { rows, columns, source })?;
    let failed = || {
        let source = OutOfMemory { needed, available: available_memory() };
        PackError::Memory { rows, columns, source }
    };
    let mut weights = vec![weight];
    while weights.len() < count {
        weights.push(weights[0].try_clone().ok_or_else(failed)?);
    }
    Ok(weights)
}

/// Attention of rows that all see the same keys.
pub struct AttentionTrial {
    backend: CpuBackend,
    kv: Kv,
}

impl AttentionTrial {
    /// Sets up `rows` rows that see `keys` keys.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(options: CpuOptions, shape: AttentionShape, (rows, keys): (usize, usize)) -> Result<Self, TrialError> {
        let mut backend = CpuBackend::new(options);
        let (mut kv, mut table) = (backend.new_kv(&shape, 1, HIDDEN), Vec::new());
        backend.allocate_pages(&mut kv, keys.div_ceil(PAGE), PageKind::default(), &mut table)?;
        backend.reserve(&WorkspaceShape {
            adapter_rank: 0,
            rows: rows.max(CHUNK),
            head_rows: 0,
            hidden: HIDDEN,
            ffn: 0,
            experts: None,
            attention: shape,
            vocabulary: TOKENS,
            table_entries: table.len(),
        })?;
        let projections = Projections::new(&backend, &shape)?;
        let [filling, asking] = [
            QkvRows { query: Rows::Fixed, key: Rows::Live, value: Rows::Live },
            QkvRows { query: Rows::Live, key: Rows::Fixed, value: Rows::Fixed },
        ];
        for first in (0..keys).step_by(CHUNK) {
            let positions = first..keys.min(first + CHUNK);
            projections.run(&mut backend, &launch(positions, keys, &table), filling, &mut kv);
        }
        projections.run(&mut backend, &launch(0..rows, keys, &table), asking, &mut kv);
        Ok(Self { backend, kv })
    }

    /// Attends.
    pub fn run(&mut self) {
        self.backend.attend(0, Rows::Live, &self.kv);
    }
}

/// Rows at some positions of one sequence that see `keys` keys in the pages of a table. None is [`Rows::Fixed`].
fn launch(positions: Range<usize>, keys: usize, table: &[u32]) -> Launch {
    let rows = positions.len();
    let slot = |position: usize| table[position / PAGE % table.len()] * PAGE as u32 + (position % PAGE) as u32;
    Launch {
        ids: positions.clone().map(|position| (position % TOKENS) as u32).collect(),
        positions: vec![0; rows],
        slots: positions.map(slot).collect(),
        limits: vec![keys as u32; rows],
        segments: vec![RowSegment { rows: 0..rows as u32, table: 0..table.len() as u32 }],
        tables: table.to_vec(),
        ..Launch::default()
    }
}

/// Embeddings, and what makes queries, keys and values of them.
struct Projections {
    embedding: Embedding,
    norm: Vector,
    query: Packed,
    key: Packed,
    value: Packed,
}

impl Projections {
    fn new(backend: &CpuBackend, shape: &AttentionShape) -> Result<Self, PackError> {
        let mut noise = Noise(2);
        let mut matrix = |heads: usize| noise.matrix(backend, heads * shape.head_dim, HIDDEN);
        let [query, key, value] = [matrix(shape.heads)?, matrix(shape.kv_heads)?, matrix(shape.kv_heads)?];
        // Inputs of length 1: results are then as large as the matrices' numbers.
        let norm = backend.vector(&[(HIDDEN as f32).sqrt().recip(); HIDDEN])?;
        Ok(Self { embedding: noise.table(backend, HIDDEN)?, norm, query, key, value })
    }

    /// Projects some rows of a launch.
    fn run(&self, backend: &mut CpuBackend, launch: &Launch, rows: QkvRows, kv: &mut Kv) {
        let Self { embedding, norm, query, key, value } = self;
        let weights = QkvWeights {
            norm,
            epsilon: EPSILON,
            query,
            key,
            value,
            biases: None,
            head_norms: None,
            adapters: [None; 3],
        };
        backend.begin(launch, kv);
        backend.embed(embedding);
        backend.qkv(0, &weights, rows, kv);
    }
}

/// The head over rows that all ask for the same.
pub struct HeadTrial {
    backend: CpuBackend,
    norm: Vector,
    head: Packed,
    kv: Kv,
    out: HeadOutput,
}

impl HeadTrial {
    /// Sets up a head `[vocabulary, hidden]` and `rows` rows that make a request.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(
        options: CpuOptions,
        rows: usize,
        (vocabulary, hidden): (usize, usize),
        request: HeadRequest,
    ) -> Result<Self, TrialError> {
        let mut backend = CpuBackend::new(options);
        let attention = AttentionShape { heads: 1, kv_heads: 1, head_dim: 1 };
        let (mut kv, mut table) = (backend.new_kv(&attention, 1, hidden), Vec::new());
        backend.allocate_pages(&mut kv, 1, PageKind::default(), &mut table)?;
        backend.reserve(&WorkspaceShape {
            adapter_rank: 0,
            rows,
            head_rows: rows,
            hidden,
            ffn: 0,
            experts: None,
            attention,
            vocabulary,
            table_entries: table.len(),
        })?;
        let mut noise = Noise(3);
        let head = noise.matrix(&backend, vocabulary, hidden)?;
        let (embedding, norm) = (noise.table(&backend, hidden)?, backend.vector(&vec![1.0; hidden])?);
        let mut launch = launch(0..rows, 1, &table);
        launch.head.rows = (0..rows as u32).map(|row| HeadRow { row, request: 0, key: row.into() }).collect();
        launch.head.requests = vec![request];
        backend.begin(&launch, &mut kv);
        backend.embed(&embedding);
        Ok(Self { backend, norm, head, kv, out: HeadOutput::default() })
    }

    /// Answers all rows.
    pub fn run(&mut self) {
        let Self { backend, norm, head, kv, out } = self;
        backend.head(&HeadWeights { norm, epsilon: EPSILON, head }, kv, out);
    }
}

#[cfg(test)]
mod tests {
    use demask_cpu::{isa::Isa, linear::Activations};
    use demask_tensor::Stage;

    use super::*;

    #[test]
    fn noise_in_blocks_has_numbers_alone() {
        for format in demask_tensor::BlockFormat::ALL {
            let bytes = Noise(1).blocks(64 * format.bytes());
            let mut numbers = vec![0.0_f32; format.elements()];
            for block in bytes.chunks(format.bytes()) {
                format.widen(block, &mut numbers);
                assert!(numbers.iter().all(|number| number.is_finite()), "{format}");
            }
        }
    }

    #[test]
    fn weights_take_turns_and_fill_more_than_the_caches() {
        let mut trial =
            LinearTrial::new(Linear::new(Isa::best(), Dtype::Bf16), &Pool::new(2), Dtype::Bf16, 3, 4096, 8192).unwrap();
        let count = trial.weights.len();
        assert_eq!(count, streamed_bytes().div_ceil(4096 * 8192 * 2));
        let pool = Pool::new(1);
        trial.run(&pool, 3);
        let first = trial.out.clone();
        assert!(first.iter().any(|value| *value != 0.0));
        for turn in 1..=count {
            assert_eq!(trial.next, turn % count);
            trial.out.fill(0.0);
            trial.run(&pool, 3);
            assert!(trial.out == first, "copy {turn} is another weight");
        }
        assert_eq!(trial.bytes(3), 4096 * 8192 * 2 + 3 * (trial.input.bytes() / 3 + 8192 * 4));
    }

    fn options(isa: Isa, dtype: Dtype) -> CpuOptions {
        CpuOptions { isa, dtype, quantisation: None, activations: Activations::Plain, threads: 2 }
    }

    #[test]
    fn all_keys_of_attention_are_noise_on_every_tier() {
        let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 32 };
        for isa in Isa::available() {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let mut trial = AttentionTrial::new(options(isa, dtype), shape, (300, 300)).unwrap();
                trial.run();
                for stage in [Stage::Key(0, &trial.kv), Stage::Value(0, &trial.kv)] {
                    let mut found = Vec::new();
                    trial.backend.read(stage, &mut found);
                    let rows = found.chunks_exact(64).map(|row| row.iter().map(|value| value * value).sum::<f32>());
                    let squares: Vec<f32> = rows.map(|sum| sum / 64.0).collect();
                    assert!(squares.len() == 300 && squares.iter().all(|square| *square > 0.05), "{isa:?} {dtype}");
                    let mean = squares.iter().sum::<f32>() / 300.0;
                    assert!((0.25..0.42).contains(&mean), "mean square {mean}, of noise between -1 and 1 it is 1/3");
                }
            }
        }
    }

    #[test]
    fn attention_without_memory_is_refused() {
        let shape = AttentionShape { heads: 1, kv_heads: 1, head_dim: 1 << 12 };
        let refused = AttentionTrial::new(options(Isa::best(), Dtype::F32), shape, (1, 1 << 38)).err();
        assert!(matches!(refused, Some(TrialError::Memory(_))), "{refused:?}");
    }

    #[test]
    fn a_head_answers_every_row() {
        let request = HeadRequest { entropy: true, ..HeadRequest::default() };
        for request in [HeadRequest::default(), request] {
            let entropies = if request.entropy { 5 } else { 0 };
            let mut trial = HeadTrial::new(options(Isa::best(), Dtype::F32), 5, (100, 32), request).unwrap();
            for _ in 0..2 {
                trial.run();
                assert_eq!((trial.out.tokens.len(), trial.out.entropy.len()), (5, entropies));
            }
        }
    }
}
