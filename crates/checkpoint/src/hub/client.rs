//! The library `hf-hub`, and around it what it leaves to its callers: deadlines, contents that the cache has already,
//! another attempt where a transfer ends early, and errors in our words.

use std::{
    cmp::Ordering,
    fs::{self, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::mpsc::{self, SyncSender},
    thread,
    time::Duration,
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::{
        Progress, RepoInfo,
        sync::{Api, ApiBuilder, ApiError, Metadata},
    },
};
use sha2::{Digest, Sha256};

use super::{FetchProgress, HubError, HubOptions, RepositoryKind, io_error};
use crate::{
    CheckpointError,
    error::one_line,
    files::{is_plain, largest_text},
    guard::guarded,
};

/// One repository of a hub, and its part of the cache.
pub(super) struct Client<'a> {
    kind: RepositoryKind,
    id: &'a str,
    options: &'a HubOptions,
    api: Api,
    cache: Cache,
}

/// Reason why a call of the library failed.
enum Failure {
    /// Error of the library.
    Library(ApiError),
    /// The system gave no thread for the call.
    Thread(io::Error),
    /// Stalled: no byte arrived for too long.
    Stalled,
    /// The caller asked to stop.
    Stopped,
    /// Excess: more bytes arrived than were announced.
    Excess(u64),
    /// The library asserted what a hub need not keep to.
    Panicked,
}

impl<'a> Client<'a> {
    pub(super) fn new(kind: RepositoryKind, id: &'a str, options: &'a HubOptions) -> Result<Self, HubError> {
        let cache = Cache::new(options.cache.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(options.endpoint.clone())
            .with_token(options.token.clone())
            .with_user_agent("demask", env!("CARGO_PKG_VERSION"))
            // The library's own attempts ask for the wrong range after one that brought nothing.
            .with_retries(0)
            .with_progress(false)
            .build();
        match api {
            Ok(api) => Ok(Self { kind, id, options, api, cache }),
            Err(error) => Err(HubError::Unreachable { address: options.endpoint.clone(), detail: one_line(error) }),
        }
    }

    /// Directory that the cache has for a revision: the one that its reference names, or a commit's own.
    pub(super) fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let place = self.cache.repo(self.repository(revision));
        // Its components alone: the library puts an empty file name behind them.
        let referred = place.get("").map(|directory| directory.components().collect());
        let own = || Some(place.pointer_path(revision)).filter(|directory| directory.is_dir());
        referred.or_else(own)
    }

    /// Makes a revision mean a commit, and returns the commit's directory.
    pub(super) fn refer(&self, revision: &str, commit: &str) -> Result<PathBuf, HubError> {
        let place = self.cache.repo(self.repository(revision));
        let directory = place.pointer_path(commit);
        place.create_ref(commit).map_err(|cause| io_error(&self.options.cache, cause))?;
        Ok(directory)
    }

    /// Commit and files of a revision.
    pub(super) fn listing(&self, revision: &str) -> Result<RepoInfo, HubError> {
        let (api, repository) = (self.api.clone(), self.repository(revision));
        let address = format!("{}/api/{}", self.options.endpoint, repository.api_url());
        let info = watched(self.options.patience, |_| true, move |_| api.repo(repository).info());
        let info = info.map_err(|failure| self.error(failure, revision, &address))?;
        // The commit becomes a directory: it must not lead anywhere else.
        if !is_plain(&info.sha) {
            return Err(bad_reply(&address, "a commit that is not one".to_owned(), "the description of a repository"));
        }
        Ok(info)
    }

