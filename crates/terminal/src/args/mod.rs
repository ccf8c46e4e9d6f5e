//! The command line as it is typed: every value optional, nothing decided yet.

mod decode;
pub mod flags;
mod generate;

use std::{path::PathBuf, str::FromStr};

use clap::{Arg, ArgAction, Args};
use demask::LoadOptions;

pub use decode::{DecodeArgs, in_flags};
pub use flags::{Flags, Group, OfModel, flag};
pub use generate::GenerateArgs;

/// Returns a parser to which a negative number is a value, not an unknown flag. The check of the value's bounds refuses
/// it.
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
    /// Key of all randomness; -1: drawn [default: 0; generate and chat draw one where a temperature is above 0]
    #[arg(long, global = true, value_name = "N")]
    pub seed: Option<Seed>,
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

/// A seed as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// One that is drawn.
    Drawn,
    /// This one.
    Given(u64),
}

impl FromStr for Seed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = "expected a whole number from 0 on, or -1 for one that is drawn";
        if text == "-1" { Ok(Self::Drawn) } else { text.parse().map(Self::Given).map_err(|_| refusal) }
    }
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
