//! The checkpoints of this project open as what they are.

use std::path::PathBuf;

use demask_checkpoint::{Checkpoint, Message, ModelFiles, RenderOptions};
use demask_model::{ArchSpec, Role, WeightSource, expected_tensors};
use demask_step::Mask;
use demask_tensor::Dtype;

fn open(folder: &str) -> Checkpoint {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    Checkpoint::open(ModelFiles::directory(path).unwrap()).unwrap()
}

/// Width, layers, heads, K/V heads, head width, MLP, vocabulary.
fn shape(spec: &ArchSpec) -> [usize; 7] {
    [spec.hidden, spec.layers, spec.heads, spec.kv_heads, spec.head_dim, spec.ffn, spec.vocabulary]
}

#[test]
fn golden_checkpoints_open_with_the_right_architecture() {
    let block = Mask::blocks(4);
    let cases = [
        ("tiny-llada", "LLaDA", [64, 3, 4, 4, 16, 160, 320], Mask::Full, 0, false),
        ("tiny-llada-sharded", "LLaDA", [64, 3, 4, 4, 16, 160, 320], Mask::Full, 0, false),
        ("tiny-dream", "Dream", [64, 3, 4, 2, 16, 160, 320], Mask::Full, 1, false),
        ("tiny-dream-bf16", "Dream", [64, 3, 4, 2, 16, 160, 320], Mask::Full, 1, false),
        ("tiny-dream-g7", "Dream", [56, 3, 7, 1, 8, 144, 320], Mask::Full, 1, false),
        ("tiny-sdar", "SDAR", [64, 3, 4, 2, 24, 160, 320], block, 0, false),
        ("tiny-qwen2", "Qwen2", [64, 3, 4, 2, 16, 160, 320], Mask::Causal, 1, true),
        ("tiny-qwen2-untied", "Qwen2", [64, 2, 4, 1, 16, 96, 320], Mask::Causal, 1, false),
        ("tiny-qwen3", "Qwen3", [64, 3, 4, 2, 24, 160, 320], Mask::Causal, 1, false),
        ("toy-llada", "LLaDA", [64, 2, 4, 4, 16, 128, 96], Mask::Full, 0, false),
        ("toy-dream", "Dream", [64, 2, 4, 2, 16, 128, 96], Mask::Full, 1, false),
        ("toy-sdar", "SDAR", [64, 2, 4, 2, 24, 128, 96], block, 0, false),
        ("toy-qwen2", "Qwen2", [48, 2, 4, 2, 12, 96, 96], Mask::Causal, 1, true),
    ];
    for (name, family, dimensions, attention, shift, tied) in cases {
        let checkpoint = open(&format!("golden/ckpt/{name}"));
        let spec = checkpoint.spec();
        assert_eq!((checkpoint.name(), spec.family), (name, family));
        assert_eq!(shape(spec), dimensions, "{name}");
        assert_eq!((spec.attention, spec.shift, spec.tied), (attention, shift, tied), "{name}");
        assert_eq!(spec.qkv_bias, matches!(family, "Dream" | "Qwen2"), "{name}");
        assert_eq!(spec.head_norms, matches!(family, "SDAR" | "Qwen3"), "{name}");
        assert_eq!(spec.rope.full_precision, family == "LLaDA", "{name}");
        assert_eq!(checkpoint.warnings(), [], "{name}");
        let special = checkpoint.special();
        let end = spec.vocabulary as u32 - 13;
        assert_eq!(special.eos, Some(end), "{name}");
        assert_eq!(special.mask, (attention != Mask::Causal).then_some(end + 4), "{name}");
        if matches!(family, "SDAR" | "Qwen2" | "Qwen3") {
            assert_eq!(special.stop, [end, end + 1], "{name}");
        } else {
            assert_eq!(special.stop, [end], "{name}");
        }
        for expected in expected_tensors(spec) {
            let tensor = checkpoint.weights().tensor(expected.role).unwrap();
            assert_eq!((tensor.rows(), tensor.columns()), (expected.rows, expected.columns));
        }
        assert_eq!(checkpoint.weights().tensor(Role::Head).is_err(), tied);
        assert_eq!(checkpoint.weights().stored_bytes(), spec.parameters() * if name.ends_with("bf16") { 2 } else { 4 });
    }
}

