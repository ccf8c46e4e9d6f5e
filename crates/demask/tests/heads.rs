//! The heads of the backends answer alike: the same tokens, ranks and lists, the same probabilities but for the last bits.
//!
//! Inputs of the head are plus and minus one and its weights are eighths, so that every backend has the same logits to
//! the bit, many of them equal, whatever the order of its sums.

use demask_cpu::{CpuBackend, CpuOptions, isa::Isa, linear::Activations};
use demask_cuda::backend::{CudaBackend, CudaOptions};
use demask_cuda_emulator::{Emulator, Schedule};
use demask_step::{ConfidenceOf, FilterOrder, HeadRequest, Sampling, TokenList};
use demask_tensor::{
    AttentionShape, Backend, BlendRows, Dtype, HeadLaunch, HeadOutput, HeadRow, HeadWeights, Launch, NO_ROW, PageKind,
    RowSegment, TensorView, WorkspaceShape,
};
use demask_testkit::property;
use proptest::{prelude::*, test_runner::RngSeed};

const HIDDEN: usize = 16;
const VOCABULARY: usize = 300;
const ROWS: usize = 5;

/// Numbers 0 to 2^32, well mixed.
fn numbers(count: usize, seed: u64) -> impl Iterator<Item = u32> {
    (0..count as u64).map(move |place| (demask_step::random::token_bits(seed, place as u32) >> 32) as u32)
}

fn bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// A backend with the embedding table and the head, and one page with differences.
struct Model<B: Backend> {
    backend: B,
    kv: B::Kv,
    page: u32,
    table: B::Embedding,
    norm: B::Vector,
    head: B::Matrix,
}

impl<B: Backend> Model<B> {
    fn new(mut backend: B) -> Self {
        let attention = AttentionShape { heads: 1, kv_heads: 1, head_dim: 8 };
        let shape = WorkspaceShape {
            adapter_rank: 0,
            rows: ROWS,
            head_rows: ROWS,
            hidden: HIDDEN,
            ffn: HIDDEN,
            experts: None,
            attention,
            vocabulary: VOCABULARY,
            table_entries: 1,
        };
        backend.reserve(&shape).unwrap();
        // Nothing is turned, but a model always has angles.
        backend.set_rotation(&[1.0; ROWS * 4], &[0.0; ROWS * 4], 8).unwrap();
        let mut kv = backend.new_kv(&attention, 1, HIDDEN);
        let mut pages = Vec::new();
        let kind = PageKind { residual: true, ..PageKind::default() };
        backend.allocate_pages(&mut kv, 1, kind, &mut pages).unwrap();
        let signs = bytes(numbers(VOCABULARY * HIDDEN, 1).map(|number| if number % 2 == 0 { 1.0 } else { -1.0 }));
        let eighths = bytes(numbers(VOCABULARY * HIDDEN, 2).map(|number| (number % 17) as f32 / 8.0 - 1.0));
        let matrix = |bytes| TensorView::new(Dtype::F32, VOCABULARY, HIDDEN, bytes);
        let (table, head) = (backend.pack_embedding(matrix(&signs)).unwrap(), backend.pack(matrix(&eighths)).unwrap());
        let norm = backend.vector(&[1.0; HIDDEN]).unwrap();
        Self { backend, kv, page: pages[0], table, norm, head }
    }

    /// The head's answers to a launch of so many rows.
    fn answers(&mut self, head: &HeadLaunch) -> HeadOutput {
        let rows = 0..ROWS as u32;
        let launch = Launch {
            ids: rows.clone().map(|row| row * 7 + 3).collect(),
            positions: rows.clone().collect(),
            slots: rows.clone().collect(),
            limits: vec![1; ROWS],
            segments: vec![RowSegment { rows, table: 0..1 }],
            tables: vec![self.page],
            head: head.clone(),
            ..Launch::default()
        };
        let mut out = HeadOutput::default();
        self.backend.begin(&launch, &mut self.kv);
        self.backend.embed(&self.table);
        let weights = HeadWeights { norm: &self.norm, epsilon: 0.0, head: &self.head };
        self.backend.head(&weights, &mut self.kv, &mut out);
        self.backend.finish().unwrap();
        out
    }
}