    /// Brings one file of a commit, going on where an earlier call stopped.
    pub(super) fn file(
        &self,
        commit: &str,
        file: &str,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<PathBuf, HubError> {
        let place = self.cache.repo(self.repository(commit));
        let link = place.pointer_path(commit).join(file);
        if link.is_file() {
            return Ok(link);
        }
        // A link whose blob was deleted is in the library's way.
        let _ = fs::remove_file(&link);
        let metadata = self.metadata(commit, file)?;
        let size = metadata.size() as u64;
        let limit = largest(self.kind, file);
        if size > limit {
            return Err(self.too_large(file, size, limit));
        }
        let blob = place.blob_path(metadata.etag());
        let part = blob.with_extension("part");
        let whole = Expected { file, size, sha256: sha256_of(metadata.etag()) };
        let mut failures = 0;
        loop {
            // Another commit of the repository has the same contents, or another process brought them: the library would
            // fetch them again.
            if blob.is_file() {
                // Nothing vouches for it: the process that fetched it may have been killed before it looked.
                whole.check(&blob, progress, || self.stopped())?;
                link_to(&blob, &link)?;
                return Ok(link);
            }
            let before = length(&part);
            match before.cmp(&size) {
                Ordering::Less => {}
                // The library would ask for what follows the end.
                Ordering::Equal => {
                    whole.check(&part, progress, || self.stopped())?;
                    fs::rename(&part, &blob).map_err(|cause| io_error(&blob, cause))?;
                }
                Ordering::Greater => fs::remove_file(&part).map_err(|cause| io_error(&part, cause))?,
            }
            if before == size {
                continue;
            }
            let failure = match self.transfer(commit, file, size, progress) {
                Ok(path) => return self.settle(path, &blob, &whole, progress),
                // Nothing of it is of use: the next call starts anew.
                Err(Failure::Excess(found)) => {
                    let _ = fs::remove_file(&part);
                    return Err(self.too_large(file, found, size));
                }
                Err(failure) => failure,
            };
            // What stalls still holds the file; only another call, or the end of this process, lets go of it.
            let stalled = matches!(failure, Failure::Stalled);
            let done = length(&part);
            let error = self.transfer_error(failure, commit, file, &blob, (done, size));
            failures = if done > before { 0 } else { failures + 1 };
            let passing =
                matches!(error, HubError::BrokenOff { .. } | HubError::Unreachable { .. } | HubError::Busy { .. });
            if stalled || !passing || self.options.retries == 0 || failures > self.options.retries {
                return Err(error);
            }
            thread::sleep(Duration::from_secs(1 << failures.min(4)));
        }
    }

    /// Name and size of a file's contents.
    fn metadata(&self, commit: &str, file: &str) -> Result<Metadata, HubError> {
        let address = self.api.repo(self.repository(commit)).url(file);
        let (api, asked) = (self.api.clone(), address.clone());
        let metadata = watched(self.options.patience, |_| true, move |_| api.metadata(&asked));
        let metadata = metadata.map_err(|failure| self.error(failure, commit, &address))?;
        // Both become paths: they must not lead anywhere else.
        let etag = metadata.etag();
        if metadata.commit_hash() != commit || !is_plain(etag.strip_prefix("W/").unwrap_or(etag)) {
            let found = one_line(format!("etag {etag:?} of commit {:?}", metadata.commit_hash()));
            return Err(bad_reply(&address, found, "an etag, and the commit that was asked for"));
        }
        Ok(metadata)
    }

    fn too_large(&self, file: &str, found: u64, limit: u64) -> HubError {
        HubError::TooLarge { id: self.id.to_owned(), file: file.to_owned(), found, limit }
    }

    fn stopped(&self) -> HubError {
        HubError::Interrupted { id: self.id.to_owned() }
    }

    /// One attempt of the library at a file, ended where more than `size` bytes come.
    fn transfer(
        &self,
        commit: &str,
        file: &str,
        size: u64,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<PathBuf, Failure> {
        let (api, repository, name) = (self.api.clone(), self.repository(commit), file.to_owned());
        let mut excess = None;
        let told = |(done, total)| {
            excess = Some(done).filter(|&done| done > size);
            excess.is_none() && progress(FetchProgress { file, done, total: Some(total) })
        };
        let result = watched(self.options.patience, told, move |reporter| {
            api.repo(repository).download_with_progress(&name, reporter)
        });
        excess.map_or(result, |found| Err(Failure::Excess(found)))
    }

    /// Looks at what the library left: it neither counts nor hashes the bytes, nor waits for the disk.
    fn settle(
        &self,
        link: PathBuf,
        blob: &Path,
        whole: &Expected<'_>,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<PathBuf, HubError> {
        let &Expected { file, size, .. } = whole;
        let opened = OpenOptions::new().append(true).open(&link);
        let settled = opened.and_then(|opened| opened.sync_all().and_then(|()| opened.metadata()));
        let found = settled.map_err(|cause| io_error(&link, cause))?.len();
        if found == size {
            return match whole.check(&link, progress, || self.stopped()) {
                Ok(()) => Ok(link),
                Err(error) => {
                    let _ = fs::remove_file(&link);
                    // What was not looked at to the end is looked at by the next call; what is damaged is of no use.
                    let _ = match error {
                        HubError::Interrupted { .. } => fs::rename(blob, blob.with_extension("part")),
                        _ => fs::remove_file(blob),
                    };
                    Err(error)
                }
            };
        }
        let _ = fs::remove_file(&link);
        let _ = fs::remove_file(blob);
        let address = format!("{}/{}", self.options.endpoint, self.id);
        Err(bad_reply(&address, format!("{found} bytes for {file}"), "as many as it announced"))
    }

    fn repository(&self, revision: &str) -> Repo {
        let kind = match self.kind {
            RepositoryKind::Model => RepoType::Model,
            RepositoryKind::Dataset => RepoType::Dataset,
        };
        Repo::with_revision(self.id.to_owned(), kind, revision.to_owned())
    }

    /// A failure while a file was on its way, at `done` of `size` bytes.
    fn transfer_error(
        &self,
        failure: Failure,
        commit: &str,
        file: &str,
        blob: &Path,
        (done, size): (u64, u64),
    ) -> HubError {
        match failure {
            Failure::Library(ApiError::LockAcquisition(_)) => HubError::Busy { file: file.to_owned() },
            // The library does not tell the disk from the network, but their reasons differ.
            Failure::Library(ApiError::IoError(cause)) if is_of_disk(&cause) => io_error(blob, cause),
            Failure::Library(ApiError::IoError(_)) | Failure::Stalled => {
                HubError::BrokenOff { file: file.to_owned(), done, total: size.to_string() }
            }
            failure => self.error(failure, commit, &self.api.repo(self.repository(commit)).url(file)),
        }
    }

    /// A failure in our words.
    fn error(&self, failure: Failure, revision: &str, address: &str) -> HubError {
        let (id, endpoint) = (self.id.to_owned(), self.options.endpoint.clone());
        let unreachable = |detail| HubError::Unreachable { address: address.to_owned(), detail };
        let odd = |found| bad_reply(address, found, "what a hub answers");
        match failure {
            Failure::Stopped => HubError::Interrupted { id },
            Failure::Excess(found) => odd(format!("{found} bytes and more")),
            Failure::Thread(cause) => CheckpointError::Thread { work: "a download", cause }.into(),
            Failure::Stalled => unreachable(format!("nothing came for {:?}", self.options.patience)),
            Failure::Panicked => odd("something that the library hf-hub takes for impossible".to_owned()),
            Failure::Library(ApiError::RequestError(error)) => match *error {
                ureq::Error::StatusCode(404) => {
                    HubError::NotFound { kind: self.kind, id, revision: revision.to_owned(), endpoint }
                }
                ureq::Error::StatusCode(status @ (401 | 403)) => {
                    let hint = match self.options.token {
                        Some(_) => "ask for access with the account of this token",
                        None => "set HF_TOKEN to a token that may read it",
                    };
                    HubError::Denied { id, endpoint, status, hint }
                }
                ureq::Error::StatusCode(status) => bad_reply(address, format!("status {status}"), "status 200"),
                ureq::Error::Json(error) if !error.is_io() => {
                    bad_reply(address, one_line(error), "the JSON description of a repository")
                }
                error => unreachable(one_line(error)),
            },
            Failure::Library(ApiError::IoError(cause)) => unreachable(one_line(cause)),
            Failure::Library(ApiError::MissingHeader(name)) => odd(format!("without the header {name}")),
            Failure::Library(error) => odd(one_line(error)),
        }
    }
}

/// Announcement of a file.
struct Expected<'a> {
    file: &'a str,
    size: u64,
    /// SHA-256 of the file, where the hub names one: for the files in its store for large files.
    sha256: Option<&'a str>,
}

impl Expected<'_> {
    /// Compares the contents at `path` with the announced hash; removes what differs.
    fn check(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
        stopped: impl FnOnce() -> HubError,
    ) -> Result<(), HubError> {
        let Some(expected) = self.sha256 else { return Ok(()) };
        let Self { file, size, .. } = *self;
        let mut goes_on = || progress(FetchProgress { file, done: size, total: Some(size) });
        let found = hash(path, &mut goes_on).map_err(|cause| io_error(path, cause))?;
        let found = found.ok_or_else(stopped)?;
        if found.eq_ignore_ascii_case(expected) {
            return Ok(());
        }
        let _ = fs::remove_file(path);
        Err(HubError::Damaged { file: file.to_owned(), found, expected: expected.to_owned() })
    }
}

