//! A network that predicts hashes of its input, and whose forwards take a time linear in their rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use demask_step::{
    DeviceError, DeviceId, MemoryCost, Network, OpenError, OutOfMemory, Pages, PlanError, Position, Predictions,
    RowBudget, SequenceId, SequenceLimits, SequenceStep, random::mix,
};

/// Rows that are nearly free beside others, and most rows of a piece.
pub(super) const FREE: usize = 8;
pub(super) const PIECE: usize = 16;

/// Log of a machine: the first token of each step, and its rows, forward by forward.
pub(super) type Log = Arc<Mutex<Vec<Vec<(u32, usize)>>>>;

/// A network that answers with hashes of its input, and whose forwards take a time linear in their rows.
pub(super) struct Machine {
    pub(super) memory: u64,
    pub(super) open: BTreeMap<u32, u64>,
    pub(super) opened: u32,
    /// Sequences that were opened with less than all of their memory.
    pub(super) grows: BTreeSet<u32>,
    pub(super) capacity: usize,
    pub(super) fails_after: usize,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) log: Log,
}

impl Machine {
    pub(super) fn new(memory: u64, capacity: usize, clock: &Arc<AtomicU64>) -> Self {
        Self {
            memory,
            open: BTreeMap::new(),
            opened: 0,
            grows: BTreeSet::new(),
            capacity,
            fails_after: usize::MAX,
            clock: Arc::clone(clock),
            log: Log::default(),
        }
    }
}

impl Machine {
    /// Takes bytes, if there are as many.
    fn take(&self, needed: u64) -> Result<(), OutOfMemory> {
        let available = self.memory - self.open.values().sum::<u64>();
        if needed > available { Err(OutOfMemory { needed, available }) } else { Ok(()) }
    }
}

/// Prediction at the position after a first token.
pub(super) fn predicted(first: u32, position: u32) -> u32 {
    mix(u64::from(first) << 32 | u64::from(position)) as u32
}

impl Network for Machine {
    fn open(&mut self, needs: &SequenceLimits) -> Result<SequenceId, OpenError> {
        let needed = needs.opening() as u64;
        self.take(needed)?;
        self.opened += 1;
        self.open.insert(self.opened, needed);
        if needs.opens_with.is_some() {
            self.grows.insert(self.opened);
        }
        Ok(SequenceId(self.opened))
    }

    fn growth(&self, sequence: SequenceId, positions: usize) -> u64 {
        (positions as u64).saturating_sub(self.open[&sequence.0])
    }

    fn grow(&mut self, sequence: SequenceId, positions: usize) -> Result<usize, OutOfMemory> {
        let needed = self.growth(sequence, positions);
        self.take(needed)?;
        *self.open.get_mut(&sequence.0).expect("it is open") += needed;
        Ok(positions)
    }

    fn close(&mut self, sequence: SequenceId) {
        assert!(self.open.remove(&sequence.0).is_some(), "closed once");
    }

    fn memory_cost(&self, needs: &SequenceLimits) -> Result<MemoryCost, OpenError> {
        Ok(MemoryCost { own: needs.opening() as u64, growth: 0, device: DeviceId(0) })
    }

    fn check(&self, group: &[SequenceStep<'_>]) -> Result<(), PlanError> {
        match group.iter().find(|step| !self.open.contains_key(&step.sequence.0) || step.plan.kv_len == 0) {
            Some(step) => Err(PlanError::UnknownSequence(step.sequence)),
            None => Ok(()),
        }
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), DeviceError> {
        let mut log = self.log.lock().unwrap();
        if log.len() == self.fails_after {
            return Err(DeviceError("it is on fire".to_owned()));
        }
        for step in batch.iter().filter(|step| self.grows.contains(&step.sequence.0)) {
            assert!(u64::from(step.plan.kv_len) <= self.open[&step.sequence.0], "what a step sees has memory");
        }
        let rows: usize = batch.iter().map(|step| step.tokens.len()).sum();
        let largest = batch.iter().map(|step| step.tokens.len()).max().unwrap_or(0);
        assert!(rows <= self.capacity.max(largest) && !batch.is_empty(), "{rows} rows");
        let different: BTreeSet<_> = batch.iter().map(|step| step.sequence).collect();
        assert_eq!(different.len(), batch.len(), "no sequence is there twice");
        self.clock.fetch_add(1000 + 50 * rows as u64, Ordering::Relaxed);
        log.push(batch.iter().map(|step| (step.tokens[0], step.tokens.len())).collect());
        for (step, out) in batch.iter().zip(out) {
            out.clear();
            out.lanes = 1;
            out.positions.clone_from(&step.plan.predict);
            out.tokens.extend(step.plan.predict.iter().map(|position| predicted(step.tokens[0], position)));
        }
        Ok(())
    }

    fn rows(&self) -> RowBudget {
        RowBudget { capacity: self.capacity, free: FREE, piece: PIECE }
    }

    fn shift(&self) -> Position {
        0
    }

    fn pages(&self) -> Pages {
        Pages { used: self.open.len(), ..Pages::default() }
    }
}
