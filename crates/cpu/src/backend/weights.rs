//! Weights that are not matrices of products: the embedding table and short vectors.

use demask_tensor::{AlignedBytes, Dtype, HeldTensor, PackError, ReadError, StoredTensor, TensorView};

use crate::{
    kv::memory,
    linear::activation::{round_bf16, widen_bf16},
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

/// The embedding table. Its rows are read one by one, and widened then; f32 is rounded to bf16 where products take bf16.
pub struct Embedding {
    place: Place,
    shape: [usize; 2],
    round: bool,
}

/// Place of the table's numbers.
enum Place {
    /// The file: an answer reads some hundred rows of hundreds of thousands.
    Held(HeldTensor),
    /// Memory of its own, the numbers as they were stored.
    Copied { bytes: AlignedBytes, dtype: Dtype },
}

impl Embedding {
    pub(crate) fn new(table: StoredTensor<'_>, products: Dtype) -> Result<Self, PackError> {
        let (rows, columns) = (table.rows(), table.columns());
        let place = if let Some(held) = table.hold() {
            // A file that was cut is found out now rather than by a request.
            if let Some(last) = rows.checked_sub(1) {
                held.read_row(last, &mut vec![0; held.row_bytes()], &mut vec![0.0; columns])?;
            }
            Place::Held(held)
        } else {
            let failed = |source| PackError::Memory { rows, columns, source };
            memory::check(table.stored_bytes() as u64).map_err(failed)?;
            let mut bytes = memory::zeroed(table.stored_bytes()).map_err(failed)?;
            let mut scratch = Vec::new();
            let (view, _) = table.take(0..rows, &mut scratch)?;
            let stored = bytes.as_mut_slice::<u8>().chunks_exact_mut(table.row_bytes().max(1));
            stored.enumerate().for_each(|(row, out)| out.copy_from_slice(view.row_bytes(row)));
            Place::Copied { bytes, dtype: table.dtype() }
        };
        let round = table.dtype() == Dtype::F32 && products == Dtype::Bf16;
        Ok(Self { place, shape: [rows, columns], round })
    }

    /// Bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.place {
            Place::Held(_) => 0,
            Place::Copied { bytes, .. } => bytes.len(),
        }
    }

    /// Widens one row; `scratch` has room for a row of f32. Allocates nothing unless it fails.
    pub(crate) fn read(&self, id: u32, scratch: &mut [u8], out: &mut [f32]) -> Result<(), ReadError> {
        let [rows, columns] = self.shape;
        match &self.place {
            Place::Held(held) => held.read_row(id as usize, scratch, out)?,
            Place::Copied { bytes, dtype } => {
                TensorView::new(*dtype, rows, columns, bytes.as_slice()).read_row(id as usize, out);
            }
        }
        if self.round {
            for value in out {
                *value = widen_bf16(round_bf16(*value));
            }
        }
        Ok(())
    }

    /// Refuses a file that was written since it was opened.
    pub(crate) fn check_unwritten(&self) -> Result<(), ReadError> {
        match &self.place {
            Place::Held(held) => held.check_unwritten(),
            Place::Copied { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use demask_tensor::{BlockFormat, Bytes};

    use super::*;

    #[test]
    fn rows_come_back_as_they_were_stored_or_rounded_from_memory_and_from_a_file() {
        let (rows, columns) = (37, 512);
        let types = [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().chain(BlockFormat::ALL.map(Dtype::Block));
        let path = std::env::temp_dir().join(format!("demask-embedding-{}", std::process::id()));
        for stored in types {
            let length = rows * stored.row_bytes(columns).unwrap();
            // No number is infinite or none: neither exponents nor scales are all ones.
            let bytes: Vec<u8> = (0..length).map(|index| (index * 89 % 61) as u8).collect();
            std::fs::write(&path, [&[1; 3][..], &bytes].concat()).unwrap();
            let file = Bytes::file(std::fs::File::open(&path).unwrap(), "m").unwrap();
            let table = TensorView::new(stored, rows, columns, &bytes);
            let there = StoredTensor::new(stored, rows, columns, &file, 3);
            for products in [Dtype::F32, Dtype::Bf16] {
                for (kept, taken) in [(table.into(), length), (there, 0)] {
                    let kept = Embedding::new(kept, products).unwrap();
                    assert_eq!(kept.bytes(), taken, "{stored}");
                    let mut scratch = vec![1; columns * 4];
                    let (mut found, mut expected) = (vec![0.0; columns], vec![0.0; columns]);
                    for row in 0..rows {
                        kept.read(row as u32, &mut scratch, &mut found).unwrap();
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
        std::fs::remove_file(path).unwrap();
    }
}
