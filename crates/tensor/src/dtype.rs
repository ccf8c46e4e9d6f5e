//! Element types and views of tensors in memory.

use std::fmt;

use crate::{BlockFormat, widen_f16};

/// Element type of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Brain float: the upper half of an `F32`.
    Bf16,
    /// Quantised numbers in blocks along each row.
    Block(BlockFormat),
}

impl Dtype {
    /// Bytes of one element.
    ///
    /// # Panics
    /// For block formats, whose elements have no bytes of their own: see [`Self::row_bytes`].
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Block(_) => panic!("an element of a block has no size of its own"),
        }
    }

    /// Elements that are stored together: a row has a multiple of it.
    pub const fn granularity(self) -> usize {
        match self {
            Self::Block(format) => format.elements(),
            _ => 1,
        }
    }

    /// Bytes of a row; nothing if it is not a whole number of blocks, or beyond all memory.
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        match self {
            Self::Block(format) if !columns.is_multiple_of(format.elements()) => None,
            Self::Block(format) => (columns / format.elements()).checked_mul(format.bytes()),
            _ => columns.checked_mul(self.size()),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Block(format) => return format.fmt(f),
        })
    }
}

/// Form of a stored matrix, wherever its bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub dtype: Dtype,
    pub rows: usize,
    pub columns: usize,
    /// Bytes of a row.
    pub stride: usize,
    /// Width of heads whose rows are stored in pairs; 0 for rows in order.
    pub paired: usize,
}

impl Form {
    /// A matrix with its rows in order, and the number of its bytes.
    ///
    /// # Panics
    /// If rows are not whole blocks, or it is beyond all memory.
    pub fn new(dtype: Dtype, rows: usize, columns: usize) -> (Self, usize) {
        let stride = dtype.row_bytes(columns).expect("rows are whole blocks");
        let length = stride.checked_mul(rows).expect("a tensor is within memory");
        (Self { dtype, rows, columns, stride, paired: 0 }, length)
    }

    /// The same bytes with the rows of each head in pairs: see [`TensorView::unpaired`].
    ///
    /// # Panics
    /// If the rows are not whole heads of even width.
    pub fn unpaired(self, head_dim: usize) -> Self {
        assert!(head_dim > 0 && head_dim.is_multiple_of(2) && self.rows.is_multiple_of(head_dim));
        Self { paired: head_dim, ..self }
    }

    /// The place of a row among the stored ones.
    #[inline(always)]
    pub fn place(&self, row: usize) -> usize {
        if self.paired == 0 {
            return row;
        }
        let (head, row, half) = (row / self.paired, row % self.paired, self.paired / 2);
        head * self.paired + row % half * 2 + row / half
    }
}

/// A tensor somewhere in memory: little-endian elements, row-major. The bytes need not be aligned.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    pub(crate) form: Form,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A matrix `[rows, columns]`; a vector has one row.
    ///
    /// # Panics
    /// If the number of bytes is not the shape's: readers check it first and say so in their own words.
    pub fn new(dtype: Dtype, rows: usize, columns: usize, bytes: &'a [u8]) -> Self {
        let (form, length) = Form::new(dtype, rows, columns);
        assert_eq!(bytes.len(), length);
        Self { form, bytes }
    }

    /// Reads the matrix as it was before the rows of each head of `head_dim` were put in pairs: stored row
    /// `2 * i + half` of a head is its row `half * head_dim / 2 + i`. Rotations of neighbours want that order; the
    /// engine rotates halves.
    ///
    /// # Panics
    /// If the rows are not whole heads of even width.
    pub fn unpaired(self, head_dim: usize) -> Self {
        Self { form: self.form.unpaired(head_dim), ..self }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.form.dtype
    }

    /// Number of rows (outputs of a linear layer).
    pub fn rows(&self) -> usize {
        self.form.rows
    }

    /// Number of columns (inputs of a linear layer).
    pub fn columns(&self) -> usize {
        self.form.columns
    }

    /// The stored bytes, rows in stored order.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of one row: whole blocks for block formats.
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        let (row, stride) = (self.form.place(row), self.form.stride);
        &self.bytes[row * stride..(row + 1) * stride]
    }

    /// Widens one row to f32.
    ///
    /// # Panics
    /// If `out` is not one row long.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns());
        self.read_part(row, 0, out);
    }

    /// Widens the columns of one row from `start` on to f32, as many as `out` has. Parts of blocks are not read alone.
    ///
    /// # Panics
    /// If the row ends before, or a block does not begin at `start` or end with `out`.
    #[inline(always)]
    pub fn read_part(&self, row: usize, start: usize, out: &mut [f32]) {
        let dtype = self.dtype();
        let bytes = |columns| dtype.row_bytes(columns).unwrap_or_else(|| panic!("column {columns} is in a block"));
        widen(dtype, &self.row_bytes(row)[bytes(start)..][..bytes(out.len())], out);
    }

    /// Widens the whole tensor to f32.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.rows() * self.columns()];
        for (row, out) in out.chunks_exact_mut(self.columns().max(1)).enumerate() {
            self.read_row(row, out);
        }
        out
    }
}

