//! Sources of the files of a checkpoint: a directory, one GGUF file, or the binary itself.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use demask_tensor::Bytes;

use crate::{AdapterChoice, CheckpointError, FamilyChoice, template::LONGEST_TEMPLATE};

/// Returns the most bytes that a text file of a model may have, by its name.
///
/// A parsed text takes up to 40 times its bytes, so each kind has a limit of its own: what people write by hand, what
/// lists tensors or tokens, and `tokenizer.json`, which holds a whole vocabulary with its merges.
pub(crate) fn largest_text(file: &str) -> u64 {
    match file {
        "config.json" | "generation_config.json" => 1 << 20,
        "chat_template.jinja" => LONGEST_TEMPLATE as u64,
        "tokenizer.json" => 64 << 20,
        _ => 16 << 20,
    }
}

/// Reads a whole text file of a model, unless it is larger than its kind may be.
pub(crate) fn read_limited(opened: File, file: &str, label: &str) -> Result<Vec<u8>, CheckpointError> {
    let limit = largest_text(file);
    let io = |cause| CheckpointError::Io { file: label.to_owned(), cause };
    let length = opened.metadata().map_err(io)?.len();
    let mut text = Vec::new();
    // One byte more than allowed: a file can grow while it is read.
    let read = if length > limit { 0 } else { opened.take(limit + 1).read_to_end(&mut text).map_err(io)? as u64 };
    let found = length.max(read);
    if found > limit {
        return Err(CheckpointError::TooLarge { file: label.to_owned(), found, limit });
    }
    Ok(text)
}

/// The files of one checkpoint.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    name: String,
    place: Place,
    /// Family that the caller chose; none: the files decide.
    family: Option<FamilyChoice>,
    /// Adapter that goes with them.
    adapter: Option<Box<AdapterFiles>>,
}

/// Files of an adapter, and its use.
#[derive(Debug, Clone)]
pub struct AdapterFiles {
    /// The files.
    pub files: ModelFiles,
    /// Use of the adapter.
    pub choice: AdapterChoice,
}

impl AdapterFiles {
    /// Returns the name of a model with the adapter: `MODEL+ADAPTER`, without the adapter's organisation.
    pub(crate) fn name_beside(&self, model: &str) -> String {
        let name = self.files.name();
        format!("{model}+{}", name.rsplit_once('/').map_or(name, |(_, name)| name))
    }
}

#[derive(Debug, Clone)]
enum Place {
    Directory(PathBuf),
    Memory(&'static [(&'static str, &'static [u8])]),
    Gguf {
        /// The file as messages call it.
        label: String,
        bytes: GgufBytes,
    },
}

/// A whole GGUF file.
#[derive(Clone)]
struct GgufBytes(Bytes);

impl fmt::Debug for GgufBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ModelFiles {
    /// The files of a directory.
    pub fn directory(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        if path.is_file() {
            return Err(CheckpointError::NotADirectory { path: path.display().to_string() });
        }
        if !path.is_dir() {
            return Err(CheckpointError::NoSuchModel { argument: path.display().to_string() });
        }
        // `.` and `..` have no name of their own.
        let whole = if path.file_name().is_some() { None } else { path.canonicalize().ok() };
        let named = whole.as_deref().unwrap_or(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = named.unwrap_or_else(|| path.display().to_string());
        Ok(Self { name, place: Place::Directory(path.to_path_buf()), family: None, adapter: None })
    }

    /// A GGUF file: everything is in it.
    pub fn gguf(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let label = path.display().to_string();
        // Pipes and devices count as absent: opening them could wait for ever.
        if !path.is_file() {
            return Err(CheckpointError::NoSuchModel { argument: label });
        }
        let opened = File::open(path).and_then(|file| Bytes::file(file, label.clone()));
        let bytes = opened.map_err(|cause| CheckpointError::Io { file: label.clone(), cause })?;
        let name = path.file_stem().map_or_else(|| label.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self { name, place: Place::Gguf { label, bytes: GgufBytes(bytes) }, family: None, adapter: None })
    }

    /// A GGUF file that is in memory.
    pub fn gguf_bytes(name: &str, bytes: Bytes) -> Self {
        Self {
            name: name.to_owned(),
            place: Place::Gguf { label: name.to_owned(), bytes: GgufBytes(bytes) },
            family: None,
            adapter: None,
        }
    }

    /// Files in the binary, by name.
    pub fn memory(name: &str, files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self { name: name.to_owned(), place: Place::Memory(files), family: None, adapter: None }
    }

    /// Renames the files, for example to a hub id instead of the name of its cache directory.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Name of the model, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Directory(path) => Some(path),
            Place::Memory(_) | Place::Gguf { .. } => None,
        }
    }

    /// Reads them as a family that somebody named, whatever they say; none: they tell.
    #[must_use]
    pub fn of_family(self, family: Option<FamilyChoice>) -> Self {
        Self { family, ..self }
    }

