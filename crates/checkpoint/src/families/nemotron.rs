//! Nemotron-Labs-Diffusion: a Llama whose passes are causal or see their block, one after the other (
//! specs/families.md#5).

use demask_model::{ArchSpec, QueryScale, Role};
use demask_step::{BlockRules, Mask, Origin, Position, Stores};
use serde_json::{Value, json};

use super::{Family, Shape, Vocabulary, sdar, transformers};
use crate::{CheckpointError, Warning, config::Fields, error::shown};

/// Block length where the file does not say.
const BLOCK: Position = 32;

pub(super) const FAMILY: Family = Family {
    name: "Nemotron-Labs-Diffusion",
    architecture: "NemotronLabsDiffusionModel",
    model_type: "nemotron_labs_diffusion",
    parse,
    tensor_name,
    attention: Mask::Context { context: 0, block: BLOCK },
    shift: 0,
    blocks: BlockRules {
        origin: Origin::Prompt,
        ends_short: true,
        shares_masks: true,
        stores: Stores::IfRead,
        seeds: true,
    },
    mask: Some(100),
    vocabularies: &[Vocabulary { rows: 131_072, mask: Some(100), eos: 11, turn_end: 11, bos: 1 }],
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    shapes: &[
        Shape { name: "nemotron-labs-diffusion-3b", config: small, generation, layers: transformers::LAYERS },
        Shape { name: "nemotron-labs-diffusion-8b", config: large, generation, layers: transformers::LAYERS },
    ],
    ..transformers::CAUSAL
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    const HINT: &str = "expected a configuration like that of Nemotron-Labs-Diffusion-8B";
    for (key, wanted) in [("dlm_paradigm", "bidirectional"), ("dlm_type", "llada")] {
        if let Some(found) = fields.optional_text(key)?.filter(|found| *found != wanted) {
            return Err(fields.unsupported(format!("{key} {} (only {wanted:?} is)", shown(found)), HINT));
        }
    }
    if fields.get("sliding_window").is_some() {
        return Err(fields.unsupported("a sliding window", HINT));
    }
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::Context { context: 0, block: block as Position };
    }
    if let Some(rope) = fields.object("rope_parameters")?
        && let Some(beta) = rope.optional_number("llama_4_scaling_beta")?.filter(|beta| *beta != 0.0)
    {
        if spec.rope.rotated != spec.head_dim {
            return Err(fields.unsupported("a query scale where only a part of each head is turned", HINT));
        }
        let original_context = rope.positive("original_max_position_embeddings")?;
        spec.query_scale = Some(QueryScale { beta, original_context });
    }
    Ok((spec, says_tied))
}

/// Names of transformers below `encoder`, and a head of its own name.
fn tensor_name(role: Role) -> String {
    match role {
        Role::Head => "diffusion_head.weight".to_owned(),
        role => transformers::tensor_name(role).replacen("model.", "encoder.", 1),
    }
}

fn small() -> Value {
    sized(3072, 9216, 26)
}

fn large() -> Value {
    sized(4096, 14336, 34)
}

fn sized(hidden: usize, ffn: usize, layers: usize) -> Value {
    json!({
        "architectures": ["NemotronLabsDiffusionModel"], "attention_bias": false, "attention_dropout": 0.0,
        "block_size": 32, "bos_token_id": 1, "dlm_paradigm": "bidirectional", "eos_token_id": 11, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": ffn,
        "mask_token_id": 100, "max_position_embeddings": 262_144, "mlp_bias": false,
        "model_type": "nemotron_labs_diffusion", "num_attention_heads": 32, "num_hidden_layers": layers,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1_000_000.0,
            "rope_type": "yarn",
        },
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": false,
        "vocab_size": 131_072,
    })
}

fn generation() -> Value {
    json!({"bos_token_id": 1, "eos_token_id": 11})
}
