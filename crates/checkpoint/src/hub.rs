//! Models and files of datasets from a Hugging Face hub, in the cache layout that all of its tools share:
//!
//! ```text
//! models--org--name/refs/main              the commit that a branch was at
//! models--org--name/blobs/<etag>           contents; `<etag>.part` while they arrive
//! models--org--name/snapshots/<commit>/..  the files of a commit, links to blobs
//! ```
//!
//! Those of datasets begin with `datasets--`. A download that breaks off leaves its part, and the next call goes on from
//! there. Which files are needed, when the cache answers alone, and what an error says is here.

mod client;
mod digest;
mod error;
mod http;
mod options;

use std::{
    fs,
    path::{Path, PathBuf},
};

use client::Client;
use error::io_error;
pub use error::{FetchProgress, HubError, RepositoryKind};
pub use options::HubOptions;

use crate::{
    CheckpointError, ModelFiles, ModelLocation, ShardIndex, adapter,
    files::{is_repository, is_revision, read_limited, resolve},
    weights::{INDEX, SINGLE},
};

/// Files that a model directory may have beside its weights.
const SMALL_FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];

/// Brings a model into the cache, as far as it is not there, and returns the directory of its files. Without a
/// revision it is that of the branch `main`.
///
/// Where the hub cannot be reached and the cache has the whole model, the cache is used.
pub fn fetch(
    id: &str,
    revision: Option<&str>,
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
) -> Result<PathBuf, HubError> {
    let request = Request { kind: RepositoryKind::Model, id, revision: revision.unwrap_or("main"), options };
    request.answer(is_complete, |client| Fetch { id, client }.run(request.revision, progress))
}

/// The files of whatever an argument for an adapter means: a directory, or a hub id, which is fetched.
///
/// # Errors
/// If it is neither, or cannot be fetched.
pub fn locate_adapter(
    argument: &str,
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
) -> Result<ModelFiles, HubError> {
    match resolve(argument)? {
        ModelLocation::Directory(path) => Ok(ModelFiles::directory(path)?),
        ModelLocation::Gguf(path) => Err(CheckpointError::NotAnAdapter { path: path.display().to_string() }.into()),
        ModelLocation::Hub { repository: id, revision } => {
            let revision = revision.as_deref().unwrap_or("main");
            let request = Request { kind: RepositoryKind::Model, id: &id, revision, options };
            let directory = request.files(&[adapter::CONFIG, adapter::WEIGHTS], progress)?;
            Ok(ModelFiles::directory(directory)?.named(&id))
        }
    }
}

/// Brings files of a dataset into the cache, as far as they are not there, and returns the directory of the revision,
/// below which they have their names.
///
/// Where the hub cannot be reached and the cache has all of them, the cache is used.
pub fn fetch_dataset(
    id: &str,
    revision: &str,
    files: &[&str],
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
) -> Result<PathBuf, HubError> {
    Request { kind: RepositoryKind::Dataset, id, revision, options }.files(files, progress)
}

/// A request to a hub.
#[derive(Clone, Copy)]
struct Request<'a> {
    kind: RepositoryKind,
    id: &'a str,
    revision: &'a str,
    options: &'a HubOptions,
}

