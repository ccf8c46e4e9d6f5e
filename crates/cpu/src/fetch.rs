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
