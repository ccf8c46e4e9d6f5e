//! Layers of experts: against their twin, and against themselves in other company.

use crate::{
    backend_model::{EPSILON, GateUp, Matrix, Vector, bytes, pack, pack_gate_up, push_rows},
    testable,
};
use demask_cpu::{
    CpuBackend, CpuOptions,
    isa::Isa,
    linear::{Activations, Products, Quantisation},
};
use demask_tensor::{
    AttentionShape, Backend, Dtype, ExpertGroups, ExpertShape, ExpertWeights, Launch, PAGE, PageKind, RouterRule, Rows,
    Score, Share, Stage, TensorView, WorkspaceShape,
};
use demask_testkit::naive::{
    linear::rounded,
    network::{Experts, assert_near, noise, rms_norm},
};

const HIDDEN: usize = 40;
/// More rows than choose together, and more of one expert than a job has.
const ROWS: usize = 700;
const ATTENTION: AttentionShape = AttentionShape { heads: 1, kv_heads: 1, head_dim: 8 };

/// A layer in the words of the backend and of the twin.
struct Case {
    name: &'static str,
    shape: ExpertShape,
    rule: RouterRule,
    twin: Experts,
}

fn matrix(rows: usize, columns: usize, seed: u64) -> Vec<f32> {
    let scale = 1.7 / (columns as f32).sqrt();
    rounded(&noise(rows * columns, seed).iter().map(|value| value * scale).collect::<Vec<_>>())
}

fn mlp(ffn: usize, seed: u64) -> [Vec<f32>; 3] {
    [matrix(ffn, HIDDEN, seed), matrix(ffn, HIDDEN, seed + 1), matrix(HIDDEN, ffn, seed + 2)]
}

impl Case {
    fn new(name: &'static str, shape: ExpertShape, rule: RouterRule, biased: bool) -> Self {
        let twin = Experts {
            router: matrix(shape.count, HIDDEN, 5),
            bias: biased.then(|| noise(shape.count, 6).iter().map(|value| 0.3 * value - 1.2).collect()),
            experts: (0..shape.count).map(|expert| mlp(shape.ffn, 10 + 3 * expert as u64)).collect(),
            shared: (shape.shared_ffn > 0).then(|| mlp(shape.shared_ffn, 900)),
            per_row: shape.per_row,
            sigmoid: rule.score == Score::Sigmoid,
            groups: rule.groups.map(|groups| [groups.count, groups.selected]),
            renormalised: rule.share != Share::Whole,
            scale: f64::from(rule.scale),
        };
        Self { name, shape, rule, twin }
    }
}

fn cases() -> Vec<Case> {
    let softmax = RouterRule { score: Score::Softmax, groups: None, share: Share::Whole, scale: 1.0 };
    let grouped = RouterRule {
        score: Score::Sigmoid,
        groups: Some(ExpertGroups { count: 3, selected: 2 }),
        share: Share::OfChosen(1e-20),
        scale: 2.5,
    };
    let shape = |count, taken, ffn, shared_ffn| ExpertShape { count, per_row: taken, ffn, shared_ffn };
    vec![
        Case::new("softmax", shape(9, 3, 20, 0), softmax, false),
        Case::new("renormalised", shape(5, 2, 33, 0), RouterRule { share: Share::OfChosen(0.0), ..softmax }, false),
        Case::new("grouped", shape(12, 4, 16, 48), grouped, true),
        // Most rows choose the same: its jobs are cut.
        Case::new("two", shape(2, 1, 24, 8), softmax, false),
        Case::new("all", shape(3, 3, 70, 0), softmax, false),
    ]
}

/// A layer on the backend.
struct Layer {
    backend: CpuBackend,
    kv: <CpuBackend as Backend>::Kv,
    table: <CpuBackend as Backend>::Embedding,
    norm: Vector,
    router: Matrix,
    bias: Option<Vector>,
    rule: RouterRule,
    gate_up: Vec<GateUp>,
    down: Vec<Matrix>,
    shared: Option<(GateUp, Matrix)>,
}

