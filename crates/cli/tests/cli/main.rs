//! The command as people meet it: the built binary, run on the built-in demo and on the golden checkpoints.

mod answers;
mod eval;
mod harness;
mod refusals;
mod tools;
