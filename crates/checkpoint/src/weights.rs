//! Weights in files, read by role; opened from safetensors files, single or sharded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use demask_model::{
    AdapterUse, ArchSpec, ExpectedTensor, Role, StoredLora, WeightError, WeightSource, expected_tensors,
};
use demask_tensor::{BlockFormat, Bytes, Dtype, StoredTensor};

use crate::{
    AdapterFacts, CheckpointError, Family, ModelFiles,
    adapter::StoredAdapter,
    families::Rows,
    fields::Fields,
    header::{self, MOST_TENSORS, TensorInfo},
    located::{Located, dtype_of},
    names::{INDEX, SINGLE, is_plain},
};

/// Most files of a checkpoint: 20 times those of the largest releases.
const MOST_SHARDS: usize = 1 << 12;

/// A `model.safetensors.index.json`: which shard holds which tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    /// File of each tensor, by the tensor's name.
    pub shard_of: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads the text of the file; `file` is its name for messages. Shards are plain file names: an index cannot
    /// lead out of its directory.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, CheckpointError> {
        let fields = Fields::parse(text, file)?;
        let map = fields.object("weight_map")?;
        let map = map.ok_or_else(|| fields.missing("weight_map", "an object of tensor names and shards"))?;
        let mut shard_of = BTreeMap::new();
        for name in map.keys() {
            let Some(value) = map.get(name) else { continue };
            let plain = value.as_str().filter(|shard| is_plain(shard) && shard.ends_with(".safetensors"));
            let shard = plain.ok_or_else(|| map.bad(name, value, "the name of a safetensors file beside the index"))?;
            shard_of.insert(name.clone(), shard.to_owned());
        }
        let index = Self { shard_of };
        let found = index.shards().len();
        if found > MOST_SHARDS {
            let expected = format!("tensors in at most {MOST_SHARDS} different files");
            return Err(fields.bad("weight_map", &found.into(), expected));
        }
        Ok(index)
    }

    /// Names of all shards.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.shard_of.values().map(String::as_str).collect()
    }
}

/// One weight file.
struct Shard {
    label: String,
    bytes: Bytes,
    tensors: HashMap<String, TensorInfo>,
}

/// All tensors of an architecture, in their files.
pub struct StoredWeights {
    shards: Vec<Bytes>,
    located: HashMap<Role, Located>,
    unexpected: Vec<String>,
    adapter: Option<StoredAdapter>,
}

/// Name of a tensor in checkpoints that were saved from the inner model, without its prefix.
pub(crate) fn without_prefix(name: &str) -> &str {
    name.strip_prefix("model.").unwrap_or(name)
}

/// Returns whether a tensor is a buffer that older tools saved although it is computed: nothing to say about it.
pub(crate) fn is_known_buffer(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq")
        || name.ends_with("rotary_emb.cos_cached")
        || name.ends_with("rotary_emb.sin_cached")
}

/// Opened files, before their contents are known.
pub(crate) struct WeightFiles {
    shards: Vec<Shard>,
    /// Shard that the index names for a tensor; absent for a single file.
    index: Option<(String, HashMap<String, usize>)>,
}

impl WeightFiles {
    /// Opens the weights of a directory: the single file goes first, as in transformers.
    pub(crate) fn open(files: &ModelFiles) -> Result<Self, CheckpointError> {
        if let Some(bytes) = files.bytes(SINGLE)? {
            return Ok(Self { shards: vec![Shard::read(files.label(SINGLE), bytes)?], index: None });
        }
        let Some(text) = files.text(INDEX)? else {
            return Err(CheckpointError::MissingFile {
                file: files.label(SINGLE),
                hint: "expected it, or model.safetensors.index.json and its shards; convert other formats to safetensors",
            });
        };
        let label = files.label(INDEX);
        let index = ShardIndex::parse(&text, &label)?;
        let (mut shards, mut places, mut tensors) = (Vec::new(), HashMap::new(), 0);
        for name in index.shards() {
            let bytes = files
                .bytes(name)?
                .ok_or_else(|| CheckpointError::MissingShard { index: label.clone(), shard: name.to_owned() })?;
            places.insert(name, shards.len());
            let shard = Shard::read(files.label(name), bytes)?;
            tensors += shard.tensors.len();
            if tensors > MOST_TENSORS {
                let detail =
                    format!("with those before it there are {tensors} tensors, expected at most {MOST_TENSORS}");
                return Err(CheckpointError::Safetensors { file: shard.label, detail });
            }
            shards.push(shard);
        }
        let map = index.shard_of.iter().map(|(name, shard)| (name.clone(), places[shard.as_str()])).collect();
        Ok(Self { shards, index: Some((label, map)) })
    }

