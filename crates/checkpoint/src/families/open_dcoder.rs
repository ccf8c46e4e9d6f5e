//! Open-dCoder: a Qwen2.5-Coder trained to fill masks, rows still predicting the next position (
//! specs/families.md#2).

use demask_step::Mask;
use serde_json::{Value, json};

use super::{Family, Shape, Vocabulary, dream, qwen2, transformers};

pub(super) const FAMILY: Family = Family {
    name: "Open-dCoder",
    // Its config.json is that of Qwen2: the tokenizer's mask token identifies it.
    architecture: "",
    model_type: "",
    attention: Mask::Full,
    shift: 1,
    mask_texts: &["<M>"],
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_665), eos: 151_643, turn_end: 151_645, bos: 151_643 }],
    own_specials: &[("<M>", true)],
    gguf: transformers::GGUF,
    decoding: dream::FAMILY.decoding,
    shapes: &[Shape { name: "open-dcoder-0.5b", config, generation, layers: transformers::LAYERS }],
    relatives: || &[],
    ..qwen2::FAMILY
};

fn config() -> Value {
    qwen2::coder("Qwen2ForCausalLM", "qwen2")
}

fn generation() -> Value {
    json!({"bos_token_id": 151_643, "eos_token_id": 151_643, "pad_token_id": 151_643})
}
