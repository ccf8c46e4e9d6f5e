//! Conversion of the metadata to an [`ArchSpec`]. Features that the engine does not compute are refused, as for
//! `config.json`.

use demask_model::{ArchSpec, Experts, Rope, RopeScaling};
use demask_tensor::{ExpertShape, Share, StoredTensor};
use serde_json::Value as Json;

use super::{
    File, ends,
    names::{ROPE_FACTORS, tensor_name},
};
use crate::{
    CheckpointError, Family,
    error::quoted,
    families::{
        FAMILIES, LARGEST_CONTEXT, LARGEST_HEAD, LARGEST_HEADS, LARGEST_LAYERS, LARGEST_VOCABULARY, LARGEST_WIDTH,
        experts::{LARGEST_EXPERTS, too_many},
    },
    fields::{Fields, TokenIds},
};

/// The keys of one architecture.
struct Keys<'a> {
    fields: &'a Fields<'a>,
    name: &'a str,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn count(&self, key: &str, limit: usize) -> Result<usize, CheckpointError> {
        self.fields.count(&self.key(key), limit)
    }

    fn optional_count(&self, key: &str, limit: usize) -> Result<Option<usize>, CheckpointError> {
        self.fields.optional_count(&self.key(key), limit)
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.fields.optional_flag(&self.key(key))
    }

    fn bad(&self, key: &str, found: usize, expected: String) -> CheckpointError {
        self.fields.bad(&self.key(key), &Json::from(found), expected)
    }
}

/// Reads the family and the architecture of a file.
pub(super) fn read(file: &File<'_>, fields: &Fields<'_>) -> Result<(&'static Family, ArchSpec), CheckpointError> {
    let name = fields.optional_text("general.architecture")?;
    let name = name.ok_or_else(|| fields.missing("general.architecture", "the name of an architecture"))?;
    let keys = Keys { fields, name };
    let family = family(file, &keys)?;
    refuse_variants(file, &keys, family)?;
    let experts = experts(&keys, family)?;
    let hidden = keys.count("embedding_length", LARGEST_WIDTH)?;
    let heads = keys.count("attention.head_count", LARGEST_HEADS)?;
    let kv_heads = keys.optional_count("attention.head_count_kv", LARGEST_HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(keys.bad("attention.head_count_kv", kv_heads, format!("a divisor of the {heads} query heads")));
    }
    let head_dim = head_dim(&keys, hidden, heads)?;
    let bias = tensor_name(demask_model::Role::Layer(0, demask_model::LayerRole::QueryBias));
    let spec = ArchSpec {
        family: family.name,
        hidden,
        layers: keys.count("block_count", LARGEST_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        ffn: match (&experts, keys.optional_count("feed_forward_length", LARGEST_WIDTH)?) {
            (_, Some(ffn)) => ffn,
            // No layer is without experts.
            (Some(experts), None) => experts.shape.ffn,
            (None, None) => keys.count("feed_forward_length", LARGEST_WIDTH)?,
        },
        experts,
        vocabulary: vocabulary(file, &keys)?,
        context: keys.count("context_length", LARGEST_CONTEXT)?,
        rope: rope(file, &keys, family, head_dim)?,
        norm_epsilon: fields.positive(&keys.key("attention.layer_norm_rms_epsilon"))? as f32,
        qkv_bias: family.qkv_bias || file.tensors.contains_key(bias.as_str()),
        head_norms: family.head_norms,
        tied: !file.tensors.contains_key(tensor_name(demask_model::Role::Head).as_str()),
        attention: family.attention,
        shift: shift(fields, family)?,
        blocks: family.blocks,
        query_scale: None,
    };
    Ok((family, spec))
}

/// Special tokens that the metadata name.
pub(super) fn token_ids(fields: &Fields<'_>) -> Result<TokenIds, CheckpointError> {
    let token = |part: &str| fields.optional_token(&format!("tokenizer.ggml.{part}_token_id"));
    let ends = ends::named(fields, &["eos", "eot"])?;
    Ok(TokenIds {
        mask: token("mask")?,
        eos: ends.iter().map(|(id, _)| *id).collect(),
        ends,
        bos: token("bos")?,
        pad: token("padding")?,
    })
}

/// Finds the family by the architecture's name, and by whether it is said to be causal.
fn family(file: &File<'_>, keys: &Keys<'_>) -> Result<&'static Family, CheckpointError> {
    let name = keys.name;
    let found = FAMILIES.iter().copied().find(|family| !name.is_empty() && family.gguf.architecture == name);
    let family = found.ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: file.label.to_owned(),
        found: quoted(name),
        known: known(),
    })?;
    let causal = keys.flag("attention.causal")?;
    match (causal, family.gguf.not_causal) {
        (Some(false), Some(other)) => Ok(other),
        (Some(causal), _) if causal == family.is_diffusion() => {
            let what = format!("{} {causal} for this architecture", keys.key("attention.causal"));
            Err(keys.fields.unsupported(what, "use a file that was converted as a model of its own family"))
        }
        _ => Ok(family),
    }
}

