//! Reasons why requests are refused, or end before they are done.

use demask_step::{DeviceError, OpenError, PlanError, Position};

/// Reason why a request ends before it is done. No other request ends with it, but for a failed device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Refused: it was not taken on.
    #[error(transparent)]
    Refused(SubmitError),
    /// Cancelled: its reader or its observer gave it up.
    #[error("interrupted")]
    Cancelled,
    /// Expired: its deadline passed while it waited for memory.
    #[error("the deadline passed while the request waited for memory: allow more time, or try again later")]
    Expired,
    /// Error: its sequences cannot be opened, although nothing else is open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Error: a step that its job asked for is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Error: its job, or the network, breaks a promise of its trait.
    #[error("a contract between work and network is broken (a bug, please report it): {0}")]
    Broken(&'static str),
    /// Error: its job panicked when it was fed; the panic's message.
    #[error("the work panicked (a bug, please report it): {0}")]
    Panicked(String),
    /// Error of the job itself, in its own words: it cannot go on.
    #[error("{0}")]
    Fault(String),
    /// Error: the network's logits at a position are not numbers.
    #[error(
        "the model's logits at position {position} are not numbers (NaN or infinite): its weights may be damaged; fetch the \
         model again, or try --dtype f32"
    )]
    NotNumbers {
        /// The position.
        position: Position,
    },
    /// Error: a network that it runs on failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
}

/// Reason why a request cannot be taken on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Error: its sequences could never be opened, even with nothing else open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Error: a network that it is to run on has failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// Error: its job needs a network that it was not given, or that was removed; the index among its own networks.
    #[error("the work needs its network {0}, found none or one that was removed: name a network of this scheduler")]
    NoNetwork(usize),
    /// Error: a weight of its class is not a number above 0; the weight.
    #[error("a weight of {0}: expected a number above 0")]
    Weight(f64),
}

/// Error: a network cannot be removed while sequences are open on it, or requests wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{open} sequences are open on the network: wait until their requests are over, or cancel them")]
pub struct Busy {
    /// Number of open sequences and of requests that wait.
    pub open: usize,
}

/// Reason why a request of an engine has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Error: the request ended before it was done.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Error: the system has no thread for an engine.
    #[error("the engine's thread cannot be started ({0}): raise the limit of threads, or run the model on this one")]
    NoThread(std::io::Error),
    /// Error: the engine takes no requests any more, or its thread has ended.
    #[error("the engine is shut down: start another one")]
    ShutDown,
    /// Error: the engine failed, and serves no request any more.
    #[error("the engine has failed ({why}): start another one")]
    Failed {
        /// Description of the failure.
        why: String,
    },
}
