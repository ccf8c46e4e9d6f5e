//! A loaded model on a backend: the [`Denoiser`] that decoding talks to.

use demask_step::{
    Denoiser, Mask, OpenError, PlanError, Positions, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepError,
};
use demask_tensor::{
    Backend, Dtype, HeadOutput, HeadRequest, HeadRow, Launch, OutOfMemory, PAGE, Segment, Stage, WorkspaceShape,
    round_bf16, widen_bf16,
};

use crate::{
    ArchSpec, Hidden, Sequence, Watcher, Weights,
    forward::{Forward, forward},
    lower::Lowered,
    memory::{attention_shape, page_kind, workspace_shape},
};

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
    launch: Launch,
    lowered: Lowered,
    output: HeadOutput,
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
    /// What a forward over so many tokens takes.
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
            launch: Launch::default(),
            lowered: Lowered::default(),
            output: HeadOutput::default(),
        };
        runner.reserve_rotation(1)?;
        Ok(runner)
    }

    /// The architecture.
    pub fn spec(&self) -> &ArchSpec {
        &self.spec
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Begins to count the seconds of parts from 0, or ends it.
    pub fn time_parts(&mut self, on: bool) {
        self.backend.time_parts(on);
    }

    /// The packed weights.
    pub fn weights(&self) -> &Weights<B> {
        &self.weights
    }

    /// Bytes of the packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Bytes of the pages of an open sequence.
    pub fn cache_bytes(&self, sequence: SequenceId) -> usize {
        let Some(Some(sequence)) = self.sequences.get(sequence.0 as usize) else { return 0 };
        let pages = sequence.pages.len() + sequence.draft_pages.len();
        pages * self.backend.page_bytes(&self.kv, page_kind(&sequence.needs))
    }

    /// K and V of the slots of an open sequence, for inspection: for each layer both, `[positions, kv width]`, widened.
    /// Zeros where no step has written. Positions that the sequence does not have are left out.
    pub fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, StepError> {
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
                    tensor.append(&mut part);
                }
            }
            self.backend.finish().map_err(|error| StepError::Device(error.to_string()))?;
        }
        Ok(layers)
    }

    /// A launch of positions that computes nothing: their slots can be read.
    fn lower_look(&mut self, sequence: SequenceId, positions: &[u32]) {
        let launch = &mut self.launch;
        launch.clear();
        let Some(Some(sequence)) = self.sequences.get(sequence.0 as usize) else { return };
        for &position in positions.iter().filter(|&&position| (position as usize) < sequence.needs.positions) {
            launch.ids.push(0);
            launch.positions.push(position);
            launch.slots.push(sequence.slot(position));
            launch.limits.push(1);
        }
        launch.tables.extend_from_slice(&sequence.pages);
        launch.segments.push(Segment { rows: 0..launch.ids.len() as u32, table: 0..launch.tables.len() as u32 });
    }

    /// Most rows that one step may have, all sequences and lanes together.
    pub fn row_capacity(&self) -> usize {
        self.reserved.rows
    }

    fn reserve_rotation(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        if positions <= self.rotation {
            return Ok(());
        }
        let positions = positions.max(FIRST_ROTATION).next_power_of_two().min(self.spec.context.max(positions));
        let rope = &self.spec.rope;
        let frequencies = rope.inverse_frequencies();
        let round = self.backend.dtype() == Dtype::Bf16 && !rope.full_precision;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..positions {
            for &frequency in &frequencies {
                // f32 throughout, as the official code computes its table.
                let angle = position as f32 * frequency;
                let (c, s) = (angle.cos(), angle.sin());
                cos.push(if round { widen_bf16(round_bf16(c)) } else { c });
                sin.push(if round { widen_bf16(round_bf16(s)) } else { s });
            }
        }
        self.backend.set_rotation(&cos, &sin, rope.rotated)?;
        self.rotation = positions;
        Ok(())
    }

    fn reserve_for(&mut self, needs: &SequenceNeeds) -> Result<(), OutOfMemory> {
        self.reserve_rotation(needs.positions)?;
        let tables: usize =
            self.sequences.iter().flatten().map(|sequence| table_entries(&sequence.needs)).sum::<usize>()
                + table_entries(needs);
        let rows = needs.rows.max(needs.predictions);
        self.lowered.reserve(self.sequences.len() + 1, needs);
        self.reserve(WorkspaceShape {
            rows: self.reserved.rows.max(needs.rows),
            head_rows: self.reserved.head_rows.max(rows),
            table_entries: self.reserved.table_entries.max(tables),
            ..self.reserved
        })
    }

    fn reserve(&mut self, wanted: WorkspaceShape) -> Result<(), OutOfMemory> {
        if wanted != self.reserved {
            self.backend.reserve(&wanted)?;
            self.launch.reserve(&wanted);
            self.reserved = wanted;
        }
        Ok(())
    }

    /// Makes room for steps of this many rows, for sequences that must run in one step.
    pub fn reserve_rows(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        let (rows, head_rows) = (self.reserved.rows.max(rows), self.reserved.head_rows.max(rows));
        self.reserve(WorkspaceShape { rows, head_rows, ..self.reserved })
    }

    fn allocate(&mut self, sequence: &mut Sequence) -> Result<(), OutOfMemory> {
        let (canvas, drafts) = sequence.page_counts();
        let kind = page_kind(&sequence.needs);
        self.backend.allocate_pages(&mut self.kv, canvas, kind, &mut sequence.pages)?;
        let drafted = self.backend.allocate_pages(&mut self.kv, drafts, kind, &mut sequence.draft_pages);
        if drafted.is_err() {
            self.backend.release_pages(&mut self.kv, &sequence.pages);
        }
        drafted
    }

    fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(id.0 as usize)?.as_ref()
    }

    /// One forward over `tokens` with every layer's output and all logits.
    pub fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, StepError> {
        let mut hidden = Hidden::default();
        let mut take = |part, values: &[f32]| hidden.take(part, values);
        self.look(tokens, mask, true, layers.then_some(&mut take))?;
        Ok(Inspection { logits: std::mem::take(&mut self.output.logits), hidden })
    }

    /// One forward over `tokens` of which the watcher sees every intermediate; no logits are computed.
    pub fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), StepError> {
        self.look(tokens, mask, false, Some(watcher))
    }

    /// One forward over `tokens`, on a sequence of its own.
    fn look(
        &mut self,
        tokens: &[u32],
        mask: Mask,
        logits: bool,
        watcher: Option<&mut Watcher<'_>>,
    ) -> Result<(), StepError> {
        let failed = |error: &dyn std::fmt::Display| StepError::Device(error.to_string());
        let rows = tokens.len();
        let needs = SequenceNeeds { logits, ..Inspection::needs(rows) };
        let id = self.open(&needs).map_err(|error| failed(&error))?;
        let mut plan = demask_step::StepPlan { visible: rows as u32, mask, ..Default::default() };
        plan.live.set_range(0..rows as u32);
        let ask = demask_step::HeadAsk::default();
        let step = SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None };
        let checked = self.check(&step).map_err(|error| StepError::Plan { index: 0, error });
        let looked = checked.and_then(|()| {
            self.lower(&[step])?;
            if logits {
                self.launch.head.requests[0] = HeadRequest { logits: true, ..HeadRequest::default() };
                self.launch.head.rows.extend((0..rows as u32).map(|row| HeadRow { row, request: 0, key: 0 }));
                self.launch.last.extend(0..rows as u32);
            }
            self.forward(watcher)
        });
        self.close(id);
        looked
    }

    fn lower(&mut self, batch: &[SequenceStep<'_>]) -> Result<(), StepError> {
        let sequences = &self.sequences;
        let sequence_of = |index: usize| match &sequences[batch[index].sequence.0 as usize] {
            Some(sequence) => sequence,
            None => unreachable!("checked before"),
        };
        self.lowered
            .lower(&self.spec, batch, sequence_of, &mut self.launch)
            .map_err(|(index, error)| StepError::Plan { index, error })
    }

    fn forward(&mut self, watcher: Option<&mut Watcher<'_>>) -> Result<(), StepError> {
        let Self { spec, weights, backend, kv, launch, lowered, output, .. } = self;
        forward(Forward { spec, weights, launch, lowered }, backend, kv, output, watcher)
            .map_err(|error| StepError::Device(error.to_string()))
    }

    fn check_capacity(&self, batch: &[SequenceStep<'_>]) -> Result<(), (usize, PlanError)> {
        let mut rows = 0;
        for (index, step) in batch.iter().enumerate() {
            self.check(step).map_err(|error| (index, error))?;
            if batch[..index].iter().any(|earlier| earlier.sequence == step.sequence) {
                return Err((index, PlanError::Contradiction("a sequence runs twice in one step")));
            }
            rows += step.tokens.len();
            if rows > self.reserved.rows {
                let error =
                    PlanError::BeyondReserve { what: "rows of a batch", needed: rows, reserved: self.reserved.rows };
                return Err((index, error));
            }
        }
        Ok(())
    }
}

impl<B: Backend> Denoiser for Runner<B> {
    fn open(&mut self, needs: &SequenceNeeds) -> Result<SequenceId, OpenError> {
        if needs.positions > self.spec.context {
            return Err(OpenError::Context { needed: needs.positions, available: self.spec.context });
        }
        let memory = |OutOfMemory { needed, available }| OpenError::Memory { needed, available };
        self.reserve_for(needs).map_err(memory)?;
        let mut sequence = Sequence::new(needs.clone());
        self.allocate(&mut sequence).map_err(memory)?;
        let free = self.sequences.iter().position(Option::is_none).unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        self.sequences[free] = Some(sequence);
        Ok(SequenceId(free as u32))
    }

    fn close(&mut self, sequence: SequenceId) {
        let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize).map(Option::take) else { return };
        self.backend.release_pages(&mut self.kv, &sequence.pages);
        self.backend.release_pages(&mut self.kv, &sequence.draft_pages);
    }

    fn check(&self, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let sequence = self.sequence(step.sequence).ok_or(PlanError::UnknownSequence(step.sequence))?;
        sequence.check(&self.spec, step)
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), StepError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.check_capacity(batch).map_err(|(index, error)| StepError::Plan { index, error })?;
        self.lower(batch)?;
        self.forward(None)?;
        for step in batch {
            if let Some(Some(sequence)) = self.sequences.get_mut(step.sequence.0 as usize) {
                sequence.record(step);
            }
        }
        self.lowered.scatter(batch, &self.output, self.spec.vocabulary, out);
        Ok(())
    }
}

/// Entries of the page tables of a sequence.
pub(crate) fn table_entries(needs: &SequenceNeeds) -> usize {
    needs.positions.div_ceil(PAGE) * needs.drafts.max(1)
}
