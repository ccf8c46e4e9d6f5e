//! Arguments of `generate` and `chat`.

use clap::Args;

use super::Path;

/// `demask generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The prompt: a user's message
    pub prompt: Option<String>,
    /// Read the prompt from a file; -: standard input
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<Path>,
    /// The prompt as token ids (1,2,3): no template, works without a tokenizer
    #[arg(long, value_name = "IDS")]
    pub prompt_tokens: Option<String>,
    /// Leave the chat template away
    #[arg(long)]
    pub raw: bool,
    /// Fill <mask:N> holes in the prompt, in place
    #[arg(long)]
    pub infill: bool,
    /// Draw the canvas as it is unmasked
    #[arg(long)]
    pub watch: bool,
    /// Write one JSON line for each commit
    #[arg(long, value_name = "FILE.jsonl")]
    pub trace: Option<Path>,
    /// Print the plans of all steps, run nothing
    #[arg(long)]
    pub explain: bool,
    /// How to decode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// `demask chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// How to decode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// How to decode. What is not given is chosen to fit the model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Decoding")]
pub struct DecodeArgs {
    /// System message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Positions to decode
    #[arg(long, value_name = "N")]
    pub gen_length: Option<usize>,
    /// Positions of a block
    #[arg(long, value_name = "N")]
    pub block_length: Option<usize>,
    /// Denoising steps over all blocks
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// What ranks predictions: low_confidence, random, margin, entropy, left_to_right, ...
    #[arg(long, value_name = "NAME")]
    pub remasking: Option<String>,
    /// How steps share the masks: even, dream
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// Where the time of schedule dream ends
    #[arg(long, value_name = "E")]
    pub eps: Option<f32>,
    /// Temperature of tokens; 0: the most probable one
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
    /// Temperature of the order of commits; 0: the best first
    #[arg(long, value_name = "T")]
    pub alg_temp: Option<f32>,
    /// Probability kept by top-p filtering
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,
    /// Tokens kept by top-k filtering
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,
    /// Scale of classifier-free guidance; 0: none
    #[arg(long, value_name = "SCALE")]
    pub cfg_scale: Option<f32>,
    /// Decoder, as name or name:key=value,key=value
    #[arg(long, value_name = "SPEC")]
    pub decoder: Option<String>,
    /// Cache policy, as name or name:key=value,key=value
    #[arg(long, value_name = "SPEC")]
    pub cache: Option<String>,
    /// Model that judges drafts, with --decoder guided
    #[arg(long, value_name = "MODEL")]
    pub guide: Option<String>,
    /// Text that ends the answer (may be given several times)
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Decode all positions, end tokens are tokens like any other
    #[arg(long)]
    pub ignore_eos: bool,
    /// Go on behind an end token; the answer still ends there
    #[arg(long)]
    pub no_early_stop: bool,
    /// Never predict the end-of-text token
    #[arg(long)]
    pub suppress_eos: bool,
    /// Predict end tokens with confidence 0
    #[arg(long)]
    pub eos_confidence_zero: bool,
}
