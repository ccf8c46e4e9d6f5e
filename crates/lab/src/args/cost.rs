//! Arguments of `cost`, as they are typed.

use clap::Args;

use super::{DecodeArgs, Path};

/// `demask-lab cost`.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Released shape in place of --model: llada-8b, open-dcoder-0.5b, sdar-4b, ...; an unknown name lists all (--guide takes one, too)
    #[arg(long, value_name = "SHAPE")]
    pub like: Option<String>,
    /// Tokens of the prompt [default: 256]
    #[arg(long, value_name = "N")]
    pub prompt_length: Option<usize>,
    /// Probability that a prediction after the first can be taken in the same forward: by a threshold, as a draft of
    /// freedave, isd or selfspec, or by a guide [default: 0, each forward takes as few as the decoder allows]
    #[arg(long, value_name = "A", conflicts_with = "replay")]
    pub acceptance: Option<f64>,
    /// Predictions of a recorded run: what generate --trace wrote with --trace-predictions
    #[arg(long, value_name = "FILE.jsonl")]
    pub replay: Option<Path>,
    /// Rule for counting operations: demask (everything that is computed), published (as dLLM-Cache's table) [default:
    /// demask]
    #[arg(long, value_name = "NAME")]
    pub convention: Option<String>,
    /// Directory for cost.html, cost.json and plots: memory and operations at several lengths
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
}
