//! Weights in the layouts that kernels read.
//!
//! A weight `[out, in]` is cut into panels of [`PANEL`] outputs; the last is padded with zeros, and so is the number of
//! panels, to pairs: kernels multiply two panels at a time. Inside a panel the inputs ascend.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use demask_step::OutOfMemory;
use demask_tensor::{AlignedBytes, Dtype, PackError, ReadError, StoredTensor};

use super::{
    Activations, Products,
    input::DEPTH_PADDING,
    integers::Coding,
    pack::{PanelRows, write_group},
};
use crate::{
    elementwise::{Shared, for_ranges},
    isa::Isa,
    kv::memory,
    pool::Pool,
};

/// Outputs of a panel: the floats of a 512-bit register or of a tile row.
pub(super) const PANEL: usize = 16;
/// Panels that are multiplied together.
pub(super) const GROUP: usize = 2;

/// Bytes that a thread writes at a time where weights are packed: two huge pages. Threads that touch a page for the first
/// time at the same time stand in each other's way.
pub(crate) const PART_BYTES: usize = 4 << 20;

/// Bytes that a thread reads of a weight at a time: they stay in its second-level cache until they are packed.
pub(crate) const READ_BYTES: usize = 512 << 10;

/// The order of the numbers in a packed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightFormat {
    /// f32, `[in][16]` in each panel.
    F32,
    /// bf16, `[in / 2][16][2]` in each panel, `in` padded to the depth of a tile.
    Bf16Pairs,
    /// Blocks of small integers of a pair of panels, `in` padded to whole blocks.
    Integers(Coding),
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::Bf16Pairs => f.write_str("bf16"),
            Self::Integers(coding) => match coding.quantisation() {
                Some(quantisation) => quantisation.fmt(f),
                None => coding.format().fmt(f),
            },
        }
    }
}

impl WeightFormat {
    /// Bytes from the start of a pair of panels to input `depth`, a multiple of the format's padding: of its first
    /// panel, or of both where they stand in blocks.
    pub(super) const fn offset(self, depth: usize) -> usize {
        match self {
            Self::F32 => depth * PANEL * 4,
            Self::Bf16Pairs => depth * PANEL * 2,
            Self::Integers(coding) => depth / coding.inputs() * coding.block_bytes(),
        }
    }

    /// Bytes of a pair of panels.
    pub(super) const fn group_bytes(self, depth: usize) -> usize {
        match self {
            Self::F32 | Self::Bf16Pairs => GROUP * self.offset(depth),
            Self::Integers(_) => self.offset(depth),
        }
    }

    /// Inputs with padding.
    pub(super) fn depth(self, columns: usize) -> usize {
        match self {
            Self::F32 => columns,
            Self::Bf16Pairs => columns.next_multiple_of(DEPTH_PADDING),
            Self::Integers(coding) => columns.next_multiple_of(coding.inputs()),
        }
    }
}

/// Format of a weight once it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixFormat(pub(super) WeightFormat);

impl MatrixFormat {
    /// Chooses the format of tensors stored in these types that are packed together (gate and up; else the same twice),
    /// for products of a kind: the blocks that have room for both, if they are not to be rounded anew, or else the format of
    /// plain kernels. Beside inputs of bytes, tensors that no blocks have room for are rounded to eight bits.
    pub fn of(stored: [Dtype; 2], products: Products) -> Self {
        let Products { dtype, quantisation, activations } = products;
        let plain = if dtype == Dtype::F32 { WeightFormat::F32 } else { WeightFormat::Bf16Pairs };
        let [first, second] = stored.map(Coding::keeping);
        let coding = match (quantisation, first.filter(|_| first == second), activations) {
            (Some(to), _, _) => Some(Coding::rounded(to)),
            (None, None, Activations::Int8) => Some(Coding::Q8),
            (None, kept, _) => kept,
        };
        Self(coding.map_or(plain, WeightFormat::Integers))
    }

    /// Bytes that a weight of a shape takes, without the padding of panels.
    pub fn bytes(self, rows: usize, columns: usize) -> usize {
        let depth = if matches!(self.0, WeightFormat::Bf16Pairs) { columns } else { self.0.depth(columns) };
        self.0.group_bytes(depth) / (GROUP * PANEL) * rows
    }
}

impl fmt::Display for MatrixFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Panels, pair after pair.
pub(super) struct Panels {
    data: AlignedBytes,
    pub(super) format: WeightFormat,
    /// Inputs with padding.
    pub(super) depth: usize,
    /// Pairs of panels.
    pub(super) groups: usize,
}

impl Panels {
    /// Allocates zeroed panels for weights of a shape.
    fn new(format: WeightFormat, rows: usize, columns: usize, groups: usize) -> Result<Self, PackError> {
        let depth = format.depth(columns);
        let bytes = bytes(format, columns, groups);
        let data = bytes.and_then(AlignedBytes::try_together).ok_or_else(|| PackError::Memory {
            rows,
            columns,
            source: OutOfMemory {
                needed: bytes.map_or(u64::MAX, |bytes| bytes as u64),
                available: memory::available(),
            },
        })?;
        Ok(Self { data, format, depth, groups })
    }

    /// Copies the panels into memory of their own, or returns `None` if there is none.
    fn try_clone(&self) -> Option<Self> {
        Some(Self { data: self.data.try_clone()?, ..*self })
    }

