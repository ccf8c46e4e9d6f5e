//! Arguments of `analyze`, as they are typed.

use clap::{Args, Subcommand};

use super::{GenerateArgs, Path};

/// `demask-lab analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// Subject of the analysis.
    #[command(subcommand)]
    pub command: AnalyzeCommand,
}

/// Subjects of `analyze`.
#[derive(Debug, Subcommand)]
pub enum AnalyzeCommand {
    /// Changes of K, V, attention and MLP outputs from step to step: why caches work
    Stability(Box<StabilityArgs>),
    /// Distance of the K and V that caches keep from the true ones, by layer, position and age
    Staleness(Box<StalenessArgs>),
    /// Accepted drafts by place, forward and number, and the calibration of confidences
    Acceptance(Box<AcceptanceArgs>),
    /// The fewest forwards that lead to static decoding's tokens, beside what freedave needs
    Path(Box<PathArgs>),
}

/// Prompts that every analysis decodes, and its output files.
#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// Word problems of the demo to decode, if no prompt is given [default: 4]
    #[arg(long, value_name = "N")]
    pub problems: Option<usize>,
    /// Directory for a page, its numbers as JSON and plots
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
    /// The prompt, and how to decode.
    #[command(flatten)]
    pub generate: GenerateArgs,
}

/// `demask-lab analyze stability`.
#[derive(Debug, Args)]
pub struct StabilityArgs {
    /// Layers with pictures of their own, beside the average: 0,3
    #[arg(long, value_name = "LAYERS")]
    pub drawn_layers: Option<String>,
    /// Prompts and methods to decode.
    #[command(flatten)]
    pub subject: SubjectArgs,
}

/// `demask-lab analyze staleness`.
#[derive(Debug, Args)]
pub struct StalenessArgs {
    /// Caches to compare: "prefix|dual|dllm:rho=0" [default: all that the model can have, as they are by default]
    #[arg(long, value_name = "SPECS")]
    pub caches: Option<String>,
    /// Prompts and methods to decode.
    #[command(flatten)]
    pub subject: SubjectArgs,
}

/// `demask-lab analyze acceptance`.
#[derive(Debug, Args)]
pub struct AcceptanceArgs {
    /// Prompts and methods to decode.
    #[command(flatten)]
    pub subject: SubjectArgs,
}

/// `demask-lab analyze path`.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// Canvases that the beam search runs at each depth [default: 8]
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Prompts and methods to decode.
    #[command(flatten)]
    pub subject: SubjectArgs,
}
