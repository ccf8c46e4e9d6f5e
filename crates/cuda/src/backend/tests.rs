use std::{
    alloc::{GlobalAlloc, System},
    cell::Cell,
};

use demask_step::{DeviceMemory, HeadRequest};
use demask_tensor::{HeadRow, PAGE, RowSegment, TensorView};

use super::*;
use crate::{
    arguments::{GemmArgs, KeepArgs, NormaliseArgs},
    backend::fake::{Fake, Launched},
};

const SHAPE: AttentionShape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 16 };
const HIDDEN: usize = 48;
const FFN: usize = 80;
const VOCABULARY: usize = 70;

/// A model of one layer on a device that runs nothing.
struct Model {
    backend: CudaBackend<Fake>,
    kv: Pages<Fake>,
    embedding: Embedding<Fake>,
    norm: Vector<Fake>,
    matrices: [Matrix<Fake>; 7],
    pages: Vec<u32>,
}

const SHAPE_OF_WORK: WorkspaceShape = WorkspaceShape {
    adapter_rank: 0,
    rows: 1500,
    head_rows: 200,
    hidden: HIDDEN,
    ffn: FFN,
    experts: None,
    attention: SHAPE,
    vocabulary: VOCABULARY,
    table_entries: 100,
};

impl Model {
    fn new() -> Self {
        let options = CudaOptions { dtype: Dtype::Bf16, quantisation: None };
        let mut backend = CudaBackend::new(Fake::recording(), options);
        backend.reserve(&SHAPE_OF_WORK).unwrap();
        backend.set_rotation(&[1.0; 8 * 64], &[0.0; 8 * 64], 16).unwrap();
        let zeros = vec![0; 4 * 160 * 160];
        let matrix = |rows: usize, columns: usize| {
            backend.pack(TensorView::new(Dtype::F32, rows, columns, &zeros[..rows * columns * 4])).unwrap()
        };
        let gate = TensorView::new(Dtype::F32, FFN, HIDDEN, &zeros[..FFN * HIDDEN * 4]);
        let matrices = [
            matrix(64, HIDDEN),
            matrix(32, HIDDEN),
            matrix(32, HIDDEN),
            matrix(HIDDEN, 64),
            backend.pack_gate_up(gate, gate).unwrap(),
            matrix(HIDDEN, FFN),
            matrix(VOCABULARY, HIDDEN),
        ];
        let table = TensorView::new(Dtype::F32, VOCABULARY, HIDDEN, &zeros[..VOCABULARY * HIDDEN * 4]);
        let embedding = backend.pack_embedding(table).unwrap();
        let norm = backend.vector(&[1.0; HIDDEN]).unwrap();
        let (mut kv, mut pages) = (backend.new_kv(&SHAPE, 1, HIDDEN), Vec::new());
        let kind = PageKind { increments: true, residual: false };
        backend.allocate_pages(&mut kv, 64, kind, &mut pages).unwrap();
        Self { backend, kv, embedding, norm, matrices, pages }
    }

    /// `rows` rows of one sequence, the first `heads` of which the head reads.
    fn launch(&self, rows: u32, heads: u32) -> Launch {
        let slot = |row: u32| self.pages[row as usize / PAGE] * PAGE as u32 + row % PAGE as u32;
        let entries = rows.div_ceil(PAGE as u32);
        let mut launch = Launch {
            ids: (0..rows).map(|row| row % VOCABULARY as u32).collect(),
            positions: (0..rows).collect(),
            slots: (0..rows).map(slot).collect(),
            limits: vec![rows; rows as usize],
            segments: vec![RowSegment { rows: 0..rows, table: 0..entries }],
            tables: self.pages[..entries as usize].to_vec(),
            last: (0..heads).collect(),
            ..Launch::default()
        };
        launch.head.rows = (0..heads).map(|row| HeadRow { row, request: 0, key: 0 }).collect();
        launch.head.requests = vec![HeadRequest::default()];
        launch
    }

    fn forward(&mut self, launch: &Launch, rows: Rows) -> Result<HeadOutput, DeviceError> {
        let mut out = HeadOutput::default();
        self.forward_to(launch, rows, &mut out).map(|()| out)
    }

