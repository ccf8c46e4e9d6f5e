//! All integration tests of the server in one binary.

mod bounds;
mod common;
mod contract;
mod echo;
mod faults;
mod fields;
mod interfaces;
mod lengths;
mod promises;
mod random;
mod refusals;
mod sockets;
mod solo;
mod structure;
mod symptoms;
