//! Walk through a piece of memory in vectors of a tier, adding up its numbers.

use demask_cpu::isa::Isa;
#[cfg(target_arch = "x86_64")]
use demask_cpu::isa::Tier;

use super::Pattern;

/// Floats of a cache line.
const LINE: usize = 16;
/// Floats that are read of one stream before the next one's turn: four cache lines.
const STEP: usize = 4 * LINE;

/// The sum of a piece, read by a pattern with the widest vectors that may be used.
pub(super) fn sum(isa: Isa, piece: &[f32], pattern: Pattern) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if isa.has(Tier::Avx512) {
            // SAFETY: `Isa` is the proof that the tier's instructions may be executed.
            return unsafe { avx512(piece, pattern) };
        }
        if isa.has(Tier::Avx2) {
            // SAFETY: as above.
            return unsafe { avx2(piece, pattern) };
        }
    }
    // The vectors of every ARM processor are those that the compiler has anyway.
    let _ = isa;
    walk(piece, pattern)
}

/// # Safety
/// AVX-512 F must be there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(piece: &[f32], pattern: Pattern) -> f32 {
    walk(piece, pattern)
}

/// # Safety
/// AVX2 must be there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(piece: &[f32], pattern: Pattern) -> f32 {
    walk(piece, pattern)
}

/// Adds lane by lane, which the compiler makes additions of the caller's vectors.
#[inline(always)]
fn walk(piece: &[f32], Pattern { streams, ahead }: Pattern) -> f32 {
    let stream = piece.len() / streams;
    let mut sums = [0.0f32; STEP];
    for step in (0..stream).step_by(STEP) {
        for start in (0..streams).map(|index| index * stream + step) {
            let step = &piece[start..start + STEP];
            if ahead > 0 {
                let line = |first| step.as_ptr().wrapping_add(first).wrapping_byte_add(ahead).cast();
                (0..STEP).step_by(LINE).for_each(|first| fetch(line(first)));
            }
            sums.iter_mut().zip(step).for_each(|(sum, value)| *sum += value);
        }
    }
    sums.iter().sum()
}

/// Asks the second-level cache for a line, if the processor can be asked. The line may be anywhere: nothing is read.
#[inline(always)]
fn fetch(line: *const u8) {
    // SAFETY: a prefetch reads nothing, wherever it points.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.cast());
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{line}]", line = in(reg) line, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}
