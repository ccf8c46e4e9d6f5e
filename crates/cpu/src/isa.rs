//! Instruction sets of the processor, as values that only a successful probe can create.
//!
//! A [`Tier`] is a name; an [`Isa`] is the proof that this process may execute the instructions of a tier. Kernels take
//! an [`Isa`], so that no safe code can reach an instruction that the processor lacks. Each architecture has a list of
//! its tiers, each with its probe; one without a list has [`Tier::Portable`] alone.
//!
//! ```
//! use demask_cpu::isa::{Isa, Tier};
//! assert!(Isa::best().has(Tier::Portable));
//! ```

use std::{fmt, sync::OnceLock};

#[cfg(target_arch = "aarch64")]
#[path = "isa/aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    pub(super) const TIERS: [(super::Tier, fn() -> bool); 1] = [(super::Tier::Portable, || true)];
}
#[cfg(target_arch = "x86_64")]
#[path = "isa/x86.rs"]
mod arch;

/// A set of instructions that kernels are written for; each includes those before it of the same architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Portable code for the compiler's target: runs everywhere.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with dot products of bytes. Processors with AVX-512 need not have them: for those the tier is left out.
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with bf16 dot products.
    Avx512Bf16,
    /// Tile products of bf16 and of bytes, beside AVX-512 with bf16.
    Amx,
    /// Vectors of 128 bits, which every 64-bit ARM processor has: Cortex-A53 and A72, the Raspberry Pi 4.
    Neon,
    /// NEON with dot products of bytes (`FEAT_DotProd`): Cortex-A55 and A76, Neoverse N1, Apple M1.
    Dotprod,
    /// Dot products of bytes, with matrix products of bf16 and of bytes (`FEAT_BF16` and `FEAT_I8MM`). Armv8.6 asks for both,
    /// and processors have either both or neither: Neoverse V1 and N2, Apple M2.
    Bf16I8mm,
}

impl Tier {
    /// All tiers of this architecture, ascending.
    pub const ALL: [Self; arch::TIERS.len()] = {
        let mut all = [Self::Portable; arch::TIERS.len()];
        let mut rank = 0;
        while rank < all.len() {
            all[rank] = arch::TIERS[rank].0;
            rank += 1;
        }
        all
    };

    /// The tier's name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::Dotprod => "dotprod",
            Self::Bf16I8mm => "bf16i8mm",
        }
    }

    /// The tier of this architecture that has a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// Names of all tiers of this architecture, the highest first.
    pub fn names() -> &'static str {
        static NAMES: OnceLock<String> = OnceLock::new();
        NAMES.get_or_init(|| {
            let mut tiers = Self::ALL;
            tiers.reverse();
            listed(&tiers)
        })
    }

    /// Reports whether the tier is `other` or one before it, of this architecture.
    pub(crate) fn is_up_to(self, other: Self) -> bool {
        let rank = |wanted| Self::ALL.into_iter().position(|tier| tier == wanted);
        rank(self).is_some() && rank(self) <= rank(other)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Proof that the processor and the system let this process use a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    /// Tier whose kernels are requested.
    tier: Tier,
    /// The highest tier whose instructions may be executed; lower than `tier` only where kernels' software twins are tested.
    executable: Tier,
}

impl Isa {
    /// The fastest tier of this machine: its highest, but for processors whose highest is slower than the one before it.
    pub fn best() -> Self {
        let tier = detected().last().copied().unwrap_or(Tier::Portable);
        #[cfg(target_arch = "x86_64")]
        let tier = arch::fastest(tier);
        Self { tier, executable: tier }
    }

    /// All tiers of this machine, ascending.
    pub fn available() -> Vec<Self> {
        detected().iter().map(|&tier| Self { tier, executable: tier }).collect()
    }

    /// A chosen tier, or the machine's own.
    pub fn force(tier: Tier) -> Result<Self, IsaError> {
        let found = detected();
        if found.contains(&tier) { Ok(Self { tier, executable: tier }) } else { Err(IsaError { wanted: tier, found }) }
    }

    /// The tier whose kernels are asked for.
    pub fn tier(self) -> Tier {
        self.tier
    }

    /// Reports whether instructions of `tier` may be executed. Code that is chosen by hand must ask this and not
    /// [`Isa::tier`], which overstates a tier whose kernels' software twins are tested.
    pub fn has(self, tier: Tier) -> bool {
        tier == self.executable || (tier.is_up_to(self.executable) && detected().contains(&tier))
    }

