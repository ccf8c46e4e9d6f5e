//! The service on a socket: an accept loop of its own, in which every slow part of a connection has an end.
//!
//! One thread does all of it. The engine owns the cores; prompts are put into tokens on threads of the runtime's pool.

mod body;
mod connection;
mod envelope;
mod names;
mod server;
mod stall;

pub use names::{host, origin};
pub use server::{HttpConfig, Server, Stop};
