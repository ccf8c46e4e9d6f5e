//! A tiny transformer on the backend, its twin, and launches built by hand.

use demask_cpu::{CpuBackend, CpuOptions, isa::Isa, linear::Activations};
use demask_step::{Drift, HeadRequest, Sampling};
use demask_tensor::{
    AttentionShape, Backend, Dtype, HeadOutput, HeadRow, HeadWeights, Launch, MlpWeights, PAGE, PageKind, ProbeLaunch,
    QkvRows, QkvWeights, RowSegment, Rows, TensorView, WorkspaceShape,
};
use demask_testkit::naive::{
    linear::rounded,
    network::{Layer, Partial, Transformer, noise},
};

pub const VOCABULARY: usize = 90;
pub const HIDDEN: usize = 24;
const FFN: usize = 40;
pub const EPSILON: f32 = 1e-5;
pub const POSITIONS: usize = 320;
/// A token whose embedding is not a number.
pub const POISON: u32 = VOCABULARY as u32 - 1;
pub const SHAPE: AttentionShape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 12 };

pub type Matrix = <CpuBackend as Backend>::Matrix;
pub type GateUp = <CpuBackend as Backend>::GateUp;
pub type Vector = <CpuBackend as Backend>::Vector;

struct PackedLayer {
    norms: [Vector; 2],
    query: Matrix,
    key: Matrix,
    value: Matrix,
    biases: Option<[Vector; 3]>,
    head_norms: Option<[Vector; 2]>,
    output: Matrix,
    gate_up: GateUp,
    down: Matrix,
}

/// The model in one backend.
pub struct Model {
    pub backend: CpuBackend,
    pub kv: <CpuBackend as Backend>::Kv,
    embedding: <CpuBackend as Backend>::Embedding,
    layers: Vec<PackedLayer>,
    final_norm: Vector,
    head: Matrix,
    pub out: HeadOutput,
}

