//! Peak rates of a card, measured: the largest rates of reading and multiplying, with which speeds are compared.
//!
//! Reading's ceiling is the rate of a stream through far more memory than the caches hold. A product's is the rate of the
//! kernels' own multiply instruction on registers alone; cards whose wider instructions these kernels do not use multiply
//! faster with them.

use demask_tensor::Dtype;

use crate::{
    arguments::CeilingArgs,
    gpu::{Address, Geometry, Gpu, GpuError},
    kernels::Module,
};

/// The kernels.
pub(crate) const MODULE: Module = Module {
    name: "ceiling",
    definitions: "",
    file: "ceiling.cu",
    text: include_str!("../kernels/ceiling.cu"),
    kernels: &["ceiling_read", "ceiling_bf16", "ceiling_f32"],
};

/// Bytes that are read: many times what any card's cache holds.
const BYTES: usize = 2 << 30;
/// Threads of a block.
const THREADS: u32 = 512;
/// Blocks on a processor: all the threads that it holds.
const BLOCKS: u32 = 4;
/// Sums of a thread (products in f32) or of a warp (of bf16), as the kernels have them.
const SUMS: u64 = 8;
/// Operations of one product of matrices, an addition counted apart from its multiplication.
const MATRIX: u64 = 2 * 16 * 8 * 16;
/// Rounds of products in the first launch, and in the longest.
const FEWEST_ROUNDS: u32 = 1;
const MOST_ROUNDS: u32 = 1 << 14;
/// Seconds that a launch of products takes at least: the start of one is nothing beside it.
const LAUNCH_SECONDS: f64 = 1e-3;
/// Measurements, of which the best is told, and launches in each.
const TRIES: usize = 8;
const LAUNCHES: usize = 4;
/// Seconds after which no other measurement begins: no card needs as long, only what takes a card's place.
const PATIENCE: f64 = 2.0;

/// Bandwidth of reading in GB/s; nothing if there is no memory to read.
pub fn reading_gbs<G: Gpu>(gpu: &G) -> Result<Option<f64>, GpuError> {
    let bytes = BYTES.min(gpu.available() as usize / 2) / 16 * 16;
    if bytes == 0 {
        return Ok(None);
    }
    let seconds = with_memory(gpu, bytes, |memory| best(gpu, |out| read(gpu, memory, bytes, out)))?;
    Ok(Some(bytes as f64 / seconds / 1e9))
}

/// Rate of products of a type in TFLOP/s.
pub fn product_tflops<G: Gpu>(gpu: &G, dtype: Dtype) -> Result<f64, GpuError> {
    let geometry = geometry(gpu);
    let threads = thread_count(geometry) as u64;
    let operations = match dtype {
        Dtype::F32 => threads * SUMS * 2,
        _ => threads / 32 * SUMS * MATRIX,
    };
    let rounds = rounds(gpu, dtype, geometry)?;
    let seconds = best(gpu, |out| multiply(gpu, dtype, rounds, geometry, out))?;
    Ok((operations * u64::from(rounds)) as f64 / seconds / 1e12)
}

/// Rounds of products in a launch that is long enough.
fn rounds<G: Gpu>(gpu: &G, dtype: Dtype, geometry: Geometry) -> Result<u32, GpuError> {
    with_memory(gpu, (thread_count(geometry) + 1) * size_of::<f32>(), |out| {
        let mut rounds = FEWEST_ROUNDS;
        loop {
            let begun = gpu.seconds()?;
            multiply(gpu, dtype, rounds, geometry, out)?;
            if gpu.seconds()? - begun >= LAUNCH_SECONDS || rounds >= MOST_ROUNDS {
                return Ok(rounds);
            }
            rounds *= 2;
        }
    })
}

fn geometry<G: Gpu>(gpu: &G) -> Geometry {
    Geometry { grid: [gpu.limits().processors.max(1) * BLOCKS, 1, 1], threads: THREADS, shared: 0 }
}

fn thread_count(geometry: Geometry) -> usize {
    geometry.grid[0] as usize * geometry.threads as usize
}

/// Adds up memory of so many bytes, a multiple of 16, to the first word of `out`.
fn read<G: Gpu>(gpu: &G, memory: Address, bytes: usize, out: Address) -> Result<(), GpuError> {
    let argument = CeilingArgs { memory, quads: bytes as u64 / 16, out, rounds: 0, unused: 0 };
    // SAFETY: the memory has as many bytes, and there is room for a word.
    unsafe { gpu.launch("ceiling_read", geometry(gpu), &argument) }
}

