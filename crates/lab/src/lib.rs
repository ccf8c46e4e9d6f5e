//! The laboratory: analyses of networks, measurements, pictures of costs, random checkpoints. Nothing that a user's answer
//! takes part in.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod measuring;
pub mod pictures;
pub mod synth;
