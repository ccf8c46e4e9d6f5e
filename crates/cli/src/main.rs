//! The `demask` command: parse, resolve settings, run, print.
//!
//! [`args`] is what was typed, [`settings`] what it means, one file of [`commands`] does it. Everything that reaches
//! standard output goes through [`output`], every error through [`exit`], every environment variable through [`mod@env`].
#![forbid(unsafe_code)]

mod args;
mod canvas;
mod commands;
mod cost;
mod drafts;
mod env;
mod exit;
mod files;
mod interrupt;
mod load;
#[cfg(feature = "serve")]
mod notify;
mod output;
mod progress;
#[cfg(feature = "serve")]
mod serve_file;
mod settings;
mod show;
#[cfg(feature = "eval")]
mod sweep;

use std::process::ExitCode;

use clap::{
    FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use tracing_subscriber::filter::LevelFilter;

use crate::args::{Cli, SharedArgs};

fn main() -> ExitCode {
    // A process that is to become a sandbox must be nothing else before.
    #[cfg(feature = "eval")]
    if let Some(code) = demask_eval::sandbox::entry() {
        return code;
    }
    let code = exit::report(run());
    output::settle();
    code
}

fn run() -> anyhow::Result<()> {
    let parsed = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    log_to_stderr(&cli.shared);
    interrupt::install()?;
    commands::run(cli)
}

/// A call that was not understood, or a question for help.
fn refuse(error: &clap::Error) -> anyhow::Result<()> {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(output::text(&text)?);
    }
    if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        return Err(exit::usage("no command given: --help lists them; demask generate \"PROMPT\" answers a prompt"));
    }
    Err(exit::usage(removed(error, &text).map_or_else(|| exit::one_line_of_clap(&text), str::to_owned)))
}

/// Commands that are gone: the command above each, its name, and the refusal.
const REMOVED: [(&str, &str, &str); 2] = [
    (
        "demask bench",
        "serve",
        "bench serve was a command of demask 0.1.0: measure a server with a load generator such as aiperf, as bench/run.py serve-load does",
    ),
    (
        "demask bench",
        "curve",
        "bench curve was a command of demask 0.1.0: omit it, freedave drafts as many lanes as are nearly free",
    ),
];

/// Returns the refusal of a command that an earlier version had.
fn removed(error: &clap::Error, text: &str) -> Option<&'static str> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_it = |above: &str, gone: &str| gone == name && text.contains(&format!("Usage: {above} "));
    REMOVED.iter().find(|(above, gone, _)| is_it(above, gone)).map(|&(.., refusal)| refusal)
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
