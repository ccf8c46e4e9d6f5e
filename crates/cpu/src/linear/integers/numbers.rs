//! Integers on their way to numbers: bytes without a sign and factors, in code that the compiler turns into vectors of
//! each tier's width.

use std::marker::PhantomData;

use super::{Code, INPUTS};
use crate::linear::{
    int8::{QUAD, QUAD_BYTES, QUADS},
    packed::{GROUP, PANEL},
    unpacked::{Dequant, Pair},
};

/// Four bytes of each output of a panel, the first input's the lowest.
pub(in crate::linear) type Quad = [u32; PANEL];

/// Instructions that read one panel's part of a block.
pub(in crate::linear) trait Read {
    /// The factors of a panel in a part that begins at `part`, of the block that begins at `head`: scales, then the minima if
    /// there are any.
    ///
    /// # Safety
    /// The processor has the instructions; both are a pair's.
    unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [[f32; PANEL]; 2];

    /// A quad of a panel's integers, without a sign.
    ///
    /// # Safety
    /// The processor has the instructions; `integers` points to those of a panel in a part; `quad` is less than 8.
    unsafe fn quad<C: Code>(integers: *const u8, quad: usize) -> Quad;

    /// Numbers of a quad's integers; minima are looked at where there are any.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn numbers<C: Code>(quad: Quad, scales: &[f32; PANEL], minima: &[f32; PANEL]) -> [[f32; PANEL]; QUAD];
}

/// One panel's part of a block: two factors of each output, and where its integers begin.
pub(in crate::linear) struct Numbers<C, R = Arrays> {
    factors: [[f32; PANEL]; 2],
    integers: *const u8,
    code: PhantomData<(C, R)>,
}

impl<C: Code, R: Read> Dequant<[f32; PANEL]> for Numbers<C, R> {
    fn offset(part: usize) -> usize {
        C::CODING.part_offset(part)
    }

    #[inline(always)]
    unsafe fn new(pair: Pair<*const u8>, part: usize, panel: usize) -> Self {
        // SAFETY: the caller vouches for the part.
        unsafe {
            let [head, part, integers] = pair.places::<C>(part, panel);
            Self { factors: R::factors::<C>(head, part, panel), integers, code: PhantomData }
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, quad: usize) -> [[f32; PANEL]; QUAD] {
        let scales = &self.factors[quad * C::CODING.halves() / QUADS];
        // SAFETY: the caller vouches for processor and integers.
        unsafe { R::numbers::<C>(R::quad::<C>(self.integers, quad), scales, &self.factors[1]) }
    }
}

/// Arrays, which the compiler turns into vectors.
pub(in crate::linear) struct Arrays;

impl Read for Arrays {
    #[inline(always)]
    unsafe fn numbers<C: Code>(quad: Quad, scales: &[f32; PANEL], minima: &[f32; PANEL]) -> [[f32; PANEL]; QUAD] {
        let coding = C::CODING;
        let mut weights = [[0.0; PANEL]; QUAD];
        for (input, weights) in weights.iter_mut().enumerate() {
            for lane in 0..PANEL {
                let integer = (quad[lane] >> (8 * input) & 255) as i32 - coding.middle();
                let product = scales[lane] * integer as f32;
                weights[lane] = if coding.minima() { product - minima[lane] } else { product };
            }
        }
        weights
    }

    #[inline(always)]
    unsafe fn factors<C: Code>(head: *const u8, part: *const u8, panel: usize) -> [[f32; PANEL]; 2] {
        let coding = C::CODING;
        // SAFETY: the caller vouches for the block, which begins with its halves, and for the part, which begins with its
        // scales.
        unsafe {
            let of_scales = halves(head, panel);
            if !coding.part_scales() {
                return [of_scales, if coding.minima() { halves(head, GROUP + panel) } else { [0.0; PANEL] }];
            }
            let [first, second] = part.add(panel * 2 * PANEL).cast::<[[u8; PANEL]; 2]>().read();
            if coding.minima() {
                let of_minima = halves(head, GROUP + panel);
                return [times(&of_scales, &each(first, f32::from)), times(&of_minima, &each(second, f32::from))];
            }
            let signed = |byte: u8| f32::from(byte as i8);
            [times(&of_scales, &each(first, signed)), times(&of_scales, &each(second, signed))]
        }
    }

