//! Tiny-A2D: small Qwens turned into diffusion models, with full attention (mdlm) or block by block (bd3lm); the two have
//! the same config.json (specs/families.md#3).

use demask_step::{BlockRules, Mask, Origin, Stores};

use super::{DecodingDefaults, Family, Holes, Vocabulary, llada, qwen2, qwen3, sdar, transformers};

/// Block length of the released bd3lm models.
const BLOCK: u32 = 32;

/// The prompt ends a block, and blocks without a reader are not stored.
const BLOCKS: BlockRules = BlockRules {
    origin: Origin::Prompt,
    ends_short: true,
    shares_masks: true,
    stores: Stores::IfRead,
    ..transformers::BLOCKS
};

/// Sampling of dllm's scripts, which decode 128 positions.
const DECODING: DecodingDefaults = DecodingDefaults {
    gen_length: 128,
    holes: Holes::Unknown("no model of the family was measured"),
    ..llada::FAMILY.decoding
};

pub(super) const QWEN2: Family = Family {
    name: "A2D-Qwen2",
    architecture: "A2DQwen2LMHeadModel",
    model_type: "a2d-qwen2",
    attention: Mask::Full,
    shift: 0,
    blocks: BLOCKS,
    mask_texts: &["<|mask|>", "<|MASK|>"],
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_665), eos: 151_645, turn_end: 151_645, bos: 151_643 }],
    own_specials: &[("<|mask|>", true)],
    gguf: transformers::GGUF,
    decoding: DECODING,
    ..qwen2::FAMILY
};

pub(super) const QWEN2_BLOCKS: Family = Family {
    name: "A2D-Qwen2-bd3lm",
    architecture: "",
    model_type: "",
    attention: Mask::blocks(BLOCK),
    decoding: sdar::FAMILY.decoding,
    ..QWEN2
};

pub(super) const QWEN3: Family = Family {
    name: "A2D-Qwen3",
    architecture: "A2DQwen3LMHeadModel",
    model_type: "a2d-qwen3",
    attention: Mask::Full,
    shift: 0,
    blocks: BLOCKS,
    mask_texts: &["<|mask|>", "<|MASK|>"],
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_645, turn_end: 151_645, bos: 151_643 }],
    gguf: transformers::GGUF,
    decoding: DECODING,
    ..qwen3::FAMILY
};

pub(super) const QWEN3_BLOCKS: Family = Family {
    name: "A2D-Qwen3-bd3lm",
    architecture: "",
    model_type: "",
    attention: Mask::blocks(BLOCK),
    decoding: sdar::FAMILY.decoding,
    ..QWEN3
};
