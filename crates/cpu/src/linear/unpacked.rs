//! Kernels that unpack weights: part of a pair of panels becomes panels of another kernel, which multiplies them with all
//! rows while they are in the first-level cache.
//!
//! The unpacked numbers are the same for every tier: `scale * (integer - middle) - minimum` in f32, rounded after each
//! operation, then rounded to bf16 where the other kernel takes bf16.

use std::{mem::MaybeUninit, ops::Range};

use super::{
    activation::round_bf16,
    int8::{QUAD, QUADS},
    integers::{Code, INPUTS, numbers::Numbers},
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, WeightFormat},
    portable,
};
#[cfg(target_arch = "x86_64")]
use crate::tiles::ROWS_AHEAD;

/// Bytes of two unpacked panels: three quarters of a 32 KiB first-level cache, so that blocks of the depth that are half
/// as deep again as usual are unpacked at once.
pub(super) const PANEL_BYTES: usize = 24 << 10;
/// The same where the first-level cache has 48 KiB.
pub(super) const MOST_BYTES: usize = 32 << 10;

/// Two unpacked panels, on the stack of their thread.
#[repr(align(64))]
struct Panels(MaybeUninit<[u8; MOST_BYTES]>);

/// Two panels.
#[derive(Clone, Copy)]
pub(super) struct Pair<P> {
    /// Start of the first, or of both where they share blocks.
    pub(super) start: P,
    /// Bytes from the one to the other.
    pub(super) stride: usize,
}

impl Pair<*const u8> {
    /// Places of part `part`'s block and of the part, and of the integers of panel `panel` in it.
    ///
    /// # Safety
    /// The pair has the part, in blocks of the coding.
    #[inline(always)]
    pub(super) unsafe fn places<C: Code>(self, part: usize, panel: usize) -> [*const u8; 3] {
        let coding = C::CODING;
        // SAFETY: the caller vouches for the part.
        unsafe {
            let head = self.start.add(coding.block_offset(part));
            let part = self.start.add(coding.part_offset(part));
            [head, part, part.add(coding.scale_bytes() + panel * coding.panel_bytes())]
        }
    }
}

/// One panel's weights of a part of [`INPUTS`] inputs, on their way to products: vectors `V` of sixteen outputs.
pub(super) trait Dequant<V> {
    /// Bytes from the start of a pair of panels to a part.
    fn offset(part: usize) -> usize;

    /// Begins with part `part` of panel `panel` of a pair.
    ///
    /// # Safety
    /// The processor has the instructions; the pair has the part.
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self;

    /// Weights of the four inputs of quad `quad`; called for all eight in ascending order.
    ///
    /// # Safety
    /// The processor has the instructions; the pair is still there.
    unsafe fn next(&mut self, quad: usize) -> [V; QUAD];
}

/// A kernel that multiplies unpacked panels, and how they are unpacked for it.
pub(super) trait Unpack {
    /// The kernel.
    const KERNEL: Kernel;
    /// Sixteen weights.
    type Vector: Copy;
    /// Weights that are integers.
    type Integers<C: Code>: Dequant<Self::Vector>;

    /// Stores the weights of two inputs as they stand in a panel of the kernel.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; there is room at `out`.
    unsafe fn store(weights: [Self::Vector; 2], out: *mut u8);

    /// Unpacks parts to two panels: [`unpack`], with the tier's instructions.
    ///
    /// # Safety
    /// The processor has the tier that the kernel executes; the pair has these parts, and `to` room for them, on cache
    /// lines.
    unsafe fn unpack<D: Dequant<Self::Vector>>(pair: Pair<*const u8>, parts: Range<usize>, to: Pair<*mut u8>);
}

/// The kernel for weights of a coding, with the panels of another.
pub(super) const fn kernel<U: Unpack, C: Code>(name: &'static str) -> Kernel {
    // A block of the depth holds whole blocks of the coding.
    let whole = C::CODING.inputs();
    Kernel {
        name,
        weight: WeightFormat::Integers(C::CODING),
        depth_block: U::KERNEL.depth_block.next_multiple_of(whole),
        deep_block: U::KERNEL.deep_block.next_multiple_of(whole),
        accumulate: accumulate::<U, U::Integers<C>>,
        ..U::KERNEL
    }
}

