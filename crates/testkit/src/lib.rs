//! Test helpers that every crate shares: naive reference operations, scripted networks, random cases, and what every method
//! of decoding must hold.
#![forbid(unsafe_code)]

pub mod by_hand;
pub mod naive;
pub mod property;
pub mod scripted;
pub mod suite;
