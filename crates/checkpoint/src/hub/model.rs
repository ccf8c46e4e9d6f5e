//! A model in a repository: which of its files have the weights, and what of them is here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use demask_tensor::Bytes;

use super::{
    client::{Client, Listing, Piece},
    error::{FetchProgress, HubError, io_error},
    request::{Request, Watch},
};
use crate::{
    HubChoice, ModelFiles, ShardIndex,
    files::{GgufPart, read_limited},
    gguf::{
        parts::{self, GgufModel},
        remote,
    },
    header,
    location::files_below,
    names::{INDEX, SINGLE},
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

/// Facts of a model before its weights are here.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Its files: those that are here, and headers of the others.
    pub files: ModelFiles,
    /// Number of weight files that would be fetched.
    pub missing_files: usize,
    /// Bytes of them that would be fetched.
    pub missing_bytes: u64,
}

impl Survey {
    /// Facts of a model that is here.
    pub(super) fn here(files: ModelFiles) -> Self {
        Self { files, missing_files: 0, missing_bytes: 0 }
    }
}

/// A model in the directory of a commit.
pub(super) struct Model {
    id: String,
    directory: PathBuf,
    weights: Weights,
}

/// Files that have the weights.
enum Weights {
    Safetensors,
    Gguf(GgufModel),
}

impl Weights {
    /// Those that are meant of a repository's files.
    fn choose(id: &str, choice: &HubChoice, files: Vec<(String, Option<u64>)>) -> Result<Self, HubError> {
        let has = |file: &str| files.iter().any(|(name, _)| name == file);
        let (config, safetensors) = (has("config.json"), has(SINGLE) || has(INDEX));
        if *choice == HubChoice::Any && config && safetensors {
            return Ok(Self::Safetensors);
        }
        let models = parts::models(files);
        let id = id.to_owned();
        if models.is_empty() {
            return Err(match choice {
                HubChoice::Type(wanted) | HubChoice::File(wanted) if config && safetensors => {
                    HubError::NoGguf { id, wanted: wanted.clone() }
                }
                _ => HubError::NotAModel { id, missing: if config { "safetensors" } else { "config.json" } },
            });
        }
        let mut meant = meant(&models, choice);
        match (meant.pop(), choice) {
            (Some(model), _) if meant.is_empty() => match &model.missing {
                Some(part) => {
                    let (file, part) = (model.first().to_owned(), part.clone());
                    Err(HubError::NoPart { id, file, part })
                }
                None => Ok(Self::Gguf(model)),
            },
            (Some(model), _) => {
                meant.push(model);
                Err(HubError::ManyFiles { id, models: meant, free: None })
            }
            (None, HubChoice::Type(wanted) | HubChoice::File(wanted)) => {
                Err(HubError::NoSuchFile { id, wanted: wanted.clone(), models, free: None })
            }
            (None, HubChoice::Any) => Err(HubError::ManyFiles { id, models, free: None }),
        }
    }
}

/// Models that a choice can mean. A quantisation means the files that it is the whole type of, else those whose names end so.
fn meant(models: &[GgufModel], choice: &HubChoice) -> Vec<GgufModel> {
    let of = |test: &dyn Fn(&GgufModel) -> bool| models.iter().filter(|model| test(model)).cloned().collect::<Vec<_>>();
    match choice {
        HubChoice::Any => models.to_vec(),
        HubChoice::File(file) => of(&|model| model.files.contains(file)),
        HubChoice::Type(wanted) => {
            let exact = of(&|model| model.quantisation().is_some_and(|kind| kind.eq_ignore_ascii_case(wanted)));
            if exact.is_empty() { of(&|model| model.is_of(wanted)) } else { exact }
        }
    }
}

impl Model {
    /// The model in a directory of the cache, if it is there whole.
    pub(super) fn cached(request: Request<'_>, directory: &Path, choice: &HubChoice) -> Result<Self, HubError> {
        let weights = Weights::choose(request.id, choice, files_below(directory))?;
        let model = Self { id: request.id.to_owned(), directory: directory.to_path_buf(), weights };
        let has = |file: &str| directory.join(file).is_file();
        let whole = match &model.weights {
            Weights::Gguf(_) => true,
            Weights::Safetensors if has(SINGLE) => true,
            Weights::Safetensors => {
                let index = read_index(&directory.join(INDEX))?;
                !index.shards().is_empty() && index.shards().into_iter().all(has)
            }
        };
        if whole { Ok(model) } else { Err(HubError::NotAModel { id: model.id, missing: "safetensors" }) }
    }

    /// Fetches the files that are not in the cache.
    pub(super) fn fetch(
        request: Request<'_>,
        client: &Client<'_>,
        choice: &HubChoice,
        progress: Watch<'_>,
    ) -> Result<Self, HubError> {
        let listing = client.listing(request.revision)?;
        let model = Self::listed(request, client, &listing, choice)?;
        for file in model.weight_files(client, &listing, progress)? {
            client.file(&listing.commit, &file, progress)?;
        }
        // Last: a reference promises a whole model.
        client.refer(request.revision, &listing.commit)?;
        Ok(model)
    }

