//! Kernels for quantised weights: blocks of a pair of panels are unpacked into panels of another kernel, which multiplies
//! them with all rows while they are in the first-level cache.
//!
//! The unpacked numbers are the same for every tier: the f32 product of scale and integer, rounded to bf16 where the
//! other kernel takes bf16.

use std::mem::MaybeUninit;

use super::{
    kernel::{Block, Kernel},
    packed::WeightFormat,
    quantised::{self, INPUTS, Quantisation},
};

/// Bytes of two unpacked panels: half of a 32 KiB first-level cache.
pub(super) const PANEL_BYTES: usize = 16 << 10;

/// Two unpacked panels, on the stack of their thread.
#[repr(align(64))]
pub(super) struct Panels(pub(super) MaybeUninit<[u8; PANEL_BYTES]>);

/// A kernel that multiplies unpacked panels, and how they are unpacked for it.
pub(super) trait Unpack {
    /// The kernel.
    const KERNEL: Kernel;

    /// Unpacks `count` blocks of integers of `BITS` bits to two panels, `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; `blocks` points to `count` blocks, `panels` to two panels
    /// of 32 inputs for each, on cache lines.
    unsafe fn unpack<const BITS: usize>(blocks: *const u8, count: usize, panels: *mut u8, stride: usize);
}

/// The kernel for quantised weights of another kernel.
pub(super) const fn quantised<U: Unpack, const BITS: usize>(name: &'static str) -> Kernel {
    Kernel { name, weight: WeightFormat::Quantised(format::<BITS>()), accumulate: accumulate::<U, BITS>, ..U::KERNEL }
}

pub(super) const fn format<const BITS: usize>() -> Quantisation {
    if BITS == 8 { Quantisation::Q8 } else { Quantisation::Q4 }
}

/// # Safety
/// As [`Kernel::accumulate`].
pub(super) unsafe fn accumulate<U: Unpack, const BITS: usize>(block: &Block) {
    let mut panels = Panels(MaybeUninit::uninit());
    let panels = panels.0.as_mut_ptr().cast::<u8>();
    let most = PANEL_BYTES / U::KERNEL.weight.group_bytes(INPUTS) * INPUTS;
    let stride = U::KERNEL.weight.offset(most);
    for group in 0..block.groups {
        for start in (0..block.depth).step_by(most) {
            let depth = most.min(block.depth - start);
            // SAFETY: the caller vouches for the processor and the block, whose depth is a multiple of 32. The panels
            // have room for `most` inputs, and hold `depth` when the kernel reads them.
            unsafe {
                let part = block.part(0, block.rows, group);
                let blocks = part.weight.add(start / INPUTS * format::<BITS>().block_bytes());
                U::unpack::<BITS>(blocks, depth / INPUTS, panels, stride);
                (U::KERNEL.accumulate)(&Block {
                    input: block.input.add(start * U::KERNEL.input.size()),
                    weight: panels,
                    panel_stride: stride,
                    depth,
                    ..part
                });
            }
        }
    }
}

/// Names a way to unpack, and what it is for.
macro_rules! unpack {
    ($name:ident: $kernel:path, $from:ident $(, #[$feature:meta])?) => {
        struct $name;

        impl Unpack for $name {
            const KERNEL: Kernel = $kernel;

            unsafe fn unpack<const BITS: usize>(blocks: *const u8, count: usize, panels: *mut u8, stride: usize) {
                /// # Safety
                /// As [`Unpack::unpack`].
                $(#[$feature])?
                unsafe fn unpack<const BITS: usize>(blocks: *const u8, count: usize, panels: *mut u8, stride: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { quantised::$from::<BITS>(blocks, count, panels, stride) }
                }
                // SAFETY: the caller vouches for processor and memory.
                unsafe { unpack::<BITS>(blocks, count, panels, stride) }
            }
        }
    };
}

unpack!(PortableF32: super::portable::F32, to_f32);
unpack!(PortableBf16: super::portable::BF16, to_bf16);
unpack!(EmulatedAmx: super::amx::EMULATED_BF16, to_bf16);
#[cfg(target_arch = "x86_64")]
unpack!(Avx2F32: super::avx2::F32, to_f32, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
unpack!(Avx2Bf16: super::avx2::BF16, to_bf16, #[target_feature(enable = "avx2,fma")]);
/// portable, f32 inputs, integers of 8 bits.
pub(super) const PORTABLE_F32_Q8: Kernel = quantised::<PortableF32, 8>("portable_f32xq8_f32");
/// portable, f32 inputs, integers of 4 bits.
pub(super) const PORTABLE_F32_Q4: Kernel = quantised::<PortableF32, 4>("portable_f32xq4_f32");
/// portable, bf16 inputs, integers of 8 bits.
pub(super) const PORTABLE_BF16_Q8: Kernel = quantised::<PortableBf16, 8>("portable_bf16xq8_f32");
/// portable, bf16 inputs, integers of 4 bits.
pub(super) const PORTABLE_BF16_Q4: Kernel = quantised::<PortableBf16, 4>("portable_bf16xq4_f32");
/// emulatedamx, bf16 inputs, integers of 8 bits.
pub(super) const EMULATED_AMX_Q8: Kernel = quantised::<EmulatedAmx, 8>("emulatedamx_bf16xq8_f32");
/// emulatedamx, bf16 inputs, integers of 4 bits.
pub(super) const EMULATED_AMX_Q4: Kernel = quantised::<EmulatedAmx, 4>("emulatedamx_bf16xq4_f32");
/// avx2, f32 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_F32_Q8: Kernel = quantised::<Avx2F32, 8>("avx2_f32xq8_f32");
/// avx2, f32 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_F32_Q4: Kernel = quantised::<Avx2F32, 4>("avx2_f32xq4_f32");
/// avx2, bf16 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_BF16_Q8: Kernel = quantised::<Avx2Bf16, 8>("avx2_bf16xq8_f32");
/// avx2, bf16 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_BF16_Q4: Kernel = quantised::<Avx2Bf16, 4>("avx2_bf16xq4_f32");
/// avx512, f32 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX512_F32_Q8: Kernel = quantised::<super::avx512_quantised::Wide, 8>("avx512_f32xq8_f32");
/// avx512, f32 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX512_F32_Q4: Kernel = quantised::<super::avx512_quantised::Wide, 4>("avx512_f32xq4_f32");
/// avx512, bf16 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX512_BF16_Q8: Kernel = quantised::<super::avx512_quantised::Rounded, 8>("avx512_bf16xq8_f32");
/// avx512, bf16 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX512_BF16_Q4: Kernel = quantised::<super::avx512_quantised::Rounded, 4>("avx512_bf16xq4_f32");
