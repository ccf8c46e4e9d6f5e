//! The command line of `demask`, as it is typed.

pub mod serve;

use clap::{Args, CommandFactory, Parser, Subcommand};
pub use demask_terminal::args::{DecodeArgs, GenerateArgs, SharedArgs};
use demask_terminal::{
    args::{CompletionsArgs, ManArgs, negative},
    program::Arguments,
};

/// The parser.
pub fn command() -> clap::Command {
    negative(Cli::command())
}

/// Runs diffusion language models. Without --model, a small built-in one answers.
#[derive(Debug, Parser)]
#[command(name = "demask", version, subcommand_required = true, max_term_width = 100)]
#[command(after_long_help = demask_terminal::env::help(crate::env::KNOBS))]
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
    /// Answer one prompt
    Generate(Box<GenerateArgs>),
    /// Talk: one line, one message; /reset forgets, /exit ends
    Chat(Box<ChatArgs>),
    /// Serve an OpenAI-compatible API and a page to watch answers being unmasked
    Serve(Box<serve::ServeArgs>),
    /// Show what a model directory holds, without loading it
    Inspect(InspectArgs),
    /// Show what this machine offers
    Doctor,
    /// Ask a server how it is: exit code 0 if it serves, 1 if not
    #[command(hide = true)]
    Health(serve::HealthArgs),
    /// Write what a shell completes: for packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages: for packages
    #[command(hide = true)]
    Man(ManArgs),
}

/// `demask chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// `demask inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model: a directory, or org/name of a hub [default: the built-in demo]
    #[arg(value_name = "MODEL")]
    pub location: Option<String>,
}
