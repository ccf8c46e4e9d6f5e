//! Open-dCoder: a Qwen2.5-Coder trained to fill masks, rows still predicting the next position (
//! specs/families.md#2).

use demask_step::Mask;

use super::{Family, Vocabulary, dream, qwen2, transformers};

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
    ..qwen2::FAMILY
};
