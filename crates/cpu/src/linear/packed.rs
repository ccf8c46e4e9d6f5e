//! Weights in the layouts that kernels read.
//!
//! A weight `[out, in]` is cut into panels of [`PANEL`] outputs; the last is padded with zeros, and so is the number of
//! panels, to pairs: kernels multiply two panels at a time. Inside a panel the inputs ascend.

use std::fmt;

use demask_tensor::{AlignedBytes, Dtype, OutOfMemory, PackError, TensorView};

use super::{
    activation::round_bf16,
    blocks::{self, Coding},
    input::DEPTH_PADDING,
    quantised::{self, Quantisation},
};

/// Outputs of a panel: the floats of a 512-bit register or of a tile row.
pub(super) const PANEL: usize = 16;
/// Panels that are multiplied together.
pub(super) const GROUP: usize = 2;

/// The order of the numbers in a packed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightFormat {
    /// f32, `[in][16]` in each panel.
    F32,
    /// bf16, `[in / 2][16][2]` in each panel, `in` padded to the depth of a tile.
    Bf16Pairs,
    /// Blocks of 32 inputs of a pair of panels, `in` padded to whole blocks.
    Quantised(Quantisation),
    /// Blocks of a pair of panels with the numbers of a file's blocks; `in` is whole blocks.
    Blocks(Coding),
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::Bf16Pairs => f.write_str("bf16"),
            Self::Quantised(quantisation) => quantisation.fmt(f),
            Self::Blocks(coding) => coding.format().fmt(f),
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
            Self::Quantised(quantisation) => depth / quantised::INPUTS * quantisation.block_bytes(),
            Self::Blocks(coding) => depth / coding.inputs() * coding.block_bytes(),
        }
    }

    /// Bytes of a pair of panels.
    pub(super) const fn group_bytes(self, depth: usize) -> usize {
        match self {
            Self::F32 | Self::Bf16Pairs => GROUP * self.offset(depth),
            Self::Quantised(_) | Self::Blocks(_) => self.offset(depth),
        }
    }

    /// Inputs with padding.
    pub(super) fn depth(self, columns: usize) -> usize {
        match self {
            Self::F32 => columns,
            Self::Bf16Pairs | Self::Quantised(_) => columns.next_multiple_of(DEPTH_PADDING),
            Self::Blocks(coding) => columns.next_multiple_of(coding.inputs()),
        }
    }
}

/// What a weight is kept in once it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixFormat(pub(super) WeightFormat);