    /// Puts an adapter beside them.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<AdapterFiles>) -> Self {
        Self { adapter: adapter.map(Box::new), ..self }
    }

    /// Returns the adapter.
    pub(crate) fn adapter(&self) -> Option<&AdapterFiles> {
        self.adapter.as_deref()
    }

    /// Returns the family that somebody named.
    pub fn family(&self) -> Option<&FamilyChoice> {
        self.family.as_ref()
    }

    /// A file as messages call it.
    pub(crate) fn label(&self, file: &str) -> String {
        match &self.place {
            Place::Directory(path) => path.join(file).display().to_string(),
            Place::Memory(_) => format!("{}/{file}", self.name),
            Place::Gguf { label, .. } => label.clone(),
        }
    }

    /// The one file that everything is in, and what messages call it.
    pub(crate) fn whole(&self) -> Option<(&Bytes, &str)> {
        match &self.place {
            Place::Gguf { label, bytes } => Some((&bytes.0, label)),
            _ => None,
        }
    }

    /// Gives up the files for the name.
    pub(crate) fn into_name(self) -> String {
        self.name
    }

    /// A text file, or nothing if there is none.
    pub(crate) fn text(&self, file: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
        match &self.place {
            Place::Directory(_) => self.read_text(file),
            Place::Memory(_) => Ok(self.memory_file(file).map(<[u8]>::to_vec)),
            Place::Gguf { .. } => Ok(None),
        }
    }

    /// A weight file, or nothing if there is none.
    pub(crate) fn bytes(&self, file: &str) -> Result<Option<Bytes>, CheckpointError> {
        match &self.place {
            Place::Directory(_) => {
                let Some(opened) = self.open(file)? else { return Ok(None) };
                Bytes::file(opened, self.label(file)).map(Some).map_err(|cause| self.io(file, cause))
            }
            Place::Memory(_) => Ok(self.memory_file(file).map(Bytes::fixed)),
            Place::Gguf { .. } => Ok(None),
        }
    }

    fn memory_file(&self, file: &str) -> Option<&'static [u8]> {
        let Place::Memory(files) = &self.place else { return None };
        files.iter().find(|(name, _)| *name == file).map(|(_, bytes)| *bytes)
    }

    fn read_text(&self, file: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
        let Some(opened) = self.open(file)? else { return Ok(None) };
        read_limited(opened, file, &self.label(file)).map(Some)
    }

    /// Opens a file of the directory. Pipes and devices are refused: opening them could wait for ever. So are links that lead
    /// out of the directory.
    fn open(&self, file: &str) -> Result<Option<File>, CheckpointError> {
        let Place::Directory(directory) = &self.place else { return Ok(None) };
        let path = directory.join(file);
        let io = |cause| self.io(file, cause);
        match path.symlink_metadata() {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(io(cause)),
            Ok(_) if !path.is_file() => {
                return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
            }
            Ok(_) => {}
        }
        let (whole, target) = (directory.canonicalize().map_err(io)?, path.canonicalize().map_err(io)?);
        if !target.starts_with(&whole) && !blobs_of(&whole).is_some_and(|blobs| target.starts_with(blobs)) {
            let (file, target) = (self.label(file), target.display().to_string());
            return Err(CheckpointError::LinkOut { file, target });
        }
        File::open(&target).map(Some).map_err(io)
    }

    fn io(&self, file: &str, cause: io::Error) -> CheckpointError {
        CheckpointError::Io { file: self.label(file), cause }
    }
}

/// The directory of contents that a snapshot in a hub's cache links to: `models--org--name/blobs`, beside
/// `models--org--name/snapshots/COMMIT`.
fn blobs_of(directory: &Path) -> Option<PathBuf> {
    let snapshots = directory.parent().filter(|parent| parent.ends_with("snapshots"))?;
    snapshots.parent()?.join("blobs").canonicalize().ok()
}

/// Meaning of a model argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelLocation {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A GGUF file of this machine.
    Gguf(PathBuf),
    /// A repository of the hub.
    Hub {
        /// `org/name`.
        repository: String,
        /// Branch, tag or commit: what follows `@` in the argument.
        revision: Option<String>,
    },
}

/// Resolves an argument to a directory, a GGUF file or a hub id (`org/name`, `org/name@revision`). A path that exists
/// on this machine goes first.
pub fn resolve(argument: &str) -> Result<ModelLocation, CheckpointError> {
    let path = Path::new(argument);
    if path.is_dir() {
        return Ok(ModelLocation::Directory(path.to_path_buf()));
    }
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    if path.is_file() {
        if named || is_gguf(path) {
            return Ok(ModelLocation::Gguf(path.to_path_buf()));
        }
        return Err(CheckpointError::NotADirectory { path: argument.to_owned() });
    }
    if named {
        return Err(CheckpointError::NoSuchModel { argument: argument.to_owned() });
    }
    let (repository, revision) = match argument.split_once('@') {
        Some((repository, revision)) => (repository, Some(revision.to_owned())),
        None => (argument, None),
    };
    if is_repository(repository) && revision.as_deref().is_none_or(is_revision) {
        return Ok(ModelLocation::Hub { repository: repository.to_owned(), revision });
    }
    Err(CheckpointError::NoSuchModel { argument: argument.to_owned() })
}

/// Reports whether a file starts as GGUF files do, whatever it is called.
fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"GGUF"
}

/// Reports whether a text is `org/name` as the hub allows it.
pub(crate) fn is_repository(text: &str) -> bool {
    text.split_once('/').is_some_and(|(organisation, name)| is_plain(organisation) && is_plain(name))
}

/// Reports whether a text can name a revision without leaving the directory of references.
pub(crate) fn is_revision(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.split('/').all(is_plain)
}

/// Reports whether a text is one safe component of a path.
pub(crate) fn is_plain(text: &str) -> bool {
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 200 && text.chars().all(allowed) && !text.starts_with('.')
}