    fn forward_to(&mut self, launch: &Launch, rows: Rows, out: &mut HeadOutput) -> Result<(), DeviceError> {
        let Self { backend, kv, embedding, norm, matrices, .. } = self;
        let [query, key, value, output, gate_up, down, head] = &*matrices;
        let weights =
            QkvWeights { norm, epsilon: 1e-5, query, key, value, biases: None, head_norms: None, adapters: [None; 3] };
        backend.begin(launch, kv);
        backend.embed(embedding);
        if rows == Rows::Computed {
            backend.select(0, &weights, kv);
        }
        backend.hold(0, rows, kv);
        backend.qkv(0, &weights, QkvRows { query: rows, key: Rows::Live, value: Rows::Live }, kv);
        backend.attend(0, rows, kv);
        backend.project_add(output, None, rows);
        backend.mlp(
            &MlpWeights { norm, epsilon: 1e-5, gate_up, down, gate_up_adapters: [None; 2], down_adapter: None },
            rows,
        );
        backend.settle(0, rows, kv);
        if !launch.head.rows.is_empty() {
            backend.head(&HeadWeights { norm, epsilon: 1e-5, head }, kv, out);
        }
        backend.finish()
    }
}

/// An argument that was given, as the structure that it is.
fn argument<T: Copy>(launched: &Launched, name: &str) -> T {
    assert_eq!((launched.argument, launched.bytes.len()), (name, size_of::<T>()));
    // SAFETY: the bytes of such a structure.
    unsafe { launched.bytes.as_ptr().cast::<T>().read_unaligned() }
}

fn kernels(launched: &[Launched]) -> Vec<&'static str> {
    launched.iter().map(|launched| launched.kernel).collect()
}

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is handed to the system's allocator; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Launches like `launch` whose layers are computed partly: dLLM-Cache's, by drift of V and of K, and by chance.
fn partial(launch: Launch) -> impl Iterator<Item = Launch> {
    use demask_step::Drift;
    use demask_tensor::ProbeLaunch;
    let all = [Drift::Value, Drift::Key, Drift::Random { seed: 3 }];
    all.into_iter().map(move |by| Launch {
        partial: true,
        fixed: vec![1, 2],
        probed: (5..15).chain(16..22).collect(),
        probes: [(10, 3), (6, 1)].map(|(rows, keep)| ProbeLaunch { rows, keep, by }).into(),
        held: (0..launch.len() as u32).collect(),
        ..launch.clone()
    })
}

/// Whole and partial layers, the head on few rows and on more than one chunk of them, its answers in addition to tokens.
#[test]
fn a_warm_step_allocates_nothing() {
    let mut model = Model::new();
    let asked = HeadRequest { margin: true, entropy: true, top: 3, banned: vec![7].into(), ..HeadRequest::default() };
    let launch = |rows: u32, heads: u32| {
        let mut launch = model.launch(rows, heads);
        launch.head.requests = vec![asked.clone()];
        // Every other row, from the last one on.
        launch.head.rows.iter_mut().zip((0..rows).rev().step_by(2)).for_each(|(head, row)| head.row = row);
        launch.last = (0..rows).rev().step_by(2).take(heads as usize).collect();
        launch.last.reverse();
        launch
    };
    let mut cases = Vec::new();
    for (rows, heads) in [(30, 5), (30, 0), (1100, 200)] {
        cases.extend([Rows::Live, Rows::Last].map(|set| (launch(rows, heads), set)));
        cases.extend(partial(launch(rows, heads)).map(|launch| (launch, Rows::Computed)));
    }
    // A step that takes K/V over from drafts.
    let keeps = (0..9).map(|slot| demask_tensor::SlotCopy { from: slot + 320, to: slot }).collect();
    cases.push((Launch { keeps, ..launch(30, 5) }, Rows::Live));
    let mut out = HeadOutput::default();
    for (launch, set) in cases {
        let what = format!("{} rows, {set:?}, {} for the head, {:?}", launch.len(), launch.last.len(), launch.probes);
        // The first is recorded, the second a graph already.
        let cold = ALLOCATIONS.get();
        for _ in 0..2 {
            model.forward_to(&launch, set, &mut out).unwrap();
        }
        assert_ne!(ALLOCATIONS.get(), cold, "nothing is counted");
        let (launches, replays) = model.backend.gpu().counts();
        let before = ALLOCATIONS.get();
        model.forward_to(&launch, set, &mut out).unwrap();
        assert_eq!(ALLOCATIONS.get() - before, 0, "{what}");
        assert_eq!(model.backend.gpu().counts(), (launches, replays + 1), "{what}");
    }
}

