//! Products with weight matrices: `kernels/gemm.cu`. Which tile runs which product, and how many threads.
//!
//! All tiles of a product give the same bits, so that a tile is chosen for speed alone: by how long all processors are
//! busy with it.

use super::Module;
use crate::gpu::{Geometry, Limits};

/// Types of inputs and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// Inputs and weights in f32.
    F32,
    /// Inputs and weights in bf16.
    Bf16,
    /// bf16 with weights of 8 bits, multiplied in bf16.
    Q8,
    /// bf16 with weights of 4 bits, multiplied in bf16.
    Q4,
    /// f32 with weights of 8 bits, multiplied in f32.
    Q8F32,
    /// f32 with weights of 4 bits, multiplied in f32.
    Q4F32,
}

/// Treatment of the sums: see [`GemmArgs`](crate::arguments::GemmArgs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Stored as f32.
    Store,
    /// Added to the residual stream.
    Add,
    /// Gate and up are put together.
    Silu,
}

/// A tile of outputs that a block computes: `Tile` in the kernels.
#[derive(Debug, Clone, Copy)]
struct Tile {
    columns: u32,
    rows: u32,
    threads: u32,
    /// Pieces of 64 deep in a stage.
    slabs: u32,
    stages: u32,
    /// Rate of the tile over the largest one's where many rows fill all processors. Measured on an H200 with bf16:
    /// `bench linear --every-kernel --rows 1024 --in 4096 --out 126464`.
    rate: f64,
}

const fn tile([columns, rows]: [u32; 2], threads: u32, [slabs, stages]: [u32; 2], rate: f64) -> Tile {
    Tile { columns, rows, threads, slabs, stages, rate }
}

const TILES: [Tile; 6] = tiles(3);
/// Tiles with unpacked weights beside the stages: a processor with 100 KiB has room for all but the largest.
const PACKED_TILES: [Tile; 6] = tiles(2);

/// The tiles, the second largest with so many stages: `WIDE_STAGES`.
const fn tiles(wide_stages: u32) -> [Tile; 6] {
    [
        tile([32, 16], 128, [2, 6], 0.27),
        tile([32, 32], 128, [2, 6], 0.37),
        tile([64, 32], 128, [1, 6], 0.51),
        tile([64, 64], 128, [1, 4], 0.71),
        tile([128, 128], 256, [1, wide_stages], 0.81),
        tile([128, 256], 256, [1, 3], 1.0),
    ]
}

/// Tiles for single products; their shared memory is static.
const SINGLE_TILES: [Tile; 2] = [tile([32, 16], 128, [0, 0], 0.5), tile([64, 64], 256, [0, 0], 1.0)];

/// Columns of all matrices of a product at most: so many tiles of the narrowest kind stand along y of a grid, which ends
/// at 65,535 blocks, each of three matrices beginning a tile of its own.
pub const MOST_COLUMNS: usize = (65_535 - 3) * 32;

/// Deep of a slab.
const SLAB: u32 = 64;

/// Names of a type's kernels, by tile and end.
macro_rules! names {
    ($type:literal: $($size:literal),*) => {
        [$([
            concat!("gemm_", $type, "_store_", $size),
            concat!("gemm_", $type, "_add_", $size),
            concat!("gemm_", $type, "_silu_", $size),
        ]),*]
    };
    (tiles $type:literal) => { names!($type: "32x16", "32x32", "64x32", "64x64", "128x128", "128x256") };
    (single $type:literal) => { names!($type: "32x16", "64x64") };
}

