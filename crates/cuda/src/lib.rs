//! The backend for NVIDIA GPUs. Nothing of CUDA is needed to build it: the driver and the compiler are loaded when it runs.
//!
//! Rooms: [`gpu`] has the backend's demands on a device, [`arguments`] the inputs of kernels. The kernels themselves are
//! text in `kernels/`, which NVIDIA's compiler ([`nvrtc`]) turns into code for the card at hand, once: `cache` keeps it.
//! [`kernels`] knows their names and geometry. [`Cuda`] is a driver that was found, [`Driver`] a card that runs kernels;
//! the crate `demask-cuda-emulator`, for tests, runs the same text on the processor.

#[cfg(test)]
extern crate self as demask_cuda;

pub mod arguments;
pub mod backend;
mod cache;
pub mod ceiling;
mod driver;
// Compiled anew for the unit tests: the crate itself has another `demask_cuda` than this one, which is under test.
#[cfg(test)]
#[path = "../../cuda-emulator/src/emulator/mod.rs"]
mod emulator;
pub mod gpu;
pub mod kernels;
pub mod layouts;
mod modules;
pub mod nvrtc;
mod probe;
mod version;

pub use backend::{CudaBackend, CudaOptions, Unfit, trial};
pub use driver::{Driver, Graph};
pub use modules::sources;
pub use probe::{Card, Cuda, NoGpu, Places};
pub use version::Version;
