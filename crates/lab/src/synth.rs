//! Random checkpoints of released shapes, for measurements without a download.
//!
//! Every value is a function of the seed, its tensor and its place (a counter-based generator), looked up in a table of
//! normal values that are already bf16: one thread makes them as fast as another writes them, in little memory.

use std::{
    f64::consts::TAU,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::mpsc,
    thread,
};

use demask::costs::shapes::{Like, ShapeError};
use demask_checkpoint::{CheckpointError, Family, ModelConfig, parse_config};
use demask_model::{ArchSpec, ExpectedTensor, LayerRole, Role};
use demask_step::random::mix;
use serde_json::{Map, Value, json};

/// The only file of weights, and the index of several.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Largest shard, as in most released models.
const SHARD: u64 = 5_000_000_000;

/// Bytes that are made and written at once; three of them are in memory.
const CHUNK: usize = 8 << 20;

/// Spread of matrices and embeddings in a network that has just been initialised.
const DEVIATION: f64 = 0.02;

/// Shape, seed and form of the checkpoint to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynthSpec {
    /// Shape.
    pub like: Like,
    /// Layers, if not as many as the released model has.
    pub layers: Option<usize>,
    /// Rank of an adapter for the shape, which is made instead of a checkpoint.
    pub adapter: Option<usize>,
    /// Seed of all values.
    pub seed: u64,
}

/// Progress of the writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynthProgress {
    /// Bytes written.
    pub done: u64,
    /// Bytes of all weights.
    pub total: u64,
}