fn norm_weight() -> Vec<f32> {
    noise(HIDDEN, 3).iter().map(|value| 1.0 + 0.3 * value).collect()
}

/// `[ROWS, hidden]`: what goes in.
fn stream() -> Vec<f32> {
    rounded(&noise(ROWS * HIDDEN, 77))
}

impl Layer {
    fn new(case: &Case, isa: Isa, products: Products, threads: usize) -> Self {
        let Products { dtype, quantisation, activations } = products;
        let mut backend = CpuBackend::new(CpuOptions { isa, dtype, quantisation, activations, threads });
        let shape = WorkspaceShape {
            adapter_rank: 0,
            rows: ROWS,
            head_rows: 1,
            hidden: HIDDEN,
            ffn: 0,
            experts: Some(case.shape),
            attention: ATTENTION,
            vocabulary: ROWS,
            table_entries: 32,
        };
        backend.reserve(&shape).unwrap();
        let kv = backend.new_kv(&ATTENTION, 1, HIDDEN);
        let gate_up = |[gate, up, _]: &[Vec<f32>; 3], ffn| pack_gate_up(&backend, gate, up, ffn);
        let down = |[_, _, down]: &[Vec<f32>; 3]| pack(&backend, down, HIDDEN);
        let Experts { router, bias, experts, shared, .. } = &case.twin;
        let (ffn, shared_ffn) = (case.shape.ffn, case.shape.shared_ffn);
        Self {
            table: backend.pack_embedding(TensorView::new(Dtype::F32, ROWS, HIDDEN, &bytes(&stream()))).unwrap(),
            norm: backend.vector(&norm_weight()).unwrap(),
            router: backend.pack_router(TensorView::new(Dtype::F32, case.shape.count, HIDDEN, &bytes(router))).unwrap(),
            bias: bias.as_ref().map(|bias| backend.vector(bias).unwrap()),
            rule: case.rule,
            gate_up: experts.iter().map(|parts| gate_up(parts, ffn)).collect(),
            down: experts.iter().map(down).collect(),
            shared: shared.as_ref().map(|parts| (gate_up(parts, shared_ffn), down(parts))),
            kv,
            backend,
        }
    }

    /// The residual stream behind the layer, of some rows of [`stream`].
    fn run(&mut self, rows: &[u32]) -> Vec<f32> {
        let mut pages = Vec::new();
        self.backend.allocate_pages(&mut self.kv, rows.len().div_ceil(PAGE), PageKind::default(), &mut pages).unwrap();
        let mut launch = Launch::default();
        push_rows(&mut launch, &pages, &rows.iter().copied().enumerate().collect::<Vec<_>>(), &|_| 1);
        let Self { backend, kv, table, norm, router, bias, rule, gate_up, down, shared } = self;
        backend.begin(&launch, kv);
        backend.embed(table);
        let weights = ExpertWeights {
            norm,
            epsilon: EPSILON,
            router,
            bias: bias.as_ref(),
            rule,
            gate_up,
            down,
            shared: shared.as_ref().map(|(gate_up, down)| (gate_up, down)),
        };
        backend.experts(&weights, Rows::Live);
        let mut found = Vec::new();
        backend.read(Stage::Residual, &mut found);
        backend.release_pages(kv, &pages);
        found
    }
}

/// A normed row, as the twin takes it.
fn normed(row: &[f32]) -> Vec<f64> {
    rms_norm(row, &norm_weight(), EPSILON).into_iter().map(f64::from).collect()
}

/// What the twin makes of some rows.
fn expected(case: &Case, rows: &[u32]) -> Vec<f32> {
    let stream = stream();
    let row = |row: &u32| {
        let row = &stream[*row as usize * HIDDEN..][..HIDDEN];
        let given = case.twin.give(&normed(row));
        row.iter().zip(given).map(|(value, given)| (f64::from(*value) + given) as f32).collect::<Vec<_>>()
    };
    rows.iter().flat_map(row).collect()
}

