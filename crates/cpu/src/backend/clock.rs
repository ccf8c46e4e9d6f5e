//! Seconds by kind of work, counted only while somebody wants to know.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use demask_tensor::PartSeconds;

/// Counts nanoseconds of each [`Part`].
#[derive(Default)]
pub(super) struct Clock {
    on: bool,
    parts: [AtomicU64; 3],
}

/// A kind of work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Products with the weights of the layers.
    Linear,
    /// Products with keys and values.
    Attention,
    /// The head, its norm and statistics included.
    Head,
}

impl Clock {
    /// Creates a clock at 0, or one that does not run.
    pub(super) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Does the work, and counts its time if it is to be counted.
    #[inline]
    pub(super) fn time<R>(&self, part: Part, work: impl FnOnce() -> R) -> R {
        if !self.on {
            return work();
        }
        let started = Instant::now();
        let result = work();
        self.parts[part as usize].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Returns the seconds that were counted so far.
    pub(super) fn seconds(&self) -> PartSeconds {
        let [linear, attention, head] =
            self.parts.each_ref().map(|nanoseconds| nanoseconds.load(Ordering::Relaxed) as f64 / 1e9);
        PartSeconds { linear, attention, head }
    }
}
