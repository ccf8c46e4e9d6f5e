//! Systems without the limits that programs need.

use std::path::Path;

use super::{Interpreter, Limits, Order, Outcome, Protection, SandboxError};

pub fn probe(_: &Path, _: &Interpreter, _: Limits) -> Result<Vec<(Protection, String)>, SandboxError> {
    Err(SandboxError::Unsupported)
}

pub fn run(_: &Path, _: &Order, _: &str) -> Result<Outcome, SandboxError> {
    Err(SandboxError::Unsupported)
}
