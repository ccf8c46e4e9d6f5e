//! The operations of a layer, on the workspace.

use demask_tensor::{Dtype, MlpWeights, QkvRows, QkvWeights, Rows};

use super::{
    CpuBackend,
    clock::{Clock, Part},
    workspace::{CHUNK, Workspace, kv_width, query_width},
};
use crate::{
    attention::{Attend, cut_blocks},
    elementwise::{Element, HeadFinish, Rotation, Shared, for_ranges, rms_norm, round_row},
    isa::Isa,
    kv::{KvStore, Tensor},
    linear::{InputBuffer, Linear, Output, Packed},
    pool::Pool,
};

/// What every operation uses and none changes.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) isa: Isa,
    pub(super) pool: &'a Pool,
    pub(super) linear: &'a Linear,
    pub(super) rotation: &'a Rotation,
    pub(super) clock: &'a Clock,
}

/// A norm's weight and epsilon.
#[derive(Clone, Copy)]
struct Norm<'a> {
    weight: &'a [f32],
    epsilon: f32,
}

impl Tools<'_> {
    fn bf16(&self) -> bool {
        self.linear.dtype() == Dtype::Bf16
    }

    /// Norms rows of the stream into an input buffer.
    fn normalise(&self, rows: &[u32], norm: Norm<'_>, stream: &[f32], scratch: &mut [f32], input: &mut InputBuffer) {
        let hidden = norm.weight.len();
        let (writer, scratch) = (input.writer(), Shared::new(scratch));
        for_ranges(self.pool, rows.len(), self.pool.threads(), |part, range| {
            // SAFETY: the part is this task's alone.
            let normed = unsafe { scratch.row(part, hidden) };
            for index in range {
                let start = rows[index] as usize * hidden;
                rms_norm(self.isa, &stream[start..start + hidden], norm.weight, norm.epsilon, normed);
                // SAFETY: each row is in one range.
                unsafe { writer.set_row(index, normed) }
            }
        });
    }
}

/// One of the three projections.
#[derive(Clone, Copy)]
struct Projection<'a> {
    weight: &'a Packed,
    bias: Option<&'a [f32]>,
    head_norm: Option<(&'a [f32], f32)>,
}

/// The projections of a layer: q, K, V.
struct Projections<'a> {
    norm: Norm<'a>,
    parts: [Projection<'a>; 3],
}

impl<'a> Projections<'a> {
    fn new(weights: &QkvWeights<'a, CpuBackend>) -> Self {
        let bias = |index: usize| weights.biases.map(|biases| biases[index].as_slice());
        let head_norm = |index: usize| weights.head_norms.map(|norms| (norms[index].as_slice(), weights.epsilon));
        Self {
            norm: Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon },
            parts: [
                Projection { weight: weights.query, bias: bias(0), head_norm: head_norm(0) },
                Projection { weight: weights.key, bias: bias(1), head_norm: head_norm(1) },
                Projection { weight: weights.value, bias: bias(2), head_norm: None },
            ],
        }
    }

    fn of(&self, tensor: Tensor) -> Projection<'a> {
        self.parts[if tensor == Tensor::Key { 1 } else { 2 }]
    }
}

/// See [`demask_tensor::Backend::qkv`]: rows are normed once for each distinct set of rows.
pub(super) fn qkv(
    tools: Tools<'_>,
    work: &mut Workspace,
    layer: usize,
    weights: &QkvWeights<'_, CpuBackend>,
    rows: QkvRows,
    kv: &mut KvStore,
) {
    let projections = Projections::new(weights);
    let sets = [rows.query, rows.key, rows.value];
    for (index, &set) in sets.iter().enumerate() {
        if sets[..index].contains(&set) {
            continue;
        }
        let count = work.taken.list(set).len();
        for first in (0..count).step_by(CHUNK) {
            let last = (first + CHUNK).min(count);
            let list = &work.taken.list(set)[first..last];
            let stream = work.stream.as_slice::<f32>();
            let scratch = work.scratch.as_mut_slice::<f32>();
            tools.normalise(list, projections.norm, stream, scratch, &mut work.hidden_input);
            if rows.query == set {
                project_queries(tools, work, projections.parts[0], set, first..last);
            }
            for (tensor, wanted) in [(Tensor::Key, rows.key), (Tensor::Value, rows.value)] {
                if wanted == set {
                    let list = &work.taken.list(set)[first..last];
                    let fresh = work.fresh.as_mut_slice::<f32>();
                    let slots = (&work.taken.launch.slots[..], &work.taken.launch.positions[..]);
                    let fresh = Fresh { tools, list, slots: slots.0, positions: slots.1, layer, tensor, values: fresh };
                    fresh.project(projections.of(tensor), &work.hidden_input, kv).store(kv);
                }
            }
        }
    }
}

