//! Layers that compute some of the rows: increments, and the choice of rows.

use demask_tensor::Dtype;

use super::{Module, rows_of};
use crate::gpu::Geometry;

pub(super) const MODULE: Module = Module {
    name: "partial",
    definitions: concat!(include_str!("../../kernels/block.cuh"), include_str!("../../kernels/store.cuh")),
    file: "partial.cu",
    text: include_str!("../../kernels/partial.cu"),
    kernels: &["mark", "hold", "settle_held", "settle_rest", "roll", "compare_f32", "compare_bf16", "choose"],
};

/// Marks the rows of a list.
pub fn mark() -> (&'static str, Geometry) {
    ("mark", rows_of(1, 1024))
}

/// Begins the increments of the marked ones of up to `rows` rows.
pub fn hold(rows: usize) -> (&'static str, Geometry) {
    ("hold", rows_of(rows, 256))
}

/// Completes what [`hold`] began.
pub fn settle_held(rows: usize) -> (&'static str, Geometry) {
    ("settle_held", rows_of(rows, 256))
}

/// Adds their increments to those of up to `rows` rows that are not marked.
pub fn settle_rest(rows: usize) -> (&'static str, Geometry) {
    ("settle_rest", rows_of(rows, 256))
}

/// Gives the rows of up to `probes` random probes their numbers.
pub fn roll(probes: usize) -> (&'static str, Geometry) {
    ("roll", rows_of(probes, 256))
}

/// Compares up to `rows` rows with the store's in this type.
pub fn compare(store: Dtype, rows: usize) -> (&'static str, Geometry) {
    (if store == Dtype::Bf16 { "compare_bf16" } else { "compare_f32" }, rows_of(rows, 128))
}

/// Chooses the rows of all probes.
pub fn choose() -> (&'static str, Geometry) {
    ("choose", rows_of(1, 1024))
}

#[cfg(test)]
mod tests;
