//! Models from a Hugging Face hub, in the cache layout that all of its tools share:
//!
//! ```text
//! models--org--name/refs/main              the commit that a branch was at
//! models--org--name/blobs/<etag>           contents; `<etag>.incomplete` while they arrive
//! models--org--name/snapshots/<commit>/..  the files of a commit, links to blobs
//! ```
//!
//! A download that breaks off leaves its `.incomplete` part, and the next call goes on from there.

mod client;

use std::{
    collections::BTreeSet,
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use client::{Client, Metadata};

use crate::{
    CheckpointError, ModelFiles, ModelLocation, ShardIndex,
    files::{is_plain, is_repository, is_revision, resolve},
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

/// Where models come from and where they are kept.
#[derive(Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// Base address of the hub.
    pub endpoint: String,
    /// Directory of the cache (the one with `models--org--name` in it).
    pub cache: PathBuf,
    /// Whether only the cache may answer.
    pub offline: bool,
    /// Token for private and gated models.
    pub token: Option<String>,
    /// How often a transfer that breaks off is taken up again without any progress in between.
    pub retries: u32,
}

impl fmt::Debug for HubOptions {
    /// Without the token: options end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, cache, offline, token, retries } = self;
        let token = token.as_ref().map(|_| "(set)");
        let mut lines = f.debug_struct("HubOptions");
        lines.field("endpoint", endpoint).field("cache", cache).field("offline", offline);
        lines.field("token", &token).field("retries", retries).finish()
    }
}

impl HubOptions {
    /// A hub and a cache, online, without a token.
    pub fn new(endpoint: impl Into<String>, cache: impl Into<PathBuf>) -> Self {
        let endpoint = endpoint.into().trim_end_matches('/').to_owned();
        Self { endpoint, cache: cache.into(), offline: false, token: None, retries: 5 }
    }

