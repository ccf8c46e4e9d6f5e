//! Runs the two programs.

use std::{path::Path, process::Command};

use demask_testkit::program;
pub use demask_testkit::program::{Run, project, questions, refused};

const PROGRAM: &str = env!("CARGO_BIN_EXE_demask-lab");

/// The program, without the settings of the user who runs the tests, and without the network.
pub fn command(arguments: &[&str]) -> Command {
    program::command(PROGRAM, arguments)
}

/// Runs with arguments.
pub fn lab(arguments: &[&str]) -> Run {
    program::run(PROGRAM, arguments)
}

/// Runs with arguments and standard input.
pub fn lab_with_input(arguments: &[&str], input: &str) -> Run {
    program::run_with_input(PROGRAM, arguments, input)
}

/// Runs `demask` with arguments: what it writes, the laboratory reads.
pub fn demask(arguments: &[&str]) -> Run {
    let beside = Path::new(PROGRAM).with_file_name("demask").with_extension(std::env::consts::EXE_EXTENSION);
    assert!(beside.exists(), "{} is missing: build it with -p demask-cli, or test the workspace", beside.display());
    program::run(beside.to_str().unwrap(), arguments)
}
