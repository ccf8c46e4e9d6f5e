//! Arrays on the emulator, for tests of kernels.

use crate::{
    arguments::{Argument, List},
    emulator::{Emulator, Schedule},
    gpu::{Address, Geometry, Gpu},
};

/// Emulators for both orders of threads.
pub(crate) fn emulators() -> [Emulator; 2] {
    [Schedule::Forward, Schedule::Backward].map(|schedule| Emulator::new(schedule).unwrap())
}

/// A device with shorthands for arrays, which stay until it is dropped.
pub(crate) struct Trial<'a>(pub(crate) &'a Emulator);

impl Trial<'_> {
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Address {
        let address = self.0.allocate(bytes.len()).unwrap();
        // SAFETY: allocated with this length.
        unsafe { self.0.upload(address, bytes) }.unwrap();
        address
    }

    pub(crate) fn words(&self, words: &[u32]) -> Address {
        self.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn longs(&self, longs: &[u64]) -> Address {
        self.bytes(&longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn floats(&self, values: &[f32]) -> Address {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn halves(&self, values: &[f32]) -> Address {
        self.bytes(&values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect::<Vec<_>>())
    }

    /// Values that are plain numbers, or structures of them without padding.
    pub(crate) fn put<T: Copy>(&self, values: &[T]) -> Address {
        // SAFETY: plain bytes, as every caller promises.
        self.bytes(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
    }

    /// Rows and their count. There is room for more rows than there are.
    pub(crate) fn list(&self, rows: &[u32]) -> List {
        List { rows: self.put(&[rows, &[u32::MAX; 3]].concat()), count: self.put(&[rows.len() as u32]) }
    }

    /// Room for values that nobody has written.
    pub(crate) fn room<T>(&self, count: usize) -> Address {
        self.empty(count * size_of::<T>())
    }

    /// Values as they are now; plain ones, as in [`Self::put`].
    pub(crate) fn take<T: Copy>(&self, at: Address, count: usize) -> Vec<T> {
        let bytes = self.read(at, count * size_of::<T>());
        // SAFETY: plain bytes, as every caller promises; read at any alignment.
        bytes.chunks_exact(size_of::<T>()).map(|bytes| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }).collect()
    }

    /// Runs a kernel to its end.
    pub(crate) fn run(&self, (kernel, geometry): (&'static str, Geometry), argument: &dyn Argument) {
        // SAFETY: each test lays out what the kernel's description asks for.
        unsafe { self.0.launch(kernel, geometry, argument) }.unwrap();
        self.0.wait().unwrap();
    }

    /// An array of poison.
    pub(crate) fn empty(&self, bytes: usize) -> Address {
        self.0.allocate(bytes).unwrap()
    }

    pub(crate) fn read(&self, from: Address, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        // SAFETY: the emulator checks what it copies.
        unsafe { self.0.download(from, &mut read) }.unwrap();
        read
    }

    pub(crate) fn read_floats(&self, from: Address, count: usize) -> Vec<f32> {
        self.read(from, count * 4).chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    pub(crate) fn read_halves(&self, from: Address, count: usize) -> Vec<f32> {
        let halves = self.read(from, count * 2);
        halves.chunks_exact(2).map(|bytes| half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32()).collect()
    }
}

/// Numbers in -1 to 1, by a multiplicative congruence.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
