//! Contract between decoding and the network.
//!
//! A decoding session asks for a *step*: which canvas positions enter the network (*live*), which keys they see,
//! whether they run on the canvas itself or on several drafts at once, which layers are computed for which rows, and
//! which numbers the head returns. The network answers with [`Predictions`]. Both sides speak of **positions** only:
//! only the model's lowering knows that a position becomes a row of a matrix.
//!
//! ```
//! use demask_step::{Mask, Positions, StepPlan};
//! let mut plan = StepPlan::default();
//! plan.query.extend_range(0..12);
//! plan.kv_len = 12;
//! plan.mask = Mask::Full;
//! plan.predict.extend_range(8..12);
//! assert_eq!(plan.to_string(), "live 0..12 visible 12 full canvas predict 8..12");
//! ```
#![forbid(unsafe_code)]

mod check;
mod device;
mod head;
mod job;
mod needs;
mod network;
mod piece;
mod plan;
mod positions;
pub mod random;
mod state;
mod tokens;

pub use check::PlanLimits;
pub use device::{Allocated, DeviceError, DeviceMemory, MemoryMeter, OutOfMemory};
pub use head::{ConfidenceOf, FilterOrder, HeadAsk, HeadRequest, Predictions, Sampling, TokenScore};
pub use job::{ForwardInput, Job, Pending, SequenceSpec};
pub use needs::{Cost, Operations, SequenceLimits};
pub use network::{
    Blend, BlendWith, DeviceId, MemoryCost, Network, OpenError, OpenedSequence, Pages, PlanError, Prefix,
    PrefixCacheStats, RowBudget, SequenceId, SequenceStep,
};
pub use plan::{
    BlockRules, Drift, Lanes, LaunchKind, LayerRows, Mask, MaskKind, Origin, Probe, Retain, StepPlan, Stores,
};
pub use positions::Positions;
pub use state::SequenceState;
pub use tokens::TokenList;

/// Index of a token in the model's vocabulary.
pub type TokenId = u32;

/// Absolute index in the canvas, the prompt's first token being 0.
pub type Position = u32;

/// The token of a prediction that was not made (the lane holds the position unmasked already).
pub const NO_TOKEN: TokenId = TokenId::MAX;

/// Makes room for `count` entries in all: lists that are refilled in each step are as long as they ever get beforehand.
pub fn room<T>(array: &mut Vec<T>, count: usize) {
    array.reserve(count.saturating_sub(array.len()));
}
