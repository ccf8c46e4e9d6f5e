//! Runs the program.

use std::process::Command;

use demask_testkit::program;
pub use demask_testkit::program::{Run, project, questions, refused};

const PROGRAM: &str = env!("CARGO_BIN_EXE_demask");

/// The program, away from the settings of whoever runs the tests and from the network.
pub fn command(arguments: &[&str]) -> Command {
    program::command(PROGRAM, arguments)
}

/// Runs with arguments.
pub fn demask(arguments: &[&str]) -> Run {
    program::run(PROGRAM, arguments)
}

/// Runs with arguments and standard input.
pub fn demask_with_input(arguments: &[&str], input: &str) -> Run {
    program::run_with_input(PROGRAM, arguments, input)
}
