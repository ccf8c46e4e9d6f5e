//! A request to a hub: the cache answers where it can, else a transfer.

use std::path::{Path, PathBuf};

use super::{
    client::Client,
    error::{FetchProgress, HubError, RepositoryKind},
    options::HubOptions,
};
use crate::names::{is_repository, is_revision};

/// Observer of a download's progress. Returns `false` to give the download up.
pub type Watch<'a> = &'a mut dyn FnMut(FetchProgress<'_>) -> bool;

/// A request to a hub.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub kind: RepositoryKind,
    pub id: &'a str,
    pub revision: &'a str,
    pub options: &'a HubOptions,
}

impl<'a> Request<'a> {
    pub fn of_model(id: &'a str, revision: Option<&'a str>, options: &'a HubOptions) -> Self {
        Self { kind: RepositoryKind::Model, id, revision: revision.unwrap_or("main"), options }
    }

    /// Brings these files, and returns the directory of the revision.
    pub fn files(self, files: &[&str], progress: Watch<'_>) -> Result<PathBuf, HubError> {
        let Self { id, revision, .. } = self;
        let no_file = |file: &str| {
            let (id, file, revision) = (id.to_owned(), file.to_owned(), revision.to_owned());
            HubError::NoFile { id, file, revision }
        };
        let has_all = |directory: &Path| match files.iter().find(|file| !directory.join(file).is_file()) {
            Some(file) => Err(no_file(file)),
            None => Ok(directory.to_path_buf()),
        };
        self.answer(has_all, |client| {
            let listing = client.listing(revision)?;
            for file in files {
                if !listing.has(file) {
                    return Err(no_file(file));
                }
                client.file(&listing.commit, file, progress)?;
            }
            client.refer(revision, &listing.commit)
        })
    }

    /// Returns the result of the cache where the hub need not or cannot be asked, else the result of the transfer.
    pub fn answer<T>(
        self,
        cached: impl Fn(&Path) -> Result<T, HubError>,
        transfer: impl FnOnce(&Client<'a>) -> Result<T, HubError>,
    ) -> Result<T, HubError> {
        let Self { kind, id, revision, options } = self;
        if !is_repository(id) || !is_revision(revision) {
            return Err(HubError::BadName { kind, id: id.to_owned() });
        }
        let client = Client::new(kind, id, options);
        let cached = client.snapshot(revision).map(|directory| cached(&directory));
        let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
        match cached {
            // A commit never changes: there is nothing to ask.
            Some(Ok(found)) if options.offline || is_commit => Ok(found),
            Some(Err(error @ (HubError::ManyFiles { .. } | HubError::NoSuchFile { .. }))) if options.offline => {
                Err(error)
            }
            _ if options.offline => {
                Err(HubError::Offline { kind, id: id.to_owned(), cache: options.cache.display().to_string() })
            }
            cached => match (transfer(&client), cached) {
                (Err(HubError::Unreachable { .. }), Some(Ok(found))) => Ok(found),
                (result, _) => result,
            },
        }
    }
}
