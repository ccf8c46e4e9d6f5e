//! Qwen2, Qwen2.5: autoregressive models that guide Dream.

use super::{Family, GgufConventions, Vocabulary, prompts, transformers};

pub(super) const FAMILY: Family = Family {
    name: "Qwen2",
    architecture: "Qwen2ForCausalLM",
    model_type: "qwen2",
    qkv_bias: true,
    vocabularies: &[
        Vocabulary { rows: 151_936, mask: None, eos: 151_643, turn_end: 151_645, bos: 151_643 },
        Vocabulary { rows: 152_064, mask: None, eos: 151_643, turn_end: 151_645, bos: 151_643 },
    ],
    prompt: |messages, options| {
        let system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
        prompts::chat_ml(Some(system), messages, options)
    },
    gguf: GgufConventions { architecture: "qwen2", ..transformers::GGUF },
    ..transformers::CAUSAL
};

/// Cut of texts by Qwen2's tokenizer, which Qwen3, Dream and SDAR have too.
pub(crate) const PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Number of ordinary tokens in Qwen2's vocabulary; its special tokens follow.
pub(crate) const TOKENS: usize = 151_643;

/// Special tokens of Qwen2.5 from [`TOKENS`] on, and whether they are hidden in text.
pub(crate) const SPECIALS: [(&str, bool); 22] = [
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<|object_ref_start|>", true),
    ("<|object_ref_end|>", true),
    ("<|box_start|>", true),
    ("<|box_end|>", true),
    ("<|quad_start|>", true),
    ("<|quad_end|>", true),
    ("<|vision_start|>", true),
    ("<|vision_end|>", true),
    ("<|vision_pad|>", true),
    ("<|image_pad|>", true),
    ("<|video_pad|>", true),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("<|fim_prefix|>", false),
    ("<|fim_middle|>", false),
    ("<|fim_suffix|>", false),
    ("<|fim_pad|>", false),
    ("<|repo_name|>", false),
    ("<|file_sep|>", false),
];
