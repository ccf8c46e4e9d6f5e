//! Repositories of a hub, the progress of a file, and what can go wrong.

use std::{fmt, io, path::Path};

use crate::{
    CheckpointError,
    gguf::parts::{GgufModel, Named, differ, listed},
};

/// Kind of a repository: models or datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryKind {
    /// A model.
    Model,
    /// A dataset.
    Dataset,
}

impl fmt::Display for RepositoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::Dataset => "dataset",
        })
    }
}

/// Progress of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress<'a> {
    /// The file.
    pub file: &'a str,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes that there are, if the hub says so.
    pub total: Option<u64>,
}

/// A model or a dataset cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Error: the text is not an id, or not a revision, of the hub's form.
    #[error("{id:?} is not a {kind} of a hub: expected org/name, or org/name@revision")]
    BadName {
        /// Expected kind of repository.
        kind: RepositoryKind,
        /// Id that was given.
        id: String,
    },
    /// The caller's progress function asked to stop.
    #[error("fetching {id} was interrupted: what is there stays, and the next call goes on from it")]
    Interrupted {
        /// Repository.
        id: String,
    },
    /// Error: only the cache may be used, and it lacks the repository.
    #[error("{id} is not (completely) in the cache {cache}, and HF_HUB_OFFLINE is set: unset it to fetch the {kind}")]
    Offline {
        /// Kind of the repository.
        kind: RepositoryKind,
        /// Repository.
        id: String,
        /// Directory of the cache.
        cache: String,
    },
    /// No such repository, or no such revision.
    #[error("{endpoint} has no {kind} {id} at revision {revision}: check the spelling of both")]
    NotFound {
        /// Expected kind of repository.
        kind: RepositoryKind,
        /// Repository.
        id: String,
        /// Revision.
        revision: String,
        /// Hub.
        endpoint: String,
    },
    /// The hub wants to know who asks.
    #[error("{endpoint} denies access to {id} (status {status}): check the name; if it is right, {hint}")]
    Denied {
        /// Repository.
        id: String,
        /// Hub.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// Advice on how to go on.
        hint: &'static str,
    },
    /// A repository without the files of a model.
    #[error(
        "{id} has no {missing}: expected config.json and safetensors, or GGUF files; use a repository that has them"
    )]
    NotAModel {
        /// Repository.
        id: String,
        /// The missing part.
        missing: &'static str,
    },
    /// Several GGUF files, of which none was named.
    #[error("{id} has several GGUF files: {}", advised(id, models, *free))]
    ManyFiles {
        /// Repository.
        id: String,
        /// Models that could be meant.
        models: Vec<GgufModel>,
        /// Bytes of memory that are free, if the caller knows.
        free: Option<u64>,
    },
    /// No GGUF file of the name or the quantisation that was asked for.
    #[error("{id} has no {wanted}: it has {}", advised(id, models, *free))]
    NoSuchFile {
        /// Repository.
        id: String,
        /// Name of the file or of the quantisation.
        wanted: String,
        /// Models that there are.
        models: Vec<GgufModel>,
        /// Bytes of memory that are free, if the caller knows.
        free: Option<u64>,
    },
    /// No GGUF file where one was asked for.
    #[error("{id} has no GGUF file, and so no {wanted}: leave it out to have its safetensors")]
    NoGguf {
        /// Repository.
        id: String,
        /// Name of the file or of the quantisation.
        wanted: String,
    },
    /// A split GGUF file that is not whole.
    #[error("{id} has {file} and lacks {part}, a part of the same file: use another file or repository")]
    NoPart {
        /// Repository.
        id: String,
        /// The first part that is there.
        file: String,
        /// The first part that is not.
        part: String,
    },
    /// A dataset or an adapter without a file that is asked of it.
    #[error("{id} has no file {file} at revision {revision}: it may have been moved; give a local copy instead")]
    NoFile {
        /// Repository.
        id: String,
        /// The missing file.
        file: String,
        /// Revision.
        revision: String,
    },
    /// The hub cannot be reached.
    #[error("cannot reach {address}: {detail}; check the network and HF_ENDPOINT, or give local files")]
    Unreachable {
        /// Address.
        address: String,
        /// Reason of the failure.
        detail: String,
    },
    /// A transfer ended early.
    #[error(
        "the download of {file} broke off at {done} of {total} bytes: run the same command again to go on from there"
    )]
    BrokenOff {
        /// File.
        file: String,
        /// Bytes that are here.
        done: u64,
        /// Bytes that there are, or a question mark.
        total: String,
    },
    /// Error: the file has more bytes than a file of its kind can have.
    #[error(
        "{file} of {id} has {found} bytes, expected at most {limit}: use a repository with a whole model of its kind"
    )]
    TooLarge {
        /// Repository.
        id: String,
        /// File.
        file: String,
        /// Bytes that the hub announces or sends.
        found: u64,
        /// Most bytes of such a file.
        limit: u64,
    },
    /// Error: the downloaded bytes are not those that the hub announced.
    #[error(
        "the download of {file} is damaged: its {sum} is {found}, expected {expected}; it was removed, run the same \
         command again"
    )]
    Damaged {
        /// File.
        file: String,
        /// Name of the hash.
        sum: &'static str,
        /// Hash of what came.
        found: String,
        /// Hash that the hub announced.
        expected: String,
    },
    /// Another process holds the file.
    #[error("another program is fetching {file} at the moment: wait for it, then run the same command again")]
    Busy {
        /// File.
        file: String,
    },
    /// An answer that makes no sense.
    #[error("{address} answered {found}, expected {expected}: check HF_ENDPOINT, or try again later")]
    BadReply {
        /// Address.
        address: String,
        /// Reply that was received.
        found: String,
        /// Reply that was expected.
        expected: &'static str,
    },
    /// The cache cannot be written.
    #[error("cannot write {path}: {cause}; HF_HOME chooses another place")]
    Io {
        /// Path.
        path: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// A fetched file is broken.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl HubError {
    /// Returns whether the call itself was wrong: a name that names nothing.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Checkpoint(error) => error.is_usage(),
            Self::BadName { .. } | Self::ManyFiles { .. } | Self::NoSuchFile { .. } | Self::NoGguf { .. } => true,
            _ => false,
        }
    }

    /// Says of the files that it lists which of them fit in so much memory.
    #[must_use]
    pub fn with_free_memory(mut self, bytes: u64) -> Self {
        if let Self::ManyFiles { free, .. } | Self::NoSuchFile { free, .. } = &mut self {
            *free = Some(bytes);
        }
        self
    }
}

/// The models of a repository in words, and how to name one of them.
fn advised(id: &str, models: &[GgufModel], free: Option<u64>) -> String {
    let usual = models.iter().find(|model| model.is_of("Q4_K_M")).or(models.first());
    let usual = usual.map_or_else(String::new, |model| match model.quantisation().filter(|_| differ(models)) {
        Some(kind) => format!("{id}:{kind}"),
        None => format!("{id}/{}", model.first()),
    });
    format!("{}; name one, as in {usual}", listed(models, Named::ByType, free))
}

/// The error of a place in the cache.
pub(super) fn io_error(path: &Path, cause: io::Error) -> HubError {
    HubError::Io { path: path.display().to_string(), cause }
}
