//! Random checkpoints of released shapes, for measurements without a download.
//!
//! Every value is a function of the seed, its tensor and its place (a counter-based generator), looked up in a table of
//! normal values that are already bf16: one thread makes them as fast as another writes them, in little memory.

use std::{
    f64::consts::TAU,
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    str::FromStr,
    sync::mpsc,
    thread,
};

use demask_model::{ArchSpec, ExpectedTensor, LayerRole, Role, expected_tensors};
use demask_step::random::mix;
use serde_json::{Map, Value, json};

use crate::{
    CheckpointError, config::parse_config, error::one_line, names::tensor_name, weights::INDEX, weights::SINGLE,
};

/// Largest shard, as in most released models.
const SHARD: u64 = 5_000_000_000;

/// Bytes that are made and written at once; three of them are in memory.
const CHUNK: usize = 8 << 20;

/// Spread of matrices and embeddings in a network that has just been initialised.
const DEVIATION: f64 = 0.02;

/// Released shapes that can be imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Like {
    /// LLaDA-8B.
    Llada8b,
    /// Dream-7B.
    Dream7b,
    /// SDAR-4B, which is also TraDo-4B.
    Sdar4b,
    /// Qwen2.5-1.5B.
    Qwen25,
}

impl Like {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Llada8b, Self::Dream7b, Self::Sdar4b, Self::Qwen25];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llada8b => "llada-8b",
            Self::Dream7b => "dream-7b",
            Self::Sdar4b => "sdar-4b",
            Self::Qwen25 => "qwen2.5-1.5b",
        }
    }
}

impl fmt::Display for Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Like {
    type Err = SynthError;

    fn from_str(text: &str) -> Result<Self, SynthError> {
        let found = Self::ALL.into_iter().find(|like| like.name() == text);
        found.ok_or_else(|| SynthError::UnknownShape { found: text.to_owned() })
    }
}

/// What is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynthSpec {
    /// Shape.
    pub like: Like,
    /// Layers, if not as many as the released model has.
    pub layers: Option<usize>,
    /// Seed of all values.
    pub seed: u64,
}

