//! Names of requests and networks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Name of a request, from its submission to its end. Names grow in the order of submission, and none is given twice in a
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// Returns the next name.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Names a network of one scheduler. Never given twice by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId(pub(crate) usize);