/// Reads the experts of a family that has them. The other keys that converters write must agree with the family's
/// computation.
fn experts(keys: &Keys<'_>, family: &Family) -> Result<Option<Experts>, CheckpointError> {
    let refused = |key: &str, found: &dyn std::fmt::Display| {
        let what = format!("{} {found} for this architecture", keys.key(key));
        Err(keys.fields.unsupported(what, "use the model's safetensors"))
    };
    let said = |key: &str| keys.fields.optional_number(&keys.key(key));
    let count = said("expert_count")?.filter(|count| *count > 0.0);
    let Some(rule) = family.gguf.router else {
        return count.map_or(Ok(None), |count| refused("expert_count", &count));
    };
    for key in ["expert_shared_count", "leading_dense_block_count", "expert_group_count", "expert_group_used_count"] {
        if let Some(found) = said(key)?.filter(|found| *found > 0.0) {
            return refused(key, &found);
        }
    }
    // 1 is softmax; a scale of 0 is none.
    if let Some(found) = said("expert_gating_func")?.filter(|found| *found != 1.0) {
        return refused("expert_gating_func", &found);
    }
    if let Some(found) = said("expert_weights_scale")?.filter(|found| *found != 0.0 && *found != 1.0) {
        return refused("expert_weights_scale", &found);
    }
    let renormalised = rule.share != Share::Whole;
    if let Some(found) = keys.flag("expert_weights_norm")?.filter(|found| *found != renormalised) {
        return refused("expert_weights_norm", &found);
    }
    let shape = ExpertShape {
        count: keys.count("expert_count", LARGEST_EXPERTS)?,
        per_row: keys.count("expert_used_count", LARGEST_EXPERTS)?,
        ffn: keys.count("expert_feed_forward_length", LARGEST_WIDTH)?,
        shared_ffn: 0,
    };
    if let Some(expected) = too_many(shape.count, keys.count("block_count", LARGEST_LAYERS)?) {
        return Err(keys.bad("expert_count", shape.count, expected));
    }
    if shape.per_row > shape.count {
        return Err(keys.bad("expert_used_count", shape.per_row, format!("at most the {} experts", shape.count)));
    }
    Ok(Some(Experts { shape, rule, biased: false, dense: Vec::new() }))
}

/// Architectures that converters write, for messages.
fn known() -> String {
    let names = FAMILIES.iter().map(|family| family.gguf.architecture).filter(|name| !name.is_empty());
    names.collect::<Vec<_>>().join(", ")
}

fn refuse_variants(file: &File<'_>, keys: &Keys<'_>, family: &Family) -> Result<(), CheckpointError> {
    // A tensor of a layer that the engine does not know would be left out of the sum.
    let known = [
        "attn_norm.weight",
        "attn_q.weight",
        "attn_k.weight",
        "attn_v.weight",
        "attn_q.bias",
        "attn_k.bias",
        "attn_v.bias",
        "attn_q_norm.weight",
        "attn_k_norm.weight",
        "attn_output.weight",
        "ffn_norm.weight",
        "ffn_gate.weight",
        "ffn_up.weight",
        "ffn_down.weight",
        "attn_rot_embd.freqs",
    ];
    let routed = ["ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"];
    let routed = &routed[..if family.gguf.router.is_some() { routed.len() } else { 0 }];
    let foreign = file.tensors.keys().filter(|name| {
        let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        part.is_some_and(|(_, part)| !known.contains(&part) && !routed.contains(&part))
    });
    match foreign.min() {
        Some(name) => Err(keys.fields.unsupported(
            format!("the tensor {} in a layer", quoted(name)),
            "use a model of one of the families that are read",
        )),
        None => Ok(()),
    }
}

