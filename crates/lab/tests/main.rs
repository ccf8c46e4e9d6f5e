//! All integration tests of this crate in one binary.

mod assumed;
mod common;
mod estimates;
#[cfg(feature = "cuda")]
mod models;
mod own_methods;
mod shapes;
