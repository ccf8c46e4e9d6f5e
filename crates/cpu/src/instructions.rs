//! Instructions of ARM for which the standard library has no stable function.

use std::arch::{
    aarch64::{float32x4_t, int8x16_t, int32x4_t, uint32x4_t},
    asm,
};

/// Adds to each sum the dot product of four bytes of `left` and the four bytes in lane `LANE` of `right`.
///
/// # Safety
/// The processor has dot products of bytes (`FEAT_DotProd`).
#[inline(always)]
pub(crate) unsafe fn sdot<const LANE: i32>(mut sums: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
    // SAFETY: the caller vouches for the instruction, which reads and writes registers alone.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {left:v}.16b, {right:v}.4b[{lane}]",
            sums = inout(vreg) sums,
            left = in(vreg) left,
            right = in(vreg) right,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Adds the products of two rows of eight bytes with two columns of eight: the first row's two sums, then the second's.
///
/// # Safety
/// The processor has matrix products of bytes (`FEAT_I8MM`).
#[inline(always)]
pub(crate) unsafe fn smmla(mut sums: int32x4_t, rows: int8x16_t, columns: int8x16_t) -> int32x4_t {
    // SAFETY: the caller vouches for the instruction, which reads and writes registers alone.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {rows:v}.16b, {columns:v}.16b",
            sums = inout(vreg) sums,
            rows = in(vreg) rows,
            columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Adds the products of two rows of four bf16 numbers, two in a word, with two columns of four: the first row's two sums, then
/// the second's.
///
/// # Safety
/// The processor has matrix products of bf16 (`FEAT_BF16`).
#[inline(always)]
pub(crate) unsafe fn bfmmla(mut sums: float32x4_t, rows: uint32x4_t, columns: uint32x4_t) -> float32x4_t {
    // SAFETY: the caller vouches for the instruction, which reads and writes registers alone.
    unsafe {
        asm!(
            "bfmmla {sums:v}.4s, {rows:v}.8h, {columns:v}.8h",
            sums = inout(vreg) sums,
            rows = in(vreg) rows,
            columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
