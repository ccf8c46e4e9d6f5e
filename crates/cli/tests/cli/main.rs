//! The command as people meet it: the built binary, run on the built-in demo and on the golden checkpoints.

mod analyze;
mod answers;
#[cfg(target_os = "linux")]
mod benchmarks;
#[cfg(feature = "cuda")]
mod cuda;
mod eval;
mod harness;
#[cfg(target_os = "linux")]
mod programs;
mod refusals;
mod tools;
