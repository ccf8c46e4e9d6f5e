//! Test helpers that every crate shares: naive reference operations and scripted denoisers.
#![forbid(unsafe_code)]

pub mod naive;
pub mod scripted;
