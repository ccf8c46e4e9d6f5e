//! Weights that are not matrices of products: the embedding table and short vectors.

use demask_tensor::{AlignedBytes, Dtype, PackError, StoredTensor, TensorView};

use crate::{
    elementwise::{Shared, for_ranges},
    kv::memory,
    linear::{Failure, PART_BYTES, READ_BYTES, activation::round_bf16},
    pool::Pool,
};

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

/// The embedding table, row-major, its numbers as they were stored: rows are read one by one, and widened then. Only f32
/// is rounded to bf16 where products take bf16.
pub struct Embedding {
    bytes: AlignedBytes,
    dtype: Dtype,
    shape: [usize; 2],
}

impl Embedding {
    pub(crate) fn new(pool: &Pool, table: StoredTensor<'_>, products: Dtype) -> Result<Self, PackError> {
        let dtype = kept(table.dtype(), products);
        let (rows, columns) = (table.rows(), table.columns());
        let length = embedding_bytes(table.dtype(), products, rows, columns);
        let failed = |source| PackError::Memory { rows, columns, source };
        memory::check(length as u64).map_err(failed)?;
        let mut bytes = memory::zeroed(length).map_err(failed)?;
        let stride = length / rows.max(1);
        let shared = Shared::new(bytes.as_mut_slice::<u8>());
        let (at_once, failure) = ((READ_BYTES / table.row_bytes().max(1)).max(1), Failure::default());
        for_ranges(pool, rows, length.div_ceil(PART_BYTES).max(pool.threads()), |_, range| {
            let (mut wide, mut scratch) = (vec![0.0; if dtype == table.dtype() { 0 } else { columns }], Vec::new());
            for start in range.clone().step_by(at_once) {
                let rows = start..range.end.min(start + at_once);
                let (part, first) = match table.take(rows.clone(), &mut scratch) {
                    Ok(taken) => taken,
                    Err(error) => return failure.set(error.into()),
                };
                for row in rows {
                    // SAFETY: each row is in one range.
                    let out = unsafe { shared.row(row, stride) };
                    if dtype == table.dtype() {
                        out.copy_from_slice(part.row_bytes(row - first));
                        continue;
                    }
                    part.read_row(row - first, &mut wide);
                    let rounded = wide.iter().map(|&value| round_bf16(value));
                    out.chunks_exact_mut(2).zip(rounded).for_each(|(out, value)| {
                        out.copy_from_slice(&value.to_le_bytes());
                    });
                }
            }
        });
        failure.into_result()?;
        Ok(Self { bytes, dtype, shape: [rows, columns] })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Widens one row.
    pub(crate) fn read(&self, id: u32, out: &mut [f32]) {
        let [rows, columns] = self.shape;
        TensorView::new(self.dtype, rows, columns, self.bytes.as_slice()).read_row(id as usize, out);
    }
}

/// Bytes of a table that is stored in a type, for products of another.
///
/// # Panics
/// If rows are not whole blocks.
pub(crate) fn embedding_bytes(stored: Dtype, products: Dtype, rows: usize, columns: usize) -> usize {
    let row = kept(stored, products).row_bytes(columns);
    rows * row.unwrap_or_else(|| panic!("rows of {columns} are not whole blocks of {stored}"))
}

/// The type that a table is kept in.
fn kept(stored: Dtype, products: Dtype) -> Dtype {
    if stored == Dtype::F32 && products == Dtype::Bf16 { Dtype::Bf16 } else { stored }
}

#[cfg(test)]
mod tests {
    use demask_tensor::BlockFormat;

    use super::*;
    use crate::linear::activation::widen_bf16;

    #[test]
    fn rows_come_back_as_they_were_stored_or_rounded() {
        let (rows, columns) = (37, 512);
        let types = [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().chain(BlockFormat::ALL.map(Dtype::Block));
        for stored in types {
            let length = rows * stored.row_bytes(columns).unwrap();
            // No number is infinite or none: neither exponents nor scales are all ones.
            let bytes: Vec<u8> = (0..length).map(|index| (index * 89 % 61) as u8).collect();
            let table = TensorView::new(stored, rows, columns, &bytes);
            for products in [Dtype::F32, Dtype::Bf16] {
                for threads in [1, 2, 3] {
                    let kept = Embedding::new(&Pool::new(threads), table.into(), products).unwrap();
                    assert_eq!(kept.bytes(), embedding_bytes(stored, products, rows, columns));
                    let (mut found, mut expected) = (vec![0.0; columns], vec![0.0; columns]);
                    for row in 0..rows {
                        kept.read(row as u32, &mut found);
                        table.read_row(row, &mut expected);
                        if stored == Dtype::F32 && products == Dtype::Bf16 {
                            for value in &mut expected {
                                *value = widen_bf16(round_bf16(*value));
                            }
                        }
                        assert_eq!(found, expected, "{stored} for {products}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_floats_of_four_bytes_are_kept_in_fewer() {
        let bytes = |stored, products| embedding_bytes(stored, products, 10, 256);
        assert_eq!(bytes(Dtype::F32, Dtype::F32), 10 * 256 * 4);
        for stored in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            assert_eq!(bytes(stored, Dtype::Bf16), 10 * 256 * 2);
        }
        assert_eq!(bytes(Dtype::Block(BlockFormat::Q4K), Dtype::Bf16), 10 * 144);
    }
}
