//! Device memory of models, computed from shapes alone, before anything is loaded.

use demask_tensor::{AttentionShape, Dtype, PageKind, WorkspaceShape};

use super::{
    CudaOptions,
    pages::Layout,
    weights::{MatrixFormat, table_dtype},
    workspace,
};

/// Bytes that the backend of these options takes; as many as there can be where a number has no room.
impl CudaOptions {
    fn kept_bytes(self, stored: [Dtype; 2], rows: usize, columns: usize) -> u64 {
        let kept = MatrixFormat::of(stored, self.dtype, self.quantisation);
        kept.bytes(rows, columns).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// A packed matrix `[rows, columns]` that is stored in a type, exactly.
    pub fn matrix_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> u64 {
        self.kept_bytes([stored; 2], rows, columns)
    }

    /// Name of the format, in a word, in which matrices are kept that are stored in these types and packed together.
    pub fn matrix_format(&self, stored: [Dtype; 2]) -> String {
        MatrixFormat::of(stored, self.dtype, self.quantisation).to_string()
    }

    /// Packed gate and up projections, both `[rows, columns]`, that are stored in two types, exactly.
    pub fn gate_up_bytes(&self, stored: [Dtype; 2], rows: usize, columns: usize) -> u64 {
        self.kept_bytes(stored, rows.saturating_mul(2), columns)
    }

    /// A matrix that scores experts, `[rows, columns]`, exactly.
    pub fn router_bytes(&self, rows: usize, columns: usize) -> u64 {
        MatrixFormat::F32.bytes(rows, columns).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// An embedding table that is stored in a type, exactly.
    pub fn embedding_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> u64 {
        let row = table_dtype(stored, self.dtype).row_bytes(columns);
        row.and_then(|row| row.checked_mul(rows)).map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// A workspace, exactly, but for launches that name more tokens than they have rows.
    pub fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64 {
        workspace::needed(shape, self.dtype)
    }

    /// A page of K/V of all layers, exactly.
    pub fn page_bytes(&self, shape: &AttentionShape, layers: usize, hidden: usize, kind: PageKind) -> u64 {
        Layout { shape: *shape, dtype: self.dtype, layers, hidden }.page(kind) as u64
    }
}
