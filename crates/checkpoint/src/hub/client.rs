//! One repository of a hub and its part of the cache: listings, transfers, and links to what has come whole. Nothing is
//! linked before its length is the announced one and its contents are those that the hub's name of them is a hash of.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::{
    FetchProgress, HubError, HubOptions, RepositoryKind,
    digest::Sum,
    error::io_error,
    http::{Remote, bad_reply},
};
use crate::{
    error::one_line,
    files::largest_text,
    names::{is_named_gguf, is_plain, is_revision},
};

/// Most bytes of the description of a repository.
const LARGEST_LISTING: u64 = 10 << 20;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 18;

/// One repository of a hub, and its part of the cache.
pub(super) struct Client<'a> {
    remote: Remote<'a>,
    /// Directory of the repository in the cache.
    place: PathBuf,
}

/// Description of a revision.
#[derive(serde::Deserialize)]
pub(super) struct Listing {
    /// Its commit.
    #[serde(rename = "sha")]
    pub(super) commit: String,
    #[serde(rename = "siblings")]
    files: Vec<Listed>,
}

#[derive(serde::Deserialize)]
struct Listed {
    #[serde(rename = "rfilename")]
    name: String,
    /// Bytes, where the hub says it.
    size: Option<u64>,
}

impl Listing {
    /// Reports whether a revision has a file.
    pub(super) fn has(&self, file: &str) -> bool {
        self.files.iter().any(|listed| listed.name == file)
    }

    /// Names and sizes of the files, without names that lead out of a directory.
    pub(super) fn files(&self) -> Vec<(String, Option<u64>)> {
        let inside = self.files.iter().filter(|listed| is_revision(&listed.name));
        inside.map(|listed| (listed.name.clone(), listed.size)).collect()
    }
}

/// Bytes of a file.
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// Size of the whole file.
    pub(super) whole: u64,
    etag: Option<String>,
}

/// Announcement of a file.
struct Expected<'a> {
    file: &'a str,
    address: String,
    size: u64,
    etag: String,
}

impl<'a> Client<'a> {
    pub(super) fn new(kind: RepositoryKind, id: &'a str, options: &'a HubOptions) -> Self {
        let place = options.cache.join(format!("{kind}s--{}", id.replace('/', "--")));
        Self { remote: Remote::new(kind, id, options), place }
    }

