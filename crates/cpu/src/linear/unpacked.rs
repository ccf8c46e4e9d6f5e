//! Kernels that unpack weights: part of a pair of panels becomes panels of another kernel, which multiplies them with all
//! rows while they are in the first-level cache.
//!
//! The unpacked numbers are the same for every tier: the f32 product of scale and integer, rounded to bf16 where the
//! other kernel takes bf16.

use std::{mem::MaybeUninit, ops::Range};

use super::{
    kernel::{Block, Kernel},
    packed::{GROUP, WeightFormat},
    quantised::{self, INPUTS, Quantisation},
};

/// Bytes of two unpacked panels: three quarters of a 32 KiB first-level cache, so that blocks of the depth that are half
/// as deep again as usual are unpacked at once.
pub(super) const PANEL_BYTES: usize = 24 << 10;

/// Two unpacked panels, on the stack of their thread.
#[repr(align(64))]
pub(super) struct Panels(pub(super) MaybeUninit<[u8; PANEL_BYTES]>);

/// A kernel that multiplies unpacked panels, and how they are unpacked for it.
pub(super) trait Unpack {
    /// The kernel.
    const KERNEL: Kernel;

    /// Unpacks `count` times 32 inputs of weights of `BITS` bits to two panels.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; `from` points to as many inputs of a pair of panels, `to` to
    /// room for them, on cache lines.
    unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>);
}

/// Two panels.
#[derive(Clone, Copy)]
pub(super) struct Pair<P> {
    /// Start of the first, or of both where they share blocks.
    pub(super) start: P,
    /// Bytes from the one to the other.
    pub(super) stride: usize,
}

/// The kernel for packed weights that another kernel multiplies unpacked.
pub(super) const fn kernel<U: Unpack, const BITS: usize>(name: &'static str) -> Kernel {
    Kernel { name, weight: weight_format(BITS), accumulate: accumulate::<U, BITS>, ..U::KERNEL }
}

/// The format of weights of so many bits.
pub(super) const fn weight_format(bits: usize) -> WeightFormat {
    match bits {
        4 => WeightFormat::Quantised(Quantisation::Q4),
        8 => WeightFormat::Quantised(Quantisation::Q8),
        _ => WeightFormat::Bf16Pairs,
    }
}

pub(super) const fn format<const BITS: usize>() -> Quantisation {
    if BITS == 8 { Quantisation::Q8 } else { Quantisation::Q4 }
}

/// # Safety
/// As [`Kernel::accumulate`].
pub(super) unsafe fn accumulate<U: Unpack, const BITS: usize>(block: &Block) {
    let offset = |part: usize| weight_format(BITS).offset(part * INPUTS);
    // SAFETY: the caller vouches for the processor and the block, whose depth is a multiple of 32; parts are of the pair
    // of panels.
    unsafe {
        multiply_unpacked(
            &U::KERNEL,
            block,
            |group, next| ahead(block, group, next.map(offset)),
            |pair, parts, to| {
                let from = Pair { start: pair.wrapping_add(offset(parts.start)), stride: block.panel_stride };
                U::unpack::<BITS>(from, parts.len(), to);
            },
        );
    }
}

