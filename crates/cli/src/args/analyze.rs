//! Arguments of `analyze`, as they are typed.

use clap::{Args, Subcommand};

use super::{GenerateArgs, Path};

/// `demask analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// What to look at.
    #[command(subcommand)]
    pub command: AnalyzeCommand,
}

/// What `analyze` can look at.
#[derive(Debug, Subcommand)]
pub enum AnalyzeCommand {
    /// How K, V, attention and MLP outputs change from step to step: why caches work
    Stability(Box<StabilityArgs>),
}

/// `demask analyze stability`.
#[derive(Debug, Args)]
pub struct StabilityArgs {
    /// Word problems of the demo to decode, if no prompt is given [default: 4]
    #[arg(long, value_name = "N")]
    pub problems: Option<usize>,
    /// Layers with pictures of their own, beside the average: 0,3
    #[arg(long, value_name = "LAYERS")]
    pub layers: Option<String>,
    /// Directory for stability.html, stability.json and plots
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
    /// The prompt, and how to decode.
    #[command(flatten)]
    pub generate: GenerateArgs,
}
