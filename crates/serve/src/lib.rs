//! An OpenAI-compatible server for diffusion language models.
//!
//! [`Service`] has no sockets: the head of a request goes in, then its body, and a [`Reply`] comes out, whose body may be a
//! stream. The module `http` (a feature) puts it on a socket. Every answer is, to the bit, the one that its request has alone.
#![forbid(unsafe_code)]

mod account;
mod admission;
mod answer;
mod api;
mod ask;
mod canvas;
mod config;
mod date;
#[cfg(test)]
mod documented;
mod echo;
mod endpoint;
mod entry;
mod fields;
mod form;
#[cfg(feature = "http")]
pub mod http;
mod inner;
mod judging;
mod keys;
mod limits;
mod logprobs;
mod media;
mod metrics;
mod names;
mod options;
mod path;
mod random;
mod refusal;
mod response;
mod run;
mod served;
mod service;
mod shape;
mod shares;
mod stream;
/// Locks of what threads share.
mod sync {
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub use config::ServiceConfig;
pub use keys::{Key, KeyError, Keys};
pub use limits::Limits;
pub use options::ServeOptions;
pub use refusal::Refusal;
pub use service::{Opened, Pending, Reply, Service};
pub use stream::{EventStream, HEARTBEAT};
