//! The command line of `demask-lab`, as it is typed.

mod analyze;
mod cost;
mod eval;
mod tools;

use clap::{CommandFactory, Parser, Subcommand};
use demask_terminal::{
    args::{CompletionsArgs, ManArgs, negative},
    help::{DEVICE, JSON, MODEL, Page, SEED, arranged},
    program::Arguments,
};

pub use analyze::{AcceptanceArgs, AnalyzeArgs, AnalyzeCommand, PathArgs, StabilityArgs, StalenessArgs, SubjectArgs};
pub use cost::CostArgs;
pub use demask_terminal::args::{DecodeArgs, GenerateArgs, Path, SharedArgs, flag};
pub use eval::{CodeExecution, EvalArgs, EvalCommandArgs, RecipeArgs, RecipeCommand, ReportArgs, TuneArgs};
pub use tools::{
    AttentionArgs, BenchArgs, BenchCommand, BenchGenerateArgs, LinearArgs, LogitsArgs, StepArgs, SynthArgs, TraceArgs,
};

/// Shared flags of a command that runs a model.
const ALL: &[&[&str]] = &[MODEL, DEVICE, SEED, JSON];
/// What `-h` shows of every analysis, beside its own flags.
macro_rules! analysis {
    ($($own:literal),*) => {
        &["model", "threads", "problems", $($own,)* "gen_length", "decoder", "cache", "out", "json"]
    };
}

/// The commands as their help shows them.
pub const PAGES: &[Page] = &[
    Page {
        command: "eval",
        shared: ALL,
        brief: &[
            "model",
            "quantize",
            "threads",
            "limit",
            "shots",
            "runs",
            "sweep",
            "batch",
            "gen_length",
            "out",
            "json",
        ],
    },
    Page {
        command: "tune",
        shared: ALL,
        brief: &["model", "quantize", "threads", "limit", "dev", "loss", "by", "sweep", "batch", "out", "json"],
    },
    Page { command: "report", shared: &[JSON], brief: &[] },
    Page { command: "recipe list", shared: &[JSON], brief: &[] },
    Page { command: "recipe show", shared: &[JSON], brief: &[] },
    Page {
        command: "bench linear",
        shared: &[DEVICE, JSON],
        brief: &[
            "dtype",
            "quantize",
            "format",
            "activations",
            "threads",
            "rows",
            "inputs",
            "outputs",
            "repeat",
            "json",
        ],
    },
    Page {
        command: "bench attention",
        shared: &[DEVICE, JSON],
        brief: &["dtype", "threads", "rows", "keys", "heads", "kv_heads", "head_dim", "repeat", "json"],
    },
    Page {
        command: "bench step",
        shared: ALL,
        brief: &[
            "model",
            "dtype",
            "quantize",
            "activations",
            "threads",
            "rows",
            "keys",
            "head_rows",
            "branches",
            "repeat",
            "json",
        ],
    },
    Page {
        command: "bench generate",
        shared: ALL,
        brief: &[
            "model",
            "quantize",
            "threads",
            "prompt_length",
            "gen_length",
            "decoder",
            "cache",
            "acceptance",
            "repeat",
            "json",
        ],
    },
    Page { command: "analyze stability", shared: ALL, brief: analysis!("drawn_layers") },
    Page { command: "analyze staleness", shared: ALL, brief: analysis!("caches") },
    Page { command: "analyze acceptance", shared: ALL, brief: analysis!("guide") },
    Page { command: "analyze path", shared: ALL, brief: analysis!("width") },
    Page { command: "trace", shared: &[], brief: &[] },
    Page { command: "synth", shared: &[SEED, JSON], brief: &[] },
    Page {
        command: "logits",
        shared: &[MODEL, DEVICE, JSON],
        brief: &[
            "model",
            "dtype",
            "threads",
            "tokens",
            "tokens_file",
            "block_causal",
            "causal",
            "layers",
            "out",
            "json",
        ],
    },
    Page {
        command: "cost",
        shared: ALL,
        brief: &[
            "model",
            "quantize",
            "like",
            "guide",
            "prompt_length",
            "gen_length",
            "decoder",
            "cache",
            "acceptance",
            "out",
            "json",
        ],
    },
    Page { command: "completions", shared: &[], brief: &[] },
    Page { command: "man", shared: &[], brief: &[] },
];

/// The parser.
pub fn command() -> clap::Command {
    arranged(negative(Cli::command()), PAGES)
}

/// Measures diffusion language models, and looks into them. Without --model, it is about a small built-in one.
#[derive(Debug, Parser)]
#[command(name = "demask-lab", version, subcommand_required = true, max_term_width = 100)]
#[command(
    after_help = "demask-lab COMMAND -h shows the flags that are used most, demask-lab COMMAND --help all of them."
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments for Cli {
    fn shared(&self) -> &SharedArgs {
        &self.shared
    }
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer the problems of tasks and report how well and how fast
    Eval(Box<EvalCommandArgs>),
    /// List the papers' tables as files of runs, and print them
    Recipe(RecipeArgs),
    /// Join results of different models, machines and days into one report
    Report(ReportArgs),
    /// Find the decoder and cache that cost least and keep a task's accuracy
    Tune(Box<TuneArgs>),
    /// Measure
    Bench(BenchArgs),
    /// Look into a network while it decodes
    Analyze(AnalyzeArgs),
    /// Replay a trace that generate --trace wrote
    Trace(TraceArgs),
    /// Make a random checkpoint of a real shape
    Synth(SynthArgs),
    /// Write raw logits of given tokens, to check against another implementation
    Logits(LogitsArgs),
    /// Show what an answer costs, without weights: operations, bytes and memory
    Cost(Box<CostArgs>),
    /// Write the completions of a shell: for packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages: for packages
    #[command(hide = true)]
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_twelve_flags_at_most() {
        assert_eq!(demask_terminal::help::mistakes(&command(), PAGES), [""; 0]);
    }
}
