//! All integration tests of this crate in one binary: each more is linked anew, and has the cores to itself.

mod answers;
mod benchmarks;
mod data;
mod readme;
mod released;
mod tasks;
