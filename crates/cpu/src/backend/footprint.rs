//! Memory of models, computed from shapes alone, before anything is packed.

use demask_tensor::{AttentionShape, Dtype, PageKind, WorkspaceShape};

use super::{CpuOptions, workspace};
use crate::{
    kv::KvStore,
    linear::{Linear, Products},
};

/// Bytes that the backend of these options takes; as many as there can be where a number has no room.
impl CpuOptions {
    /// The products.
    pub(super) fn linear(&self) -> Linear {
        let Self { dtype, quantisation, activations, .. } = *self;
        Linear::with_products(self.isa, Products { dtype, quantisation, activations })
    }

    /// A packed matrix `[rows, columns]` that is stored in a type, exactly.
    pub fn matrix_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> u64 {
        self.linear().packed_bytes(stored, rows, columns).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// Packed gate and up projections, both `[rows, columns]`, that are stored in two types, exactly.
    pub fn gate_up_bytes(&self, stored: [Dtype; 2], rows: usize, columns: usize) -> u64 {
        self.linear().packed_gate_up_bytes(stored, rows, columns).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// A matrix that scores experts, `[rows, columns]`, exactly.
    pub fn router_bytes(&self, rows: usize, columns: usize) -> u64 {
        Linear::new(self.isa, Dtype::F32).packed_bytes(Dtype::F32, rows, columns).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// The embedding table of a file, exactly: none, since rows are read as they are wanted.
    pub fn embedding_bytes(&self, _stored: Dtype, _rows: usize, _columns: usize) -> u64 {
        0
    }

    /// A workspace, roughly from above.
    pub fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64 {
        workspace::needed(shape, self.threads)
    }

    /// A page of K/V of all layers, exactly.
    pub fn page_bytes(&self, shape: &AttentionShape, layers: usize, hidden: usize, kind: PageKind) -> u64 {
        KvStore::new(self.isa, *shape, self.linear().dtype(), layers, hidden).page_bytes(kind) as u64
    }
}
