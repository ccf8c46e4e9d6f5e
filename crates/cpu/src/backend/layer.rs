//! The operations of a layer, on the workspace.

use demask_step::Drift;
use demask_tensor::{Dtype, MlpWeights, QkvRows, QkvWeights, Rows};

use super::{
    CpuBackend,
    clock::{Clock, Part},
    workspace::{CHUNK, Workspace, kv_width, query_width},
};
use crate::{
    attention::{Attend, cut_blocks},
    elementwise::{Element, HeadFinish, Rotation, Shared, for_ranges, rms_norm},
    isa::Isa,
    kv::{KvStore, Tensor},
    linear::{InputBuffer, Linear, Output, Packed, Stored},
    pool::Pool,
};

/// Tools that every operation uses and none changes.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) isa: Isa,
    pub(super) pool: &'a Pool,
    pub(super) linear: &'a Linear,
    /// Products of routers.
    pub(super) router: &'a Linear,
    pub(super) rotation: &'a Rotation,
    pub(super) query_rotation: &'a Rotation,
    pub(super) clock: &'a Clock,
    /// Width of a head.
    pub(super) head_dim: usize,
}

/// A norm's weight and epsilon.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) weight: &'a [f32],
    pub(super) epsilon: f32,
}

/// Numbers of rows from which on a second thread is worth waiting for: norms and copies of fewer take less than that.
const SHARED: usize = 4096;

