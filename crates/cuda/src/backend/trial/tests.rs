use demask_tensor::Quantisation;
use demask_testkit::naive::linear::{self, Shape};

use super::*;
use crate::emulator::{Emulator, Schedule};

fn backend(dtype: Dtype, quantisation: Option<Quantisation>) -> CudaBackend<Emulator> {
    let limits = Limits { capability: 80, processors: 4, shared: 163 << 10, memory: 1 << 20 };
    let emulator = Emulator::with_limits(Schedule::Forward, limits).unwrap();
    CudaBackend::new(emulator, CudaOptions { dtype, quantisation })
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    super::super::widened(dtype, bytes, &mut values);
    values
}

fn downloaded(buffer: &Buffer<Emulator>, dtype: Dtype, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * dtype.size()];
    buffer.download(0, &mut bytes).unwrap();
    floats(dtype, &bytes)
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= tolerance * (1.0 + expected.abs()), "{what}: {found} at {place}, expected {expected}");
    }
}

/// Timed products are those of the naive twin, run with every copy of the weight, and take time.
#[test]
fn products_that_are_timed_are_those_of_the_naive_twin() {
    const ROWS: usize = 11;
    const INPUTS: usize = 100;
    const OUTPUTS: usize = 70;
    for (dtype, quantisation, name) in [
        (Dtype::F32, None, "gemm_f32_store_"),
        (Dtype::Bf16, None, "gemm_bf16_store_"),
        (Dtype::Bf16, Some(Quantisation::Q8), "gemm_q8_store_"),
        (Dtype::Bf16, Some(Quantisation::Q4), "gemm_q4_store_"),
        (Dtype::F32, Some(Quantisation::Q8), "gemm_q8f_store_"),
    ] {
        let backend = backend(dtype, quantisation);
        let mut trial = LinearTrial::new(&backend, ROWS, INPUTS, OUTPUTS).unwrap();
        let kernels = trial.kernels(ROWS);
        assert!(trial.copies > 1 && kernels.iter().all(|kernel| kernel.starts_with(name)), "{} copies", trial.copies);
        let columns = [OUTPUTS as u32];
        let chosen = gemm::choose(&backend.limits, (kind(trial.weights.format(), dtype), End::Store), &columns, 16);
        assert_eq!((kernels[0], kernels.len() > 1), (chosen.0, true));
        assert_eq!(trial.format(), quantisation.map_or_else(|| dtype.to_string(), |to| to.to_string()));
        let mut noise = Noise(1);
        let weight = floats(Dtype::Bf16, &noise.take(Dtype::Bf16, OUTPUTS * INPUTS));
        let padded: Vec<f32> = weight.chunks(INPUTS).flat_map(|row| [row, &[0.0; 128 - INPUTS]].concat()).collect();
        let numbers = match quantisation {
            Some(to) if dtype == Dtype::Bf16 => linear::rounded(&linear::quantised(&padded, 128, to.bits())),
            Some(to) => linear::quantised(&padded, 128, to.bits()),
            None => padded,
        };
        let input = floats(dtype, &padded_rows(&mut noise, dtype, 16, [INPUTS, 128]));
        let shape = Shape { rows: ROWS, out: OUTPUTS, columns: 128 };
        let expected = linear::linear(shape, &input[..ROWS * 128], &numbers, None);
        assert!(trial.run(ROWS, kernels[0]).unwrap() > 0.0);
        assert_eq!(trial.next, LAUNCHES % trial.copies);
        assert_eq!(trial.run(ROWS, "gemm").unwrap_err(), GpuError::Kernel("gemm".to_owned()));
        for copy in 0..trial.copies {
            trial.out.zero(0, trial.out.bytes()).unwrap();
            trial.next = copy;
            trial.multiply_all(ROWS, kernels[copy % kernels.len()]).unwrap();
            let found = downloaded(&trial.out, Dtype::F32, ROWS * OUTPUTS);
            assert_close(&found, &expected, 2e-5, &format!("{name} copy {copy}"));
        }
        let row = 128 * dtype.size() + OUTPUTS * 4;
        let weight = backend.options().matrix_bytes(Dtype::Bf16, OUTPUTS, INPUTS) as usize;
        assert_eq!(trial.bytes(ROWS), weight + ROWS * row);
    }
}

#[test]
fn attention_that_is_timed_sees_all_keys() {
    const ROWS: usize = 5;
    // Two spans, so that there are two ways.
    const KEYS: usize = 300;
    let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 16 };
    let width = shape.heads * shape.head_dim;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let mut backend = backend(dtype, None);
        let mut trial = AttentionTrial::new(&mut backend, shape, (ROWS, KEYS)).unwrap();
        let kernels = trial.kernels();
        assert_eq!(kernels.len(), 2);
        assert_eq!(trial.run("attend").unwrap_err().to_string(), "there is no kernel attend");
        let mut noise = Noise(2);
        let tensor = shape.kv_heads * PAGE * shape.head_dim;
        let pages: Vec<Vec<f32>> =
            (0..KEYS.div_ceil(PAGE)).map(|_| floats(dtype, &noise.take(dtype, 2 * tensor))).collect();
        let queries = floats(dtype, &noise.take(dtype, ROWS * width));
        let of = |value: usize, head: usize, key: usize| {
            let at = value * tensor + (head * PAGE + key % PAGE) * shape.head_dim;
            &pages[key / PAGE][at..at + shape.head_dim]
        };
        let mut expected = Vec::new();
        for (place, query) in queries.chunks(shape.head_dim).enumerate() {
            let head = place % shape.heads / 2;
            let dot = |key| query.iter().zip(of(0, head, key)).map(|(one, other)| one * other).sum::<f32>();
            let weights: Vec<f32> = (0..KEYS).map(|key| (dot(key) / 4.0).exp()).collect();
            let sum: f32 = weights.iter().sum();
            expected.extend((0..shape.head_dim).map(|column| {
                weights.iter().enumerate().map(|(key, weight)| weight * of(1, head, key)[column]).sum::<f32>() / sum
            }));
        }
        for kernel in kernels {
            let work = trial.backend.workspace.as_ref().unwrap();
            work.attended.zero(0, work.attended.bytes()).unwrap();
            assert!(trial.run(kernel).unwrap() > 0.0);
            let work = trial.backend.workspace.as_ref().unwrap();
            let found = downloaded(&work.attended, dtype, ROWS * width);
            assert_close(&found, &expected, if dtype == Dtype::F32 { 1e-5 } else { 1e-2 }, kernel);
        }
    }
}

#[test]
fn what_no_kernel_takes_and_what_has_no_room_is_an_error() {
    let wide = AttentionShape { heads: 1, kv_heads: 1, head_dim: 300 };
    let mut backend = backend(Dtype::Bf16, None);
    let refused = AttentionTrial::new(&mut backend, wide, (1, 1)).err().unwrap();
    assert!(refused.to_string().contains("a head has 300 numbers"), "{refused}");
    let shape = AttentionShape { heads: 1, kv_heads: 1, head_dim: 64 };
    let mut backend = self::backend(Dtype::Bf16, None);
    assert!(matches!(AttentionTrial::new(&mut backend, shape, (1, 1 << 16)), Err(Failure::Memory(_))));
    assert!(matches!(LinearTrial::new(&backend, 1, 1024, 1024), Err(PackError::Memory { .. })));
}
