//! Single operations on noise, for benchmarks: what they compute is of no use, how long it takes is.

use demask_tensor::{AttentionShape, Dtype, OutOfMemory, PAGE, PackError, PageKind, TensorView};

use crate::{
    attention::{Attend, RowBlock, cut_blocks},
    elementwise::Element,
    isa::Isa,
    kv::{KvStore, Tensor},
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
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

/// One product of rows with a weight.
pub struct LinearTrial {
    linear: Linear,
    weight: Packed,
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
        let mut input = linear.new_input(rows, inputs);
        (0..rows).for_each(|row| input.set_row(row, &noise.take(inputs)));
        Ok(Self { linear, weight, input, out: vec![0.0; rows * outputs] })
    }

    /// Multiplies the first `rows` rows.
    pub fn run(&mut self, pool: &Pool, rows: usize) {
        let stride = self.weight.rows();
        let output = Output::Store { out: &mut self.out, stride };
        self.linear.matmul(pool, &self.input, rows, &self.weight, None, output);
    }

    /// Bytes that multiplying `rows` rows cannot but read and write.
    pub fn bytes(&self, rows: usize) -> usize {
        let row = self.input.bytes() / self.input.capacity().max(1) + self.weight.rows() * size_of::<f32>();
        self.weight.bytes() + rows * row
    }
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
