//! The `demask` command: parse, resolve settings, run, print. [`main_with`] is all of it, also for a program of yours that has
//! methods of its own.
//!
//! `args` parses the command line, one file of `commands` runs each command. The common code of both programs is
//! `demask-terminal`.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod env;
mod notify;
mod show;

use std::process::ExitCode;

use demask::{Registry, methods::RegistryError};
use demask_terminal::{
    Program, assumed, canvas, cost_table, exit, files, interrupt, load, output, packaging, progress, settings,
};

/// The program's parser, its names and its errors.
const PROGRAM: Program = Program {
    command: args::command,
    pages: args::PAGES,
    example: "demask generate \"PROMPT\" answers a prompt",
    other: "demask-lab",
    elsewhere: &["eval", "recipe", "report", "tune", "bench", "analyze", "trace", "synth", "logits", "cost"],
    removed: &[],
    is_usage: |_| false,
};

/// Runs the command `demask` with the methods of a registry, and returns its exit code.
///
/// A program with methods of its own is this call; `generate`, `chat` and `serve` know them:
///
/// ```no_run
/// use demask::Registry;
///
/// fn main() -> std::process::ExitCode {
///     demask_cli::main_with(Ok(Registry::default()))
/// }
/// ```
pub fn main_with(registry: Result<Registry, RegistryError>) -> ExitCode {
    PROGRAM.run(registry, commands::run)
}
