//! Errors of a data file.

use std::io;

use demask_checkpoint::HubError;
use thiserror::Error;

use crate::FieldError;

/// Problems cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file system refuses.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// File.
        path: String,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// A line that is not JSON.
    #[error("{path}, line {line}: {detail}; expected one JSON object a line, or one JSON list")]
    Line {
        /// File.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Message of the parser.
        detail: String,
    },
    /// A file that is not what its name or its first bytes promise.
    #[error("{path} is no complete {kind} file: {detail}; fetch or copy it again")]
    Broken {
        /// File.
        path: String,
        /// `gzip`, `zip`, `parquet` or `CSV`.
        kind: &'static str,
        /// Message of the format's reader.
        detail: String,
    },
    /// Error: the file is empty.
    #[error("{path} has no entries: expected at least one problem")]
    Empty {
        /// File.
        path: String,
    },
    /// A file too large to be a benchmark's.
    #[error("{path} has more than {limit} MiB when it is unpacked: this is no file of a task")]
    TooLarge {
        /// File.
        path: String,
        /// Most that is read.
        limit: u64,
    },
    /// An entry that lacks a field which the task needs.
    #[error("{path}, entry {entry}: {field}; {advice}")]
    Entry {
        /// File.
        path: String,
        /// Entry, from 1.
        entry: usize,
        /// The field.
        field: FieldError,
        /// Advice on the file.
        advice: String,
    },
    /// No problem has the requested subject.
    #[error("{task} has no problems about {subject:?}; it has: {known}")]
    Subject {
        /// Task.
        task: &'static str,
        /// Subject that was requested.
        subject: String,
        /// Subjects that exist.
        known: String,
    },
    /// Exemplars of a task that has none.
    #[error("{task} has no solved problems to show: use `shots` 0, or give some with `shots_file`")]
    NoExemplars {
        /// Task.
        task: &'static str,
    },
    /// Error: more exemplars were requested than there are.
    #[error(
        "{wanted} exemplars are asked for, and {from} {available}: use `shots` {available} or less, or give more with \
         `shots_file`"
    )]
    TooFewExemplars {
        /// Number that was requested.
        wanted: usize,
        /// Number that exists.
        available: usize,
        /// Source of that number, with the verb.
        from: String,
    },
    /// The files cannot be fetched.
    #[error("{0}; `data` and `shots_file` read files that are here")]
    Hub(#[from] HubError),
}

impl DataError {
    /// Reports whether the call itself was wrong (exit code 2), not the data that it reads (exit code 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Subject { .. } | Self::NoExemplars { .. } | Self::TooFewExemplars { .. })
    }
}
