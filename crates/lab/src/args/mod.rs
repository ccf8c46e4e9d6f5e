//! The command line of `demask-lab`, as it is typed.

mod analyze;
mod cost;
mod eval;
mod tools;

use clap::{CommandFactory, Parser, Subcommand};
use demask_terminal::{
    args::{CompletionsArgs, ManArgs, negative},
    program::Arguments,
};

pub use analyze::{AcceptanceArgs, AnalyzeArgs, AnalyzeCommand, PathArgs, StabilityArgs, StalenessArgs, SubjectArgs};
pub use cost::CostArgs;
pub use demask_terminal::args::{DecodeArgs, GenerateArgs, Path, SharedArgs, flag};
pub use eval::{CodeExecution, EvalArgs, RecipeArgs, RecipeCommand, ReportArgs, TuneArgs};
pub use tools::{
    AttentionArgs, BenchArgs, BenchCommand, BenchGenerateArgs, LinearArgs, LogitsArgs, StepArgs, SynthArgs, TraceArgs,
};

/// The parser.
pub fn command() -> clap::Command {
    negative(Cli::command())
}

/// Measures diffusion language models, and looks into them. Without --model, it is about a small built-in one.
#[derive(Debug, Parser)]
#[command(name = "demask-lab", version, subcommand_required = true, max_term_width = 100)]
#[command(after_long_help = demask_terminal::env::help(&[]))]
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
    Eval(Box<EvalArgs>),
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
    /// Write what a shell completes: for packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages: for packages
    #[command(hide = true)]
    Man(ManArgs),
}
