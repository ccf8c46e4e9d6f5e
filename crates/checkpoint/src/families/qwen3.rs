//! Qwen3: autoregressive models whose queries and keys are normed.

use super::{Family, GgufConventions, Vocabulary, sdar, transformers};

pub(super) const FAMILY: Family = Family {
    name: "Qwen3",
    architecture: "Qwen3ForCausalLM",
    model_type: "qwen3",
    head_norms: true,
    // No text has the token of the mask: the rows behind the vocabulary are padding.
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_643, turn_end: 151_645, bos: 151_643 }],
    // SDAR has no name of its own in the usual converters: it is a Qwen3 that is said not to be causal.
    gguf: GgufConventions { architecture: "qwen3", not_causal: Some(&sdar::FAMILY), ..transformers::GGUF },
    ..transformers::CAUSAL
};
