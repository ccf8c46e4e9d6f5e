//! Copies within the K/V store: the slots of accepted drafts, and pages.

use super::Module;
use crate::gpu::Geometry;

pub(super) const MODULE: Module = Module {
    name: "copies",
    definitions: concat!(include_str!("../../kernels/block.cuh"), include_str!("../../kernels/store.cuh")),
    file: "copies.cu",
    text: include_str!("../../kernels/copies.cu"),
    kernels: &["keep_slots", "copy_pages"],
};

/// Copies up to `copies` slots in each layer. They are copied at once: no slot may be read by one copy and written by
/// another.
pub fn keep_slots(copies: usize, layers: usize) -> (&'static str, Geometry) {
    ("keep_slots", Geometry { grid: [copies as u32, layers as u32, 1], threads: 128, shared: 0 })
}

/// Copies up to `copies` pages in each layer, at once.
pub fn copy_pages(copies: usize, layers: usize) -> (&'static str, Geometry) {
    ("copy_pages", Geometry { grid: [copies as u32, layers as u32, 1], threads: 256, shared: 0 })
}

#[cfg(test)]
mod tests;
