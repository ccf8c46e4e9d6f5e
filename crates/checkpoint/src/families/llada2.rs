//! LLaDA2.0 and 2.1: blocks, sigmoid scores of groups of experts, an expert that all rows take (specs/families.md#6).

use demask_model::{ArchSpec, Experts, LayerRole, Role};
use demask_step::{Mask, Position};
use demask_tensor::{RouterRule, Score, Share};

use super::{Family, LARGEST_LAYERS, Rows, experts, llada_moe, prompts, sdar, transformers};
use crate::{CheckpointError, Warning, fields::Fields};

/// Block length where the file does not say.
const BLOCK: Position = 32;

/// Most experts that all rows take.
const LARGEST_SHARED: usize = 64;

pub(super) const FAMILY: Family = Family {
    name: "LLaDA2",
    architecture: "LLaDA2MoeModelLM",
    model_type: "llada2_moe",
    aliases: &["llada21_moe"],
    parse,
    tensor_name,
    fused,
    attention: Mask::blocks(BLOCK),
    shift: 0,
    blocks: transformers::BLOCKS,
    mask_texts: &["<|mask|>", "<|mdm_mask|>"],
    mask: Some(llada_moe::MASK),
    head_norms: true,
    turn_end: "<|role_end|>",
    prompt: prompts::roles,
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    ..transformers::CAUSAL
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    refuse_variants(fields)?;
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    spec.experts = Some(read_experts(fields, spec.layers)?);
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}

fn read_experts(fields: &Fields<'_>, layers: usize) -> Result<Experts, CheckpointError> {
    let shared = match fields.optional_number("num_shared_experts")? {
        None | Some(0.0) => 0,
        Some(_) => fields.count("num_shared_experts", LARGEST_SHARED)?,
    };
    let mut shape = experts::shape(fields, "moe_intermediate_size", 0)?;
    shape.shared_ffn = shared * shape.ffn;
    let first = match fields.optional_number("first_k_dense_replace")? {
        None | Some(0.0) => 0,
        Some(_) => fields.count("first_k_dense_replace", LARGEST_LAYERS)?,
    };
    let rule = RouterRule {
        score: Score::Sigmoid,
        groups: experts::groups(fields, &shape)?,
        // One expert alone keeps its score.
        share: if shape.per_row > 1 { Share::OfChosen(1e-20) } else { Share::Whole },
        scale: fields.positive("routed_scaling_factor")? as f32,
    };
    Ok(Experts { shape, rule, biased: true, dense: (0..layers.min(first)).collect() })
}

/// Switches of the modelling code that the released models have off, or on.
fn refuse_variants(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    experts::refuse_other(fields, "score_function", "sigmoid")?;
    experts::refuse_flag(fields, "moe_router_enable_expert_bias", false)?;
    experts::refuse_flag(fields, "use_qk_norm", false)?;
    for key in ["use_qkv_bias", "use_bias", "norm_head"] {
        experts::refuse_flag(fields, key, true)?;
    }
    // LLaDA2.2 routes whole blocks by it.
    experts::refuse_any(fields, "expert_capacity")?;
    // How much of a head is turned is no detail: the class has a default of its own.
    let joined = fields.object("rope_parameters")?;
    let said = joined.is_some_and(|joined| joined.get("partial_rotary_factor").is_some());
    if !said && fields.get("partial_rotary_factor").is_none() {
        return Err(fields.missing("partial_rotary_factor", "the part of each head that is turned, such as 0.5"));
    }
    Ok(())
}

/// Names of transformers, but for attention and the embedding.
fn tensor_name(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "model.word_embeddings.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
        other => return transformers::tensor_name(other),
    };
    let part = match role {
        LayerRole::Query | LayerRole::Key | LayerRole::Value => "query_key_value",
        LayerRole::QueryNorm => "query_layernorm",
        LayerRole::KeyNorm => "key_layernorm",
        LayerRole::Output => "dense",
        other => return transformers::tensor_name(Role::Layer(layer, other)),
    };
    format!("model.layers.{layer}.attention.{part}.weight")
}

/// Rows of all query heads, then of all K heads, then of all V heads, in one tensor.
fn fused(spec: &ArchSpec, role: LayerRole) -> Option<Rows> {
    let (query, kv) = (spec.query_width(), spec.kv_width());
    let first = match role {
        LayerRole::Query => 0,
        LayerRole::Key => query,
        LayerRole::Value => query + kv,
        _ => return None,
    };
    Some(Rows { first, all: query + 2 * kv })
}
