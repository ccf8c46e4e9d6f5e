//! A device that keeps its commands and runs nothing: for tests of the backend's commands.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use demask_step::{Allocated, OutOfMemory};

use crate::{
    arguments::Argument,
    gpu::{Address, Geometry, Gpu, GpuError, Limits},
};

/// A launch as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Launched {
    pub(super) kernel: &'static str,
    pub(super) geometry: Geometry,
    pub(super) argument: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// Graph functions that a fake device refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Record,
    Replay,
}

#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Vec<u8>>,
    next: u64,
    launched: Vec<Launched>,
    replays: usize,
    uploads: usize,
    recording: bool,
    failing: Option<String>,
    /// Launches in all until it fails, and its message then.
    fails_after: Option<(usize, String)>,
    /// Recordings and replays that were asked for.
    attempts: (usize, usize),
}

/// The device.
pub(super) struct Fake {
    state: Mutex<State>,
    refusal: Option<Refusal>,
    capacity: u64,
    counted: Allocated,
}

impl Fake {
    /// One that records graphs.
    pub(super) fn recording() -> Self {
        Self::with_memory(1 << 32)
    }

    /// One with so many bytes.
    pub(super) fn with_memory(capacity: u64) -> Self {
        Self { state: Mutex::default(), refusal: None, capacity, counted: Allocated::default() }
    }

    /// One that works but for graphs.
    pub(super) fn refusing(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::recording() }
    }

    fn graphs(&self, refused: Refusal) -> Result<(), GpuError> {
        if self.refusal != Some(refused) {
            return Ok(());
        }
        Err(GpuError::Call { call: "cuFakeGraph", message: "not supported".to_owned() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Launches, those of graphs not among them, and replays of graphs.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.launched.len(), state.replays)
    }

    /// Takes the launches so far.
    pub(super) fn take_launched(&self) -> Vec<Launched> {
        std::mem::take(&mut self.state().launched)
    }

    /// Uploads so far.
    pub(super) fn uploads(&self) -> usize {
        self.state().uploads
    }

    /// Bytes that are allocated.
    pub(super) fn held(&self) -> u64 {
        self.state().memory.values().map(|memory| memory.len() as u64).sum()
    }

    /// Every call from here on fails.
    pub(super) fn fail_from_now_on(&self, message: &str) {
        self.state().failing = Some(message.to_owned());
    }

    /// Every call fails that comes after the launch of this number, counted from 1.
    pub(super) fn fail_after_launches(&self, launches: usize, message: &str) {
        self.state().fails_after = Some((launches, message.to_owned()));
    }

    /// Recordings and replays that were asked for, refused ones among them.
    pub(super) fn attempts(&self) -> (usize, usize) {
        self.state().attempts
    }

    /// Numbers at an address.
    pub(super) fn words(&self, at: Address, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        self.state().find(at, count * 4, |memory| bytes.copy_from_slice(memory));
        bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }
}

impl State {
    /// The memory at an address, which is part of one allocation.
    fn find<R>(&mut self, at: Address, bytes: usize, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let (start, memory) = self.memory.range_mut(..=at.0).next_back().expect("memory that was allocated");
        with(&mut memory[(at.0 - start) as usize..][..bytes])
    }

    fn works(&self) -> Result<(), GpuError> {
        let failing = self.failing.clone();
        failing.map_or(Ok(()), |message| Err(GpuError::Call { call: "cuFake", message }))
    }
}

impl Gpu for Fake {
    type Graph = ();

    fn describe(&self) -> String {
        "fake".to_owned()
    }

    fn limits(&self) -> Limits {
        Limits { capability: 90, processors: 132, shared: 232_448, memory: self.capacity }
    }

    fn available(&self) -> u64 {
        self.capacity - self.held()
    }

    fn allocated(&self) -> &Allocated {
        &self.counted
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let available = self.available();
        if bytes as u64 > available {
            return Err(GpuError::Memory(OutOfMemory { needed: bytes as u64, available }));
        }
        let mut state = self.state();
        state.works()?;
        // Not next to each other: an offset beyond the end is no other memory.
        let address = state.next + 4096;
        state.next = (address + bytes as u64).next_multiple_of(256);
        // Whatever was in it.
        state.memory.insert(address, vec![0xcd; bytes]);
        Ok(Address(address))
    }

    unsafe fn free(&self, address: Address) {
        assert!(self.state().memory.remove(&address.0).is_some(), "freed twice, or never allocated");
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        let mut state = self.state();
        state.works()?;
        state.uploads += 1;
        state.find(to, bytes.len(), |memory| memory.copy_from_slice(bytes));
        Ok(())
    }

    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        let mut state = self.state();
        state.works()?;
        state.find(from, bytes.len(), |memory| bytes.copy_from_slice(memory));
        Ok(())
    }

    unsafe fn zero(&self, at: Address, bytes: usize) -> Result<(), GpuError> {
        let mut state = self.state();
        state.works()?;
        state.find(at, bytes, |memory| memory.fill(0));
        Ok(())
    }

    unsafe fn launch(&self, kernel: &'static str, geometry: Geometry, argument: &dyn Argument) -> Result<(), GpuError> {
        assert!(geometry.grid.iter().all(|&blocks| blocks > 0) && geometry.threads.is_multiple_of(32), "{kernel}");
        let mut state = self.state();
        state.works()?;
        if !state.recording {
            let (argument, bytes) = (argument.name(), argument.bytes().to_vec());
            state.launched.push(Launched { kernel, geometry, argument, bytes });
            if state.fails_after.as_ref().is_some_and(|(left, _)| state.launched.len() >= *left) {
                state.failing = state.fails_after.take().map(|(_, message)| message);
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.state().works()
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<(), GpuError>) -> Result<Option<()>, GpuError> {
        self.state().attempts.0 += 1;
        self.graphs(Refusal::Record)?;
        self.state().recording = true;
        let result = work();
        self.state().recording = false;
        result.map(Some)
    }

    unsafe fn replay(&self, (): &()) -> Result<(), GpuError> {
        self.state().attempts.1 += 1;
        self.graphs(Refusal::Replay)?;
        let mut state = self.state();
        state.works()?;
        state.replays += 1;
        Ok(())
    }

    fn seconds(&self) -> Result<f64, GpuError> {
        let state = self.state();
        state.works()?;
        Ok(state.launched.len() as f64)
    }
}