impl<'a> Request<'a> {
    /// Brings these files, and returns the directory of the revision.
    fn files(self, files: &[&str], progress: &mut dyn FnMut(FetchProgress<'_>) -> bool) -> Result<PathBuf, HubError> {
        let Self { id, revision, .. } = self;
        let has_all = |directory: &Path| files.iter().all(|file| directory.join(file).is_file());
        self.answer(has_all, |client| {
            let listing = client.listing(revision)?;
            for file in files {
                if !listing.has(file) {
                    let (id, file, revision) = (id.to_owned(), (*file).to_owned(), revision.to_owned());
                    return Err(HubError::NoFile { id, file, revision });
                }
                client.file(&listing.commit, file, progress)?;
            }
            client.refer(revision, &listing.commit)
        })
    }

    /// The cache's directory if the hub need not or cannot be asked, else what the transfer brings.
    fn answer(
        self,
        is_complete: impl Fn(&Path) -> bool,
        transfer: impl FnOnce(&Client<'a>) -> Result<PathBuf, HubError>,
    ) -> Result<PathBuf, HubError> {
        let Self { kind, id, revision, options } = self;
        if !is_repository(id) || !is_revision(revision) {
            return Err(HubError::BadName { kind, id: id.to_owned() });
        }
        let client = Client::new(kind, id, options);
        let cached = client.snapshot(revision).filter(|directory| is_complete(directory));
        let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
        match cached {
            // A commit never changes: there is nothing to ask.
            Some(directory) if options.offline || is_commit => Ok(directory),
            None if options.offline => {
                Err(HubError::Offline { kind, id: id.to_owned(), cache: options.cache.display().to_string() })
            }
            cached => match transfer(&client) {
                Err(HubError::Unreachable { .. }) if cached.is_some() => Ok(cached.unwrap_or_default()),
                result => result,
            },
        }
    }
}

/// The files of whatever a model argument means: a directory, or a hub id, which is fetched.
pub fn locate(
    argument: &str,
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
) -> Result<ModelFiles, HubError> {
    match resolve(argument)? {
        ModelLocation::Directory(path) => Ok(ModelFiles::directory(path)?),
        ModelLocation::Gguf(path) => Ok(ModelFiles::gguf(path)?),
        ModelLocation::Hub { repository, revision } => {
            let directory = fetch(&repository, revision.as_deref(), options, progress)?;
            Ok(ModelFiles::directory(directory)?.named(&repository))
        }
    }
}

/// One call of [`fetch`].
struct Fetch<'a> {
    id: &'a str,
    client: &'a Client<'a>,
}

impl Fetch<'_> {
    fn run(&self, revision: &str, progress: &mut dyn FnMut(FetchProgress<'_>) -> bool) -> Result<PathBuf, HubError> {
        let listing = self.client.listing(revision)?;
        let has = |file: &str| listing.has(file);
        if !has("config.json") {
            return Err(self.not_a_model("config.json"));
        }
        if !has(SINGLE) && !has(INDEX) {
            return Err(self.not_a_model("safetensors"));
        }
        for file in SMALL_FILES.iter().filter(|file| has(file)) {
            self.client.file(&listing.commit, file, progress)?;
        }
        for file in self.weight_files(&listing.commit, has(SINGLE), progress)? {
            self.client.file(&listing.commit, &file, progress)?;
        }
        // Last: a reference promises a whole snapshot.
        self.client.refer(revision, &listing.commit)
    }

    fn not_a_model(&self, missing: &'static str) -> HubError {
        HubError::NotAModel { id: self.id.to_owned(), missing }
    }

    fn weight_files(
        &self,
        commit: &str,
        single: bool,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<Vec<String>, HubError> {
        if single {
            return Ok(vec![SINGLE.to_owned()]);
        }
        let path = self.client.file(commit, INDEX, progress)?;
        let index = read_index(&path)?;
        Ok(index.shards().into_iter().map(str::to_owned).collect())
    }
}

/// Reads the index of shards, up to the size that one may have.
fn read_index(path: &Path) -> Result<ShardIndex, HubError> {
    let label = path.display().to_string();
    let opened = fs::File::open(path).map_err(|cause| io_error(path, cause))?;
    Ok(ShardIndex::parse(&read_limited(opened, INDEX, &label)?, &label)?)
}

/// Reports whether a directory has a configuration and all of its weights.
fn is_complete(directory: &Path) -> bool {
    let has = |file: &str| directory.join(file).is_file();
    let sharded = || {
        let index = read_index(&directory.join(INDEX)).ok()?;
        Some(!index.shards().is_empty() && index.shards().into_iter().all(has))
    };
    has("config.json") && (has(SINGLE) || sharded().unwrap_or(false))
}
