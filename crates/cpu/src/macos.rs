//! Numbers that macOS reports of its machine: by name, and its pages of memory.

use std::ffi::CStr;

unsafe extern "C" {
    /// Returns the port of this machine.
    fn mach_host_self() -> libc::mach_port_t;
}

/// A number by its name in `sysctl`, if it is there.
pub(crate) fn number(name: &CStr) -> Option<u64> {
    // Numbers take four bytes or eight, the lowest first.
    let (mut value, mut length) = (0u64, size_of::<u64>());
    // SAFETY: the name ends with a zero; the system writes `length` bytes at most, and then how many these were.
    let failed =
        unsafe { libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &raw mut length, std::ptr::null_mut(), 0) };
    (failed == 0).then_some(value)
}

/// Bytes of memory that may be taken without swapping: free pages, and those that the system would let go of.
pub(crate) fn available() -> Option<u64> {
    let mut pages = std::mem::MaybeUninit::<libc::vm_statistics64>::zeroed();
    let mut count = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: there is room for as many words as `count` has, and every pattern of bits is a count of pages.
    let (failed, pages) = unsafe {
        let failed =
            libc::host_statistics64(mach_host_self(), libc::HOST_VM_INFO64, pages.as_mut_ptr().cast(), &raw mut count);
        (failed, pages.assume_init())
    };
    if failed != libc::KERN_SUCCESS {
        return None;
    }
    let pages = u64::from(pages.free_count) + u64::from(pages.inactive_count) + u64::from(pages.purgeable_count);
    Some(pages * number(c"hw.pagesize")?)
}
