//! Products allocate nothing. In a file of its own, for its allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use demask_cpu::{
    isa,
    linear::{Output, kernels_of},
    pool::Pool,
};
use demask_tensor::{Dtype, TensorView};

/// The system's allocator, counting what the marked threads ask for: the test's harness has threads of its own.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(usize::from(MARKED.get()), Ordering::SeqCst);
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

/// Marks all threads of a pool: each takes one task and waits for the others.
fn mark(pool: &Pool) {
    let marked = AtomicUsize::new(0);
    pool.run(pool.threads(), &|_| {
        MARKED.set(true);
        marked.fetch_add(1, Ordering::SeqCst);
        while marked.load(Ordering::SeqCst) < pool.threads() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn products_allocate_nothing() {
    let pool = Pool::new(3);
    mark(&pool);
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
        assert!(ALLOCATIONS.load(Ordering::SeqCst) > 0, "packing is counted");
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (0..20).for_each(|_| products());
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), before, "{}", linear.name());
    }
}
