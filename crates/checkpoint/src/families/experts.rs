//! Experts in configuration files: their number, and the rule by which rows choose among them (specs/families.md#6).

use demask_model::Experts;
use demask_tensor::{ExpertGroups, ExpertShape, RouterRule, Score, Share};
use serde_json::Value;

use super::LARGEST_WIDTH;
use crate::{CheckpointError, error::quoted, fields::Fields, header::MOST_TENSORS};

/// Most experts of a layer: four times those of the largest releases.
pub(crate) const LARGEST_EXPERTS: usize = 1 << 12;

/// Most experts of all layers together: as many as a checkpoint may have tensors for.
const MOST_EXPERTS: usize = MOST_TENSORS / 3;

/// Returns the mistake in the numbers of experts and layers, if there is one.
pub(crate) fn too_many(experts: usize, layers: usize) -> Option<String> {
    let most = MOST_EXPERTS / layers.max(1);
    (experts > most).then(|| format!("at most {most} experts in each of {layers} layers"))
}

/// Advice about a router that nothing computes.
const HINT: &str = "use a checkpoint as released by its authors";

/// Reads the number of experts, how many a row takes, and their width by its key; `shared` is the width of the one that
/// all rows take.
pub(super) fn shape(fields: &Fields<'_>, ffn: &str, shared: usize) -> Result<ExpertShape, CheckpointError> {
    let count = match fields.optional_count("num_experts", LARGEST_EXPERTS)? {
        Some(count) => count,
        None => match fields.optional_count("num_local_experts", LARGEST_EXPERTS)? {
            Some(count) => count,
            None => return Err(fields.missing("num_experts", "the number of experts of a layer")),
        },
    };
    let taken = fields.count("num_experts_per_tok", LARGEST_EXPERTS)?;
    if taken > count {
        return Err(fields.bad("num_experts_per_tok", &taken.into(), format!("at most num_experts, {count}")));
    }
    Ok(ExpertShape { count, per_row: taken, ffn: fields.count(ffn, LARGEST_WIDTH)?, shared_ffn: shared })
}

/// Softmax over all experts; the chosen ones' weights as they are, or divided by their sum.
pub(super) const fn softmax(renormalised: bool) -> RouterRule {
    let share = if renormalised { Share::OfChosen(0.0) } else { Share::Whole };
    RouterRule { score: Score::Softmax, groups: None, share, scale: 1.0 }
}

/// Reads the experts of Qwen3-MoE's configuration, which SDAR and RND1 share.
pub(super) fn of_qwen3(fields: &Fields<'_>, layers: usize) -> Result<Experts, CheckpointError> {
    let shape = shape(fields, "moe_intermediate_size", 0)?;
    // The class's own default is false, and that of all released files true: nobody shall guess.
    let renormalised = fields.optional_flag("norm_topk_prob")?;
    let renormalised = renormalised.ok_or_else(|| fields.missing("norm_topk_prob", "true or false"))?;
    let every = fields.optional_count("decoder_sparse_step", super::LARGEST_LAYERS)?.unwrap_or(1);
    let named = listed(fields, "mlp_only_layers")?.unwrap_or_default();
    let dense = (0..layers).filter(|layer| named.contains(layer) || !(layer + 1).is_multiple_of(every)).collect();
    Ok(Experts { shape, rule: softmax(renormalised), biased: false, dense })
}

/// Reads how groups of experts are kept.
pub(super) fn groups(fields: &Fields<'_>, shape: &ExpertShape) -> Result<Option<ExpertGroups>, CheckpointError> {
    let count = fields.count("n_group", LARGEST_EXPERTS)?;
    let kept = fields.count("topk_group", LARGEST_EXPERTS)?;
    if !shape.count.is_multiple_of(count) || shape.count / count < 2 {
        let expected = format!("a divisor of the {} experts with two of them in a group at least", shape.count);
        return Err(fields.bad("n_group", &count.into(), expected));
    }
    if kept > count || kept * (shape.count / count) < shape.per_row {
        let expected = format!("at most n_group, {count}, and groups with {} experts at least", shape.per_row);
        return Err(fields.bad("topk_group", &kept.into(), expected));
    }
    Ok((count > 1).then_some(ExpertGroups { count, selected: kept }))
}

/// Reads a list of small whole numbers, or nothing.
pub(super) fn listed(fields: &Fields<'_>, key: &str) -> Result<Option<Vec<usize>>, CheckpointError> {
    let Some(value) = fields.get(key) else { return Ok(None) };
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let list = value.as_array().and_then(|list| list.iter().map(number).collect::<Option<Vec<_>>>());
    list.map(Some).ok_or_else(|| fields.bad(key, value, "a list of whole numbers"))
}

/// Refuses a switch that is not as it is released.
pub(super) fn refuse_flag(fields: &Fields<'_>, key: &str, refused: bool) -> Result<(), CheckpointError> {
    if fields.optional_flag(key)? == Some(refused) {
        return Err(fields.unsupported(format!("{key} {refused} (only {} is)", !refused), HINT));
    }
    Ok(())
}

/// Refuses a word other than the released one.
pub(super) fn refuse_other(fields: &Fields<'_>, key: &str, wanted: &str) -> Result<(), CheckpointError> {
    if let Some(found) = fields.optional_text(key)?.filter(|found| *found != wanted) {
        return Err(fields.unsupported(format!("{key} {} (only {wanted:?} is)", quoted(found)), HINT));
    }
    Ok(())
}

/// Refuses a value where released files have none.
pub(super) fn refuse_any(fields: &Fields<'_>, key: &str) -> Result<(), CheckpointError> {
    match fields.get(key) {
        None => Ok(()),
        Some(found) => Err(fields.unsupported(format!("{key} {} (only null is)", quoted(&found.to_string())), HINT)),
    }
}

/// Refuses a number above 0, where one of that sign or none means that there is no such thing.
pub(super) fn refuse_positive(fields: &Fields<'_>, key: &str) -> Result<(), CheckpointError> {
    match fields.optional_number(key)?.filter(|number| *number > 0.0) {
        None => Ok(()),
        Some(found) => Err(fields.unsupported(format!("{key} {found} (only none is)"), HINT)),
    }
}
