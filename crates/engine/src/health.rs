//! Condition of an engine's thread, as others see it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::error::EngineError;

/// Condition of an engine's thread, for health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heartbeat {
    /// Records whether the thread runs: it was not shut down, and has not panicked.
    pub alive: bool,
    /// Records whether a network or the thread itself has failed: requests that need it end with an error until a new engine
    /// is made. [`EngineHandle::failure`](crate::EngineHandle::failure) says why.
    pub failed: bool,
    /// Records whether requests run or wait. Without any the thread waits for the next one.
    pub busy: bool,
    /// Time since it last began a forward or took a command: of a busy thread no longer than a forward takes, unless it is
    /// stuck.
    pub since: Duration,
}

/// Report of an engine's thread about itself, without a lock.
pub(crate) struct Health {
    start: Instant,
    /// Milliseconds from the start to the last heartbeat.
    last: AtomicU64,
    busy: AtomicBool,
    pub(crate) ended: AtomicBool,
    /// Reason why it failed, once it has.
    pub(crate) failure: OnceLock<String>,
}

impl Default for Health {
    fn default() -> Self {
        let (last, busy, ended) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Self { start: Instant::now(), last, busy, ended, failure: OnceLock::new() }
    }
}

impl Health {
    pub(crate) fn record_heartbeat(&self, busy: bool) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Release);
        self.busy.store(busy, Ordering::Release);
    }

    pub(crate) fn heartbeat(&self) -> Heartbeat {
        let (alive, busy) = (!self.ended.load(Ordering::Acquire), self.busy.load(Ordering::Acquire));
        let last = Duration::from_millis(self.last.load(Ordering::Acquire));
        let failed = self.failure.get().is_some();
        Heartbeat { alive, failed, busy: alive && busy, since: self.start.elapsed().saturating_sub(last) }
    }

    /// Writes down why it failed; the first reason counts.
    pub(crate) fn fail(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// Returns the end of a request that nothing runs any more.
    pub(crate) fn end(&self) -> EngineError {
        self.failure.get().map_or(EngineError::ShutDown, |why| EngineError::Failed { why: why.clone() })
    }
}
