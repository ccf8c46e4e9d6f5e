//! Decoding of diffusion language models as pure algorithms: no tensors, no I/O, no clock.
//!
//! A [`Session`] is a state machine around one canvas, a [`Job`](demask_step::Job). The owner of the networks asks it
//! for the steps to run and gives back the predictions:
//!
//! ```text
//! while let Pending::Run { requests, .. } = session.pending() {
//!     let predictions = run(requests);             // one for each request
//!     session.feed(&predictions);
//!     for event in session.events() { .. }         // commits and steps
//! }
//! let output = session.output();
//! ```
//!
//! Inside, three parts that never see each other make the decisions:
//!
//! * a [`Decoder`](methods::Decoder) says which positions it wants predicted and what to commit of the answer; most of
//!   them are a loop over blocks around a [`Transfer`](transfer::Transfer), the pure rule of how many predictions are
//!   taken;
//! * a [`CachePolicy`](caches::CachePolicy) says which rows are live and which keys they see;
//! * the [`Session`] owns the canvas, writes the commits, applies the stop rule and counts.
//!
//! Every method is one file with one line in a registry ([`methods::DECODERS`], [`caches::CACHES`]) that parsing
//! ([`spec`]), [`legality`] and documentation read. Methods of other crates join them in a [`Registry`].
#![forbid(unsafe_code)]

mod adjust;
mod blockwise;
pub mod caches;
pub mod canvas;
pub mod constraint;
mod distribution;
mod error;
pub mod event;
mod facts;
mod guide;
pub mod layout;
pub mod legality;
mod method;
pub mod methods;
mod options;
mod policy;
pub mod receipt;
mod recommended;
pub mod registry;
mod resolve;
pub mod schedule;
mod session;
pub mod spec;
mod step;
mod stop_rule;
pub mod transfer;

pub use adjust::Adjustments;
pub use error::OptionsError;
pub use event::{Commit, ConstraintCounts, Counts, Event, Finish, GuideCounts, Logprob, Output, Replacement, Started};
pub use facts::{CanvasSpec, FREE_ROWS, ModelFacts};
pub use guide::{Agreement, Alignment, GuideOptions, GuideText, GuideUse, Translator};
pub use layout::Layout;
pub use legality::Exactness;
pub use method::{CacheSpec, DecoderSpec, SessionOptions, Setup};
pub use policy::Memory;
pub use receipt::{DecodingReceipt, Rounds};
pub use recommended::{Named, Others, complete, recommended};
pub use registry::Registry;
pub use schedule::Schedule;
pub use session::Session;
pub use spec::SpecError;
pub use stop_rule::{StopError, StopRule};
pub use transfer::Remasking;
