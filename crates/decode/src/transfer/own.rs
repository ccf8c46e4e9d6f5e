//! A transfer rule that no registry knows: somebody's own, for one request.

use std::{fmt, sync::Arc};

use super::Transfer;

/// Maker of a fresh rule for each session, with a handle.
type Make = dyn Fn() -> Box<dyn Transfer> + Send + Sync;

/// A transfer rule that has a name and no parameters: it decides in the loop over blocks, in the place of a decoder's rule.
/// Its answers are approximate, and their receipt says `custom:NAME`.
#[derive(Clone)]
pub struct OwnRule {
    name: Arc<str>,
    make: Arc<Make>,
}

impl OwnRule {
    /// Makes one from a name, and from what makes the rule of each session.
    pub fn new(name: &str, make: impl Fn() -> Box<dyn Transfer> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), make: Arc::new(make) }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the rule of a session.
    pub(crate) fn transfer(&self) -> Box<dyn Transfer> {
        (self.make)()
    }
}

impl fmt::Debug for OwnRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnRule").field(&self.name).finish()
    }
}

/// Equality of makers, not of names.
impl PartialEq for OwnRule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }
}

/// Writes `custom:NAME`, which no registry reads.
impl fmt::Display for OwnRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom:{}", self.name)
    }
}
