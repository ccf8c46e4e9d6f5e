//! `demask inspect`: the contents of a model directory, weights not loaded.

use std::collections::BTreeSet;

use demask::{AdapterChoice, DeviceChoice, DtypeChoice, WeightChoice};
use demask::{
    DeviceOptions, Footprint, Mask, MatrixFormats,
    layers::{
        checkpoint::{AdapterFacts, Checkpoint},
        model::{ArchSpec, Mlp},
        step::SequenceLimits,
        tensor::ExpertShape,
    },
};
use serde::Serialize;

use crate::{output, settings::Settings};

/// Positions that K/V memory is shown for.
const POSITIONS: usize = 1000;

/// Report of `inspect`.
#[derive(Serialize)]
struct Report {
    name: String,
    family: String,
    architecture: Architecture,
    tensors: usize,
    parameters: u64,
    /// Bytes by stored type.
    dtypes: Vec<Stored>,
    special: Special,
    stop: Vec<u32>,
    /// The same tokens, each with its text and what names it an end.
    ends: Vec<End>,
    tokenizer: bool,
    /// `checkpoint`, or `family` where the checkpoint has none.
    template: &'static str,
    /// What requests share of the K/V of equal first tokens.
    prefixes: &'static str,
    /// Adapter beside the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<Adapter>,
    memory: Vec<Memory>,
    warnings: Vec<String>,
}

/// An adapter, and its use.
#[derive(Serialize)]
struct Adapter {
    name: String,
    /// Model that it was trained for, if it says so.
    base: Option<String>,
    /// `masks`, `all` or `merged`.
    usage: String,
    /// Smallest and largest rank.
    ranks: [usize; 2],
    products: usize,
    parameters: u64,
}

impl From<&AdapterFacts> for Adapter {
    fn from(facts: &AdapterFacts) -> Self {
        let usage = AdapterChoice::from(facts.usage).to_string();
        let (products, parameters) = (facts.products(), facts.parameters());
        Self { name: facts.name.clone(), base: facts.base.clone(), usage, ranks: facts.ranks, products, parameters }
    }
}

#[derive(Serialize)]
struct Architecture {
    attention: String,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    /// Experts, in layers that have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<Experts>,
    vocabulary: usize,
    context: usize,
    tied: bool,
    shift: usize,
}

#[derive(Serialize)]
struct Experts {
    /// Layers that have them.
    layers: usize,
    count: usize,
    /// Experts that a row takes.
    taken: usize,
    ffn: usize,
    /// Width of the one that all rows take; 0: there is none.
    shared_ffn: usize,
    /// Parameters that a row meets, embeddings and head included.
    active_parameters: u64,
}

#[derive(Serialize)]
struct Stored {
    dtype: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Special {
    mask: Option<u32>,
    eos: Option<u32>,
    turn_end: Option<u32>,
    bos: Option<u32>,
    pad: Option<u32>,
}

#[derive(Serialize)]
struct End {
    id: u32,
    text: Option<String>,
    from: String,
}

/// Bytes that a device needs in one element type, as the loader checks them.
#[derive(Serialize)]
struct Memory {
    device: &'static str,
    dtype: String,
    /// Formats of the matrices.
    matrices: Vec<String>,
    weights: u64,
    cache_per_1000_positions: u64,
    /// Matrices whose blocks take more memory than in their file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    widened: Vec<MatrixFormats>,
}

/// Runs the command.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let source = &settings.source;
    let report = report(&source.headers(settings.screen)?, settings.requested_device())?;
    if settings.screen.json { output::json(&report) } else { Ok(output::text(&describe(&report))?) }
}