    #[inline(always)]
    unsafe fn quad<C: Code>(integers: *const u8, quad: usize) -> Quad {
        let (coding, bits) = (C::CODING, C::CODING.upper_bits());
        // SAFETY: the caller vouches for the lines.
        unsafe {
            if coding.bytes() {
                return line(integers, quad);
            }
            let lines = coding.upper_bytes() / QUAD_BYTES;
            let lower = each(line(integers, lines + quad / 2), |word| word >> (quad % 2 * 4) & 0x0f0f_0f0f);
            if bits == 0 {
                return lower;
            }
            let together = QUADS / lines;
            let (upper, shift) = (line(integers, quad / together), quad % together * bits);
            let upper = each(upper, |word| (word >> shift & (0x0101_0101 * ((1 << bits) - 1))) << 4);
            let mut words = [0; PANEL];
            for lane in 0..PANEL {
                words[lane] = lower[lane] | upper[lane];
            }
            words
        }
    }
}

/// Sixteen halves of a block's head, number `which` of its sixteens.
///
/// # Safety
/// The head has these halves.
#[inline(always)]
unsafe fn halves(head: *const u8, which: usize) -> [f32; PANEL] {
    // SAFETY: the caller's promise.
    let halves = unsafe { head.add(which * PANEL * 2).cast::<[[u8; 2]; PANEL]>().read() };
    #[cfg(target_arch = "aarch64")]
    return widened(halves);
    #[cfg(not(target_arch = "aarch64"))]
    each(halves, |half| demask_tensor::widen_f16(u16::from_le_bytes(half)))
}

/// Halves widened by the instruction that every 64-bit ARM processor has.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn widened(halves: [[u8; 2]; PANEL]) -> [f32; PANEL] {
    use std::arch::aarch64::{vcvt_f32_f16, vld1_u16, vreinterpret_f16_u16, vst1q_f32};
    let halves = each(halves, u16::from_le_bytes);
    let mut wide = [0.0; PANEL];
    for first in (0..PANEL).step_by(4) {
        // SAFETY: four halves and four numbers are inside the arrays.
        unsafe {
            let four = vreinterpret_f16_u16(vld1_u16(halves.as_ptr().add(first)));
            vst1q_f32(wide.as_mut_ptr().add(first), vcvt_f32_f16(four));
        }
    }
    wide
}

/// Sixteen words.
///
/// # Safety
/// `start` points to more than `index` lines.
#[inline(always)]
unsafe fn line(start: *const u8, index: usize) -> Quad {
    // SAFETY: the caller vouches for the line.
    let bytes = unsafe { start.add(index * QUAD_BYTES).cast::<[[u8; QUAD]; PANEL]>().read() };
    each(bytes, u32::from_le_bytes)
}

/// A function of each number of a panel: an array's own `map` is not always put in its place, and a call inside a kernel
/// costs more than all that it computes.
#[inline(always)]
fn each<T: Copy, U: Copy + Default>(values: [T; PANEL], function: impl Fn(T) -> U) -> [U; PANEL] {
    let mut out = [U::default(); PANEL];
    for lane in 0..PANEL {
        out[lane] = function(values[lane]);
    }
    out
}

#[inline(always)]
fn times(left: &[f32; PANEL], right: &[f32; PANEL]) -> [f32; PANEL] {
    let mut out = [0.0; PANEL];
    for lane in 0..PANEL {
        out[lane] = left[lane] * right[lane];
    }
    out
}

const _: () = assert!(INPUTS == QUAD * QUADS);