    /// What the hub's own tools read from the environment: `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`,
    /// `HF_HUB_OFFLINE`, `HF_TOKEN`, `HF_TOKEN_PATH`.
    pub fn from_env() -> Self {
        Self::from_lookup(&|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The same from any table of variables.
    pub fn from_lookup(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let home = variable("HF_HOME").map_or_else(|| default_home(variable), PathBuf::from);
        let cache = variable("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from);
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let on = |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "on" | "yes" | "true");
        let token_file = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let token = variable("HF_TOKEN").or_else(|| fs::read_to_string(token_file).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Self { offline: variable("HF_HUB_OFFLINE").is_some_and(on), token, ..Self::new(endpoint, cache) }
    }
}

fn default_home(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(variable("HOME").unwrap_or_else(|| ".".to_owned()));
    cache.unwrap_or_else(|| home().join(".cache")).join("huggingface")
}

/// How far one file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress<'a> {
    /// The file.
    pub file: &'a str,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes that there are, if the hub says so.
    pub total: Option<u64>,
}

/// A model cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Not an id, or not a revision, of the hub's form.
    #[error("{id:?} is not a model of a hub: expected org/name, or org/name@revision")]
    BadName {
        /// What was given.
        id: String,
    },
    /// Only the cache may answer, and it cannot.
    #[error("{id} is not (completely) in the cache {cache}, and HF_HUB_OFFLINE is set: unset it to fetch the model")]
    Offline {
        /// Model.
        id: String,
        /// Directory of the cache.
        cache: String,
    },
    /// No such model, or no such revision.
    #[error("{endpoint} has no model {id} at revision {revision}: check the spelling of both")]
    NotFound {
        /// Model.
        id: String,
        /// Revision.
        revision: String,
        /// Hub.
        endpoint: String,
    },
    /// The hub wants to know who asks.
    #[error("{endpoint} denies access to {id} (status {status}): check the name; if it is right, {hint}")]
    Denied {
        /// Model.
        id: String,
        /// Hub.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What to try.
        hint: &'static str,
    },
    /// A repository without what a model consists of.
    #[error("{id} has no {missing}: expected config.json and safetensors; use a repository that has both")]
    NotAModel {
        /// Model.
        id: String,
        /// What is missing.
        missing: &'static str,
    },
    /// The hub cannot be reached.
    #[error("cannot reach {address}: {detail}; check the network and HF_ENDPOINT, or give a local directory")]
    Unreachable {
        /// Address.
        address: String,
        /// Why.
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
    /// An answer that makes no sense.
    #[error("{address} answered {found}, expected {expected}: check HF_ENDPOINT, or try again later")]
    BadReply {
        /// Address.
        address: String,
        /// What came.
        found: String,
        /// What should have come.
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

/// Brings a model into the cache, as far as it is not there, and returns the directory of its files. Without a
/// revision it is that of the branch `main`.
///
/// Where the hub cannot be reached and the cache has the whole model, the cache answers.
pub fn fetch(
    id: &str,
    revision: Option<&str>,
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<PathBuf, HubError> {
    let revision = revision.unwrap_or("main");
    if !is_repository(id) || !is_revision(revision) {
        return Err(HubError::BadName { id: id.to_owned() });
    }
    let cache = Cache { root: options.cache.join(format!("models--{}", id.replace('/', "--"))) };
    let cached = cache.snapshot_of(revision).filter(|directory| is_complete(directory));
    let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    match cached {
        // A commit never changes: there is nothing to ask.
        Some(directory) if options.offline || is_commit => Ok(directory),
        None if options.offline => {
            Err(HubError::Offline { id: id.to_owned(), cache: options.cache.display().to_string() })
        }
        cached => match (Fetch { id, revision, options, cache, client: Client::new(options) }).run(progress) {
            Err(HubError::Unreachable { .. }) if cached.is_some() => Ok(cached.unwrap_or_default()),
            result => result,
        },
    }
}

/// The files of whatever a model argument means: a directory, or a hub id, which is fetched.
pub fn locate(
    argument: &str,
    options: &HubOptions,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<ModelFiles, HubError> {
    match resolve(argument)? {
        ModelLocation::Directory(path) => Ok(ModelFiles::directory(path)?),
        ModelLocation::Hub { repository, revision } => {
            let directory = fetch(&repository, revision.as_deref(), options, progress)?;
            Ok(ModelFiles::directory(directory)?.named(&repository))
        }
    }
}

/// One call of [`fetch`].
struct Fetch<'a> {
    id: &'a str,
    revision: &'a str,
    options: &'a HubOptions,
    cache: Cache,
    client: Client,
}

impl Fetch<'_> {
    fn run(&self, progress: &mut dyn FnMut(FetchProgress<'_>)) -> Result<PathBuf, HubError> {
        let listing = self.client.listing(self.id, self.revision)?;
        let has = |file: &str| listing.files.contains(file);
        if !has("config.json") {
            return Err(self.not_a_model("config.json"));
        }
        if !has(SINGLE) && !has(INDEX) {
            return Err(self.not_a_model("safetensors"));
        }
        let snapshot = self.cache.root.join("snapshots").join(&listing.commit);
        create_directory(&snapshot)?;
        for file in SMALL_FILES.iter().filter(|file| has(file)) {
            self.file(&listing.commit, file, progress)?;
        }
        for file in self.weight_files(&listing.commit, has(SINGLE), progress)? {
            self.file(&listing.commit, &file, progress)?;
        }
        // Last: a reference promises a whole snapshot.
        self.cache.set_reference(self.revision, &listing.commit)?;
        Ok(snapshot)
    }

    fn not_a_model(&self, missing: &'static str) -> HubError {
        HubError::NotAModel { id: self.id.to_owned(), missing }
    }

    fn weight_files(
        &self,
        commit: &str,
        single: bool,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<Vec<String>, HubError> {
        if single {
            return Ok(vec![SINGLE.to_owned()]);
        }
        let path = self.file(commit, INDEX, progress)?;
        let text = fs::read(&path).map_err(|cause| io_error(&path, cause))?;
        let index = ShardIndex::parse(&text, &path.display().to_string())?;
        Ok(index.shards().into_iter().map(str::to_owned).collect())
    }

    /// Brings one file of a commit.
    fn file(&self, commit: &str, file: &str, progress: &mut dyn FnMut(FetchProgress<'_>)) -> Result<PathBuf, HubError> {
        let link = self.cache.root.join("snapshots").join(commit).join(file);
        if link.is_file() {
            return Ok(link);
        }
        let metadata = self.client.metadata(self.id, commit, file)?;
        // A hub that does not name its contents still names its commits.
        let blob = metadata.etag.clone().unwrap_or_else(|| format!("{commit}-{file}"));
        let blob = self.cache.root.join("blobs").join(blob);
        create_directory(&self.cache.root.join("blobs"))?;
        if !blob.is_file() {
            self.download(commit, file, &metadata, &blob, progress)?;
        }
        link_to(&blob, &link)?;
        Ok(link)
    }

    /// Brings one blob, going on where an earlier call stopped.
    fn download(
        &self,
        commit: &str,
        file: &str,
        metadata: &Metadata,
        blob: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<(), HubError> {
        let mut name = blob.as_os_str().to_owned();
        name.push(".incomplete");
        let path = PathBuf::from(name);
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut part = opened.map_err(|cause| io_error(&path, cause))?;
        // Two processes that want the same file: the second waits and finds it there.
        part.lock().map_err(|cause| io_error(&path, cause))?;
        if blob.is_file() {
            return Ok(());
        }
        let mut failures = 0;
        loop {
            let before = length(&part, &path)?;
            let result = self.transfer(commit, file, metadata, &mut part, &path, progress);
            let Err(error) = result else { break };
            let progressed = length(&part, &path)? > before;
            failures = if progressed { 0 } else { failures + 1 };
            let again = matches!(error, HubError::BrokenOff { .. } | HubError::Unreachable { .. });
            if !again || self.options.retries == 0 || failures > self.options.retries {
                return Err(error);
            }
            thread::sleep(Duration::from_secs(1 << failures.min(4)));
        }
        part.sync_all().map_err(|cause| io_error(&path, cause))?;
        fs::rename(&path, blob).map_err(|cause| io_error(blob, cause))
    }

    fn transfer(
        &self,
        commit: &str,
        file: &str,
        metadata: &Metadata,
        part: &mut File,
        path: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<(), HubError> {
        let mut done = length(part, path)?;
        if metadata.size.is_some_and(|size| done > size) {
            done = restart(part, path)?;
        }
        if done > 0 && metadata.size == Some(done) {
            return Ok(());
        }
        let mut stream = self.client.download(self.id, commit, file, done)?;
        if stream.start != done {
            done = restart(part, path)?;
        }
        let total = metadata.size.or(stream.length.map(|length| done + length));
        let broken_off = |done| HubError::BrokenOff {
            file: file.to_owned(),
            done,
            total: total.map_or_else(|| "?".to_owned(), |total| total.to_string()),
        };
        let mut buffer = vec![0; 1 << 18];
        loop {
            progress(FetchProgress { file, done, total });
            let count = stream.body.read(&mut buffer).map_err(|_| broken_off(done))?;
            if count == 0 {
                break;
            }
            part.write_all(&buffer[..count]).map_err(|cause| io_error(path, cause))?;
            done += count as u64;
        }
        if total.is_some_and(|total| total != done) { Err(broken_off(done)) } else { Ok(()) }
    }
}

/// The part of the cache that belongs to one model.
struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Directory of a revision: a commit's own, or what the reference says.
    fn snapshot_of(&self, revision: &str) -> Option<PathBuf> {
        let snapshots = self.root.join("snapshots");
        let referred = fs::read_to_string(self.root.join("refs").join(revision)).ok();
        let commit = referred.as_deref().map_or(revision, str::trim);
        is_plain(commit).then(|| snapshots.join(commit))
    }

    fn set_reference(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        if let Some(parent) = path.parent() {
            create_directory(parent)?;
        }
        fs::write(&path, commit).map_err(|cause| io_error(&path, cause))
    }
}

/// Whether a directory has a configuration and all of its weights.
fn is_complete(directory: &Path) -> bool {
    let has = |file: &str| directory.join(file).is_file();
    let sharded = || {
        let text = fs::read(directory.join(INDEX)).ok()?;
        let index = ShardIndex::parse(&text, INDEX).ok()?;
        Some(!index.shards().is_empty() && index.shards().into_iter().all(has))
    };
    has("config.json") && (has(SINGLE) || sharded().unwrap_or(false))
}

fn length(file: &File, path: &Path) -> Result<u64, HubError> {
    file.metadata().map(|metadata| metadata.len()).map_err(|cause| io_error(path, cause))
}

fn restart(part: &mut File, path: &Path) -> Result<u64, HubError> {
    part.set_len(0).and_then(|()| part.rewind()).map_err(|cause| io_error(path, cause))?;
    Ok(0)
}

fn create_directory(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|cause| io_error(path, cause))
}

fn io_error(path: &Path, cause: io::Error) -> HubError {
    HubError::Io { path: path.display().to_string(), cause }
}

/// Puts a blob into a snapshot: a relative link, so that the cache can be moved.
#[cfg(unix)]
fn link_to(blob: &Path, link: &Path) -> Result<(), HubError> {
    let name = blob.file_name().unwrap_or_default();
    // A link whose blob was deleted is in the way.
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(Path::new("../../blobs").join(name), link).map_err(|cause| io_error(link, cause))
}

/// Where links need privileges, the file itself moves, as the hub's own tools do it.
#[cfg(not(unix))]
fn link_to(blob: &Path, link: &Path) -> Result<(), HubError> {
    fs::rename(blob, link).map_err(|cause| io_error(link, cause))
}

/// Names and the commit of a repository's files.
struct Listing {
    commit: String,
    files: BTreeSet<String>,
}
