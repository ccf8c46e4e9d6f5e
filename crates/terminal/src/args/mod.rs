//! The command line as it is typed: every value optional, nothing decided yet.

mod decode;
pub mod flags;
mod generate;

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args};
use demask::LoadOptions;

pub use decode::{DecodeArgs, in_flags};
pub use flags::{Flags, Group, OfModel, flag};
pub use generate::GenerateArgs;

/// A parser to which a negative number is a value, to be refused by whoever knows its bounds, and not an unknown flag.
pub fn negative(command: clap::Command) -> clap::Command {
    let allow = |arg: Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(allow).mut_subcommands(negative)
}

/// Flags of every command.
#[derive(Debug, Args)]
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

/// A path argument.
pub type Path = PathBuf;

/// `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell: bash, elvish, fish, powershell, zsh
    #[arg(value_name = "SHELL")]
    pub shell: String,
}

/// `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the pages
    #[arg(long, value_name = "DIR")]
    pub out: Path,
}
