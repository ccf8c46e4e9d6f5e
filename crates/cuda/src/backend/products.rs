//! Products and attention, as launches: what is multiplied here, which variant does it is the kernels' affair.

use demask_tensor::{AttentionShape, DeviceError, Dtype, Quantisation, Rows};

use super::{
    commands::Part,
    launch::{Count, bucket},
    layer::{Chunk, Step},
    pages::Pages,
    weights::{Kept, Matrix},
    workspace::{padded, query_width},
};
use crate::{
    arguments::{AttendArgs, GemmArgs, GemmPart},
    gpu::{Address, Gpu},
    kernels::{
        attention::{self, Element},
        gemm::{self, End},
    },
};

/// The type of attention's products.
fn element(dtype: Dtype) -> Element {
    if dtype == Dtype::F32 { Element::F32 } else { Element::Bf16 }
}

/// The product of inputs of a type with weights that are kept in something.
pub(super) fn kind(kept: Kept, dtype: Dtype) -> gemm::Product {
    match (kept, dtype) {
        (Kept::F32, _) => gemm::Product::F32,
        (Kept::Bf16, _) => gemm::Product::Bf16,
        (Kept::Integers(Quantisation::Q8), Dtype::F32) => gemm::Product::Q8F32,
        (Kept::Integers(Quantisation::Q8), _) => gemm::Product::Q8,
        (Kept::Integers(Quantisation::Q4), Dtype::F32) => gemm::Product::Q4F32,
        (Kept::Integers(Quantisation::Q4), _) => gemm::Product::Q4,
    }
}

/// Whether there are kernels for heads of a shape.
pub(super) fn check_heads(shape: &AttentionShape, dtype: Dtype) -> Result<(), DeviceError> {
    if attention::fits(element(dtype), shape.head_dim) {
        return Ok(());
    }
    let found = shape.head_dim;
    let taken = if dtype == Dtype::F32 { "up to 256" } else { "multiples of 8 up to 256 in bf16" };
    Err(DeviceError(format!("heads have {found} numbers, GPU kernels take {taken}: use --device cpu")))
}

/// A product of a chunk with up to three matrices.
pub(super) struct Product {
    end: End,
    kept: Kept,
    args: GemmArgs,
}

impl Product {
    /// One of a chunk's inputs, `T[rows, depth]`, with matrices that are kept as `weight` is.
    pub(super) fn new<G: Gpu>(end: End, weight: &Matrix<G>, input: Address, chunk: Chunk) -> Self {
        let nothing = GemmPart {
            weight: Address::NULL,
            scales: Address::NULL,
            bias: Address::NULL,
            out: Address::NULL,
            columns: 0,
            stride: 0,
        };
        let args = GemmArgs {
            input,
            list: chunk.list,
            part: [nothing; 3],
            parts: 0,
            depth: weight.depth() as u32,
            first: 0,
            rows: chunk.rows as u32,
        };
        Self { end, kept: weight.kept(), args }
    }

    /// Adds a matrix.
    pub(super) fn add(&mut self, part: GemmPart) {
        self.args.part[self.args.parts as usize] = part;
        self.args.parts += 1;
    }

    /// Says that the inputs begin with row `first` of the list.
    pub(super) fn begin_at(&mut self, first: usize) {
        self.args.first = first as u32;
    }
}

impl<G: Gpu> Step<'_, G> {
    /// Adds a product.
    pub(super) fn multiply(&mut self, product: &Product) {
        let Product { end, kept, args } = product;
        let columns = args.part.map(|part| part.columns);
        let kernel =
            gemm::choose(&self.limits, (kind(*kept, self.dtype), *end), &columns[..args.parts as usize], args.rows);
        self.queue.push(kernel, args);
    }

    /// See [`demask_tensor::Backend::attend`].
    pub(super) fn attend(&mut self, layer: usize, rows: Rows, kv: &Pages<G>) {
        let taken = &self.work.taken;
        let count = taken.count(Count::of(rows));
        if count == 0 {
            return;
        }
        let shape = self.work.shape.attention;
        let spans = attention::spans(taken.keys).next_power_of_two();
        let args = AttendArgs {
            list: self.whole(rows),
            segment_of: self.array(taken.segment_of),
            segments: self.array(taken.segments),
            tables: self.array(taken.tables),
            limits: self.array(taken.limits),
            queries: self.work.queries.address(),
            out: self.work.attended.address(),
            partial: self.work.partial.address(),
            store: kv.store(),
            heads: shape.heads as u32,
            layer: layer as u32,
            stride: padded(query_width(&shape)) as u32,
            spans,
            scale: 1.0 / (shape.head_dim as f32).sqrt(),
            unused: 0,
        };
        let room = self.work.partial.bytes() / size_of::<f32>();
        let kernels = attention::choose(&self.limits, element(self.dtype), &shape, (bucket(count) as u32, spans), room);
        self.timed(Part::Attention, |step| {
            step.queue.push(kernels.attend, &args);
            kernels.merge.into_iter().for_each(|merge| step.queue.push(merge, &args));
        });
    }
}
