//! All integration tests of this crate in one binary: each more is linked anew, and has the cores to itself.

mod answers;
mod benchmarks;
mod data;
mod own_tasks;
mod papers;
mod prefixes;
mod readme;
mod recipes;
mod records;
mod released;
mod tasks;