fn request() -> impl Strategy<Value = HeadRequest> {
    let tokens = |most: usize| prop::collection::vec(0..VOCABULARY as u32, 0..most);
    let min_p = prop_oneof![2 => Just(0f32), 1 => 0f32..1.0];
    let filter = (prop_oneof![Just(0u32), 1..400u32], prop_oneof![Just(1f32), 0f32..1.0], min_p, any::<bool>());
    let temperature = prop_oneof![Just(0f32), 0.1f32..2.0];
    let flags = prop::array::uniform4(any::<bool>());
    let limit = prop::option::of(1..=VOCABULARY as u32);
    ((tokens(30), limit), tokens(4), filter, temperature, flags, prop_oneof![Just(0), 1..40usize], 0..12usize).prop_map(
        |(
            (banned, limit),
            zero_confidence,
            (top_k, top_p, min_p, first),
            temperature,
            [drawn, margin, entropy, logits],
            top,
            score_width,
        )| {
            let order = if first { FilterOrder::TopKFirst } else { FilterOrder::TopPFirst };
            let confidence = if drawn { ConfidenceOf::Drawn } else { ConfidenceOf::Raw };
            let sampling = Sampling { temperature, top_k, top_p, min_p, order, confidence, seed: 0 };
            let (banned, zero_confidence) = (TokenList::from(banned), TokenList::from(zero_confidence));
            HeadRequest { banned, limit, zero_confidence, sampling, margin, entropy, top, score_width, logits }
        },
    )
}

/// One to five head rows with their requests; some are blended with others, or with the difference of a launch before.
fn launches() -> impl Strategy<Value = [HeadLaunch; 2]> {
    let rows = prop::collection::vec((0..ROWS as u32, request(), any::<u64>(), 0..3u32), 1..=ROWS);
    (rows, any::<u64>()).prop_map(|(rows, seed)| {
        let requests: Vec<HeadRequest> = rows.iter().map(|(_, request, ..)| request.clone()).collect();
        let judged: usize = requests.iter().map(|request| request.score_width).sum();
        let mut head = HeadLaunch {
            rows: (0..).zip(&rows).map(|(request, &(row, _, key, _))| HeadRow { row, request, key }).collect(),
            requests,
            blends: Vec::new(),
            score: numbers(judged, seed).map(|number| number % VOCABULARY as u32).collect(),
        };
        for (head_row, &(row, .., blend)) in (0..).zip(&rows).filter(|(_, row)| row.3 > 0) {
            let (other, slot) = ((row + 1) % ROWS as u32, if blend == 1 { NO_ROW } else { head_row });
            head.blends.push(BlendRows { head_row, other, scale: 0.5, slot });
        }
        let stored = |blend: &BlendRows| BlendRows { other: NO_ROW, scale: 1.5, ..*blend };
        let blends = head.blends.iter().filter(|blend| blend.slot != NO_ROW).map(stored).collect();
        [head.clone(), HeadLaunch { blends, ..head }]
    })
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (found - expected).abs() <= 4e-6 * expected.abs().max(1.0);
        assert!(near || found == expected, "{what} {index}: {found} instead of {expected}");
    }
}

fn assert_alike(found: &HeadOutput, expected: &HeadOutput) {
    assert_eq!(found.logits, expected.logits);
    assert_eq!(found.tokens, expected.tokens);
    assert_near(&found.confidence, &expected.confidence, "confidence");
    assert_near(&found.margin, &expected.margin, "margin");
    assert_near(&found.entropy, &expected.entropy, "entropy");
    let (tokens, probabilities): (Vec<u32>, Vec<f32>) = found.top.iter().copied().unzip();
    let (expected_tokens, expected_probabilities): (Vec<u32>, Vec<f32>) = expected.top.iter().copied().unzip();
    assert_eq!(tokens, expected_tokens);
    assert_near(&probabilities, &expected_probabilities, "probability");
    let parts = |out: &HeadOutput| {
        let ranks: Vec<u32> = out.scores.iter().map(|judged| judged.rank).collect();
        (ranks, out.scores.iter().flat_map(|judged| [judged.log_probability, judged.best]).collect::<Vec<f32>>())
    };
    let ((ranks, judged), (expected_ranks, expected_judged)) = (parts(found), parts(expected));
    assert_eq!(ranks, expected_ranks);
    assert_near(&judged, &expected_judged, "judgement");
}

#[test]
fn every_head_answers_whatever_is_asked_as_the_others_do() {
    let isa = Isa::best();
    let options =
        CpuOptions { isa, dtype: Dtype::F32, quantisation: None, activations: Activations::Plain, threads: 2 };
    let cpu = std::cell::RefCell::new(Model::new(CpuBackend::new(options)));
    let device = Emulator::new(Schedule::Forward).unwrap();
    let gpu = CudaBackend::new(device, CudaOptions { dtype: Dtype::F32, quantisation: None });
    let gpu = std::cell::RefCell::new(Model::new(gpu));
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(3), ..property::cases(150) };
    proptest!(config, |(launches in launches())| {
        for launch in &launches {
            let (found, expected) = (gpu.borrow_mut().answers(launch), cpu.borrow_mut().answers(launch));
            assert_alike(&found, &expected);
        }
    });
}
