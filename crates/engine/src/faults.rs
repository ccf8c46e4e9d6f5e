//! Faults that are put in front of a network's forwards and openings.
//!
//! They fail, panic, dawdle or have no memory when a test says so, so that a program's reaction is tried without
//! breaking a device.

use demask_step::{DeviceError, OpenError};

/// Runs before each forward, which has a number from 0 on.
type BeforeStep = Box<dyn FnMut(usize) -> Result<(), DeviceError> + Send>;
/// Runs before each opening of a sequence, which has a number from 0 on.
type BeforeOpen = Box<dyn FnMut(usize) -> Result<(), OpenError> + Send>;

/// Faults that are injected before forwards and openings of a network.
pub struct Faults {
    /// Hook before a forward: an error is the device's.
    step: BeforeStep,
    /// Hook before a sequence is opened.
    open: BeforeOpen,
    forwards: usize,
    openings: usize,
}

impl Default for Faults {
    /// Creates hooks without faults.
    fn default() -> Self {
        Self { step: Box::new(|_| Ok(())), open: Box::new(|_| Ok(())), forwards: 0, openings: 0 }
    }
}

impl Faults {
    /// Does something before each forward.
    pub fn before_step(step: impl FnMut(usize) -> Result<(), DeviceError> + Send + 'static) -> Self {
        Self { step: Box::new(step), ..Self::default() }
    }

    /// Does something before each opening of a sequence.
    pub fn before_open(open: impl FnMut(usize) -> Result<(), OpenError> + Send + 'static) -> Self {
        Self::default().and_before_open(open)
    }

    /// Does something before each opening of a sequence, too.
    #[must_use]
    pub fn and_before_open(self, open: impl FnMut(usize) -> Result<(), OpenError> + Send + 'static) -> Self {
        Self { open: Box::new(open), ..self }
    }

    /// Runs the hook before a forward.
    pub(crate) fn forward(&mut self) -> Result<(), DeviceError> {
        self.forwards += 1;
        (self.step)(self.forwards - 1)
    }

    /// Runs the hook before an opening.
    pub(crate) fn opening(&mut self) -> Result<(), OpenError> {
        self.openings += 1;
        (self.open)(self.openings - 1)
    }
}
