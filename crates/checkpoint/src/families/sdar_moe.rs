//! SDAR-30B-A3B, a Qwen3 with experts that fills masks block by block, and RND1, which fills the whole canvas
//! (specs/families.md#6).

use demask_model::ArchSpec;
use demask_step::{ConfidenceOf, FilterOrder, Mask, Position};
use serde_json::{Value, json};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, SamplerDefaults, Shape, Vocabulary, experts, llada, qwen3, sdar,
    transformers,
};
use crate::{CheckpointError, Warning, config::Fields};

pub(super) const SDAR: Family = Family {
    name: "SDAR-MoE",
    architecture: "SDARMoeForCausalLM",
    model_type: "sdar_moe",
    parse,
    gguf: transformers::GGUF,
    shapes: &[Shape { name: "sdar-30b-a3b", config: sdar_30b, generation, layers: transformers::LAYERS }],
    ..sdar::FAMILY
};

pub(super) const RND1: Family = Family {
    name: "RND1",
    architecture: "RND1LM",
    model_type: "rnd1",
    parse: parse_rnd1,
    attention: Mask::Full,
    shift: 1,
    mask_texts: sdar::FAMILY.mask_texts,
    mask: Some(151_669),
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_645, turn_end: 151_645, bos: 151_643 }],
    gguf: GgufConventions { architecture: "rnd1", router: Some(experts::softmax(true)), ..transformers::GGUF },
    // specs/families.md#6.7.
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopKFirst,
        confidence: ConfidenceOf::Drawn,
        reserves_end: true,
        // RND1's sampler.
        gen_length: 256,
        sampler: Some(SamplerDefaults { schedule: "rnd1", remasking: "entropy", steps: 256, temperature: 0.1 }),
        holes: Holes::Unknown("its own sampler fills them"),
        ..llada::FAMILY.decoding
    },
    shapes: &[Shape {
        name: "rnd1-30b-a3b",
        config: rnd1_30b,
        generation: rnd1_generation,
        layers: transformers::LAYERS,
    }],
    ..qwen3::FAMILY
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    spec.experts = Some(experts::of_qwen3(fields, spec.layers)?);
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}

/// Parses RND1, whose files say false where others say null.
fn parse_rnd1(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let fields = &fields.with_false_as_null(&["rope_scaling", "sliding_window"]);
    experts::refuse_flag(fields, "is_causal", true)?;
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    spec.experts = Some(experts::of_qwen3(fields, spec.layers)?);
    Ok((spec, says_tied))
}

/// Configuration of Qwen3-30B-A3B that both share.
fn qwen3_30b() -> Value {
    json!({
        "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151_643, "decoder_sparse_step": 1,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 6144, "mask_token_id": 151_669, "max_position_embeddings": 32768, "max_window_layers": 48,
        "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
        "output_router_logits": false, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "use_cache": false, "use_sliding_window": false, "vocab_size": 151_936,
    })
}

fn with(mut config: Value, own: &Value) -> Value {
    for (key, value) in own.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fn sdar_30b() -> Value {
    let own = json!({
        "architectures": ["SDARMoeForCausalLM"], "block_size": 4, "eos_token_id": 151_643, "model_type": "sdar_moe",
        "rope_scaling": null, "sliding_window": null,
    });
    with(qwen3_30b(), &own)
}

fn generation() -> Value {
    (sdar::FAMILY.shapes[0].generation)()
}

fn rnd1_30b() -> Value {
    let own = json!({
        "architectures": ["RND1LM"], "eos_token_id": 151_645, "is_causal": false, "model_type": "rnd1",
        "num_diffusion_steps": 256, "pad_token_id": 151_643, "rope_scaling": false, "sliding_window": false,
    });
    with(qwen3_30b(), &own)
}

fn rnd1_generation() -> Value {
    json!({"eos_token_id": 151_645, "pad_token_id": 151_643})
}
