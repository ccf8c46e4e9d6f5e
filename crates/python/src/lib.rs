//! Native half of the Python package `demask`, whose other half is `python/demask`.
//!
//! It is thin: prompts, options and results change their form here, and the interpreter is released while something is
//! waited for. All work on them is the library's and the server's. Nothing here ever takes the interpreter on an
//! engine's thread but a transfer rule that is written in Python.
#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "what Python hands over is extracted into values")]

mod answer;
mod batch;
mod bell;
mod engine;
mod error;
mod evaluation;
mod facts;
mod http;
mod json;
mod load;
mod look;
mod metrics;
mod options;
mod prompt;
mod questions;
mod request_handle;
mod rule;
mod server;
mod tokenizer;
mod update;

#[pyo3::pymodule]
mod _native {
    /// The version of the package, of both its halves.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python has for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::{
        batch::Prepared,
        bell::Bell,
        engine::Engine,
        evaluation::Evaluation,
        facts::{cost, doctor},
        http::{Reply, Service},
        load::open,
        look::{decide, hidden, logits, score},
        options::option_fields,
        questions::{Questions, tasks},
        request_handle::RequestHandle,
        server::Server,
        tokenizer::Tokenizer,
        update::{Commit, Forward, Started, Update},
    };
}
