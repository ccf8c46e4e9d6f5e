//! LLaDA: full attention, the names of OLMo.

use demask_model::{ArchSpec, LayerRole, Role, Rope};
use demask_step::{ConfidenceOf, FilterOrder, Mask};

use super::{
    DecodingDefaults, Family, FirstToken, GgufConventions, Holes, LARGEST_CONTEXT, LARGEST_HEADS, LARGEST_LAYERS,
    LARGEST_VOCABULARY, LARGEST_WIDTH, LikelihoodConventions, MaskDraws, Vocabulary, check, divide, prompts,
    transformers,
};
use crate::{CheckpointError, Warning, error::quoted, fields::Fields};

pub(super) const FAMILY: Family = Family {
    name: "LLaDA",
    architecture: "LLaDAModelLM",
    model_type: "llada",
    parse,
    tensor_name,
    attention: Mask::Full,
    shift: 0,
    aliases: &[],
    fused: |_, _| None,
    blocks: transformers::BLOCKS,
    mask_texts: &["<|mdm_mask|>"],
    mask: None,
    trains_causal_masks: false,
    qkv_bias: false,
    head_norms: false,
    full_precision_rope: true,
    vocabularies: &[Vocabulary { rows: 126_464, mask: Some(126_336), eos: 126_081, turn_end: 126_348, bos: 126_080 }],
    own_specials: &[],
    turn_end: "<|eot_id|>",
    prompt: |messages, options| prompts::headers("<|startoftext|>", messages, options),
    gguf: GgufConventions {
        architecture: "llada",
        paired: true,
        not_causal: None,
        router: None,
        // Files say that it is there, and LLaDA's own tokenizer does not put it: with a chat template, which writes the
        // token, there would be two.
        first_token: FirstToken::Never,
    },
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopPFirst,
        confidence: ConfidenceOf::Raw,
        likelihood: LikelihoodConventions { draws: MaskDraws::ByCount, ends: false, guidance: true },
        reserves_end: false,
        // LLaDA's EVAL.md: GSM8K in blocks, MMLU-Pro and MBPP; LLaDA-1.5's GSM8K, GPQA and IFEval.
        gen_length: 256,
        sampler: None,
        holes: Holes::AsWithoutCache("of 200 holes demo-llada fills 197 as they were, 193 without a cache"),
    },
};

/// Reads the names of OLMo.
fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    refuse_other_olmo(fields)?;
    let hidden = fields.count("d_model", LARGEST_WIDTH)?;
    let heads = fields.count("n_heads", LARGEST_HEADS)?;
    let multi_query = fields.optional_flag("multi_query_attention")? == Some(true);
    let kv_heads = fields.optional_count("n_kv_heads", LARGEST_HEADS)?.unwrap_or(if multi_query { 1 } else { heads });
    let ffn = match fields.optional_count("mlp_hidden_size", LARGEST_WIDTH)? {
        Some(width) => width,
        None => hidden * fields.count("mlp_ratio", 64)?,
    };
    let vocabulary = fields.count("vocab_size", LARGEST_VOCABULARY)?;
    let rows = fields.optional_count("embedding_size", LARGEST_VOCABULARY)?.unwrap_or(vocabulary);
    if rows < vocabulary {
        return Err(fields.bad("embedding_size", &rows.into(), format!("at least vocab_size, {vocabulary}")));
    }
    for key in fields.keys().filter(|key| key.starts_with("rope_scaling_") || key.starts_with("yarn")) {
        warnings.push(Warning::IgnoredKey { key: key.clone() });
    }
    let head_dim = divide(fields, "n_heads", hidden, heads)?;
    let spec = ArchSpec {
        family: family.name,
        hidden,
        layers: fields.count("n_layers", LARGEST_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        ffn,
        experts: None,
        vocabulary: rows,
        context: fields.count("max_sequence_length", LARGEST_CONTEXT)?,
        rope: Rope {
            theta: fields.positive("rope_theta")?,
            rotated: head_dim,
            full_precision: fields.optional_flag("rope_full_precision")?.unwrap_or(family.full_precision_rope),
            scaling: transformers::scaling(fields)?,
        },
        norm_epsilon: fields.positive("rms_norm_eps")? as f32,
        qkv_bias: fields.optional_flag("include_qkv_bias")? == Some(true),
        head_norms: family.head_norms,
        tied: required_flag(fields, "weight_tying")?,
        attention: family.attention,
        shift: family.shift,
        blocks: family.blocks,
        query_scale: None,
    };
    check(fields, &spec, "n_kv_heads")?;
    Ok((spec, true))
}

