//! A loaded model on a backend: the [`Network`] that work runs on, open to inspection between its forwards.

use std::sync::Arc;

use demask_step::{
    DeviceError, DeviceId, HeadRequest, Mask, MemoryMeter, Network, OpenError, Opened, OutOfMemory, Pages, PlanError,
    PlanLimits, Position, Positions, Predictions, Prefix, PrefixCounters, Price, RowBudget, SequenceId, SequenceNeeds,
    SequenceStep, StepPlan,
};
use demask_tensor::{
    Backend, Dtype, HeadOutput, HeadRow, Launch, PAGE, PageCopy, PageKind, PartSeconds, Segment, Stage, WorkspaceShape,
    round_bf16, widen_bf16,
};

use crate::{
    ArchSpec, Hidden, Sequence, Watcher, Weights,
    forward::{Forward, forward},
    lower::Lowered,
    memory::{attention_shape, draft_pages, page_kind, table_entries, workspace_shape},
    prefixes::{NodeId, PrefixIndex},
};

/// Rows of a piece by default. A prompt of 4,000 rows in such pieces takes 1.01 times as long as in one forward (the example
/// `long_prompt`, two layers of Qwen2.5-1.5B's shape).
const PIECE: usize = 512;
/// Rotation tables start at this many positions and double when a longer sequence is opened.
const FIRST_ROTATION: usize = 1024;

/// A model, its backend, its K/V store and its open sequences.
pub struct Runner<B: Backend> {
    spec: ArchSpec,
    weights: Weights<B>,
    backend: B,
    kv: B::Kv,
    sequences: Vec<Option<Sequence>>,
    reserved: WorkspaceShape,
    rotation: usize,
    /// Pages of each kind that are held by sequences or by the index, and the most that ever were: the rest is free.
    pages: Vec<(PageKind, usize, usize)>,
    /// Prefixes that sequences share, and how many bytes of them may be idle; 0 if none are kept.
    prefixes: PrefixIndex,
    idle_bytes: u64,
    launch: Launch,
    lowered: Lowered,
    output: HeadOutput,
    /// Most rows of a request that run at once where it can be cut.
    piece: usize,
}

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
    /// Keeps published prefixes from now on, so that sequences with the same leading tokens share them, and up to so many
    /// bytes of them while nobody holds them. 0 keeps none, which is how it begins. By default it never keeps any.
    fn keep_prefixes(&mut self, _bytes: u64) {}
    /// Sets how many rows of a request run at once where it can be cut, at least 1. By default it is what it is.
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
    pub fn needs(rows: usize) -> SequenceNeeds {
        SequenceNeeds { positions: rows, rows, predictions: rows, logits: true, ..SequenceNeeds::default() }
    }
}

impl<B: Backend> Runner<B> {
    /// Puts a model together. Steps of several sequences may have up to `row_budget` rows; a single sequence that needs
    /// more raises it.
    pub fn new(spec: ArchSpec, weights: Weights<B>, mut backend: B, row_budget: usize) -> Result<Self, OutOfMemory> {
        let reserved = workspace_shape(&spec, row_budget, &[]);
        backend.reserve(&reserved)?;
        let kv = backend.new_kv(&attention_shape(&spec), spec.layers, spec.hidden);
        let mut runner = Self {
            spec,
            weights,
            backend,
            kv,
            sequences: Vec::new(),
            reserved,
            rotation: 0,
            pages: Vec::new(),
            prefixes: PrefixIndex::new(PAGE),
            idle_bytes: 0,
            launch: Launch::default(),
            lowered: Lowered::default(),
            output: HeadOutput::default(),
            piece: PIECE,
        };
        runner.reserve_rotation(1)?;
        Ok(runner)
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Copies the pages of a node to those of a sequence that follow what it shares, in a launch that computes nothing.
    fn copy(&mut self, node: NodeId, sequence: &Sequence) -> Result<(), DeviceError> {
        let own = sequence.own_pages();
        self.launch.clear();
        let copies = self.prefixes.pages_of(node).zip(own).map(|(from, &to)| PageCopy { from, to });
        self.launch.copies.extend(copies);
        self.backend.begin(&self.launch, &mut self.kv);
        self.backend.finish()
    }

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
        launch.segments.push(Segment { rows: 0..launch.ids.len() as u32, table: 0..launch.tables.len() as u32 });
    }

