use demask_cuda::{
    arguments::{Argument, List, MarkArgs},
    gpu::{Address, Geometry, Gpu, GpuError, Limits},
    kernels::Module,
};
use demask_step::OutOfMemory;

use super::*;
use crate::emulator::{A100, compiler::Compiler};

/// Kernels that show the primitives.
const TRIAL: Module = Module {
    name: "trial",
    definitions: "",
    file: "primitives.cu",
    text: include_str!("../kernels/primitives.cu"),
    kernels: &[
        "trial_lanes",
        "trial_product",
        "trial_product_transposed",
        "trial_turn",
        "trial_turn_unsynchronised",
        "trial_hasty",
        "trial_diverge",
        "trial_desert",
        "trial_overrun",
        "trial_overrun_shared",
        "trial_load_2",
        "trial_load_4",
        "trial_load_8",
        "trial_load_16",
        "trial_store_2",
        "trial_store_4",
        "trial_store_8",
        "trial_store_16",
        "trial_copy_from_4",
        "trial_copy_from_8",
        "trial_copy_from_16",
        "trial_copy_to_4",
        "trial_copy_to_8",
        "trial_copy_to_16",
        "trial_matrices_16",
    ],
};

/// Twin of the structure in `kernels/primitives.cu`.
#[repr(C)]
struct TrialArgs {
    left: Address,
    right: Address,
    out: Address,
}

// SAFETY: `repr(C)`, three addresses.
unsafe impl Argument for TrialArgs {
    fn name(&self) -> &'static str {
        "TrialArgs"
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the structure's own bytes.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// A device that has the trial kernels alone.
fn emulator(schedule: Schedule, definitions: &'static str) -> Emulator {
    let mut compiler = Compiler::find().unwrap();
    compiler.definitions = definitions;
    Emulator::of_modules(&[&[TRIAL]], compiler, (schedule, A100))
}

fn emulators() -> [Emulator; 2] {
    [Schedule::Forward, Schedule::Backward].map(|schedule| emulator(schedule, ""))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_bits().to_le_bytes()).collect()
}

