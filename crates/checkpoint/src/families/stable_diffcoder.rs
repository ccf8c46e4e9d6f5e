//! Stable-DiffCoder: a Llama trained to fill masks block by block (specs/families.md#1).

use demask_step::{BlockRules, Mask, Stores};

use super::{Family, Vocabulary, llama, sdar, transformers};

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
    blocks: BlockRules { ends_short: true, shares_masks: true, stores: Stores::UnlessEnded, ..transformers::BLOCKS },
    mask_texts: &["<[MASK_TOKEN]>"],
    mask: Some(5),
    vocabularies: &[Vocabulary { rows: 155_136, mask: Some(5), eos: 2, turn_end: 2, bos: 0 }],
    turn_end: "<[end\u{2581}of\u{2581}sentence]>",
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    ..transformers::CAUSAL
};