/// Unpacks parts of 32 inputs of each pair of a block's panels, and multiplies them by a kernel for unpacked ones.
/// `unpack(pair, parts, to)` does the first for the pair of panels that begins at `pair`; `ahead(group, next)` says what
/// is read next, from the part `next` of the pair `group` on, or behind this pair.
///
/// # Safety
/// The processor has the tier that the kernel executes, and the block keeps its promises; `unpack` fills the panels that
/// it is given with all parts.
#[inline(always)]
pub(super) unsafe fn multiply_unpacked(
    kernel: &Kernel,
    block: &Block,
    ahead: impl Fn(usize, Option<usize>) -> [*const u8; GROUP],
    unpack: impl Fn(*const u8, Range<usize>, Pair<*mut u8>),
) {
    let mut panels = Panels(MaybeUninit::uninit());
    let most = PANEL_BYTES / kernel.weight.group_bytes(INPUTS);
    let panels = Pair { start: panels.0.as_mut_ptr().cast::<u8>(), stride: kernel.weight.offset(most * INPUTS) };
    let parts = block.depth / INPUTS;
    for group in 0..block.groups {
        for start in (0..parts).step_by(most) {
            let end = parts.min(start + most);
            // SAFETY: as our caller promises. The panels have room for `most` parts, and hold those from `start` to `end`
            // when the kernel reads them.
            unsafe {
                let part = block.part(0, block.rows, group);
                unpack(part.weight, start..end, panels);
                (kernel.accumulate)(&Block {
                    input: block.input.add(kernel.input.offset(start * INPUTS)),
                    weight: panels.start,
                    panel_stride: panels.stride,
                    depth: (end - start) * INPUTS,
                    ahead: ahead(group, (end < parts).then_some(end)),
                    ..part
                });
            }
        }
    }
}

/// Address that is unpacked next: more of a pair of panels, from an offset on, or the data behind it.
fn ahead(block: &Block, group: usize, offset: Option<usize>) -> [*const u8; GROUP] {
    let from = |group: usize, offset| {
        let start = block.weight.wrapping_add(group * GROUP * block.panel_stride + offset);
        [start, start.wrapping_add(block.panel_stride)]
    };
    match offset {
        Some(offset) => from(group, offset),
        None if group + 1 < block.groups => from(group + 1, 0),
        None => block.ahead,
    }
}

/// Names a way to unpack, and what it is for.
macro_rules! unpack {
    ($name:ident: $kernel:path, $from:ident $(, #[$feature:meta])?) => {
        struct $name;

        impl Unpack for $name {
            const KERNEL: Kernel = $kernel;

            unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
                /// # Safety
                /// As [`Unpack::unpack`].
                $(#[$feature])?
                unsafe fn unpack<const BITS: usize>(from: Pair<*const u8>, count: usize, to: Pair<*mut u8>) {
                    // SAFETY: the caller's promise.
                    unsafe { quantised::$from::<BITS>(from.start, count, to.start, to.stride) }
                }
                // SAFETY: the caller vouches for processor and memory.
                unsafe { unpack::<BITS>(from, count, to) }
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
pub(super) const PORTABLE_F32_Q8: Kernel = kernel::<PortableF32, 8>("portable_f32xq8_f32");
/// portable, f32 inputs, integers of 4 bits.
pub(super) const PORTABLE_F32_Q4: Kernel = kernel::<PortableF32, 4>("portable_f32xq4_f32");
/// portable, bf16 inputs, integers of 8 bits.
pub(super) const PORTABLE_BF16_Q8: Kernel = kernel::<PortableBf16, 8>("portable_bf16xq8_f32");
/// portable, bf16 inputs, integers of 4 bits.
pub(super) const PORTABLE_BF16_Q4: Kernel = kernel::<PortableBf16, 4>("portable_bf16xq4_f32");
/// emulatedamx, bf16 inputs, integers of 8 bits.
pub(super) const EMULATED_AMX_Q8: Kernel = kernel::<EmulatedAmx, 8>("emulatedamx_bf16xq8_f32");
/// emulatedamx, bf16 inputs, integers of 4 bits.
pub(super) const EMULATED_AMX_Q4: Kernel = kernel::<EmulatedAmx, 4>("emulatedamx_bf16xq4_f32");
/// avx2, f32 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_F32_Q8: Kernel = kernel::<Avx2F32, 8>("avx2_f32xq8_f32");
/// avx2, f32 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_F32_Q4: Kernel = kernel::<Avx2F32, 4>("avx2_f32xq4_f32");
/// avx2, bf16 inputs, integers of 8 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_BF16_Q8: Kernel = kernel::<Avx2Bf16, 8>("avx2_bf16xq8_f32");
/// avx2, bf16 inputs, integers of 4 bits.
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2_BF16_Q4: Kernel = kernel::<Avx2Bf16, 4>("avx2_bf16xq4_f32");