/// Unpacks parts of each pair of a block's panels, and multiplies them by the kernel for unpacked ones.
///
/// # Safety
/// As [`Kernel::accumulate`].
pub(super) unsafe fn accumulate<U: Unpack, D: Dequant<U::Vector>>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { accumulate_parts::<U, D>(block, PANEL_BYTES / U::KERNEL.weight.group_bytes(INPUTS)) }
}

/// Unpacks at most `most` parts at a time of each pair of a block's panels, and multiplies them as [`accumulate`] does.
///
/// # Safety
/// As [`Kernel::accumulate`]. `most` parts fit into [`MOST_BYTES`].
pub(super) unsafe fn accumulate_parts<U: Unpack, D: Dequant<U::Vector>>(block: &Block, most: usize) {
    let mut panels = Panels(MaybeUninit::uninit());
    debug_assert!(most * U::KERNEL.weight.group_bytes(INPUTS) <= MOST_BYTES);
    let panels = Pair { start: panels.0.as_mut_ptr().cast::<u8>(), stride: U::KERNEL.weight.offset(most * INPUTS) };
    let parts = block.depth / INPUTS;
    for group in 0..block.groups {
        for start in (0..parts).step_by(most) {
            let end = parts.min(start + most);
            // SAFETY: the caller vouches for the processor and the block, whose depth is a multiple of 32. The panels
            // have room for `most` parts, and hold those from `start` to `end` when the kernel reads them.
            unsafe {
                let part = block.part(0, block.rows, group);
                let pair = Pair { start: part.weight, stride: block.panel_stride };
                U::unpack::<D>(pair, start..end, panels);
                (U::KERNEL.accumulate)(&Block {
                    input: block.input.add(U::KERNEL.input.offset(start * INPUTS)),
                    weight: panels.start,
                    panel_stride: panels.stride,
                    depth: (end - start) * INPUTS,
                    ahead: ahead(block, group, (end < parts).then(|| D::offset(end))),
                    #[cfg(target_arch = "x86_64")]
                    input_ahead: block.input_ahead.wrapping_add(group * ROWS_AHEAD * block.input_stride),
                    #[cfg(target_arch = "x86_64")]
                    fresh: block.fresh && start == 0,
                    ..part
                });
            }
        }
    }
}

/// Address that is unpacked next: more of a pair of panels, from an offset on, or the data after it.
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

/// Unpacks parts to two panels.
///
/// # Safety
/// As [`Unpack::unpack`], in code that is compiled with the tier's instructions.
#[inline(always)]
pub(super) unsafe fn unpack<U: Unpack, D: Dequant<U::Vector>>(
    pair: Pair<*const u8>,
    parts: Range<usize>,
    to: Pair<*mut u8>,
) {
    let two = U::KERNEL.weight.offset(2);
    for (index, part) in parts.enumerate() {
        for panel in 0..GROUP {
            // SAFETY: the caller vouches for weights and panels.
            unsafe {
                let out = to.start.add(panel * to.stride + U::KERNEL.weight.offset(index * INPUTS));
                let mut weights = D::new(pair, part, panel);
                for quad in 0..QUADS {
                    let [first, second, third, fourth] = weights.next(quad);
                    U::store([first, second], out.add(2 * quad * two));
                    U::store([third, fourth], out.add((2 * quad + 1) * two));
                }
            }
        }
    }
}

