//! Products and attention, as launches: the operands here, the variant in the kernels.

use demask_tensor::{Dtype, Quantisation, Rows};

use super::{
    commands::Part,
    launch::{Count, bucket},
    layer::{Chunk, Step},
    pages::Pages,
    weights::{Matrix, MatrixFormat},
    workspace::{padded, query_width},
};
use crate::{
    arguments::{AttendArgs, GemmArgs, GemmPart},
    gpu::{Address, Gpu},
    kernels::{
        attention::{self, Attention, Element},
        gemm::{self, End},
    },
};

/// The type of attention's products.
pub(super) fn element(dtype: Dtype) -> Element {
    if dtype == Dtype::F32 { Element::F32 } else { Element::Bf16 }
}

/// The product of inputs of a type with weights that are kept in something.
pub(super) fn kind(format: MatrixFormat, dtype: Dtype) -> gemm::Product {
    match (format, dtype) {
        (MatrixFormat::F32, _) => gemm::Product::F32,
        (MatrixFormat::Bf16, _) => gemm::Product::Bf16,
        (MatrixFormat::Integers(Quantisation::Q8), Dtype::F32) => gemm::Product::Q8F32,
        (MatrixFormat::Integers(Quantisation::Q8), _) => gemm::Product::Q8,
        (MatrixFormat::Integers(Quantisation::Q4), Dtype::F32) => gemm::Product::Q4F32,
        (MatrixFormat::Integers(Quantisation::Q4), _) => gemm::Product::Q4,
    }
}

/// A product of a chunk with up to three matrices.
pub(super) struct Product {
    end: End,
    format: MatrixFormat,
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
        Self { end, format: weight.format(), args }
    }

    /// Adds a matrix.
    pub(super) fn add(&mut self, part: GemmPart) {
        self.args.part[self.args.parts as usize] = part;
        self.args.parts += 1;
    }

    /// Sets the row of the list with which the inputs begin.
    pub(super) fn begin_at(&mut self, first: usize) {
        self.args.first = first as u32;
    }
}

impl<G: Gpu> Step<'_, G> {
    /// Adds a product.
    pub(super) fn multiply(&mut self, product: &Product) {
        let Product { end, format, args } = product;
        let columns = args.part.map(|part| part.columns);
        let kernel =
            gemm::choose(&self.limits, (kind(*format, self.dtype), *end), &columns[..args.parts as usize], args.rows);
        self.queue.push(kernel, args);
    }

    /// The ways in which a set of rows can be attended, the one that steps take first; none for no rows.
    pub(super) fn ways(&self, rows: Rows) -> impl Iterator<Item = Attention> + use<G> {
        let count = self.work.packed.count(Count::of(rows));
        let (shape, room) = (self.work.shape.attention, self.work.partial.bytes() / size_of::<f32>());
        let size = (bucket(count) as u32, self.spans());
        attention::ways(&self.limits, element(self.dtype), &shape, size, room).take(if count == 0 { 0 } else { 2 })
    }

    /// Spans that any row sees.
    fn spans(&self) -> u32 {
        attention::spans(self.work.packed.keys).next_power_of_two()
    }

    /// See [`demask_tensor::Backend::attend`].
    pub(super) fn attend(&mut self, layer: usize, rows: Rows, kv: &Pages<G>) {
        if let Some(way) = self.ways(rows).next() {
            self.attend_by(way, layer, rows, kv);
        }
    }

    /// Runs attention in one of the [ways](Self::ways).
    pub(super) fn attend_by(&mut self, way: Attention, layer: usize, rows: Rows, kv: &Pages<G>) {
        let taken = &self.work.packed;
        let shape = self.work.shape.attention;
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
            spans: self.spans(),
            scale: 1.0 / (shape.head_dim as f32).sqrt(),
            unused: 0,
        };
        self.timed(Part::Attention, |step| {
            step.queue.push(way.attend, &args);
            way.merge.into_iter().for_each(|merge| step.queue.push(merge, &args));
        });
    }
}
