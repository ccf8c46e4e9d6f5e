//! A loaded model, whatever device it is on.

use demask_model::{ArchSpec, Inspection, Runner, Watcher};
use demask_step::{Denoiser, Mask, OpenError, Positions, SequenceId, StepError};
use demask_tensor::{Backend, OutOfMemory, PartSeconds};

/// A [`Denoiser`] with what an engine and a report want to know beside it. One object per loaded model: dispatch costs
/// one indirect call a step.
pub trait Network: Denoiser {
    /// The architecture.
    fn spec(&self) -> &ArchSpec;
    /// One line: device, tier, threads, element type, and what matrices are kept in, where it is another.
    fn describe(&self) -> String;
    /// Bytes of the packed weights.
    fn weight_bytes(&self) -> usize;
    /// Bytes of weights that every forward reads.
    fn forward_bytes(&self) -> usize;
    /// Bytes of an open sequence's cache.
    fn cache_bytes(&self, sequence: SequenceId) -> usize;
    /// Most rows that one step may have.
    fn row_capacity(&self) -> usize;
    /// Makes room for steps of this many rows.
    fn reserve_rows(&mut self, rows: usize) -> Result<(), OpenError>;
    /// Begins to count the seconds of parts from 0, or ends it.
    fn time_parts(&mut self, on: bool);
    /// Seconds counted so far.
    fn part_seconds(&self) -> PartSeconds;
    /// One forward over `tokens` with all logits and, if asked for, every layer's output.
    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, StepError>;
    /// One forward over `tokens` of which the watcher sees every intermediate; no logits are computed.
    fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), StepError>;
    /// K and V of the slots of an open sequence: for each layer both, `[positions, kv width]`.
    fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, StepError>;
}

impl<B: Backend> Network for Runner<B> {
    fn spec(&self) -> &ArchSpec {
        self.spec()
    }

    fn describe(&self) -> String {
        let (device, dtype) = (self.backend().describe(), self.backend().dtype().to_string());
        let formats: Vec<_> = self.weights().formats().keys().map(String::as_str).collect();
        if formats == [dtype] { device } else { format!("{device}, {} weights", formats.join(" + ")) }
    }

    fn weight_bytes(&self) -> usize {
        self.weight_bytes()
    }

    fn forward_bytes(&self) -> usize {
        self.weights().bytes_of_a_forward()
    }

    fn cache_bytes(&self, sequence: SequenceId) -> usize {
        self.cache_bytes(sequence)
    }

    fn row_capacity(&self) -> usize {
        self.row_capacity()
    }

    fn reserve_rows(&mut self, rows: usize) -> Result<(), OpenError> {
        let memory = |OutOfMemory { needed, available }| OpenError::Memory { needed, available };
        self.reserve_rows(rows).map_err(memory)
    }

    fn time_parts(&mut self, on: bool) {
        self.time_parts(on);
    }

    fn part_seconds(&self) -> PartSeconds {
        self.backend().part_seconds()
    }

    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, StepError> {
        self.inspect(tokens, mask, layers)
    }

    fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), StepError> {
        self.watch(tokens, mask, watcher)
    }

    fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, StepError> {
        self.stored(sequence, positions)
    }
}