fn report(checkpoint: &Checkpoint, device: &DeviceOptions) -> anyhow::Result<Report> {
    let (spec, special) = (checkpoint.spec(), checkpoint.special());
    let dtypes = checkpoint.weights().dtypes().into_iter();
    Ok(Report {
        name: checkpoint.name().to_owned(),
        family: spec.family.to_string(),
        architecture: architecture(spec),
        tensors: checkpoint.family().tensors(spec),
        parameters: spec.parameters(),
        dtypes: dtypes.map(|(dtype, bytes)| Stored { dtype: dtype.to_string(), bytes }).collect(),
        special: Special {
            mask: special.mask,
            eos: special.eos,
            turn_end: special.turn_end,
            bos: special.bos,
            pad: special.pad,
        },
        stop: special.stop.clone(),
        ends: ends(checkpoint),
        tokenizer: checkpoint.tokenizer().is_some(),
        template: if checkpoint.template().is_fallback() { "family" } else { "checkpoint" },
        prefixes: prefixes(checkpoint.spec()),
        adapter: checkpoint.weights().adapter_facts().map(Adapter::from),
        memory: memories(checkpoint, device)?,
        warnings: checkpoint.warnings().iter().map(ToString::to_string).collect(),
    })
}

fn ends(checkpoint: &Checkpoint) -> Vec<End> {
    let special = checkpoint.special();
    let ends = special.stop.iter().zip(&special.stop_from);
    let text = |id| checkpoint.tokenizer().and_then(|tokenizer| tokenizer.token(id));
    ends.map(|(&id, from)| End { id, text: text(id), from: from.clone() }).collect()
}

fn prefixes(spec: &ArchSpec) -> &'static str {
    match spec.attention {
        Mask::Full => "not shared: K/V depend on the whole canvas",
        _ if spec.attention.block().is_some() => "shared in whole blocks",
        _ => "shared",
    }
}

fn architecture(spec: &ArchSpec) -> Architecture {
    Architecture {
        attention: spec.attention.to_string(),
        hidden: spec.hidden,
        layers: spec.layers,
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        ffn: spec.ffn,
        experts: experts(spec),
        vocabulary: spec.vocabulary,
        context: spec.context,
        tied: spec.tied,
        shift: spec.shift,
    }
}

fn experts(spec: &ArchSpec) -> Option<Experts> {
    let shape = spec.experts.as_ref()?.shape;
    let layers = (0..spec.layers).filter(|&layer| matches!(spec.mlp(layer), Mlp::Experts(_))).count();
    let idle = layers * (shape.count - shape.per_row) * 3 * shape.ffn * spec.hidden;
    let active_parameters = spec.parameters() - idle as u64;
    let ExpertShape { count, per_row: taken, ffn, shared_ffn } = shape;
    Some(Experts { layers, count, taken, ffn, shared_ffn, active_parameters })
}

/// Memory for each device in each element type, whether the device exists or not.
fn memories(checkpoint: &Checkpoint, device: &DeviceOptions) -> anyhow::Result<Vec<Memory>> {
    let formats = [
        ("f32", DtypeChoice::F32, WeightChoice::Plain),
        ("bf16", DtypeChoice::Bf16, WeightChoice::Plain),
        ("q8", DtypeChoice::Bf16, WeightChoice::Q8),
        ("q4", DtypeChoice::Bf16, WeightChoice::Q4),
    ];
    let devices = [
        ("cpu", DeviceChoice::Cpu),
        #[cfg(feature = "cuda")]
        ("cuda", DeviceChoice::Cuda(0)),
    ];
    let all = devices.into_iter().flat_map(|device| formats.map(|format| (device, format)));
    let memories = all.map(|((name, choice), (format, dtype, quantize))| {
        let device = DeviceOptions { device: choice, dtype, quantize, ..device.clone() };
        memory(checkpoint, [name, format], &device)
    });
    memories.collect()
}

