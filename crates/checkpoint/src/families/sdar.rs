//! SDAR, TraDo: a Qwen3 trained to fill masks block by block.

use demask_model::ArchSpec;
use demask_step::{BlockRules, ConfidenceOf, FilterOrder, Mask, Origin, Position, Stores};
use serde_json::{Value, json};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, LikelihoodConventions, MaskDraws, Shape, Vocabulary, transformers,
};
use crate::{CheckpointError, Warning, config::Fields};

/// Block length where the file does not say: that of the released checkpoints without a suffix.
const BLOCK: Position = 4;

/// Blocks are counted from position 0, whole, and each is stored.
pub(super) const BLOCKS: BlockRules =
    BlockRules { origin: Origin::Start, ends_short: false, shares_masks: false, stores: Stores::Always, seeds: false };

pub(super) const FAMILY: Family = Family {
    name: "SDAR",
    architecture: "SDARForCausalLM",
    model_type: "sdar",
    parse,
    attention: Mask::blocks(BLOCK),
    shift: 0,
    mask_texts: &["<|MASK|>", "<MASK>"],
    head_norms: true,
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_643, turn_end: 151_645, bos: 151_643 }],
    gguf: GgufConventions { architecture: "sdar", ..transformers::GGUF },
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopKFirst,
        confidence: ConfidenceOf::Drawn,
        // No script of the authors estimates likelihoods, and a model that sees blocks has no such bound.
        likelihood: LikelihoodConventions { draws: MaskDraws::ByCount, ends: false, guidance: false },
        reserves_end: false,
        // SDAR's `generate.py`. The blocks behind an end are not decoded, whatever the length.
        gen_length: 128,
        sampler: None,
        holes: Holes::Unknown("a block model fills none"),
    },
    shapes: &[
        Shape { name: "sdar-1.7b", config: sdar_1_7b, generation, layers: transformers::LAYERS },
        Shape { name: "sdar-4b", config: sdar_4b, generation, layers: transformers::LAYERS },
        Shape { name: "sdar-8b", config: sdar_8b, generation, layers: transformers::LAYERS },
    ],
    ..transformers::CAUSAL
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}

fn sdar_1_7b() -> Value {
    sdar(2048, 6144, 28, 16)
}

fn sdar_4b() -> Value {
    sdar(2560, 9728, 36, 32)
}

fn sdar_8b() -> Value {
    sdar(4096, 12288, 36, 32)
}

/// Configuration that they share; the widths, layers and heads are each one's own.
fn sdar(hidden: usize, ffn: usize, layers: usize, heads: usize) -> Value {
    json!({
        "architectures": ["SDARForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "block_size": 4,
        "bos_token_id": 151_643, "eos_token_id": 151_643, "head_dim": 128, "hidden_act": "silu", "hidden_size": hidden,
        "initializer_range": 0.02, "intermediate_size": ffn, "mask_token_id": 151_669,
        "max_position_embeddings": 32768, "max_window_layers": layers, "model_type": "sdar", "num_attention_heads": heads,
        "num_hidden_layers": layers, "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_scaling": null,
        "rope_theta": 1_000_000, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": false, "use_sliding_window": false, "vocab_size": 151_936,
    })
}

fn generation() -> Value {
    json!({
        "bos_token_id": 151_643, "do_sample": true, "eos_token_id": [151_645, 151_643],
        "pad_token_id": 151_643, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
    })
}
