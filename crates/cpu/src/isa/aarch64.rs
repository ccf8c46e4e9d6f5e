//! Features of 64-bit ARM processors, as the system reports them.

use std::arch::is_aarch64_feature_detected;

use super::Tier;

/// Tiers, ascending, each with its probe.
pub(super) const TIERS: [(Tier, fn() -> bool); 4] =
    [(Tier::Portable, || true), (Tier::Neon, neon), (Tier::Dotprod, dotprod), (Tier::Bf16I8mm, bf16_i8mm)];

fn neon() -> bool {
    is_aarch64_feature_detected!("neon")
}

fn dotprod() -> bool {
    neon() && is_aarch64_feature_detected!("dotprod")
}

fn bf16_i8mm() -> bool {
    dotprod() && is_aarch64_feature_detected!("bf16") && is_aarch64_feature_detected!("i8mm")
}
