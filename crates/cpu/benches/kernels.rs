//! The kernels that this machine would use, in shapes of an 8B model or a fraction of them: a run takes about a minute.
//! Lower tiers are measured by `demask bench`.

use std::time::Duration;

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};
use demask_cpu::{
    isa::Isa,
    linear::{Linear, Quantisation},
    pool::{Pool, available_threads},
    trial::{AttentionTrial, HeadTrial, LinearTrial, NormTrial},
};
use demask_tensor::{AttentionShape, Dtype, HeadRequest};

/// Inputs and outputs: a projection of an 8B model.
const WIDTH: usize = 4096;
/// Tokens and inputs of a small model's head.
const HEAD: (usize, usize) = (32768, 1024);

/// A few samples of a second in all.
fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    group
}

fn linear(criterion: &mut Criterion, pool: &Pool) {
    let mut group = group(criterion, "linear");
    let kinds = [
        (Dtype::F32, None),
        (Dtype::Bf16, None),
        (Dtype::Bf16, Some(Quantisation::Q8)),
        (Dtype::Bf16, Some(Quantisation::Q4)),
    ];
    for (dtype, quantisation) in kinds {
        let linear = Linear::with_weights(Isa::best(), dtype, quantisation);
        let mut trial = LinearTrial::new(linear, 256, WIDTH, WIDTH).expect("memory for weights");
        for rows in [1, 8, 32, 256] {
            group.throughput(Throughput::Elements(2 * (rows * WIDTH * WIDTH) as u64));
            group.bench_function(BenchmarkId::new(linear.name(), rows), |bencher| {
                bencher.iter(|| trial.run(pool, rows));
            });
        }
    }
}

fn attention(criterion: &mut Criterion, pool: &Pool) {
    let shape = AttentionShape { heads: 32, kv_heads: 8, head_dim: 128 };
    let mut group = group(criterion, "attention");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (rows, keys) in [(1, 1024), (32, 1024), (256, 1024)] {
            let mut trial = AttentionTrial::new(Isa::best(), dtype, shape, (rows, keys)).expect("memory for keys");
            group.throughput(Throughput::Elements(4 * (rows * keys * shape.heads * shape.head_dim) as u64));
            group.bench_function(BenchmarkId::new(dtype.to_string(), rows), |bencher| {
                bencher.iter(|| trial.run(pool));
            });
        }
    }
}

fn head(criterion: &mut Criterion, pool: &Pool) {
    let mut group = group(criterion, "head");
    // What is answered from the product's epilogue, and what takes stored logits.
    let requests =
        [("plain", HeadRequest::default()), ("entropy", HeadRequest { entropy: true, ..HeadRequest::default() })];
    for (name, request) in requests {
        for rows in [32, 256] {
            let linear = Linear::new(Isa::best(), Dtype::Bf16);
            let trial = HeadTrial::new(linear, pool.threads(), rows, HEAD, request.clone());
            let mut trial = trial.expect("memory for a head");
            group.throughput(Throughput::Elements(2 * (rows * HEAD.0 * HEAD.1) as u64));
            group.bench_function(BenchmarkId::new(name, rows), |bencher| bencher.iter(|| trial.run(pool)));
        }
    }
}

fn norm(criterion: &mut Criterion) {
    let mut trial = NormTrial::new(Isa::best(), 256, WIDTH);
    let mut group = group(criterion, "rms_norm");
    group.throughput(Throughput::Elements(256 * WIDTH as u64));
    group.bench_function(BenchmarkId::from_parameter(256), |bencher| bencher.iter(|| trial.run()));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let pool = Pool::new(available_threads());
    linear(&mut criterion, &pool);
    attention(&mut criterion, &pool);
    head(&mut criterion, &pool);
    norm(&mut criterion);
    criterion.final_summary();
}
