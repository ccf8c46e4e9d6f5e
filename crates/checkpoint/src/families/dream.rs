//! Dream, DiffuCoder: a Qwen2.5 trained to fill masks, rows still predicting the next position.

use demask_step::{ConfidenceOf, FilterOrder, Mask};
use serde_json::{Value, json};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, LikelihoodConventions, MaskDraws, Shape, Vocabulary, prompts,
    transformers,
};

pub(super) const FAMILY: Family = Family {
    name: "Dream",
    architecture: "DreamModel",
    model_type: "Dream",
    attention: Mask::Full,
    mask_texts: &["<|mask|>"],
    qkv_bias: true,
    vocabularies: &[Vocabulary { rows: 152_064, mask: Some(151_666), eos: 151_643, turn_end: 151_645, bos: 151_665 }],
    own_specials: &[("<|beginoftext|>", true), ("<|mask|>", true)],
    prompt: |messages, options| prompts::chat_ml(Some("You are a helpful assistant."), messages, options),
    gguf: GgufConventions { architecture: "dream", ..transformers::GGUF },
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopPFirst,
        confidence: ConfidenceOf::Drawn,
        likelihood: LikelihoodConventions { draws: MaskDraws::ByProbability, ends: true, guidance: false },
        reserves_end: false,
        // Dream's README and demo, and its evaluations of HumanEval, MBPP, MATH and BBH: `max_new_tokens` 512.
        gen_length: 512,
        sampler: None,
        holes: Holes::Unknown(
            "demo-dream fills none of 200 holes as it was, so that it tells nothing; no larger model was measured",
        ),
    },
    shapes: &[Shape { name: "dream-7b", config: dream_7b, generation, layers: transformers::LAYERS }],
    ..transformers::CAUSAL
};

fn dream_7b() -> Value {
    json!({
        "architectures": ["DreamModel"], "attention_dropout": 0.0, "bos_token_id": 151_643, "eos_token_id": 151_643,
        "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
        "mask_token_id": 151_666, "max_position_embeddings": 131_072, "max_window_layers": 28, "model_type": "Dream",
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "pad_token_id": 151_643,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1_000_000.0, "sliding_window": null,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 152_064,
    })
}

fn generation() -> Value {
    json!({
        "alg": "origin", "alg_temp": null, "bos_token_id": 151_643, "eos_token_id": 151_643, "eps": 0.001,
        "mask_token_id": null, "pad_token_id": 151_643, "steps": 512, "temperature": 0.0,
    })
}
