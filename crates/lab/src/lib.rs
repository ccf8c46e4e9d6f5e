//! The laboratory: evaluations, analyses of networks, measurements, pictures of costs, random checkpoints. Nothing that a user's
//! answer takes part in.
//!
//! [`main_with`] is the `demask-lab` command, also for a program of yours that has methods of its own. `args` parses
//! the command line, one file of `commands` runs each command. The common code of both programs is `demask-terminal`.
#![forbid(unsafe_code)]

pub mod analysis;
mod args;
mod commands;
mod cost;
mod drafts;
pub mod measuring;
pub mod pictures;
mod sweep;
pub mod synth;

use std::{error::Error, process::ExitCode};

use demask::{Registry, costs::shapes::ShapeError, methods::RegistryError};
use demask_eval::{
    data::DataError,
    report::JoinError,
    run::{FileError, RunError, StoreError},
};
use demask_terminal::{
    Program, assumed, canvas, cost_table, env, exit, files, interrupt, load, output, packaging, progress, settings,
    texts,
};

use synth::SynthError;

/// The program's parser, its names and its errors.
const PROGRAM: Program = Program {
    command: args::command,
    pages: args::PAGES,
    example: "demask-lab eval wordmath --limit 20 evaluates the built-in demo",
    other: "demask",
    elsewhere: &["generate", "chat", "serve", "pull", "list", "inspect", "doctor", "health"],
    removed: &[
        (
            "demask-lab bench step",
            "--drafts",
            "bench step --drafts was a flag of demask 0.1.0: --branches says it, drafts side by side",
        ),
        (
            "demask-lab analyze stability",
            "--layers",
            "analyze stability --layers was a flag of demask 0.1.0: --drawn-layers says it, layers with pictures of their own",
        ),
        (
            "demask-lab bench",
            "serve",
            "bench serve was a command of demask 0.1.0: measure a server with a load generator such as aiperf, as bench/run.py serve-load does",
        ),
        (
            "demask-lab bench",
            "curve",
            "bench curve was a command of demask 0.1.0: omit it, freedave drafts as many lanes as are nearly free",
        ),
    ],
    is_usage,
};

/// Runs the command `demask-lab` with the methods of a registry, and returns its exit code.
///
/// A program with methods of its own is this call; `eval`, `report`, `tune`, `analyze` and all others know them:
///
/// ```no_run
/// use demask::Registry;
///
/// fn main() -> std::process::ExitCode {
///     demask_lab::main_with(Ok(Registry::default()))
/// }
/// ```
pub fn main_with(registry: Result<Registry, RegistryError>) -> ExitCode {
    // A process that is to become a sandbox must be nothing else before.
    if let Some(code) = demask_eval::sandbox::entry() {
        return code;
    }
    PROGRAM.run(registry, commands::run)
}

/// Returns whether an error of an evaluation or of a random checkpoint means that the call was wrong.
fn is_usage(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(RunError::is_usage)
        || error.downcast_ref().is_some_and(StoreError::is_usage)
        || error.is::<JoinError>()
        || error.is::<FileError>()
        || error.downcast_ref().is_some_and(DataError::is_usage)
        || matches!(
            error.downcast_ref(),
            Some(
                SynthError::Exists { .. }
                    | SynthError::Shape(ShapeError::Unknown { .. } | ShapeError::BadLayers { .. })
            )
        )
}
