//! Memory of a device that gives itself back, and what becomes of a device's errors.

use std::sync::Arc;

use demask_step::{DeviceError, DeviceMemory, MemoryMeter, OutOfMemory};
use demask_tensor::PackError;

use crate::gpu::{Address, Gpu, GpuError};

/// Memory of a device.
pub(super) struct Buffer<G: Gpu> {
    gpu: Arc<G>,
    address: Address,
    bytes: usize,
}

impl<G: Gpu> Buffer<G> {
    /// Memory with whatever was in it; none at all for no bytes.
    pub(super) fn new(gpu: &Arc<G>, bytes: usize) -> Result<Self, GpuError> {
        let address = if bytes == 0 { Address::NULL } else { gpu.allocate(bytes)? };
        gpu.allocated().take(bytes as u64);
        Ok(Self { gpu: Arc::clone(gpu), address, bytes })
    }

    /// Memory that holds these bytes.
    pub(super) fn holding(gpu: &Arc<G>, bytes: &[u8]) -> Result<Self, GpuError> {
        let buffer = Self::new(gpu, bytes.len())?;
        buffer.upload(0, bytes)?;
        Ok(buffer)
    }

    /// Returns the first address.
    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// Returns the length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn check(&self, at: usize, bytes: usize) {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes from {at} on, of {} on the device", self.bytes);
    }

    /// Writes bytes from `at` on.
    pub(super) fn upload(&self, at: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.check(at, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: checked to be inside of this memory.
        unsafe { self.gpu.upload(self.address.offset(at), bytes) }
    }

    /// Reads bytes from `at` on, when all work is done.
    pub(super) fn download(&self, at: usize, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.check(at, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: checked to be inside of this memory.
        unsafe { self.gpu.download(self.address.offset(at), bytes) }
    }

    /// Makes bytes from `at` on zeros.
    pub(super) fn zero(&self, at: usize, bytes: usize) -> Result<(), GpuError> {
        self.check(at, bytes);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: checked to be inside of this memory.
        unsafe { self.gpu.zero(self.address.offset(at), bytes) }
    }
}

impl<G: Gpu> Drop for Buffer<G> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // A device that cannot wait any more runs nothing either.
            let _ = self.gpu.wait();
            // SAFETY: this memory came from `allocate` and is freed once; all work was waited for.
            unsafe { self.gpu.free(self.address) }
            self.gpu.allocated().give_back(self.bytes as u64);
        }
    }
}

/// Reason why a call failed: too little memory, or a device that fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Lack of memory, which can be reported before anything is lost.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Failure of the device, for good.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Failure {
    /// Error of packing a weight.
    pub(super) fn packing(self, rows: usize, columns: usize) -> PackError {
        match self {
            Self::Memory(source) => PackError::Memory { rows, columns, source },
            Self::Device(source) => PackError::Device { rows, columns, source },
        }
    }
}

impl From<GpuError> for Failure {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Memory(error) => Self::Memory(error),
            other => Self::Device(DeviceError(other.to_string())),
        }
    }
}

/// Reads the memory that a backend takes of its device.
pub(super) struct Meter<G: Gpu>(pub(super) Arc<G>);

impl<G: Gpu> MemoryMeter for Meter<G> {
    fn read(&self) -> DeviceMemory {
        let Self(gpu) = self;
        let in_use = gpu.limits().memory.saturating_sub(gpu.available());
        DeviceMemory { current: gpu.allocated().current(), peak: gpu.allocated().peak(), in_use }
    }

    fn forget_peak(&self) {
        self.0.allocated().forget_peak();
    }
}

/// Reports whether a device has room for so many bytes.
pub(super) fn check<G: Gpu>(gpu: &G, needed: u64) -> Result<(), OutOfMemory> {
    let available = gpu.available();
    if needed <= available { Ok(()) } else { Err(OutOfMemory { needed, available }) }
}
