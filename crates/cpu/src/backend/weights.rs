//! Weights that are not matrices of products: the embedding table and short vectors.

use demask_tensor::{AlignedBytes, Dtype, OutOfMemory, PackError, TensorView};

use crate::{kv::memory, linear::activation::widen_bf16};

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

/// The embedding table, row-major; kept in bf16 where it came so and products are in bf16, else in f32.
pub struct Embedding {
    bytes: AlignedBytes,
    dtype: Dtype,
    hidden: usize,
}

impl Embedding {
    pub(crate) fn new(table: TensorView<'_>, products: Dtype) -> Result<Self, PackError> {
        let keep = table.dtype() == Dtype::Bf16 && products == Dtype::Bf16;
        let dtype = if keep { Dtype::Bf16 } else { Dtype::F32 };
        let (rows, hidden) = (table.rows(), table.columns());
        let length = rows * hidden * dtype.size();
        let failed = |source| PackError::Memory { rows, columns: hidden, source };
        memory::check(length as u64).map_err(failed)?;
        let mut bytes = AlignedBytes::try_zeroed(length)
            .ok_or_else(|| failed(OutOfMemory { needed: length as u64, available: memory::available() }))?;
        if keep {
            for (value, raw) in bytes.as_mut_slice::<u16>().iter_mut().zip(table.bytes().chunks_exact(2)) {
                *value = u16::from_le_bytes([raw[0], raw[1]]);
            }
        } else {
            let values = bytes.as_mut_slice::<f32>();
            (0..rows).for_each(|row| table.read_row(row, &mut values[row * hidden..(row + 1) * hidden]));
        }
        Ok(Self { bytes, dtype, hidden })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Widens one row.
    pub(crate) fn read(&self, id: u32, out: &mut [f32]) {
        let range = id as usize * self.hidden..(id as usize + 1) * self.hidden;
        if self.dtype == Dtype::Bf16 {
            let row = &self.bytes.as_slice::<u16>()[range];
            out.iter_mut().zip(row).for_each(|(out, &value)| *out = widen_bf16(value));
        } else {
            out.copy_from_slice(&self.bytes.as_slice::<f32>()[range]);
        }
    }
}
