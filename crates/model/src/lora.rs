//! Adapters (LoRA) beside the weights, packed, and the rows that take them.

use demask_step::{Operations, TokenId};
use demask_tensor::{Backend, Lora};

use crate::{LayerRole, StoredLora};

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
