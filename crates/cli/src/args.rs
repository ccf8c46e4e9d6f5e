//! The command line of `demask`, as it is typed.

pub mod serve;

use clap::{Args, CommandFactory, Parser, Subcommand};
pub use demask_terminal::args::{DecodeArgs, GenerateArgs, SharedArgs};
use demask_terminal::{
    args::{CompletionsArgs, ManArgs, negative},
    help::{DEVICE, JSON, MODEL, Page, SEED, arranged},
    program::Arguments,
};

/// The commands as their help shows them.
pub const PAGES: &[Page] = &[
    Page {
        command: "generate",
        shared: &[MODEL, DEVICE, SEED, JSON],
        brief: &[
            "model",
            "quantize",
            "threads",
            "prompt_text",
            "gen_length",
            "max_tokens",
            "temperature",
            "decoder",
            "cache",
            "watch",
            "json",
        ],
    },
    Page {
        command: "chat",
        shared: &[MODEL, DEVICE, SEED, JSON],
        brief: &[
            "model",
            "quantize",
            "threads",
            "system",
            "gen_length",
            "max_tokens",
            "temperature",
            "decoder",
            "cache",
        ],
    },
    Page {
        command: "serve",
        shared: &[MODEL, DEVICE],
        brief: &[
            "model",
            "quantize",
            "threads",
            "host",
            "port",
            "api_key_file",
            "max_gen_length",
            "config",
            "print_config",
        ],
    },
    Page { command: "pull", shared: &[JSON], brief: &[] },
    Page { command: "list", shared: &[DEVICE, JSON], brief: &["quantize", "json"] },
    Page { command: "inspect", shared: &[MODEL, DEVICE, JSON], brief: &["model", "quantize", "json"] },
    Page { command: "doctor", shared: &[DEVICE, JSON], brief: &[] },
    Page { command: "health", shared: &[], brief: &[] },
    Page { command: "completions", shared: &[], brief: &[] },
    Page { command: "man", shared: &[], brief: &[] },
];

/// The parser.
pub fn command() -> clap::Command {
    let length = |command: clap::Command| command.mut_arg("gen_length", |flag| flag.short('n'));
    let program = Cli::command().mut_subcommand("generate", length).mut_subcommand("chat", length);
    arranged(negative(program), PAGES)
}

/// Runs diffusion language models. Without --model, a small built-in one answers.
#[derive(Debug, Parser)]
#[command(name = "demask", version, subcommand_required = true, max_term_width = 100)]
#[command(after_help = "demask COMMAND -h shows the flags that are used most, demask COMMAND --help all of them.")]
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
    /// Talk: one line, one message; /help lists the commands. On a terminal lines are edited and remembered
    Chat(Box<ChatArgs>),
    /// Serve an OpenAI-compatible API and a page to watch answers being unmasked
    Serve(Box<serve::ServeArgs>),
    /// Fetch a model of a hub into the cache
    Pull(PullArgs),
    /// List the models in the cache, and whether there is memory for them
    List,
    /// Show the contents of a model directory, without loading it
    Inspect(InspectArgs),
    /// Show what this machine offers
    Doctor,
    /// Check a server: exit code 0 if it serves, 1 if not
    #[command(hide = true)]
    Health(serve::HealthArgs),
    /// Write the completions of a shell: for packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages: for packages
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Returns the model that its argument names.
    pub fn location(&self) -> Option<&str> {
        match self {
            Self::Chat(args) => args.location.as_deref(),
            Self::Serve(args) => args.location.as_deref(),
            Self::Inspect(args) => args.location.as_deref(),
            _ => None,
        }
    }
}

/// `demask pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// Model of a hub: org/name, org/name:Q4_K_M or org/name/FILE.gguf, with @REVISION after it
    #[arg(value_name = "ORG/NAME")]
    pub location: String,
}

/// `demask chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Model, as --model takes it
    #[arg(value_name = "MODEL")]
    pub location: Option<String>,
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
    /// Keep no history file: your messages are forgotten at the end
    #[arg(long)]
    pub no_history: bool,
}

/// `demask inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model, as --model takes it [default: the built-in demo]
    #[arg(value_name = "MODEL")]
    pub location: Option<String>,
}

#[cfg(test)]
mod tests {
    use demask_settings::foreign::{COMMANDS, SETTINGS};

    use super::*;

    #[test]
    fn advice_for_names_of_other_programs_is_up_to_date() {
        let program = command();
        let flags: Vec<&str> =
            program.get_subcommands().flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long).collect();
        let is_ours = |name: &str| flags.contains(&name.replace('_', "-").as_str());
        for foreign in SETTINGS {
            for named in foreign.here.split('`').skip(1).step_by(2) {
                assert!(is_ours(named), "{named} is no flag: {foreign}");
            }
            assert_eq!(foreign.names.iter().find(|name| is_ours(name)), None, "a flag of our own");
        }
        let commands: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
        for foreign in COMMANDS {
            assert_eq!(foreign.names.iter().find(|name| commands.contains(name)), None, "a command of our own");
            if let Some((_, after)) = foreign.here.split_once("use demask ") {
                assert!(after.split(' ').next().is_some_and(|name| commands.contains(&name)), "{foreign}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_and_twelve_flags_at_most() {
        assert_eq!(demask_terminal::help::mistakes(&command(), PAGES), [""; 0]);
    }
}
