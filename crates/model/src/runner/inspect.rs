//! Inspection of a model between its forwards: its facts, logits and layers, and the K/V that are stored.

use std::sync::Arc;

use demask_step::{
    DeviceError, DeviceId, HeadRequest, Mask, MemoryMeter, Network, OpenError, OutOfMemory, PlanError, Positions,
    SequenceId, SequenceLimits, SequenceStep, StepPlan,
};
use demask_tensor::{Backend, HeadRow, PartSeconds, RowSegment, Stage};

use super::Runner;
use crate::{ArchSpec, Hidden, Watcher, memory::page_kind};

/// A network that can be looked into between its forwards.
pub trait Inspect: Network {
    /// Returns the architecture.
    fn spec(&self) -> &ArchSpec;
    /// Describes it in one line: device, tier, threads, element type, and what matrices are kept in, where it is another.
    fn describe(&self) -> String;
    /// Returns the bytes of the packed weights.
    fn weight_bytes(&self) -> usize;
    /// Returns the bytes of weights that every forward reads, experts that rows choose left out.
    fn forward_bytes(&self) -> usize;
    /// Returns the bytes of all experts that rows choose among; 0 in a model without any.
    fn expert_bytes(&self) -> usize;
    /// Returns the bytes of experts that forwards have read so far, beside what every forward reads: each expert of a layer
    /// that some row of a forward chose, once.
    fn expert_bytes_read(&self) -> u64;
    /// Returns the bytes of the pages of an open sequence.
    fn cache_bytes(&self, sequence: SequenceId) -> usize;
    /// Returns whose memory it takes, and how many bytes that has left.
    fn available(&self) -> (DeviceId, u64);
    /// Returns a reader of the memory that it takes on a device of its own; none if that is the computer's.
    fn memory_meter(&self) -> Option<Arc<dyn MemoryMeter>>;
    /// Begins to count the seconds of parts from 0, or ends it.
    fn time_parts(&mut self, on: bool);
    /// Returns the seconds counted so far.
    fn part_seconds(&self) -> PartSeconds;
    /// Runs one forward over `tokens` with all logits and, if asked for, every layer's output.
    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, InspectError>;
    /// Runs one forward over `tokens` of which the watcher sees every intermediate; no logits are computed.
    fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), InspectError>;
    /// Keeps cached prefixes from now on, so that sequences with the same leading tokens share them. Without a
    /// holder they are kept up to this number of bytes. 0 keeps none, as at the start. By default none are ever kept.
    fn keep_prefixes(&mut self, _bytes: u64) {}
    /// Sets how many rows of a request run at once where it can be cut, at least 1. By default it is the network's own.
    fn set_piece(&mut self, _rows: usize) {}
    /// Reads K and V of the slots of an open sequence: for each layer both, `[positions, kv width]`, widened. Zeros where
    /// no step has written. Positions that the sequence does not have are left out.
    fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, DeviceError>;
}

/// A forward for inspection cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No memory for its sequence.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Tokens that the model does not know, or none at all.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
}

/// Raw results of one forward, for checking a port against another implementation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inspection {
    /// `[rows, vocabulary]`: raw, not shifted.
    pub logits: Vec<f32>,
    /// Every layer's output.
    pub hidden: Hidden,
}

impl Inspection {
    /// Needs of a forward over a number of tokens.
    pub fn needs(rows: usize) -> SequenceLimits {
        SequenceLimits { positions: rows, rows, predictions: rows, logits: true, ..SequenceLimits::default() }
    }
}

impl<B: Backend> Runner<B> {
    /// Fills a launch of positions that computes nothing: their slots can be read.
    fn lower_look(&mut self, sequence: SequenceId, positions: &[u32]) {
        let launch = &mut self.launch;
        launch.clear();
        let Some(Some(sequence)) = self.sequences.get(sequence.0 as usize) else { return };
        for &position in positions.iter().filter(|&&position| (position as usize) < sequence.state.room()) {
            launch.ids.push(0);
            launch.positions.push(position);
            launch.slots.push(sequence.slot(position));
            launch.limits.push(1);
        }
        launch.tables.extend_from_slice(&sequence.pages);
        launch.segments.push(RowSegment { rows: 0..launch.ids.len() as u32, table: 0..launch.tables.len() as u32 });
    }

