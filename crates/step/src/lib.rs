//! What decoding and the network say to each other.
//!
//! A decoding session asks for a *step*: which canvas positions enter the network (*live*), which keys they see,
//! whether they run on the canvas itself or on several drafts at once, which layers are computed for which rows, and
//! what is wanted of the head. The network answers with [`Predictions`]. Both sides speak of **positions** only: that
//! a position becomes a row of a matrix is known to nobody but the model's lowering.
//!
//! ```
//! use demask_step::{Mask, Positions, StepPlan};
//! let mut plan = StepPlan::default();
//! plan.live.extend_range(0..12);
//! plan.visible = 12;
//! plan.mask = Mask::Full;
//! plan.predict.extend_range(8..12);
//! assert_eq!(plan.to_string(), "live 0..12 visible 12 full canvas predict 8..12");
//! ```
#![forbid(unsafe_code)]

mod denoiser;
mod head;
mod plan;
mod positions;
pub mod random;

pub use denoiser::{
    Blend, BlendWith, Cost, Denoiser, OpenError, PlanError, SequenceId, SequenceNeeds, SequenceStep, StepError,
};
pub use head::{ConfidenceOf, FilterOrder, HeadAsk, Judged, Predictions, Sampling};
pub use plan::{Drift, Keep, Lanes, LayerRows, Mask, Probe, StepPlan};
pub use positions::Positions;

/// Index of a token in the model's vocabulary.
pub type TokenId = u32;

/// Absolute index in the canvas, the prompt's first token being 0.
pub type Position = u32;

/// The token of a prediction that was not made (the lane holds the position unmasked already).
pub const NO_TOKEN: TokenId = TokenId::MAX;
