//! Bounds of the numbers of a configuration.

use demask_model::ArchSpec;

use crate::{CheckpointError, fields::Fields};

// No released model comes near these; beyond them a file is damaged, and sizes computed from it could overflow.
pub(crate) const LARGEST_WIDTH: usize = 1 << 20;
pub(crate) const LARGEST_HEADS: usize = 1 << 12;
pub(crate) const LARGEST_HEAD: usize = 1 << 10;
pub(crate) const LARGEST_LAYERS: usize = 1 << 10;
pub(crate) const LARGEST_VOCABULARY: usize = 1 << 24;
pub(crate) const LARGEST_CONTEXT: usize = 1 << 30;

/// Reads the width of a head that no key names.
pub(super) fn divide(fields: &Fields<'_>, key: &str, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
    if !hidden.is_multiple_of(heads) {
        return Err(fields.bad(key, &heads.into(), format!("a divisor of the hidden width {hidden}")));
    }
    Ok(hidden / heads)
}

/// Checks the assumptions of the forward pass. `kv_heads` is the key of the number of K/V heads.
pub(super) fn check(fields: &Fields<'_>, spec: &ArchSpec, kv_heads: &str) -> Result<(), CheckpointError> {
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        let expected = format!("a divisor of the {} query heads", spec.heads);
        return Err(fields.bad(kv_heads, &spec.kv_heads.into(), expected));
    }
    if !spec.head_dim.is_multiple_of(2) || spec.head_dim > LARGEST_HEAD {
        let expected = format!("an even head width of at most {LARGEST_HEAD}");
        return Err(fields.bad("head_dim", &spec.head_dim.into(), expected));
    }
    if spec.ffn > LARGEST_WIDTH {
        return Err(fields.bad("mlp_ratio", &spec.ffn.into(), format!("an MLP of at most {LARGEST_WIDTH} columns")));
    }
    Ok(())
}
