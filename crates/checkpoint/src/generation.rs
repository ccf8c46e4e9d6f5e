//! `generation_config.json`: the tokens and the lengths that a model's authors name. How they sample is not read.

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
    /// Positions of a block under full attention, where a canvas is decoded block by block.
    pub block_length: Option<u64>,
}

impl GenerationConfig {
    /// Reads the text of the file; `file` is its name for messages.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, CheckpointError> {
        let fields = Fields::parse(text, file)?;
        let length = |key| Ok::<_, CheckpointError>(fields.optional_number(key)?.map(|number| number.max(0.0) as u64));
        let (max_new_tokens, block_length) = (length("max_new_tokens")?, length("block_length")?);
        Ok(Self { tokens: fields.token_ids()?, max_new_tokens, block_length })
    }
}
