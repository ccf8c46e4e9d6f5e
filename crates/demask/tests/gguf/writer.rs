//! Writes GGUF files out of safetensors checkpoints, as the usual converters do.

use std::{collections::BTreeMap, path::Path};

use safetensors::SafeTensors;
use serde_json::Value;

/// Format in which a file is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Format {
    F32,
    F16,
    Bf16,
    Q8_0,
}

/// Names of the two formats, parted by whether they are in a layer.
const OUTER: &[(&str, &str)] = &[
    ("model.transformer.wte.weight", "token_embd.weight"),
    ("model.transformer.ln_f.weight", "output_norm.weight"),
    ("model.transformer.ff_out.weight", "output.weight"),
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];
const INNER: &[(&str, &str)] = &[
    ("attn_norm.weight", "attn_norm.weight"),
    ("attn_out.weight", "attn_output.weight"),
    ("ff_norm.weight", "ffn_norm.weight"),
    ("ff_proj.weight", "ffn_gate.weight"),
    ("up_proj.weight", "ffn_up.weight"),
    ("ff_out.weight", "ffn_down.weight"),
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
];

/// The expert and the joint tensor of a name, if it is an expert's.
fn expert_of(name: &str) -> Option<(usize, String)> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once(".mlp.experts.")?;
    let (expert, part) = rest.split_once('.')?;
    let part = part.strip_suffix("_proj.weight")?;
    Some((expert.parse().unwrap(), format!("blk.{layer}.ffn_{part}_exps.weight")))
}

fn name_of(name: &str) -> String {
    if let Some((_, name)) = OUTER.iter().find(|(known, _)| *known == name) {
        return (*name).to_owned();
    }
    let rest = name.strip_prefix("model.transformer.blocks.").or_else(|| name.strip_prefix("model.layers."));
    let (layer, part) = rest.unwrap().split_once('.').unwrap();
    let projection = part.strip_prefix("self_attn.").unwrap_or(part).split_once("_proj.");
    let known = INNER.iter().find(|(known, _)| *known == part);
    match (known, projection) {
        (Some((_, part)), _) => format!("blk.{layer}.{part}"),
        (None, Some((letter, kind))) => format!("blk.{layer}.attn_{letter}.{kind}"),
        _ => panic!("{name} has no name"),
    }
}

/// The file's parts as they grow.
#[derive(Default)]
pub struct Writer {
    keys: u64,
    metadata: Vec<u8>,
    tensors: u64,
    infos: Vec<u8>,
    data: Vec<u8>,
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Writer {
    fn key(&mut self, key: &str, kind: u32, value: &[u8]) {
        text(&mut self.metadata, key);
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(value);
        self.keys += 1;
    }

    pub fn text(&mut self, key: &str, value: &str) {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.key(key, 8, &bytes);
    }

    pub fn count(&mut self, key: &str, value: u64) {
        self.key(key, 4, &(value as u32).to_le_bytes());
    }

    pub fn number(&mut self, key: &str, value: f64) {
        self.key(key, 6, &(value as f32).to_le_bytes());
    }

    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key, 7, &[u8::from(value)]);
    }

    pub fn tensor(&mut self, name: &str, shape: &[usize], values: &[f32], format: Format) {
        let kind = match format {
            Format::F32 => 0,
            Format::F16 => 1,
            Format::Q8_0 => 8,
            Format::Bf16 => 30,
        };
        self.stored(name, shape, kind, &stored(values, format));
    }

    /// A tensor as it is stored in the type of a number.
    pub fn stored(&mut self, name: &str, shape: &[usize], kind: u32, bytes: &[u8]) {
        text(&mut self.infos, name);
        self.infos.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&dimension| self.infos.extend((dimension as u64).to_le_bytes()));
        self.infos.extend(kind.to_le_bytes());
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.infos.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(bytes);
        self.tensors += 1;
    }

    pub fn finish(self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend(self.tensors.to_le_bytes());
        out.extend(self.keys.to_le_bytes());
        out.extend(self.metadata);
        out.extend(self.infos);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        out
    }
}

/// Numbers as a format stores them.
fn stored(values: &[f32], format: Format) -> Vec<u8> {
    match format {
        Format::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Format::F16 => values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect(),
        Format::Bf16 => values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect(),
        Format::Q8_0 => values.chunks(32).flat_map(q8_0).collect(),
    }
}

fn q8_0(block: &[f32]) -> Vec<u8> {
    let largest = block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let numbers = block.iter().map(|value| (value * inverse).round() as i8 as u8);
    half::f16::from_f32(scale).to_le_bytes().into_iter().chain(numbers).collect()
}

/// The rows of each head in pairs, `[heads, 2, width / 2]` to `[heads, width / 2, 2]`.
fn paired(values: &[f32], heads: usize, rows: usize) -> Vec<f32> {
    let (columns, width) = (values.len() / rows, rows / heads);
    let stored = |row: usize| {
        let (head, index, half) = (row / width, row % width / 2, row % 2);
        head * width + half * width / 2 + index
    };
    (0..rows).flat_map(|row| values[stored(row) * columns..][..columns].to_vec()).collect()
}

