//! The operations of a layer, as launches.
//!
//! Products take compact inputs, a chunk of a list of rows at a time. Lists, positions and everything else about rows is
//! read from the launch on the device; on this side only buckets are known, which size the grids.

use demask_tensor::{Dtype, MlpWeights, QkvRows, QkvWeights, Rows};

use super::{
    CudaBackend, Rotation,
    commands::{Part, Queue},
    launch::{Array, CHUNK, Count, bucket},
    pages::Pages,
    products::Product,
    weights::{Embedding, Matrix, Vector},
    workspace::{Workspace, padded, query_width},
};
use crate::{
    arguments::{
        ChooseArgs, CompareArgs, CopyArgs, EmbedArgs, HeadsArgs, IncrementArgs, KeepArgs, List, MarkArgs,
        NormaliseArgs, RollArgs, heads,
    },
    gpu::{Address, Gpu, Limits},
    kernels::{copies, gemm::End, partial, rows},
};

/// Context of an operation.
pub(super) struct Step<'a, G: Gpu> {
    pub(super) limits: Limits,
    pub(super) dtype: Dtype,
    pub(super) queue: &'a mut Queue<G>,
    pub(super) work: &'a mut Workspace<G>,
    pub(super) rotation: &'a Rotation<G>,
    pub(super) query_rotation: &'a Rotation<G>,
    pub(super) marked: &'a mut Option<Rows>,
}

/// A chunk of a list of rows.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub(super) list: List,
    /// Index of its first row in the list.
    pub(super) first: usize,
    /// Rows that there is room for.
    pub(super) rows: usize,
}

/// The chunks of a list.
struct Chunks {
    rows: Address,
    /// Addresses of the counts of chunks.
    counts: Address,
    /// Rows of the list's bucket.
    room: usize,
    first: usize,
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let first = self.first;
        if first >= self.room {
            return None;
        }
        self.first += CHUNK;
        let (rows, count) = (first * size_of::<u32>(), first / CHUNK * size_of::<u32>());
        let list = List { rows: self.rows.offset(rows), count: self.counts.offset(count) };
        Some(Chunk { list, first, rows: CHUNK.min(self.room - first) })
    }
}

/// One of the three projections.
struct Projection<'a, G: Gpu> {
    weight: &'a Matrix<G>,
    bias: Option<&'a Vector<G>>,
    head_norm: Option<&'a Vector<G>>,
    epsilon: f32,
}

/// Index of the query's buffer.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

fn projections<'a, G: Gpu>(weights: &QkvWeights<'a, CudaBackend<G>>) -> [Projection<'a, G>; 3] {
    let matrices = [weights.query, weights.key, weights.value];
    std::array::from_fn(|index| Projection {
        weight: matrices[index],
        bias: weights.biases.map(|biases| biases[index]),
        head_norm: weights.head_norms.and_then(|norms| norms.get(index).copied()),
        epsilon: weights.epsilon,
    })
}

/// Treatment of projected heads.
struct Finish<'a, G: Gpu> {
    projection: usize,
    norm: Option<&'a Vector<G>>,
    epsilon: f32,
    /// Records whether they are rotated.
    rotated: bool,
    layer: usize,
    target: u32,
}

