//! What this machine can do at most, measured in a moment: what speeds are compared with.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use demask::{
    cpu::{
        isa::Isa,
        linear::{Linear, Output},
        pool::Pool,
    },
    tensor::{Dtype, TensorView},
};

/// Bytes that are read to measure bandwidth: more than any cache holds.
const READ: usize = 256 << 20;
/// Bytes that one task reads.
const PIECE: usize = 4 << 20;
/// Inputs and outputs of the product.
const WIDTH: usize = 4096;
/// Most rows of the product.
const ROWS: usize = 1024;
/// Rows of the product whose time tells how many rows fit into the time that there is.
const FEW_ROWS: usize = 32;
/// Seconds that a product may take.
const PATIENCE: f64 = 0.25;
/// The best of this many is told.
const TRIES: usize = 3;

/// Memory bandwidth of reading in GB/s; nothing if there is no memory to read.
pub fn read_gbs(pool: &Pool) -> Option<f64> {
    let words = READ / size_of::<u64>();
    let mut memory: Vec<u64> = Vec::new();
    memory.try_reserve_exact(words).ok()?;
    // Not zero: pages that were never written are one and the same.
    memory.resize(words, 1);
    let pieces: Vec<_> = memory.chunks(PIECE / size_of::<u64>()).collect();
    let sum = AtomicU64::new(0);
    let seconds = best(|| {
        pool.run(pieces.len(), &|piece| {
            let part = pieces[piece].iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            sum.fetch_add(part, Ordering::Relaxed);
        });
    });
    black_box(sum.into_inner());
    Some(READ as f64 / seconds / 1e9)
}

/// Rate of a large matrix product in TFLOP/s; nothing if there is no memory for it.
pub fn product_tflops(pool: &Pool, isa: Isa, dtype: Dtype) -> Option<f64> {
    let linear = Linear::new(isa, dtype);
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(WIDTH * WIDTH * 2).ok()?;
    // bf16 of 1.0: the values do not matter, but infinities and denormals would.
    bytes.extend([0x80, 0x3f].iter().copied().cycle().take(WIDTH * WIDTH * 2));
    let weight = linear.pack(TensorView::new(Dtype::Bf16, WIDTH, WIDTH, &bytes)).ok()?;
    drop(bytes);
    let mut input = linear.try_new_input(ROWS, WIDTH)?;
    let row = vec![0.5; WIDTH];
    (0..ROWS).for_each(|index| input.set_row(index, &row));
    let mut out: Vec<f32> = Vec::new();
    out.try_reserve_exact(ROWS * WIDTH).ok()?;
    out.resize(ROWS * WIDTH, 0.0);
    let mut run = |rows: usize| {
        let output = Output::Store { out: &mut out[..rows * WIDTH], stride: WIDTH };
        linear.matmul(pool, &input, rows, &weight, None, output);
    };
    let few = best(|| run(FEW_ROWS));
    let fitting = (PATIENCE / TRIES as f64 / few * FEW_ROWS as f64) as usize;
    let rows = (fitting / FEW_ROWS * FEW_ROWS).clamp(FEW_ROWS, ROWS);
    let seconds = best(|| run(rows));
    Some(flops(rows) / seconds / 1e12)
}

fn flops(rows: usize) -> f64 {
    2.0 * rows as f64 * (WIDTH * WIDTH) as f64
}

/// Shortest time of a few runs, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let mut time = || {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    (0..TRIES).map(|_| time()).fold(f64::INFINITY, f64::min).max(1e-9)
}
