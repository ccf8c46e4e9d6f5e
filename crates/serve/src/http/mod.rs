//! The router on a socket: an accept loop of its own, in which every slow part of a connection has an end.
//!
//! One thread does all of it, and nothing else: what takes time (prompts are put into tokens, long answers into JSON) is done
//! in lanes on threads of the runtime's pool. The engine owns the cores.

mod connection;
mod names;
mod presence;
mod server;

pub use names::{host, origin};
pub use server::{Server, Stop};

pub use crate::config::HttpConfig;
