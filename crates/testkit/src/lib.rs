//! Suites that hold a decoder or a cache policy to what every method must keep, for methods of any crate.
//!
//! An author calls [`suite::decoder`] or [`suite::cache`] in one test. Each runs the method with all kinds of values of its
//! parameters, beside every method of demask that goes with it, on [scripted] networks: no weights, no model, a
//! few seconds. It returns the first rule that is broken, with the method and the case.
//!
//! A decoder and a cache policy of one's own, judged:
//!
//! ```
//! # mod demask {
//! #     pub mod methods {
//! #         pub use demask_decode::{Memory, Setup, caches, methods::*, parameters, spec, transfer};
//! #         pub use demask_step as step;
//! #     }
//! # }
//! use demask::methods::{
//!     DecoderKind, DecoderMethod, Memory, Progress, Query, Setup, View,
//!     caches::{CacheKind, CacheMethod, CachePolicy, CacheTraits},
//!     parameters,
//!     spec::Kind,
//!     step::{MaskKind, StepPlan},
//!     transfer::{Candidate, State, Transfer},
//! };
//! use demask_testkit::suite;
//!
//! parameters! {
//!     /// Decoder that takes the surest few predictions of a block.
//!     pub struct Few {
//!         /// predictions taken at once
//!         pub most: usize = 3, Kind::count(1, 64);
//!     }
//! }
//!
//! impl DecoderKind for Few {
//!     const NAME: &'static str = "few";
//!     const SUMMARY: &'static str = "the surest few tokens of the block";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];
//! }
//!
//! /// The rule: candidates come surest first, block after block.
//! impl Transfer for Few {
//!     fn choose(&self, _state: &State, candidates: &mut [Candidate]) -> usize {
//!         let Some(first) = candidates.first() else { return 0 };
//!         let block = first.block;
//!         candidates.iter().take_while(|candidate| candidate.block == block).take(self.most).count()
//!     }
//! }
//!
//! parameters! {
//!     /// Cache policy that stores nothing between forwards.
//!     pub struct Fresh {}
//! }
//!
//! impl CacheKind for Fresh {
//!     const NAME: &'static str = "fresh";
//!     const SUMMARY: &'static str = "every row is computed in every forward";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];
//!
//!     // Claims, which the suite holds it to: its predictions are those without a cache, its slots a function of the canvas.
//!     fn traits(&self) -> CacheTraits {
//!         CacheTraits { exact: true, memory: Memory::OfState, ..CacheTraits::default() }
//!     }
//!
//!     fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
//!         Box::new(EveryRow)
//!     }
//! }
//!
//! #[derive(Debug)]
//! struct EveryRow;
//!
//! impl CachePolicy for EveryRow {
//!     fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
//!         let end = query.end(view.canvas);
//!         plan.query.set_range(0..end);
//!         plan.kv_len = end;
//!         plan.predict.clone_from(&query.predict);
//!     }
//!
//!     fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {}
//!
//!     fn memory(&self) -> Memory {
//!         Memory::OfState
//!     }
//! }
//!
//! static DECODER: DecoderMethod = DecoderMethod::of::<Few>();
//! static CACHE: CacheMethod = CacheMethod::of::<Fresh>();
//!
//! suite::decoder(&DECODER)?;
//! suite::cache(&CACHE)?;
//! # Ok::<(), suite::Broken>(())
//! ```
//!
//! The version equals demask's: a method compiles against both, and a suite knows the rules of its own version.
#![deny(unsafe_code)]

pub mod scripted;
pub mod suite;

// Helpers for the tests of demask's own crates. They change without notice.
#[doc(hidden)]
pub mod by_hand;
#[doc(hidden)]
pub mod gguf;
#[doc(hidden)]
pub mod hub;
pub mod language;
#[doc(hidden)]
pub mod naive;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod property;
#[doc(hidden)]
pub mod rounds;
#[doc(hidden)]
pub mod tiles;
