//! Model families: everything that is known about one is a [`Family`] in a file of its own, and a line in [`FAMILIES`].
//!
//! A family's parser refuses every feature that the engine does not compute, and ignores none: a wrong answer would
//! look like a bad model.

mod a2d;
mod bounds;
mod choice;
mod dream;
pub(crate) mod experts;
mod family;
mod fast_dllm;
mod i_dlm;
mod llada;
mod llada2;
mod llada_moe;
mod llama;
mod nemotron;
mod open_dcoder;
mod prompts;
pub(crate) mod qwen2;
mod qwen3;
mod sdar;
mod sdar_moe;
mod stable_diffcoder;
mod transformers;

pub(crate) use bounds::{
    LARGEST_CONTEXT, LARGEST_HEAD, LARGEST_HEADS, LARGEST_LAYERS, LARGEST_VOCABULARY, LARGEST_WIDTH,
};
use bounds::{check, divide};
pub use choice::{FamilyChoice, UnknownFamily};
pub use family::{DecodingDefaults, Family, Holes, LikelihoodConventions, MaskDraws, SamplerDefaults};
pub(crate) use family::{Evidence, FirstToken, GgufConventions, Relative, Rows, Seen, Sign, Vocabulary};
pub(crate) use llada_moe::FAMILY as LLADA_MOE;

/// Families that are read, in the order in which messages name them.
pub const FAMILIES: &[&Family] = &[
    &llada::FAMILY,
    &dream::FAMILY,
    &sdar::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &llama::FAMILY,
    &stable_diffcoder::FAMILY,
    &open_dcoder::FAMILY,
    &a2d::QWEN2,
    &a2d::QWEN2_BLOCKS,
    &a2d::QWEN3,
    &a2d::QWEN3_BLOCKS,
    &fast_dllm::FAMILY,
    &nemotron::FAMILY,
    &llada_moe::FAMILY,
    &sdar_moe::SDAR,
    &llada2::FAMILY,
    &sdar_moe::RND1,
    &i_dlm::FAMILY,
];

/// Families that `config.json` does not tell from another one.
pub(crate) const RELATIVES: &[Relative] = &[
    Relative { of: &sdar::FAMILY, family: &i_dlm::FAMILY, sign: Sign::Rule(i_dlm::sign) },
    Relative { of: &llama::FAMILY, family: &stable_diffcoder::FAMILY, sign: Sign::Code("stable_diffcoder") },
    Relative { of: &qwen2::FAMILY, family: &open_dcoder::FAMILY, sign: Sign::MaskToken("<M>") },
    Relative { of: &a2d::QWEN2, family: &a2d::QWEN2_BLOCKS, sign: Sign::Name("bd3lm") },
    Relative { of: &a2d::QWEN3, family: &a2d::QWEN3_BLOCKS, sign: Sign::Name("bd3lm") },
];

impl Family {
    /// Returns the mask token by which a tokenizer's files tell the family from the one that `config.json` names; none if
    /// nothing else than that file is needed.
    pub fn mask_token_sign(&self) -> Option<&'static str> {
        RELATIVES.iter().find_map(|relative| match relative.sign {
            Sign::MaskToken(text) if std::ptr::eq(relative.family, self) => Some(text),
            _ => None,
        })
    }

    /// Returns the family of a name, in capitals or not.
    pub fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().copied().find(|family| family.name.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests;
