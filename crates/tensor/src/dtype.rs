//! Element types and views of tensors in memory.

use std::fmt;

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
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// A tensor somewhere in memory: little-endian elements, row-major. The bytes need not be aligned.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    dtype: Dtype,
    shape: [usize; 2],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A matrix `[rows, columns]`; a vector has one row.
    ///
    /// # Panics
    /// If the number of bytes is not that of the shape: readers check it first and say so in their own words.
    pub fn new(dtype: Dtype, rows: usize, columns: usize, bytes: &'a [u8]) -> Self {
        assert_eq!(Some(bytes.len()), rows.checked_mul(columns).and_then(|n| n.checked_mul(dtype.size())));
        Self { dtype, shape: [rows, columns], bytes }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of rows (outputs of a linear layer).
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// Number of columns (inputs of a linear layer).
    pub fn columns(&self) -> usize {
        self.shape[1]
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of one row.
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        let stride = self.shape[1] * self.dtype.size();
        &self.bytes[row * stride..(row + 1) * stride]
    }

    /// Widens one row to f32.
    ///
    /// # Panics
    /// If `out` is not one row long.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.shape[1]);
        widen(self.dtype, self.row_bytes(row), out);
    }

    /// Widens the whole tensor to f32.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.shape[0] * self.shape[1]];
        widen(self.dtype, self.bytes, &mut out);
        out
    }
}

/// Widens little-endian elements to f32.
fn widen(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F32 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            }
        }
        Dtype::F16 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = half::f16::from_le_bytes([raw[0], raw[1]]).to_f32();
            }
        }
        Dtype::Bf16 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes([raw[0], raw[1]])) << 16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
