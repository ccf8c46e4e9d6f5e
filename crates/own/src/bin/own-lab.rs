//! `demask-lab` with the methods of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    demask_lab::main_with(demask_own::registry())
}
