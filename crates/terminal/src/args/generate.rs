//! Arguments of `generate`: the prompt, and ways to show its answer.

use clap::Args;

use super::{DecodeArgs, Path};

/// `demask generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The prompt: a user's message (-: standard input). Text that is piped follows it
    ///
    /// The prompt: a user's message (-: standard input). Text that is piped follows it after an empty line; without a prompt it is
    /// the prompt. Beside a prompt only a pipe or a file counts, and it is read to its end: add < /dev/null where standard input is
    /// a pipe that stays open.
    pub prompt: Option<String>,
    /// The prompt, in place of the argument
    #[arg(id = "prompt_text", short = 'p', long = "prompt", value_name = "TEXT")]
    pub prompt_text: Option<String>,
    /// Read the prompt from a file; -: standard input
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<Path>,
    /// The prompt as token ids (1,2,3): no template, works without a tokenizer
    #[arg(long, value_name = "IDS")]
    pub prompt_tokens: Option<String>,
    /// Omit the chat template
    #[arg(long)]
    pub raw: bool,
    /// Fill holes in the prompt, in place.
    #[arg(long, help = "Fill holes in the prompt, in place: <mask:N>, or [[N]] in a text without <mask:")]
    pub infill: bool,
    /// Decode as the answer of this receipt was, in all that no flag says: what --json printed, or a line of results.jsonl
    #[arg(long, value_name = "FILE.json")]
    pub like: Option<Path>,
    /// Draw the canvas as it is unmasked, N forwards a second [default: 10]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    pub watch: Option<Option<f64>>,
    /// Write one JSON line for each commit
    #[arg(long, value_name = "FILE.jsonl")]
    pub trace: Option<Path>,
    /// Draw the canvas as it is unmasked into a picture that moves
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<Path>,
    /// Write the predictions, too: cost and bench generate --replay follow them
    #[arg(long)]
    pub trace_predictions: bool,
    /// Write drafts into the trace too, and the predictions in them (freedave, guided)
    #[arg(long)]
    pub drafts: bool,
    /// Print the plans of all steps and what they cost, run nothing
    #[arg(long)]
    pub explain: bool,
    /// Probability that --explain gives a draft to come true, as for cost [default: 0]
    #[arg(long, value_name = "A")]
    pub acceptance: Option<f64>,
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
}
