//! From the words of each family's `config.json` to an [`ArchSpec`]. What the engine does not compute is refused here,
//! never ignored: a wrong answer would look like a bad model.

use demask_model::{ArchSpec, Family, Rope, RopeScaling};
use demask_step::{Mask, Position};
use serde_json::Value;

use crate::{
    CheckpointError, Warning,
    config::{Fields, ModelConfig},
    error::shown,
};

/// Names of the architectures that are read, as `architectures` in `config.json` has them.
pub const KNOWN_ARCHITECTURES: &[&str] =
    &["LLaDAModelLM", "DreamModel", "SDARForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM"];

/// Families beside [`KNOWN_ARCHITECTURES`], and the `model_type` that stands in when `architectures` is absent.
const FAMILIES: &[(&str, &str, Family)] = &[
    ("LLaDAModelLM", "llada", Family::Llada),
    ("DreamModel", "Dream", Family::Dream),
    ("SDARForCausalLM", "sdar", Family::Sdar),
    ("Qwen2ForCausalLM", "qwen2", Family::Qwen2),
    ("Qwen3ForCausalLM", "qwen3", Family::Qwen3),
    ("LlamaForCausalLM", "llama", Family::Llama),
];

/// Mixture-of-experts relatives that share names with the dense models and must not be taken for them.
const MIXTURES: &[&str] = &["LLaDAMoEModelLM", "LLaDAMoEModel", "LLaDA2MoeModelLM", "llada_moe", "llada2_moe"];

/// Block length of SDAR where the file does not say: that of the released checkpoints without a suffix.
pub(crate) const SDAR_BLOCK: Position = 4;

// No released model comes near these; beyond them a file is damaged, and sizes computed from it could overflow.
pub(crate) const LARGEST_WIDTH: usize = 1 << 20;
pub(crate) const LARGEST_HEADS: usize = 1 << 12;
pub(crate) const LARGEST_HEAD: usize = 1 << 10;
pub(crate) const LARGEST_LAYERS: usize = 1 << 10;
pub(crate) const LARGEST_VOCABULARY: usize = 1 << 24;
pub(crate) const LARGEST_CONTEXT: usize = 1 << 30;

/// Reads the configuration of whatever family it is.
pub(crate) fn parse(fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    let family = family(fields)?;
    refuse_quantised(fields)?;
    let mut warnings = Vec::new();
    let (spec, says_tied) = match family {
        Family::Llada => (llada(fields, &mut warnings)?, true),
        _ => hugging_face(fields, family)?,
    };
    check(fields, &spec)?;
    Ok(ModelConfig { spec, says_tied, tokens: fields.token_ids()?, warnings })
}

/// `architectures[0]` decides; `model_type` only where it is absent, for LLaDA and LLaDA-MoE share theirs.
fn family(fields: &Fields<'_>) -> Result<Family, CheckpointError> {
    let architecture = match fields.get("architectures") {
        Some(Value::Array(list)) => list.first(),
        other => other,
    };
    let key = if architecture.is_some() { "architectures" } else { "model_type" };
    let value = architecture.or_else(|| fields.get("model_type"));
    let value = value.ok_or_else(|| fields.missing("architectures", "a list with the name of the architecture"))?;
    let name = value.as_str().ok_or_else(|| fields.bad(key, value, "the name of an architecture"))?;
    let mixture = MIXTURES.contains(&name) || (name == "llada" && fields.get("num_experts").is_some());
    if mixture {
        let what = format!("the mixture-of-experts architecture {}", shown(name));
        return Err(fields.unsupported(what, "use a dense model, such as LLaDA-8B"));
    }
    let found = FAMILIES.iter().find(|(known, model_type, _)| {
        if key == "architectures" { *known == name } else { model_type.eq_ignore_ascii_case(name) }
    });
    found.map(|(_, _, family)| *family).ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: fields.file().to_owned(),
        found: shown(name),
        known: KNOWN_ARCHITECTURES.join(", "),
    })
}

fn refuse_quantised(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    for key in ["quantization_config", "quantization"] {
        if let Some(inner) = fields.object(key)? {
            let method = inner.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
            let what = format!("a checkpoint quantised by the method {}", shown(method));
            return Err(fields.unsupported(what, "use the unquantised checkpoint and quantise at load"));
        }
    }
    Ok(())
}