    fn reserve_rotation(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        if positions <= self.rotation {
            return Ok(());
        }
        let positions = positions.max(FIRST_ROTATION).next_power_of_two().min(self.spec.context.max(positions));
        let rope = &self.spec.rope;
        let frequencies = rope.inverse_frequencies();
        let round = self.backend.dtype() == Dtype::Bf16 && !rope.full_precision;
        let amplitude = rope.amplitude();
        let kept = |value: f32| if round { widen_bf16(round_bf16(value)) } else { value };
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..positions {
            for &frequency in &frequencies {
                // f32 throughout, as the official code computes its table.
                let angle = position as f32 * frequency;
                cos.push(kept(angle.cos() * amplitude));
                sin.push(kept(angle.sin() * amplitude));
            }
        }
        self.backend.set_rotation(&cos, &sin, rope.rotated)?;
        if let Some(scale) = self.spec.query_scale {
            for (position, (cos, sin)) in
                cos.chunks_exact_mut(rope.rotated / 2).zip(sin.chunks_exact_mut(rope.rotated / 2)).enumerate()
            {
                let scale = scale.at(position);
                cos.iter_mut().chain(sin).for_each(|value| *value *= scale);
            }
            self.backend.set_query_rotation(&cos, &sin)?;
        }
        self.rotation = positions;
        Ok(())
    }

    /// Returns the workspace for one more sequence with these needs.
    fn grown(&self, needs: &SequenceNeeds) -> WorkspaceShape {
        let open = self.sequences.iter().flatten().map(|sequence| table_entries(sequence.state.needs())).sum::<usize>();
        let rows = needs.rows.max(needs.group_rows);
        WorkspaceShape {
            rows: self.reserved.rows.max(rows),
            head_rows: self.reserved.head_rows.max(rows).max(needs.predictions),
            table_entries: self.reserved.table_entries.max(open + table_entries(needs)),
            ..self.reserved
        }
    }

    fn reserve_for(&mut self, needs: &SequenceNeeds) -> Result<(), OutOfMemory> {
        self.reserve_rotation(needs.positions)?;
        self.lowered.reserve(self.sequences.len() + 1, needs);
        self.reserve(self.grown(needs))
    }

    fn reserve(&mut self, wanted: WorkspaceShape) -> Result<(), OutOfMemory> {
        if wanted != self.reserved {
            self.backend.reserve(&wanted)?;
            self.launch.reserve(&wanted);
            self.reserved = wanted;
        }
        Ok(())
    }

    /// Gives a sequence the pages that it is opened with.
    fn allocate(&mut self, sequence: &mut Sequence) -> Result<(), OutOfMemory> {
        let (needs, own) = (sequence.state.needs(), sequence.pages.len());
        let (kind, canvas, drafts) = (page_kind(needs), needs.opening().div_ceil(PAGE), draft_pages(needs));
        self.take(canvas.saturating_sub(own), kind, &mut sequence.pages)?;
        if let Err(error) = self.take(drafts, kind, &mut sequence.draft_pages) {
            self.release(&sequence.pages[own..], kind);
            return Err(error);
        }
        Ok(())
    }

    /// Appends so many pages of a kind; idle ones are given up where there is no memory otherwise.
    fn take(&mut self, count: usize, kind: PageKind, pages: &mut Vec<u32>) -> Result<(), OutOfMemory> {
        // Those that go first are as many as are missing: of the same kind, they are taken in their place.
        for most in [count, usize::MAX] {
            let (tried, idle) = (self.try_take(count, kind, pages), self.prefixes.idle_pages());
            if tried.is_ok() || idle == 0 {
                return tried;
            }
            self.evict_to(idle.saturating_sub(most));
        }
        self.try_take(count, kind, pages)
    }

    fn try_take(&mut self, held: usize, kind: PageKind, pages: &mut Vec<u32>) -> Result<(), OutOfMemory> {
        self.backend.allocate_pages(&mut self.kv, held, kind, pages)?;
        match self.pages.iter_mut().find(|(of, ..)| *of == kind) {
            Some((_, used, most)) => {
                *used += held;
                *most = (*used).max(*most);
            }
            None => self.pages.push((kind, held, held)),
        }
        Ok(())
    }

    /// Gives pages of a kind back.
    fn release(&mut self, pages: &[u32], kind: PageKind) {
        self.backend.release_pages(&mut self.kv, pages);
        if let Some((_, used, _)) = self.pages.iter_mut().find(|(of, ..)| *of == kind) {
            *used -= pages.len();
        }
    }