    /// Reports whether dot products of bytes of 512-bit registers (AVX-512 VNNI) may be executed. No tier promises
    /// them, and most processors with AVX-512 have them.
    pub fn has_vnni(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.has(Tier::Avx512) && arch::vnni();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Reports whether the tier's kernels are replaced by their software twins.
    pub(crate) fn is_emulated(self) -> bool {
        self.tier != self.executable
    }
}

/// The tiers of this machine, ascending, probed once.
fn detected() -> &'static [Tier] {
    static DETECTED: OnceLock<Vec<Tier>> = OnceLock::new();
    DETECTED.get_or_init(|| arch::TIERS.iter().filter(|(_, has)| has()).map(|&(tier, _)| tier).collect())
}

/// Instruction sets for tests of kernels: all tiers of this machine, then [`Tier::AvxVnni`] with a software twin of its dot
/// products where there is AVX2, then [`Tier::Amx`] with trapped instructions where the processor lacks nothing but those.
/// There `trap` is called, to make them work in all threads of this process from then on, and to say whether they do.
///
/// # Safety
/// Where the answer of `trap` is yes, tile instructions may be executed.
#[doc(hidden)]
pub unsafe fn testable(trap: fn() -> bool) -> Vec<Isa> {
    let twin = detected().contains(&Tier::Avx2).then_some(Isa { tier: Tier::AvxVnni, executable: Tier::Avx2 });
    #[cfg(target_arch = "x86_64")]
    let trapped = detected().last() == Some(&Tier::Avx512Bf16) && arch::vbmi() && trap();
    #[cfg(not(target_arch = "x86_64"))]
    let trapped = false;
    let trapped = trapped.then_some(Isa { tier: Tier::Amx, executable: Tier::Amx });
    Isa::available().into_iter().chain(twin).chain(trapped).collect()
}

/// A tier that this machine lacks was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot run the tier {wanted}: it has {}", listed(found))]
pub struct IsaError {
    /// Tier that was requested.
    pub wanted: Tier,
    /// The tiers that there are, ascending.
    pub found: &'static [Tier],
}

/// The names of tiers.
fn listed(tiers: &[Tier]) -> String {
    let names: Vec<_> = tiers.iter().map(|tier| tier.name()).collect();
    names.join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Instruction sets for this crate's own tests.
    pub(crate) fn testable() -> Vec<Isa> {
        // SAFETY: the trap executes tile instructions where it says so.
        unsafe { super::testable(demask_testkit::tiles::trap) }
    }

    #[test]
    fn names_lead_back_to_their_tiers() {
        for tier in Tier::ALL {
            assert_eq!(Tier::from_name(tier.name()), Some(tier));
            assert!(Tier::names().split(", ").any(|name| name == tier.name()));
        }
        assert_eq!(Tier::from_name("sse9"), None);
    }

    #[test]
    fn tiers_of_other_architectures_have_no_name_and_no_rank() {
        let [own, other] =
            if cfg!(target_arch = "aarch64") { [Tier::Neon, Tier::Avx2] } else { [Tier::Portable, Tier::Neon] };
        assert_eq!(Tier::from_name(other.name()), None);
        assert!(own.is_up_to(own) && !other.is_up_to(own) && !own.is_up_to(other) && !other.is_up_to(other));
        assert!(!Isa::best().has(other) && Isa::force(other).is_err());
    }

    #[test]
    fn what_is_available_can_be_forced_and_holds_the_best() {
        let available = Isa::available();
        for isa in &available {
            assert_eq!(Isa::force(isa.tier()), Ok(*isa));
            assert!(isa.has(isa.tier()) && !isa.is_emulated());
        }
        assert!(available.contains(&Isa::best()));
        assert_eq!(available[0].tier(), Tier::Portable);
    }

    #[test]
    fn a_missing_tier_is_named_with_what_there_is() {
        for tier in Tier::ALL.into_iter().filter(|tier| !detected().contains(tier)) {
            assert_eq!(Isa::force(tier), Err(IsaError { wanted: tier, found: detected() }));
        }
        let message = IsaError { wanted: Tier::Amx, found: &[Tier::Portable, Tier::Avx2] }.to_string();
        assert_eq!(message, "this machine cannot run the tier amx: it has portable, avx2");
    }

    #[test]
    fn tiers_with_a_twin_permit_none_of_their_instructions() {
        for isa in testable().into_iter().filter(|isa| isa.is_emulated()) {
            assert!(!isa.has(isa.tier()) && isa.has(Tier::Portable));
        }
    }
}
