//! Models in GGUF files compute what they compute out of safetensors.

mod blocks;
mod writer;

use std::path::{Path, PathBuf};

use demask::{ActivationChoice, DtypeChoice, Model};
use demask::{DeviceOptions, ModelByHand, Opened};
use demask_checkpoint::{Checkpoint, ModelFiles};
use demask_model::ArchSpec;
use demask_tensor::Bytes;
use safetensors::SafeTensors;
use writer::{Format, convert, convert_rows};

/// Checkpoints, and the architectures that converters give them.
const MODELS: &[(&str, &str)] = &[
    ("tiny-llada", "llada"),
    ("toy-llada", "llada"),
    ("tiny-dream", "dream"),
    ("tiny-sdar", "qwen3"),
    ("tiny-qwen2", "qwen2"),
    ("tiny-qwen2-untied", "qwen2"),
    ("tiny-qwen3", "qwen3"),
    ("moe-llada", "llada-moe"),
];

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(name)
}

fn load(files: ModelFiles) -> ModelByHand {
    let device = DeviceOptions { dtype: DtypeChoice::F32, threads: Some(2), ..DeviceOptions::default() };
    let opened = Opened::open(files).unwrap();
    let told = opened.footprint(&device, &[]).unwrap();
    let model = opened.load(&device, &[], &mut |_| true).unwrap().by_hand().unwrap();
    assert_eq!(told.weights, model.network().weight_bytes() as u64);
    model
}

fn logits(model: &mut ModelByHand) -> Vec<f32> {
    let tokens: Vec<u32> = (0..24).map(|index| index * 37 % 90).collect();
    let mask = model.info().facts().mask;
    model.network_mut().inspect(&tokens, mask, false).unwrap().logits
}

fn in_memory(name: &str, bytes: Vec<u8>) -> ModelFiles {
    ModelFiles::gguf_bytes(name, Bytes::owned(bytes))
}

/// Largest difference, relative to the largest magnitude.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    found.iter().zip(expected).fold(0.0, |most: f32, (found, expected)| most.max((found - expected).abs())) / largest
}

#[test]
fn logits_are_those_of_the_safetensors() {
    for &(name, architecture) in MODELS {
        let mut original = load(ModelFiles::directory(directory(name)).unwrap());
        let expected = logits(&mut original);
        for format in [Format::F32, Format::F16, Format::Bf16, Format::Q8_0] {
            if format == Format::Q8_0 && has_odd_rows(original.info().spec()) {
                continue;
            }
            let [mut model, mut widened] = [false, true]
                .map(|widen| load(in_memory(name, convert(&directory(name), architecture, format, widen))));
            assert_eq!(model.info().facts(), original.info().facts(), "{name}");
            assert_eq!(model.info().spec(), original.info().spec(), "{name}");
            let found = logits(&mut model);
            // To the bit those of the same numbers in f32; those of the original as close as the numbers are.
            assert_eq!(found, logits(&mut widened), "{name} {format:?}");
            // Rounded weights let some rows choose other experts, which is another row.
            if original.info().spec().experts.is_some() && format == Format::Bf16 {
                continue;
            }
            let tolerance = match format {
                Format::F32 => 0.0,
                Format::F16 => 1e-2,
                Format::Bf16 => 1e-1,
                Format::Q8_0 => 2e-1,
            };
            let found = distance(&found, &expected);
            assert!(found <= tolerance, "{name} {format:?}: {found}");
        }
    }
}

/// A Llama in a directory of its own: the Qwen2 of another without the biases, which is all that they differ in.
fn llama() -> PathBuf {
    let from = directory("tiny-qwen2-untied");
    let to = std::env::temp_dir().join(format!("demask-gguf-llama-{}", std::process::id()));
    std::fs::create_dir_all(&to).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config["architectures"] = vec!["LlamaForCausalLM"].into();
    config["model_type"] = "llama".into();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.tensors().into_iter().filter(|(name, _)| !name.ends_with("_proj.bias"));
    std::fs::write(to.join("model.safetensors"), safetensors::serialize(kept, None).unwrap()).unwrap();
    to
}

#[test]
fn rows_of_q_and_k_in_pairs_are_put_back_in_order() {
    let llama = llama();
    for (directory, architecture) in [(directory("tiny-llada"), "llada"), (llama.clone(), "llama")] {
        let expected = logits(&mut load(ModelFiles::directory(&directory).unwrap()));
        let [in_pairs, in_order] = [true, false].map(|in_pairs| {
            let bytes = convert_rows(&directory, architecture, (Format::F32, false), in_pairs);
            logits(&mut load(in_memory("rows", bytes)))
        });
        assert_eq!(in_pairs, expected, "{architecture}");
        assert!(distance(&in_order, &expected) > 1e-2, "{architecture}: the order of rows makes no difference");
    }
    std::fs::remove_dir_all(llama).unwrap();
}

/// Reports whether some rows are no whole number of blocks.
fn has_odd_rows(spec: &ArchSpec) -> bool {
    [spec.hidden, spec.query_width(), spec.ffn].iter().any(|width| !width.is_multiple_of(32))
}

#[test]
fn quantised_files_run_in_bf16_and_tell_their_types() {
    let bytes = convert(&directory("tiny-llada"), "llada", Format::Q8_0, false);
    let checkpoint = Checkpoint::open(in_memory("tiny", bytes)).unwrap();
    let dtypes: Vec<_> = checkpoint.weights().dtypes().iter().map(|(dtype, _)| dtype.to_string()).collect();
    assert_eq!(dtypes, ["f32", "q8_0"]);
    let options = DeviceOptions { activations: ActivationChoice::Plain, ..DeviceOptions::default() };
    let model = Model::from_checkpoint(checkpoint, &options, &mut |_| true).unwrap().by_hand().unwrap();
    let device = model.network().describe();
    assert!(device.ends_with("bf16, q8 weights"), "{device}");
}