/// Weights as they are packed, and K/V of full pages.
fn memory(checkpoint: &Checkpoint, [name, dtype]: [&'static str; 2], device: &DeviceOptions) -> anyhow::Result<Memory> {
    let options = device.backend_options(checkpoint.weights().main_dtype(), checkpoint.spec().attention)?;
    let canvas = SequenceLimits { positions: POSITIONS, ..SequenceLimits::default() };
    let Footprint { weights, cache, .. } =
        Footprint::of_files(checkpoint.spec(), checkpoint.weights(), &options, 1, &[canvas])?;
    let kept = MatrixFormats::of(checkpoint.spec(), &checkpoint.weights().stored(), &options)?;
    let formats: BTreeSet<_> = kept.iter().map(|kept| kept.format.clone()).collect();
    let asked = device.quantize != WeightChoice::Plain;
    Ok(Memory {
        device: name,
        dtype: dtype.to_owned(),
        matrices: formats.into_iter().collect(),
        weights,
        cache_per_1000_positions: cache,
        widened: kept.into_iter().filter(|kept| !asked && kept.widened()).collect(),
    })
}

fn describe(report: &Report) -> String {
    let Architecture { hidden, layers, heads, kv_heads, head_dim, ffn, vocabulary, context, .. } = report.architecture;
    let Special { mask, eos, turn_end, bos, pad } = report.special;
    let id = |id: Option<u32>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let dtypes: Vec<_> =
        report.dtypes.iter().map(|stored| format!("{} {}", output::bytes(stored.bytes), stored.dtype)).collect();
    let stop: Vec<_> = report.ends.iter().map(describe_end).collect();
    let template = match report.template {
        "family" => "that of the family, the checkpoint has none",
        _ => "the checkpoint's own",
    };
    let mut lines = vec![
        format!("model       {}", report.name),
        format!("family      {}, {} attention", report.family, report.architecture.attention),
        format!("shape       {layers} layers, hidden {hidden}, heads {heads}/{kv_heads} of {head_dim}, MLP {ffn}"),
        format!("vocabulary  {vocabulary}, context {context}"),
        format!("tensors     {} with {} parameters, {}", report.tensors, report.parameters, dtypes.join(", ")),
        format!(
            "special     mask {}, eos {}, turn end {}, bos {}, pad {}",
            id(mask),
            id(eos),
            id(turn_end),
            id(bos),
            id(pad)
        ),
        format!("stop        {}", if stop.is_empty() { "none".to_owned() } else { stop.join(", ") }),
        format!("tokenizer   {}", if report.tokenizer { "yes" } else { "none: prompts as --prompt-tokens only" }),
        format!("template    {template}"),
        format!("prefixes    {}", report.prefixes),
    ];
    if let Some(Experts { layers, count, taken, ffn, shared_ffn, active_parameters }) = report.architecture.experts {
        let shared = if shared_ffn > 0 { format!(" and one of {shared_ffn} for all") } else { String::new() };
        let told =
            format!("{taken} of {count} of {ffn}{shared} in {layers} layers, {active_parameters} parameters a row");
        lines.insert(3, format!("experts     {told}"));
    }
    if let Some(Adapter { name, base, usage, ranks: [least, most], products, parameters }) = &report.adapter {
        let rank = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let base = base.as_ref().map_or_else(String::new, |base| format!(", trained for {base}"));
        lines.push(format!(
            "adapter     {name}: {usage}, rank {rank}, {products} products, {parameters} parameters{base}"
        ));
    }
    for Memory { device, dtype, matrices, weights, cache_per_1000_positions, widened } in &report.memory {
        let (weights, cache) = (output::bytes(*weights), output::bytes(*cache_per_1000_positions));
        let kept = if *matrices == [dtype.as_str()] { String::new() } else { format!(" in {}", matrices.join(" + ")) };
        lines.push(format!(
            "memory      {device} {dtype}: {weights} weights{kept}, {cache} of K/V for {POSITIONS} positions"
        ));
        lines.extend(widened.iter().map(|kept| format!("widened     {device} {dtype}: {}", output::widened(kept))));
    }
    lines.extend(report.warnings.iter().map(|warning| format!("warning     {warning}")));
    lines.join("\n") + "\n"
}

/// An end token: its id, its text, and what names it.
fn describe_end(end: &End) -> String {
    let text = end.text.as_ref().map_or_else(String::new, |text| format!(" {text:?}"));
    format!("{}{text} ({})", end.id, end.from)
}
