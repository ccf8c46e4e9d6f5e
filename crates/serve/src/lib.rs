//! An OpenAI-compatible server for diffusion language models.
//!
//! [`Service::router`] is an [`axum::Router`], which needs no socket; [`http::Server`] puts it on one. Every answer is, to the
//! bit, the one that its request has alone.
#![forbid(unsafe_code)]

mod account;
mod admission;
mod answer;
mod answers;
mod api;
mod ask;
mod bodies;
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
pub mod http;
mod inner;
mod judging;
mod keys;
mod lane;
mod limits;
mod logprobs;
mod media;
mod metrics;
mod names;
mod options;
mod random;
mod refusal;
mod response;
mod router;
mod run;
mod service;
mod shape;
mod shares;
mod stream;
mod streaming;
/// Locks of what threads share.
mod sync {
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub use config::ServiceConfig;
pub use keys::{Key, KeyError, Keys};
pub use limits::Limits;
pub use options::ServeOptions;
pub use refusal::Refusal;
pub use service::Service;
