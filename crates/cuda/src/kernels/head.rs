//! The head: its inputs, and the questions about logits.

use demask_tensor::Dtype;

use super::{Module, rows_of};
use crate::gpu::Geometry;

pub(super) const MODULE: Module = Module {
    name: "head",
    definitions: concat!(
        include_str!("../../kernels/block.cuh"),
        include_str!("../../kernels/store.cuh"),
        include_str!("../../kernels/falling.cuh")
    ),
    file: "head.cu",
    text: include_str!("../../kernels/head.cu"),
    kernels: &["head_input_f32", "head_input_bf16", "head_answer"],
};

/// Tokens of the largest vocabulary: the weights of so many, as integers, have room in 64 bits (`WHOLE` in the kernels).
pub const MOST_TOKENS: usize = 1 << 20;

/// Norms and blends up to `rows` head rows to inputs of this type.
pub fn head_input(inputs: Dtype, rows: usize) -> (&'static str, Geometry) {
    (if inputs == Dtype::Bf16 { "head_input_bf16" } else { "head_input_f32" }, rows_of(rows, 256))
}

/// Answers up to `rows` head rows. The vocabulary alone decides how many threads share a row, and so the order of its
/// sums.
pub fn head_answer(rows: usize, vocabulary: usize) -> (&'static str, Geometry) {
    // Four to eight logits for each thread of a small vocabulary.
    let threads = vocabulary.div_ceil(8).next_power_of_two().clamp(32, 1024);
    ("head_answer", rows_of(rows, threads as u32))
}

#[cfg(test)]
mod tests;
