//! Adapters (LoRA): a source's parts of them, their uses, and their numbers added into a weight.

use std::{num::NonZero, thread};

use demask_step::{OutOfMemory, TokenId};
use demask_tensor::{AlignedBytes, Dtype, PackError, ReadError, StoredTensor, TensorView};

/// Use of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterUse {
    /// Rows that hold this token, the mask, take it. Under causal attention no row of a text depends on it then.
    Masks(TokenId),
    /// All rows take it, beside the products of the weights.
    All,
    /// All rows take it, and it is added into the weights when they are loaded.
    Merged,
}

/// Adapter of one product as it is stored: rows that take it get `scale * b (a x)` beside their product.
#[derive(Clone, Copy)]
pub struct StoredLora<'a> {
    /// `[rank, in]`.
    pub a: StoredTensor<'a>,
    /// `[out, rank]`.
    pub b: StoredTensor<'a>,
    /// Factor of the product.
    pub scale: f32,
}

impl StoredLora<'_> {
    /// Returns the bytes of both matrices.
    pub fn stored_bytes(&self) -> usize {
        self.a.stored_bytes() + self.b.stored_bytes()
    }
}

/// An adapter cannot be added into a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeError {
    /// The weight is stored in integers.
    Integers,
    /// The weight cannot be read, or there is no memory for it.
    Pack(PackError),
}

impl From<ReadError> for MergeError {
    fn from(error: ReadError) -> Self {
        Self::Pack(error.into())
    }
}

/// A weight with an adapter added into it, `[out, in]` in f32.
pub(crate) struct MergedWeight {
    values: AlignedBytes,
    rows: usize,
    columns: usize,
}

impl MergedWeight {
    /// Adds `scale * b a` to a weight, in f32 and on all cores: 2 operations for each number of the weight and each rank.
    ///
    /// # Errors
    /// If the file cannot be read, there is no memory for the weight, or the weight is stored in integers.
    pub(crate) fn new(weight: &StoredTensor<'_>, lora: &StoredLora<'_>) -> Result<Self, MergeError> {
        if let Dtype::Block(_) = weight.dtype() {
            return Err(MergeError::Integers);
        }
        let (rows, columns, rank) = (weight.rows(), weight.columns(), lora.a.rows());
        let needed = rows * columns * size_of::<f32>();
        let memory =
            || PackError::Memory { rows, columns, source: OutOfMemory { needed: needed as u64, available: 0 } };
        let mut values = AlignedBytes::try_zeroed(needed).ok_or_else(|| MergeError::Pack(memory()))?;
        values.as_mut_slice::<f32>().copy_from_slice(&weight.to_f32()?);
        let (a, b) = (lora.a.to_f32()?, lora.b.to_f32()?);
        let share = rows.div_ceil(thread::available_parallelism().map_or(1, NonZero::get)).max(1);
        thread::scope(|scope| {
            let parts = values.as_mut_slice::<f32>().chunks_mut(share * columns).zip(b.chunks(share * rank));
            for (weights, factors) in parts {
                scope.spawn(|| add_products(weights, columns, factors, (&a, lora.scale)));
            }
        });
        Ok(Self { values, rows, columns })
    }

    /// Returns the weight.
    pub(crate) fn view(&self) -> TensorView<'_> {
        TensorView::new(Dtype::F32, self.rows, self.columns, self.values.as_slice())
    }
}

/// Adds `scale * factors[row][i] * a[i]` to each row of the weights, for `i` ascending; rows are `columns` long.
fn add_products(weights: &mut [f32], columns: usize, factors: &[f32], (a, scale): (&[f32], f32)) {
    let rank = a.len() / columns.max(1);
    for (row, factors) in weights.chunks_exact_mut(columns).zip(factors.chunks_exact(rank)) {
        for (factor, a) in factors.iter().zip(a.chunks_exact(columns)) {
            let factor = scale * factor;
            row.iter_mut().zip(a).for_each(|(weight, a)| *weight += factor * a);
        }
    }
}
