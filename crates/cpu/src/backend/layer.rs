//! The operations of a layer, on the workspace.

use demask_step::Drift;
use demask_tensor::{Dtype, Launch, Lora, MlpWeights, QkvRows, QkvWeights, Rows};

use super::{
    CpuBackend, Parts, Tools,
    adapter::AdapterWork,
    clock::Part,
    workspace::{CHUNK, Workspace, kv_width, query_width},
};
use crate::{
    attention::{Attend, cut_blocks},
    elementwise::{HeadFinish, Rotation, Shared, cosine, for_ranges, rms_norm},
    kv::{KvStore, Tensor},
    linear::{InputBuffer, Output, Packed, Stored},
    select::{Candidate, choose, roll, rows_that_compare},
};

/// A norm's weight and epsilon.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) weight: &'a [f32],
    pub(super) epsilon: f32,
}

/// Numbers of rows from which on a second thread is worth waiting for: norms and copies of fewer take less than that.
const SHARED: usize = 4096;

impl Tools {
    /// Parts that elementwise work on rows is divided into.
    fn parts(&self, rows: usize, width: usize) -> usize {
        (rows * width / SHARED).clamp(1, self.pool.threads())
    }

    fn query_rotation(&self) -> &Rotation {
        self.query_rotation.as_ref().unwrap_or(&self.rotation)
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
        for_ranges(&self.pool, rows.len(), self.parts(rows.len(), hidden), |part, range| {
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

    /// Projects the rows that stand in `input` in each way, in one job of the pool, and adds the adapters of some.
    fn project<const WAYS: usize>(
        &self,
        (input, rows): (&InputBuffer, usize),
        adapted: Option<&mut AdapterWork>,
        mut ways: [(Projection<'_>, &mut [f32]); WAYS],
    ) {
        let weights = ways.each_mut().map(|(Projection { weight, bias, .. }, out)| Stored { weight, bias: *bias, out });
        self.clock.time(Part::Linear, || self.linear.matmul_each(&self.pool, input, rows, weights));
        let Some(adapted) = adapted else { return };
        for (projection, out) in ways {
            if let Some(adapter) = projection.adapter {
                adapted.add(self, input, adapter, out);
            }
        }
    }

    /// Adds the product of the rows that stand in `input` to rows of the stream, and its adapter's to those of some.
    fn add_product(
        &self,
        input: &InputBuffer,
        (weight, adapter): (&Packed, Option<Lora<'_, CpuBackend>>),
        adapted: Option<&mut AdapterWork>,
        (stream, rows): (&mut [f32], &[u32]),
    ) {
        let output = Output::Add { residual: stream, stride: weight.rows(), rows: Some(rows) };
        self.clock.time(Part::Linear, || self.linear.matmul(&self.pool, input, rows.len(), weight, None, output));
        if let (Some(adapter), Some(adapted)) = (adapter, adapted) {
            adapted.add_to(self, input, adapter, (stream, rows));
        }
    }
}

/// One of the three projections.
#[derive(Clone, Copy)]
struct Projection<'a> {
    weight: &'a Packed,
    bias: Option<&'a [f32]>,
    head_norm: Option<(&'a [f32], f32)>,
    adapter: Option<Lora<'a, CpuBackend>>,
}

/// The projections of a layer: q, K, V.
fn projections<'a>(weights: &QkvWeights<'a, CpuBackend>) -> [Projection<'a>; 3] {
    let bias = |index: usize| weights.biases.map(|biases| biases[index].as_slice());
    let head_norm = |index: usize| weights.head_norms.map(|norms| (norms[index].as_slice(), weights.epsilon));
    let [query, key, value] = weights.adapters;
    [
        Projection { weight: weights.query, bias: bias(0), head_norm: head_norm(0), adapter: query },
        Projection { weight: weights.key, bias: bias(1), head_norm: head_norm(1), adapter: key },
        Projection { weight: weights.value, bias: bias(2), head_norm: None, adapter: value },
    ]
}

/// Some rows of a layer, and where they stand.
#[derive(Clone, Copy)]
struct At<'a> {
    layer: usize,
    list: &'a [u32],
    launch: &'a Launch,
}

impl At<'_> {
    /// Position of a row of the list.
    fn position(&self, index: usize) -> u32 {
        self.launch.positions[self.list[index] as usize]
    }

    /// Slots of the rows of the list.
    fn slots(&self) -> impl Iterator<Item = u32> {
        self.list.iter().map(|&row| self.launch.slots[row as usize])
    }
}

/// Runs [`demask_tensor::Backend::qkv`]: rows are normed once for each distinct set of rows.
pub(super) fn qkv(
    (tools, work): Parts<'_>,
    layer: usize,
    weights: &QkvWeights<'_, CpuBackend>,
    rows: QkvRows,
    kv: &mut KvStore,
) {
    let norm = Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon };
    let sets = [rows.query, rows.key, rows.value];
    let width = query_width(&work.shape.attention);
    for (index, &set) in sets.iter().enumerate() {
        if sets[..index].contains(&set) {
            continue;
        }
        let wanted = sets.map(|wanted| wanted == set);
        for first in (0..work.prepared.list(set).len()).step_by(CHUNK) {
            let Workspace { prepared: taken, stream, scratch, hidden_input, queries, fresh, adapter, .. } = &mut *work;
            let list = taken.list(set);
            let list = &list[first..list.len().min(first + CHUNK)];
            let at = At { layer, list, launch: &taken.launch };
            tools.normalise(list, norm, stream.as_slice(), scratch.as_mut_slice(), hidden_input);
            let (keys, values) = halves(fresh.as_mut_slice(), list.len() * kv_width(&kv.shape()));
            let wide = if wanted[0] { first * width..(first + list.len()) * width } else { 0..0 };
            let outputs = [&mut queries.as_mut_slice::<f32>()[wide], keys, values];
            let adapter = adapter.as_mut().and_then(|adapter| adapter.find(&taken.adapted, list));
            project_rows((tools, adapter), at, projections(weights), hidden_input, (outputs, wanted), kv);
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
    (tools, mut adapted): (&Tools, Option<&mut AdapterWork>),
    at: At<'_>,
    [query, key, value]: [Projection<'_>; 3],
    input: &InputBuffer,
    (outputs, wanted): ([&mut [f32]; 3], [bool; 3]),
    kv: &mut KvStore,
) {
    let [queries, keys, values] = outputs;
    let (rows, head_dim) = (at.list.len(), kv.shape().head_dim);
    let mut ways = [(query, &mut *queries), (key, &mut *keys), (value, &mut *values)];
    if wanted == [true; 3] {
        tools.project((input, rows), adapted, ways);
    } else {
        for ((projection, out), _) in ways.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
            tools.project((input, rows), adapted.as_deref_mut(), [(*projection, &mut **out)]);
        }
    }
    let unfinished = Qkv {
        queries: wanted[0].then(|| query.unfinished(tools, head_dim, tools.query_rotation(), queries)),
        keys: wanted[1].then(|| key.unfinished(tools, head_dim, &tools.rotation, keys)),
        values: wanted[2].then_some(values),
    };
    finish_and_store(tools, at, &unfinished, kv);
}

/// The wanted ones of q, K and V as they leave their projections. V is rounded by being stored.
struct Qkv<'a> {
    queries: Option<Unfinished<'a>>,
    keys: Option<Unfinished<'a>>,
    values: Option<&'a [f32]>,
}

/// Finishes rows of q and K, and stores K and V in the rows' slots: all of it in one job of the pool. Each head of K and V
/// is one task's, so that rows that share cache lines of a page, or by mistake a slot, never meet.
fn finish_and_store(tools: &Tools, at: At<'_>, qkv: &Qkv<'_>, kv: &mut KvStore) {
    let shape = kv.shape();
    let (heads, head_dim, width) = (shape.kv_heads, shape.head_dim, kv_width(&shape));
    let count = |wanted: bool, tasks: usize| if wanted { tasks } else { 0 };
    let keys = count(qkv.keys.is_some(), heads);
    let queries = keys + count(qkv.queries.is_some(), tools.pool.threads().min(at.list.len()));
    let writer = kv.writer();
    tools.pool.run(queries + count(qkv.values.is_some(), heads), &|task| match (qkv, task) {
        (Qkv { keys: Some(unfinished), .. }, head) if head < keys => {
            let part = |index: usize| {
                let start = index * width + head * head_dim;
                // SAFETY: the head is this task's alone, which looks at one row after the other.
                unsafe { unfinished.values.part(start..start + head_dim) }
            };
            (0..at.list.len()).for_each(|index| unfinished.finish.finish(part(index), at.position(index)));
            let rows = at.slots().zip((0..at.list.len()).map(|index| &*part(index)));
            // SAFETY: the head is this task's alone.
            unsafe { writer.set_heads((at.layer, Tensor::Key, head), rows) }
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
            unsafe { writer.set_heads((at.layer, Tensor::Value, head), at.slots().zip(rows)) }
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
    fn unfinished(
        &self,
        tools: &Tools,
        head_dim: usize,
        rotation: &'a Rotation,
        values: &'a mut [f32],
    ) -> Unfinished<'a> {
        let Self { weight, head_norm, .. } = *self;
        let round = tools.linear.dtype() == Dtype::Bf16;
        let finish = HeadFinish { isa: tools.isa, head_dim, norm: head_norm, rotation, round };
        Unfinished { finish, values: Shared::new(values), width: weight.rows() }
    }
}

/// Runs [`demask_tensor::Backend::select`].
pub(super) fn select((tools, work): Parts<'_>, layer: usize, weights: &QkvWeights<'_, CpuBackend>, kv: &mut KvStore) {
    /// V is rounded and nothing else.
    static NONE: Rotation = Rotation { cos: Vec::new(), sin: Vec::new(), half: 0 };

    let norm = Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon };
    let [_, key, value] = projections(weights);
    let Workspace { prepared: taken, candidates, .. } = &mut *work;
    candidates.clear();
    candidates.extend(taken.launch.probed.iter().map(|&row| Candidate { row, score: 0.0 }));
    roll(&taken.launch, layer, candidates);
    let values = (Drift::Value, Tensor::Value, value, &NONE);
    for (drift, tensor, projection, rotation) in [values, (Drift::Key, Tensor::Key, key, &tools.rotation)] {
        let Workspace {
            prepared: taken,
            candidates,
            compared,
            places,
            stream,
            scratch,
            fresh,
            hidden_input,
            adapter,
            ..
        } = &mut *work;
        rows_that_compare(&taken.launch, drift, compared, places);
        for (list, places) in compared.chunks(CHUNK).zip(places.chunks(CHUNK)) {
            let scratch = scratch.as_mut_slice::<f32>();
            tools.normalise(list, norm, stream.as_slice(), scratch, hidden_input);
            let at = At { layer, list, launch: &taken.launch };
            let (fresh, _) = halves(fresh.as_mut_slice(), list.len() * kv_width(&kv.shape()));
            let adapted = adapter.as_mut().and_then(|adapter| adapter.find(&taken.adapted, list));
            tools.project((hidden_input, list.len()), adapted, [(projection, &mut *fresh)]);
            let unfinished = projection.unfinished(tools, kv.shape().head_dim, rotation, &mut *fresh);
            let scores = Shared::new(candidates);
            finish_and_compare(tools, at, &unfinished, (kv, tensor), scratch, &|index, cosine| {
                // SAFETY: each row of the list has a place of its own, and is compared once.
                unsafe { scores.row(places[index] as usize, 1)[0].score = f64::from(cosine) }
            });
            store(tools, at, (tensor, fresh), kv);
        }
    }
    let Workspace { prepared: taken, candidates, .. } = work;
    choose(&taken.launch, candidates, &mut taken.computed);
}

/// Finishes rows of K or V, and takes their cosines with the contents of their slots.
fn finish_and_compare(
    tools: &Tools,
    at: At<'_>,
    unfinished: &Unfinished<'_>,
    (kv, tensor): (&KvStore, Tensor),
    scratch: &mut [f32],
    take: &(dyn Fn(usize, f32) + Sync),
) {
    let Unfinished { finish, values, width } = unfinished;
    let scratch = Shared::new(scratch);
    for_ranges(&tools.pool, at.list.len(), tools.pool.threads(), |part, range| {
        // SAFETY: the part is this task's alone.
        let stored = unsafe { scratch.row(part, *width) };
        for index in range {
            // SAFETY: each row is in one range.
            let fresh = unsafe { values.row(index, *width) };
            finish.finish(fresh, at.position(index));
            kv.read_row(at.launch.slots[at.list[index] as usize], at.layer, tensor, stored);
            take(index, cosine(tools.isa, fresh, stored));
        }
    });
}

/// Writes fresh rows of K or V, `[rows of the list, kv width]`, to their slots: each head by one task, so that rows that
/// share cache lines of a page, or by mistake a slot, never meet.
fn store(tools: &Tools, at: At<'_>, (tensor, fresh): (Tensor, &[f32]), kv: &mut KvStore) {
    let shape = kv.shape();
    let writer = kv.writer();
    tools.pool.run(shape.kv_heads, &|head| {
        let rows = fresh.chunks_exact(kv_width(&shape)).map(|row| &row[head * shape.head_dim..][..shape.head_dim]);
        // SAFETY: the head is this task's alone.
        unsafe { writer.set_heads((at.layer, tensor, head), at.slots().zip(rows)) }
    });
}

/// Runs [`demask_tensor::Backend::attend`].
pub(super) fn attend((tools, work): Parts<'_>, layer: usize, rows: Rows, kv: &KvStore) {
    let Workspace { prepared: taken, blocks, queries, attended, .. } = work;
    let list = taken.list(rows);
    cut_blocks(kv, tools.pool.threads(), list.iter().map(|&row| taken.segment_of[row as usize]), blocks);
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
    tools.clock.time(Part::Attention, || attend.run(&tools.pool, attended.as_mut_slice()));
}

/// Runs [`demask_tensor::Backend::project_add`].
pub(super) fn project_add(
    (tools, work): Parts<'_>,
    weight: &Packed,
    adapter: Option<Lora<'_, CpuBackend>>,
    rows: Rows,
) {
    let Workspace { prepared: taken, attended, attended_input, stream, shape, adapter: adapted, .. } = work;
    let width = query_width(&shape.attention);
    let attended = attended.as_slice::<f32>();
    for (chunk, list) in taken.list(rows).chunks(CHUNK).enumerate() {
        let writer = attended_input.writer();
        for_ranges(&tools.pool, list.len(), tools.parts(list.len(), width), |_, range| {
            for index in range {
                let start = (chunk * CHUNK + index) * width;
                // SAFETY: each row is in one range.
                unsafe { writer.set_row(index, &attended[start..start + width]) }
            }
        });
        let adapted = adapted.as_mut().and_then(|adapted| adapted.find(&taken.adapted, list));
        tools.add_product(attended_input, (weight, adapter), adapted, (stream.as_mut_slice(), list));
    }
}

/// Runs [`demask_tensor::Backend::mlp`].
pub(super) fn mlp((tools, work): Parts<'_>, weights: &MlpWeights<'_, CpuBackend>, rows: Rows) {
    let Workspace { prepared: taken, hidden_input, ffn_input, stream, scratch, adapter, shape, .. } = work;
    let norm = Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon };
    for list in taken.list(rows).chunks(CHUNK) {
        tools.normalise(list, norm, stream.as_slice(), scratch.as_mut_slice(), hidden_input);
        let mut adapted = adapter.as_mut().and_then(|adapter| adapter.find(&taken.adapted, list));
        let gate_up = adapted.as_deref_mut().filter(|_| weights.gate_up_adapters.iter().any(Option::is_some));
        let addend = gate_up.map(|work| work.gate_up(tools, hidden_input, weights.gate_up_adapters, shape.ffn));
        tools.clock.time(Part::Linear, || {
            tools.linear.gate_up_with(&tools.pool, hidden_input, list.len(), (weights.gate_up, addend), ffn_input);
        });
        let down = (weights.down, weights.down_adapter);
        tools.add_product(ffn_input, down, adapted, (stream.as_mut_slice(), list));
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

/// Runs [`demask_tensor::Backend::hold`] or [`demask_tensor::Backend::settle`].
pub(super) fn keep_increments((tools, work): Parts<'_>, layer: usize, rows: Rows, kv: &mut KvStore, what: Increments) {
    let Workspace { prepared: taken, marked, stream, shape, .. } = work;
    let (launch, hidden) = (&taken.launch, shape.hidden);
    let marked = &mut marked[..launch.len()];
    marked.fill(false);
    taken.list(rows).iter().for_each(|&row| marked[row as usize] = true);
    let stream = Shared::new(stream.as_mut_slice::<f32>());
    let writer = kv.writer();
    // Each range of columns by one task, whole cache lines of them: rows never meet, whatever their slots.
    let lines = hidden.div_ceil(16);
    for_ranges(&tools.pool, lines, tools.pool.threads(), |_, range| {
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
