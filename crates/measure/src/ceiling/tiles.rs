//! Loops around the tile instructions of x86 (AMX), on registers alone.

use std::arch::asm;

/// Rows of a tile, and words in a row.
const SIDE: u64 = 16;
/// Operations of a round of [`rounds`]: 4 products over 32 numbers of bf16.
pub(super) const ROUND: u64 = 4 * 2 * SIDE * SIDE * 32;
/// Operations of a round of [`byte_rounds`]: 4 products over 64 bytes.
pub(super) const BYTE_ROUND: u64 = 4 * 2 * SIDE * SIDE * 64;

/// Operand of `ldtilecfg`: the palette's number, from byte 16 on the bytes of a row of each tile, two bytes each, and from
/// byte 48 on its rows.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

/// Eight tiles of full size.
static FULL: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 4 * SIDE as u8;
        bytes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    Configuration(bytes)
};

/// Configures the thread's tiles, runs rounds of four products of zeros, and releases the tiles.
macro_rules! rounds {
    ($rounds:expr, $dot:literal) => {
        asm!(
            "ldtilecfg [{full}]",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
            "2:",
            concat!($dot, " tmm0, tmm4, tmm6"),
            concat!($dot, " tmm1, tmm4, tmm7"),
            concat!($dot, " tmm2, tmm5, tmm6"),
            concat!($dot, " tmm3, tmm5, tmm7"),
            "dec {rounds}",
            "jnz 2b",
            "tilerelease",
            full = in(reg) &raw const FULL,
            rounds = inout(reg) $rounds.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly),
        )
    };
}

/// Multiplies bf16.
///
/// # Safety
/// The processor has the tier AMX, and this thread uses no tiles.
pub(super) unsafe fn rounds(rounds: u64) {
    // SAFETY: the caller vouches for the instructions; the operand is a valid configuration of 64 bytes.
    unsafe { rounds!(rounds, "tdpbf16ps") }
}

/// Multiplies bytes.
///
/// # Safety
/// As [`rounds`].
pub(super) unsafe fn byte_rounds(rounds: u64) {
    // SAFETY: as above.
    unsafe { rounds!(rounds, "tdpbsud") }
}

#[cfg(test)]
mod tests {
    use demask_cpu::isa::{Tier, testable};

    use super::*;

    /// Where tiles are trapped, the trap holds configuration and instructions to the processor's rules.
    #[test]
    fn tiles_of_either_kind_run_wherever_there_are_some() {
        // SAFETY: the trap executes tile instructions where it says so.
        let isas = unsafe { testable(demask_testkit::tiles::trap) };
        if isas.iter().any(|isa| isa.has(Tier::Amx)) {
            // SAFETY: the tier was just found.
            unsafe {
                rounds(2);
                byte_rounds(0);
            }
        }
    }
}
