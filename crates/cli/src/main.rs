//! The `demask` command: parse, resolve settings, run, print.
//!
//! [`args`] is what was typed, one file of [`commands`] does it; what both programs share is `demask-terminal`.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod env;
mod notify;
mod show;

use std::process::ExitCode;

use demask_terminal::{
    Program, assumed, canvas, exit, files, interrupt, load, output, packaging, progress, settings, told,
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

fn main() -> ExitCode {
    PROGRAM.run(commands::run)
}