/// Numbers as they come back from a format.
fn rounded(values: &[f32], format: Format) -> Vec<f32> {
    let stored = stored(values, format);
    let pairs = stored.chunks(2).map(|raw| u16::from_le_bytes([raw[0], raw[1]]));
    match format {
        Format::F32 => values.to_vec(),
        Format::F16 => pairs.map(|bits| half::f16::from_bits(bits).to_f32()).collect(),
        Format::Bf16 => pairs.map(|bits| half::bf16::from_bits(bits).to_f32()).collect(),
        Format::Q8_0 => stored.chunks(34).flat_map(widened_q8_0).collect(),
    }
}

fn widened_q8_0(block: &[u8]) -> Vec<f32> {
    let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
    block[2..].iter().map(|&number| f32::from(number as i8) * scale).collect()
}

/// Shape of a matrix, and its numbers.
type Matrix = (Vec<usize>, Vec<f32>);

/// A checkpoint of `golden/ckpt` as a GGUF file of an architecture; `widen` writes what the format makes of the numbers
/// in f32.
pub fn convert(directory: &Path, architecture: &str, format: Format, widen: bool) -> Vec<u8> {
    convert_rows(directory, architecture, (format, widen), matches!(architecture, "llada" | "llama"))
}

/// The same with the rows of q and k in pairs, or as they are.
pub fn convert_rows(directory: &Path, architecture: &str, (format, widen): (Format, bool), in_pairs: bool) -> Vec<u8> {
    let config: Value = serde_json::from_slice(&std::fs::read(directory.join("config.json")).unwrap()).unwrap();
    let mut writer = Writer::default();
    metadata(&mut writer, &config, architecture);
    let heads = |key: &[&str]| key.iter().find_map(|key| config[*key].as_u64()).unwrap() as usize;
    let bytes = std::fs::read(directory.join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = stored.tensors();
    tensors.sort_by(|left, right| left.0.cmp(&right.0));
    let mut write = |name: &str, shape: &[usize], values: &[f32]| {
        // Converters leave vectors in f32.
        let format = if shape.len() == 1 { Format::F32 } else { format };
        if widen {
            writer.tensor(name, shape, &rounded(values, format), Format::F32);
        } else {
            writer.tensor(name, shape, values, format);
        }
    };
    // By the name of their joint tensor and the expert's number.
    let mut experts: BTreeMap<String, BTreeMap<usize, Matrix>> = BTreeMap::new();
    for (name, tensor) in tensors {
        if let Some((expert, joint)) = expert_of(&name) {
            let values = tensor.data().chunks(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect();
            experts.entry(joint).or_default().insert(expert, (tensor.shape().to_vec(), values));
            continue;
        }
        let name = name_of(&name);
        let mut values: Vec<f32> =
            tensor.data().chunks(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect();
        if in_pairs && name.ends_with("attn_q.weight") {
            values = paired(&values, heads(&["n_heads", "num_attention_heads"]), tensor.shape()[0]);
        }
        if in_pairs && name.ends_with("attn_k.weight") {
            values = paired(&values, heads(&["n_kv_heads", "num_key_value_heads"]), tensor.shape()[0]);
        }
        write(&name, tensor.shape(), &values);
    }
    for (name, parts) in experts {
        let shape: Vec<usize> = std::iter::once(parts.len()).chain(parts[&0].0.iter().copied()).collect();
        let values: Vec<f32> = parts.into_values().flat_map(|(_, values)| values).collect();
        write(&name, &shape, &values);
    }
    writer.finish()
}

fn metadata(writer: &mut Writer, config: &Value, architecture: &str) {
    let first = |keys: &[&str]| keys.iter().find_map(|key| config[*key].as_f64());
    writer.text("general.architecture", architecture);
    let counts: &[(&str, &[&str])] = &[
        ("block_count", &["n_layers", "num_hidden_layers"]),
        ("context_length", &["max_sequence_length", "max_position_embeddings"]),
        ("embedding_length", &["d_model", "hidden_size"]),
        ("feed_forward_length", &["mlp_hidden_size", "intermediate_size", "dense_intermediate_size"]),
        ("expert_count", &["num_experts"]),
        ("expert_used_count", &["num_experts_per_tok"]),
        ("expert_feed_forward_length", &["moe_intermediate_size", "expert_intermediate_size"]),
        ("attention.head_count", &["n_heads", "num_attention_heads"]),
        ("attention.head_count_kv", &["n_kv_heads", "num_key_value_heads"]),
        ("attention.key_length", &["head_dim"]),
        ("attention.value_length", &["head_dim"]),
        ("vocab_size", &["embedding_size", "vocab_size"]),
    ];
    for (key, names) in counts {
        if let Some(value) = first(names) {
            writer.count(&format!("{architecture}.{key}"), value as u64);
        }
    }
    writer.number(&format!("{architecture}.attention.layer_norm_rms_epsilon"), first(&["rms_norm_eps"]).unwrap());
    writer.number(&format!("{architecture}.rope.freq_base"), first(&["rope_theta"]).unwrap());
    if matches!(architecture, "llada" | "llada-moe" | "dream") || config["model_type"] == "sdar" {
        writer.flag(&format!("{architecture}.attention.causal"), false);
    }
    if architecture == "llada" {
        writer.flag("diffusion.shift_logits", false);
    }
    for (key, name) in [("mask", "mask_token_id"), ("eos", "eos_token_id")] {
        if let Some(id) = first(&[name]) {
            writer.count(&format!("tokenizer.ggml.{key}_token_id"), id as u64);
        }
    }
    if config["model_type"] == "sdar" && config["mask_token_id"].is_null() {
        writer.count("tokenizer.ggml.mask_token_id", 1);
    }
}
