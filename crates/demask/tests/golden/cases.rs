//! The files of a golden folder.

use std::path::Path;

use demask_step::Mask;
use safetensors::SafeTensors;
use serde::Deserialize;

/// `forward/NAME.json` and the tensors beside it.
#[derive(Deserialize)]
pub struct Forward {
    /// The checkpoint, whatever the file is called.
    pub model: String,
    /// Adapter beside it.
    pub adapter: Option<String>,
    /// Inputs of the run.
    pub inputs: Vec<Input>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

/// One forward.
#[derive(Deserialize)]
pub struct Input {
    /// Prefix of the tensors' names.
    pub tag: String,
    attention: String,
    block: Option<u32>,
    #[serde(default)]
    offset: u32,
    #[serde(default)]
    context: u32,
    rows: Option<String>,
    /// Smallest distance between an expert that was taken and one that was not, in logits or in biased scores.
    router_gap: Option<f64>,
}

impl Input {
    /// The mask of the input; padded inputs run without their padding, which nobody sees.
    pub fn mask(&self, own: Mask) -> Result<Mask, String> {
        match (self.attention.as_str(), self.block) {
            ("block causal", Some(block)) => Ok(Mask::BlockCausal { block, offset: self.offset }),
            ("causal context", _) => Ok(Mask::Context { context: self.context, block: 1 }),
            ("block causal", None) => match own {
                Mask::BlockCausal { .. } => Ok(own),
                _ => Err("block causal attention without a block".into()),
            },
            ("causal", _) => Ok(Mask::Causal),
            (full, _) if full.starts_with("full") => Ok(Mask::Full),
            (other, _) => Err(format!("unknown attention {other:?}")),
        }
    }
}

impl Input {
    /// Whether numbers of bf16 choose the same experts: where the gap is small, rounding flips some, and a row with another
    /// expert is another row.
    pub fn chooses_in_bf16(&self, sigmoid: bool) -> bool {
        self.router_gap.is_none_or(|gap| gap > if sigmoid { 0.045 } else { 0.1 })
    }
}

impl Forward {
    /// Reads both files.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut forward: Self =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        forward.bytes = std::fs::read(path.with_extension("safetensors")).unwrap();
        forward
    }

    /// The ids to run, and how many rows at the end were stored.
    pub fn ids(&self, input: &Input) -> (Vec<u32>, usize) {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = tensors.tensor(&format!("{}.ids", input.tag)).unwrap();
        let width = match view.dtype() {
            safetensors::Dtype::I64 => 8,
            safetensors::Dtype::I32 => 4,
            other => panic!("ids of type {other:?}"),
        };
        let all: Vec<u32> =
            view.data().chunks_exact(width).map(|raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])).collect();
        // "7..26 of the ids": left padding is left out.
        let ids = match input.rows.as_deref().and_then(|rows| rows.split_whitespace().next()) {
            Some(range) => {
                let (start, end) = range.split_once("..").unwrap();
                all[start.parse().unwrap()..end.parse::<usize>().unwrap()].to_vec()
            }
            None => all,
        };
        let rows = ids.len();
        (ids, rows)
    }

    /// A tensor in f32.
    pub fn tensor(&self, name: &str) -> Option<Vec<f32>> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = tensors.tensor(name).ok()?;
        assert_eq!(view.dtype(), safetensors::Dtype::F32, "{name}");
        Some(view.data().chunks_exact(4).map(|raw| f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])).collect())
    }
}

/// `decode/METHOD.json`.
#[derive(Deserialize)]
pub struct DecodeFile {
    /// The reference.
    pub method: String,
    /// Traces of the file.
    pub cases: Vec<Case>,
}

/// One trace.
#[derive(Deserialize, Clone)]
pub struct Case {
    /// Name of the case.
    pub id: String,
    /// The checkpoint.
    pub model: String,
    /// The reference's own parameters.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Negative: none.
    pub mask_id: i64,
    /// The end token.
    pub eos_id: u32,
    /// Tokens that end generation, where the reference stops.
    #[serde(default)]
    pub stop_ids: Vec<u32>,
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Tokens behind a hole that is filled.
    #[serde(default)]
    pub suffix: Vec<u32>,
    /// The canvas at the end.
    pub output: Vec<u32>,
    /// Forwards of the diffusion model.
    pub nfe: usize,
    /// `[forward][commit]`: position and token, ascending.
    pub steps: Vec<Vec<(u32, u32)>>,
    /// Rows fed per forward.
    pub rows: Option<Vec<usize>>,
    /// Rows of each forward, up to where the answer is settled.
    pub fed_rows: Option<Vec<usize>>,
    /// Tokens that each cycle of drafts gave, the one behind those that came true included.
    pub accepted_per_cycle: Option<Vec<usize>>,
    /// The order that was drawn for each block, where positions were drawn.
    #[serde(default)]
    pub decode_order: Vec<Vec<u32>>,
    /// The guide's checkpoint.
    pub guider: Option<String>,
    /// Drafts that the guide agreed with in each step, those behind an end included.
    pub accept_len: Option<Vec<usize>>,
    /// Forwards of the guide.
    pub ar_calls: Option<usize>,
}

impl Case {
    /// End of the answer, if the reference goes on behind it or overwrites it there: behind the first token that ends
    /// it.
    pub fn answer_end(&self) -> usize {
        let stops = |token: &u32| self.stop_ids.contains(token);
        let answer = self.output.iter().skip(self.prompt.len()).position(stops);
        answer.map_or(self.output.len(), |place| self.prompt.len() + place + 1)
    }

    /// The case, as far as its answer goes: what is written behind the end is left out, and so are forwards behind the
    /// last commit, which nobody reads.
    pub fn answered(&self) -> Self {
        let end = self.answer_end();
        let mut case = self.clone();
        case.output.truncate(end);
        case.steps = settled(&self.steps, end);
        case.nfe = case.steps.len();
        case
    }
}

/// The commits before a position, without the forwards behind the last of them.
pub fn settled(steps: &[Vec<(u32, u32)>], end: usize) -> Vec<Vec<(u32, u32)>> {
    let within = |step: &Vec<(u32, u32)>| step.iter().copied().filter(|commit| (commit.0 as usize) < end).collect();
    let mut steps: Vec<Vec<_>> = steps.iter().map(within).collect();
    while steps.last().is_some_and(Vec::is_empty) {
        steps.pop();
    }
    steps
}

impl DecodeFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