#[test]
fn a_step_is_one_upload_and_the_next_of_its_bucket_a_graph() {
    let mut model = Model::new();
    let before = model.backend.gpu().uploads();
    let first = model.forward(&model.launch(30, 5), Rows::Live).unwrap();
    assert_eq!((first.tokens.len(), model.backend.gpu().uploads()), (5, before + 1));
    let (launches, replays) = model.backend.gpu().counts();
    assert!(launches > 8 && replays == 0);
    let second = model.forward(&model.launch(25, 7), Rows::Live).unwrap();
    assert_eq!((second.tokens.len(), model.backend.gpu().uploads()), (7, before + 2));
    assert_eq!(model.backend.gpu().counts(), (launches, 1));
    model.forward(&model.launch(33, 5), Rows::Live).unwrap();
    assert_eq!(model.backend.gpu().counts().1, 1, "another bucket");
}

#[test]
fn long_lists_are_taken_in_chunks() {
    let mut model = Model::new();
    let launch = model.launch(1300, 3);
    model.forward(&launch, Rows::Live).unwrap();
    let launched = model.backend.gpu().take_launched();
    let norms: Vec<NormaliseArgs> =
        launched.iter().filter(|l| l.kernel == "normalise_bf16").map(|l| argument(l, "NormaliseArgs")).collect();
    // Two chunks in front of the projections and two in front of the MLP.
    assert_eq!(norms.len(), 4);
    assert_eq!(norms[1].list.rows.0 - norms[0].list.rows.0, 1024 * 4);
    let gpu = model.backend.gpu();
    let counts: Vec<u32> = norms.iter().map(|args| gpu.words(args.list.count, 1)[0]).collect();
    assert_eq!(counts, [1024, 276, 1024, 276]);
    assert_eq!(gpu.words(norms[1].list.rows, 3), [1024, 1025, 1026]);
    let products = launched.iter().filter(|l| l.argument == "GemmArgs").map(|l| argument::<GemmArgs>(l, "GemmArgs"));
    let rows: Vec<u32> = products.map(|args| args.rows).collect();
    assert_eq!(rows, [1024, 512, 1024, 512, 1024, 1024, 512, 512, 8]);
}

#[test]
fn projections_are_one_product_where_their_rows_are_the_same() {
    let mut model = Model::new();
    for (rows, parts) in [(Rows::Live, vec![3]), (Rows::Last, vec![1, 2])] {
        let launch = model.launch(30, 5);
        model.forward(&launch, rows).unwrap();
        let launched = model.backend.gpu().take_launched();
        let products = launched.iter().filter(|l| l.argument == "GemmArgs");
        let found: Vec<u32> = products.map(|l| argument::<GemmArgs>(l, "GemmArgs").parts).collect();
        assert_eq!(found[..parts.len()], parts, "{rows:?}");
    }
}

#[test]
fn copies_come_first_and_by_their_own_buckets() {
    let mut model = Model::new();
    let mut launch = model.launch(30, 5);
    launch.keeps = (0..9).map(|slot| demask_tensor::SlotCopy { from: slot + 320, to: slot }).collect();
    launch.copies = vec![demask_tensor::PageCopy { from: 1, to: 2 }];
    model.forward(&launch, Rows::Live).unwrap();
    let launched = model.backend.gpu().take_launched();
    assert_eq!(kernels(&launched)[..3], ["keep_slots", "copy_pages", "embed_bf16"]);
    assert_eq!((launched[0].geometry.grid, launched[1].geometry.grid), ([16, 1, 1], [8, 1, 1]));
    let args: KeepArgs = argument(&launched[0], "KeepArgs");
    assert_eq!((args.element, model.backend.gpu().words(args.count, 1)), (2, vec![9]));
}

#[test]
fn increments_are_marked_once_and_held_where_there_are_some() {
    let mut model = Model::new();
    let mut launch = model.launch(30, 5);
    launch.held = (0..30).collect();
    launch.partial = true;
    launch.fixed = vec![1, 2];
    launch.probed = (5..15).collect();
    let by = demask_step::Drift::Value;
    launch.probes = vec![demask_tensor::ProbeLaunch { rows: 10, keep: 3, by }];
    model.forward(&launch, Rows::Computed).unwrap();
    let launched = kernels(&model.backend.gpu().take_launched());
    let of = |name: &str| launched.iter().filter(|kernel| **kernel == name).count();
    assert_eq!(
        ["mark", "hold", "settle_held", "settle_rest", "choose", "roll", "compare_bf16"].map(of),
        [1, 1, 1, 1, 1, 0, 1]
    );
    let place = |name: &str| launched.iter().position(|kernel| *kernel == name).unwrap();
    assert!(place("compare_bf16") < place("choose") && place("choose") < place("mark"));
    // All rows are in the set: nothing else has to be settled.
    model.forward(&launch, Rows::Live).unwrap();
    assert!(!kernels(&model.backend.gpu().take_launched()).contains(&"settle_rest"));
}

