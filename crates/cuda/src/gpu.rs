//! Contract of a backend with a device: memory, copies, launches, graphs. The driver is one; the emulator, which runs
//! the same kernels on the processor, is another.
//!
//! All work goes into one stream, in order. Launches and copies to the device return at once; what went wrong is told by
//! the next call that waits.

use std::fmt::Debug;

use demask_step::{Allocated, OutOfMemory};

use crate::arguments::Argument;

/// An address in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    /// No memory.
    pub const NULL: Self = Self(0);

    /// The address so many bytes further on.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Number of threads that run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Blocks along x, y, z; none of them 0.
    pub grid: [u32; 3],
    /// Threads of a block: whole warps.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// A device that runs the kernels of this crate.
pub trait Gpu: Send + Sync + 'static {
    /// A recorded sequence of launches.
    type Graph: Send;

    /// One line: name and number of the device.
    fn describe(&self) -> String;

    /// Number of the device, as the driver counts.
    fn number(&self) -> u32 {
        0
    }

    /// Returns the limits of the device.
    fn limits(&self) -> Limits;

    /// Free memory, in bytes.
    fn available(&self) -> u64;

    /// Memory of the backend's buffers, counted by themselves.
    fn allocated(&self) -> &Allocated;

    /// Memory of so many bytes, aligned to 256, with whatever was in it.
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `address` came from [`Gpu::allocate`] of this device, is freed once, and no launch under way uses it.
    unsafe fn free(&self, address: Address);

    /// Copies to the device; the bytes may be changed as soon as it returns.
    ///
    /// # Safety
    /// `to` has room for the bytes.
    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError>;

    /// Waits for all work, then copies from the device.
    ///
    /// # Safety
    /// `from` has as many bytes.
    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Fills memory with zeros, in the stream's order.
    ///
    /// # Safety
    /// `at` has as many bytes.
    unsafe fn zero(&self, at: Address, bytes: usize) -> Result<(), GpuError>;

    /// Runs a kernel by its name, in the stream's order. Every kernel takes one structure by value.
    ///
    /// # Safety
    /// The addresses in `argument` have the room that the kernel's own description asks for, until the work is done.
    unsafe fn launch(&self, kernel: &'static str, geometry: Geometry, argument: &dyn Argument) -> Result<(), GpuError>;

    /// Waits for all work.
    fn wait(&self) -> Result<(), GpuError>;

    /// Records the launches of `work` instead of running them; everything else is refused meanwhile. Nothing if the
    /// device records none: then nothing ran either. A device that refuses to record works as before.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), GpuError>) -> Result<Option<Self::Graph>, GpuError>;

    /// Runs a recorded sequence, in the stream's order.
    ///
    /// # Safety
    /// The memory of the launches is still there.
    unsafe fn replay(&self, graph: &Self::Graph) -> Result<(), GpuError>;

    /// Seconds that the device's clock has reached when all work before this call is done; waits for it.
    fn seconds(&self) -> Result<f64, GpuError>;
}

/// Sizes that kernels are chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Compute capability, as 10 * major + minor.
    pub capability: u32,
    /// Multiprocessors.
    pub processors: u32,
    /// Bytes of shared memory that a block may have.
    pub shared: u32,
    /// Bytes of memory in all.
    pub memory: u64,
}

/// A device fails. Each message has the finding and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No memory left.
    #[error("the GPU has {} MiB free, {} MiB are needed: try a smaller model, `quantize` q8, or `device` cpu", .0.available >> 20, .0.needed >> 20)]
    Memory(OutOfMemory),
    /// A call of the driver fails.
    #[error("{call}: {message}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Message of the driver, and its number.
        message: String,
    },
    /// A kernel that is not in the compiled modules.
    #[error("there is no kernel {0}")]
    Kernel(String),
}
