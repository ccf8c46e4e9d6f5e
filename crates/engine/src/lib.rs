//! Requests from their preparation to their end, and the one scheduler that runs them.
//!
//! * A [`Request`] owns its [job](demask_step::Job), its text and stop texts, its deadline, the time that it has taken, and the
//!   [queue](OutputQueue) of its [events](Event). It waits, runs, and is finished. An answer's job is a
//!   [`Session`](demask_decode::Session), a likelihood's another one.
//! * A [`Scheduler`] owns networks and the requests on them, each under one [`RequestId`]. [`Scheduler::step`] runs one forward
//!   of one network. Which requests share it changes no prediction.
//! * An [`Engine`] is a thread that owns a scheduler. An [`EngineHandle`] submits requests to it from any thread.
//! * A [`RequestHandle`] iterates over the events of one request and returns its result. Dropped, it cancels the request before
//!   the next forward. A [`Group`] waits for many of them together.
//! * Unread events are merged in the queue, so that their number is bounded and a slow reader delays nothing.
//!
//! The crate knows no tokenizer: a [`Detokenizer`] turns tokens into text.
#![forbid(unsafe_code)]
#![allow(clippy::vec_box, reason = "requests are large, and move between lists")]

mod curve;
mod error;
mod faults;
mod group;
mod handle;
mod health;
mod ids;
mod memory;
mod network;
mod order;
mod output;
mod params;
mod pieces;
mod queue;
mod request;
mod scheduler;
/// Locks that threads share.
mod sync {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}
mod text;
mod thread;

pub use curve::ForwardCost;
pub use demask_decode::{Event, Started};
pub use error::{Busy, EngineError, RequestError, SubmitError};
pub use faults::Faults;
pub use group::{Group, Over};
pub use handle::RequestHandle;
pub use health::Heartbeat;
pub use ids::{NetworkId, RequestId};
pub use network::NetworkCounters;
pub use output::OutputQueue;
pub use params::{SchedulingParams, Tenant, cache_salt};
pub use request::{FirstTokens, Request, Spent};
pub use scheduler::{Ran, Refused, Scheduler, Totals};
pub use text::{Detokenizer, Text};
pub use thread::{Engine, EngineCounters, EngineHandle};
