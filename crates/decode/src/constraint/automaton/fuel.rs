//! Bounds of the work and the size of automata.

use super::super::error::ConstraintError;

/// Most states of an automaton, over bytes or over characters (specs/structure.md#3).
pub(in super::super) const STATES: usize = 20_000;

/// Most entries of a table, of 4 bytes.
pub(super) const ENTRIES: usize = 20_000 * 256;

/// Work that may still be done: about one unit for each number that is looked at.
#[derive(Debug)]
pub(in super::super) struct Fuel {
    given: u64,
    left: u64,
}

impl Fuel {
    /// Fuel of a number of units.
    pub(in super::super) fn new(units: u64) -> Self {
        Self { given: units, left: units }
    }

    /// Takes units out of this one, fewer if it has fewer.
    pub(in super::super) fn take(&mut self, units: u64) -> Self {
        let units = units.min(self.left);
        self.left -= units;
        Self::new(units)
    }

    /// Puts back the unused rest of units that were taken.
    pub(in super::super) fn put_back(&mut self, taken: &Self) {
        self.left += taken.left;
    }

    /// Counts units. An error if fewer are left.
    pub(in super::super) fn spend(&mut self, units: usize) -> Result<(), ConstraintError> {
        match self.left.checked_sub(units as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ConstraintError::TooLarge { limit: self.given as usize, unit: "units of work" }),
        }
    }
}
