//! Stable-DiffCoder: a Llama trained to fill masks block by block (specs/families.md#1).

use demask_step::{BlockRules, Mask, Stores};
use serde_json::{Value, json};

use super::{Family, Shape, Vocabulary, llama, sdar, transformers};

/// Block length of the authors' examples; no file says it.
const BLOCK: u32 = 4;

pub(super) const FAMILY: Family = Family {
    name: "Stable-DiffCoder",
    architecture: "StableDiffcoderForCausalLM",
    // Its files say "llama", which must not decide.
    model_type: "",
    parse: llama::FAMILY.parse,
    attention: Mask::blocks(BLOCK),
    shift: 0,
    blocks: BlockRules { ends_short: true, shares_masks: true, stores: Stores::UnlessEnded, ..sdar::BLOCKS },
    mask_texts: &["<[MASK_TOKEN]>"],
    mask: Some(5),
    vocabularies: &[Vocabulary { rows: 155_136, mask: Some(5), eos: 2, turn_end: 2, bos: 0 }],
    turn_end: "<[end\u{2581}of\u{2581}sentence]>",
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    shapes: &[Shape { name: "stable-diffcoder-8b", config, generation, layers: transformers::LAYERS }],
    ..transformers::CAUSAL
};

fn config() -> Value {
    json!({
        "architectures": ["StableDiffcoderForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pad_token_id": 1,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 500_000.0, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 155_136,
    })
}

fn generation() -> Value {
    json!({"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1})
}
