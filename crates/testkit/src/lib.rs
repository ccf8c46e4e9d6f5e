//! Test helpers that every crate shares: naive reference operations and scripted networks.
#![forbid(unsafe_code)]

pub mod by_hand;
pub mod naive;
pub mod scripted;
