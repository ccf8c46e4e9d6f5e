//! Fast-dLLM v2: a Qwen2.5 trained to fill masks block by block, rows predicting the next position of their block; the
//! pass that stores a block predicts the first token of the next (specs/families.md#4).

use demask_model::ArchSpec;
use demask_step::{BlockRules, Mask, Position, Stores};
use serde_json::{Value, json};

use super::{Family, Shape, Vocabulary, qwen2, sdar, transformers};
use crate::{CheckpointError, Warning, config::Fields};

/// Block length where the file does not say.
const BLOCK: Position = 32;

pub(super) const FAMILY: Family = Family {
    name: "Fast-dLLM-v2",
    architecture: "Fast_dLLM_QwenForCausalLM",
    model_type: "Fast_dLLM_Qwen",
    parse,
    relatives: || &[],
    attention: Mask::blocks(BLOCK),
    shift: 1,
    blocks: BlockRules { shares_masks: true, stores: Stores::IfRead, seeds: true, ..sdar::BLOCKS },
    mask_texts: &["|<MASK>|"],
    vocabularies: &[
        Vocabulary { rows: 151_936, mask: Some(151_665), eos: 151_645, turn_end: 151_645, bos: 151_643 },
        Vocabulary { rows: 152_064, mask: Some(151_665), eos: 151_645, turn_end: 151_645, bos: 151_643 },
    ],
    own_specials: &[("|<MASK>|", true)],
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    shapes: &[
        Shape { name: "fast-dllm-v2-1.5b", config: small, generation, layers: transformers::LAYERS },
        Shape { name: "fast-dllm-v2-7b", config: large, generation, layers: transformers::LAYERS },
    ],
    ..qwen2::FAMILY
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("bd_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}

fn small() -> Value {
    sized([1536, 8960, 28, 12, 2], 151_936)
}

fn large() -> Value {
    sized([3584, 18944, 28, 28, 4], 152_064)
}

/// Width, MLP, layers, query heads and K/V heads; only the small one is tied.
fn sized([hidden, ffn, layers, heads, kv_heads]: [usize; 5], vocabulary: usize) -> Value {
    json!({
        "architectures": ["Fast_dLLM_QwenForCausalLM"], "attention_dropout": 0.0, "bd_size": 32, "bos_token_id": 151_643,
        "eos_token_id": 151_645, "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02,
        "intermediate_size": ffn, "max_position_embeddings": 32768, "max_window_layers": layers,
        "model_type": "Fast_dLLM_Qwen", "num_attention_heads": heads, "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1_000_000.0,
        "sliding_window": null, "tie_word_embeddings": vocabulary == 151_936, "torch_dtype": "bfloat16",
        "use_cache": true, "use_sliding_window": false, "vocab_size": vocabulary,
    })
}

fn generation() -> Value {
    json!({"bos_token_id": 151_643, "eos_token_id": 151_645, "pad_token_id": 151_643})
}