impl Tools<'_> {
    /// Parts that elementwise work on rows is divided into.
    fn parts(&self, rows: usize, width: usize) -> usize {
        (rows * width / SHARED).clamp(1, self.pool.threads())
    }

    fn bf16(&self) -> bool {
        self.linear.dtype() == Dtype::Bf16
    }

    /// Norms rows of the stream into an input buffer.
    pub(super) fn normalise(
        &self,
        rows: &[u32],
        norm: Norm<'_>,
        stream: &[f32],
        scratch: &mut [f32],
        input: &mut InputBuffer,
    ) {
        let hidden = norm.weight.len();
        let (writer, scratch) = (input.writer(), Shared::new(scratch));
        for_ranges(self.pool, rows.len(), self.parts(rows.len(), hidden), |part, range| {
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

    /// Projects the rows that stand in `input` in each way.
    fn project_all(
        &self,
        input: &InputBuffer,
        rows: usize,
        projections: &[Projection<'_>; 3],
        [queries, keys, values]: [&mut [f32]; 3],
    ) {
        let [query, key, value] = projections;
        let weights = [(query, queries), (key, keys), (value, values)].map(|(projection, out)| Stored {
            weight: projection.weight,
            bias: projection.bias,
            out,
        });
        self.clock.time(Part::Linear, || self.linear.matmul_each(self.pool, input, rows, weights));
    }

    /// Projects the rows that stand in `input`.
    fn project(&self, input: &InputBuffer, rows: usize, projection: Projection<'_>, out: &mut [f32]) {
        let Projection { weight, bias, .. } = projection;
        let store = Output::Store { out, stride: weight.rows() };
        self.clock.time(Part::Linear, || self.linear.matmul(self.pool, input, rows, weight, bias, store));
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

/// Some rows of a layer, and where they stand.
#[derive(Clone, Copy)]
struct At<'a> {
    layer: usize,
    list: &'a [u32],
    /// `[launch rows]`.
    slots: &'a [u32],
    /// `[launch rows]`.
    positions: &'a [u32],
}

impl At<'_> {
    /// Position of a row of the list.
    fn position(&self, index: usize) -> u32 {
        self.positions[self.list[index] as usize]
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
    let width = query_width(&work.shape.attention);
    for (index, &set) in sets.iter().enumerate() {
        if sets[..index].contains(&set) {
            continue;
        }
        let wanted = sets.map(|wanted| wanted == set);
        for first in (0..work.taken.list(set).len()).step_by(CHUNK) {
            let Workspace { taken, stream, scratch, hidden_input, queries, fresh, .. } = &mut *work;
            let list = taken.list(set);
            let list = &list[first..list.len().min(first + CHUNK)];
            let at = At { layer, list, slots: &taken.launch.slots, positions: &taken.launch.positions };
            tools.normalise(list, projections.norm, stream.as_slice(), scratch.as_mut_slice(), hidden_input);
            let (keys, values) = halves(fresh.as_mut_slice(), list.len() * kv_width(&kv.shape()));
            let wide = if wanted[0] { first * width..(first + list.len()) * width } else { 0..0 };
            let outputs = [&mut queries.as_mut_slice::<f32>()[wide], keys, values];
            project_rows(tools, at, &projections, hidden_input, (outputs, wanted), kv);
        }
    }
}

/// The first `count` numbers of either half.
fn halves(both: &mut [f32], count: usize) -> (&mut [f32], &mut [f32]) {
    let (first, second) = both.split_at_mut(both.len() / 2);
    (&mut first[..count], &mut second[..count])
}

/// The wanted ones of q, K and V of rows whose normed inputs are given; K and V go to the rows' slots.
fn project_rows(
    tools: Tools<'_>,
    at: At<'_>,
    projections: &Projections<'_>,
    input: &InputBuffer,
    (outputs, wanted): ([&mut [f32]; 3], [bool; 3]),
    kv: &mut KvStore,
) {
    let [queries, keys, values] = outputs;
    if wanted == [true; 3] {
        let outputs = [&mut *queries, &mut *keys, &mut *values];
        tools.project_all(input, at.list.len(), &projections.parts, outputs);
    } else {
        for (index, out) in
            [&mut *queries, &mut *keys, &mut *values].into_iter().enumerate().filter(|(index, _)| wanted[*index])
        {
            tools.project(input, at.list.len(), projections.parts[index], out);
        }
    }
    let [query, key, _] = &projections.parts;
    let unfinished = Qkv {
        queries: wanted[0].then(|| query.unfinished(tools, tools.query_rotation, queries)),
        keys: wanted[1].then(|| key.unfinished(tools, tools.rotation, keys)),
        values: wanted[2].then_some(values),
    };
    match kv.dtype() {
        Dtype::Bf16 => finish_and_store::<u16>(tools, at, &unfinished, kv),
        _ => finish_and_store::<f32>(tools, at, &unfinished, kv),
    }
}

/// The wanted ones of q, K and V as they leave their projections. V is rounded by being stored.
struct Qkv<'a> {
    queries: Option<Unfinished<'a>>,
    keys: Option<Unfinished<'a>>,
    values: Option<&'a [f32]>,
}

/// Finishes rows of q and K, and stores K and V in the rows' slots: all of it in one job of the pool. Each head of K and V
/// is one task's, so that rows that share cache lines of a page, or by mistake a slot, never meet.
fn finish_and_store<T: Element>(tools: Tools<'_>, at: At<'_>, qkv: &Qkv<'_>, kv: &mut KvStore) {
    let shape = kv.shape();
    let (heads, head_dim, width) = (shape.kv_heads, shape.head_dim, kv_width(&shape));
    let count = |wanted: bool, tasks: usize| if wanted { tasks } else { 0 };
    let keys = count(qkv.keys.is_some(), heads);
    let queries = keys + count(qkv.queries.is_some(), tools.pool.threads().min(at.list.len()));
    let writer = kv.writer();
    let slots = at.list.iter().map(|&row| at.slots[row as usize]);
    tools.pool.run(queries + count(qkv.values.is_some(), heads), &|task| match (qkv, task) {
        (Qkv { keys: Some(unfinished), .. }, head) if head < keys => {
            let part = |index: usize| {
                let start = index * width + head * head_dim;
                // SAFETY: the head is this task's alone, which looks at one row after the other.
                unsafe { unfinished.values.part(start..start + head_dim) }
            };
            (0..at.list.len()).for_each(|index| unfinished.finish.finish(part(index), at.position(index)));
            let rows = slots.clone().zip((0..at.list.len()).map(|index| &*part(index)));
            // SAFETY: the head is this task's alone.
            unsafe { writer.set_heads::<T>((at.layer, Tensor::Key, head), rows) }
        }
        (Qkv { queries: Some(unfinished), .. }, part) if part < queries => {
            let (part, parts) = (part - keys, queries - keys);
            for index in part * at.list.len() / parts..(part + 1) * at.list.len() / parts {
                // SAFETY: each row is in one part.
                unfinished.finish.finish(unsafe { unfinished.values.row(index, unfinished.width) }, at.position(index));
            }
        }
        (Qkv { values, .. }, task) => {
            let head = task - queries;
            let rows = values.iter().flat_map(|values| values.chunks_exact(width));
            let rows = rows.map(|row| &row[head * head_dim..][..head_dim]);
            // SAFETY: the head is this task's alone.
            unsafe { writer.set_heads::<T>((at.layer, Tensor::Value, head), slots.clone().zip(rows)) }
        }
    });
}

/// Rows of q, K or V as they leave their projection.
struct Unfinished<'a> {
    finish: HeadFinish<'a>,
    /// `[rows of the list, width]`.
    values: Shared<'a, f32>,
    width: usize,
}

impl<'a> Projection<'a> {
    /// Result of the projection, to be normed, turned and rounded head by head.
    fn unfinished(&self, tools: Tools<'a>, rotation: &'a Rotation, values: &'a mut [f32]) -> Unfinished<'a> {
        let Self { weight, head_norm, .. } = *self;
        let finish =
            HeadFinish { isa: tools.isa, head_dim: tools.head_dim, norm: head_norm, rotation, round: tools.bf16() };
        Unfinished { finish, values: Shared::new(values), width: weight.rows() }
    }
}

/// Per-head norm, rotation and rounding.
fn finish_rows(tools: Tools<'_>, at: At<'_>, unfinished: &[Unfinished<'_>]) {
    if unfinished.is_empty() {
        return;
    }
    for_ranges(tools.pool, at.list.len(), tools.pool.threads(), |_, range| {
        for index in range {
            for Unfinished { finish, values, width } in unfinished {
                // SAFETY: each row is in one range.
                finish.finish(unsafe { values.row(index, *width) }, at.position(index));
            }
        }
    });
}

/// Fresh K or V of some rows.
struct Fresh<'a> {
    tensor: Tensor,
    /// `[rows of the list, kv width]`.
    values: &'a [f32],
}

/// Writes fresh rows to their slots.
fn store(tools: Tools<'_>, at: At<'_>, fresh: &[Fresh<'_>], kv: &mut KvStore) {
    match kv.dtype() {
        Dtype::Bf16 => store_as::<u16>(tools, at, fresh, kv),
        _ => store_as::<f32>(tools, at, fresh, kv),
    }
}

/// Each head by one task: rows that share cache lines of a page, or by mistake a slot, never meet.
fn store_as<T: Element>(tools: Tools<'_>, at: At<'_>, fresh: &[Fresh<'_>], kv: &mut KvStore) {
    let shape = kv.shape();
    let width = kv_width(&shape);
    let writer = kv.writer();
    tools.pool.run(fresh.len() * shape.kv_heads, &|task| {
        let (Fresh { tensor, values }, head) = (&fresh[task / shape.kv_heads], task % shape.kv_heads);
        let rows = values.chunks_exact(width).map(|row| &row[head * shape.head_dim..][..shape.head_dim]);
        let slots = at.list.iter().map(|&row| at.slots[row as usize]);
        // SAFETY: the head is this task's alone.
        unsafe { writer.set_heads::<T>((at.layer, *tensor, head), slots.zip(rows)) }
    });
}

/// Cosines of fresh rows with what is stored in their slots.
fn compare(
    tools: Tools<'_>,
    at: At<'_>,
    fresh: &Fresh<'_>,
    kv: &KvStore,
    scratch: &mut [f32],
    take: &(dyn Fn(usize, f32) + Sync),
) {
    match kv.dtype() {
        Dtype::Bf16 => compare_as::<u16>(tools, at, fresh, kv, scratch, take),
        _ => compare_as::<f32>(tools, at, fresh, kv, scratch, take),
    }
}

fn compare_as<T: Element>(
    tools: Tools<'_>,
    at: At<'_>,
    fresh: &Fresh<'_>,
    kv: &KvStore,
    scratch: &mut [f32],
    take: &(dyn Fn(usize, f32) + Sync),
) {
    let width = kv_width(&kv.shape());
    let scratch = Shared::new(scratch);
    for_ranges(tools.pool, at.list.len(), tools.pool.threads(), |part, range| {
        // SAFETY: the part is this task's alone.
        let stored = unsafe { scratch.row(part, width) };
        for index in range {
            kv.read_row::<T>(at.slots[at.list[index] as usize], at.layer, fresh.tensor, stored);
            let values = &fresh.values[index * width..(index + 1) * width];
            take(index, crate::elementwise::cosine(tools.isa, values, stored));
        }
    });
}

/// K or V of probed rows as they will be stored.
fn project_probed(
    tools: Tools<'_>,
    at: At<'_>,
    projection: Projection<'_>,
    input: &InputBuffer,
    (tensor, values): (Tensor, &mut [f32]),
) {
    /// V is rounded and nothing else.
    static NONE: Rotation = Rotation { cos: Vec::new(), sin: Vec::new(), half: 0 };

    tools.project(input, at.list.len(), projection, values);
    let rotation = if tensor == Tensor::Key { tools.rotation } else { &NONE };
    finish_rows(tools, at, &[projection.unfinished(tools, rotation, values)]);
}

/// See [`demask_tensor::Backend::select`].
pub(super) fn select(
    tools: Tools<'_>,
    work: &mut Workspace,
    layer: usize,
    weights: &QkvWeights<'_, CpuBackend>,
    kv: &mut KvStore,
) {
    use crate::select::{Candidate, choose, roll, rows_that_compare};

    let projections = Projections::new(weights);
    let Workspace { taken, candidates, .. } = work;
    candidates.clear();
    candidates.extend(taken.launch.probed.iter().map(|&row| Candidate { row, score: 0.0 }));
    roll(&taken.launch, layer, candidates);
    for (drift, tensor) in [(Drift::Value, Tensor::Value), (Drift::Key, Tensor::Key)] {
        let Workspace { taken, candidates, compared, places, stream, scratch, fresh, hidden_input, .. } = &mut *work;
        rows_that_compare(&taken.launch, drift, compared, places);
        for (list, places) in compared.chunks(CHUNK).zip(places.chunks(CHUNK)) {
            let scratch = scratch.as_mut_slice::<f32>();
            tools.normalise(list, projections.norm, stream.as_slice(), scratch, hidden_input);
            let at = At { layer, list, slots: &taken.launch.slots, positions: &taken.launch.positions };
            let (values, _) = halves(fresh.as_mut_slice(), list.len() * kv_width(&kv.shape()));
            project_probed(tools, at, projections.of(tensor), hidden_input, (tensor, &mut *values));
            let fresh = Fresh { tensor, values };
            let scores = Shared::new(candidates);
            compare(tools, at, &fresh, kv, scratch, &|index, cosine| {
                // SAFETY: each row of the list has a place of its own, and is compared once.
                unsafe { scores.row(places[index] as usize, 1)[0].score = f64::from(cosine) }
            });
            store(tools, at, &[fresh], kv);
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
        for_ranges(tools.pool, list.len(), tools.parts(list.len(), width), |_, range| {
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

/// Treatment of the increments.
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
