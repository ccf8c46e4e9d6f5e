//! The command as people meet it: the built binary, run on the built-in demo and on the golden checkpoints.

mod answers;
#[cfg(feature = "cuda")]
mod cuda;
mod harness;
mod hub;
#[cfg(target_os = "linux")]
mod operations;
mod refusals;
#[cfg(unix)]
mod serve;
mod settings;
#[cfg(unix)]
mod terminal;
mod tools;
