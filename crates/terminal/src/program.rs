//! A program from its arguments to its exit code: parsing, refusals, the log, and then its command.

use std::process::ExitCode;

use clap::{
    Command, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
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
    /// Runs the program, and returns its exit code.
    pub fn run<A: Arguments>(&self, run: fn(A) -> anyhow::Result<()>) -> ExitCode {
        let code = exit::report(self.parse_and_run(run), self);
        output::settle();
        code
    }

    fn parse_and_run<A: Arguments>(&self, run: fn(A) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let program = (self.command)();
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
        let known = self.moved_or_removed(error, &text);
        Err(usage(known.unwrap_or_else(|| exit::one_line_of_clap(&text))))
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