/// Multiplies, and writes each thread's sums to `out`; the factor is the float after them.
fn multiply<G: Gpu>(gpu: &G, dtype: Dtype, rounds: u32, geometry: Geometry, out: Address) -> Result<(), GpuError> {
    let kernel = if dtype == Dtype::F32 { "ceiling_f32" } else { "ceiling_bf16" };
    let factor = out.offset(thread_count(geometry) * size_of::<f32>());
    let argument = CeilingArgs { memory: factor, quads: 0, out, rounds, unused: 0 };
    // SAFETY: there is room for a float of every thread, and for one more.
    unsafe { gpu.launch(kernel, geometry, &argument) }
}

/// Seconds of the fastest of several launches; each is given memory for a float of every thread, and one more.
fn best<G: Gpu>(gpu: &G, launch: impl Fn(Address) -> Result<(), GpuError>) -> Result<f64, GpuError> {
    with_memory(gpu, (thread_count(geometry(gpu)) + 1) * size_of::<f32>(), |out| {
        let (mut least, first) = (f64::INFINITY, gpu.seconds()?);
        // The first is for the card's clocks, and for code that is loaded when it is first used.
        for index in 0..=TRIES {
            let begun = gpu.seconds()?;
            if index > 1 && begun - first > PATIENCE {
                break;
            }
            (0..LAUNCHES).try_for_each(|_| launch(out))?;
            let taken = gpu.seconds()? - begun;
            if index > 0 {
                least = least.min(taken / LAUNCHES as f64);
            }
        }
        Ok(least.max(1e-9))
    })
}

/// Does something with memory that is all zeros.
fn with_memory<G: Gpu, T>(
    gpu: &G,
    bytes: usize,
    work: impl FnOnce(Address) -> Result<T, GpuError>,
) -> Result<T, GpuError> {
    let memory = gpu.allocate(bytes)?;
    // SAFETY: just allocated.
    let zeroed = unsafe { gpu.zero(memory, bytes) };
    let result = zeroed.and_then(|()| work(memory));
    // Whatever uses it must be done before it goes; what failed is told by the result.
    let waited = gpu.wait();
    // SAFETY: allocated above, and nothing uses it any more.
    unsafe { gpu.free(memory) };
    waited.and(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        emulator::{Emulator, Schedule},
        gpu::Limits,
    };

    fn device() -> Emulator {
        let limits = Limits { capability: 80, processors: 1, shared: 163 << 10, memory: 1 << 30 };
        Emulator::with_limits(Schedule::Forward, limits).unwrap()
    }

    fn floats(gpu: &Emulator, at: Address, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 4 * count];
        // SAFETY: the caller's memory has as many floats.
        unsafe { gpu.download(at, &mut bytes) }.unwrap();
        bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }

    #[test]
    fn everything_is_read_once() {
        let gpu = device();
        for words in [4u32, 2052, 4 * 2048 * 5 + 8] {
            let bytes: Vec<u8> = (0..words).flat_map(u32::to_le_bytes).collect();
            let (memory, out) = (gpu.allocate(bytes.len()).unwrap(), gpu.allocate(4).unwrap());
            // SAFETY: just allocated, with as many bytes.
            unsafe { gpu.upload(memory, &bytes).and_then(|()| gpu.zero(out, 4)) }.unwrap();
            read(&gpu, memory, bytes.len(), out).unwrap();
            let sum = (0..words).fold(0u32, u32::wrapping_add);
            assert_eq!(floats(&gpu, out, 1)[0].to_bits(), sum);
        }
    }

    #[test]
    fn every_product_is_done() {
        let gpu = device();
        let geometry = Geometry { grid: [2, 1, 1], threads: 64, shared: 0 };
        for (dtype, expected) in [(Dtype::Bf16, 3.0 * 16.0 * 4.0 * 8.0), (Dtype::F32, 3.0 * 8.0)] {
            let out = gpu.allocate(129 * 4).unwrap();
            let ones: Vec<u8> = [1.0f32; 129].into_iter().flat_map(f32::to_le_bytes).collect();
            // SAFETY: just allocated, with as many bytes.
            unsafe { gpu.upload(out, &ones) }.unwrap();
            multiply(&gpu, dtype, 3, geometry, out).unwrap();
            assert_eq!(floats(&gpu, out, 128), [expected; 128], "{dtype}");
        }
    }

    #[test]
    fn rates_are_those_of_launches_that_are_long_enough() {
        let gpu = device();
        for dtype in [Dtype::Bf16, Dtype::F32] {
            assert!(product_tflops(&gpu, dtype).unwrap() > 0.0);
        }
        let limits = Limits { memory: 1 << 20, ..gpu.limits() };
        let gpu = Emulator::with_limits(Schedule::Forward, limits).unwrap();
        assert!(reading_gbs(&gpu).unwrap() > Some(0.0));
    }

    #[test]
    fn a_device_without_memory_has_no_rate_of_reading() {
        let limits = Limits { memory: 16, ..device().limits() };
        let gpu = Emulator::with_limits(Schedule::Forward, limits).unwrap();
        assert_eq!(reading_gbs(&gpu), Ok(None));
    }
}
