//! Neither products nor steps allocate anything. The counting allocator counts every thread: so this has no harness, which
//! has threads of its own.

mod backend_model;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use backend_model::{Model, ask_all, push_partial, push_rows, rows, tokens, twin};
use demask_cpu::{
    isa::{self, Isa},
    linear::{Output, kernels_of},
    pool::Pool,
};
use demask_step::{ConfidenceOf, Sampling};
use demask_tensor::{Dtype, Launch, PAGE, PageCopy, PageKind, Rows, SlotCopy, TensorView};
use demask_testkit::naive::network::Partial;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    products_allocate_nothing();
    a_step_allocates_nothing();
}

/// Starts all threads of a pool, which the standard library allocates for: each takes one task and waits for the others.
fn start(pool: &Pool) {
    let started = AtomicUsize::new(0);
    pool.run(pool.threads(), &|_| {
        started.fetch_add(1, Ordering::SeqCst);
        while started.load(Ordering::SeqCst) < pool.threads() {
            std::thread::yield_now();
        }
    });
}

fn products_allocate_nothing() {
    let pool = Pool::new(3);
    start(&pool);
    let (out, columns, rows) = (100, 70, 45);
    let bytes = vec![0u8; out * columns * 4];
    let view = TensorView::new(Dtype::F32, out, columns, &bytes);
    let (mut residual, map): (Vec<f32>, Vec<u32>) = (vec![0.0; rows * out], (0..rows as u32).rev().collect());
    // SAFETY: the trap executes tile instructions where it says so.
    let isas = unsafe { isa::testable(demask_testkit::tiles::trap) };
    for linear in kernels_of(isas) {
        let (packed, pair) = (linear.pack(&pool, view).unwrap(), linear.pack_gate_up(&pool, view, view).unwrap());
        let (input, mut output) = (linear.new_input(rows, columns), linear.new_input(rows, out));
        let mut products = || {
            for rows in [1, 20, rows] {
                let target = Output::Add { residual: &mut residual, stride: out, rows: Some(&map[..rows]) };
                linear.matmul(&pool, &input, rows, &packed, None, target);
                linear.gate_up(&pool, &input, rows, &pair, &mut output);
            }
        };
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        assert!(before > 0, "packing is counted");
        (0..20).for_each(|_| products());
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), before, "{}", linear.name());
    }
}

/// A launch of two sequences with everything in it; the later it is, the longer.
fn launch(pages: &[Vec<u32>], length: usize) -> Launch {
    let mut launch = Launch::default();
    launch.keeps.push(SlotCopy { from: pages[2][0] * PAGE as u32, to: pages[0][0] * PAGE as u32 });
    launch.copies.push(PageCopy { from: pages[0][0], to: pages[2][0] });
    for (sequence, pages) in pages[..2].iter().enumerate() {
        let first = push_rows(&mut launch, pages, &rows(&tokens(length, 3), 0..length), &|position| position + 1);
        let probed = (2..length).collect();
        let partial = Partial { fixed: vec![0, 1], probed, keep: 5, by_key: sequence == 0, ..Partial::default() };
        push_partial(&mut launch, first..first + length as u32, &partial);
    }
    let all = launch.len() as u32;
    ask_all(&mut launch, 0..all);
    let request = &mut launch.head.requests[0];
    request.sampling = Sampling { top_k: 40, top_p: 0.9, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
    request.zero_confidence = vec![4].into();
    request.banned = vec![5, 6].into();
    launch
}

fn a_step_allocates_nothing() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let twin = twin(dtype, dtype == Dtype::F32);
        for isa in Isa::available() {
            let mut model = Model::new(&twin, isa, dtype, 3);
            let kind = PageKind { increments: true, residual: true };
            let pages: Vec<_> = (0..3).map(|_| model.pages(3, kind)).collect();
            let launches: Vec<_> = [90, 30, 60, 90].map(|length| launch(&pages, length)).into();
            // The first step: threads set up what the standard library keeps for each, the output grows.
            model.forward(&launches[0], Rows::Computed, Rows::Computed);
            let before = ALLOCATIONS.load(Ordering::SeqCst);
            for launch in &launches {
                model.forward(launch, Rows::Computed, Rows::Computed);
            }
            assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), before, "{isa:?} {dtype}");
        }
    }
}
