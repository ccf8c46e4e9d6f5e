//! Two decoders and a cache policy of one's own, and the registry that has them beside those of demask.
//!
//! The two programs of this crate are one line each: `demask-lab` and `demask` with these methods.
#![forbid(unsafe_code)]

mod clear;
mod near;
mod steady;

use demask::{Registry, methods::RegistryError};

pub use clear::{CLEAR, Clear};
pub use near::{NEAR, Near};
pub use steady::{STEADY, Steady};

/// Returns the methods of demask and those of this crate.
///
/// # Errors
/// If a name is taken.
pub fn registry() -> Result<Registry, RegistryError> {
    Registry::default().with_decoder(&STEADY)?.with_decoder(&CLEAR)?.with_cache(&NEAR)
}