/// How far the writing is.
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
    /// No such shape.
    #[error("unknown shape {found:?}, expected one of llada-8b, dream-7b, sdar-4b, qwen2.5-1.5b")]
    UnknownShape {
        /// What was given.
        found: String,
    },
    /// A number of layers that no network has.
    #[error("{found} layers cannot be made, expected 1 to 1024")]
    BadLayers {
        /// What was given.
        found: usize,
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

/// Writes a random checkpoint into a new directory. It appears there complete or not at all. `progress` answers whether
/// to go on.
pub fn synthesise(
    spec: &SynthSpec,
    out: &Path,
    progress: &mut dyn FnMut(SynthProgress) -> bool,
) -> Result<(), SynthError> {
    let (mut config, generation) = released(spec.like);
    if let Some(layers) = spec.layers {
        if !(1..=1024).contains(&layers) {
            return Err(SynthError::BadLayers { found: layers });
        }
        let key = if spec.like == Like::Llada8b { "n_layers" } else { "num_hidden_layers" };
        config[key] = layers.into();
    }
    write(&config, &generation, spec.seed, SHARD, out, progress)
}

/// Writes a random checkpoint for any configuration.
fn write(
    config: &Value,
    generation: &Value,
    seed: u64,
    shard: u64,
    out: &Path,
    progress: &mut dyn FnMut(SynthProgress) -> bool,
) -> Result<(), SynthError> {
    let architecture = parse_config(config.to_string().as_bytes(), "config.json")?.spec;
    let occupied = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => out.symlink_metadata().is_ok(),
    };
    if occupied {
        return Err(SynthError::Exists { path: out.display().to_string() });
    }
    let partial = Partial::create(out)?;
    let shards = plan(&architecture, shard);
    let total = shards.iter().flatten().map(|tensor| tensor.bytes).sum();
    partial.text("config.json", &pretty(config))?;
    partial.text("generation_config.json", &pretty(generation))?;
    if shards.len() > 1 {
        partial.text(INDEX, &pretty(&index(&shards, total)))?;
    }
    let table = Table::new();
    let mut done = 0;
    for (number, tensors) in shards.iter().enumerate() {
        let path = partial.path.join(shard_name(number, shards.len()));
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
fn plan(architecture: &ArchSpec, limit: u64) -> Vec<Vec<Planned>> {
    let mut shards: Vec<Vec<Planned>> = vec![Vec::new()];
    let mut room = limit;
    for (number, expected) in expected_tensors(architecture).into_iter().enumerate() {
        let bytes = (expected.rows * expected.columns * 2) as u64;
        if bytes > room && shards.last().is_some_and(|shard| !shard.is_empty()) {
            shards.push(Vec::new());
            room = limit;
        }
        room = room.saturating_sub(bytes);
        let name = tensor_name(architecture.family, expected.role);
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

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(one_line)
}

/// `config.json` and `generation_config.json` of a released model, as its authors wrote them.
fn released(like: Like) -> (Value, Value) {
    match like {
        Like::Llada8b => (llada_8b(), json!({"bos_token_id": 126_080, "eos_token_id": 126_081})),
        Like::Dream7b => (
            dream_7b(),
            json!({
                "alg": "origin", "alg_temp": null, "bos_token_id": 151_643, "eos_token_id": 151_643, "eps": 0.001,
                "mask_token_id": null, "pad_token_id": 151_643, "steps": 512, "temperature": 0.0,
            }),
        ),
        Like::Sdar4b => (
            sdar_4b(),
            json!({
                "bos_token_id": 151_643, "do_sample": true, "eos_token_id": [151_645, 151_643],
                "pad_token_id": 151_643, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
            }),
        ),
        Like::Qwen25 => {
            (qwen25(), json!({"bos_token_id": 151_643, "eos_token_id": [151_645, 151_643], "pad_token_id": 151_643}))
        }
    }
}

fn llada_8b() -> Value {
    json!({
        "activation_type": "silu", "alibi": false, "architectures": ["LLaDAModelLM"], "attention_dropout": 0.0,
        "attention_layer_norm": false, "attention_layer_norm_with_affine": true, "bias_for_layer_norm": false,
        "block_group_size": 1, "block_type": "llama", "d_model": 4096, "embedding_size": 126_464,
        "eos_token_id": 126_081, "flash_attention": false, "include_bias": false, "include_qkv_bias": false,
        "input_emb_norm": false, "layer_norm_type": "rms", "layer_norm_with_affine": true, "mask_token_id": 126_336,
        "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4, "model_type": "llada",
        "multi_query_attention": null, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "pad_token_id": 126_081,
        "precision": "amp_bf16", "rms_norm_eps": 1e-5, "rope": true, "rope_full_precision": true,
        "rope_theta": 500_000.0, "scale_logits": false, "use_cache": false, "vocab_size": 126_464,
        "weight_tying": false,
    })
}

fn dream_7b() -> Value {
    json!({
        "architectures": ["DreamModel"], "attention_dropout": 0.0, "bos_token_id": 151_643, "eos_token_id": 151_643,
        "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
        "mask_token_id": 151_666, "max_position_embeddings": 131_072, "max_window_layers": 28, "model_type": "Dream",
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "pad_token_id": 151_643,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1_000_000.0, "sliding_window": null,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 152_064,
    })
}

fn sdar_4b() -> Value {
    json!({
        "architectures": ["SDARForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "block_size": 4,
        "bos_token_id": 151_643, "eos_token_id": 151_643, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
        "initializer_range": 0.02, "intermediate_size": 9728, "mask_token_id": 151_669,
        "max_position_embeddings": 32768, "max_window_layers": 36, "model_type": "sdar", "num_attention_heads": 32,
        "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_scaling": null,
        "rope_theta": 1_000_000, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": false, "use_sliding_window": false, "vocab_size": 151_936,
    })
}

fn qwen25() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151_643,
        "eos_token_id": 151_645, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151_936,
    })
}

#[cfg(test)]
mod tests;
