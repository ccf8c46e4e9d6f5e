//! Features of x86 processors: CPUID, the registers that the system saves, and its permission for tile registers.

use super::Tier;

/// Tiers, ascending, each with its probe.
pub(super) const TIERS: [(Tier, fn() -> bool); 6] = [
    (Tier::Portable, || true),
    (Tier::Avx2, avx2),
    (Tier::AvxVnni, avx_vnni),
    (Tier::Avx512, avx512),
    (Tier::Avx512Bf16, bf16),
    (Tier::Amx, amx),
];

/// The fastest tier where `highest` is the highest: that one, unless it is [`Tier::Avx512Bf16`] on a processor by Intel.
/// There a bf16 dot product takes four times as long as an f32 multiplication, and multiplies twice as many numbers
/// (measured on Emerald Rapids: 0.17 TFLOP/s beside 0.36), because tiles are meant for bf16; without them bf16 is widened.
pub(super) fn fastest(highest: Tier) -> Tier {
    if highest == Tier::Avx512Bf16 && is_intel() { Tier::Avx512 } else { highest }
}

/// Reports whether the processor is by Intel.
fn is_intel() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
}

fn avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

fn avx_vnni() -> bool {
    avx2() && is_x86_feature_detected!("avxvnni")
}

fn avx512() -> bool {
    avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

pub(super) fn vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

fn bf16() -> bool {
    avx512() && is_x86_feature_detected!("avx512bf16")
}

/// Permutations of bytes, which unpack weights for tiles: every processor with tiles has them.
pub(super) fn vbmi() -> bool {
    is_x86_feature_detected!("avx512vbmi")
}

/// Reports whether tiles may be used. They need the processor (AMX-BF16, AMX-TILE and AMX-INT8 in CPUID leaf 7, which is there
/// wherever AVX-512 is), the system's context switch (XCR0: tile configuration and tile data) and, on Linux, its permission.
fn amx() -> bool {
    const AMX_BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    bf16()
        && vbmi()
        && is_x86_feature_detected!("xsave")
        && std::arch::x86_64::__cpuid_count(7, 0).edx & AMX_BITS == AMX_BITS
        // SAFETY: detection reports XSAVE only where the system has enabled it.
        && unsafe { saved_state() } & TILE_STATE == TILE_STATE
        && tile_permission()
}

/// XCR0: the register state that the system saves at a context switch.
#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: XCR0 exists wherever XSAVE is enabled.
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
