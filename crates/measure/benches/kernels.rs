//! The kernels that this machine would use, and packing, in shapes of an 8B model or a fraction of them: a run takes
//! about a minute.
//! Lower tiers are measured by `demask-lab bench`.

use std::{sync::Mutex, time::Duration};

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};
use demask_cpu::{
    CpuOptions,
    cores::fast_cores,
    isa::Isa,
    linear::{Activations, Linear, Products, Quantisation, kernels_of},
    pool::Pool,
};
use demask_measure::trial::{AttentionTrial, HeadTrial, LinearTrial};
use demask_step::{HeadRequest, Sampling};
use demask_tensor::{AlignedBytes, AttentionShape, Dtype, TensorView};
use half::{bf16, f16};

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

/// Options of a backend with as many threads as a pool.
fn options(pool: &Pool, dtype: Dtype) -> CpuOptions {
    let (isa, threads) = (Isa::best(), pool.threads());
    CpuOptions { isa, dtype, quantisation: None, activations: Activations::Plain, threads }
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
fn packing(criterion: &mut Criterion, pool: &Pool) {
    let mut group = group(criterion, "pack");
    for stored in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
        let bytes = noise(stored, 3 * WIDTH * WIDTH);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("copy", stored), |bencher| {
            bencher.iter(|| copied(pool, &bytes));
        });
        let weight = TensorView::new(stored, 3 * WIDTH, WIDTH, &bytes);
        for linear in kernels_of([Isa::best()]) {
            group.bench_function(BenchmarkId::new(linear.name(), stored), |bencher| {
                bencher.iter(|| linear.pack(pool, weight).expect("memory for a weight"));
            });
        }
    }
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
        let linear = Linear::with_products(Isa::best(), Products { quantisation, ..Products::plain(dtype) });
        let mut trial = LinearTrial::new(linear, pool, Dtype::Bf16, 256, WIDTH, WIDTH).expect("memory for weights");
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
            let mut trial = AttentionTrial::new(options(pool, dtype), shape, (rows, keys)).expect("memory for keys");
            group.throughput(Throughput::Elements(4 * (rows * keys * shape.heads * shape.head_dim) as u64));
            group.bench_function(BenchmarkId::new(dtype.to_string(), rows), |bencher| {
                bencher.iter(|| trial.run());
            });
        }
    }
}

fn head(criterion: &mut Criterion, pool: &Pool) {
    let mut group = group(criterion, "head");
    // What is answered from the product's epilogue, and what takes stored logits.
    let plain = HeadRequest::default();
    let noise = Sampling { temperature: 1.0, ..Sampling::default() };
    let requests = [
        ("plain", plain.clone()),
        ("entropy", HeadRequest { entropy: true, ..plain.clone() }),
        ("top 8", HeadRequest { top: 8, ..plain.clone() }),
        ("noise", HeadRequest { sampling: noise, ..plain.clone() }),
        ("filtered noise", HeadRequest { sampling: Sampling { top_p: 0.9, ..noise }, ..plain }),
    ];
    for (name, request) in requests {
        for rows in [32, 256] {
            let trial = HeadTrial::new(options(pool, Dtype::Bf16), rows, HEAD, request.clone());
            let mut trial = trial.expect("memory for a head");
            group.throughput(Throughput::Elements(2 * (rows * HEAD.0 * HEAD.1) as u64));
            group.bench_function(BenchmarkId::new(name, rows), |bencher| bencher.iter(|| trial.run()));
        }
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let pool = Pool::new(fast_cores());
    linear(&mut criterion, &pool);
    packing(&mut criterion, &pool);
    attention(&mut criterion, &pool);
    head(&mut criterion, &pool);
    criterion.final_summary();
}
