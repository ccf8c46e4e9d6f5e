//! `demask-lab logits`: raw logits of given tokens, for checking a port against any other implementation.

use std::{collections::BTreeMap, io::Write};

use anyhow::Context;
use demask::Error;
use demask::ModelInfo;
use demask_model::Inspection;
use demask_step::{Mask, SequenceSpec, TokenId};
use safetensors::{Dtype, View, tensor::TensorView};
use serde_json::json;

use crate::{
    args::LogitsArgs,
    exit::usage,
    files::OutFile,
    interrupt,
    load::load,
    output,
    settings::{Settings, token_ids},
    texts,
};

/// Runs the command.
pub fn run(settings: &Settings, args: &LogitsArgs) -> anyhow::Result<()> {
    let lines = lines(args)?;
    let path = args.out.as_deref().ok_or_else(|| usage("no output named: give --out FILE.safetensors"))?;
    let forced = forced_mask(args)?;
    let device = &settings.device()?;
    let mut out = OutFile::create(path)?;
    let opened = settings.source.open(settings.screen)?;
    lines.iter().try_for_each(|tokens| check(opened.info(), tokens))?;
    // One after the other: the longest has room for all.
    let longest = lines.iter().map(Vec::len).max().map(|length| SequenceSpec::from(Inspection::needs(length)));
    let model = load(opened, device, longest.as_slice(), settings.screen)?;
    let mask = forced.unwrap_or(model.info().facts().mask);
    let mut tensors = BTreeMap::new();
    for (index, tokens) in lines.iter().enumerate() {
        interrupt::check()?;
        let (tokens, layers) = (tokens.clone(), args.layers);
        let length = tokens.len();
        let result = model.with_network(move |network| network.inspect(&tokens, mask, layers))??;
        let prefix = if lines.len() == 1 { String::new() } else { format!("{index}.") };
        collect(&prefix, length, &result, args.layers, &mut tensors);
    }
    out.write_all(&serialize(&tensors)?).with_context(|| format!("cannot write {}", path.display()))?;
    out.finish()?;
    let shapes = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape));
    if settings.screen.json {
        let shapes: BTreeMap<_, _> =
            shapes.map(|(name, shape)| (name, json!({"dtype": "F32", "shape": shape}))).collect();
        return output::json(&json!({"out": path.display().to_string(), "mask": mask.to_string(), "tensors": shapes}));
    }
    for (name, [rows, columns]) in shapes {
        settings.screen.remark(&format!("{name} [{rows}, {columns}] f32"));
    }
    Ok(())
}

/// The sequences to run.
fn lines(args: &LogitsArgs) -> anyhow::Result<Vec<Vec<TokenId>>> {
    let lines = match (&args.tokens, &args.tokens_file) {
        (Some(text), None) => vec![token_ids("--tokens", text)?],
        (None, Some(path)) => {
            let text = texts::read(path)?;
            let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let parsed = filled.map(|(index, line)| {
                serde_json::from_str(line).map_err(|_| {
                    let line = index + 1;
                    usage(format!("{} line {line}: expected a JSON array of token ids, [1, 2, 3]", path.display()))
                })
            });
            parsed.collect::<Result<Vec<_>, _>>()?
        }
        (Some(_), Some(_)) => {
            return Err(usage("found --tokens and --tokens-file, expected one of them: omit the other"));
        }
        (None, None) => return Err(usage("no tokens: give --tokens 1,2,3 or --tokens-file FILE")),
    };
    if lines.is_empty() || lines.iter().any(Vec::is_empty) {
        return Err(usage("no tokens: expected at least one in each sequence"));
    }
    Ok(lines)
}

/// The mask that the flags ask for instead of the model's own.
fn forced_mask(args: &LogitsArgs) -> anyhow::Result<Option<Mask>> {
    match (args.causal, args.block_causal) {
        (true, Some(_)) => Err(usage("--causal and --block-causal contradict each other: give one of them")),
        (false, Some(0)) => Err(usage("--block-causal is 0, expected the positions of a block, at least 1")),
        (true, None) => Ok(Some(Mask::Causal)),
        (false, Some(block)) => Ok(Some(Mask::blocks(block))),
        (false, None) => Ok(None),
    }
}

/// Refuses what would not fit.
fn check(model: &ModelInfo, tokens: &[TokenId]) -> anyhow::Result<()> {
    let (vocabulary, context) = (model.facts().vocab, model.facts().context);
    if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
        return Err(Error::TokenOutOfRange { token, vocabulary }.into());
    }
    if tokens.len() > context {
        let rows = tokens.len();
        return Err(usage(format!("{rows} tokens exceed the model's context of {context}: give fewer")));
    }
    Ok(())
}

/// A matrix of f32.
struct Matrix {
    shape: [usize; 2],
    bytes: Vec<u8>,
}

impl Matrix {
    fn new(rows: usize, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { shape: [rows, values.len() / rows.max(1)], bytes }
    }
}

/// Names the results of one sequence.
fn collect(prefix: &str, rows: usize, result: &Inspection, layers: bool, tensors: &mut BTreeMap<String, Matrix>) {
    let mut add = |name: String, values: &[f32]| tensors.insert(format!("{prefix}{name}"), Matrix::new(rows, values));
    add("logits".into(), &result.logits);
    if layers {
        add("hidden.embed".into(), &result.hidden.embed);
        for (layer, values) in result.hidden.layers.iter().enumerate() {
            add(format!("hidden.{layer}"), values);
        }
        add("hidden.final".into(), &result.hidden.last);
    }
}

fn serialize(tensors: &BTreeMap<String, Matrix>) -> anyhow::Result<Vec<u8>> {
    let views = tensors.iter().map(|(name, matrix)| {
        TensorView::new(Dtype::F32, matrix.shape.to_vec(), &matrix.bytes).map(|view| (name.as_str(), view))
    });
    let views = views.collect::<Result<Vec<_>, _>>().context("the results have an impossible shape")?;
    debug_assert!(views.iter().all(|(_, view)| view.data_len() > 0));
    safetensors::serialize(views, None).context("the results cannot be written as safetensors")
}
