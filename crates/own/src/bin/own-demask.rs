//! `demask` with the methods of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    demask_cli::main_with(demask_own::registry())
}