    /// Bytes of half a pair of panels: of one panel, where panels do not share blocks.
    pub(super) fn panel_bytes(&self) -> usize {
        self.format.group_bytes(self.depth) / GROUP
    }

    /// All panels.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        self.data.as_slice()
    }

    /// Start of a pair of panels.
    pub(super) fn group(&self, group: usize) -> *const u8 {
        assert!(group < self.groups);
        // SAFETY: the memory holds `groups` pairs of panels.
        unsafe { self.data.as_ptr().add(group * GROUP * self.panel_bytes()) }
    }

    /// Writes all pairs of panels, dealt out to the threads of a pool, each of which reads its rows for itself. A pair has
    /// `share` panels of each weight.
    fn fill<const WEIGHTS: usize>(
        &mut self,
        isa: Isa,
        pool: &Pool,
        share: usize,
        weights: [StoredTensor<'_>; WEIGHTS],
    ) -> Result<(), PackError> {
        let (format, bytes, groups) = (self.format, self.format.group_bytes(self.depth), self.groups);
        let data = Shared::new(self.data.as_mut_slice::<u8>());
        let parts = (groups * bytes / PART_BYTES).max(pool.threads());
        let (rows, pair) = (weights[0].rows(), share * PANEL);
        let most = weights.iter().map(|weight| pair * weight.row_bytes()).max().unwrap_or_default();
        let at_once = (READ_BYTES / most.max(1)).max(1);
        let failure = Failure::default();
        for_ranges(pool, groups, parts, |_, range| {
            let mut scratch: [Vec<u8>; WEIGHTS] = std::array::from_fn(|_| Vec::new());
            for first in range.clone().step_by(at_once) {
                let part = first..range.end.min(first + at_once);
                let read = (part.start * pair).min(rows)..(part.end * pair).min(rows);
                let taken =
                    weights.iter().zip(&mut scratch).map(|(weight, scratch)| weight.take(read.clone(), scratch));
                let taken: Vec<_> = match taken.collect::<Result<_, ReadError>>() {
                    Ok(taken) => taken,
                    Err(error) => return failure.set(error.into()),
                };
                for group in part {
                    let rows = std::array::from_fn(|panel| {
                        let (weight, base) = taken[panel / share];
                        PanelRows { weight, first: (share * group + panel % share) * PANEL - base }
                    });
                    // SAFETY: each pair of panels is in one range.
                    let out = unsafe { data.row(group, bytes) };
                    if !write_group(isa, format, rows, out) {
                        return failure.set(PackError::NotFinite);
                    }
                }
            }
        });
        failure.into_result()
    }
}

/// The first error of the threads that pack a weight.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<PackError>>);

impl Failure {
    pub(crate) fn set(&self, error: PackError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn into_result(self) -> Result<(), PackError> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Bytes of pairs of panels; nothing if they are beyond all memory.
fn bytes(format: WeightFormat, columns: usize, groups: usize) -> Option<usize> {
    format.group_bytes(format.depth(columns)).checked_mul(groups)
}

/// Packed weights, one or two, each `[rows, columns]`. A pair of panels are neighbouring panels of the one, or the same panel
/// of either. They remember their layout: kernels refuse those that were packed for others.
pub struct Packed<const WEIGHTS: usize = 1> {
    pub(super) panels: Panels,
    rows: usize,
    columns: usize,
}

/// Gate and up projections: pairs of a panel of gate and the same panel of up.
pub type PackedGateUp = Packed<2>;

impl<const WEIGHTS: usize> Packed<WEIGHTS> {
    /// Panels of either weight in a pair.
    const SHARE: usize = GROUP / WEIGHTS;

    /// Pairs of panels.
    fn groups(rows: usize) -> usize {
        rows.div_ceil(Self::SHARE * PANEL)
    }

    /// Bytes that weights take when they are packed, each `[rows, columns]`; nothing if they are beyond all memory.
    pub(super) fn bytes_of(format: WeightFormat, rows: usize, columns: usize) -> Option<usize> {
        bytes(format, columns, Self::groups(rows))
    }

    /// Packs weights of the same shape.
    pub(super) fn new(
        isa: Isa,
        format: WeightFormat,
        pool: &Pool,
        weights: [StoredTensor<'_>; WEIGHTS],
    ) -> Result<Self, PackError> {
        let (rows, columns) = (weights[0].rows(), weights[0].columns());
        let alike = |weight: &StoredTensor<'_>| [weight.rows(), weight.columns()] == [rows, columns];
        assert!(weights.iter().all(alike), "gate and up differ in shape");
        let mut panels = Panels::new(format, rows, columns, Self::groups(rows))?;
        panels.fill(isa, pool, Self::SHARE, weights)?;
        Ok(Self { panels, rows, columns })
    }

    /// Copies the weights into memory of their own, or returns `None` if there is none.
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self { panels: self.panels.try_clone()?, ..*self })
    }

    /// Outputs, of each weight.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes in memory, padding included.
    pub fn bytes(&self) -> usize {
        self.panels.data.len()
    }

    /// Format of the numbers: `f32`, `bf16`, `q8`, `q4`, or ggml's name of a block format.
    pub fn kept_in(&self) -> String {
        self.panels.format.to_string()
    }
}
