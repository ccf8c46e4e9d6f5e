//! Work that a test runs by hand, forward by forward.

use demask_step::{Request, Work};

/// Shorthands for what a work wants next.
pub trait ByHand: Work {
    /// Returns the pending requests; none if it is done.
    fn requests(&self) -> &[Request] {
        self.pending().requests()
    }

    /// Returns which of its networks runs next; none if it is done.
    fn wants(&self) -> Option<usize> {
        Some(self.needs()[self.requests().first()?.sequence].network)
    }
}

impl<W: Work + ?Sized> ByHand for W {}
