//! `generation_config.json`: the tokens and the length that a model's authors name. How they sample is not read.

use crate::{
    CheckpointError,
    fields::{Fields, TokenIds},
};

/// Content of a `generation_config.json`; every key may be absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationConfig {
    /// Special tokens that the file names.
    pub tokens: TokenIds,
    /// Length of the answer.
    pub max_new_tokens: Option<u64>,
}

impl GenerationConfig {
    /// Reads the text of the file; `file` is its name for messages.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, CheckpointError> {
        let fields = Fields::parse(text, file)?;
        let length = fields.optional_number("max_new_tokens")?.map(|number| number.max(0.0) as u64);
        Ok(Self { tokens: fields.token_ids()?, max_new_tokens: length })
    }
}
