//! A program from its arguments to its exit code: parsing, refusals, the log, and then its command.

use std::process::ExitCode;

use clap::{
    Arg, Command, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use demask::{Registry, methods::RegistryError};
use demask_settings::foreign;
use tracing_subscriber::filter::LevelFilter;

use crate::{
    args::SharedArgs,
    exit::{self, usage},
    help::{Page, refuse_unused},
    interrupt, output,
};

/// A refusal of what an earlier version had: the command above it, its name, or its flag, and the line.
pub type Removed = (&'static str, &'static str, &'static str);

/// A program: its parser, its names and its errors.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its parser.
    pub command: fn() -> Command,
    /// Its commands as their help shows them.
    pub pages: &'static [Page],
    /// A call that works, for those who gave no command.
    pub example: &'static str,
    /// Name of the other program.
    pub other: &'static str,
    /// Commands of the other program.
    pub elsewhere: &'static [&'static str],
    /// Commands and flags that are gone.
    pub removed: &'static [Removed],
    /// Returns whether an error that this crate does not know means that the call was wrong.
    pub is_usage: fn(&(dyn std::error::Error + 'static)) -> bool,
}

/// Arguments of a program.
pub trait Arguments: FromArgMatches {
    /// Returns the flags of every command.
    fn shared(&self) -> &SharedArgs;
}

impl Program {
    /// Runs the program with the methods of a registry, and returns its exit code.
    pub fn run<A: Arguments>(
        &self,
        registry: Result<Registry, RegistryError>,
        run: fn(A) -> anyhow::Result<()>,
    ) -> ExitCode {
        let installed = registry.and_then(Registry::install).map_err(|error| usage(error.to_string()));
        let code = exit::report(installed.and_then(|()| self.parse_and_run(run)), self);
        output::settle();
        code
    }

    fn parse_and_run<A: Arguments>(&self, run: fn(A) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let program = (self.command)();
        let typed: Vec<String> =
            std::env::args_os().skip(1).map(|typed| typed.to_string_lossy().into_owned()).collect();
        if let Some((flag, foreign)) = foreign::flag_of_letters(typed.iter().map(String::as_str)) {
            return Err(usage(format!("unexpected argument '{flag}', {foreign}")));
        }
        let parsed = program.clone().try_get_matches().and_then(|found| Ok((A::from_arg_matches(&found)?, found)));
        let (arguments, matches) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse(&error),
        };
        refuse_unused(&program, &matches, self.pages)?;
        log_to_stderr(arguments.shared());
        interrupt::install()?;
        run(arguments)
    }

    /// Answers a call that was not understood, or a question for help.
    fn refuse(&self, error: &clap::Error) -> anyhow::Result<()> {
        let text = error.render().to_string();
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Ok(output::text(&text)?);
        }
        if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
            return Err(usage(format!("no command given: --help lists them; {}", self.example)));
        }
        let known = self.moved_or_removed(error, &text).or_else(|| self.known_elsewhere(error, &text));
        Err(usage(known.unwrap_or_else(|| exit::one_line_of_clap(&text))))
    }

    /// Returns the refusal of a flag that other commands have, and of what other people's programs have.
    fn known_elsewhere(&self, error: &clap::Error, text: &str) -> Option<String> {
        let named = |kind| match error.get(kind) {
            Some(ContextValue::String(name)) => Some(name.as_str()),
            _ => None,
        };
        if let Some(name) = named(ContextKind::InvalidSubcommand) {
            return foreign::command(name).map(|foreign| format!("unrecognized subcommand '{name}', {foreign}"));
        }
        let name = named(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
        if !name.starts_with('-') && text.contains(" [PROMPT]") {
            return Some(format!(
                "unexpected argument '{name}' beside the prompt: quote a text of several words, and name a model by --model"
            ));
        }
        let having = commands_with(&(self.command)(), name);
        if !having.is_empty() {
            return Some(format!("unexpected argument '{name}', a flag of {}", having.join(", ")));
        }
        foreign::setting(name).map(|foreign| format!("unexpected argument '{name}', {foreign}"))
    }

    /// Returns the refusal of a command that the other program or an earlier version has.
    fn moved_or_removed(&self, error: &clap::Error, text: &str) -> Option<String> {
        let name =
            [ContextKind::InvalidSubcommand, ContextKind::InvalidArg].into_iter().find_map(|kind| error.get(kind));
        let Some(ContextValue::String(name)) = name else { return None };
        let own = (self.command)().get_name().to_owned();
        let is_below = |above: &str| text.contains(&format!("Usage: {above} "));
        // The program's own call has no command in it.
        if text.contains(&format!("Usage: {own} [")) && self.elsewhere.contains(&name.as_str()) {
            let other = self.other;
            return Some(format!("{name} is a command of {other}: {other} {name} ..."));
        }
        let found = self.removed.iter().find(|(above, gone, _)| gone == name && is_below(above));
        found.map(|&(.., refusal)| refusal.to_owned())
    }
}

/// Returns the commands below one that show a flag.
fn commands_with(program: &Command, flag: &str) -> Vec<String> {
    let is_it = |arg: &Arg| match flag.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| flag == format!("-{short}")),
    };
    let mut found = Vec::new();
    for below in program.get_subcommands().filter(|below| !below.is_hide_set()) {
        if below.get_arguments().any(|arg| is_it(arg) && !arg.is_hide_set()) {
            found.push(below.get_name().to_owned());
        }
        found.extend(commands_with(below, flag).iter().map(|name| format!("{} {name}", below.get_name())));
    }
    found
}

/// Sends the libraries' log to standard error: nothing worse than a warning unless `-v` asks for more.
fn log_to_stderr(shared: &SharedArgs) {
    let level = match (shared.quiet, shared.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| output::Notes)
        .with_ansi(output::stderr_has_colour())
        // A log that cannot be written, on a full disk for example, is nothing to panic about.
        .log_internal_errors(false)
        .without_time()
        .init();
}
