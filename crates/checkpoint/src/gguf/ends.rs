//! Tokens that end an answer of a causal model: those that the metadata name, and those whose text says it. Files name one
//! or two of the ends that a model was trained with, and leave the others to programs that know the texts.

use crate::{CheckpointError, fields::Fields};

/// What parts texts and files of code in training, after whose end nothing belongs to an answer: key and texts. The first
/// text that is there counts, where no key names another.
const PARTS: [(&str, &[&str]); 3] = [
    ("fim_pad", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    ("fim_rep", &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
    ("fim_sep", &["<|file_sep|>"]),
];

/// Texts of ends.
const TEXTS: [&str; 22] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

/// An end that is none beside others: where a vocabulary has one of each of these lists, the text ends a part of an answer.
const EXCEPTIONS: [(&str, &[&[&str]]); 3] = [
    ("<|end|>", &[&["<|return|>"], &["<|call|>", "<|calls|>"]]),
    ("<|end|>", &[&["<|flush|>"], &["<|call|>", "<|calls|>"]]),
    ("</s>", &[&["<|tool_response>"]]),
];

/// An end, and what names it: a key, or the token's text.
type End = (u32, String);

/// The ends of keys, in front of `_token_id`, that the file has.
pub(super) fn named(fields: &Fields<'_>, parts: &[&str]) -> Result<Vec<End>, CheckpointError> {
    let mut ends = Vec::new();
    for part in parts {
        let key = format!("tokenizer.ggml.{part}_token_id");
        ends.extend(fields.optional_token(&key)?.map(|id| (id, key)));
    }
    Ok(ends)
}

/// All ends of a causal model, those that keys name first; `marked` finds a token that is no ordinary text.
pub(super) fn read(fields: &Fields<'_>, marked: impl Fn(&str) -> Option<u32>) -> Result<Vec<End>, CheckpointError> {
    let by_text = |text: &&str| marked(text).map(|id| (id, "its text".to_owned()));
    let mut ends = named(fields, &["eos", "eot", "eom"])?;
    ends.extend(TEXTS.iter().filter_map(by_text));
    for (part, texts) in PARTS {
        let named = named(fields, &[part])?;
        let first = if named.is_empty() { texts.iter().find_map(by_text) } else { None };
        ends.extend(named.into_iter().chain(first));
    }
    for (text, others) in EXCEPTIONS {
        if others.iter().all(|others| others.iter().any(|text| marked(text).is_some())) {
            let none = marked(text);
            ends.retain(|(id, _)| Some(*id) != none);
        }
    }
    Ok(ends)
}
