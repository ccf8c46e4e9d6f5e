//! Test helpers that every crate shares: naive reference operations, tile instructions in software, scripted networks, random
//! cases, and what every method of decoding must hold.
#![deny(unsafe_code)]

pub mod by_hand;
pub mod naive;
pub mod property;
pub mod scripted;
pub mod suite;
pub mod tiles;