/// Runs a trial kernel on inputs of bytes; the words of the output.
fn run(
    gpu: &Emulator,
    kernel: &'static str,
    geometry: Geometry,
    [left, right]: [&[u8]; 2],
    words: usize,
) -> Result<Vec<u32>, GpuError> {
    let addresses = [left, right].map(|bytes| {
        let address = gpu.allocate(bytes.len()).unwrap();
        // SAFETY: allocated with this length.
        unsafe { gpu.upload(address, bytes) }.unwrap();
        address
    });
    let out = gpu.allocate(words * 4)?;
    let argument = TrialArgs { left: addresses[0], right: addresses[1], out };
    let mut result = vec![0; words * 4];
    // SAFETY: the trial kernels stay within the arrays, but for those whose failure is expected, which write into zones.
    unsafe {
        gpu.launch(kernel, geometry, &argument)?;
        gpu.download(out, &mut result)?;
    }
    Ok(result.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn geometry(blocks: u32, threads: u32, shared: u32) -> Geometry {
    Geometry { grid: [blocks, 1, 1], threads, shared }
}

#[test]
fn lanes_exchange_values() {
    let values: Vec<u32> = (0..32).map(|lane| lane * lane % 37).collect();
    for gpu in emulators() {
        let out = run(&gpu, "trial_lanes", geometry(1, 32, 0), [&bytes(&values), &[]], 128).unwrap();
        let odd = (0..32).fold(0, |bits, lane| bits | (values[lane] % 2) << lane);
        for lane in 0..32 {
            let found = [out[lane], out[32 + lane], out[64 + lane], out[96 + lane]];
            assert_eq!(found, [values[lane ^ 5], values[7], odd, values.iter().sum()]);
        }
    }
}

#[test]
fn fragments_are_those_of_the_manual() {
    // Small integers: every sum is exact, so that one misplaced number shows.
    let left: Vec<f32> = (0..256).map(|place| ((place * 7 + place / 16) % 23) as f32 - 11.0).collect();
    let right: Vec<f32> = (0..128).map(|place| ((place * 5 + place / 16) % 19) as f32 - 9.0).collect();
    let rows: Vec<f32> = (0..128).map(|place| right[place % 8 * 16 + place / 8]).collect();
    let shape = demask_testkit::naive::linear::Shape { rows: 16, out: 8, columns: 16 };
    let expected = demask_testkit::naive::linear::linear(shape, &left, &right, None);
    for gpu in emulators() {
        for (kernel, right) in [("trial_product", &right), ("trial_product_transposed", &rows)] {
            let out = run(&gpu, kernel, geometry(1, 32, 0), [&halves(&left), &halves(right)], 128).unwrap();
            assert_eq!(out.into_iter().map(f32::from_bits).collect::<Vec<_>>(), expected, "{kernel}");
        }
        // Rows of `left` are 32 bytes long: each of its four matrices lies in half of the banks. `right` adds its own four
        // as columns; as rows of 16 bytes it has none.
        assert_eq!(gpu.bank_conflicts(), 4 + 4 + 4);
    }
}

#[test]
fn blocks_have_their_own_shared_memory_and_barriers_order_it() {
    let values: Vec<u32> = (0..384u32).map(|place| place.wrapping_mul(2_654_435_761)).collect();
    let turned: Vec<u32> = (0..384).map(|place| values[place / 128 * 128 + 127 - place % 128]).collect();
    for gpu in emulators() {
        let turn = |kernel| run(&gpu, kernel, geometry(3, 128, 512), [&bytes(&values), &[]], 384).unwrap();
        assert_eq!(turn("trial_turn"), turned);
        assert_ne!(turn("trial_turn_unsynchronised"), turned);
    }
}

#[test]
fn the_system_has_fibers_too() {
    let gpu = emulator(Schedule::Forward, "#define DEMASK_SYSTEM_FIBERS 1");
    let values: Vec<u32> = (0..128).collect();
    let turned: Vec<u32> = (0..128).rev().collect();
    assert_eq!(run(&gpu, "trial_turn", geometry(1, 128, 512), [&bytes(&values), &[]], 128).unwrap(), turned);
    let found = run(&gpu, "trial_diverge", geometry(1, 64, 0), [&[], &[]], 32).unwrap_err().to_string();
    assert!(found.contains("lane 0 waits at sync_block, lane 16 has left"), "{found}");
}

#[test]
fn copies_that_are_not_waited_for_show_in_one_of_the_orders() {
    let values: Vec<u32> = (0..128).collect();
    let [forward, backward] =
        emulators().map(|gpu| run(&gpu, "trial_hasty", geometry(1, 32, 0), [&bytes(&values), &[]], 32).unwrap());
    assert_ne!(forward, backward);
}

#[test]
fn divergence_and_overruns_are_told() {
    let cases = [
        ("trial_diverge", 64, "lane 0 waits at sync_block, lane 16 has left"),
        ("trial_desert", 64, "warp 0 has left, warp 1 waits at sync_block"),
        ("trial_overrun", 32, "beyond an allocation of 128 bytes"),
        ("trial_overrun_shared", 32, "beyond the dynamic shared memory"),
    ];
    for (kernel, threads, expected) in cases {
        for gpu in emulators() {
            let found = run(&gpu, kernel, geometry(1, threads, 128), [&[], &[]], 32).unwrap_err().to_string();
            assert!(found.contains(expected), "{kernel}: {found}");
        }
    }
}

#[test]
fn accesses_that_are_not_aligned_are_told() {
    let kinds = [
        ("load", "an access", &[2, 4, 8, 16][..]),
        ("store", "an access", &[2, 4, 8, 16]),
        ("copy_from", "a copy's source", &[4, 8, 16]),
        ("copy_to", "a copy's target", &[4, 8, 16]),
        ("matrices", "a row of a matrix", &[16]),
    ];
    for (name, what, sizes) in kinds {
        for &bytes in sizes {
            let named = format!("trial_{name}_{bytes}");
            let kernel = *TRIAL.kernels.iter().find(|&&kernel| kernel == named).unwrap();
            for gpu in emulators() {
                let at =
                    |distance: u64| run(&gpu, kernel, geometry(1, 32, 1024), [&[0; 64], &distance.to_le_bytes()], 64);
                assert_eq!((at(0).err(), at(bytes).err()), (None, None), "{kernel}");
                for distance in [1, bytes / 2, bytes - 1] {
                    let found = at(distance).unwrap_err().to_string();
                    let (kind, rest) = found.split_once(" bytes at 0x").unwrap();
                    let (address, rest) = rest.split_once(", ").unwrap();
                    assert!(kind.starts_with(&format!("{kernel}: block 0, 0, 0: thread ")), "{found}");
                    assert!(kind.ends_with(&format!(": {what} of {bytes}")), "{found}");
                    assert_eq!(u64::from_str_radix(address, 16).unwrap() % bytes, distance, "{found}");
                    assert_eq!(rest, format!("which is not a multiple of {bytes}"));
                }
            }
        }
    }
}

#[test]
fn wrong_launches_are_refused() {
    let [gpu, _] = emulators();
    let refused = |kernel, geometry| run(&gpu, kernel, geometry, [&[], &[]], 1).unwrap_err().to_string();
    assert_eq!(refused("trial_missing", geometry(1, 32, 0)), "there is no kernel trial_missing");
    assert!(refused("trial_lanes", geometry(1, 64, 0)).contains("64 threads, takes whole warps up to 32"));
    assert!(refused("trial_lanes", geometry(0, 32, 0)).contains("a grid of [0, 1, 1]"));
    assert!(refused("trial_lanes", geometry(1, 32, 1 << 20)).contains("1048576 bytes of shared memory"));
    let list = List { rows: Address::NULL, count: Address::NULL };
    let other = MarkArgs { list, live: Address::NULL, flags: Address::NULL };
    // SAFETY: refused before it runs.
    let found = unsafe { gpu.launch("trial_lanes", geometry(1, 32, 0), &other) }.unwrap_err().to_string();
    assert!(found.contains("given MarkArgs, takes TrialArgs"), "{found}");
}

#[test]
fn memory_is_limited_and_copies_are_checked() {
    let limits = Limits { capability: 80, processors: 1, shared: 48 << 10, memory: 1000 };
    let gpu = Emulator::with_limits(Schedule::Forward, limits).unwrap();
    let address = gpu.allocate(900).unwrap();
    assert_eq!((gpu.available(), address.0 % 256), (100, 0));
    assert_eq!(gpu.allocate(101), Err(GpuError::Memory(OutOfMemory { needed: 101, available: 100 })));
    let mut fresh = [0; 4];
    // SAFETY: copies are checked by the emulator itself.
    unsafe {
        gpu.download(address, &mut fresh).unwrap();
        assert_eq!(fresh, [0xff; 4], "memory holds no numbers until it is written");
        assert!(gpu.upload(address.offset(897), &[0; 4]).is_err());
        assert!(gpu.zero(address, 901).is_err());
        assert!(gpu.download(Address(1), &mut fresh).is_err());
        gpu.free(address);
        assert_eq!((gpu.wait(), gpu.available()), (Ok(()), 1000));
        gpu.free(address);
    }
    assert!(gpu.wait().unwrap_err().to_string().contains("was never allocated"));
}

#[test]
fn what_is_recorded_runs_when_it_is_replayed() {
    let [gpu, _] = emulators();
    let [from, to] = [gpu.allocate(512).unwrap(), gpu.allocate(512).unwrap()];
    let values: Vec<u32> = (0..128).collect();
    let mut out = vec![0; 512];
    // SAFETY: both arrays are 128 words, which is what one block of 128 threads turns round.
    unsafe {
        gpu.zero(to, 512).unwrap();
        gpu.upload(from, &bytes(&values)).unwrap();
        let argument = TrialArgs { left: from, right: from, out: to };
        let mut work = || gpu.launch("trial_turn", geometry(1, 128, 512), &argument);
        let graph = gpu.record(&mut work).unwrap().unwrap();
        gpu.download(to, &mut out).unwrap();
        assert_eq!(out, [0; 512], "nothing runs while it is recorded");
        gpu.replay(&graph).unwrap();
        gpu.download(to, &mut out).unwrap();
    }
    assert_eq!(out, bytes(&(0..128).rev().collect::<Vec<_>>()));
    // SAFETY: as above.
    let refused = [
        gpu.record(&mut || unsafe { gpu.zero(to, 4) }),
        gpu.record(&mut || unsafe { gpu.upload(to, &[0]) }),
        gpu.record(&mut || gpu.wait()),
        gpu.record(&mut || Err(GpuError::Kernel("none".to_owned()))),
    ];
    let told = refused.map(|refused| refused.err().unwrap().to_string());
    let never = |call| format!("{call}: this cannot be a part of a recorded graph");
    assert_eq!(told[..3], ["zero", "upload", "wait"].map(never));
    gpu.wait().unwrap();
}

#[test]
fn a_missing_compiler_is_told_in_one_line() {
    let Err(error) = Compiler::find_named(Some("no-such-compiler".to_owned())) else { panic!("found") };
    assert!(error.to_string().contains("no C++ compiler runs as no-such-compiler: install one"));
}
