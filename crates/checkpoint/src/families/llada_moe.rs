//! LLaDA-MoE: full attention, the names of transformers, weights of experts that do not add up to 1
//! (specs/families.md#6).

use demask_model::{ArchSpec, Experts};
use demask_step::Mask;
use serde_json::Value;

use super::{DecodingDefaults, Family, GgufConventions, LARGEST_WIDTH, experts, llada, prompts, transformers};
use crate::{CheckpointError, Warning, fields::Fields};

pub(crate) const FAMILY: Family = Family {
    name: "LLaDA-MoE",
    architecture: "LLaDAMoEModelLM",
    model_type: "lladamoe",
    aliases: &["LLaDAMoEModel", "llada_moe"],
    parse,
    attention: Mask::Full,
    shift: 0,
    mask_texts: llada::FAMILY.mask_texts,
    mask: Some(MASK),
    head_norms: true,
    turn_end: "<|role_end|>",
    prompt: prompts::roles,
    gguf: GgufConventions {
        architecture: "llada-moe",
        paired: false,
        router: Some(experts::softmax(false)),
        ..llada::FAMILY.gguf
    },
    // The model's card.
    decoding: DecodingDefaults { gen_length: 128, ..llada::FAMILY.decoding },
    ..transformers::CAUSAL
};

/// Mask of the released vocabulary, which no file names.
pub(super) const MASK: u32 = 156_895;

fn parse(fields: &Fields<'_>, family: &Family, _: &mut Vec<Warning>) -> Result<(ArchSpec, bool), CheckpointError> {
    refuse_variants(fields)?;
    let missing = |_| Err(fields.missing("num_key_value_heads", "a positive whole number"));
    let (mut spec, says_tied) = transformers::parse_with(fields, family, "dense_intermediate_size", missing)?;
    let shape = experts::shape(fields, "expert_intermediate_size", 0)?;
    let dense = dense(fields, spec.layers)?;
    spec.experts = Some(Experts { shape, rule: experts::softmax(false), biased: false, dense });
    Ok((spec, says_tied))
}

/// Layers without experts.
fn dense(fields: &Fields<'_>, layers: usize) -> Result<Vec<usize>, CheckpointError> {
    const KEY: &str = "moe_layer_freq";
    let Some(kinds) = experts::listed(fields, KEY)? else { return Ok(Vec::new()) };
    if kinds.len() < layers || kinds.iter().any(|kind| *kind > 1) {
        let found = format!("{} values", kinds.len());
        return Err(fields.bad(KEY, &Value::from(found), format!("0 or 1 for each of the {layers} layers")));
    }
    Ok((0..layers).filter(|&layer| kinds[layer] == 0).collect())
}

/// Switches of the modelling code that the released model has off, or on.
fn refuse_variants(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    experts::refuse_flag(fields, "moe_router_enable_expert_bias", true)?;
    experts::refuse_flag(fields, "qk_layernorm", false)?;
    experts::refuse_other(fields, "moe_router_score_function", "softmax")?;
    experts::refuse_any(fields, "shared_expert_intermediate_size")?;
    experts::refuse_any(fields, "clip_qkv")?;
    experts::refuse_positive(fields, "router_num_group")?;
    experts::refuse_positive(fields, "router_topk_group")?;
    if fields.optional_count("dense_intermediate_size", LARGEST_WIDTH)?.is_none() {
        return Err(fields.missing("dense_intermediate_size", "a positive whole number"));
    }
    Ok(())
}
