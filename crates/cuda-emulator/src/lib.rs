//! A device that is no device: the kernels of [`demask_cuda`], run on the processor. For tests, on machines without a GPU;
//! needs a C++ compiler when it runs.
//!
//! The unit tests of `demask_cuda` compile the folder `emulator` a second time, as a module of their own: to them this
//! crate's `demask_cuda` is another one than that which they test.

mod emulator;
#[cfg(test)]
mod tests;

pub use emulator::{Emulator, Recording, Schedule};
