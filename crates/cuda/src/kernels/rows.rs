//! Operations on single rows: embedding, norms, and the heads of q and k with their rotation.

use demask_tensor::Dtype;

use super::{Module, rows_of};
use crate::gpu::Geometry;

pub(super) const MODULE: Module = Module {
    name: "rows",
    definitions: concat!(include_str!("../../kernels/block.cuh"), include_str!("../../kernels/store.cuh")),
    file: "rows.cu",
    text: include_str!("../../kernels/rows.cu"),
    kernels: &["embed_f32", "embed_bf16", "embed_f16", "normalise_f32", "normalise_bf16", "heads_f32", "heads_bf16"],
};

/// Embeds up to `rows` rows, from a table of this type.
///
/// # Panics
/// For block formats, which no table on a device has.
pub fn embed(table: Dtype, rows: usize) -> (&'static str, Geometry) {
    let kernel = match table {
        Dtype::F32 => "embed_f32",
        Dtype::Bf16 => "embed_bf16",
        Dtype::F16 => "embed_f16",
        _ => panic!("a table of {table}"),
    };
    (kernel, rows_of(rows, 256))
}

/// Norms up to `rows` rows to inputs of this type.
pub fn normalise(inputs: Dtype, rows: usize) -> (&'static str, Geometry) {
    (if inputs == Dtype::Bf16 { "normalise_bf16" } else { "normalise_f32" }, rows_of(rows, 256))
}

/// Finishes the heads of up to `rows` rows to this type.
pub fn heads(dtype: Dtype, rows: usize) -> (&'static str, Geometry) {
    (if dtype == Dtype::Bf16 { "heads_bf16" } else { "heads_f32" }, rows_of(rows, 128))
}

#[cfg(test)]
mod tests;
