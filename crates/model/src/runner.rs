//! A loaded model on a backend: the [`Network`] that work runs on, open to inspection between its forwards.

mod inspect;

use demask_step::{
    DeviceError, MemoryCost, Network, OpenError, OpenedSequence, OutOfMemory, Pages, PlanError, PlanLimits, Position,
    Predictions, Prefix, PrefixCacheStats, RowBudget, SequenceId, SequenceLimits, SequenceStep,
};
use demask_tensor::{
    Backend, Dtype, HeadOutput, Launch, PAGE, PageCopy, PageKind, WorkspaceShape, round_bf16, widen_bf16,
};

use crate::{
    ArchSpec, Sequence, Watcher, Weights,
    forward::{Forward, forward},
    lower::Lowered,
    memory::{attention_shape, draft_pages, page_kind, table_entries, workspace_shape},
    prefixes::{NodeId, PrefixIndex},
};

pub use inspect::{Inspect, InspectError, Inspection};

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

impl<B: Backend> Runner<B> {
    /// Puts a model together. Steps of several sequences may have up to `row_budget` rows; a single sequence that needs
    /// more raises it.
    pub fn new(spec: ArchSpec, weights: Weights<B>, mut backend: B, row_budget: usize) -> Result<Self, OutOfMemory> {
        let adapter_rank = weights.adapter.as_ref().map_or(0, |adapter| adapter.rows.rank);
        let reserved = WorkspaceShape { adapter_rank, ..workspace_shape(&spec, row_budget, &[]) };
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

    /// Copies the pages of a node to those of a sequence that follow its shared ones, in a launch that computes nothing.
    fn copy(&mut self, node: NodeId, sequence: &Sequence) -> Result<(), DeviceError> {
        let own = sequence.own_pages();
        self.launch.clear();
        let copies = self.prefixes.pages_of(node).zip(own).map(|(from, &to)| PageCopy { from, to });
        self.launch.copies.extend(copies);
        self.backend.begin(&self.launch, &mut self.kv);
        self.backend.finish()
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
    fn grown(&self, needs: &SequenceLimits) -> WorkspaceShape {
        let open = self.sequences.iter().flatten().map(|sequence| table_entries(sequence.state.needs())).sum::<usize>();
        let rows = needs.rows.max(needs.group_rows);
        WorkspaceShape {
            rows: self.reserved.rows.max(rows),
            head_rows: self.reserved.head_rows.max(rows).max(needs.predictions),
            table_entries: self.reserved.table_entries.max(open + table_entries(needs)),
            ..self.reserved
        }
    }

    fn reserve_for(&mut self, needs: &SequenceLimits) -> Result<(), OutOfMemory> {
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

    /// Appends a number of pages of a kind; idle ones are given up where there is no memory otherwise.
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
    fn shares(&self, needs: &SequenceLimits) -> bool {
        self.idle_bytes > 0 && page_kind(needs) == PageKind::default()
    }

    fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(id.0 as usize)?.as_ref()
    }

    fn lower(&mut self, batch: &[SequenceStep<'_>]) {
        let sequences = &self.sequences;
        let sequence_of = |index: usize| match &sequences[batch[index].sequence.0 as usize] {
            Some(sequence) => sequence,
            None => unreachable!("checked before"),
        };
        self.lowered.lower(&self.spec, batch, sequence_of, &mut self.launch);
        if let Some(adapter) = &self.weights.adapter {
            self.lowered.adapt(&adapter.rows, batch, &mut self.launch);
        }
    }

    fn forward(&mut self, watcher: Option<&mut Watcher<'_>>) -> Result<(), DeviceError> {
        let Self { spec, weights, backend, kv, launch, lowered, output, .. } = self;
        forward(Forward { spec, weights, launch, lowered }, backend, kv, output, watcher)
    }
}

impl<B: Backend> Network for Runner<B> {
    fn open(&mut self, needs: &SequenceLimits) -> Result<SequenceId, OpenError> {
        let needs = SequenceLimits { opens_with: None, ..needs.clone() };
        Ok(self.open_with_prefix(&needs, Prefix::default())?.sequence)
    }

    fn open_with_prefix(&mut self, needs: &SequenceLimits, prefix: Prefix<'_>) -> Result<OpenedSequence, OpenError> {
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
        Ok(OpenedSequence { sequence: SequenceId(free as u32), filled })
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

    fn cache_prefix(&mut self, sequence: SequenceId, prefix: Prefix<'_>, ends: bool) {
        let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize) else { return };
        if self.idle_bytes == 0 || page_kind(sequence.state.needs()) != PageKind::default() {
            return;
        }
        // Nobody is to read what was never written, whatever is claimed of it.
        let tokens = &prefix.tokens[..prefix.tokens.len().min(sequence.state.written())];
        let Sequence { shared, pages, .. } = sequence;
        let cached = self.prefixes.cache(Prefix { tokens, ..prefix }, ends, shared, pages);
        let shared_pages = sequence.shared_pages() + cached.adopted + cached.replaced.len();
        sequence.state.share((shared_pages * PAGE) as Position);
        self.release(&cached.replaced, PageKind::default());
    }

    fn gains(&self, prefix: Prefix<'_>, filler: Prefix<'_>) -> bool {
        self.idle_bytes > 0 && self.prefixes.gains(prefix, filler)
    }

    fn touch_prefix(&mut self, prefix: Prefix<'_>) -> u64 {
        self.prefixes.touch_prefix(prefix, usize::MAX) as u64 * self.shared_page_bytes()
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        let page = self.shared_page_bytes().max(1);
        self.evict_to((bytes / page) as usize);
        self.prefixes.idle_pages() as u64 * page
    }

    fn prefix_cache_stats(&self) -> Option<PrefixCacheStats> {
        (self.idle_bytes > 0).then(|| PrefixCacheStats { capacity: self.idle_bytes, ..self.prefixes.counters() })
    }

    fn close(&mut self, sequence: SequenceId) {
        let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize).map(Option::take) else { return };
        let kind = page_kind(sequence.state.needs());
        self.release(sequence.own_pages(), kind);
        self.release(&sequence.draft_pages, kind);
        self.prefixes.release(&sequence.shared);
        self.evict(self.idle_bytes);
    }

    fn memory_cost(&self, needs: &SequenceLimits) -> Result<MemoryCost, OpenError> {
        if needs.positions > self.spec.context {
            return Err(OpenError::Context { needed: needs.positions, available: self.spec.context });
        }
        let (pages, kind) = (needs.opening().div_ceil(PAGE) + draft_pages(needs), page_kind(needs));
        let own = pages as u64 * self.backend.page_bytes(&self.kv, kind) as u64;
        let grown = self.grown(needs);
        let bytes = |shape: &WorkspaceShape| self.backend.workspace_bytes(shape);
        let growth = if grown == self.reserved { 0 } else { bytes(&grown).saturating_sub(bytes(&self.reserved)) };
        Ok(MemoryCost { own, growth, device: self.backend.device() })
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
        self.lowered.scatter(batch, &mut self.output, self.spec.vocabulary, out);
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