/// Widens little-endian elements to f32.
#[inline(always)]
fn widen(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F32 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            }
        }
        Dtype::F16 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = widen_f16(u16::from_le_bytes([raw[0], raw[1]]));
            }
        }
        Dtype::Bf16 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes([raw[0], raw[1]])) << 16);
            }
        }
        Dtype::Block(format) => format.widen(bytes, out),
    }
}

/// Rounds to bf16: nearest, ties to even; a NaN stays one.
#[inline(always)]
pub fn round_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}

/// The f32 of the same value.
#[inline(always)]
pub fn widen_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance of the numbers that tests of all numbers take: Miri takes minutes for all.
    const STRIDE: usize = if cfg!(miri) { 501 } else { 1 };

    #[test]
    fn bf16_rounding_agrees_with_a_second_implementation() {
        for step in (0..=u16::MAX).step_by(STRIDE) {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(step) << 16 | low);
                let other = half::bf16::from_f32(x);
                assert!(round_bf16(x) == other.to_bits() || other.is_nan() && widen_bf16(round_bf16(x)).is_nan());
            }
        }
    }

    #[test]
    fn every_half_widens_exactly() {
        for bits in (0..=u16::MAX).step_by(STRIDE) {
            let (expected, found) = (half::f16::from_bits(bits).to_f32(), widen_f16(bits));
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn every_dtype_widens_exactly() {
        let values = [1.5f32, -2.0, 0.0, 3.25];
        let f32_bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let f16_bytes: Vec<u8> = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
        let bf16_bytes: Vec<u8> = values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect();
        for (dtype, bytes) in [(Dtype::F32, f32_bytes), (Dtype::F16, f16_bytes), (Dtype::Bf16, bf16_bytes)] {
            let view = TensorView::new(dtype, 2, 2, &bytes);
            assert_eq!(view.to_f32(), values);
            let mut row = [0.0; 2];
            view.read_row(1, &mut row);
            assert_eq!(row, values[2..]);
        }
    }

    #[test]
    fn paired_rows_are_read_as_halves() {
        // Two heads of four rows; each number tells where the row belongs.
        let stored: Vec<u8> = [0, 2, 1, 3, 4, 6, 5, 7].iter().flat_map(|&row| (row as f32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, 8, 1, &stored).unpaired(4);
        assert_eq!(view.to_f32(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(view.row_bytes(1), 1f32.to_le_bytes());
    }

    #[test]
    fn rows_of_blocks_are_whole_blocks() {
        let dtype = Dtype::Block(BlockFormat::Q8_0);
        assert_eq!((dtype.row_bytes(64), dtype.row_bytes(65)), (Some(68), None));
        assert_eq!(Dtype::Bf16.row_bytes(usize::MAX), None);
    }
}
