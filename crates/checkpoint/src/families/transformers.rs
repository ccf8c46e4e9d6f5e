//! Conventions that families share whose files have the names of transformers and whose vocabulary is Qwen's.

use demask_model::{ArchSpec, LayerRole, Role, Rope, RopeScaling};
use demask_step::{BlockRules, ConfidenceOf, FilterOrder, Mask, Origin, Stores};
use serde_json::Value;

use super::{
    DecodingDefaults, Family, FirstToken, GgufConventions, Holes, LARGEST_CONTEXT, LARGEST_HEAD, LARGEST_HEADS,
    LARGEST_LAYERS, LARGEST_VOCABULARY, LARGEST_WIDTH, LikelihoodConventions, MaskDraws, check, divide, prompts,
};
use crate::{CheckpointError, Warning, error::quoted, fields::Fields};

/// Causal model with these names: what families change, they say themselves.
pub(super) const CAUSAL: Family = Family {
    name: "",
    architecture: "",
    model_type: "",
    parse,
    tensor_name,
    attention: Mask::Causal,
    shift: 1,
    aliases: &[],
    fused: |_, _| None,
    blocks: BLOCKS,
    mask_texts: &[],
    mask: None,
    trains_causal_masks: false,
    qkv_bias: false,
    head_norms: false,
    full_precision_rope: false,
    vocabularies: &[],
    own_specials: &[],
    turn_end: "<|im_end|>",
    prompt: prompts::thinking_chat_ml,
    gguf: GGUF,
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopPFirst,
        confidence: ConfidenceOf::Raw,
        likelihood: LikelihoodConventions { draws: MaskDraws::ByCount, ends: false, guidance: false },
        reserves_end: false,
        // Of no effect under causal attention, where an answer goes on up to its end.
        gen_length: 128,
        sampler: None,
        holes: Holes::Unknown("a causal model fills none"),
    },
};

/// Conventions of their GGUF files.
pub(super) const GGUF: GgufConventions = GgufConventions {
    architecture: "",
    paired: false,
    not_causal: None,
    router: None,
    first_token: FirstToken::AsSaid,
};

/// Blocks are counted from position 0, whole, and each is stored.
pub(super) const BLOCKS: BlockRules =
    BlockRules { origin: Origin::Start, ends_short: false, shares_masks: false, stores: Stores::Always, seeds: false };

/// Key of the width of the MLP.
pub(super) const FFN: &str = "intermediate_size";

/// Reads the names of transformers.
pub(super) fn parse(
    fields: &Fields<'_>,
    family: &Family,
    _warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let missing = |_| Err(fields.missing("num_key_value_heads", "a positive whole number"));
    parse_with(fields, family, FFN, missing)
}

/// Reads the names of transformers; `ffn` is the key of the MLP's width, `kv_heads` says how many K/V heads there are where no key does, from the number of
/// query heads.
pub(super) fn parse_with(
    fields: &Fields<'_>,
    family: &Family,
    ffn: &str,
    kv_heads: impl FnOnce(usize) -> Result<usize, CheckpointError>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    refuse_variants(fields, family)?;
    let hidden = fields.count("hidden_size", LARGEST_WIDTH)?;
    let heads = fields.count("num_attention_heads", LARGEST_HEADS)?;
    let kv_heads = match fields.optional_count("num_key_value_heads", LARGEST_HEADS)? {
        Some(kv_heads) => kv_heads,
        None => kv_heads(heads)?,
    };
    let head_dim = match fields.optional_count("head_dim", LARGEST_HEAD)? {
        Some(head_dim) => head_dim,
        None => divide(fields, "num_attention_heads", hidden, heads)?,
    };
    let context = fields.count("max_position_embeddings", LARGEST_CONTEXT)?;
    let tied = fields.optional_flag("tie_word_embeddings")?;
    let spec = ArchSpec {
        family: family.name,
        hidden,
        layers: fields.count("num_hidden_layers", LARGEST_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        ffn: fields.count(ffn, LARGEST_WIDTH)?,
        experts: None,
        vocabulary: fields.count("vocab_size", LARGEST_VOCABULARY)?,
        context,
        rope: rope(fields, family, head_dim)?,
        norm_epsilon: fields.positive("rms_norm_eps")? as f32,
        qkv_bias: family.qkv_bias,
        head_norms: family.head_norms,
        tied: tied.unwrap_or(false),
        attention: family.attention,
        shift: family.shift,
        blocks: family.blocks,
        query_scale: None,
    };
    check(fields, &spec, "num_key_value_heads")?;
    Ok((spec, tied.is_some()))
}

/// Switches of the shared modelling code that none of the families has on.
fn refuse_variants(fields: &Fields<'_>, family: &Family) -> Result<(), CheckpointError> {
    const HINT: &str = "use a checkpoint as released by its authors";
    if let Some(found) = fields.optional_text("hidden_act")?
        && !matches!(found, "silu" | "swish")
    {
        return Err(fields.unsupported(format!("hidden_act {} (only \"silu\" is)", quoted(found)), HINT));
    }
    if fields.optional_flag("use_sliding_window")? == Some(true) && fields.get("sliding_window").is_some() {
        return Err(fields.unsupported("a sliding window", HINT));
    }
    if let Some(Value::Array(kinds)) = fields.get("layer_types")
        && let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err(fields.unsupported(format!("a layer of type {}", quoted(&kind.to_string())), HINT));
    }
    // Where q, k and v have biases by construction the key says nothing; elsewhere it also means one on the output.
    for (key, applies) in [("attention_bias", !family.qkv_bias), ("mlp_bias", true), ("use_mrope", true)] {
        if applies && fields.optional_flag(key)? == Some(true) {
            return Err(fields.unsupported(format!("{key} true (only false is)"), HINT));
        }
    }
    Ok(())
}

