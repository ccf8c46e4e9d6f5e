//! What can go wrong with a device: it fails, or it has too little memory.

use std::{error, fmt};

/// A device that runs operations fails, for a reason in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for DeviceError {}

/// Not enough memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub needed: u64,
    /// What there is.
    pub available: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB needed, {} MiB available", self.needed >> 20, self.available >> 20)
    }
}

impl error::Error for OutOfMemory {}