fn all_rows() -> Vec<u32> {
    (0..ROWS as u32).collect()
}

/// In bf16 too the router takes a row before it is rounded: no row chooses otherwise than its twin.
#[test]
fn a_layer_matches_its_twin() {
    for case in cases() {
        let expected = expected(&case, &all_rows());
        for isa in testable() {
            for (dtype, tolerance) in [(Dtype::F32, 2e-5), (Dtype::Bf16, 3e-2)] {
                let mut layer = Layer::new(&case, isa, Products::plain(dtype), 2);
                assert_near(&layer.run(&all_rows()), &expected, tolerance);
            }
        }
    }
}

/// Every kind of products.
fn kinds() -> Vec<Products> {
    let mut kinds = vec![Products::plain(Dtype::F32), Products::plain(Dtype::Bf16)];
    for quantisation in Quantisation::ALL {
        for activations in [Activations::Plain, Activations::Int8] {
            kinds.push(Products { dtype: Dtype::Bf16, quantisation: Some(quantisation), activations });
        }
    }
    kinds
}

#[test]
fn a_row_depends_neither_on_its_company_nor_on_threads() {
    let groups: Vec<Vec<u32>> = vec![
        all_rows(),
        vec![3],
        (40..57).collect(),
        vec![699, 5, 301, 5, 88],
        (0..ROWS as u32).filter(|row| row * row % 7 < 3).collect(),
    ];
    for case in cases() {
        for isa in testable() {
            for products in kinds() {
                let reference = Layer::new(&case, isa, products, 1).run(&all_rows());
                for threads in [1, 3] {
                    let mut layer = Layer::new(&case, isa, products, threads);
                    for rows in &groups {
                        let found = layer.run(rows);
                        for (&row, found) in rows.iter().zip(found.chunks(HIDDEN)) {
                            let same = *found == reference[row as usize * HIDDEN..][..HIDDEN];
                            assert!(same, "{} {isa:?} {products:?}, {threads} threads, row {row}", case.name);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_are_those_of_the_experts_that_rows_chose() {
    let case = &cases()[0];
    let mut layer = Layer::new(case, Isa::best(), Products::plain(Dtype::F32), 2);
    let one = layer.backend.gate_up_bytes(&layer.gate_up[0]) + layer.backend.matrix_bytes(&layer.down[0]);
    layer.run(&[7]);
    assert_eq!(layer.backend.expert_bytes_read(), (3 * one) as u64);
    // Two rows share what both chose.
    let chosen = |row: usize| -> Vec<usize> {
        let row = &stream()[row * HIDDEN..][..HIDDEN];
        case.twin.choose(&normed(row)).into_iter().map(|(expert, _)| expert).collect()
    };
    let together: std::collections::BTreeSet<usize> = chosen(7).into_iter().chain(chosen(8)).collect();
    layer.run(&[7, 8]);
    assert_eq!(layer.backend.expert_bytes_read(), ((3 + together.len()) * one) as u64);
}

/// A row that is no number stays alone with it.
#[test]
fn a_row_that_is_no_number_spoils_no_other() {
    for case in cases() {
        let mut layer = Layer::new(&case, Isa::best(), Products::plain(Dtype::F32), 2);
        let mut table = stream();
        table[5 * HIDDEN + 3] = f32::NAN;
        let clean = layer.run(&[4, 5, 6]);
        layer.table = layer.backend.pack_embedding(TensorView::new(Dtype::F32, ROWS, HIDDEN, &bytes(&table))).unwrap();
        let spoilt = layer.run(&[4, 5, 6]);
        assert_eq!([&spoilt[..HIDDEN], &spoilt[2 * HIDDEN..]], [&clean[..HIDDEN], &clean[2 * HIDDEN..]]);
        assert!(spoilt[HIDDEN..2 * HIDDEN].iter().all(|value| value.is_nan()), "{}", case.name);
    }
}