/// Rotation as `rope_theta` and `rope_scaling`, or as the one object `rope_parameters` that replaces both.
fn rope(fields: &Fields<'_>, family: &Family, head_dim: usize) -> Result<Rope, CheckpointError> {
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
        Some(inner) if inner.get("rope_type").is_some() => scaling_of(inner, fields)?,
        _ => scaling(fields)?,
    };
    Ok(Rope { theta, rotated, full_precision: family.full_precision_rope, scaling })
}

/// Reads how frequencies are scaled.
pub(super) fn scaling(fields: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    fields.object("rope_scaling")?.map_or(Ok(RopeScaling::None), |inner| scaling_of(&inner, fields))
}

fn scaling_of(inner: &Fields<'_>, fields: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    let kind = match inner.optional_text("rope_type")? {
        Some(kind) => Some(kind),
        None => inner.optional_text("type")?,
    };
    match kind {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: inner.positive("factor")? }),
        Some("llama3") => llama3_scaling(inner),
        Some("yarn") => yarn_scaling(inner, fields),
        Some(other) => Err(inner.unsupported(
            format!("rope scaling {}", quoted(other)),
            "expected none, \"linear\", \"llama3\" or \"yarn\"; set it to null to stay within the original context",
        )),
    }
}

/// YaRN as transformers reads it: missing values follow from the rest.
fn yarn_scaling(inner: &Fields<'_>, fields: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    let context = fields.count("max_position_embeddings", LARGEST_CONTEXT)? as f64;
    let positive = |key| inner.get(key).map(|_| inner.positive(key)).transpose();
    let original_context = positive("original_max_position_embeddings")?.unwrap_or(context);
    let factor = positive("factor")?.unwrap_or(context / original_context);
    let (fast, slow) = (positive("beta_fast")?.unwrap_or(32.0), positive("beta_slow")?.unwrap_or(1.0));
    if fast < slow {
        return Err(inner.bad("beta_fast", &fast.into(), format!("at least beta_slow, {slow}")));
    }
    let growth = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
    let given = |key| Ok::<_, CheckpointError>(inner.optional_number(key)?.filter(|number| *number != 0.0));
    let amplitude = match (positive("attention_factor")?, given("mscale")?, given("mscale_all_dim")?) {
        (Some(amplitude), ..) => amplitude,
        (None, Some(one), Some(all)) => growth(one) / growth(all),
        _ => growth(1.0),
    };
    let whole = inner.optional_flag("truncate")?.unwrap_or(true);
    Ok(RopeScaling::Yarn { factor, original_context, fast, slow, whole, amplitude })
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

/// Name of a role's tensor.
pub(super) fn tensor_name(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "model.embed_tokens.weight".to_owned(),
        Role::FinalNorm => return "model.norm.weight".to_owned(),
        Role::Head => return "lm_head.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
    };
    let part = match role {
        LayerRole::AttentionNorm => "input_layernorm.weight",
        LayerRole::Query => "self_attn.q_proj.weight",
        LayerRole::Key => "self_attn.k_proj.weight",
        LayerRole::Value => "self_attn.v_proj.weight",
        LayerRole::QueryBias => "self_attn.q_proj.bias",
        LayerRole::KeyBias => "self_attn.k_proj.bias",
        LayerRole::ValueBias => "self_attn.v_proj.bias",
        LayerRole::QueryNorm => "self_attn.q_norm.weight",
        LayerRole::KeyNorm => "self_attn.k_norm.weight",
        LayerRole::Output => "self_attn.o_proj.weight",
        LayerRole::MlpNorm => "post_attention_layernorm.weight",
        LayerRole::Gate => "mlp.gate_proj.weight",
        LayerRole::Up => "mlp.up_proj.weight",
        LayerRole::Down => "mlp.down_proj.weight",
        LayerRole::Router => "mlp.gate.weight",
        LayerRole::RouterBias => "mlp.gate.expert_bias",
        LayerRole::ExpertGate(expert) => return expert_name(layer, expert, "gate_proj"),
        LayerRole::ExpertUp(expert) => return expert_name(layer, expert, "up_proj"),
        LayerRole::ExpertDown(expert) => return expert_name(layer, expert, "down_proj"),
        LayerRole::SharedGate => "mlp.shared_experts.gate_proj.weight",
        LayerRole::SharedUp => "mlp.shared_experts.up_proj.weight",
        LayerRole::SharedDown => "mlp.shared_experts.down_proj.weight",
    };
    format!("model.layers.{layer}.{part}")
}

fn expert_name(layer: usize, expert: usize, part: &str) -> String {
    format!("model.layers.{layer}.mlp.experts.{expert}.{part}.weight")
}