#[test]
fn shards_hold_the_same_weights_as_the_single_file() {
    let (single, sharded) = (open("golden/ckpt/tiny-llada"), open("golden/ckpt/tiny-llada-sharded"));
    for expected in expected_tensors(single.spec()) {
        let left = single.weights().tensor(expected.role).unwrap();
        let right = sharded.weights().tensor(expected.role).unwrap();
        assert_eq!(left.to_f32().unwrap(), right.to_f32().unwrap(), "{}", expected.role);
    }
}

#[test]
fn demo_checkpoints_open_with_tokenizer_and_template() {
    for (name, family) in
        [("demo-llada", "LLaDA"), ("demo-dream", "Dream"), ("demo-sdar", "SDAR"), ("demo-qwen", "Qwen2")]
    {
        let checkpoint = open(&format!("demo/{name}"));
        assert_eq!(checkpoint.spec().family, family);
        assert_eq!(checkpoint.warnings(), [], "{name}");
        assert_eq!(checkpoint.weights().dtypes()[0].0, Dtype::Bf16);
        let (special, tokenizer) = (checkpoint.special(), checkpoint.tokenizer().unwrap());
        let llada = family == "LLaDA";
        assert_eq!(special.eos, Some(if llada { 484 } else { 483 }));
        assert_eq!(special.turn_end, Some(if llada { 487 } else { 485 }));
        assert_eq!(special.stop, if llada { vec![484, 487] } else { vec![483, 485] });
        assert_eq!(special.mask, [None, Some(486), Some(488)][usize::from(family != "Qwen2") + usize::from(llada)]);
        let prompt = checkpoint.template().render(&[Message::new("user", "Two and 3?")], &RenderOptions::default());
        let prompt = prompt.unwrap();
        let expected = if llada {
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nTwo and 3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        } else {
            "<|im_start|>user\nTwo and 3?<|im_end|>\n<|im_start|>assistant\n"
        };
        assert_eq!(prompt, expected);
        let ids = tokenizer.encode(&prompt, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), prompt);
        let spoken = tokenizer.decode(&ids, true);
        assert!(spoken.contains("Two and 3?") && !spoken.contains("<|"), "{spoken}");
    }
}

#[test]
fn text_arrives_in_whole_characters() {
    let checkpoint = open("demo/demo-llada");
    let tokenizer = checkpoint.tokenizer().unwrap();
    let text = "é 好 🙂 x";
    let ids = tokenizer.encode(text, false).unwrap();
    let mut stream = tokenizer.stream(true);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pieces.concat() + &stream.finish(), text);
    assert!(!pieces.concat().contains('\u{fffd}'));
    // A character that never ends, and one that is broken off by another.
    let first = tokenizer.encode("🙂", false).unwrap()[0];
    assert_eq!(tokenizer.decode(&[first], true), "\u{fffd}");
    let x = tokenizer.encode("x", false).unwrap()[0];
    assert_eq!(tokenizer.decode(&[first, x], true), "\u{fffd}x");
    assert_eq!(tokenizer.token_bytes(x), Some(b"x".to_vec()));
    assert_eq!(tokenizer.token_bytes(100_000), None);
}

#[test]
fn a_checkpoint_in_memory_is_the_same_as_in_a_directory() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo-llada");
    let files =
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    let read = |name: &'static str| (name, &*std::fs::read(path.join(name)).unwrap().leak());
    let files: Vec<(&'static str, &'static [u8])> = files.into_iter().map(read).collect();
    let memory = Checkpoint::open(ModelFiles::memory("demo", files.leak())).unwrap();
    let directory = open("demo/demo-llada");
    assert_eq!((memory.name(), memory.spec(), memory.special()), ("demo", directory.spec(), directory.special()));
    for expected in expected_tensors(memory.spec()) {
        let left = memory.weights().tensor(expected.role).unwrap();
        let right = directory.weights().tensor(expected.role).unwrap();
        assert_eq!(left.to_f32().unwrap(), right.to_f32().unwrap());
    }
    let empty = Checkpoint::open(ModelFiles::memory("demo", &[])).err().unwrap().to_string();
    assert!(empty.starts_with("demo/config.json is missing: "), "{empty}");
}
