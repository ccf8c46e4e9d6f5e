//! Rounding of rows to bf16, for code that is compiled for an instruction set already.

use crate::linear::activation::{round_bf16, widen_bf16};

/// Numbers that were rounded to bf16.
pub(crate) trait Rounded {
    /// Rounds one number.
    fn rounded(value: f32) -> Self;
}

impl Rounded for f32 {
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        widen_bf16(round_bf16(value))
    }
}

/// bf16.
impl Rounded for u16 {
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        round_bf16(value)
    }
}

/// Rounds all values to bf16.
#[inline(always)]
pub(super) fn round_all(row: &mut [f32]) {
    for value in row {
        *value = Rounded::rounded(*value);
    }
}

/// `to = from`, rounded to bf16; what one has more than the other is left out.
#[inline(always)]
pub(crate) fn copy_rounded<T: Rounded>(from: &[f32], to: &mut [T]) {
    for (to, &value) in to.iter_mut().zip(from) {
        *to = T::rounded(value);
    }
}