/// A checkpoint cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The shape cannot be had.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A rank that no adapter of the shape has.
    #[error("an adapter of rank {found} cannot be made, expected 1 to {most}")]
    BadRank {
        /// Number that was given.
        found: usize,
        /// Largest rank.
        most: usize,
    },
    /// Something is in the way.
    #[error("{path} exists and is not an empty directory: give a new one, or remove it first")]
    Exists {
        /// Path.
        path: String,
    },
    /// The system refused to write.
    #[error("cannot write {path}: {cause}")]
    Io {
        /// Path.
        path: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The caller's progress function asked to stop; nothing is left behind.
    #[error("writing was interrupted: nothing is left behind")]
    Interrupted,
    /// The configuration of a shape is not one that can be read back.
    #[error(transparent)]
    Config(#[from] CheckpointError),
}

/// Writes a random checkpoint into a new directory. It appears there complete or not at all. `progress` returns whether
/// to go on.
pub fn synthesise(
    spec: &SynthSpec,
    out: &Path,
    progress: &mut dyn FnMut(SynthProgress) -> bool,
) -> Result<(), SynthError> {
    let config = spec.like.config(spec.layers)?;
    match spec.adapter {
        Some(rank) => write_files(&adapter_content(&config, spec.like, rank)?, spec.seed, out, progress),
        None => write(&config, spec.like.generation(), spec.like.family(), spec.seed, SHARD, out, progress),
    }
}

/// Writes a random checkpoint for any configuration, which is of this family wherever it is put.
fn write(
    config: &Value,
    generation: &Value,
    like: &'static Family,
    seed: u64,
    shard: u64,
    out: &Path,
    progress: &mut dyn FnMut(SynthProgress) -> bool,
) -> Result<(), SynthError> {
    let ModelConfig { family, spec: architecture, .. } = parse_config(config.to_string().as_bytes(), "config.json")?;
    let shards = plan(family, &architecture, shard);
    let total = shards.iter().flatten().map(|tensor| tensor.bytes).sum();
    let mut config = config.clone();
    if like.name() == "I-DLM" {
        // The released file leaves it to the model's name.
        config["use_regular_causal"] = true.into();
    }
    let mut texts = vec![("config.json", format!("{config:#}")), ("generation_config.json", format!("{generation:#}"))];
    if let Some(text) = like.mask_token_sign() {
        texts.push(("tokenizer_config.json", format!("{:#}", json!({"mask_token": text}))));
    }
    if shards.len() > 1 {
        texts.push((INDEX, format!("{:#}", index(&shards, total))));
    }
    let count = shards.len();
    let weights = shards.into_iter().enumerate().map(|(number, tensors)| (shard_name(number, count), tensors));
    write_files(&Content { texts, weights: weights.collect() }, seed, out, progress)
}

/// Files of a directory.
struct Content {
    texts: Vec<(&'static str, String)>,
    weights: Vec<(String, Vec<Planned>)>,
}

/// Makes the files of an adapter in PEFT's layout, for all products of the layers of a shape but experts.
fn adapter_content(config: &Value, like: Like, rank: usize) -> Result<Content, SynthError> {
    let ModelConfig { family, spec, .. } = parse_config(config.to_string().as_bytes(), "config.json")?;
    if rank == 0 || rank > spec.hidden {
        return Err(SynthError::BadRank { found: rank, most: spec.hidden });
    }
    let mut tensors: Vec<Planned> = Vec::new();
    for (_, name, expected) in family.stored_tensors(&spec) {
        let takes = matches!(expected.role, Role::Layer(_, part) if part.takes_adapter());
        let Some(module) = name.strip_suffix(".weight").filter(|_| takes) else { continue };
        let (rows, columns) = (expected.rows, expected.columns);
        for (half, rows, columns) in [("lora_A", rank, columns), ("lora_B", rows, rank)] {
            tensors.push(Planned {
                name: format!("base_model.model.{module}.{half}.weight"),
                number: tensors.len() as u64,
                expected: ExpectedTensor { rows, columns, ..expected },
                bytes: (rows * columns * 2) as u64,
            });
        }
    }
    let text = json!({
        "peft_type": "LORA",
        "base_model_name_or_path": like.to_string(),
        "r": rank,
        "lora_alpha": 2 * rank,
        "use_rslora": false,
        "bias": "none",
        "task_type": "CAUSAL_LM",
    });
    Ok(Content {
        texts: vec![("adapter_config.json", format!("{text:#}"))],
        weights: vec![("adapter_model.safetensors".to_owned(), tensors)],
    })
}

/// Writes files into a new directory.
fn write_files(
    content: &Content,
    seed: u64,
    out: &Path,
    progress: &mut dyn FnMut(SynthProgress) -> bool,
) -> Result<(), SynthError> {
    let occupied = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => out.symlink_metadata().is_ok(),
    };
    if occupied {
        return Err(SynthError::Exists { path: out.display().to_string() });
    }
    let partial = Partial::create(out)?;
    for (file, text) in &content.texts {
        partial.text(file, text)?;
    }
    let total = content.weights.iter().flat_map(|(_, tensors)| tensors).map(|tensor| tensor.bytes).sum();
    let table = Table::new();
    let mut done = 0;
    for (file, tensors) in &content.weights {
        let path = partial.path.join(file);
        let report = &mut |bytes: u64| {
            done += bytes;
            if progress(SynthProgress { done, total }) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        };
        write_shard(&path, tensors, seed, &table, report).map_err(|cause| match cause.kind() {
            io::ErrorKind::Interrupted => SynthError::Interrupted,
            _ => SynthError::Io { path: path.display().to_string(), cause },
        })?;
    }
    partial.finish(out)
}

/// The directory under its temporary name; it is removed unless it was finished.
struct Partial {
    path: PathBuf,
    finished: bool,
}

impl Partial {
    fn create(out: &Path) -> Result<Self, SynthError> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", process::id()));
        let path = out.with_file_name(name);
        let error = |path: &Path, cause| SynthError::Io { path: path.display().to_string(), cause };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|cause| error(parent, cause))?;
        }
        fs::create_dir(&path).map_err(|cause| error(out, cause))?;
        Ok(Self { path, finished: false })
    }

    fn text(&self, file: &str, text: &str) -> Result<(), SynthError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|cause| SynthError::Io { path: path.display().to_string(), cause })
    }

    fn finish(mut self, out: &Path) -> Result<(), SynthError> {
        // An empty directory may be in the way on systems that do not replace it.
        let _ = fs::remove_dir(out);
        fs::rename(&self.path, out).map_err(|cause| SynthError::Io { path: out.display().to_string(), cause })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// One tensor to be written.
struct Planned {
    name: String,
    /// Number of the tensor in the order of the forward pass: its part of the generator.
    number: u64,
    expected: ExpectedTensor,
    bytes: u64,
}

impl Planned {
    /// Mean of the values: norms start at 1.
    fn is_norm(&self) -> bool {
        use LayerRole::{AttentionNorm, KeyNorm, MlpNorm, QueryNorm};
        let norms = |role| matches!(role, AttentionNorm | MlpNorm | QueryNorm | KeyNorm);
        match self.expected.role {
            Role::FinalNorm => true,
            Role::Layer(_, role) => norms(role),
            _ => false,
        }
    }
}

/// Divides the tensors of an architecture into shards of at most `limit` bytes (or one tensor).
fn plan(family: &Family, architecture: &ArchSpec, limit: u64) -> Vec<Vec<Planned>> {
    let mut shards: Vec<Vec<Planned>> = vec![Vec::new()];
    let mut room = limit;
    for (number, name, expected) in family.stored_tensors(architecture) {
        let bytes = (expected.rows * expected.columns * 2) as u64;
        if bytes > room && shards.last().is_some_and(|shard| !shard.is_empty()) {
            shards.push(Vec::new());
            room = limit;
        }
        room = room.saturating_sub(bytes);
        if let Some(shard) = shards.last_mut() {
            shard.push(Planned { name, number: number as u64, expected, bytes });
        }
    }
    shards
}

fn shard_name(number: usize, count: usize) -> String {
    if count == 1 { SINGLE.to_owned() } else { format!("model-{:05}-of-{count:05}.safetensors", number + 1) }
}

fn index(shards: &[Vec<Planned>], total: u64) -> Value {
    let mut map = Map::new();
    for (number, tensors) in shards.iter().enumerate() {
        let file = shard_name(number, shards.len());
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), file.clone().into())));
    }
    json!({"metadata": {"total_size": total}, "weight_map": map})
}