#[test]
fn logits_are_read_before_anything_is_struck_out() {
    let mut model = Model::new();
    let mut launch = model.launch(30, 5);
    launch.head.requests[0].logits = true;
    for _ in 0..2 {
        let out = model.forward(&launch, Rows::Live).unwrap();
        assert_eq!(out.logits.len(), 5 * VOCABULARY);
    }
    assert_eq!(model.backend.gpu().counts().1, 0, "no graph");
}

#[test]
fn seconds_of_parts_are_told_apart() {
    let mut model = Model::new();
    model.backend.time_parts(true);
    model.forward(&model.launch(30, 5), Rows::Live).unwrap();
    let seconds = model.backend.part_seconds();
    // The fake's clock counts launches: projections, output, gate and up, down; attention; the head's three.
    assert_eq!((seconds.linear, seconds.head), (4.0, 3.0));
    assert!(seconds.attention >= 1.0);
    model.backend.time_parts(false);
    assert_eq!(model.backend.part_seconds(), PartSeconds::default());
}

#[test]
fn a_device_that_fails_in_a_step_fails_in_all_that_follow() {
    let mut model = Model::new();
    let launch = model.launch(30, 5);
    model.forward(&launch, Rows::Live).unwrap();
    model.backend.gpu().fail_from_now_on("an illegal address");
    let error = model.forward(&launch, Rows::Live).unwrap_err();
    assert_eq!(error.to_string(), "cuFake: an illegal address");
    model.backend.gpu().fail_from_now_on("something else");
    assert_eq!(model.forward(&launch, Rows::Live), Err(error.clone()));
    // What needs no launch works still, and says nothing of its own.
    model.backend.reserve(&SHAPE_OF_WORK).unwrap();
    let mut pages = Vec::new();
    model.backend.allocate_pages(&mut model.kv, 3, PageKind::default(), &mut pages).unwrap();
    assert_eq!(pages.len(), 3);
    let mut read = vec![1.0];
    model.backend.read(Stage::Residual, &mut read);
    assert!(read.is_empty());
    assert_eq!(model.forward(&launch, Rows::Live), Err(error));
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let options = CudaOptions { dtype: Dtype::Bf16, quantisation: None };
    let mut backend = CudaBackend::new(Fake::with_memory(100_000), options);
    let needed = options.workspace_bytes(&SHAPE_OF_WORK);
    assert_eq!(backend.reserve(&SHAPE_OF_WORK), Err(OutOfMemory { needed, available: 100_000 }));
    let small = WorkspaceShape { rows: 8, head_rows: 8, table_entries: 8, ..SHAPE_OF_WORK };
    backend.reserve(&small).unwrap();
    assert_eq!(backend.gpu().held(), options.workspace_bytes(&small), "as counted before");
    let meter = backend.memory_meter().unwrap();
    let held = backend.gpu().held();
    assert_eq!(meter.read(), DeviceMemory { current: held, peak: held, in_use: held });
    let smaller = WorkspaceShape { vocabulary: VOCABULARY / 2, ..small };
    backend.reserve(&smaller).unwrap();
    let left = options.workspace_bytes(&smaller);
    assert!(left < held);
    assert_eq!(meter.read(), DeviceMemory { current: left, peak: held, in_use: left });
    meter.forget_peak();
    assert_eq!(meter.read().peak, left);
    backend.reserve(&small).unwrap();
    let refused = backend.set_rotation(&vec![0.0; 1 << 20], &vec![0.0; 1 << 20], 16).unwrap_err();
    assert_eq!(refused.needed, 4 << 20);
    let mut kv = backend.new_kv(&SHAPE, 1, HIDDEN);
    let refused = backend.allocate_pages(&mut kv, 1000, PageKind::default(), &mut Vec::new()).unwrap_err();
    assert_eq!(refused.needed, 1000 * options.page_bytes(&SHAPE, 1, HIDDEN, PageKind::default()));
}
