//! End of the command: the one place that turns errors into messages and exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; also if the reader of standard output has gone away |
//! | 1 | something failed |
//! | 2 | the call was wrong |
//! | 130 | interrupted |

use std::{io, process::ExitCode};

use demask::{Error, SettingError};
use demask::{
    ModelError, UnusableDevice,
    costs::{CostError, dry_run::ReplayError, estimate::EstimateError, shapes::ShapeError},
    layers::{
        checkpoint::{CheckpointError, HubError},
        decode,
    },
};
use demask_settings::{names::UnknownName, toml::FileError};

use crate::{Program, args::in_flags, output};

/// A wrong call, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The user has pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Exit code of an interrupted command, as shells expect it.
pub const INTERRUPTED: u8 = 130;

/// A wrong call as an error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Prints an error, if there is one, and chooses the exit code.
pub fn report(result: anyhow::Result<()>, program: &Program) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let code = code(&error, program.is_usage);
    if code != 0 {
        output::note(&line(&error, &(program.command)()));
    }
    ExitCode::from(code)
}

/// Returns the line that tells an error, in the flags of a program.
pub fn line(error: &anyhow::Error, program: &clap::Command) -> String {
    format!("error: {}", in_flags(program, &message(error)))
}

/// Test of an error, or of one of its causes.
type Test = fn(&(dyn std::error::Error + 'static)) -> bool;

fn code(error: &anyhow::Error, is_usage_of_program: Test) -> u8 {
    let any = |test: Test| error.chain().any(test);
    match () {
        () if any(is_broken_pipe) => 0,
        () if any(is_interruption) => INTERRUPTED,
        () if any(is_usage) || any(is_usage_of_program) => 2,
        () => 1,
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn is_interruption(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(Error::Interrupted))
}

/// A place that was named is not there, or is another kind of place.
fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory)
}

fn is_usage(error: &(dyn std::error::Error + 'static)) -> bool {
    fn of<E: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static), is_usage: fn(&E) -> bool) -> bool {
        error.downcast_ref().is_some_and(is_usage)
    }
    error.is::<Usage>()
        || of(error, is_missing)
        || error.is::<decode::SpecError>()
        || error.is::<UnknownName>()
        || error.is::<SettingError>()
        || error.is::<FileError>()
        || of(error, Error::is_usage)
        || of(error, UnusableDevice::is_usage)
        || of(error, CheckpointError::is_usage)
        || of(error, ModelError::is_usage)
        || error.is::<ReplayError>()
        || matches!(error.downcast_ref(), Some(EstimateError::Replay(_)))
        || of(error, CostError::is_usage)
        || of(error, HubError::is_usage)
        || matches!(error.downcast_ref(), Some(ShapeError::Unknown { .. } | ShapeError::BadLayers { .. }))
}

/// The whole chain of causes on one line; a cause that its effect has named already is not repeated.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Messages of the standard library about text that is not a number, and the expected form. All whole numbers of the
/// command line start at 0.
const READING: [(&str, &str); 4] = [
    ("invalid digit found in string", "a whole number from 0 on"),
    ("cannot parse integer from empty string", "a whole number from 0 on"),
    ("number too large to fit in target type", "a smaller number"),
    ("invalid float literal", "a number"),
];

/// Shortens the argument parser's paragraph to one line.
pub fn one_line_of_clap(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|stop| text.find(stop)).min();
    // Its advice to write a flag behind `--` helps a text that begins with a hyphen alone, and flags are mistyped far more often.
    let mut pieces = text[..end.unwrap_or(text.len())].split("\n  tip:").map(str::trim);
    let said = pieces.next().unwrap_or_default().to_owned();
    let tips = pieces.filter(|tip| !tip.contains(" as a value, use "));
    let mut line = one_line(&tips.fold(said, |line, tip| line + "; " + tip));
    for (reason, expected) in READING {
        if let Some(found) = line.strip_suffix(reason) {
            line = format!("{found}expected {expected}");
        }
    }
    format!("{line} (--help lists what there is)")
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = "threshold:x=1".parse::<decode::DecoderSpec>().unwrap_err();
        let error = anyhow::Error::from(error);
        assert_eq!(message(&error).matches("unknown parameter").count(), 1);
        assert_eq!(code(&error, |_| false), 2);
        let error = Err::<(), _>(io::Error::other("full\ndisk")).context("cannot write x").unwrap_err();
        assert_eq!((message(&error).as_str(), code(&error, |_| false)), ("cannot write x: full disk", 1));
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert_eq!(code(&error, |_| false), 0);
        assert_eq!(code(&Interrupted.into(), |_| false), INTERRUPTED);
    }

    #[test]
    fn the_parsers_paragraphs_become_one_line() {
        let text = "error: unexpected argument '--fob' found\n\n  tip: a similar one: '--foo'\n\nUsage: demask\n";
        assert_eq!(
            one_line_of_clap(text),
            "unexpected argument '--fob' found; a similar one: '--foo' (--help lists what there is)"
        );
        let text =
            "error: unexpected argument '-x' found\n\n  tip: to pass '-x' as a value, use '-- -x'\n\nUsage: demask\n";
        assert_eq!(one_line_of_clap(text), "unexpected argument '-x' found (--help lists what there is)");
        let text = "error: invalid value 'x' for '--steps <N>': invalid digit found in string\n\nFor more information";
        assert_eq!(
            one_line_of_clap(text),
            "invalid value 'x' for '--steps <N>': expected a whole number from 0 on (--help lists what there is)"
        );
    }
}
