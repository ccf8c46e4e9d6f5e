//! A step allocates nothing. In a file of its own: the counting allocator counts every thread.

mod backend_model;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use backend_model::{Model, ask_all, push_rows, rows, tokens, twin};
use demask_cpu::isa::Isa;
use demask_step::{ConfidenceOf, Drift, Sampling};
use demask_tensor::{Dtype, Launch, PAGE, PageCopy, PageKind, ProbeLaunch, Rows, SlotCopy};

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

/// A launch of two sequences with everything in it; the later it is, the longer.
fn launch(pages: &[Vec<u32>], length: usize) -> Launch {
    let mut launch = Launch { partial: true, ..Launch::default() };
    launch.keeps.push(SlotCopy { from: pages[2][0] * PAGE as u32, to: pages[0][0] * PAGE as u32 });
    launch.copies.push(PageCopy { from: pages[0][0], to: pages[2][0] });
    for (sequence, pages) in pages[..2].iter().enumerate() {
        let first = push_rows(&mut launch, pages, &rows(&tokens(length, 3), 0..length), &|position| position + 1);
        launch.held.extend(first..first + length as u32);
        launch.fixed.extend(first..first + 2);
        launch.probed.extend(first + 2..first + length as u32);
        let by = if sequence == 0 { Drift::Key } else { Drift::Value };
        launch.probes.push(ProbeLaunch { rows: length as u32 - 2, keep: 5, by });
    }
    let all = launch.len() as u32;
    ask_all(&mut launch, 0..all);
    let request = &mut launch.head.requests[0];
    request.sampling = Sampling { top_k: 40, top_p: 0.9, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
    request.mute = vec![4].into();
    request.forbid = vec![5, 6].into();
    launch
}

#[test]
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
