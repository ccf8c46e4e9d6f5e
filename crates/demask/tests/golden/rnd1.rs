//! RND1's sampler (specs/families.md#6.7): its parameters as session options, and the most probable tokens at a temperature.

use std::{
    fs,
    path::{Path, PathBuf},
};

use demask_decode::{CanvasSpec, ModelFacts, Remasking, Schedule, SessionOptions, StopRule};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::cases::Case;

const METHOD: &str = "rnd1_generate";

/// Names of the reference's parameters.
const KNOWN: [&str; 8] = [
    "add_eos_at_end",
    "eb_gamma",
    "greedy",
    "infill_length",
    "max_new_tokens",
    "num_diffusion_steps",
    "pad_token_id",
    "temperature",
];

/// Reports whether a file of traces is this sampler's.
pub fn is_of(method: &str) -> bool {
    method == METHOD
}

/// Reads a case's parameters; an unknown name or value is an error.
pub fn map(case: &Case, facts: &ModelFacts) -> Result<SessionOptions, String> {
    if let Some(name) = case.params.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("parameter {name:?} is not RND1's"));
    }
    let count = |name: &str| case.params.get(name).and_then(Value::as_u64).map(|count| count as usize);
    let is_set = |name: &str| case.params.get(name).and_then(Value::as_bool) == Some(true);
    if !is_set("greedy") {
        return Err("the reference's draws cannot be repeated".into());
    }
    let facts = ModelFacts { mask_id: u32::try_from(case.mask_id).ok(), ..facts.clone() };
    let end = if is_set("add_eos_at_end") { Some(case.eos_id) } else { count("pad_token_id").map(|id| id as u32) };
    // One position of what is asked for is kept for the end.
    let canvas = match (count("max_new_tokens"), count("infill_length")) {
        (Some(length), None) => CanvasSpec::Prompt { tokens: case.prompt.clone(), gen_length: length - 1 },
        (None, Some(length)) => {
            let hole = vec![facts.mask_id.ok_or("no mask")?; length - 1];
            CanvasSpec::Infill { tokens: [&case.prompt[..], &hole, &case.suffix].concat() }
        }
        _ => return Err("neither a length nor a hole".into()),
    };
    let gamma = case.params.get("eb_gamma").and_then(Value::as_f64);
    let decoder =
        gamma.map_or("static".into(), |gamma| format!("entropy_bounded:eb={gamma},rule=rnd1,confidence=tempered"));
    Ok(SessionOptions {
        tail: vec![end.ok_or("no end")?],
        steps: count("num_diffusion_steps"),
        schedule: Schedule::Rnd1,
        remasking: Remasking::Entropy,
        decoder: decoder.parse().map_err(|error| format!("{error}"))?,
        stop: StopRule::Never,
        ..SessionOptions::new(facts, canvas)
    })
}

/// The temperature that a case divides logits by. The reference takes the most probable tokens and ranks by entropies at a
/// temperature, as decoding at temperature 0 does on a head that is divided by it.
pub fn temperature(method: &str, case: &Case) -> f64 {
    case.params.get("temperature").and_then(Value::as_f64).filter(|_| is_of(method)).unwrap_or(1.0)
}

/// Copies a checkpoint with a head that is divided by a temperature into a folder of temporary files. A quotient that rounds
/// changes logits less than the order of a sum does.
pub fn tempered(checkpoint: &Path, temperature: f64) -> PathBuf {
    let name = checkpoint.file_name().unwrap().to_string_lossy().into_owned();
    let to = std::env::temp_dir().join(format!("demask-{name}-{temperature}-{}", std::process::id()));
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(checkpoint).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let head = {
                let tensors = SafeTensors::deserialize(&bytes).unwrap();
                let view = tensors.tensor("lm_head.weight").unwrap();
                assert_eq!(view.dtype(), safetensors::Dtype::F32);
                let start = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + view.data().len()
            };
            for raw in bytes[head].chunks_exact_mut(4) {
                let weight = f64::from(f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])) / temperature;
                raw.copy_from_slice(&(weight as f32).to_le_bytes());
            }
        }
        fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    }
    to
}
