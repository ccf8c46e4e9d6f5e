//! Models without their weights: released shapes, runs without a network, and costs.

mod assumed;
pub mod demo;
mod estimates;
#[cfg(feature = "cuda")]
mod models;
mod shapes;
