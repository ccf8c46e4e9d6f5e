//! Native half of the Python package `demask`, whose other half is `python/demask`.
//!
//! It is thin: prompts, options and results change their form here, and the interpreter is released while something is
//! waited for. What is done with them is the library's and the server's. Nothing here ever takes the interpreter on an
//! engine's thread but a transfer rule that is written in Python.
#![forbid(unsafe_code)]

mod answer;
mod bell;
mod engine;
mod error;
mod evaluation;
mod http;
mod json;
mod load;
mod metrics;
mod options;
mod prompt;
mod ticket;
mod tokenizer;
mod update;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        bell::Bell,
        engine::Engine,
        evaluation::Evaluation,
        http::{Reply, Service},
        load::open,
        ticket::Ticket,
        tokenizer::Tokenizer,
        update::{Commit, Forward, Started, Update},
    };
}
