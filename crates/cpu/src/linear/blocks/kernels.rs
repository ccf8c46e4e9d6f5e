//! The kernels: as in [`unpacked`](crate::linear::unpacked), parts of a pair of panels are unpacked into panels of
//! another kernel, which multiplies them with all rows while they are in the first-level cache.

use std::ops::Range;

use super::{Code, Coding, Q4K, Q5_0, Q5K, Q6K, unpack};
use crate::linear::{
    amx,
    kernel::{Block, Kernel},
    packed::WeightFormat,
    portable,
    unpacked::multiply_unpacked,
};

/// A kernel that multiplies unpacked panels, and how they are unpacked for it.
pub(super) trait Unpack {
    /// The kernel.
    const KERNEL: Kernel;

    /// Unpacks parts to two panels, `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; `start` points to blocks of a pair of panels that have
    /// these parts, `panels` to two panels of 32 inputs for each, on cache lines.
    unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize);
}

/// Inputs of the largest block of a coding.
const DEPTH: usize = 256;

/// The kernel for a coding, with the panels of another.
pub(super) const fn of<U: Unpack, C: Code>(name: &'static str) -> Kernel {
    let weight = WeightFormat::Blocks(C::CODING);
    // A block of the depth holds whole blocks of the coding.
    let depth_block = if U::KERNEL.depth_block < DEPTH { DEPTH } else { U::KERNEL.depth_block };
    Kernel { name, weight, depth_block, deep_block: depth_block, accumulate: accumulate::<U, C>, ..U::KERNEL }
}

/// # Safety
/// As [`Kernel::accumulate`].
pub(super) unsafe fn accumulate<U: Unpack, C: Code>(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block, which begins with a whole block of the coding and whose
    // depth is a multiple of its inputs.
    unsafe {
        multiply_unpacked(
            &U::KERNEL,
            block,
            |_, _| block.ahead,
            |pair, parts, to| U::unpack::<C>(pair, parts, to.start, to.stride),
        );
    }
}

/// Names a way to unpack, and what it is for.
macro_rules! unpack {
    ($name:ident: $kernel:path, $from:ident $(, #[$feature:meta])?) => {
        pub(super) struct $name;

        impl Unpack for $name {
            const KERNEL: Kernel = $kernel;

            unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
                /// # Safety
                /// As [`Unpack::unpack`].
                $(#[$feature])?
                unsafe fn unpack<C: Code>(start: *const u8, parts: Range<usize>, panels: *mut u8, stride: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { unpack::$from::<C>(start, parts, panels, stride) }
                }
                // SAFETY: the caller vouches for processor and memory.
                unsafe { unpack::<C>(start, parts, panels, stride) }
            }
        }
    };
}

unpack!(PortableF32: portable::F32, to_f32);
unpack!(PortableBf16: portable::BF16, to_bf16);
unpack!(EmulatedAmx: amx::EMULATED_BF16, to_bf16);

/// The kernels of a way to unpack, one for each coding.
macro_rules! codings {
    ($unpack:ty, $prefix:literal) => {
        [
            of::<$unpack, Q5_0>(concat!($prefix, "xq5_0_f32")),
            of::<$unpack, Q4K>(concat!($prefix, "xq4_k_f32")),
            of::<$unpack, Q5K>(concat!($prefix, "xq5_k_f32")),
            of::<$unpack, Q6K>(concat!($prefix, "xq6_k_f32")),
        ]
    };
}

/// Kernels of all codings; the last one that an instruction set can run is the best.
pub(in crate::linear) static KERNELS: &[[Kernel; Coding::ALL.len()]] = &[
    codings!(PortableF32, "portable_f32"),
    codings!(PortableBf16, "portable_bf16"),
    #[cfg(target_arch = "x86_64")]
    codings!(x86::Avx2F32, "avx2_f32"),
    #[cfg(target_arch = "x86_64")]
    codings!(x86::Avx2Bf16, "avx2_bf16"),
    #[cfg(target_arch = "x86_64")]
    codings!(super::avx512::Wide, "avx512_f32"),
    #[cfg(target_arch = "x86_64")]
    codings!(super::avx512::Rounded, "avx512_bf16"),
    #[cfg(target_arch = "x86_64")]
    super::avx512::DIRECT,
    codings!(EmulatedAmx, "emulatedamx_bf16"),
    #[cfg(target_arch = "x86_64")]
    codings!(super::avx512::Amx, "amx_bf16"),
];

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Kernels in wider vectors, of the same code.

    use super::{Code, Kernel, Range, Unpack, unpack};
    use crate::linear::avx2;

    unpack!(Avx2F32: avx2::F32, to_f32, #[target_feature(enable = "avx2,fma")]);
    unpack!(Avx2Bf16: avx2::BF16, to_bf16, #[target_feature(enable = "avx2,fma")]);
}