impl MatrixFormat {
    /// That of tensors stored in these types that are packed together (gate and up; else the same twice), for products
    /// of `dtype` and with a quantisation, if there is one: the blocks that they share, or else what plain kernels take.
    pub fn of(stored: [Dtype; 2], dtype: Dtype, quantisation: Option<Quantisation>) -> Self {
        let plain = if dtype == Dtype::F32 { WeightFormat::F32 } else { WeightFormat::Bf16Pairs };
        let kept = blocks::keeping(stored[0]).filter(|_| stored[0] == stored[1]);
        Self(quantisation.map_or(kept.unwrap_or(plain), WeightFormat::Quantised))
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
    /// Zeroed panels for weights of a shape.
    fn new(format: WeightFormat, rows: usize, columns: usize, groups: usize) -> Result<Self, PackError> {
        let depth = format.depth(columns);
        let bytes = format.group_bytes(depth).checked_mul(groups);
        let data = bytes.and_then(AlignedBytes::try_zeroed).ok_or_else(|| PackError::Memory {
            rows,
            columns,
            source: OutOfMemory { needed: bytes.map_or(u64::MAX, |bytes| bytes as u64), available: available_memory() },
        })?;
        Ok(Self { data, format, depth, groups })
    }

    /// Bytes of half a pair of panels: of one panel, where panels do not share blocks.
    pub(super) fn panel_bytes(&self) -> usize {
        self.format.group_bytes(self.depth) / GROUP
    }

    /// Start of a pair of panels.
    pub(super) fn group(&self, group: usize) -> *const u8 {
        assert!(group < self.groups);
        // SAFETY: the memory holds `groups` pairs of panels.
        unsafe { self.data.as_ptr().add(group * GROUP * self.panel_bytes()) }
    }

    /// Fills one panel with up to [`PANEL`] rows of `weight`, from `first` on. `row` is scratch, one row long.
    fn fill(&mut self, panel: usize, weight: TensorView<'_>, first: usize, row: &mut [f32]) {
        if let Dtype::Block(source) = weight.dtype()
            && blocks::keeping(weight.dtype()) == Some(self.format)
        {
            let bytes = self.format.group_bytes(self.depth);
            let lanes = first..weight.rows().min(first + PANEL);
            let rows: Vec<_> = lanes.map(|row| weight.row_bytes(row)).collect();
            let group = &mut self.data.as_mut_slice::<u8>()[panel / GROUP * bytes..][..bytes];
            return blocks::write_panel(source, self.format, &rows, group, panel % GROUP);
        }
        let elements = self.depth * PANEL;
        for lane in 0..PANEL.min(weight.rows().saturating_sub(first)) {
            weight.read_row(first + lane, row);
            match self.format {
                WeightFormat::F32 => {
                    let panel = &mut self.data.as_mut_slice::<f32>()[panel * elements..][..elements];
                    for (k, &value) in row.iter().enumerate() {
                        panel[k * PANEL + lane] = value;
                    }
                }
                WeightFormat::Bf16Pairs => {
                    let panel = &mut self.data.as_mut_slice::<u16>()[panel * elements..][..elements];
                    for (k, &value) in row.iter().enumerate() {
                        panel[(k / 2 * PANEL + lane) * 2 + k % 2] = round_bf16(value);
                    }
                }
                WeightFormat::Quantised(quantisation) => {
                    let bytes = self.format.group_bytes(self.depth);
                    let group = &mut self.data.as_mut_slice::<u8>()[panel / GROUP * bytes..][..bytes];
                    let blocks = group.chunks_exact_mut(quantisation.block_bytes());
                    for (block, inputs) in blocks.zip(row.chunks(quantised::INPUTS)) {
                        let mut values = [0.0; quantised::INPUTS];
                        values[..inputs.len()].copy_from_slice(inputs);
                        quantised::write_group(quantisation, &values, block, panel % GROUP, lane);
                    }
                }
                WeightFormat::Blocks(coding) => panic!("{} does not pack as {coding:?}", weight.dtype()),
            }
        }
    }
}

/// A packed weight `[rows, columns]`. It remembers its layout: kernels refuse one that was packed for others.
pub struct Packed {
    pub(super) panels: Panels,
    rows: usize,
    columns: usize,
}

impl Packed {
    /// Packs a weight.
    pub(super) fn new(format: WeightFormat, weight: TensorView<'_>) -> Result<Self, PackError> {
        let (rows, columns) = (weight.rows(), weight.columns());
        let mut panels = Panels::new(format, rows, columns, rows.div_ceil(PANEL * GROUP))?;
        let mut row = vec![0.0; columns];
        for panel in 0..rows.div_ceil(PANEL) {
            panels.fill(panel, weight, panel * PANEL, &mut row);
        }
        Ok(Self { panels, rows, columns })
    }

    /// Outputs.
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

    /// What its numbers are kept in: `f32`, `bf16`, `q8`, `q4`, or ggml's name of a block format.
    pub fn kept_in(&self) -> String {
        self.panels.format.to_string()
    }
}

/// Gate and up projections, each `[rows, columns]`: pairs of a panel of gate and the same panel of up.
pub struct PackedGateUp {
    pub(super) panels: Panels,
    rows: usize,
    columns: usize,
}

impl PackedGateUp {
    /// Packs both.
    pub(super) fn new(format: WeightFormat, gate: TensorView<'_>, up: TensorView<'_>) -> Result<Self, PackError> {
        let (rows, columns) = (gate.rows(), gate.columns());
        assert_eq!([rows, columns], [up.rows(), up.columns()], "gate and up differ in shape");
        let mut panels = Panels::new(format, rows, columns, rows.div_ceil(PANEL))?;
        let mut row = vec![0.0; columns];
        for group in 0..rows.div_ceil(PANEL) {
            panels.fill(GROUP * group, gate, group * PANEL, &mut row);
            panels.fill(GROUP * group + 1, up, group * PANEL, &mut row);
        }
        Ok(Self { panels, rows, columns })
    }