/// LLaDA: the names of OLMo.
fn llada(fields: &Fields<'_>, warnings: &mut Vec<Warning>) -> Result<ArchSpec, CheckpointError> {
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
    Ok(ArchSpec {
        family: Family::Llada,
        hidden,
        layers: fields.count("n_layers", LARGEST_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocabulary: rows,
        context: fields.count("max_sequence_length", LARGEST_CONTEXT)?,
        rope: Rope {
            theta: fields.positive("rope_theta")?,
            rotated: head_dim,
            full_precision: fields.optional_flag("rope_full_precision")?.unwrap_or(true),
            scaling: scaling(fields)?,
        },
        norm_epsilon: fields.positive("rms_norm_eps")? as f32,
        qkv_bias: fields.optional_flag("include_qkv_bias")? == Some(true),
        head_norms: false,
        tied: required_flag(fields, "weight_tying")?,
        attention: Mask::Full,
        shift: 0,
    })
}

/// The modelling code behind LLaDA's configuration can be many networks; all but the released one are refused.
fn refuse_other_olmo(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    const HINT: &str = "expected a configuration like that of LLaDA-8B";
    for (key, wanted) in [("layer_norm_type", "rms"), ("activation_type", "silu"), ("block_type", "llama")] {
        let found = fields.optional_text(key)?.ok_or_else(|| fields.missing(key, "the value of LLaDA-8B"))?;
        if found != wanted {
            return Err(fields.unsupported(format!("{key} {} (only {wanted:?} is)", shown(found)), HINT));
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

/// All other families: the names of transformers.
fn hugging_face(fields: &Fields<'_>, family: Family) -> Result<(ArchSpec, bool), CheckpointError> {
    refuse_variants(fields, family)?;
    let hidden = fields.count("hidden_size", LARGEST_WIDTH)?;
    let heads = fields.count("num_attention_heads", LARGEST_HEADS)?;
    let kv_heads = match fields.optional_count("num_key_value_heads", LARGEST_HEADS)? {
        Some(kv_heads) => kv_heads,
        None if family == Family::Llama => heads,
        None => return Err(fields.missing("num_key_value_heads", "a positive whole number")),
    };
    let head_dim = match fields.optional_count("head_dim", LARGEST_HEAD)? {
        Some(head_dim) => head_dim,
        None => divide(fields, "num_attention_heads", hidden, heads)?,
    };
    let context = fields.count("max_position_embeddings", LARGEST_CONTEXT)?;
    let tied = fields.optional_flag("tie_word_embeddings")?;
    let spec = ArchSpec {
        family,
        hidden,
        layers: fields.count("num_hidden_layers", LARGEST_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        ffn: fields.count("intermediate_size", LARGEST_WIDTH)?,
        vocabulary: fields.count("vocab_size", LARGEST_VOCABULARY)?,
        context,
        rope: rope(fields, head_dim)?,
        norm_epsilon: fields.positive("rms_norm_eps")? as f32,
        qkv_bias: matches!(family, Family::Dream | Family::Qwen2),
        head_norms: matches!(family, Family::Sdar | Family::Qwen3),
        tied: tied.unwrap_or(false),
        attention: attention(fields, family)?,
        shift: usize::from(family != Family::Sdar),
    };
    Ok((spec, tied.is_some()))
}

fn attention(fields: &Fields<'_>, family: Family) -> Result<Mask, CheckpointError> {
    Ok(match family {
        Family::Dream => Mask::Full,
        Family::Sdar => {
            let block = fields.optional_count("block_size", 1 << 16)?;
            Mask::BlockCausal { block: block.map_or(SDAR_BLOCK, |block| block as Position) }
        }
        _ => Mask::Causal,
    })
}

/// Switches of the shared modelling code that none of the families has on.
fn refuse_variants(fields: &Fields<'_>, family: Family) -> Result<(), CheckpointError> {
    const HINT: &str = "use a checkpoint as released by its authors";
    if let Some(found) = fields.optional_text("hidden_act")?
        && !matches!(found, "silu" | "swish")
    {
        return Err(fields.unsupported(format!("hidden_act {} (only \"silu\" is)", shown(found)), HINT));
    }
    if fields.optional_flag("use_sliding_window")? == Some(true) && fields.get("sliding_window").is_some() {
        return Err(fields.unsupported("a sliding window", HINT));
    }
    if let Some(Value::Array(kinds)) = fields.get("layer_types")
        && let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err(fields.unsupported(format!("a layer of type {}", shown(&kind.to_string())), HINT));
    }
    // Dream and Qwen2 have biases on q, k and v by construction; in the others the key also means one on the output.
    let biased = !matches!(family, Family::Dream | Family::Qwen2);
    for (key, applies) in [("attention_bias", biased), ("mlp_bias", true), ("use_mrope", true)] {
        if applies && fields.optional_flag(key)? == Some(true) {
            return Err(fields.unsupported(format!("{key} true (only false is)"), HINT));
        }
    }
    Ok(())
}

/// Rotation as `rope_theta` and `rope_scaling`, or as the one object `rope_parameters` that replaces both.
fn rope(fields: &Fields<'_>, head_dim: usize) -> Result<Rope, CheckpointError> {
    let joined = fields.object("rope_parameters")?;
    let joined = joined.as_ref();
    let theta = match joined {
        Some(inner) if inner.get("rope_theta").is_some() => inner.positive("rope_theta")?,
        _ => fields.positive("rope_theta")?,
    };
    let factor = match joined.map(|inner| inner.optional_number("partial_rotary_factor")).transpose()?.flatten() {
        Some(factor) => Some(factor),
        None => fields.optional_number("partial_rotary_factor")?,
    };
    let factor = factor.unwrap_or(1.0);
    let rotated = (head_dim as f64 * factor) as usize;
    if !(2..=head_dim).contains(&rotated) || rotated % 2 == 1 {
        return Err(fields.bad(
            "partial_rotary_factor",
            &factor.into(),
            "a fraction that rotates an even part of a head",
        ));
    }
    let scaling = match joined {
        Some(inner) if inner.get("rope_type").is_some() => scaling_of(inner)?,
        _ => scaling(fields)?,
    };
    Ok(Rope { theta, rotated, full_precision: false, scaling })
}

fn scaling(fields: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    fields.object("rope_scaling")?.map_or(Ok(RopeScaling::None), |inner| scaling_of(&inner))
}

fn scaling_of(inner: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    let kind = match inner.optional_text("rope_type")? {
        Some(kind) => Some(kind),
        None => inner.optional_text("type")?,
    };
    match kind {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: inner.positive("factor")? }),
        Some("llama3") => llama3_scaling(inner),
        Some(other) => Err(inner.unsupported(
            format!("rope scaling {}", shown(other)),
            "expected none, \"linear\" or \"llama3\"; set it to null to stay within the original context",
        )),
    }
}

fn llama3_scaling(inner: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    let low = inner.positive("low_freq_factor")?;
    let high = inner.positive("high_freq_factor")?;
    if high <= low {
        return Err(inner.bad("high_freq_factor", &high.into(), format!("more than low_freq_factor, {low}")));
    }
    let original_context = inner.positive("original_max_position_embeddings")?;
    Ok(RopeScaling::Llama3 { factor: inner.positive("factor")?, low, high, original_context })
}

fn required_flag(fields: &Fields<'_>, key: &str) -> Result<bool, CheckpointError> {
    fields.optional_flag(key)?.ok_or_else(|| fields.missing(key, "true or false"))
}

fn divide(fields: &Fields<'_>, key: &str, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
    if !hidden.is_multiple_of(heads) {
        return Err(fields.bad(key, &heads.into(), format!("a divisor of the hidden width {hidden}")));
    }
    Ok(hidden / heads)
}

/// What the forward pass takes for granted, whatever the family.
fn check(fields: &Fields<'_>, spec: &ArchSpec) -> Result<(), CheckpointError> {
    let llada = spec.family == Family::Llada;
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        let key = if llada { "n_kv_heads" } else { "num_key_value_heads" };
        return Err(fields.bad(key, &spec.kv_heads.into(), format!("a divisor of the {} query heads", spec.heads)));
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
