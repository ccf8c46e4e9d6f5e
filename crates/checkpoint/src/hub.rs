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
mod model;
mod options;
mod request;

use std::path::PathBuf;

pub use error::{FetchProgress, HubError, RepositoryKind};
use model::Model;
pub use model::Survey;
pub use options::HubOptions;
use request::{Request, Watch};

use crate::{CheckpointError, HubChoice, ModelFiles, ModelLocation, adapter, location::resolve};

/// Kind of files that an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A model: a directory, a GGUF file, or a model of a hub.
    Model,
    /// An adapter: a directory, or `org/name` of a hub.
    Adapter,
}

/// The files of whatever an argument means ([`resolve`]). Those of a hub are fetched, as far as they are not in the cache.
/// Without a revision they are those of the branch `main`.
///
/// Where the hub cannot be reached and the cache has all of them, the cache is used.
///
/// # Errors
/// If the argument means nothing, several GGUF files, or what cannot be fetched.
pub fn locate(
    argument: &str,
    wanted: Wanted,
    options: &HubOptions,
    progress: Watch<'_>,
) -> Result<ModelFiles, HubError> {
    match (resolve(argument, options)?, wanted) {
        (ModelLocation::Directory(path), _) => Ok(ModelFiles::directory(path)?),
        (ModelLocation::Gguf(path), Wanted::Model) => Ok(ModelFiles::gguf(path)?),
        (ModelLocation::Hub { repository, revision, choice }, Wanted::Model) => {
            let request = Request::of_model(&repository, revision.as_deref(), options);
            let found = request.answer(
                |directory| Model::cached(request, directory, &choice),
                |client| Model::fetch(request, client, &choice, progress),
            )?;
            found.files()
        }
        (ModelLocation::Hub { repository, revision, choice: HubChoice::Any }, Wanted::Adapter) => {
            let request = Request::of_model(&repository, revision.as_deref(), options);
            let directory = request.files(&[adapter::CONFIG, adapter::WEIGHTS], progress)?;
            Ok(ModelFiles::directory(directory)?.named(&repository))
        }
        (ModelLocation::Gguf(_) | ModelLocation::Hub { .. }, Wanted::Adapter) => {
            Err(CheckpointError::NotAnAdapter { path: argument.to_owned() }.into())
        }
    }
}

/// Returns facts of a model before its weights are here: its small files, and the headers of its weights. Of a hub's model
/// only these are fetched.
///
/// # Errors
/// As [`locate`].
pub fn survey(argument: &str, options: &HubOptions, progress: Watch<'_>) -> Result<Survey, HubError> {
    let ModelLocation::Hub { repository, revision, choice } = resolve(argument, options)? else {
        return Ok(Survey::here(locate(argument, Wanted::Model, options, progress)?));
    };
    let request = Request::of_model(&repository, revision.as_deref(), options);
    request.answer(
        |directory| Ok(Survey::here(Model::cached(request, directory, &choice)?.files()?)),
        |client| Model::survey(request, client, &choice, progress),
    )
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
    progress: Watch<'_>,
) -> Result<PathBuf, HubError> {
    Request { kind: RepositoryKind::Dataset, id, revision, options }.files(files, progress)
}
