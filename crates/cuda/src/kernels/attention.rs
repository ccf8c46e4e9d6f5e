//! Attention, `kernels/attention.cu`: when spans run at once, and how many threads take how many queries.

use demask_tensor::AttentionShape;

use super::Module;
use crate::{
    arguments::SPAN,
    gpu::{Geometry, Limits},
};

/// The module.
pub(super) const MODULE: Module = Module {
    name: "attention",
    definitions: "",
    file: "attention.cu",
    text: include_str!("../../kernels/attention.cu"),
    kernels: &[
        "attend_merge_f32",
        "attend_merge_bf16",
        "attend_f32_narrow",
        "attend_f32_wide",
        "attend_bf16_narrow_32",
        "attend_bf16_wide_32",
        "attend_bf16_narrow_64",
        "attend_bf16_wide_64",
        "attend_bf16_narrow_128",
        "attend_bf16_wide_128",
        "attend_bf16_narrow_256",
        "attend_bf16_wide_256",
    ],
};

/// Names for heads of up to so many numbers: narrow, wide.
const WIDTHS: [(usize, [&str; 2]); 4] = [
    (32, ["attend_bf16_narrow_32", "attend_bf16_wide_32"]),
    (64, ["attend_bf16_narrow_64", "attend_bf16_wide_64"]),
    (128, ["attend_bf16_narrow_128", "attend_bf16_wide_128"]),
    (256, ["attend_bf16_narrow_256", "attend_bf16_wide_256"]),
];

/// The type of queries, keys, values and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// Products and sums in f32.
    F32,
    /// Products of bf16, sums in f32.
    Bf16,
}

/// Kernels of an attention: the kernel, and the merge of its spans if they run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// The kernel.
    pub attend: (&'static str, Geometry),
    /// Kernel that merges its parts.
    pub merge: Option<(&'static str, Geometry)>,
}

/// Queries of a block.
const QUERIES_F32: u32 = 4;
const QUERIES_BF16: u32 = 64;

/// Numbers of the widest head: what eight registers of a warp, or the widest fragments, hold.
pub const WIDEST: usize = 256;

/// Spans that run at once at most: blocks along z of a grid.
const MOST_SPANS: u32 = 65_535;

/// Reports whether there are kernels for heads of this width: no wider than the widest, and in bf16 whole copies of 16
/// bytes.
pub fn fits(element: Element, head_dim: usize) -> bool {
    (1..=WIDEST).contains(&head_dim) && (element == Element::F32 || head_dim.is_multiple_of(8))
}

/// Spans of launches with up to so many keys.
pub fn spans(keys: usize) -> u32 {
    keys.div_ceil(SPAN).max(1) as u32
}

/// Numbers that [`AttendArgs::partial`](crate::arguments::AttendArgs::partial) has room for.
pub fn partial_numbers(shape: &AttentionShape, rows: u32, spans: u32) -> usize {
    rows as usize * shape.heads * spans as usize * (shape.head_dim + 2)
}

/// Blocks for 100 processors that keep them busy: with fewer, spans run at once. On an H200 with 132 processors spans pay with 56
/// blocks (128 rows of 28 heads over 4 heads of K and V) and cost a quarter with 112: `bench attention --every-kernel`.
const BUSY_BLOCKS: u32 = 60;

/// The kernels for up to so many rows and spans of keys, where there are several the better ones first; the width of a
/// head must [fit](fits). Spans run at once if the queries alone do not keep the processors busy, and there is `room` for
/// so many numbers of their parts.
pub fn ways(
    limits: &Limits,
    element: Element,
    shape: &AttentionShape,
    (rows, spans): (u32, u32),
    room: usize,
) -> impl Iterator<Item = Attention> + use<> {
    let idle = grid(element, shape, rows, 1).iter().product::<u32>() * 100 < BUSY_BLOCKS * limits.processors;
    let at_once = (2..=MOST_SPANS).contains(&spans) && partial_numbers(shape, rows, spans) <= room;
    let order = if idle { [true, false] } else { [false, true] };
    let ways = order.into_iter().filter(move |narrow| at_once || !narrow);
    let shape = *shape;
    ways.map(move |narrow| variant(element, &shape, rows, spans, narrow))
}

/// The best of the [ways].
pub fn choose(
    limits: &Limits,
    element: Element,
    shape: &AttentionShape,
    (rows, spans): (u32, u32),
    room: usize,
) -> Attention {
    ways(limits, element, shape, (rows, spans), room).next().expect("one span after the other needs no room")
}

/// Blocks of a kernel.
fn grid(element: Element, shape: &AttentionShape, rows: u32, spans: u32) -> [u32; 3] {
    let queries = match element {
        Element::F32 => QUERIES_F32,
        Element::Bf16 => QUERIES_BF16,
    };
    let group = (shape.heads / shape.kv_heads) as u32;
    [(rows * group).div_ceil(queries), shape.kv_heads as u32, spans]
}

fn variant(element: Element, shape: &AttentionShape, rows: u32, spans: u32, narrow: bool) -> Attention {
    let mut grid = grid(element, shape, rows, if narrow { spans } else { 1 });
    let (names, merge, threads, shared) = match element {
        Element::F32 => (["attend_f32_narrow", "attend_f32_wide"], "attend_merge_f32", QUERIES_F32 * 32, 0),
        Element::Bf16 => {
            let fitting = WIDTHS.iter().find(|(width, _)| shape.head_dim <= *width);
            let (width, names) = *fitting.expect("the width of a head was checked when the model was loaded");
            // Wide heads are taken by blocks that sum 128 columns each.
            let (keys, columns) = (if width > 64 { 32 } else { 64 }, width.min(128));
            grid[0] *= (width / columns) as u32;
            // Queries, and two tiles each of K and V.
            let shared = (QUERIES_BF16 as usize * width + 2 * keys * (width + columns)) * 2;
            (names, "attend_merge_bf16", QUERIES_BF16 * 2, shared as u32)
        }
    };
    let merge = (merge, Geometry { grid: [rows, shape.heads as u32, 1], threads: 128, shared: 0 });
    let attend = (names[usize::from(!narrow)], Geometry { grid, threads, shared });
    Attention { attend, merge: narrow.then_some(merge) }
}

#[cfg(test)]
mod tests;
