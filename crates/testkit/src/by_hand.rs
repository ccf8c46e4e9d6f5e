//! Job that a test runs by hand, forward by forward.

use demask_step::{ForwardInput, Job};

/// Shorthands for the next requests of a job.
pub trait ByHand: Job {
    /// Returns the pending requests; none if it is done.
    fn requests(&self) -> &[ForwardInput] {
        self.pending().requests()
    }

    /// Returns which of its networks runs next; none if it is done.
    fn wants(&self) -> Option<usize> {
        Some(self.needs()[self.requests().first()?.sequence].network)
    }
}

impl<J: Job + ?Sized> ByHand for J {}
