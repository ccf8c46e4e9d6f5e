//! Architectures without kernels of their own.

use super::Tier;

/// Tiers, ascending, each with its probe.
pub(super) const TIERS: [(Tier, fn() -> bool); 1] = [(Tier::Portable, || true)];

/// The fastest tier where `highest` is the highest.
pub(super) fn fastest(highest: Tier) -> Tier {
    highest
}