/// Weights of three layers; every second model has biases, the others norms over heads.
pub fn twin(dtype: Dtype, biased: bool) -> Transformer {
    let mut seed = 100;
    let mut values = |count: usize, scale: f32, middle: f32| -> Vec<f32> {
        seed += 1;
        let values: Vec<f32> = noise(count, seed).iter().map(|value| middle + scale * value).collect();
        if dtype == Dtype::Bf16 { rounded(&values) } else { values }
    };
    let (query, kv) = (SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim);
    let layers = (0..3)
        .map(|_| Layer {
            attention_norm: values(HIDDEN, 0.5, 1.0),
            query: values(query * HIDDEN, 0.6, 0.0),
            key: values(kv * HIDDEN, 0.6, 0.0),
            value: values(kv * HIDDEN, 0.4, 0.0),
            biases: biased.then(|| [values(query, 0.5, 0.0), values(kv, 0.5, 0.0), values(kv, 0.5, 0.0)]),
            head_norms: (!biased).then(|| [values(SHAPE.head_dim, 0.5, 1.0), values(SHAPE.head_dim, 0.5, 1.0)]),
            output: values(HIDDEN * query, 0.3, 0.0),
            mlp_norm: values(HIDDEN, 0.5, 1.0),
            gate: values(FFN * HIDDEN, 0.4, 0.0),
            up: values(FFN * HIDDEN, 0.4, 0.0),
            down: values(HIDDEN * FFN, 0.3, 0.0),
            experts: None,
        })
        .collect();
    let rotated = if biased { SHAPE.head_dim } else { 8 };
    let angles: Vec<f32> = (0..POSITIONS)
        .flat_map(|position| (0..rotated / 2).map(move |pair| position as f32 * 0.3f32.powi(pair as i32)))
        .collect();
    let mut embedding = values(VOCABULARY * HIDDEN, 1.0, 0.0);
    embedding[POISON as usize * HIDDEN..].fill(f32::NAN);
    Transformer {
        heads: SHAPE.heads,
        kv_heads: SHAPE.kv_heads,
        head_dim: SHAPE.head_dim,
        epsilon: EPSILON,
        embedding,
        cos: angles.iter().map(|angle| angle.cos()).collect(),
        sin: angles.iter().map(|angle| angle.sin()).collect(),
        rotated,
        layers,
        final_norm: values(HIDDEN, 0.5, 1.0),
        head: values(VOCABULARY * HIDDEN, 0.8, 0.0),
    }
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn pack(backend: &CpuBackend, values: &[f32], rows: usize) -> Matrix {
    backend.pack(TensorView::new(Dtype::F32, rows, values.len() / rows, &bytes(values))).unwrap()
}

pub fn pack_gate_up(backend: &CpuBackend, gate: &[f32], up: &[f32], rows: usize) -> GateUp {
    let (gate, up) = (bytes(gate), bytes(up));
    let view = |bytes| TensorView::new(Dtype::F32, rows, gate.len() / 4 / rows, bytes);
    backend.pack_gate_up(view(&gate), view(&up)).unwrap()
}

impl Model {
    pub fn new(twin: &Transformer, isa: Isa, dtype: Dtype, threads: usize) -> Self {
        let mut backend =
            CpuBackend::new(CpuOptions { isa, dtype, quantisation: None, activations: Activations::Plain, threads });
        let shape = WorkspaceShape {
            adapter_rank: 0,
            rows: 700,
            head_rows: 700,
            hidden: HIDDEN,
            ffn: FFN,
            experts: None,
            attention: SHAPE,
            vocabulary: VOCABULARY,
            table_entries: 200,
        };
        backend.reserve(&shape).unwrap();
        backend.set_rotation(&twin.cos, &twin.sin, twin.rotated).unwrap();
        let kv = backend.new_kv(&SHAPE, twin.layers.len(), HIDDEN);
        let vector = |values: &[f32]| backend.vector(values).unwrap();
        let pack = |values: &[f32], rows: usize| pack(&backend, values, rows);
        let (query, kv_width) = (SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim);
        let pack_layer = |layer: &Layer| PackedLayer {
            norms: [vector(&layer.attention_norm), vector(&layer.mlp_norm)],
            query: pack(&layer.query, query),
            key: pack(&layer.key, kv_width),
            value: pack(&layer.value, kv_width),
            biases: layer.biases.as_ref().map(|biases| biases.each_ref().map(|bias| vector(bias))),
            head_norms: layer.head_norms.as_ref().map(|norms| norms.each_ref().map(|norm| vector(norm))),
            output: pack(&layer.output, HIDDEN),
            gate_up: pack_gate_up(&backend, &layer.gate, &layer.up, FFN),
            down: pack(&layer.down, HIDDEN),
        };
        let layers = twin.layers.iter().map(pack_layer).collect();
        let table = bytes(&twin.embedding);
        let embedding = backend.pack_embedding(TensorView::new(Dtype::F32, VOCABULARY, HIDDEN, &table)).unwrap();
        let (final_norm, head) = (vector(&twin.final_norm), pack(&twin.head, VOCABULARY));
        Self { embedding, layers, final_norm, head, kv, backend, out: HeadOutput::default() }
    }

    pub fn pages(&mut self, count: usize, kind: PageKind) -> Vec<u32> {
        let mut pages = Vec::new();
        self.backend.allocate_pages(&mut self.kv, count, kind, &mut pages).unwrap();
        pages
    }

    /// One forward. In the layers of a partial launch behind the first, `keys` write K and `values` V.
    pub fn forward(&mut self, launch: &Launch, keys: Rows, values: Rows) {
        let Self { backend, kv, embedding, layers, final_norm, head, out } = self;
        let holds = launch.partial || !launch.held.is_empty();
        backend.begin(launch, kv);
        backend.embed(embedding);
        let last = layers.len() - 1;
        for (index, layer) in layers.iter().enumerate() {
            let qkv = QkvWeights {
                norm: &layer.norms[0],
                epsilon: EPSILON,
                query: &layer.query,
                key: &layer.key,
                value: &layer.value,
                biases: layer.biases.as_ref().map(|[q, k, v]| [q, k, v]),
                head_norms: layer.head_norms.as_ref().map(|[q, k]| [q, k]),
                adapters: [None; 3],
            };
            let (mut rows, mut key, mut value) = (Rows::Live, Rows::Live, Rows::Live);
            if launch.partial && index > 0 {
                backend.select(index, &qkv, kv);
                (rows, key, value) = (Rows::Computed, keys, values);
            } else if index == last && !holds {
                rows = Rows::Last;
            }
            if holds {
                backend.hold(index, rows, kv);
            }
            backend.qkv(index, &qkv, QkvRows { query: rows, key, value }, kv);
            backend.attend(index, rows, kv);
            backend.project_add(&layer.output, None, rows);
            let mlp = MlpWeights {
                norm: &layer.norms[1],
                epsilon: EPSILON,
                gate_up: &layer.gate_up,
                down: &layer.down,
                gate_up_adapters: [None; 2],
                down_adapter: None,
            };
            backend.mlp(&mlp, rows);
            if holds {
                backend.settle(index, rows, kv);
            }
        }
        backend.head(&HeadWeights { norm: final_norm, epsilon: EPSILON, head }, kv, out);
    }
}

/// Adds a run of rows: positions with tokens, seeing `mask(position)` keys. Returns the first row.
pub fn push_rows(launch: &mut Launch, pages: &[u32], rows: &[(usize, u32)], mask: &dyn Fn(usize) -> usize) -> u32 {
    let (first, table) = (launch.len() as u32, launch.tables.len() as u32);
    launch.tables.extend_from_slice(pages);
    for &(position, id) in rows {
        launch.ids.push(id);
        launch.positions.push(position as u32);
        launch.slots.push(pages[position / PAGE] * PAGE as u32 + (position % PAGE) as u32);
        launch.limits.push(mask(position) as u32);
    }
    let table = table..launch.tables.len() as u32;
    launch.segments.push(RowSegment { rows: first..launch.len() as u32, table });
    first
}

/// Lets rows of a sequence be computed in part: all of them are held, and `partial` counts from the first of them.
pub fn push_partial(launch: &mut Launch, rows: std::ops::Range<u32>, partial: &Partial) {
    let by = if partial.by_key { Drift::Key } else { Drift::Value };
    let by = partial.random.map_or(by, |seed| Drift::Random { seed });
    launch.partial = true;
    launch.fixed.extend(partial.fixed.iter().map(|&row| rows.start + row as u32));
    launch.probed.extend(partial.probed.iter().map(|&row| rows.start + row as u32));
    if !partial.probed.is_empty() {
        launch.probes.push(ProbeLaunch { rows: partial.probed.len() as u32, keep: partial.keep as u32, by });
    }
    launch.held.extend(rows);
}

/// Asks for the logits of some rows, and everything else that the head can tell.
pub fn ask_all(launch: &mut Launch, rows: impl IntoIterator<Item = u32>) {
    if launch.head.requests.is_empty() {
        launch.head.requests.push(HeadRequest {
            margin: true,
            entropy: true,
            top: 2,
            score_width: 1,
            logits: true,
            sampling: Sampling { temperature: 0.5, ..Sampling::default() },
            ..HeadRequest::default()
        });
    }
    for row in rows {
        launch.head.rows.push(HeadRow { row, request: 0, key: u64::from(launch.ids[row as usize]) });
        launch.head.score.push(row % 7);
        launch.last.push(row);
    }
    launch.last.sort_unstable();
    launch.last.dedup();
}

pub fn tokens(count: usize, seed: u64) -> Vec<u32> {
    noise(count, seed).iter().map(|value| ((value + 1.0) * 40.0) as u32).collect()
}

pub fn rows(tokens: &[u32], positions: std::ops::Range<usize>) -> Vec<(usize, u32)> {
    positions.map(|position| (position, tokens[position])).collect()
}
