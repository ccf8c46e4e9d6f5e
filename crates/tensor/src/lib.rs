//! Data types, buffers, and the contract between the transformer and the device that runs it.
//!
//! [`Backend`] is a short list of fused operations over a paged K/V store; [`Launch`] is everything about one forward
//! that is not weights: plain integers, rows only. A backend knows neither model families nor decoding methods.

mod backend;
mod blocks;
mod buffer;
mod bytes;
mod dtype;
mod experts;
mod launch;
mod quantise;
mod stored;

pub use backend::{
    Backend, ExpertWeights, HeadOutput, HeadWeights, Lora, MlpWeights, PackError, PageKind, PartSeconds, QkvRows,
    QkvWeights, Stage,
};
pub use blocks::{BlockFormat, BlockParts, widen_f16};
pub use buffer::{AlignedBytes, Number};
pub use bytes::{Bytes, ReadError};
pub use dtype::{Dtype, TensorView, round_bf16, widen_bf16};
pub use experts::{ExpertGroups, ExpertShape, RouterRule, Score, Share};
pub use launch::{
    AttentionShape, BlendRows, HeadLaunch, HeadRow, Launch, NO_ROW, PageCopy, ProbeLaunch, RowSegment, Rows, SlotCopy,
    WorkspaceShape,
};
pub use quantise::{BELOW_HALF, GROUP_INPUTS, Quantisation, larger, round_within};
pub use stored::{HeldTensor, StoredTensor};

/// Positions in one page of the K/V store, which is also one key tile of attention: keys are always summed page by
/// page in ascending order, so that no result depends on what else is in a step.
///
/// 32 is the depth of one bf16 tile product (AMX: 64-byte tile rows), and a multiple of every vector width in use.
pub const PAGE: usize = 32;
