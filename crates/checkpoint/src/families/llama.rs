//! Llama 3: autoregressive models that guide LLaDA.

use super::{Family, GgufConventions, Vocabulary, prompts, transformers};

pub(super) const FAMILY: Family = Family {
    name: "Llama",
    architecture: "LlamaForCausalLM",
    model_type: "llama",
    // Old configurations have as many K/V heads as query heads and do not say so.
    parse: |fields, family, _| transformers::parse_with(fields, family, transformers::FFN, Ok),
    vocabularies: &[Vocabulary { rows: 128_256, mask: None, eos: 128_001, turn_end: 128_009, bos: 128_000 }],
    turn_end: "<|eot_id|>",
    prompt: |messages, options| prompts::headers("<|begin_of_text|>", messages, options),
    gguf: GgufConventions { architecture: "llama", paired: true, ..transformers::GGUF },
    ..transformers::CAUSAL
};
