//! Instruction sets of the processor, as values that only a successful probe can create.
//!
//! A [`Tier`] is a name; an [`Isa`] is the proof that this process may execute the instructions of a tier. Kernels take
//! an [`Isa`], so that no safe code can reach an instruction that the processor lacks.
//!
//! ```
//! use demask_cpu::isa::{Isa, Tier};
//! assert!(Isa::best().has(Tier::Portable));
//! ```

use std::fmt;

/// A set of instructions that kernels are written for; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
}

impl Tier {
    /// All tiers, ascending.
    pub const ALL: [Self; 6] = [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// The tier's name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
        }
    }

    /// The tier of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
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
    /// The highest tier whose instructions may be executed; lower than `tier` only where tiles are emulated.
    executable: Tier,
}

impl Isa {
    /// The fastest tier of this machine: its highest, unless that is [`Tier::Avx512Bf16`] on a processor by Intel. There
    /// a bf16 dot product takes four times as long as an f32 multiplication, and multiplies twice as many numbers (measured on
    /// Emerald Rapids: 0.17 TFLOP/s beside 0.36), because tiles are meant for bf16; without them bf16 is widened.
    pub fn best() -> Self {
        let tier = match probe::best() {
            Tier::Avx512Bf16 if probe::is_intel() => Tier::Avx512,
            highest => highest,
        };
        Self { tier, executable: tier }
    }

    /// All tiers of this machine, ascending.
    pub fn available() -> Vec<Self> {
        there(probe::best()).map(|tier| Self { tier, executable: tier }).collect()
    }

    /// A chosen tier, or what the machine has instead.
    pub fn force(tier: Tier) -> Result<Self, IsaError> {
        let best = probe::best();
        let found = there(best).any(|there| there == tier);
        if found { Ok(Self { tier, executable: tier }) } else { Err(IsaError { wanted: tier, best }) }
    }

    /// The tier whose kernels are asked for.
    pub fn tier(self) -> Tier {
        self.tier
    }

    /// Reports whether instructions of `tier` may be executed. Code that is chosen by hand must ask this and not
    /// [`Isa::tier`], which an emulated tier overstates.
    pub fn has(self, tier: Tier) -> bool {
        tier <= self.executable && (tier != Tier::AvxVnni || probe::avx_vnni())
    }

    /// Reports whether dot products of bytes of 512-bit registers (AVX-512 VNNI) may be executed. No tier promises
    /// them, and most processors with AVX-512 have them.
    pub fn has_vnni(self) -> bool {
        self.has(Tier::Avx512) && probe::vnni()
    }

    /// Reports whether tile instructions are replaced by their software twin.
    pub fn is_emulated(self) -> bool {
        self.tier != self.executable
    }
}

/// The tier [`Tier::Amx`] with the tile instructions replaced by their software twin: the same packing, blocking and
/// padding on any machine, slowly. For tests.
pub fn emulated_amx() -> Isa {
    Isa { tier: Tier::Amx, executable: probe::best().min(Tier::Avx512Bf16) }
}

/// The tier [`Tier::AvxVnni`] with its dot products of bytes replaced by a software twin, for tests; nothing where there
/// is no AVX2.
fn emulated_dots() -> Option<Isa> {
    let isa = Isa { tier: Tier::AvxVnni, executable: Tier::Avx2 };
    (probe::best() >= Tier::Avx2).then_some(isa)
}

/// Instruction sets for tests of kernels: all tiers of this machine, [`Tier::AvxVnni`] emulated, then [`Tier::Amx`]
/// with tile instructions that are trapped, where the processor has all but those, then [`emulated_amx`].
///
/// Where tiles are trapped, a signal's handler stays behind in this process, so this is for tests alone: each instruction
/// takes as long as a signal.
#[doc(hidden)]
pub fn testable() -> Vec<Isa> {
    let trapped = probe::trap_tiles().then_some(Isa { tier: Tier::Amx, executable: Tier::Amx });
    Isa::available().into_iter().chain(emulated_dots()).chain(trapped).chain([emulated_amx()]).collect()
}

/// A tier that this machine lacks was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot run the tier {wanted}: it has {}", listed(*.best))]
pub struct IsaError {
    /// Tier that was requested.
    pub wanted: Tier,
    /// The highest tier that there is; all below it are there too, but for [`Tier::AvxVnni`] on some processors.
    pub best: Tier,
}

/// The names of all tiers up to `best`.
fn listed(best: Tier) -> String {
    let names: Vec<_> = there(best).map(Tier::name).collect();
    names.join(", ")
}

/// The tiers of this machine up to `best`.
fn there(best: Tier) -> impl Iterator<Item = Tier> {
    Tier::ALL.into_iter().filter(move |&tier| tier <= best && (tier != Tier::AvxVnni || probe::avx_vnni()))
}

#[cfg(not(target_arch = "x86_64"))]
mod probe {
    //! No tiers are known for this architecture.

    use super::Tier;