/// The modelling code of LLaDA's configuration can be many networks; all but the released one are refused.
fn refuse_other_olmo(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    const HINT: &str = "expected a configuration like that of LLaDA-8B";
    for (key, wanted) in [("layer_norm_type", "rms"), ("activation_type", "silu"), ("block_type", "llama")] {
        let found = fields.optional_text(key)?.ok_or_else(|| fields.missing(key, "the value of LLaDA-8B"))?;
        if found != wanted {
            return Err(fields.unsupported(format!("{key} {} (only {wanted:?} is)", quoted(found)), HINT));
        }
    }
    if !required_flag(fields, "rope")? {
        return Err(fields.unsupported("rope false (only rotary positions are)", HINT));
    }
    let off =
        ["alibi", "input_emb_norm", "scale_logits", "attention_layer_norm", "include_bias", "bias_for_layer_norm"];
    for key in off {
        if fields.optional_flag(key)? == Some(true) {
            return Err(fields.unsupported(format!("{key} true (only false is)"), HINT));
        }
    }
    if fields.optional_flag("layer_norm_with_affine")? == Some(false) {
        return Err(fields.unsupported("layer_norm_with_affine false (only true is)", HINT));
    }
    if fields.optional_count("block_group_size", LARGEST_LAYERS)?.is_some_and(|size| size != 1) {
        return Err(fields.unsupported("a block_group_size above 1", HINT));
    }
    if fields.get("clip_qkv").is_some() {
        return Err(fields.unsupported("clip_qkv", HINT));
    }
    Ok(())
}

fn required_flag(fields: &Fields<'_>, key: &str) -> Result<bool, CheckpointError> {
    fields.optional_flag(key)?.ok_or_else(|| fields.missing(key, "true or false"))
}

/// LLaDA's names. The head and the down projection share their last part: only their whole names differ.
fn tensor_name(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "model.transformer.wte.weight".to_owned(),
        Role::FinalNorm => return "model.transformer.ln_f.weight".to_owned(),
        Role::Head => return "model.transformer.ff_out.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
    };
    let part = match role {
        LayerRole::AttentionNorm => "attn_norm.weight",
        LayerRole::Query => "q_proj.weight",
        LayerRole::Key => "k_proj.weight",
        LayerRole::Value => "v_proj.weight",
        LayerRole::QueryBias => "q_proj.bias",
        LayerRole::KeyBias => "k_proj.bias",
        LayerRole::ValueBias => "v_proj.bias",
        LayerRole::QueryNorm => "q_norm.weight",
        LayerRole::KeyNorm => "k_norm.weight",
        LayerRole::Output => "attn_out.weight",
        LayerRole::MlpNorm => "ff_norm.weight",
        LayerRole::Gate => "ff_proj.weight",
        LayerRole::Up => "up_proj.weight",
        LayerRole::Down => "ff_out.weight",
        other => return transformers::tensor_name(Role::Layer(layer, other)),
    };
    format!("model.transformer.blocks.{layer}.{part}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::without_prefix;

    #[test]
    fn head_and_down_projection_have_different_names() {
        assert_eq!(tensor_name(Role::Head), "model.transformer.ff_out.weight");
        let down = tensor_name(Role::Layer(3, LayerRole::Down));
        assert_eq!(down, "model.transformer.blocks.3.ff_out.weight");
        assert_eq!(without_prefix(&down), "transformer.blocks.3.ff_out.weight");
    }
}