/// Names a way to unpack: its kernel, its vectors and weights, how two inputs' weights are stored, and the instructions.
macro_rules! unpacks {
    ($name:ident: $kernel:expr, $vector:ty, $integers:ty, $store:expr $(, $features:literal)?) => {
        pub(in crate::linear) struct $name;

        impl $crate::linear::unpacked::Unpack for $name {
            const KERNEL: $crate::linear::kernel::Kernel = $kernel;
            type Vector = $vector;
            type Integers<C: $crate::linear::integers::Code> = $integers;

            #[inline(always)]
            unsafe fn store(weights: [$vector; 2], out: *mut u8) {
                // SAFETY: the caller's promise.
                unsafe { $store(weights, out) }
            }

            unsafe fn unpack<D: $crate::linear::unpacked::Dequant<$vector>>(
                pair: $crate::linear::unpacked::Pair<*const u8>,
                parts: std::ops::Range<usize>,
                to: $crate::linear::unpacked::Pair<*mut u8>,
            ) {
                /// # Safety
                /// As [`Unpack::unpack`](crate::linear::unpacked::Unpack::unpack).
                $(#[target_feature(enable = $features)])?
                unsafe fn unpack<D: $crate::linear::unpacked::Dequant<$vector>>(
                    pair: $crate::linear::unpacked::Pair<*const u8>,
                    parts: std::ops::Range<usize>,
                    to: $crate::linear::unpacked::Pair<*mut u8>,
                ) {
                    // SAFETY: the caller's promise.
                    unsafe { $crate::linear::unpacked::unpack::<$name, D>(pair, parts, to) }
                }
                // SAFETY: the caller vouches for processor and memory.
                unsafe { unpack::<D>(pair, parts, to) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use unpacks;

/// Stores weights as f32.
///
/// # Safety
/// There is room at `out`, on a cache line.
#[inline(always)]
#[expect(clippy::cast_ptr_alignment, reason = "panels begin on cache lines; elements follow each other")]
unsafe fn store_f32(weights: [[f32; PANEL]; 2], out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { out.cast::<[[f32; PANEL]; 2]>().write(weights) }
}

/// Stores weights as bf16 pairs.
///
/// # Safety
/// As [`store_f32`].
#[inline(always)]
#[expect(clippy::cast_ptr_alignment, reason = "panels begin on cache lines; elements follow each other")]
unsafe fn store_bf16(weights: [[f32; PANEL]; 2], out: *mut u8) {
    let mut pairs = [0; PANEL];
    for lane in 0..PANEL {
        let [first, second] = [weights[0][lane], weights[1][lane]];
        pairs[lane] = u32::from(round_bf16(first)) | u32::from(round_bf16(second)) << 16;
    }
    // SAFETY: the caller's promise.
    unsafe { out.cast::<[u32; PANEL]>().write(pairs) }
}

unpacks!(PortableF32: portable::F32, [f32; PANEL], Numbers<C>, store_f32);
unpacks!(PortableBf16: portable::BF16, [f32; PANEL], Numbers<C>, store_bf16);

#[cfg(target_arch = "aarch64")]
pub(super) use arm::{Bf16I8mm, NeonBf16, NeonF32};
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2Bf16, Avx2F32};

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Ways to unpack in wider vectors, of the same code.

    use super::{PANEL, store_bf16, store_f32};
    use crate::linear::{
        avx2,
        integers::{avx2::Vectors, numbers::Numbers},
    };

    unpacks!(Avx2F32: avx2::F32, [f32; PANEL], Numbers<C, Vectors>, store_f32, "avx2,fma,f16c");
    unpacks!(Avx2Bf16: avx2::BF16, [f32; PANEL], Numbers<C, Vectors>, store_bf16, "avx2,fma,f16c");
}

#[cfg(target_arch = "aarch64")]
mod arm {
    //! Ways to unpack for NEON: the compiler's vectors are already those of the tier.

    use super::{Numbers, PANEL, store_bf16, store_f32};
    use crate::linear::{bf16i8mm, neon};

    unpacks!(NeonF32: neon::F32, [f32; PANEL], Numbers<C>, store_f32);
    unpacks!(NeonBf16: neon::BF16, [f32; PANEL], Numbers<C>, store_bf16);
    unpacks!(Bf16I8mm: bf16i8mm::BF16, [f32; PANEL], Numbers<C>, store_bf16);
}