    /// Bytes of a page that sequences may share.
    fn shared_page_bytes(&self) -> u64 {
        self.backend.page_bytes(&self.kv, PageKind::default()) as u64
    }

    /// Gives idle pages up until no more than so many are left.
    fn evict_to(&mut self, most: usize) {
        while self.prefixes.idle_pages() > most
            && let Some(pages) = self.prefixes.evict()
        {
            self.release(&pages, PageKind::default());
        }
    }

    /// Reports whether a sequence may share pages: those that hold nothing but K and V.
    fn shares(&self, needs: &SequenceNeeds) -> bool {
        self.idle_bytes > 0 && page_kind(needs) == PageKind::default()
    }

    fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(id.0 as usize)?.as_ref()
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
        let needs = SequenceNeeds { logits, ..Inspection::needs(rows) };
        let id = self.open(&needs)?;
        let mut plan = StepPlan { visible: rows as u32, mask, ..Default::default() };
        plan.live.set_range(0..rows as u32);
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

    fn lower(&mut self, batch: &[SequenceStep<'_>]) {
        let sequences = &self.sequences;
        let sequence_of = |index: usize| match &sequences[batch[index].sequence.0 as usize] {
            Some(sequence) => sequence,
            None => unreachable!("checked before"),
        };
        self.lowered.lower(&self.spec, batch, sequence_of, &mut self.launch);
    }

    fn forward(&mut self, watcher: Option<&mut Watcher<'_>>) -> Result<(), DeviceError> {
        let Self { spec, weights, backend, kv, launch, lowered, output, .. } = self;
        forward(Forward { spec, weights, launch, lowered }, backend, kv, output, watcher)
    }
}

impl<B: Backend> Network for Runner<B> {
    fn open(&mut self, needs: &SequenceNeeds) -> Result<SequenceId, OpenError> {
        let needs = SequenceNeeds { opens_with: None, ..needs.clone() };
        Ok(self.open_behind(&needs, Prefix::default())?.sequence)
    }

    fn open_behind(&mut self, needs: &SequenceNeeds, prefix: Prefix<'_>) -> Result<Opened, OpenError> {
        if needs.positions > self.spec.context {
            return Err(OpenError::Context { needed: needs.positions, available: self.spec.context });
        }
        self.reserve_for(needs)?;
        let mut sequence = Sequence::new(needs.clone());
        let (mut filled, mut copied) = (0, None);
        if self.shares(needs) {
            let mut pages = Vec::new();
            // A copy needs pages of its own, which are those that it opens with.
            let found = self.prefixes.hold(prefix, needs.opening(), &mut pages);
            copied = found.copied;
            filled = sequence.begin(found.shared, pages);
        }
        let allocated = self.allocate(&mut sequence);
        if allocated.is_ok()
            && let Some((node, positions)) = copied
            && self.copy(node, &sequence).is_ok()
        {
            filled += positions as Position;
            sequence.state.fill(filled);
        }
        // What is copied need not stay.
        self.prefixes.release(copied.map(|(node, _)| node).as_slice());
        if let Err(error) = allocated {
            self.prefixes.release(&sequence.shared);
            return Err(error.into());
        }
        sequence.grown();
        let free = self.sequences.iter().position(Option::is_none).unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        self.sequences[free] = Some(sequence);
        Ok(Opened { sequence: SequenceId(free as u32), filled })
    }

    fn growth(&self, sequence: SequenceId, positions: usize) -> u64 {
        let Some(sequence) = self.sequence(sequence) else { return 0 };
        let pages = positions.div_ceil(PAGE).saturating_sub(sequence.pages.len());
        pages as u64 * self.backend.page_bytes(&self.kv, page_kind(sequence.state.needs())) as u64
    }

    fn grow(&mut self, id: SequenceId, positions: usize) -> Result<usize, OutOfMemory> {
        let Some(mut sequence) = self.sequences.get_mut(id.0 as usize).and_then(Option::take) else { return Ok(0) };
        let (kind, own) = (page_kind(sequence.state.needs()), sequence.pages.len());
        let taken = self.take(positions.div_ceil(PAGE).saturating_sub(own), kind, &mut sequence.pages);
        sequence.grown();
        let room = sequence.state.room();
        self.sequences[id.0 as usize] = Some(sequence);
        taken.map(|()| room)
    }

