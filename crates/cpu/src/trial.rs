//! Single operations on noise, for benchmarks: what they compute is of no use, how long it takes is.

use demask_step::{HeadRequest, OutOfMemory};
use demask_tensor::{
    AttentionShape, Dtype, HeadLaunch, HeadOutput, HeadRow, PAGE, PackError, PageKind, TensorView, WorkspaceShape,
};

use crate::{
    attention::{Attend, RowBlock, cut_blocks},
    elementwise::{Element, rms_norm},
    head::{Head, HeadScratch},
    isa::Isa,
    kv::{KvStore, Tensor, memory},
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
    reading::streamed_bytes,
};

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
    /// A weight `[outputs, inputs]` and at most `rows` rows.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(linear: Linear, pool: &Pool, rows: usize, inputs: usize, outputs: usize) -> Result<Self, PackError> {
        let mut noise = Noise(1);
        let bytes: Vec<u8> =
            (0..inputs * outputs).flat_map(|_| ((noise.next().to_bits() >> 16) as u16).to_le_bytes()).collect();
        let weight = linear.pack(pool, TensorView::new(Dtype::Bf16, outputs, inputs, &bytes))?;
        drop(bytes);
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
    memory::check(needed).map_err(|source| PackError::Memory { rows, columns, source })?;
    let failed = || {
        let source = OutOfMemory { needed, available: memory::available() };
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
    isa: Isa,
    kv: KvStore,
    table: Vec<u32>,
    rows: Vec<u32>,
    limits: Vec<u32>,
    blocks: Vec<RowBlock>,
    queries: Vec<f32>,
    out: Vec<f32>,
}

impl AttentionTrial {
    /// `rows` rows over `keys` keys, K and V stored in `dtype`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(
        isa: Isa,
        dtype: Dtype,
        shape: AttentionShape,
        (rows, keys): (usize, usize),
    ) -> Result<Self, OutOfMemory> {
        let mut kv = KvStore::new(isa, shape, dtype, 1, 1);
        let mut table = Vec::new();
        kv.allocate(keys.div_ceil(PAGE), PageKind::default(), &mut table)?;
        let mut noise = Noise(2);
        match dtype {
            Dtype::Bf16 => fill::<u16>(&mut kv, &table, &mut noise),
            _ => fill::<f32>(&mut kv, &table, &mut noise),
        }
        let mut blocks = Vec::new();
        cut_blocks(&shape, (0..rows).map(|_| 0), &mut blocks);
        let width = shape.heads * shape.head_dim;
        Ok(Self {
            isa,
            kv,
            table,
            rows: (0..rows as u32).collect(),
            limits: vec![keys as u32; rows],
            blocks,
            queries: noise.take(rows * width),
            out: vec![0.0; rows * width],
        })
    }

    /// Attends.
    pub fn run(&mut self, pool: &Pool) {
        let Self { isa, kv, table, rows, limits, blocks, queries, out } = self;
        let table = |_| &table[..];
        Attend { isa: *isa, layer: 0, kv, blocks, rows, limits, table: &table, queries }.run(pool, out);
    }
}

/// Noise for every slot of some pages.
fn fill<T: Element>(kv: &mut KvStore, table: &[u32], noise: &mut Noise) {
    let shape = kv.shape();
    for slot in table.iter().flat_map(|page| (page * PAGE as u32)..(page + 1) * PAGE as u32) {
        for head in 0..shape.kv_heads {
            for tensor in [Tensor::Key, Tensor::Value] {
                let values = noise.take(shape.head_dim);
                // SAFETY: the store is borrowed exclusively, and there is only this thread.
                unsafe { kv.writer().set_head::<T>((0, tensor, head), slot, &values) }
            }
        }
    }
}

/// The head over rows that all ask for the same.
pub struct HeadTrial {
    linear: Linear,
    weight: Packed,
    launch: HeadLaunch,
    stream: Vec<f32>,
    norm: Vec<f32>,
    kv: KvStore,
    scratch: HeadScratch,
    rows: Vec<f32>,
    out: HeadOutput,
}

impl HeadTrial {
    /// A head `[vocabulary, hidden]` and `rows` rows that make a request; the pools that it runs on have at most
    /// `threads` threads.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(
        linear: Linear,
        threads: usize,
        rows: usize,
        (vocabulary, hidden): (usize, usize),
        request: HeadRequest,
    ) -> Result<Self, PackError> {
        let mut noise = Noise(3);
        let bytes: Vec<u8> = noise.take(vocabulary * hidden).iter().flat_map(|value| value.to_le_bytes()).collect();
        let weight = linear.pack(&Pool::new(threads), TensorView::new(Dtype::F32, vocabulary, hidden, &bytes))?;
        let attention = AttentionShape { heads: 1, kv_heads: 1, head_dim: 1 };
        let shape = WorkspaceShape {
            rows,
            head_rows: rows,
            hidden,
            ffn: 0,
            experts: None,
            attention,
            vocabulary,
            table_entries: 0,
        };
        let failed = |source| PackError::Memory { rows: vocabulary, columns: hidden, source };
        Ok(Self {
            weight,
            launch: HeadLaunch {
                rows: (0..rows as u32).map(|row| HeadRow { row, request: 0, key: row.into() }).collect(),
                requests: vec![request],
                ..HeadLaunch::default()
            },
            stream: noise.take(rows * hidden),
            norm: vec![1.0; hidden],
            kv: KvStore::new(linear.isa(), attention, linear.dtype(), 1, hidden),
            scratch: HeadScratch::new(&shape, &linear, threads).map_err(failed)?,
            rows: vec![0.0; threads * 2 * hidden],
            out: HeadOutput::default(),
            linear,
        })
    }

    /// Answers all rows.
    pub fn run(&mut self, pool: &Pool) {
        let Self { linear, weight, launch, stream, norm, kv, scratch, rows, out } = self;
        let isa = linear.isa();
        Head { isa, pool, linear, launch, stream, norm, epsilon: 1e-6, weight }.run(kv, scratch, rows, out);
    }
}

/// Norms of rows, on one thread.
pub struct NormTrial {
    isa: Isa,
    rows: Vec<f32>,
    weight: Vec<f32>,
    out: Vec<f32>,
}

impl NormTrial {
    /// `rows` rows of `width` numbers.
    pub fn new(isa: Isa, rows: usize, width: usize) -> Self {
        let mut noise = Noise(4);
        Self { isa, rows: noise.take(rows * width), weight: noise.take(width), out: vec![0.0; width] }
    }

    /// Norms all rows.
    pub fn run(&mut self) {
        for row in self.rows.chunks_exact(self.weight.len()) {
            rms_norm(self.isa, row, &self.weight, 1e-6, &mut self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn weights_take_turns_and_fill_more_than_the_caches() {
        let mut trial = LinearTrial::new(Linear::new(Isa::best(), Dtype::Bf16), &Pool::new(2), 3, 4096, 8192).unwrap();
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

    #[test]
    fn a_head_answers_every_row() {
        let request = HeadRequest { entropy: true, ..HeadRequest::default() };
        for request in [HeadRequest::default(), request] {
            let entropies = if request.entropy { 5 } else { 0 };
            let mut trial = HeadTrial::new(Linear::new(Isa::best(), Dtype::F32), 2, 5, (100, 32), request).unwrap();
            trial.run(&Pool::new(2));
            assert_eq!((trial.out.tokens.len(), trial.out.entropy.len()), (5, entropies));
        }
    }
}