/// The header of a shard, padded so that the data starts on a multiple of 64 bytes: readers map it.
fn header(tensors: &[Planned]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut start = 0;
    for tensor in tensors {
        let (rows, columns) = (tensor.expected.rows, tensor.expected.columns);
        let shape = if tensor.expected.vector { json!([columns]) } else { json!([rows, columns]) };
        let end = start + tensor.bytes;
        map.insert(tensor.name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}));
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize((text.len() + 8).next_multiple_of(64) - 8, b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    header
}

/// Writes one file.
fn write_shard(
    path: &Path,
    tensors: &[Planned],
    seed: u64,
    table: &Table,
    report: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = File::create(path)?;
    write_tensors(&mut file, tensors, seed, table, report)?;
    file.sync_all()
}

/// Writes header and data of one file: a thread makes chunks while this one writes them.
fn write_tensors(
    file: &mut dyn Write,
    tensors: &[Planned],
    seed: u64,
    table: &Table,
    report: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    file.write_all(&header(tensors))?;
    let (full_sender, full) = mpsc::sync_channel::<Vec<u8>>(1);
    let (empty_sender, empty) = mpsc::channel::<Vec<u8>>();
    for _ in 0..3 {
        let _ = empty_sender.send(Vec::with_capacity(CHUNK));
    }
    // The closure owns its ends of the channels: an error drops them, and that ends the maker.
    thread::scope(move |scope| {
        scope.spawn(move || make(tensors, seed, table, &empty, &full_sender));
        while let Ok(chunk) = full.recv() {
            file.write_all(&chunk)?;
            report(chunk.len() as u64)?;
            let _ = empty_sender.send(chunk);
        }
        Ok(())
    })
}

/// Makes the bytes of all tensors of a shard, chunk by chunk, until nobody wants more.
fn make(
    tensors: &[Planned],
    seed: u64,
    table: &Table,
    empty: &mpsc::Receiver<Vec<u8>>,
    full: &mpsc::SyncSender<Vec<u8>>,
) {
    for tensor in tensors {
        let key = mix(seed ^ mix(tensor.number));
        let values = if tensor.is_norm() { &table.norms } else { &table.matrices };
        let mut start = 0;
        while start < tensor.bytes {
            let Ok(mut chunk) = empty.recv() else { return };
            let length = (tensor.bytes - start).min(CHUNK as u64) as usize;
            fill(&mut chunk, length, key, start / 8, values);
            start += length as u64;
            if full.send(chunk).is_err() {
                return;
            }
        }
    }
}

/// `length` bytes of a tensor, of which `first` is the first group of four values.
fn fill(chunk: &mut Vec<u8>, length: usize, key: u64, first: u64, values: &[u16; 1 << 16]) {
    chunk.clear();
    for group in 0..length.div_ceil(8) as u64 {
        let random = mix(key ^ (first + group));
        let four = [0, 16, 32, 48].map(|shift| u64::from(values[usize::from((random >> shift) as u16)]));
        let packed = four[0] | four[1] << 16 | four[2] << 32 | four[3] << 48;
        chunk.extend_from_slice(&packed.to_le_bytes());
    }
    chunk.truncate(length);
}

/// Normal values in bf16, for 16 random bits each.
struct Table {
    matrices: Box<[u16; 1 << 16]>,
    norms: Box<[u16; 1 << 16]>,
}

impl Table {
    #[expect(clippy::large_stack_arrays, reason = "128 KiB on its way to the heap")]
    fn new() -> Self {
        let normals: Vec<f64> = (0..1u64 << 16).map(normal).collect();
        let table = |mean: f64| {
            let mut values = Box::new([0; 1 << 16]);
            for (value, normal) in values.iter_mut().zip(&normals) {
                *value = half::bf16::from_f64(mean + DEVIATION * normal).to_bits();
            }
            values
        };
        Self { matrices: table(0.0), norms: table(1.0) }
    }
}

/// A standard normal value (Box and Muller).
fn normal(counter: u64) -> f64 {
    let uniform = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let radius = (-2.0 * uniform(mix(2 * counter)).ln()).sqrt();
    radius * (TAU * uniform(mix(2 * counter + 1))).cos()
}

#[cfg(test)]
mod tests;
