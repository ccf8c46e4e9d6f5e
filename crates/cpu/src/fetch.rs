//! Requests to the caches for lines that will be read soon. An address may be anywhere: nothing is read.

/// Asks the first-level cache for a line.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) fn near(line: *const u8) {
    // SAFETY: a prefetch reads nothing, wherever it points.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(readonly, nostack, preserves_flags));
    }
}

/// Bytes ahead of its use that [`stream`] asks the first-level cache for a line.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) const NEAR: usize = 1 << 10;
/// Bytes ahead of its use that it asks the second-level cache.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) const FAR: usize = 6 << 10;

/// Asks for the lines that a stream from memory reads after `line`, at this very place: the compiler gathers other prefetches
/// at the end of a loop, where they wait for each other. A core keeps track of few lines on their way to its first-level
/// cache, so that those come from the second, which keeps track of more.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) fn stream(line: *const u8) {
    // SAFETY: a prefetch reads nothing, wherever it points.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "prefetcht0 byte ptr [{line} + {near}]",
            "prefetcht1 byte ptr [{line} + {far}]",
            line = in(reg) line,
            near = const NEAR,
            far = const FAR,
            options(readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "prfm pldl1keep, [{line}, #{near}]",
            "prfm pldl2keep, [{line}, #{far}]",
            line = in(reg) line,
            near = const NEAR,
            far = const FAR,
            options(readonly, nostack, preserves_flags),
        );
    }
}
