//! All integration tests of this crate in one binary, but those whose allocator counts.

mod backend;
mod backend_model;
mod experts;
mod linear;
mod linear_blocks;

use demask_cpu::{
    isa::{self, Isa},
    linear::{Linear, kernels_of},
};

/// Every instruction set that can be tested on this machine, slower ones first, those with a software twin and with trapped
/// instructions at the end.
fn testable() -> Vec<Isa> {
    // SAFETY: the trap executes tile instructions where it says so.
    unsafe { isa::testable(demask_testkit::tiles::trap) }
}

/// Their kernels.
fn kernel_list() -> Vec<Linear> {
    kernels_of(testable())
}
