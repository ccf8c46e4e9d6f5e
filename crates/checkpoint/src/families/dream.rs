//! Dream, DiffuCoder: a Qwen2.5 trained to fill masks, rows still predicting the next position.

use demask_step::{ConfidenceOf, FilterOrder, Mask};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, LikelihoodConventions, MaskDraws, Vocabulary, prompts,
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
    ..transformers::CAUSAL
};