type Names = [&'static str; 3];
const F32: [Names; 2] = names!(single "f32");
const BF16: [Names; 6] = names!(tiles "bf16");
const Q8: [Names; 6] = names!(tiles "q8");
const Q4: [Names; 6] = names!(tiles "q4");
const Q8F32: [Names; 2] = names!(single "q8f");
const Q4F32: [Names; 2] = names!(single "q4f");

const fn module(name: &'static str, definitions: &'static str, names: &'static [Names]) -> Module {
    let text = include_str!("../../kernels/gemm.cu");
    Module { name, definitions, file: "gemm.cu", text, kernels: names.as_flattened() }
}

/// One module for each product: a run compiles only its own.
pub(super) const MODULES: [Module; 6] = [
    module("gemm_f32", "#define TYPE f32\n#define BITS 32\n#define SINGLE", &F32),
    module("gemm_bf16", "#define TYPE bf16\n#define BITS 16", &BF16),
    module("gemm_q8", "#define TYPE q8\n#define BITS 8", &Q8),
    module("gemm_q4", "#define TYPE q4\n#define BITS 4", &Q4),
    module("gemm_q8f", "#define TYPE q8f\n#define BITS 8\n#define SINGLE", &Q8F32),
    module("gemm_q4f", "#define TYPE q4f\n#define BITS 4\n#define SINGLE", &Q4F32),
];

impl Product {
    fn names(self) -> &'static [Names] {
        match self {
            Self::F32 => &F32,
            Self::Bf16 => &BF16,
            Self::Q8 => &Q8,
            Self::Q4 => &Q4,
            Self::Q8F32 => &Q8F32,
            Self::Q4F32 => &Q4F32,
        }
    }

    fn tiles(self) -> &'static [Tile] {
        match self {
            Self::F32 | Self::Q8F32 | Self::Q4F32 => &SINGLE_TILES,
            Self::Bf16 => &TILES,
            Self::Q8 | Self::Q4 => &PACKED_TILES,
        }
    }

    /// Bytes of dynamic shared memory of a tile's block.
    fn shared(self, tile: &Tile) -> u32 {
        match self {
            Self::F32 | Self::Q8F32 | Self::Q4F32 => 0,
            Self::Bf16 => tile.stages * tile.slab_bytes(tile.rows + tile.columns),
            Self::Q8 => tile.packed_shared(16),
            Self::Q4 => tile.packed_shared(8),
        }
    }
}

impl Tile {
    /// Bytes of so many rows of a stage.
    fn slab_bytes(&self, rows: u32) -> u32 {
        rows * self.slabs * SLAB * 2
    }

    /// Rows in stages, two slabs of unpacked weights, chunks of 16 packed weights of so many bytes with a scale in stages.
    fn packed_shared(&self, chunk: u32) -> u32 {
        let chunks = self.columns * self.slabs * SLAB / 16;
        self.stages * (self.slab_bytes(self.rows) + chunks * (chunk + 4)) + 2 * self.slab_bytes(self.columns)
    }
}

/// A kernel and its geometry for a product with matrices of so many columns each, for up to so many rows.
pub fn choose(limits: &Limits, (product, end): (Product, End), columns: &[u32], rows: u32) -> (&'static str, Geometry) {
    let variants = variants(limits, (product, end), columns, rows);
    let fastest = variants.min_by(|(_, _, one), (_, _, other)| one.total_cmp(other));
    fastest.map(|(name, geometry, _)| (name, geometry)).expect("the smallest tiles fit into any processor")
}

/// All kernels that can do it, with a measure of the time that they take.
pub(crate) fn variants(
    limits: &Limits,
    (product, end): (Product, End),
    columns: &[u32],
    rows: u32,
) -> impl Iterator<Item = (&'static str, Geometry, f64)> {
    let tiles = product.tiles().iter().zip(product.names());
    tiles.filter(move |(tile, _)| product.shared(tile) <= limits.shared).map(move |(tile, names)| {
        let across = columns.iter().map(|columns| columns.div_ceil(tile.columns)).sum();
        let grid = [rows.div_ceil(tile.rows), across, 1];
        let waves = (grid[0] * grid[1]).div_ceil(limits.processors);
        let time = f64::from(waves) * f64::from(tile.rows * tile.columns) / tile.rate;
        let geometry = Geometry { grid, threads: tile.threads, shared: product.shared(tile) };
        (names[end as usize], geometry, time)
    })
}

#[cfg(test)]
mod tests;