/// Queries of the normed rows, to the part `range` of the workspace's queries.
fn project_queries(
    tools: Tools<'_>,
    work: &mut Workspace,
    projection: Projection<'_>,
    set: Rows,
    range: std::ops::Range<usize>,
) {
    let width = query_width(&work.shape.attention);
    let queries = &mut work.queries.as_mut_slice::<f32>()[range.start * width..range.end * width];
    let store = Output::Store { out: &mut *queries, stride: width };
    let (input, count) = (&work.hidden_input, range.len());
    tools.clock.time(Part::Linear, || {
        tools.linear.matmul(tools.pool, input, count, projection.weight, projection.bias, store);
    });
    let list = &work.taken.list(set)[range];
    finish_heads(tools, projection, work.shape.attention.head_dim, list, &work.taken.launch.positions, queries);
}

/// Per-head norm, rotation and rounding of rows of q or K.
fn finish_heads(
    tools: Tools<'_>,
    projection: Projection<'_>,
    head_dim: usize,
    list: &[u32],
    positions: &[u32],
    values: &mut [f32],
) {
    let finish = HeadFinish {
        isa: tools.isa,
        head_dim,
        norm: projection.head_norm,
        rotation: tools.rotation,
        round: tools.bf16(),
    };
    let width = projection.weight.rows();
    let values = Shared::new(values);
    for_ranges(tools.pool, list.len(), tools.pool.threads(), |_, range| {
        for index in range {
            // SAFETY: each row is in one range.
            finish.finish(unsafe { values.row(index, width) }, positions[list[index] as usize]);
        }
    });
}

/// Fresh K or V of some rows, as they will be stored.
struct Fresh<'a> {
    tools: Tools<'a>,
    list: &'a [u32],
    slots: &'a [u32],
    positions: &'a [u32],
    layer: usize,
    tensor: Tensor,
    /// `[rows of the list, kv width]`.
    values: &'a mut [f32],
}

impl Fresh<'_> {
    /// Projects the rows that stand in `input`.
    fn project(self, projection: Projection<'_>, input: &InputBuffer, kv: &KvStore) -> Self {
        let Self { tools, list, .. } = self;
        let (shape, count) = (kv.shape(), list.len());
        let width = kv_width(&shape);
        let store = Output::Store { out: &mut self.values[..count * width], stride: width };
        tools.clock.time(Part::Linear, || {
            tools.linear.matmul(tools.pool, input, count, projection.weight, projection.bias, store);
        });
        match self.tensor {
            Tensor::Key => finish_heads(tools, projection, shape.head_dim, list, self.positions, self.values),
            Tensor::Value if tools.bf16() => round_row(&mut self.values[..count * width]),
            Tensor::Value => {}
        }
        self
    }

    /// Writes them to their rows' slots.
    fn store(&self, kv: &mut KvStore) {
        match kv.dtype() {
            Dtype::Bf16 => self.store_as::<u16>(kv),
            _ => self.store_as::<f32>(kv),
        }
    }

    /// Each head by one task: rows that share cache lines of a page, or by mistake a slot, never meet.
    fn store_as<T: Element>(&self, kv: &mut KvStore) {
        let shape = kv.shape();
        let width = kv_width(&shape);
        let writer = kv.writer();
        self.tools.pool.run(shape.kv_heads, &|head| {
            for (index, &row) in self.list.iter().enumerate() {
                let values = &self.values[index * width + head * shape.head_dim..][..shape.head_dim];
                // SAFETY: the head is this task's alone.
                unsafe { writer.set_head::<T>((self.layer, self.tensor, head), self.slots[row as usize], values) }
            }
        });
    }

    /// Cosines with what is stored in the rows' slots.
    fn compare(&self, kv: &KvStore, scratch: &mut [f32], take: &(dyn Fn(usize, f32) + Sync)) {
        match kv.dtype() {
            Dtype::Bf16 => self.compare_as::<u16>(kv, scratch, take),
            _ => self.compare_as::<f32>(kv, scratch, take),
        }
    }

    fn compare_as<T: Element>(&self, kv: &KvStore, scratch: &mut [f32], take: &(dyn Fn(usize, f32) + Sync)) {
        let width = kv_width(&kv.shape());
        let scratch = Shared::new(scratch);
        for_ranges(self.tools.pool, self.list.len(), self.tools.pool.threads(), |part, range| {
            // SAFETY: the part is this task's alone.
            let stored = unsafe { scratch.row(part, width) };
            for index in range {
                kv.read_row::<T>(self.slots[self.list[index] as usize], self.layer, self.tensor, stored);
                let fresh = &self.values[index * width..(index + 1) * width];
                take(index, crate::elementwise::cosine(self.tools.isa, fresh, stored));
            }
        });
    }
}