    /// The shard and the description of a tensor.
    fn find(&self, name: &str) -> Result<Option<(usize, &TensorInfo)>, CheckpointError> {
        let Some((_, map)) = &self.index else {
            return Ok(self.shards.first().and_then(|shard| shard.tensors.get(name)).map(|info| (0, info)));
        };
        let Some(&place) = map.get(name) else { return Ok(None) };
        let shard = &self.shards[place];
        let info = shard
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::MissingTensor { file: shard.label.clone(), tensor: name.to_owned() })?;
        Ok(Some((place, info)))
    }

    /// Reports whether a role's tensor is there, under either of its names.
    pub(crate) fn has(&self, family: &Family, role: Role) -> bool {
        let name = (family.tensor_name)(role);
        self.has_exact(&name) || self.has_exact(without_prefix(&name))
    }

    fn has_exact(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// Refuses experts that newer tools write one after the other, where the tensor of one alone is missing.
    fn refuse_stacked(&self, name: &str) -> Result<(), CheckpointError> {
        let Some((layer, _)) = name.split_once(".experts.") else { return Ok(()) };
        let stacked = format!("{layer}.experts.gate_up_proj");
        if !self.has_exact(&stacked) {
            return Ok(());
        }
        Err(CheckpointError::Unsupported {
            file: self.label(),
            what: format!("all experts of a layer in one tensor, {stacked:?}"),
            hint: "use the checkpoint as released, with a tensor for each expert",
        })
    }

    /// File to blame for a missing tensor.
    fn label(&self) -> String {
        match &self.index {
            Some((label, _)) => label.clone(),
            None => self.shards.first().map(|shard| shard.label.clone()).unwrap_or_default(),
        }
    }

    fn names(&self) -> BTreeSet<&str> {
        let indexed = self.index.iter().flat_map(|(_, map)| map.keys());
        let stored = self.shards.iter().flat_map(|shard| shard.tensors.keys());
        indexed.chain(stored).map(String::as_str).collect()
    }
}

impl Shard {
    fn read(label: String, bytes: Bytes) -> Result<Self, CheckpointError> {
        let tensors = header::read(&bytes, &label)?;
        Ok(Self { label, bytes, tensors })
    }
}

impl StoredWeights {
    /// Opens the weights of a checkpoint and checks every tensor of the architecture: presence, shape and type.
    pub fn open(files: &ModelFiles, family: &Family, spec: &ArchSpec) -> Result<Self, CheckpointError> {
        Self::assemble(WeightFiles::open(files)?, family, spec)
    }

    pub(crate) fn assemble(files: WeightFiles, family: &Family, spec: &ArchSpec) -> Result<Self, CheckpointError> {
        // One scheme of names for the whole checkpoint: with the outer model's prefix, or without.
        let embedding = (family.tensor_name)(Role::Embedding);
        let bare = !files.has_exact(&embedding) && files.has_exact(without_prefix(&embedding));
        let (mut located, mut used) = (HashMap::new(), BTreeSet::new());
        for expected in expected_tensors(spec) {
            let full = (family.tensor_name)(expected.role);
            let name = if bare { without_prefix(&full).to_owned() } else { full };
            let Some((shard, info)) = files.find(&name)? else {
                files.refuse_stacked(&name)?;
                return Err(CheckpointError::MissingTensor { file: files.label(), tensor: name });
            };
            let rows = match expected.role {
                Role::Layer(_, role) => (family.fused)(spec, role),
                _ => None,
            };
            let found = FileTensor { file: &files.shards[shard].label, name: &name, shard, info };
            located.insert(expected.role, found.checked(&expected, rows)?);
            used.insert(name);
        }
        let foreign = |name: &&str| !used.contains(*name) && !is_known_buffer(name);
        let unexpected = files.names().into_iter().filter(foreign).map(str::to_owned).collect();
        let shards = files.shards.into_iter().map(|shard| shard.bytes).collect();
        Ok(Self { shards, located, unexpected, adapter: None })
    }

    /// Tensors that have been found and checked in files.
    pub(crate) fn of_files(shards: Vec<Bytes>, located: HashMap<Role, Located>, unexpected: Vec<String>) -> Self {
        Self { shards, located, unexpected, adapter: None }
    }