    /// Outputs of each of the two.
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

    /// What its numbers are kept in: `f32`, `bf16`, `q8`, `q4`, or ggml's name of a block format.
    pub fn kept_in(&self) -> String {
        self.panels.format.to_string()
    }
}

/// Bytes that the system could still give, as far as it says; 0 where it says nothing.
fn available_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use demask_tensor::Dtype;

    use super::*;

    /// Weight `[rows, columns]` with small integers, exact in every type, and its bytes in a type.
    fn weight(dtype: Dtype, rows: usize, columns: usize) -> Vec<u8> {
        let values = (0..rows * columns).map(|index| (index % 127) as f32 - 60.0);
        match dtype {
            Dtype::F16 => values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
            Dtype::Bf16 => values.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
            _ => values.flat_map(f32::to_le_bytes).collect(),
        }
    }

    #[test]
    fn every_source_type_packs_to_the_same_panels() {
        let (rows, columns) = (19, 35);
        for format in [WeightFormat::F32, WeightFormat::Bf16Pairs] {
            let pack = |dtype| {
                let bytes = weight(dtype, rows, columns);
                Packed::new(format, TensorView::new(dtype, rows, columns, &bytes)).unwrap()
            };
            let packed = pack(Dtype::F32);
            for dtype in [Dtype::F16, Dtype::Bf16] {
                assert_eq!(pack(dtype).panels.data.as_slice::<u8>(), packed.panels.data.as_slice::<u8>());
            }
            assert_eq!((packed.rows(), packed.columns()), (rows, columns));
        }
    }

    #[test]
    fn panels_hold_each_weight_once_and_zeros_elsewhere() {
        let (rows, columns) = (19, 35);
        let bytes = weight(Dtype::F32, rows, columns);
        let view = TensorView::new(Dtype::F32, rows, columns, &bytes);
        let values = view.to_f32();
        let at = |row: usize, k: usize| if row < rows && k < columns { values[row * columns + k] } else { 0.0 };

        let packed = Packed::new(WeightFormat::F32, view).unwrap();
        let panels = packed.panels.data.as_slice::<f32>();
        assert_eq!(panels.len(), 32 * columns);
        for row in 0..32 {
            for k in 0..columns {
                assert_eq!(panels[row / 16 * 16 * columns + k * 16 + row % 16], at(row, k));
            }
        }

        let packed = Packed::new(WeightFormat::Bf16Pairs, view).unwrap();
        let panels = packed.panels.data.as_slice::<u16>();
        assert_eq!(panels.len(), 32 * 64);
        for row in 0..32 {
            for k in 0..64 {
                let value = panels[row / 16 * 16 * 64 + k / 2 * 32 + row % 16 * 2 + k % 2];
                assert_eq!(half::bf16::from_bits(value).to_f32(), at(row, k));
            }
        }
    }

    #[test]
    fn gate_and_up_take_turns() {
        let (gate, up) = (weight(Dtype::F32, 20, 3), vec![0u8; 20 * 3 * 4]);
        let views = [&gate, &up].map(|bytes| TensorView::new(Dtype::F32, 20, 3, bytes));
        let packed = PackedGateUp::new(WeightFormat::F32, views[0], views[1]).unwrap();
        let panels = packed.panels.data.as_slice::<f32>();
        assert_eq!(panels.len(), 4 * 16 * 3);
        assert_eq!(panels[0], -60.0);
        assert_eq!(panels[48..96], [0.0; 48]);
        assert_eq!(panels[96], views[0].to_f32()[16 * 3]);
    }
}