impl<G: Gpu> Step<'_, G> {
    /// An address in the launch's buffer.
    pub(super) fn at(&self, offset: usize) -> Address {
        self.work.launch.address().offset(offset)
    }

    pub(super) fn array(&self, array: Array) -> Address {
        self.at(array.at)
    }

    pub(super) fn count_at(&self, of: Count) -> Address {
        self.at(of.at())
    }

    /// Live rows.
    pub(super) fn rows(&self) -> usize {
        self.work.packed.count(Count::Live)
    }

    /// Adds launches of a kind whose time is told apart.
    pub(super) fn timed(&mut self, part: Part, add: impl FnOnce(&mut Self)) {
        let began = self.queue.begin_part();
        add(self);
        self.queue.end_part(part, began);
    }

    /// A whole set of rows.
    pub(super) fn whole(&self, rows: Rows) -> List {
        List { rows: self.work.rows(rows), count: self.count_at(Count::of(rows)) }
    }

    /// The chunks of `counted` rows that are listed at `rows`.
    fn chunks(&self, rows: Address, counted: Count) -> Chunks {
        let taken = &self.work.packed;
        let room = match taken.count(counted) {
            0 => 0,
            count => bucket(count),
        };
        Chunks { rows, counts: self.at(taken.chunk_count_at(counted, 0)), room, first: 0 }
    }

    fn chunks_of(&self, rows: Rows) -> Chunks {
        self.chunks(self.work.rows(rows), Count::of(rows))
    }

    /// Copies slots, then pages, as the launch says.
    pub(super) fn copy(&mut self, kv: &Pages<G>) {
        let taken = &self.work.packed;
        let (keeps, pages) = (taken.count(Count::Keeps), taken.count(Count::Copies));
        let (store, layers, element) = (kv.store(), kv.layout.layers, self.dtype.size() as u32);
        let (kept, copied) = (self.array(taken.keeps), self.array(taken.copies));
        if keeps > 0 {
            let args = KeepArgs { copies: kept, count: self.count_at(Count::Keeps), store, element, unused: 0 };
            self.queue.push(copies::keep_slots(bucket(keeps), layers), &args);
        }
        if pages > 0 {
            let args = CopyArgs { copies: copied, count: self.count_at(Count::Copies), store, element, unused: 0 };
            self.queue.push(copies::copy_pages(bucket(pages), layers), &args);
        }
    }

    pub(super) fn embed(&mut self, table: &Embedding<G>) {
        let args = EmbedArgs {
            table: table.address(),
            ids: self.array(self.work.packed.ids),
            count: self.count_at(Count::Live),
            stream: self.work.stream.address(),
            hidden: table.hidden() as u32,
            unused: 0,
        };
        self.queue.push(rows::embed(table.dtype(), bucket(self.rows())), &args);
    }

    /// Norms a chunk into the product's inputs.
    fn normalise(&mut self, chunk: Chunk, norm: (&Vector<G>, f32)) {
        let out = self.work.input.address();
        self.push_normalise(chunk.list, chunk.rows, (out, self.dtype), norm);
    }

    /// Norms all rows of the residual stream, in a type, to `[rows, padded hidden]`.
    pub(super) fn normalise_to(&mut self, out: Address, dtype: Dtype, norm: (&Vector<G>, f32)) {
        self.push_normalise(self.whole(Rows::Live), bucket(self.rows()), (out, dtype), norm);
    }

    fn push_normalise(
        &mut self,
        list: List,
        room: usize,
        (out, dtype): (Address, Dtype),
        (weight, epsilon): (&Vector<G>, f32),
    ) {
        let hidden = self.work.shape.hidden;
        debug_assert_eq!(weight.len(), hidden, "width of a norm");
        let args = NormaliseArgs {
            list,
            stream: self.work.stream.address(),
            weight: weight.address(),
            out,
            hidden: hidden as u32,
            stride: padded(hidden) as u32,
            epsilon,
            unused: 0,
        };
        self.queue.push(rows::normalise(dtype, room), &args);
    }

    /// See [`demask_tensor::Backend::qkv`]: rows are normed once for each distinct set of rows, and all projections of
    /// a set that are kept in the same number format are one launch.
    pub(super) fn qkv(&mut self, layer: usize, weights: &QkvWeights<'_, CudaBackend<G>>, rows: QkvRows, kv: &Pages<G>) {
        let projections = projections(weights);
        let sets = [rows.query, rows.key, rows.value];
        for (index, &set) in sets.iter().enumerate() {
            if sets[..index].contains(&set) {
                continue;
            }
            for chunk in self.chunks_of(set) {
                self.normalise(chunk, (weights.norm, weights.epsilon));
                let wanted = sets.map(|other| other == set);
                self.project(&projections, wanted, chunk);
                for which in (0..3).filter(|&which| wanted[which]) {
                    let target = [heads::QUERIES, heads::KEYS, heads::VALUES][which];
                    self.finish(chunk, &Self::finish_of(&projections, which, layer, target), kv);
                }
            }
        }
    }

    fn finish_of<'p>(projections: &[Projection<'p, G>; 3], which: usize, layer: usize, target: u32) -> Finish<'p, G> {
        let Projection { head_norm, epsilon, .. } = projections[which];
        Finish { projection: which, norm: head_norm, epsilon, rotated: which != VALUE, layer, target }
    }

    /// The wanted projections of the normed rows of a chunk: those that are kept in the same numbers together.
    fn project(&mut self, projections: &[Projection<'_, G>; 3], wanted: [bool; 3], chunk: Chunk) {
        let input = self.work.input.address();
        let mut left = wanted;
        for first in 0..3 {
            if !left[first] {
                continue;
            }
            let weight = projections[first].weight;
            let mut product = Product::new(End::Store, weight, input, chunk);
            for which in first..3 {
                let Projection { weight: other, bias, .. } = projections[which];
                if left[which] && other.format() == weight.format() {
                    left[which] = false;
                    product.add(other.part(bias, self.work.projected[which].address(), other.rows()));
                }
            }
            self.timed(Part::Linear, |step| step.multiply(&product));
        }
    }

    /// Finishes projected heads of a chunk.
    fn finish(&mut self, chunk: Chunk, finish: &Finish<'_, G>, kv: &Pages<G>) {
        let shape = self.work.shape.attention;
        let rotation = if finish.projection == QUERY { self.query_rotation } else { self.rotation };
        let args = HeadsArgs {
            list: chunk.list,
            projected: self.work.projected[finish.projection].address(),
            norm: finish.norm.map_or(Address::NULL, Vector::address),
            cos: rotation.cos.address(),
            sin: rotation.sin.address(),
            positions: self.array(self.work.packed.positions),
            slots: self.array(self.work.packed.slots),
            out: self.work.queries.address(),
            store: kv.store(),
            heads: (if finish.projection == QUERY { shape.heads } else { shape.kv_heads }) as u32,
            head_dim: shape.head_dim as u32,
            half: (if finish.rotated { rotation.half } else { 0 }) as u32,
            epsilon: finish.epsilon,
            layer: finish.layer as u32,
            target: finish.target,
        };
        self.queue.push(rows::heads(self.dtype, chunk.rows), &args);
    }

    /// See [`demask_tensor::Backend::select`].
    pub(super) fn select(&mut self, layer: usize, weights: &QkvWeights<'_, CudaBackend<G>>, kv: &Pages<G>) {
        *self.marked = None;
        if self.work.packed.rolls {
            self.roll(layer);
        }
        let projections = projections(weights);
        for (index, which, counted) in [(0, VALUE, Count::Values), (1, KEY, Count::Keys)] {
            let array = self.work.packed.compared[index];
            for chunk in self.chunks(self.array(array), counted) {
                self.normalise(chunk, (weights.norm, weights.epsilon));
                self.project(&projections, std::array::from_fn(|other| other == which), chunk);
                let finish = Self::finish_of(&projections, which, layer, heads::IN_PLACE);
                self.finish(chunk, &finish, kv);
                self.compare(index, chunk, layer, kv);
                // Finished already: this writes them as they are.
                let target = if which == KEY { heads::KEYS } else { heads::VALUES };
                self.finish(chunk, &Finish { norm: None, rotated: false, target, ..finish }, kv);
            }
        }
        self.choose();
    }

    fn roll(&mut self, layer: usize) {
        let taken = &self.work.packed;
        let args = RollArgs {
            probes: self.array(taken.probes),
            count: self.count_at(Count::Probes),
            probed: self.array(taken.probed),
            positions: self.array(taken.positions),
            scores: self.work.scores.address(),
            layer: layer as u32,
            unused: 0,
        };
        self.queue.push(partial::roll(bucket(taken.count(Count::Probes))), &args);
    }

    fn compare(&mut self, index: usize, chunk: Chunk, layer: usize, kv: &Pages<G>) {
        let which = [VALUE, KEY][index];
        let args = CompareArgs {
            list: chunk.list,
            places: self.array(self.work.packed.places[index]).offset(chunk.first * size_of::<u32>()),
            fresh: self.work.projected[which].address(),
            slots: self.array(self.work.packed.slots),
            scores: self.work.scores.address(),
            store: kv.store(),
            layer: layer as u32,
            value: u32::from(which == VALUE),
        };
        self.queue.push(partial::compare(self.dtype, chunk.rows), &args);
    }

    fn choose(&mut self) {
        let taken = &self.work.packed;
        let args = ChooseArgs {
            fixed: self.whole(Rows::Fixed),
            probes: self.array(taken.probes),
            count: self.count_at(Count::Probes),
            probed: self.array(taken.probed),
            scores: self.work.scores.address(),
            live: self.count_at(Count::Live),
            flags: self.work.flags(),
            computed: List { rows: self.work.computed(), count: self.work.computed_count() },
        };
        self.queue.push(partial::choose(), &args);
    }

    /// See [`demask_tensor::Backend::project_add`].
    pub(super) fn project_add(&mut self, weight: &Matrix<G>, rows: Rows) {
        let stride = padded(query_width(&self.work.shape.attention));
        for chunk in self.chunks_of(rows) {
            let input = self.work.attended.address().offset(chunk.first * stride * self.dtype.size());
            self.multiply_add(input, chunk, weight);
        }
    }

    /// Residual stream `+=` a product.
    fn multiply_add(&mut self, input: Address, chunk: Chunk, weight: &Matrix<G>) {
        let mut product = Product::new(End::Add, weight, input, chunk);
        product.add(weight.part(None, self.work.stream.address(), self.work.shape.hidden));
        self.timed(Part::Linear, |step| step.multiply(&product));
    }

    /// See [`demask_tensor::Backend::mlp`].
    pub(super) fn mlp(&mut self, weights: &MlpWeights<'_, CudaBackend<G>>, rows: Rows) {
        for chunk in self.chunks_of(rows) {
            self.normalise(chunk, (weights.norm, weights.epsilon));
            let (input, ffn) = (self.work.input.address(), self.work.ffn.address());
            let mut product = Product::new(End::Silu, weights.gate_up, input, chunk);
            product.add(weights.gate_up.part(None, ffn, padded(self.work.shape.ffn)));
            self.timed(Part::Linear, |step| step.multiply(&product));
            self.multiply_add(ffn, chunk, weights.down);
        }
    }

    /// Marks the rows of a set, and no others.
    fn mark(&mut self, rows: Rows) {
        if *self.marked != Some(rows) {
            let args = MarkArgs { list: self.whole(rows), live: self.count_at(Count::Live), flags: self.work.flags() };
            self.queue.push(partial::mark(), &args);
            *self.marked = Some(rows);
        }
    }

    /// Arguments of the kernels of increments, for a list.
    fn increments(&self, list: List, layer: usize, kv: &Pages<G>) -> IncrementArgs {
        IncrementArgs {
            list,
            flags: self.work.flags(),
            slots: self.array(self.work.packed.slots),
            stream: self.work.stream.address(),
            store: kv.store(),
            layer: layer as u32,
            unused: 0,
        }
    }

    fn held(&self) -> List {
        List { rows: self.array(self.work.packed.held), count: self.count_at(Count::Held) }
    }

    /// See [`demask_tensor::Backend::hold`].
    pub(super) fn hold(&mut self, layer: usize, rows: Rows, kv: &Pages<G>) {
        let held = self.work.packed.count(Count::Held);
        if held > 0 {
            self.mark(rows);
            let args = self.increments(self.held(), layer, kv);
            self.queue.push(partial::hold(bucket(held)), &args);
        }
    }

    /// See [`demask_tensor::Backend::settle`].
    pub(super) fn settle(&mut self, layer: usize, rows: Rows, kv: &Pages<G>) {
        self.mark(rows);
        let held = self.work.packed.count(Count::Held);
        if held > 0 {
            let args = self.increments(self.held(), layer, kv);
            self.queue.push(partial::settle_held(bucket(held)), &args);
        }
        if rows != Rows::Live {
            let args = self.increments(self.whole(Rows::Live), layer, kv);
            self.queue.push(partial::settle_rest(bucket(self.rows())), &args);
        }
    }
}