    /// Runs one forward over `tokens`, on a sequence of its own.
    fn look(
        &mut self,
        tokens: &[u32],
        mask: Mask,
        logits: bool,
        watcher: Option<&mut Watcher<'_>>,
    ) -> Result<(), InspectError> {
        let rows = tokens.len();
        let needs = SequenceLimits { logits, ..Inspection::needs(rows) };
        let id = self.open(&needs)?;
        let mut plan = StepPlan { kv_len: rows as u32, mask, ..Default::default() };
        plan.query.set_range(0..rows as u32);
        let ask = HeadRequest { logits, ..HeadRequest::default() }.into();
        let step = SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None };
        let looked = self.check(&[step]).map_err(InspectError::from).and_then(|()| {
            self.lower(&[step]);
            if logits {
                self.launch.head.rows.extend((0..rows as u32).map(|row| HeadRow { row, request: 0, key: 0 }));
                self.launch.last.extend(0..rows as u32);
            }
            Ok(self.forward(watcher)?)
        });
        self.close(id);
        looked
    }
}

impl<B: Backend> Inspect for Runner<B> {
    fn spec(&self) -> &ArchSpec {
        &self.spec
    }

    fn describe(&self) -> String {
        let (device, dtype) = (self.backend.describe(), self.backend.dtype().to_string());
        let formats: Vec<_> = self.weights.formats().keys().map(String::as_str).collect();
        if formats == [dtype] { device } else { format!("{device}, {} weights", formats.join(" + ")) }
    }

    fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    fn forward_bytes(&self) -> usize {
        self.weights.bytes_of_a_forward()
    }

    fn expert_bytes(&self) -> usize {
        self.weights.expert_bytes()
    }

    fn expert_bytes_read(&self) -> u64 {
        self.backend.expert_bytes_read()
    }

    fn cache_bytes(&self, sequence: SequenceId) -> usize {
        let Some(sequence) = self.sequence(sequence) else { return 0 };
        let pages = sequence.pages.len() + sequence.draft_pages.len();
        pages * self.backend.page_bytes(&self.kv, page_kind(sequence.state.needs()))
    }

    fn available(&self) -> (DeviceId, u64) {
        (self.backend.device(), self.backend.available())
    }

    fn memory_meter(&self) -> Option<Arc<dyn MemoryMeter>> {
        self.backend.memory_meter()
    }

    fn time_parts(&mut self, on: bool) {
        self.backend.time_parts(on);
    }

    fn part_seconds(&self) -> PartSeconds {
        self.backend.part_seconds()
    }

    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, InspectError> {
        let copies = if layers { (self.spec.layers + 2) * self.spec.hidden } else { 0 };
        let needed = ((self.spec.vocabulary + copies) * size_of::<f32>()) as u64 * tokens.len() as u64;
        let available = self.backend.available();
        if needed > available {
            return Err(OpenError::from(OutOfMemory { needed, available }).into());
        }
        let mut hidden = Hidden::default();
        let mut take = |part, values: &[f32]| hidden.take(part, values);
        self.look(tokens, mask, true, layers.then_some(&mut take))?;
        Ok(Inspection { logits: std::mem::take(&mut self.output.logits), hidden })
    }

    fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), InspectError> {
        self.look(tokens, mask, false, Some(watcher))
    }

    fn keep_prefixes(&mut self, bytes: u64) {
        // Under full attention the tokens after a token change its K/V: there is nothing to keep.
        self.idle_bytes = if self.spec.attention == Mask::Full { 0 } else { bytes };
        self.evict(self.idle_bytes);
    }

    fn set_piece(&mut self, rows: usize) {
        self.piece = rows.max(1);
    }

    fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, DeviceError> {
        let mut layers = vec![[Vec::new(), Vec::new()]; self.spec.layers];
        let positions: Vec<_> = positions.iter().collect();
        // The workspace has room for so many rows at a time.
        for positions in positions.chunks(self.reserved.rows.max(1)) {
            self.lower_look(sequence, positions);
            self.backend.begin(&self.launch, &mut self.kv);
            for (layer, tensors) in layers.iter_mut().enumerate() {
                for (stage, tensor) in
                    [Stage::Key(layer, &self.kv), Stage::Value(layer, &self.kv)].into_iter().zip(tensors)
                {
                    let mut part = Vec::new();
                    self.backend.read(stage, &mut part);
                    let width = part.len() / self.launch.len().max(1);
                    // A page that is used again holds what was written last.
                    let unwritten = self.launch.positions.iter().enumerate().filter(|(_, position)| {
                        !self.sequences[sequence.0 as usize]
                            .as_ref()
                            .is_some_and(|own| own.state.is_written(**position))
                    });
                    unwritten.for_each(|(index, _)| part[index * width..(index + 1) * width].fill(0.0));
                    tensor.append(&mut part);
                }
            }
            self.backend.finish()?;
        }
        Ok(layers)
    }
}