    /// Fetches the small files, and the headers of weights that are not in the cache.
    pub(super) fn survey(
        request: Request<'_>,
        client: &Client<'_>,
        choice: &HubChoice,
        progress: Watch<'_>,
    ) -> Result<Survey, HubError> {
        let listing = client.listing(request.revision)?;
        let model = Self::listed(request, client, &listing, choice)?;
        let (mut headers, mut missing_files, mut missing_bytes) = (BTreeMap::new(), 0, 0);
        for file in model.weight_files(client, &listing, progress)? {
            if model.directory.join(&file).is_file() {
                continue;
            }
            let remote = Remote { client, commit: &listing.commit, file: &file };
            let (header, missing) = remote.header(matches!(model.weights, Weights::Gguf(_)), &model)?;
            if !progress(FetchProgress { file: &file, done: 0, total: Some(missing) }) {
                return Err(HubError::Interrupted { id: model.id });
            }
            (missing_files, missing_bytes) = (missing_files + 1, missing_bytes + missing);
            headers.insert(file, header);
        }
        if missing_files == 0 {
            client.refer(request.revision, &listing.commit)?;
        }
        Ok(Survey { files: model.files_with(headers)?, missing_files, missing_bytes })
    }

    fn listed(
        request: Request<'_>,
        client: &Client<'_>,
        listing: &Listing,
        choice: &HubChoice,
    ) -> Result<Self, HubError> {
        let weights = Weights::choose(request.id, choice, listing.files())?;
        Ok(Self { id: request.id.to_owned(), directory: client.directory(&listing.commit), weights })
    }

    /// Names of the files that have the weights, once the files beside them are here.
    fn weight_files(
        &self,
        client: &Client<'_>,
        listing: &Listing,
        progress: Watch<'_>,
    ) -> Result<Vec<String>, HubError> {
        if let Weights::Gguf(model) = &self.weights {
            return Ok(model.files.clone());
        }
        for file in SMALL_FILES.iter().filter(|file| listing.has(file)) {
            client.file(&listing.commit, file, progress)?;
        }
        if listing.has(SINGLE) {
            return Ok(vec![SINGLE.to_owned()]);
        }
        let index = read_index(&client.file(&listing.commit, INDEX, progress)?)?;
        Ok(index.shards().into_iter().map(str::to_owned).collect())
    }

    /// The files, all of which are here.
    pub(super) fn files(self) -> Result<ModelFiles, HubError> {
        self.files_with(BTreeMap::new())
    }

    /// The files, with headers in the place of those that are not here.
    fn files_with(self, mut headers: BTreeMap<String, Bytes>) -> Result<ModelFiles, HubError> {
        let model = match self.weights {
            Weights::Safetensors => {
                return Ok(ModelFiles::directory(&self.directory)?.named(&self.id).with_headers(headers));
            }
            Weights::Gguf(model) => model,
        };
        let name = model
            .quantisation()
            .map_or_else(|| format!("{}/{}", self.id, model.first()), |kind| format!("{}:{kind}", self.id));
        let part = |file: &String| match headers.remove(file) {
            Some(bytes) => Ok(GgufPart { label: self.directory.join(file).display().to_string(), bytes }),
            None => GgufPart::open(&self.directory.join(file)),
        };
        let parts = model.files.iter().map(part).collect::<Result<_, _>>()?;
        Ok(ModelFiles::of_parts(&name, parts))
    }
}

/// A weight file of a hub.
struct Remote<'a> {
    client: &'a Client<'a>,
    commit: &'a str,
    file: &'a str,
}

impl Remote<'_> {
    fn piece(&self, start: usize, count: usize) -> Result<Piece, HubError> {
        self.client.piece(self.commit, self.file, start as u64, count as u64)
    }

    /// Returns the header of its tensors, and the bytes that are still to be fetched.
    fn header(&self, gguf: bool, model: &Model) -> Result<(Bytes, u64), HubError> {
        let first = self.piece(0, if gguf { remote::FIRST } else { 8 })?;
        let (whole, missing) = (first.whole, self.client.missing(&first));
        let pieces = if gguf { self.gguf(first)? } else { self.safetensors(first)? };
        let label = model.directory.join(self.file).display().to_string();
        let length = usize::try_from(whole).unwrap_or(usize::MAX);
        Ok((Bytes::excerpt(pieces, length, label), missing))
    }

    /// The header that the first bytes give the length of.
    fn safetensors(&self, first: Piece) -> Result<Vec<(usize, Vec<u8>)>, HubError> {
        let mut bytes = first.bytes;
        // What the length cannot be is told when the file is opened.
        if let Ok(length @ 1..) = header::header_length(&bytes, first.whole) {
            bytes.extend(self.piece(bytes.len(), length as usize)?.bytes);
        }
        Ok(vec![(0, bytes)])
    }

    /// Metadata and descriptions of tensors, whose length nothing says.
    fn gguf(&self, first: Piece) -> Result<Vec<(usize, Vec<u8>)>, HubError> {
        let mut bytes = first.bytes;
        while let Some(count) = remote::more(&bytes, first.whole) {
            bytes.extend(self.piece(bytes.len(), count)?.bytes);
        }
        let wanted = remote::wanted(&bytes, first.whole);
        let mut pieces = vec![(0, bytes)];
        if let Some((start, count)) = wanted {
            pieces.push((start, self.piece(start, count)?.bytes));
        }
        Ok(pieces)
    }
}

/// Reads the index of shards, up to the size that one may have.
fn read_index(path: &Path) -> Result<ShardIndex, HubError> {
    let label = path.display().to_string();
    let opened = fs::File::open(path).map_err(|cause| io_error(path, cause))?;
    Ok(ShardIndex::parse(&read_limited(opened, INDEX, &label)?, &label)?)
}
