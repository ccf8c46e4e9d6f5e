//! Reasons why work is refused, or ends before it is done.

use demask_step::{DeviceError, OpenError, PlanError, Position};

/// Reason why a work ends before it is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// Cancelled by its observer.
    #[error("interrupted")]
    Cancelled,
    /// Expired: its deadline passed while it waited for memory.
    #[error("the deadline passed while the request waited for memory: allow more time, or try again later")]
    Expired,
    /// Error: its sequences cannot be opened, although nothing else is open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Error: the requested step is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The work, or the network, does not keep to what its trait promises.
    #[error("a contract between work and network is broken (a bug, please report it): {0}")]
    Broken(&'static str),
    /// Error: the work panicked when it was fed.
    #[error("the work panicked (a bug, please report it): {0}")]
    Panicked(String),
    /// Error of the work itself: it cannot go on.
    #[error("{0}")]
    Fault(String),
    /// Error: the network's logits at a position are none.
    #[error(
        "the model's logits at position {position} are not numbers (NaN or infinite): its weights may be damaged; fetch the \
         model again, or try --dtype f32"
    )]
    NotNumbers {
        /// The position.
        position: Position,
    },
    /// A network that it runs on failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
}

/// Work that cannot be taken, handed back.
#[derive(Debug)]
pub struct Refused<W> {
    /// The work.
    pub work: W,
    /// Reason of the refusal.
    pub error: SubmitError,
}

/// Reason why work cannot be accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Error: the work could never be opened, even with nothing else open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A network that it is to run on has failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// Error: the work needs a network that it was not given, or that was removed.
    #[error("the work needs its network {0}, found none or one that was removed: name a network of this scheduler")]
    NoNetwork(usize),
    /// Error: the share is not a number above 0.
    #[error("a weight of {0}: expected a number above 0")]
    Weight(f64),
}

/// Networks cannot be removed while sequences are open on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{open} sequences are open on the network: wait until their requests are over, or cancel them")]
pub struct Busy {
    /// Number of open works.
    pub open: usize,
}