    pub(super) fn best() -> Tier {
        Tier::Portable
    }

    pub(super) fn is_intel() -> bool {
        false
    }

    pub(super) fn vnni() -> bool {
        false
    }

    pub(super) fn avx_vnni() -> bool {
        false
    }

    pub(super) fn trap_tiles() -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
mod probe {
    //! CPUID, the registers that the system saves, and its permission for tile registers.

    use std::sync::OnceLock;

    use super::Tier;

    /// The highest tier, probed once.
    pub(super) fn best() -> Tier {
        static BEST: OnceLock<Tier> = OnceLock::new();
        *BEST.get_or_init(|| {
            let steps = [
                (Tier::Avx2, avx2 as fn() -> bool),
                (Tier::Avx512, avx512),
                (Tier::Avx512Bf16, bf16),
                (Tier::Amx, amx),
            ];
            match steps.into_iter().take_while(|(_, has)| has()).last() {
                None => Tier::Portable,
                Some((Tier::Avx2, _)) if avx_vnni() => Tier::AvxVnni,
                Some((tier, _)) => tier,
            }
        })
    }

    /// Reports whether the processor is by Intel.
    pub(super) fn is_intel() -> bool {
        let leaf = std::arch::x86_64::__cpuid(0);
        [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }

    fn avx2() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    }

    pub(super) fn avx_vnni() -> bool {
        avx2() && is_x86_feature_detected!("avxvnni")
    }

    fn avx512() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
    }

    pub(super) fn vnni() -> bool {
        is_x86_feature_detected!("avx512vnni")
    }

    fn bf16() -> bool {
        is_x86_feature_detected!("avx512bf16")
    }

    /// Tiles need the processor (CPUID leaf 7: AMX-BF16, AMX-TILE, AMX-INT8), the system's context switch (XCR0: tile
    /// configuration and tile data) and, on Linux, its permission.
    fn amx() -> bool {
        const AMX_BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        const TILE_STATE: u64 = 1 << 17 | 1 << 18;
        is_x86_feature_detected!("xsave")
            && max_leaf() >= 7
            && leaf_7_edx() & AMX_BITS == AMX_BITS
            && saved_state() & TILE_STATE == TILE_STATE
            && tile_permission()
    }

    /// Makes tile instructions work on a processor that has none, if it has all else that the tier needs; whether they do
    /// now. What the processor has stays as probed.
    pub(super) fn trap_tiles() -> bool {
        #[cfg(target_os = "linux")]
        return best() == Tier::Avx512Bf16 && crate::tiles::trap::install();
        #[cfg(not(target_os = "linux"))]
        false
    }

    fn max_leaf() -> u32 {
        std::arch::x86_64::__cpuid(0).eax
    }

    fn leaf_7_edx() -> u32 {
        std::arch::x86_64::__cpuid_count(7, 0).edx
    }

    /// XCR0: the register state that the system saves at a context switch.
    fn saved_state() -> u64 {
        // SAFETY: the only caller has checked `xsave`, which detection reports only where the system has enabled it.
        unsafe { read_xcr0() }
    }

    /// # Safety
    /// XSAVE must be there and enabled.
    #[target_feature(enable = "xsave")]
    unsafe fn read_xcr0() -> u64 {
        // SAFETY: XCR0 exists wherever XSAVE is enabled, which the caller promises.
        unsafe { std::arch::x86_64::_xgetbv(0) }
    }

    /// Asks Linux for tile data; it is granted to the process, for all of its threads.
    #[cfg(target_os = "linux")]
    fn tile_permission() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: this call only changes what the process may use, and reads no memory of ours.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    /// Elsewhere tile data is enabled for everyone or not in XCR0 at all; untried, so not used.
    #[cfg(not(target_os = "linux"))]
    fn tile_permission() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_tiers() {
        for tier in Tier::ALL {
            assert_eq!(Tier::from_name(tier.name()), Some(tier));
        }
        assert_eq!(Tier::from_name("sse9"), None);
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
        let best = probe::best();
        for tier in Tier::ALL.into_iter().filter(|&tier| tier > best) {
            assert_eq!(Isa::force(tier), Err(IsaError { wanted: tier, best }));
        }
        let message = IsaError { wanted: Tier::Amx, best: Tier::Avx2 }.to_string();
        assert_eq!(message, "this machine cannot run the tier amx: it has portable, avx2");
    }

    #[test]
    fn emulated_dot_products_permit_no_instruction_of_theirs() {
        if let Some(isa) = emulated_dots() {
            assert!(isa.is_emulated() && isa.tier() == Tier::AvxVnni && isa.has(Tier::Avx2));
            assert!(isa.executable < Tier::AvxVnni && !isa.has(Tier::AvxVnni));
        }
    }

    #[test]
    fn emulated_tiles_permit_no_tile_instruction() {
        let isa = emulated_amx();
        assert_eq!(isa.tier(), Tier::Amx);
        assert!(isa.is_emulated() && !isa.has(Tier::Amx));
    }
}
