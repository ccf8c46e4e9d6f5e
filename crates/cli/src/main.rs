//! The `demask` command: the program of the library, with the methods of demask.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    demask_cli::main_with(Ok(demask::Registry::default()))
}
