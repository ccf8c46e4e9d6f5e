//! The command as people meet it: the built binary, run on the built-in demo and on the golden checkpoints.

mod analyze;
mod answers;
mod harness;
mod refusals;
mod tools;
