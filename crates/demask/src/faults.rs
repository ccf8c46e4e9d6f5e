//! Faults that are put in front of a network's forwards and openings.
//!
//! They fail, panic, dawdle or have no memory when somebody says so: what a program does then is tried without breaking a
//! device.

use std::sync::Arc;

use demask_model::{ArchSpec, Inspect, InspectError, Inspection, Watcher};
use demask_step::{
    DeviceError, DeviceId, LaunchKind, Mask, MemoryMeter, Network, OpenError, Opened, Pages, PlanError, Position,
    Positions, Predictions, Prefix, PrefixCounters, Price, RowBudget, SequenceId, SequenceNeeds, SequenceStep,
    StepPlan,
};
use demask_tensor::PartSeconds;

use crate::Model;

/// Runs before each forward, which has a number from 0 on.
type BeforeStep = Box<dyn FnMut(usize) -> Result<(), DeviceError> + Send>;
/// Runs before each opening of a sequence, which has a number from 0 on.
type BeforeOpen = Box<dyn FnMut(usize) -> Result<(), OpenError> + Send>;

/// Faults that are injected before forwards and openings of a network.
pub struct Faults {
    /// Hook before a forward: an error is the device's.
    pub step: BeforeStep,
    /// Hook before a sequence is opened.
    pub open: BeforeOpen,
}

impl Default for Faults {
    /// Creates hooks without faults.
    fn default() -> Self {
        Self { step: Box::new(|_| Ok(())), open: Box::new(|_| Ok(())) }
    }
}

impl Faults {
    /// Does something before each forward.
    pub fn before_step(step: impl FnMut(usize) -> Result<(), DeviceError> + Send + 'static) -> Self {
        Self { step: Box::new(step), ..Self::default() }
    }

    /// Does something before each opening of a sequence.
    pub fn before_open(open: impl FnMut(usize) -> Result<(), OpenError> + Send + 'static) -> Self {
        Self { open: Box::new(open), ..Self::default() }
    }
}

/// A network, and what happens before its forwards and openings.
struct Faulty {
    inner: Box<dyn Inspect>,
    faults: Faults,
    forwards: usize,
    openings: usize,
}

#[doc(hidden)]
impl Model {
    /// Lets something happen before the forwards and openings of its network from now on. Nothing may be open or wait.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        if let Ok(Some(inner)) = self.scheduler.remove(self.networks[0]) {
            let network = Faulty { inner, faults, forwards: 0, openings: 0 };
            self.networks[0] = self.scheduler.add(Box::new(network));
        }
        self
    }
}

impl Faulty {
    fn before_open(&mut self) -> Result<(), OpenError> {
        let number = self.openings;
        self.openings += 1;
        (self.faults.open)(number)
    }
}

impl Network for Faulty {
    fn open(&mut self, needs: &SequenceNeeds) -> Result<SequenceId, OpenError> {
        self.before_open()?;
        self.inner.open(needs)
    }

    fn open_behind(&mut self, needs: &SequenceNeeds, prefix: Prefix<'_>) -> Result<Opened, OpenError> {
        self.before_open()?;
        self.inner.open_behind(needs, prefix)
    }

    fn publish(&mut self, sequence: SequenceId, prefix: Prefix<'_>) {
        self.inner.publish(sequence, prefix);
    }

    fn spare(&mut self, prefix: Prefix<'_>) -> u64 {
        self.inner.spare(prefix)
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        self.inner.evict(bytes)
    }

    fn prefixes(&self) -> Option<PrefixCounters> {
        self.inner.prefixes()
    }

    fn close(&mut self, sequence: SequenceId) {
        self.inner.close(sequence);
    }

    fn price(&self, needs: &SequenceNeeds) -> Result<Price, OpenError> {
        self.inner.price(needs)
    }

    fn check(&self, group: &[SequenceStep<'_>]) -> Result<(), PlanError> {
        self.inner.check(group)
    }

    fn kind(&self, plan: &StepPlan) -> Option<LaunchKind> {
        self.inner.kind(plan)
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), DeviceError> {
        let number = self.forwards;
        self.forwards += 1;
        (self.faults.step)(number)?;
        self.inner.step(batch, out)
    }

    fn rows(&self) -> RowBudget {
        self.inner.rows()
    }

    fn shift(&self) -> Position {
        self.inner.shift()
    }

    fn pages(&self) -> Pages {
        self.inner.pages()
    }
}

impl Inspect for Faulty {
    fn spec(&self) -> &ArchSpec {
        self.inner.spec()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn weight_bytes(&self) -> usize {
        self.inner.weight_bytes()
    }

    fn expert_bytes(&self) -> usize {
        self.inner.expert_bytes()
    }

    fn expert_bytes_read(&self) -> u64 {
        self.inner.expert_bytes_read()
    }

    fn forward_bytes(&self) -> usize {
        self.inner.forward_bytes()
    }

    fn cache_bytes(&self, sequence: SequenceId) -> usize {
        self.inner.cache_bytes(sequence)
    }

    fn available(&self) -> (DeviceId, u64) {
        self.inner.available()
    }

    fn memory_meter(&self) -> Option<Arc<dyn MemoryMeter>> {
        self.inner.memory_meter()
    }

    fn time_parts(&mut self, on: bool) {
        self.inner.time_parts(on);
    }

    fn part_seconds(&self) -> PartSeconds {
        self.inner.part_seconds()
    }

    fn inspect(&mut self, tokens: &[u32], mask: Mask, layers: bool) -> Result<Inspection, InspectError> {
        self.inner.inspect(tokens, mask, layers)
    }

    fn watch(&mut self, tokens: &[u32], mask: Mask, watcher: &mut Watcher<'_>) -> Result<(), InspectError> {
        self.inner.watch(tokens, mask, watcher)
    }

    fn set_piece(&mut self, rows: usize) {
        self.inner.set_piece(rows);
    }

    fn keep_prefixes(&mut self, bytes: u64) {
        self.inner.keep_prefixes(bytes);
    }

    fn stored(&mut self, sequence: SequenceId, positions: &Positions) -> Result<Vec<[Vec<f32>; 2]>, DeviceError> {
        self.inner.stored(sequence, positions)
    }
}
