//! `generation_config.json`: how its authors decode a model.

use crate::{
    CheckpointError,
    config::{Fields, TokenIds},
};

/// Content of a `generation_config.json`; every key may be absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationConfig {
    /// Special tokens that the file names.
    pub tokens: TokenIds,
    /// Sets whether tokens are sampled.
    pub do_sample: Option<bool>,
    /// Temperature of sampling.
    pub temperature: Option<f64>,
    /// Probability mass that sampling is confined to.
    pub top_p: Option<f64>,
    /// Number of tokens that sampling is confined to.
    pub top_k: Option<u64>,
    /// Denoising steps (Dream).
    pub steps: Option<u64>,
    /// End of the time line of the denoising (Dream).
    pub eps: Option<f64>,
    /// Rule that chooses what is unmasked (Dream).
    pub algorithm: Option<String>,
    /// Temperature of that choice (Dream).
    pub algorithm_temperature: Option<f64>,
    /// Length of the answer.
    pub max_new_tokens: Option<u64>,
}

impl GenerationConfig {
    /// Reads the text of the file; `file` is its name for messages.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, CheckpointError> {
        let fields = Fields::parse(text, file)?;
        let whole = |key| Ok::<_, CheckpointError>(fields.optional_number(key)?.map(|number| number.max(0.0) as u64));
        Ok(Self {
            tokens: fields.token_ids()?,
            do_sample: fields.optional_flag("do_sample")?,
            temperature: fields.optional_number("temperature")?,
            top_p: fields.optional_number("top_p")?,
            top_k: whole("top_k")?,
            steps: whole("steps")?,
            eps: fields.optional_number("eps")?,
            algorithm: fields.optional_text("alg")?.map(str::to_owned),
            algorithm_temperature: fields.optional_number("alg_temp")?,
            max_new_tokens: whole("max_new_tokens")?,
        })
    }
}