fn head_dim(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
    let head_dim = match keys.optional_count("attention.key_length", LARGEST_HEAD)? {
        Some(width) => width,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => return Err(keys.bad("attention.head_count", heads, format!("a divisor of the hidden width {hidden}"))),
    };
    if !head_dim.is_multiple_of(2) || head_dim > LARGEST_HEAD {
        let expected = format!("an even head width of at most {LARGEST_HEAD}");
        return Err(keys.bad("attention.key_length", head_dim, expected));
    }
    match keys.optional_count("attention.value_length", LARGEST_HEAD)? {
        Some(value) if value != head_dim => {
            Err(keys.bad("attention.value_length", value, format!("that of the keys, {head_dim}")))
        }
        _ => Ok(head_dim),
    }
}

/// Rows of the embedding: as the key says, else as many as there are tokens, else as the tensor has.
fn vocabulary(file: &File<'_>, keys: &Keys<'_>) -> Result<usize, CheckpointError> {
    if let Some(rows) = keys.optional_count("vocab_size", LARGEST_VOCABULARY)? {
        return Ok(rows);
    }
    let rows = match file.list("tokenizer.ggml.tokens")? {
        Some(tokens) => tokens.len() as u64,
        None => file.tensors.get("token_embd.weight").map_or(0, |tensor| tensor.shape[0]),
    };
    let found = usize::try_from(rows).ok().filter(|rows| (1..=LARGEST_VOCABULARY).contains(rows));
    found.ok_or_else(|| keys.fields.missing(&keys.key("vocab_size"), "the number of tokens"))
}

fn rope(file: &File<'_>, keys: &Keys<'_>, family: &Family, head_dim: usize) -> Result<Rope, CheckpointError> {
    let rotated = keys.optional_count("rope.dimension_count", LARGEST_HEAD)?.unwrap_or(head_dim);
    if rotated > head_dim || !rotated.is_multiple_of(2) || (family.gguf.paired && rotated != head_dim) {
        return Err(keys.bad("rope.dimension_count", rotated, format!("the head width {head_dim}")));
    }
    let theta = keys.fields.positive(&keys.key("rope.freq_base"))?;
    let plain = Rope { theta, rotated, full_precision: family.full_precision_rope, scaling: RopeScaling::None };
    let kind = keys.fields.optional_text(&keys.key("rope.scaling.type"))?;
    let scaling = match kind {
        None | Some("none") => factors(file, keys, &plain)?,
        Some("linear") => RopeScaling::Linear { factor: keys.fields.positive(&keys.key("rope.scaling.factor"))? },
        Some(other) => {
            return Err(keys
                .fields
                .unsupported(format!("rope scaling {}", quoted(other)), "expected none or \"linear\""));
        }
    };
    Ok(Rope { scaling, ..plain })
}

/// Llama 3's scaling is stored as one factor for each frequency: taken only if it is the released one's.
fn factors(file: &File<'_>, keys: &Keys<'_>, plain: &Rope) -> Result<RopeScaling, CheckpointError> {
    let Some(tensor) = file.tensors.get(ROPE_FACTORS) else { return Ok(RopeScaling::None) };
    let refused = || keys.fields.unsupported("a rotation with factors other than Llama 3's", "use its safetensors");
    if tensor.shape != [plain.rotated as u64 / 2] {
        return Err(refused());
    }
    let found = StoredTensor::new(tensor.dtype, 1, plain.rotated / 2, file.bytes_of(tensor), tensor.start).to_f32()?;
    let factor = f64::from(found.iter().copied().fold(1.0, f32::max));
    let scaling = RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original_context: 8192.0 };
    let scaled = Rope { scaling, ..plain.clone() }.inverse_frequencies();
    let expected = plain.inverse_frequencies().into_iter().zip(scaled).map(|(plain, scaled)| plain / scaled);
    let equal = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1e-3 * expected);
    if equal { Ok(scaling) } else { Err(refused()) }
}

/// Reports whether a row predicts the next position: as the file says, else as the family does.
fn shift(fields: &Fields<'_>, family: &Family) -> Result<usize, CheckpointError> {
    let said = fields.optional_flag("diffusion.shift_logits")?.filter(|_| family.is_diffusion());
    Ok(said.map_or(family.shift, usize::from))
}
