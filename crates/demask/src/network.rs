//! A loaded model, whatever device it is on.

use demask_model::{ArchSpec, Inspection, Runner};
use demask_step::{Denoiser, Mask, SequenceId, StepError};
use demask_tensor::Backend;

/// A [`Denoiser`] with what an engine and a report want to know beside it. One object per loaded model: dispatch costs
/// one indirect call a step.
pub trait Network: Denoiser {
    /// The architecture.
    fn spec(&self) -> &ArchSpec;
    /// One line: device, tier, threads, element type.
    fn describe(&self) -> String;
    /// Bytes of the packed weights.
    fn weight_bytes(&self) -> usize;
    /// Bytes of an open sequence's cache.
    fn cache_bytes(&self, sequence: SequenceId) -> usize;
    /// Most rows that one step may have.
    fn row_capacity(&self) -> usize;
    /// One forward over `tokens` with all logits and, if asked for, every layer's output.
    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, StepError>;
}

impl<B: Backend> Network for Runner<B> {
    fn spec(&self) -> &ArchSpec {
        self.spec()
    }

    fn describe(&self) -> String {
        self.backend().describe()
    }

    fn weight_bytes(&self) -> usize {
        self.weight_bytes()
    }

    fn cache_bytes(&self, sequence: SequenceId) -> usize {
        self.cache_bytes(sequence)
    }

    fn row_capacity(&self) -> usize {
        self.row_capacity()
    }

    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, StepError> {
        self.inspect(tokens, mask, layers)
    }
}
