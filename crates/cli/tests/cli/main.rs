//! The command as people meet it: the built binary, run on the built-in demo and on the golden checkpoints.

#[cfg(feature = "analyze")]
mod analyze;
mod answers;
#[cfg(all(feature = "eval", target_os = "linux"))]
mod benchmarks;
mod cost;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "eval")]
mod eval;
mod harness;
#[cfg(not(any(feature = "analyze", feature = "eval", feature = "serve")))]
mod left_out;
#[cfg(all(feature = "serve", target_os = "linux"))]
mod operations;
#[cfg(all(feature = "eval", target_os = "linux"))]
mod programs;
mod refusals;
mod runs;
#[cfg(all(feature = "serve", unix))]
mod serve;
mod tools;