/// See [`demask_tensor::Backend::select`].
pub(super) fn select(
    tools: Tools<'_>,
    work: &mut Workspace,
    layer: usize,
    weights: &QkvWeights<'_, CpuBackend>,
    kv: &mut KvStore,
) {
    use crate::select::{Candidate, choose, probed_tensor, roll, rows_that_compare};
    use demask_tensor::ProbeTensor;

    let projections = Projections::new(weights);
    let Workspace { taken, candidates, .. } = work;
    candidates.clear();
    candidates.extend(taken.launch.probed.iter().map(|&row| Candidate { row, score: 0.0 }));
    roll(&taken.launch, layer, candidates);
    for probe in [ProbeTensor::Value, ProbeTensor::Key] {
        let Workspace { taken, candidates, compared, places, stream, scratch, fresh, hidden_input, .. } = &mut *work;
        rows_that_compare(&taken.launch, probe, compared, places);
        for (list, places) in compared.chunks(CHUNK).zip(places.chunks(CHUNK)) {
            let scratch = scratch.as_mut_slice::<f32>();
            tools.normalise(list, projections.norm, stream.as_slice(), scratch, hidden_input);
            let tensor = probed_tensor(probe);
            let (slots, positions) = (&taken.launch.slots[..], &taken.launch.positions[..]);
            let fresh = Fresh { tools, list, slots, positions, layer, tensor, values: fresh.as_mut_slice() };
            let fresh = fresh.project(projections.of(tensor), hidden_input, kv);
            let scores = Shared::new(candidates);
            fresh.compare(kv, scratch, &|index, cosine| {
                // SAFETY: each row of the list has a place of its own, and is compared once.
                unsafe { scores.row(places[index] as usize, 1)[0].score = f64::from(cosine) }
            });
            fresh.store(kv);
        }
    }
    let Workspace { taken, candidates, .. } = work;
    choose(&taken.launch, candidates, &mut taken.computed);
}

/// See [`demask_tensor::Backend::attend`].
pub(super) fn attend(tools: Tools<'_>, work: &mut Workspace, layer: usize, rows: Rows, kv: &KvStore) {
    let Workspace { taken, blocks, queries, attended, shape, .. } = work;
    let list = taken.list(rows);
    cut_blocks(&shape.attention, list.iter().map(|&row| taken.segment_of[row as usize]), blocks);
    let launch = &taken.launch;
    let table = |segment: u32| {
        let range = &launch.segments[segment as usize].table;
        &launch.tables[range.start as usize..range.end as usize]
    };
    let attend = Attend {
        isa: tools.isa,
        layer,
        kv,
        blocks,
        rows: list,
        limits: &launch.limits,
        table: &table,
        queries: queries.as_slice(),
    };
    tools.clock.time(Part::Attention, || attend.run(tools.pool, attended.as_mut_slice()));
}