/// Returns the SHA-256 that an etag is; files that a hub keeps in its revisions have other etags.
fn sha256_of(etag: &str) -> Option<&str> {
    Some(etag).filter(|etag| etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the SHA-256 of a file's contents, or nothing if `goes_on` says so in between.
fn hash(path: &Path, goes_on: &mut dyn FnMut() -> bool) -> io::Result<Option<String>> {
    const PIECE: usize = 1 << 20;
    const PIECES_BETWEEN: usize = 64;
    let (mut opened, mut hasher, mut piece) = (fs::File::open(path)?, Sha256::new(), vec![0; PIECE]);
    for round in 0_usize.. {
        if round % PIECES_BETWEEN == PIECES_BETWEEN - 1 && !goes_on() {
            return Ok(None);
        }
        match opened.read(&mut piece)? {
            0 => break,
            count => hasher.update(&piece[..count]),
        }
    }
    let mut digits = String::new();
    for byte in hasher.finalize() {
        let half = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
        digits.extend([half(byte >> 4), half(byte & 15)]);
    }
    Ok(Some(digits))
}

/// Most bytes of a file of a repository: what its kind may have, weights of the largest models, data of a benchmark.
fn largest(kind: RepositoryKind, file: &str) -> u64 {
    match kind {
        RepositoryKind::Model if file.ends_with(".safetensors") => 1 << 40,
        RepositoryKind::Model => largest_text(file),
        RepositoryKind::Dataset => 4 << 30,
    }
}

/// Reports of a call's thread.
enum Event<T> {
    /// Bytes that are here, and that there are.
    Reached(u64, u64),
    /// The end; nothing, if the library panicked.
    Over(Option<Result<T, ApiError>>),
}

/// Passes the library's progress on.
struct Reporter<T> {
    events: SyncSender<Event<T>>,
    done: u64,
    total: u64,
}

impl<T> Progress for Reporter<T> {
    fn init(&mut self, size: usize, _: &str) {
        (self.done, self.total) = (0, size as u64);
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        if self.events.send(Event::Reached(self.done, self.total)).is_err() {
            // After a stall or a stop nobody listens. The library has no way to end a transfer but this, which lets go
            // of its file and of its lock; the guard around the call catches it.
            std::panic::resume_unwind(Box::new("nobody listens"));
        }
    }

    fn finish(&mut self) {}
}

/// Runs a call of the library on a thread of its own: the library knows no deadlines, and would wait for ever on a
/// connection that stalls.
fn watched<T: Send + 'static>(
    patience: Duration,
    mut progress: impl FnMut((u64, u64)) -> bool,
    call: impl FnOnce(Reporter<T>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Failure> {
    let (events, heard) = mpsc::sync_channel(16);
    let watched = thread::Builder::new().spawn(move || {
        let reporter = Reporter { events: events.clone(), done: 0, total: 0 };
        let result = guarded(|| call(reporter));
        let _ = events.send(Event::Over(result));
    });
    watched.map_err(Failure::Thread)?;
    loop {
        match heard.recv_timeout(patience) {
            Ok(Event::Reached(done, total)) if progress((done, total)) => {}
            Ok(Event::Reached(..)) => return Err(Failure::Stopped),
            Ok(Event::Over(Some(result))) => return result.map_err(Failure::Library),
            Ok(Event::Over(None)) => return Err(Failure::Panicked),
            Err(_) => return Err(Failure::Stalled),
        }
    }
}

/// Bytes of a file; none, if there is no such file.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn is_of_disk(cause: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        cause.kind(),
        Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotFound
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
    )
}

fn bad_reply(address: &str, found: String, expected: &'static str) -> HubError {
    HubError::BadReply { address: address.to_owned(), found, expected }
}

/// Puts a blob that is here already into a snapshot, as the library does it with one that it fetched.
fn link_to(blob: &Path, link: &Path) -> Result<(), HubError> {
    let directory = link.parent().unwrap_or(link);
    fs::create_dir_all(directory).map_err(|cause| io_error(directory, cause))?;
    place(blob, link).map_err(|cause| io_error(link, cause))
}

/// A relative link, so that the cache can be moved.
#[cfg(unix)]
fn place(blob: &Path, link: &Path) -> io::Result<()> {
    // Up to the directory that has both; a file of a snapshot may lie in directories of its own.
    let shared =
        link.ancestors().skip(1).enumerate().find_map(|(up, above)| Some((up, blob.strip_prefix(above).ok()?)));
    let (up, inside) = shared.unwrap_or((0, blob));
    std::os::unix::fs::symlink(Path::new(&"../".repeat(up)).join(inside), link)
}

/// Links a file into place, or moves it where links need privileges.
#[cfg(not(unix))]
fn place(blob: &Path, link: &Path) -> io::Result<()> {
    fs::rename(blob, link)
}