    fn publish(&mut self, sequence: SequenceId, prefix: Prefix<'_>, ends: bool) {
        let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize) else { return };
        if self.idle_bytes == 0 || page_kind(sequence.state.needs()) != PageKind::default() {
            return;
        }
        // Nobody is to read what was never written, whatever is claimed of it.
        let tokens = &prefix.tokens[..prefix.tokens.len().min(sequence.state.written())];
        let Sequence { shared, pages, .. } = sequence;
        let published = self.prefixes.publish(Prefix { tokens, ..prefix }, ends, shared, pages);
        let shared_pages = sequence.shared_pages() + published.taken + published.replaced.len();
        sequence.state.share((shared_pages * PAGE) as Position);
        self.release(&published.replaced, PageKind::default());
    }

    fn gains(&self, prefix: Prefix<'_>, filler: Prefix<'_>) -> bool {
        self.idle_bytes > 0 && self.prefixes.gains(prefix, filler)
    }

    fn spare(&mut self, prefix: Prefix<'_>) -> u64 {
        self.prefixes.spare(prefix, usize::MAX) as u64 * self.shared_page_bytes()
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        let page = self.shared_page_bytes().max(1);
        self.evict_to((bytes / page) as usize);
        self.prefixes.idle_pages() as u64 * page
    }

    fn prefixes(&self) -> Option<PrefixCounters> {
        (self.idle_bytes > 0).then(|| PrefixCounters { capacity: self.idle_bytes, ..self.prefixes.counters() })
    }

    fn close(&mut self, sequence: SequenceId) {
        let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize).map(Option::take) else { return };
        let kind = page_kind(sequence.state.needs());
        self.release(sequence.own_pages(), kind);
        self.release(&sequence.draft_pages, kind);
        self.prefixes.release(&sequence.shared);
        self.evict(self.idle_bytes);
    }

    fn price(&self, needs: &SequenceNeeds) -> Result<Price, OpenError> {
        if needs.positions > self.spec.context {
            return Err(OpenError::Context { needed: needs.positions, available: self.spec.context });
        }
        let (pages, kind) = (needs.opening().div_ceil(PAGE) + draft_pages(needs), page_kind(needs));
        let own = pages as u64 * self.backend.page_bytes(&self.kv, kind) as u64;
        let grown = self.grown(needs);
        let bytes = |shape: &WorkspaceShape| self.backend.workspace_bytes(shape);
        let growth = if grown == self.reserved { 0 } else { bytes(&grown).saturating_sub(bytes(&self.reserved)) };
        Ok(Price { own, growth, device: self.backend.device() })
    }

    fn check(&self, group: &[SequenceStep<'_>]) -> Result<(), PlanError> {
        let ArchSpec { vocabulary, shift, .. } = self.spec;
        let limits = PlanLimits { vocabulary, shift: shift as Position, rows: self.reserved.rows };
        limits.check(group, |id| Some(&self.sequence(id)?.state))
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), DeviceError> {
        if batch.is_empty() {
            return Ok(());
        }
        let rows: usize = batch.iter().map(|step| step.tokens.len()).sum();
        // The workspace ends there, and backends trust a launch.
        assert!(rows <= self.reserved.rows, "{rows} rows in a forward, {} reserved", self.reserved.rows);
        self.lower(batch);
        self.forward(None)?;
        for step in batch {
            if let Some(Some(sequence)) = self.sequences.get_mut(step.sequence.0 as usize) {
                sequence.record(step.plan);
            }
        }
        self.lowered.scatter(batch, &self.output, self.spec.vocabulary, out);
        Ok(())
    }

    fn rows(&self) -> RowBudget {
        // Rows of a model with experts may each read others.
        let shared = if self.weights.expert_bytes() > 0 { 0 } else { self.weights.bytes_of_a_forward() };
        RowBudget { capacity: self.reserved.rows, free: self.backend.free_rows(shared), piece: self.piece }
    }

    fn shift(&self) -> Position {
        self.spec.shift as Position
    }

    fn pages(&self) -> Pages {
        let sum = |of: fn(&(PageKind, usize, usize)) -> usize| self.pages.iter().map(of).sum();
        let idle = self.prefixes.idle_pages();
        Pages { used: sum(|(_, used, _)| *used) - idle, free: sum(|(_, used, most)| most - used), idle }
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
        // Under full attention what stands behind a token changes its K/V: there is nothing to keep.
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
