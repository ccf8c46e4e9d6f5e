//! Arguments of the commands that do not answer prompts.

use clap::{Args, Subcommand};

use super::{DecodeArgs, Path};

/// `demask-lab logits`.
#[derive(Debug, Args)]
pub struct LogitsArgs {
    /// Token ids: 1,2,3
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<String>,
    /// File with one JSON array of token ids a line; -: standard input
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<Path>,
    /// Mask of block-diffusion models with this block, instead of the model's own
    #[arg(long, value_name = "B")]
    pub block_causal: Option<u32>,
    /// Causal mask instead of the model's own
    #[arg(long)]
    pub causal: bool,
    /// Write every layer's output too
    #[arg(long)]
    pub layers: bool,
    /// File to write
    #[arg(long, value_name = "FILE.safetensors")]
    pub out: Option<Path>,
}

/// `demask-lab synth`.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// Shape to imitate: llada-8b, open-dcoder-0.5b, sdar-4b, ...; an unknown name lists all
    #[arg(long, value_name = "NAME")]
    pub like: Option<String>,
    /// Layers [default: as many as the real one]
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Make an adapter (PEFT LoRA) of this rank for the shape, instead of a checkpoint
    #[arg(long, value_name = "RANK")]
    pub adapter_rank: Option<usize>,
    /// Directory to make
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
}

/// `demask-lab trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// File that generate --trace wrote; -: standard input
    #[arg(value_name = "FILE.jsonl")]
    pub file: Path,
    /// Steps a second on a terminal [default: 10]
    #[arg(long, value_name = "N")]
    pub speed: Option<f64>,
    /// Show the drafts of each forward, the predictions in them, and which were taken
    #[arg(long)]
    pub drafts: bool,
    /// Draw into a file instead: the canvas as a picture that moves, or the drafts with --drafts
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<Path>,
    /// Draw a picture that stands still instead: the canvas after so many forwards each, side by side; 0: the masks
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub frames: Vec<usize>,
}

/// `demask-lab bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Subject of the measurement.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// Subjects of measurements.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// One product of rows with a weight (--dtype: q8 and q4 too)
    Linear(LinearArgs),
    /// Attention of rows that all see the same keys
    Attention(AttentionArgs),
    /// Seconds of one forward, by part
    Step(StepArgs),
    /// Whole answers to a prompt of random tokens
    Generate(Box<BenchGenerateArgs>),
}

impl BenchCommand {
    /// Returns whether it measures a model.
    pub fn has_model(&self) -> bool {
        matches!(self, Self::Step(_) | Self::Generate(_))
    }
}

/// `demask-lab bench linear`.
#[derive(Debug, Args)]
pub struct LinearArgs {
    /// Rows, or several numbers of rows [default: 1,32,256]
    #[arg(long, value_name = "N[,N]")]
    pub rows: Option<String>,
    /// Inputs [default: 4096]
    #[arg(long = "in", value_name = "N")]
    pub inputs: Option<usize>,
    /// Outputs [default: 12288]
    #[arg(long = "out", value_name = "N")]
    pub outputs: Option<usize>,
    /// Type of a GGUF file's weight, as q4_k, instead of --quantize (processors)
    #[arg(long, value_name = "TYPE")]
    pub format: Option<String>,
    /// Number of measured rounds through all numbers of rows; short products run several times in each [default: 5]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// Measures every kernel that could do it, and not the one alone that is chosen (GPUs)
    #[arg(long)]
    pub every_kernel: bool,
}

/// `demask-lab bench attention`.
#[derive(Debug, Args)]
pub struct AttentionArgs {
    /// Rows, or several numbers of rows [default: 256]
    #[arg(long, value_name = "N[,N]")]
    pub rows: Option<String>,
    /// Keys that each row sees [default: 2048]
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Heads [default: 32]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Heads of K and V [default: as many as heads]
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<usize>,
    /// Width of a head [default: 128]
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Number of measured runs [default: 5]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// Measures every kernel that could do it, and not the one alone that is chosen (GPUs)
    #[arg(long)]
    pub every_kernel: bool,
}

/// `demask-lab bench generate`.
#[derive(Debug, Args)]
pub struct BenchGenerateArgs {
    /// Random tokens of the prompt [default: 64, with --replay as many as the trace has]
    #[arg(long, value_name = "N")]
    pub prompt_length: Option<usize>,
    /// Number of measured answers [default: 5]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// Predictions of a recorded run take the place of the network's, which runs all the same: what generate --trace wrote
    /// with --trace-predictions and --ignore-eos
    #[arg(long, value_name = "FILE.jsonl")]
    pub replay: Option<Path>,
    /// Probability that a draft comes true, as for cost: predictions of which this share does take the place of the
    /// network's, which runs all the same [default: the network decides]
    #[arg(long, value_name = "A", conflicts_with = "replay")]
    pub acceptance: Option<f64>,
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// `demask-lab bench step`.
#[derive(Debug, Args)]
pub struct StepArgs {
    /// Rows of the forward, or several numbers of rows: 32,256
    #[arg(long, value_name = "N[,N]")]
    pub rows: Option<String>,
    /// Keys that the rows see: slots computed before, and the rows themselves [default: the rows]
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Rows that each layer computes after the first, those whose values have drifted most (cache dllm) [default: all]
    #[arg(long, value_name = "N")]
    pub computed: Option<usize>,
    /// Drafts of the same rows side by side, as freedave verifies them [default: none, the rows are the canvas]
    #[arg(long, value_name = "N")]
    pub branches: Option<usize>,
    /// Rows that the head computes [default: all]
    #[arg(long, value_name = "N")]
    pub head_rows: Option<usize>,
    /// Number of measured forwards [default: 5]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
}