/// See [`demask_tensor::Backend::project_add`].
pub(super) fn project_add(tools: Tools<'_>, work: &mut Workspace, weight: &Packed, rows: Rows) {
    let Workspace { taken, attended, attended_input, stream, shape, .. } = work;
    let width = query_width(&shape.attention);
    let attended = attended.as_slice::<f32>();
    for (chunk, list) in taken.list(rows).chunks(CHUNK).enumerate() {
        let writer = attended_input.writer();
        for_ranges(tools.pool, list.len(), tools.pool.threads(), |_, range| {
            for index in range {
                let start = (chunk * CHUNK + index) * width;
                // SAFETY: each row is in one range.
                unsafe { writer.set_row(index, &attended[start..start + width]) }
            }
        });
        let output = Output::Add { residual: stream.as_mut_slice(), stride: shape.hidden, rows: Some(list) };
        tools
            .clock
            .time(Part::Linear, || tools.linear.matmul(tools.pool, attended_input, list.len(), weight, None, output));
    }
}

/// See [`demask_tensor::Backend::mlp`].
pub(super) fn mlp(tools: Tools<'_>, work: &mut Workspace, weights: &MlpWeights<'_, CpuBackend>, rows: Rows) {
    let Workspace { taken, hidden_input, ffn_input, stream, scratch, shape, .. } = work;
    let norm = Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon };
    for list in taken.list(rows).chunks(CHUNK) {
        tools.normalise(list, norm, stream.as_slice(), scratch.as_mut_slice(), hidden_input);
        tools.clock.time(Part::Linear, || {
            tools.linear.gate_up(tools.pool, hidden_input, list.len(), weights.gate_up, ffn_input);
        });
        let output = Output::Add { residual: stream.as_mut_slice(), stride: shape.hidden, rows: Some(list) };
        tools
            .clock
            .time(Part::Linear, || tools.linear.matmul(tools.pool, ffn_input, list.len(), weights.down, None, output));
    }
}

/// What happens to the increments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Increments {
    /// `increment = -x` for held rows of the set.
    Hold,
    /// `increment += x` for held rows of the set, `x += increment` for all rows outside of it.
    Settle,
}

/// See [`demask_tensor::Backend::hold`] and [`demask_tensor::Backend::settle`].
pub(super) fn keep_increments(
    tools: Tools<'_>,
    work: &mut Workspace,
    layer: usize,
    rows: Rows,
    kv: &mut KvStore,
    what: Increments,
) {
    let Workspace { taken, marked, stream, shape, .. } = work;
    let (launch, hidden) = (&taken.launch, shape.hidden);
    let marked = &mut marked[..launch.len()];
    marked.fill(false);
    taken.list(rows).iter().for_each(|&row| marked[row as usize] = true);
    let stream = Shared::new(stream.as_mut_slice::<f32>());
    let writer = kv.writer();
    // Each range of columns by one task, whole cache lines of them: rows never meet, whatever their slots.
    let lines = hidden.div_ceil(16);
    for_ranges(tools.pool, lines, tools.pool.threads(), |_, range| {
        let columns = range.start * 16..(range.end * 16).min(hidden);
        let part = |row: u32| {
            let start = row as usize * hidden;
            // SAFETY: the columns are this task's alone.
            let x = unsafe { stream.part(start + columns.start..start + columns.end) };
            // SAFETY: as above.
            let increment = unsafe { writer.increment(layer, launch.slots[row as usize], columns.clone()) };
            (x, increment)
        };
        for &row in launch.held.iter().filter(|&&row| marked[row as usize]) {
            if let (x, Some(increment)) = part(row) {
                let pairs = increment.iter_mut().zip(x);
                match what {
                    Increments::Hold => pairs.for_each(|(increment, x)| *increment = -*x),
                    Increments::Settle => pairs.for_each(|(increment, x)| *increment += *x),
                }
            }
        }
        if what == Increments::Settle {
            for row in (0..marked.len() as u32).filter(|&row| !marked[row as usize]) {
                if let (x, Some(increment)) = part(row) {
                    x.iter_mut().zip(increment).for_each(|(x, increment)| *x += *increment);
                }
            }
        }
    });
}
