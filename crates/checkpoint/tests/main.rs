//! All integration tests of this crate in one binary: each more is linked anew, and has the cores to itself.
#![recursion_limit = "256"]

mod adapters;
mod bad_input;
mod configs;
mod controls;
mod gguf;
mod hub;
mod released;
mod vocabulary;
