//! The laboratory's command as people meet it: the built program, run on the built-in demo and on the golden checkpoints,
//! beside `demask` where one reads what the other wrote.

mod analyze;
#[cfg(target_os = "linux")]
mod benchmarks;
mod cost;
#[cfg(feature = "cuda")]
mod cuda;
mod eval;
mod harness;
mod own;
#[cfg(target_os = "linux")]
mod programs;
mod refusals;
mod runs;
mod tables;
mod tools;
mod traces;
