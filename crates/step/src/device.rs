//! Facts about a device: its errors, and how much of its memory is in use.

use std::{
    error, fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// A device that runs operations fails, for a reason in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for DeviceError {}

/// Error: not enough memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes that were requested.
    pub needed: u64,
    /// Bytes that are available.
    pub available: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB needed, {} MiB available", self.needed >> 20, self.available >> 20)
    }
}

impl error::Error for OutOfMemory {}

/// Memory of a device that is not the computer's own, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceMemory {
    /// Allocated now.
    pub current: u64,
    /// Allocated at most at any time, since the model was loaded or the peak was forgotten.
    pub peak: u64,
    /// Bytes in use on the whole device as its driver reports them, including those of other processes and of the
    /// driver itself.
    pub in_use: u64,
}

impl DeviceMemory {
    /// Adds what another network takes. Peaks are added too, so that the sum is one from above.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            current: self.current + other.current,
            peak: self.peak + other.peak,
            in_use: self.in_use.max(other.in_use),
        }
    }
}

/// Reads how much of a device's memory a network takes, from any thread.
pub trait MemoryMeter: Send + Sync {
    /// Returns it as it is now.
    fn read(&self) -> DeviceMemory;
    /// Starts the peak again from the bytes that are allocated now.
    fn forget_peak(&self);
}

/// Counts bytes that are taken and given back.
#[derive(Debug, Default)]
pub struct Allocated {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Allocated {
    /// Counts bytes that were taken.
    pub fn take(&self, bytes: u64) {
        let current = self.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(current, Ordering::Relaxed);
    }

    /// Counts bytes that were given back.
    pub fn give_back(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that are taken now.
    pub fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that were taken at any time since the peak was forgotten.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Starts the peak again from the bytes that are taken now.
    pub fn forget_peak(&self) {
        self.peak.store(self.current(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_most_since_it_was_forgotten() {
        let allocated = Allocated::default();
        allocated.take(100);
        allocated.take(50);
        allocated.give_back(100);
        allocated.take(20);
        assert_eq!((allocated.current(), allocated.peak()), (70, 150));
        allocated.forget_peak();
        assert_eq!(allocated.peak(), 70);
        allocated.give_back(70);
        assert_eq!((allocated.current(), allocated.peak()), (0, 70));
    }
}
