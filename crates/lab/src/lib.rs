//! The laboratory: what answers cost, runs that are rehearsed or replayed, analyses of networks, random checkpoints, what a
//! machine offers. Nothing that a user's answer takes part in.
#![forbid(unsafe_code)]

#[cfg(feature = "analyze")]
pub mod analysis;
pub mod costs;
pub mod doctor;
pub mod estimate;
pub mod measuring;
pub mod outline;
#[cfg(feature = "analyze")]
pub mod pictures;
pub mod rehearsal;
pub mod replay;
pub mod shapes;
pub mod synth;
pub mod told;
pub mod words;
