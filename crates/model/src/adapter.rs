//! Adapters (LoRA): what a source has of them, the rows that they change, and their numbers added into a weight.

use std::{num::NonZero, thread};

use demask_step::{Operations, OutOfMemory, TokenId};
use demask_tensor::{AlignedBytes, Backend, Dtype, Lora, PackError, ReadError, StoredTensor, TensorView};

use crate::{LayerRole, LoadError, Role};

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
    /// Factor of what is added.
    pub scale: f32,
}

impl StoredLora<'_> {
    /// Returns the bytes of both matrices.
    pub fn stored_bytes(&self) -> usize {
        self.a.stored_bytes() + self.b.stored_bytes()
    }
}

/// Packed adapter of one product.
pub(crate) struct PackedLora<B: Backend> {
    pub(crate) a: B::Matrix,
    pub(crate) b: B::Matrix,
    pub(crate) scale: f32,
}

impl<B: Backend> PackedLora<B> {
    pub(crate) fn weights(&self) -> Lora<'_, B> {
        Lora { a: &self.a, b: &self.b, scale: self.scale }
    }
}

/// Packed adapters of the products of a layer.
pub(crate) struct LayerAdapters<B: Backend> {
    pub(crate) qkv: [Option<PackedLora<B>>; 3],
    pub(crate) output: Option<PackedLora<B>>,
    pub(crate) gate_up: [Option<PackedLora<B>>; 2],
    pub(crate) down: Option<PackedLora<B>>,
}

/// Packed adapters of a model, without those that are merged.
pub(crate) struct ModelAdapter<B: Backend> {
    /// One per layer.
    pub(crate) layers: Vec<LayerAdapters<B>>,
    pub(crate) rows: AdapterRows,
}

/// Rows that take an adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AdapterRows {
    /// Token whose rows take it; none: all rows.
    pub(crate) token: Option<TokenId>,
    /// Largest rank.
    pub(crate) rank: usize,
    /// Operations of a row that takes it, in all layers.
    pub(crate) operations: Operations,
}

impl AdapterRows {
    /// Reports whether a row that holds a token takes it.
    pub(crate) fn takes(&self, held: TokenId) -> bool {
        self.token.is_none_or(|token| token == held)
    }

    /// Counts the adapter of one product.
    pub(crate) fn count(&mut self, role: LayerRole, lora: &StoredLora<'_>) {
        let numbers = lora.a.rows() * lora.a.columns() + lora.b.rows() * lora.b.columns();
        let counter = if role.is_mlp() { &mut self.operations.mlp } else { &mut self.operations.projections };
        *counter += 2.0 * numbers as f64;
        self.rank = self.rank.max(lora.a.rows());
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
    pub(crate) fn new(role: Role, weight: &StoredTensor<'_>, lora: &StoredLora<'_>) -> Result<Self, LoadError> {
        if let Dtype::Block(_) = weight.dtype() {
            return Err(LoadError::MergeIntoIntegers { role });
        }
        let failed = |source: ReadError| LoadError::Pack { role, source: source.into() };
        let (rows, columns, rank) = (weight.rows(), weight.columns(), lora.a.rows());
        let memory = || LoadError::Pack {
            role,
            source: PackError::Memory {
                rows,
                columns,
                source: OutOfMemory { needed: (rows * columns * 4) as u64, available: 0 },
            },
        };
        let mut values = AlignedBytes::try_zeroed(rows * columns * size_of::<f32>()).ok_or_else(memory)?;
        values.as_mut_slice::<f32>().copy_from_slice(&weight.to_f32().map_err(failed)?);
        let (a, b) = (lora.a.to_f32().map_err(failed)?, lora.b.to_f32().map_err(failed)?);
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
