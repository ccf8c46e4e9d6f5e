//! The kernels of linear layers and of attention, on every tier of this machine, and packing on the best, in the shapes
//! of an 8B model.

use std::sync::Mutex;

use criterion::{BenchmarkId, Criterion, Throughput};
use demask_cpu::{
    isa::Isa,
    linear::{Linear, kernel_list},
    pool::{Pool, available_threads},
    trial::{AttentionTrial, LinearTrial},
};
use demask_tensor::{AlignedBytes, AttentionShape, Dtype, TensorView};
use half::{bf16, f16};

/// Inputs and outputs: a projection of an 8B model.
const WIDTH: usize = 4096;

fn linear(criterion: &mut Criterion) {
    let pool = Pool::new(available_threads());
    let mut group = criterion.benchmark_group("linear");
    group.sample_size(10);
    // The emulated kernels are for tests.
    for linear in kernel_list().into_iter().filter(|linear| !linear.isa().is_emulated()) {
        product(&mut group, &pool, linear);
    }
}

fn product(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>, pool: &Pool, linear: Linear) {
    let mut trial = LinearTrial::new(linear, pool, 256, WIDTH, WIDTH).expect("memory for a weight");
    for rows in [1, 8, 32, 256] {
        group.throughput(Throughput::Elements(2 * (rows * WIDTH * WIDTH) as u64));
        group.bench_function(BenchmarkId::new(linear.name(), rows), |bencher| {
            bencher.iter(|| trial.run(pool, rows));
        });
    }
}

/// Numbers between -1 and 1 in a type, none of them so small that processors take a detour.
fn noise(stored: Dtype, count: usize) -> Vec<u8> {
    let numbers =
        (0..count as u32).map(|index| (index.wrapping_mul(0x9e37_79b9) >> 8 | 1) as f32 / (1 << 23) as f32 - 1.0);
    match stored {
        Dtype::F16 => numbers.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect(),
        Dtype::Bf16 => numbers.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect(),
        _ => numbers.flat_map(f32::to_le_bytes).collect(),
    }
}

/// A copy in fresh memory, each thread's part by itself.
fn copied(pool: &Pool, bytes: &[u8]) -> Vec<Mutex<AlignedBytes>> {
    let parts: Vec<_> = bytes.chunks(bytes.len().div_ceil(pool.threads())).collect();
    let copies: Vec<_> = parts.iter().map(|part| Mutex::new(AlignedBytes::zeroed(part.len()))).collect();
    pool.run(parts.len(), &|part| {
        copies[part].lock().expect("one task a part").as_mut_slice::<u8>().copy_from_slice(parts[part]);
    });
    copies
}

/// Packing a projection, in bytes as stored, beside a copy of these bytes into fresh memory.
fn packing(criterion: &mut Criterion) {
    let pool = Pool::new(available_threads());
    let mut group = criterion.benchmark_group("pack");
    group.sample_size(10);
    for stored in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
        let bytes = noise(stored, 3 * WIDTH * WIDTH);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("copy", stored), |bencher| {
            bencher.iter(|| copied(&pool, &bytes));
        });
        let weight = TensorView::new(stored, 3 * WIDTH, WIDTH, &bytes);
        for linear in kernel_list().into_iter().filter(|linear| linear.isa() == Isa::best()) {
            group.bench_function(BenchmarkId::new(linear.name(), stored), |bencher| {
                bencher.iter(|| linear.pack(&pool, weight).expect("memory for a weight"));
            });
        }
    }
}

fn attention(criterion: &mut Criterion) {
    let pool = Pool::new(available_threads());
    let shape = AttentionShape { heads: 32, kv_heads: 8, head_dim: 128 };
    let mut group = criterion.benchmark_group("attention");
    group.sample_size(10);
    for isa in Isa::available() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (rows, keys) in [(1, 1024), (32, 1024), (256, 1024)] {
                let mut trial = AttentionTrial::new(isa, dtype, shape, (rows, keys)).expect("memory for keys");
                group.throughput(Throughput::Elements(4 * (rows * keys * shape.heads * shape.head_dim) as u64));
                let name = format!("{}_{dtype}", isa.tier());
                group.bench_function(BenchmarkId::new(name, rows), |bencher| bencher.iter(|| trial.run(&pool)));
            }
        }
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    linear(&mut criterion);
    packing(&mut criterion);
    attention(&mut criterion);
    criterion.final_summary();
}
