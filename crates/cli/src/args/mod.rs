//! The command line as it is typed: every value optional, nothing decided yet.

#[cfg(feature = "analyze")]
mod analyze;
mod cost;
mod decode;
#[cfg(feature = "eval")]
mod eval;
mod flags;
mod generate;
#[cfg(feature = "serve")]
pub mod serve;
mod tools;

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand};
use demask::LoadOptions;

#[cfg(feature = "analyze")]
pub use analyze::{AcceptanceArgs, AnalyzeArgs, AnalyzeCommand, PathArgs, StabilityArgs, StalenessArgs, SubjectArgs};
pub use cost::CostArgs;
pub use decode::{DecodeArgs, in_flags};
#[cfg(feature = "eval")]
pub use eval::{CodeExecution, EvalArgs, RecipeArgs, RecipeCommand, ReportArgs, TuneArgs};
pub use flags::{Flags, Group, OfModel, flag};
pub use generate::{ChatArgs, GenerateArgs};
pub use tools::{
    AttentionArgs, BenchArgs, BenchCommand, BenchGenerateArgs, CompletionsArgs, InspectArgs, LinearArgs, LogitsArgs,
    ManArgs, StepArgs, SynthArgs, TraceArgs,
};

/// The parser.
pub fn command() -> clap::Command {
    negative(Cli::command())
}

/// A parser to which a negative number is a value, to be refused by whoever knows its bounds, and not an unknown flag.
pub fn negative(command: clap::Command) -> clap::Command {
    let allow = |arg: Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(allow).mut_subcommands(negative)
}

/// Runs diffusion language models, and looks into them. Without --model, a small built-in one answers.
#[derive(Debug, Parser)]
#[command(name = "demask", version, subcommand_required = true, max_term_width = 100)]
#[command(after_long_help = crate::env::help())]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shared")]
pub struct SharedArgs {
    /// Model, device and number formats.
    #[command(flatten)]
    pub model: Flags<LoadOptions, OfModel>,
    /// Key of all randomness [default: 0]
    #[arg(long, global = true, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON, and nothing else, to standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more (twice: everything)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print nothing but errors on standard error
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer one prompt
    Generate(Box<GenerateArgs>),
    /// Talk: one line, one message; /reset forgets, /exit ends
    Chat(Box<ChatArgs>),
    /// Answer the problems of tasks and report how well and how fast
    #[cfg(feature = "eval")]
    Eval(Box<EvalArgs>),
    /// List the papers' tables as files of runs, and print them
    #[cfg(feature = "eval")]
    Recipe(RecipeArgs),
    /// Join results of different models, machines and days into one report
    #[cfg(feature = "eval")]
    Report(ReportArgs),
    /// Find the decoder and cache that cost least and keep a task's accuracy
    #[cfg(feature = "eval")]
    Tune(Box<TuneArgs>),
    /// Write raw logits of given tokens, to check against another implementation
    Logits(LogitsArgs),
    /// Show what a model directory holds, without loading it
    Inspect(InspectArgs),
    /// Show what this machine offers
    Doctor,
    /// Make a random checkpoint of a real shape
    Synth(SynthArgs),
    /// Replay a trace that generate --trace wrote
    Trace(TraceArgs),
    /// Serve an OpenAI-compatible API and a page to watch answers being unmasked
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArgs>),
    /// Ask a server how it is: exit code 0 if it serves, 1 if not
    #[cfg(feature = "serve")]
    Health(serve::HealthArgs),
    /// Show what an answer costs, without weights: operations, bytes and memory
    Cost(Box<CostArgs>),
    /// Measure
    Bench(BenchArgs),
    /// Look into a network while it decodes
    #[cfg(feature = "analyze")]
    Analyze(AnalyzeArgs),
    /// Write what a shell completes: for packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages: for packages
    #[command(hide = true)]
    Man(ManArgs),
    /// Not in this build: --features eval adds it
    #[cfg(not(feature = "eval"))]
    Eval(LeftOutArgs),
    /// Not in this build: --features eval adds it
    #[cfg(not(feature = "eval"))]
    Recipe(LeftOutArgs),
    /// Not in this build: --features eval adds it
    #[cfg(not(feature = "eval"))]
    Report(LeftOutArgs),
    /// Not in this build: --features eval adds it
    #[cfg(not(feature = "eval"))]
    Tune(LeftOutArgs),
    /// Not in this build: --features analyze adds it
    #[cfg(not(feature = "analyze"))]
    Analyze(LeftOutArgs),
    /// Not in this build: --features serve adds it
    #[cfg(not(feature = "serve"))]
    Serve(LeftOutArgs),
    /// Not in this build: --features serve adds it
    #[cfg(not(feature = "serve"))]
    Health(LeftOutArgs),
}

/// Arguments of a command that this build lacks.
#[cfg(not(all(feature = "analyze", feature = "eval", feature = "serve")))]
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct LeftOutArgs {
    /// Typed arguments.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub typed: Vec<String>,
}

/// A path argument.
pub type Path = PathBuf;