    /// Names of tensors that are in the files and not in the architecture, sorted, each once.
    pub fn unexpected(&self) -> &[String] {
        &self.unexpected
    }

    /// Puts an adapter beside the weights.
    pub(crate) fn with_adapter(self, adapter: Option<StoredAdapter>) -> Self {
        Self { adapter, ..self }
    }

    /// Facts about the adapter, if there is one.
    pub fn adapter_facts(&self) -> Option<&AdapterFacts> {
        self.adapter.as_ref().map(|adapter| &adapter.facts)
    }

    /// Adapters of all products, in no order.
    pub fn adapters(&self) -> impl Iterator<Item = StoredLora<'_>> {
        self.adapter.iter().flat_map(|adapter| adapter.roles().filter_map(|role| adapter.pair(role)))
    }

    /// Bytes of all tensors of the architecture and of the adapter, as stored.
    pub fn stored_bytes(&self) -> u64 {
        let adapter = self.adapter.as_ref().map_or(0, StoredAdapter::stored_bytes);
        self.located.values().map(|tensor| (tensor.end - tensor.start) as u64).sum::<u64>() + adapter
    }

    /// The type that most of the bytes are stored in.
    pub fn main_dtype(&self) -> Dtype {
        self.dtypes().into_iter().max_by_key(|&(_, bytes)| bytes).map_or(Dtype::Bf16, |(dtype, _)| dtype)
    }

    /// The type of each tensor of the architecture.
    pub fn stored(&self) -> BTreeMap<Role, Dtype> {
        self.located.iter().map(|(&role, tensor)| (role, tensor.dtype)).collect()
    }

    /// Types of the tensors, each with its number of bytes.
    pub fn dtypes(&self) -> Vec<(Dtype, u64)> {
        let bytes_of = |dtype| {
            let of_type = self.located.values().filter(|tensor| tensor.dtype == dtype);
            of_type.map(|tensor| (tensor.end - tensor.start) as u64).sum::<u64>()
        };
        let blocks = BlockFormat::ALL.map(Dtype::Block);
        let all = [Dtype::Bf16, Dtype::F16, Dtype::F32].into_iter().chain(blocks);
        all.map(|dtype| (dtype, bytes_of(dtype))).filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// A tensor of a file.
struct FileTensor<'a> {
    file: &'a str,
    name: &'a str,
    shard: usize,
    info: &'a TensorInfo,
}

impl FileTensor<'_> {
    /// Checks its shape and type, and finds the rows that are wanted of it.
    fn checked(&self, expected: &ExpectedTensor, rows: Option<Rows>) -> Result<Located, CheckpointError> {
        let info = self.info;
        let dtype = dtype_of(self.file, self.name, info)?;
        let rows = rows.unwrap_or(Rows { first: 0, all: expected.rows });
        let columns = expected.columns as u64;
        let shape = if expected.vector { vec![columns] } else { vec![rows.all as u64, columns] };
        if info.shape != shape {
            return Err(CheckpointError::TensorShape {
                file: self.file.to_owned(),
                tensor: self.name.to_owned(),
                found: info.shape.iter().copied().take(8).collect(),
                expected: shape,
            });
        }
        let ExpectedTensor { rows: own, columns, .. } = *expected;
        let row = (info.end - info.start) / rows.all.max(1);
        let start = info.start + rows.first * row;
        Ok(Located { shard: self.shard, start, end: start + own * row, dtype, rows: own, columns, paired: None })
    }
}

impl WeightSource for StoredWeights {
    fn tensor(&self, role: Role) -> Result<StoredTensor<'_>, WeightError> {
        let tensor = self.located.get(&role).ok_or(WeightError::Missing(role))?;
        let bytes = &self.shards[tensor.shard];
        let stored = StoredTensor::new(tensor.dtype, tensor.rows, tensor.columns, bytes, tensor.start);
        Ok(tensor.paired.map_or(stored, |head_dim| stored.unpaired(head_dim)))
    }

    fn adapter_use(&self) -> Option<AdapterUse> {
        self.adapter.as_ref().map(|adapter| adapter.facts.usage)
    }

    fn adapter(&self, role: Role) -> Option<StoredLora<'_>> {
        self.adapter.as_ref()?.pair(role)
    }

    fn coming(&self, role: Role) {
        if let Some(tensor) = self.located.get(&role) {
            self.shards[tensor.shard].prefetch(tensor.start, tensor.end - tensor.start);
        }
    }
}
