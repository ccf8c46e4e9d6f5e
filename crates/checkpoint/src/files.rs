//! Sources of the files of a checkpoint: a directory, one GGUF file, or the binary itself.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use demask_tensor::Bytes;

use crate::{AdapterChoice, CheckpointError, FamilyChoice, gguf::parts::all_parts, template::LONGEST_TEMPLATE};

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
    /// Headers of weight files that are not here, by name.
    headers: Arc<BTreeMap<String, Header>>,
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
    /// A GGUF file, or the parts of a split one in order.
    Gguf(Vec<GgufPart>),
}

/// A weight file of which the header alone is here.
#[derive(Clone)]
struct Header(Bytes);

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header of {} bytes", self.0.len())
    }
}

/// A GGUF file, or a part of one.
#[derive(Clone)]
pub(crate) struct GgufPart {
    /// The file as messages call it.
    pub label: String,
    pub bytes: Bytes,
}

impl GgufPart {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let label = path.display().to_string();
        // Pipes and devices count as absent: opening them could wait for ever.
        if !path.is_file() {
            return Err(CheckpointError::NoSuchModel { argument: label });
        }
        let opened = File::open(path).and_then(|file| Bytes::file(file, label.clone()));
        let bytes = opened.map_err(|cause| CheckpointError::Io { file: label.clone(), cause })?;
        Ok(Self { label, bytes })
    }
}

impl fmt::Debug for GgufPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.label, self.bytes.len())
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
        Ok(Self::at(name, Place::Directory(path.to_path_buf())))
    }

    /// A GGUF file, which has the whole model. Of a split file any part names all, which are beside it.
    pub fn gguf(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let part = |file: &String| {
            let part = path.with_file_name(file);
            if *file != name && !part.is_file() {
                return Err(CheckpointError::MissingPart { file: path.display().to_string(), part: file.clone() });
            }
            GgufPart::open(&part)
        };
        let parts = all_parts(&name).iter().map(part).collect::<Result<_, _>>()?;
        Ok(Self::of_parts(&stem(&name), parts))
    }

    /// A GGUF file that is in memory.
    pub fn gguf_bytes(name: &str, bytes: Bytes) -> Self {
        Self::of_parts(name, vec![GgufPart { label: name.to_owned(), bytes }])
    }

    pub(crate) fn of_parts(name: &str, parts: Vec<GgufPart>) -> Self {
        Self::at(name.to_owned(), Place::Gguf(parts))
    }

    fn at(name: String, place: Place) -> Self {
        Self { name, place, headers: Arc::default(), family: None, adapter: None }
    }

    /// Files in the binary, by name.
    pub fn memory(name: &str, files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self::at(name.to_owned(), Place::Memory(files))
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

    /// The directory, or the GGUF file, the first of several parts; nothing if they are in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Directory(path) => Some(path),
            Place::Gguf(parts) => parts.first().map(|part| Path::new(&part.label)),
            Place::Memory(_) => None,
        }
    }

    /// Puts headers of weight files in the place of files that are not here.
    pub(crate) fn with_headers(self, headers: BTreeMap<String, Bytes>) -> Self {
        let headers = headers.into_iter().map(|(name, bytes)| (name, Header(bytes))).collect();
        Self { headers: Arc::new(headers), ..self }
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
            Place::Gguf(parts) => parts.first().map_or_else(String::new, |part| part.label.clone()),
        }
    }

    /// The GGUF file that everything is in, in its parts.
    pub(crate) fn gguf_parts(&self) -> Option<&[GgufPart]> {
        match &self.place {
            Place::Gguf(parts) => Some(parts),
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
            Place::Gguf(_) => Ok(None),
        }
    }

    /// A weight file, or nothing if there is none.
    pub(crate) fn bytes(&self, file: &str) -> Result<Option<Bytes>, CheckpointError> {
        if let Some(Header(bytes)) = self.headers.get(file) {
            return Ok(Some(bytes.clone()));
        }
        match &self.place {
            Place::Directory(_) => {
                let Some(opened) = self.open(file)? else { return Ok(None) };
                Bytes::file(opened, self.label(file)).map(Some).map_err(|cause| self.io(file, cause))
            }
            Place::Memory(_) => Ok(self.memory_file(file).map(Bytes::fixed)),
            Place::Gguf(_) => Ok(None),
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

/// The name of a GGUF file without its end.
fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The directory of contents that a snapshot in a hub's cache links to: `models--org--name/blobs`, beside
/// `models--org--name/snapshots/COMMIT`.
fn blobs_of(directory: &Path) -> Option<PathBuf> {
    let snapshots = directory.parent().filter(|parent| parent.ends_with("snapshots"))?;
    snapshots.parent()?.join("blobs").canonicalize().ok()
}