    /// Directory that the cache has for a revision: the one that its reference names, or a commit's own.
    pub(super) fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let referred = fs::read_to_string(self.place.join("refs").join(revision)).ok();
        let referred = referred.filter(|commit| is_plain(commit)).map(|commit| self.directory(&commit));
        let own = || Some(revision).filter(|revision| is_plain(revision)).map(|revision| self.directory(revision));
        referred.filter(|directory| directory.is_dir()).or_else(own).filter(|directory| directory.is_dir())
    }

    /// Makes a revision mean a commit, and returns the commit's directory.
    pub(super) fn refer(&self, revision: &str, commit: &str) -> Result<PathBuf, HubError> {
        let reference = self.place.join("refs").join(revision);
        let written = make_parent(&reference).and_then(|()| fs::write(&reference, commit));
        written.map_err(|cause| io_error(&reference, cause))?;
        Ok(self.directory(commit))
    }

    pub(super) fn directory(&self, commit: &str) -> PathBuf {
        self.place.join("snapshots").join(commit)
    }

    /// Commit and files of a revision.
    pub(super) fn listing(&self, revision: &str) -> Result<Listing, HubError> {
        const EXPECTED: &str = "the JSON description of a repository";
        let Remote { kind, id, options, .. } = &self.remote;
        // The sizes of a model's files, too.
        let sizes = if *kind == RepositoryKind::Model { "?blobs=true" } else { "" };
        let revision_part = revision.replace('/', "%2F");
        let address = format!("{}/api/{kind}s/{id}/revision/{revision_part}{sizes}", options.endpoint);
        let mut text = Vec::new();
        let mut body = self.remote.get(&address, revision, None)?.into_reader().take(LARGEST_LISTING + 1);
        body.read_to_end(&mut text)
            .map_err(|cause| HubError::Unreachable { address: address.clone(), detail: one_line(cause) })?;
        if text.len() as u64 > LARGEST_LISTING {
            return Err(bad_reply(&address, format!("more than {LARGEST_LISTING} bytes"), EXPECTED));
        }
        let listing: Listing =
            serde_json::from_slice(&text).map_err(|error| bad_reply(&address, one_line(error), EXPECTED))?;
        // The commit becomes a directory: it must not lead anywhere else.
        if !is_plain(&listing.commit) {
            return Err(bad_reply(&address, "a commit that is not one".to_owned(), "the description of a repository"));
        }
        Ok(listing)
    }

    /// Brings one file of a commit, going on where an earlier call stopped.
    pub(super) fn file(
        &self,
        commit: &str,
        file: &str,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<PathBuf, HubError> {
        let link = self.directory(commit).join(file);
        if link.is_file() && !self.is_damaged(&link, file)? {
            return Ok(link);
        }
        // A link whose blob was deleted is in the way.
        let _ = fs::remove_file(&link);
        let expected = self.announced(commit, file)?;
        let blob = self.place.join("blobs").join(&expected.etag);
        let part = blob.with_extension("part");
        let mut failures = 0;
        loop {
            let before = length(&part);
            let error = match self.bring(&expected, commit, (&blob, &part), progress) {
                Ok(()) => return link_to(&blob, &link).map(|()| link),
                Err(error) => error,
            };
            failures = if length(&part) > before { 0 } else { failures + 1 };
            let passing =
                matches!(error, HubError::BrokenOff { .. } | HubError::Unreachable { .. } | HubError::Busy { .. });
            if !passing || self.remote.options.retries == 0 || failures > self.remote.options.retries {
                return Err(error);
            }
            thread::sleep(Duration::from_secs(1 << failures.min(4)));
        }
    }

    /// Bytes of a file of a commit from `start` on, and the size of the whole file.
    pub(super) fn piece(&self, commit: &str, file: &str, start: u64, count: u64) -> Result<Piece, HubError> {
        let address = self.address(commit, file);
        let reply = self.remote.get(&address, commit, Some((start, Some(start + count - 1))))?;
        let missing = || bad_reply(&address, "without the header content-range".to_owned(), "what a hub answers");
        let (part, etag) = (reply.part().ok_or_else(missing)?, reply.etag.clone());
        // A hub, or a proxy before it, may send the whole file.
        let before = start.checked_sub(part.start);
        let before =
            before.ok_or_else(|| bad_reply(&address, format!("bytes from {} on", part.start), "those asked for"))?;
        let (mut body, mut bytes) = (reply.into_reader(), Vec::new());
        let broken = |cause: io::Error| HubError::Unreachable { address: address.clone(), detail: one_line(cause) };
        io::copy(&mut (&mut body).take(before), &mut io::sink()).map_err(broken)?;
        body.take(count).read_to_end(&mut bytes).map_err(broken)?;
        if bytes.len() as u64 != count.min(part.whole.saturating_sub(start)) {
            let found = format!("{} bytes of {file}", bytes.len());
            return Err(bad_reply(&address, found, "as many as were asked for"));
        }
        Ok(Piece { bytes, whole: part.whole, etag })
    }

    /// Bytes of a file that a call would still fetch: an earlier one may have left a part.
    pub(super) fn missing(&self, piece: &Piece) -> u64 {
        let etag = piece.etag.as_deref().filter(|etag| is_plain(etag));
        let blob = etag.map(|etag| self.place.join("blobs").join(etag));
        let here = blob.map_or(0, |blob| length(&blob).max(length(&blob.with_extension("part"))));
        piece.whole.saturating_sub(here)
    }

    fn address(&self, commit: &str, file: &str) -> String {
        let folder = match self.remote.kind {
            RepositoryKind::Model => "",
            RepositoryKind::Dataset => "datasets/",
        };
        format!("{}/{folder}{}/resolve/{commit}/{file}", self.remote.options.endpoint, self.remote.id)
    }

    /// Reports whether a file of a snapshot that should be small has other contents than its blob's name says, and removes
    /// such a blob: an earlier program may have linked what came damaged. The lengths of weights are checked when they are
    /// opened.
    fn is_damaged(&self, link: &Path, file: &str) -> Result<bool, HubError> {
        if self.remote.kind != RepositoryKind::Model || is_weights(file) {
            return Ok(false);
        }
        let blob = fs::canonicalize(link).map_err(|cause| io_error(link, cause))?;
        let named = blob.file_name().and_then(|name| name.to_str()).filter(|_| length(&blob) <= largest_text(file));
        let Some((etag, sum)) = named.and_then(|name| Some((name, Sum::of(name)?))) else { return Ok(false) };
        let compared = sum.differs(&blob, etag, &mut || true).map_err(|cause| io_error(&blob, cause))?;
        let damaged = matches!(compared, Some(Err(_)));
        if damaged {
            let _ = fs::remove_file(&blob);
        }
        Ok(damaged)
    }

    /// Name and size of a file's contents.
    fn announced<'f>(&self, commit: &str, file: &'f str) -> Result<Expected<'f>, HubError> {
        let address = self.address(commit, file);
        let reply = self.remote.get(&address, commit, Some((0, Some(0))))?;
        let missing = |name: &str| bad_reply(&address, format!("without the header {name}"), "what a hub answers");
        let etag = reply.etag.clone().ok_or_else(|| missing("etag"))?;
        let found = reply.commit.clone().ok_or_else(|| missing("x-repo-commit"))?;
        // Both become paths: they must not lead anywhere else.
        if found != commit || !is_plain(&etag) {
            let found = one_line(format!("etag {etag:?} of commit {found:?}"));
            return Err(bad_reply(&address, found, "an etag, and the commit that was asked for"));
        }
        let size = reply.part().ok_or_else(|| missing("content-range"))?.whole;
        let limit = largest(self.remote.kind, file);
        if size > limit {
            return Err(self.too_large(file, size, limit));
        }
        Ok(Expected { file, address, size, etag })
    }

    fn too_large(&self, file: &str, found: u64, limit: u64) -> HubError {
        HubError::TooLarge { id: self.remote.id.to_owned(), file: file.to_owned(), found, limit }
    }

    /// One attempt to have the contents whole under their name.
    fn bring(
        &self,
        expected: &Expected<'_>,
        commit: &str,
        (blob, part): (&Path, &Path),
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<(), HubError> {
        if self.has(expected, blob, progress)? {
            return Ok(());
        }
        let mut opened = open_alone(part, expected.file)?;
        // The program that held the part may have finished it.
        if length(part) == 0 && self.has(expected, blob, progress)? {
            return fs::remove_file(part).map_err(|cause| io_error(part, cause));
        }
        // More bytes than there are cannot be a part of them.
        if length(part) > expected.size {
            opened.set_len(0).map_err(|cause| io_error(part, cause))?;
        }
        if length(part) < expected.size {
            self.transfer(expected, commit, (&mut opened, part), progress)?;
        }
        opened.sync_all().map_err(|cause| io_error(part, cause))?;
        self.check(expected, part, progress)?;
        fs::rename(part, blob).map_err(|cause| io_error(blob, cause))
    }

    /// Reports whether the contents are there: another commit of the repository has the same, or another program brought
    /// them. Nothing vouches for them: whatever wrote them may have been killed before it looked.
    fn has(
        &self,
        expected: &Expected<'_>,
        blob: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<bool, HubError> {
        if !blob.is_file() || length(blob) != expected.size {
            return Ok(false);
        }
        match self.check(expected, blob, progress) {
            Ok(()) => Ok(true),
            Err(HubError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Appends the missing bytes to a part. A hub, or a proxy before it, may send the whole file instead of its rest:
    /// then the part begins again.
    fn transfer(
        &self,
        expected: &Expected<'_>,
        commit: &str,
        (opened, part): (&mut File, &Path),
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<(), HubError> {
        let &Expected { file, ref address, size, .. } = expected;
        let asked = length(part);
        let reply = self.remote.get(address, commit, Some((asked, None)))?;
        let mut done = reply.part().map_or(0, |part| part.start);
        if done != asked && done != 0 {
            return Err(bad_reply(address, format!("bytes from {done} on"), "those that were asked for"));
        }
        if let Some(found) = reply.part().filter(|part| part.whole != size) {
            return Err(bad_reply(address, format!("{} bytes for {file}", found.whole), "as many as it announced"));
        }
        let of_disk = |cause| io_error(part, cause);
        opened.set_len(done).and_then(|()| opened.seek(io::SeekFrom::Start(done))).map_err(of_disk)?;
        let (mut body, mut piece) = (reply.into_reader(), vec![0; PIECE]);
        while let Ok(count @ 1..) = body.read(&mut piece) {
            done += count as u64;
            if done > size {
                // Nothing of it is of use: the next call starts afresh.
                let _ = fs::remove_file(part);
                return Err(self.too_large(file, done, size));
            }
            opened.write_all(&piece[..count]).map_err(of_disk)?;
            if !progress(FetchProgress { file, done, total: Some(size) }) {
                return Err(HubError::Interrupted { id: self.remote.id.to_owned() });
            }
        }
        if done == size {
            return Ok(());
        }
        Err(HubError::BrokenOff { file: file.to_owned(), done, total: size.to_string() })
    }

    /// Compares the contents at `path` with the hash that the hub calls them by; removes what differs.
    fn check(
        &self,
        expected: &Expected<'_>,
        path: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>) -> bool,
    ) -> Result<(), HubError> {
        let &Expected { file, size, ref etag, .. } = expected;
        let Some(sum) = Sum::of(etag) else { return Ok(()) };
        let mut goes_on = || progress(FetchProgress { file, done: size, total: Some(size) });
        let compared = sum.differs(path, etag, &mut goes_on).map_err(|cause| io_error(path, cause))?;
        let Some(compared) = compared else { return Err(HubError::Interrupted { id: self.remote.id.to_owned() }) };
        compared.map_err(|found| {
            let _ = fs::remove_file(path);
            HubError::Damaged { file: file.to_owned(), sum: sum.name(), found, expected: etag.clone() }
        })
    }
}

/// Opens a part, which no other program may write meanwhile.
fn open_alone(part: &Path, file: &str) -> Result<File, HubError> {
    let of_disk = |cause| io_error(part, cause);
    make_parent(part).map_err(of_disk)?;
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(part).map_err(of_disk)?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(HubError::Busy { file: file.to_owned() }),
        // Some shared disks have no locks.
        Err(TryLockError::Error(cause)) if cause.kind() == io::ErrorKind::Unsupported => Ok(opened),
        Err(TryLockError::Error(cause)) => Err(of_disk(cause)),
    }
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Most bytes of a file of a repository: what its kind may have, weights of the largest models, data of a benchmark.
fn largest(kind: RepositoryKind, file: &str) -> u64 {
    match kind {
        RepositoryKind::Model if is_weights(file) => 1 << 40,
        RepositoryKind::Model => largest_text(file),
        RepositoryKind::Dataset => 4 << 30,
    }
}

/// Reports whether a file has weights, by its name.
fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors") || is_named_gguf(file)
}

/// Bytes of a file; none, if there is no such file.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Puts a whole blob into a snapshot.
fn link_to(blob: &Path, link: &Path) -> Result<(), HubError> {
    make_parent(link).and_then(|()| place(blob, link)).map_err(|cause| io_error(link, cause))
}

/// A relative link, so that the cache can be moved.
#[cfg(unix)]
fn place(blob: &Path, link: &Path) -> io::Result<()> {
    // Up to the directory that has both; a file of a snapshot may lie in directories of its own.
    let shared =
        link.ancestors().skip(1).enumerate().find_map(|(up, above)| Some((up, blob.strip_prefix(above).ok()?)));
    let (up, inside) = shared.unwrap_or((0, blob));
    match std::os::unix::fs::symlink(Path::new(&"../".repeat(up)).join(inside), link) {
        // Another program fetched the same.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && link.is_file() => Ok(()),
        result => result,
    }
}

/// Links a file into place, or moves it where links need privileges.
#[cfg(not(unix))]
fn place(blob: &Path, link: &Path) -> io::Result<()> {
    fs::rename(blob, link)
}
