//! Weights that are not matrices of products: the embedding table and short vectors.

use demask_tensor::{AlignedBytes, Dtype, OutOfMemory, PackError, TensorView};

use crate::kv::memory;

/// A short f32 vector.
pub struct Vector(AlignedBytes);

impl Vector {
    pub(crate) fn new(values: &[f32]) -> Self {
        let mut bytes = AlignedBytes::zeroed(size_of_val(values));
        bytes.as_mut_slice::<f32>().copy_from_slice(values);
        Self(bytes)
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        self.0.as_slice()
    }
}

/// The embedding table, row-major, in the type that it came in: rows are widened as they are read.
pub struct Embedding {
    bytes: AlignedBytes,
    dtype: Dtype,
    hidden: usize,
    /// Bytes of a row.
    stride: usize,
}

impl Embedding {
    pub(crate) fn new(table: TensorView<'_>) -> Result<Self, PackError> {
        let (rows, hidden, length) = (table.rows(), table.columns(), table.bytes().len());
        let failed = |source| PackError::Memory { rows, columns: hidden, source };
        memory::check(length as u64).map_err(failed)?;
        let mut bytes = AlignedBytes::try_zeroed(length)
            .ok_or_else(|| failed(OutOfMemory { needed: length as u64, available: memory::available() }))?;
        let stride = length / rows.max(1);
        for (row, out) in bytes.as_mut_slice::<u8>().chunks_exact_mut(stride.max(1)).enumerate() {
            out.copy_from_slice(table.row_bytes(row));
        }
        Ok(Self { bytes, dtype: table.dtype(), hidden, stride })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Widens one row.
    pub(crate) fn read(&self, id: u32, out: &mut [f32]) {
        let row = &self.bytes.as_slice::<u8>()[id as usize * self.stride..][..self.stride];
        TensorView::new(self.dtype, 1, self.hidden, row).read_row(0, out);
    }
}
