//! Memory that a model needs beside its weights, computed before they are loaded.

use demask_step::SequenceLimits;
use demask_tensor::{AttentionShape, PAGE, PageKind, WorkspaceShape};

use crate::{ArchSpec, Mlp, sequence::overlay_pages};

/// Shape of attention in every layer of a model.
pub fn attention_shape(spec: &ArchSpec) -> AttentionShape {
    AttentionShape { heads: spec.heads, kv_heads: spec.kv_heads, head_dim: spec.head_dim }
}

/// The workspace of a model whose joined steps have up to `row_budget` rows, when sequences with these needs are open.
pub fn workspace_shape(spec: &ArchSpec, row_budget: usize, needs: &[SequenceLimits]) -> WorkspaceShape {
    let least = row_budget.max(1);
    let most = |of: fn(&SequenceLimits) -> usize| needs.iter().map(of).fold(least, usize::max);
    WorkspaceShape {
        rows: most(|needs| needs.rows.max(needs.group_rows)),
        head_rows: most(|needs| needs.rows.max(needs.group_rows).max(needs.predictions)),
        hidden: spec.hidden,
        ffn: widest(spec),
        experts: spec.experts.as_ref().map(|experts| experts.shape),
        attention: attention_shape(spec),
        vocabulary: spec.vocabulary,
        table_entries: least.max(needs.iter().map(table_entries).sum()),
        adapter_rank: 0,
    }
}

/// Width of the MLP of layers without experts, if there is such a layer.
fn widest(spec: &ArchSpec) -> usize {
    let dense = (0..spec.layers).any(|layer| matches!(spec.mlp(layer), Mlp::Dense { .. }));
    if dense { spec.ffn } else { 0 }
}

/// Pages that a sequence takes at most, and what they hold.
pub fn sequence_pages(needs: &SequenceLimits) -> (usize, PageKind) {
    (needs.positions.div_ceil(PAGE) + draft_pages(needs), page_kind(needs))
}

/// Pages of a sequence's drafts, which it takes when it is opened.
pub(crate) fn draft_pages(needs: &SequenceLimits) -> usize {
    needs.drafts * overlay_pages(needs)
}

/// Content of a sequence's pages beside K and V.
pub(crate) fn page_kind(needs: &SequenceLimits) -> PageKind {
    PageKind { increments: needs.increments, residual: needs.residual }
}

/// Entries of the page tables of a sequence.
pub(crate) fn table_entries(needs: &SequenceLimits) -> usize {
    needs.positions.div_ceil(PAGE) * needs.drafts.max(1)
}
