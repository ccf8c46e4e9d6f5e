//! The kernels of linear layers and of attention, on every tier of this machine, in the shapes of an 8B model.

use criterion::{BenchmarkId, Criterion, Throughput};
use demask_cpu::{
    isa::Isa,
    linear::{Linear, kernel_list},
    pool::{Pool, available_threads},
    trial::{AttentionTrial, LinearTrial},
};
use demask_tensor::{AttentionShape, Dtype};

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
    let mut trial = LinearTrial::new(linear, 256, WIDTH, WIDTH).expect("memory for a weight");
    for rows in [1, 8, 32, 256] {
        group.throughput(Throughput::Elements(2 * (rows * WIDTH * WIDTH) as u64));
        group.bench_function(BenchmarkId::new(linear.name(), rows), |bencher| {
            bencher.iter(|| trial.run(pool, rows));
        });
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
    attention(&mut criterion);
    criterion.final_summary();
}
