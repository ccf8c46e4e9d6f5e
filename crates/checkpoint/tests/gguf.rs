//! GGUF files: one that the format's own package wrote, and broken and hostile ones.

use demask_checkpoint::{
    Checkpoint, CheckpointError, Message, ModelFiles, ModelLocation, RenderOptions, check_gguf, resolve,
};
use demask_model::{LayerRole, Role, WeightSource};
use demask_tensor::Bytes;

/// Made by `tools/gguf/make_fixture.py`.
const TINY: &[u8] = include_bytes!("data/tiny.gguf");

fn open(bytes: impl Into<Vec<u8>>) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open(ModelFiles::gguf_bytes("m.gguf", Bytes::owned(bytes.into())))
}

/// The message of a file that is refused.
fn message(bytes: impl Into<Vec<u8>>) -> String {
    let message = open(bytes).err().expect("it should be refused").to_string();
    assert!(!message.contains('\n') && message.len() < 500, "{message}");
    message
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A file of these keys (name, type, value) and tensors (name, dimensions, type, offset), with some data.
fn file(keys: &[(&str, u32, &[u8])], tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (name, kind, value) in keys {
        text(&mut out, name);
        out.extend(kind.to_le_bytes());
        out.extend(*value);
    }
    for (name, dimensions, kind, offset) in tensors {
        text(&mut out, name);
        out.extend((dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|dimension| out.extend(dimension.to_le_bytes()));
        out.extend(kind.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(32) + data, 0);
    out
}

/// The file with one part of it replaced by another of the same length.
fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = TINY.to_vec();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the part is there");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn a_file_of_the_reference_package_opens() {
    let checkpoint = open(TINY).unwrap();
    let spec = checkpoint.spec();
    assert_eq!((spec.hidden, spec.layers, spec.heads, spec.ffn, spec.vocabulary), (32, 1, 2, 64, 288));
    assert_eq!((spec.shift, spec.tied, spec.rope.full_precision), (0, false, true));
    let special = checkpoint.special();
    // No key names the mask: its text does.
    assert_eq!(
        (special.mask, special.eos, special.turn_end, special.bos),
        (Some(263), Some(262), Some(264), Some(261))
    );
    let dtypes: Vec<_> = checkpoint.weights().dtypes().iter().map(|(dtype, _)| dtype.to_string()).collect();
    assert_eq!(dtypes, ["f32", "q4_0", "q5_0", "q8_0"]);
    assert!(checkpoint.warnings().is_empty(), "{:?}", checkpoint.warnings());
    assert!(
        checkpoint
            .weights()
            .tensor(Role::Layer(0, LayerRole::Gate))
            .unwrap()
            .to_f32()
            .unwrap()
            .iter()
            .all(|x| x.abs() < 2.0)
    );
}

#[test]
fn its_tokenizer_is_made_of_tokens_and_merges() {
    let checkpoint = open(TINY).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let encode = |text| tokenizer.encode(text, true).unwrap();
    // LLaDA's text does not start with the first token, whatever the file says: templates write it.
    assert_eq!(encode("hello hello"), [259, 260]);
    let newline = tokenizer.id("Ċ").unwrap();
    assert_eq!(encode("\n\n<|mdm_mask|><think>"), [newline, newline, 263, 265]);
    assert_eq!(tokenizer.decode(&encode("naïve"), false), "naïve");
    assert!(tokenizer.is_special(264) && !tokenizer.is_special(265));
    assert_eq!(tokenizer.largest_id(), 265);
    assert_eq!(tokenizer.token(287), None);
    let prompt = checkpoint.template().render(&[Message::new("user", "Hi")], &RenderOptions::default()).unwrap();
    assert_eq!(prompt, "<|startoftext|>Hi");
}

#[test]
fn every_cut_is_told() {
    for length in (0..TINY.len() - 1).step_by(7) {
        let message = message(&TINY[..length]);
        assert!(message.contains("it is cut off"), "{length}: {message}");
    }
}

#[test]
fn no_damaged_byte_makes_a_panic() {
    // Every byte of the descriptions, with one bit turned.
    for at in 0..9000.min(TINY.len()) {
        let mut bytes = TINY.to_vec();
        bytes[at] ^= 1 << (at % 8);
        if let Err(error) = check_gguf(&bytes, "m.gguf") {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        if at % 41 == 0 {
            drop(open(bytes));
        }
    }
}

#[test]
fn other_files_and_versions() {
    assert_eq!(
        message(*b"{\"a\":1}_"),
        "m.gguf cannot be read as GGUF: it starts with the bytes [7b, 22, 61, 22], expected the letters GGUF; fetch it \
         again, or another one of this model"
    );
    assert!(message(*b"GGUF\x01\0\0\0").contains("its version is 1, expected 2 or 3"));
    assert!(message(*b"GGUF\0\0\0\x03").contains("which is one of a big-endian machine, expected 2 or 3"));
}

#[test]
fn absurd_counts_and_lengths() {
    let mut counts = b"GGUF\x03\0\0\0".to_vec();
    counts.extend([0xff; 16]);
    assert!(message(counts).contains("it claims 18446744073709551615 tensors and 18446744073709551615 keys"));
    let huge = u64::MAX.to_le_bytes();
    assert!(message(file(&[("k", 8, &huge)], &[], 0)).contains("something of 18446744073709551615 bytes"));
    for kind in 0..=12u32 {
        // A list that claims more elements than any file has.
        let list = [&kind.to_le_bytes()[..], &huge, &[0; 64]].concat();
        let message = message(file(&[("k", 9, &list)], &[], 0));
        assert!(message.contains("the key \"k\": "), "{message}");
    }
    let nested: Vec<u8> = (0..9).flat_map(|_| [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat()).collect();
    assert!(message(file(&[("k", 9, &nested)], &[], 0)).contains("its lists are nested, expected at most 4 deep"));
    assert!(message(file(&[("k", 13, &[0; 8])], &[], 0)).contains("its value has the type 13, expected 0 to 12"));
    assert!(message(file(&[("k", 7, &[2])], &[], 0)).contains("its value is 2, expected 0 or 1"));
    assert!(message(file(&[("k", 0, &[2]), ("k", 0, &[2])], &[], 0)).contains("the key \"k\" is there twice"));
    assert!(message(file(&[("", 0, &[2])], &[], 0)).contains("has 0 bytes, expected 1 to"));
    let alignment = file(&[("general.alignment", 4, &3u32.to_le_bytes())], &[], 0);
    assert!(message(alignment).contains("\"general.alignment\" is not a power of two"));
}

#[test]
fn tensors_that_cannot_be() {
    let of = |tensors: &[(&str, &[u64], u32, u64)], data| message(file(&[], tensors, data));
    assert!(of(&[("t", &[4, 4], 0, 0)], 32).contains("it is cut off: the tensor \"t\" ends at byte"));
    assert!(of(&[("t", &[4], 0, 4)], 64).contains("the tensor \"t\" starts at 4, expected a multiple of 32"));
    assert!(of(&[("t", &[4], 10, 0)], 64).contains("has the type Q2_K, expected F32, F16, BF16, Q4_0"));
    assert!(of(&[("t", &[4], 77, 0)], 64).contains("has the type 77, expected F32"));
    assert!(of(&[("t", &[33], 8, 0)], 64).contains("has rows of 33 in q8_0, expected a multiple of 32"));
    // Rows that are no whole number of blocks of 256 do not occur: converters fall back to formats of 32.
    for kind in [12, 13, 14] {
        assert!(of(&[("t", &[256 + 32], kind, 0)], 512).contains("_k, expected a multiple of 256"));
    }
    assert!(of(&[("t", &[1, 1, 1, 1, 1], 0, 0)], 64).contains("has 5 dimensions, expected 1 to 4"));
    assert!(of(&[("t", &[], 0, 0)], 64).contains("has 0 dimensions, expected 1 to 4"));
    assert!(of(&[("t", &[1 << 40, 1 << 40], 0, 0)], 64).contains("the tensor \"t\" is larger than any file"));
    assert!(of(&[("t", &[8], 0, u64::MAX - 31)], 64).contains("the tensor \"t\" is larger than any file"));
    assert!(of(&[("a", &[16], 0, 0), ("b", &[8], 0, 32)], 64).contains("the tensors \"a\" and \"b\" overlap"));
    assert!(of(&[("a", &[8], 0, 0), ("a", &[8], 0, 32)], 64).contains("the tensor \"a\" is there twice"));
}

#[test]
fn metadata_that_do_not_make_a_model() {
    assert!(message(file(&[], &[], 0)).contains("the key \"general.architecture\" is missing"));
    let cases: &[(&[u8], &[u8], &str)] = &[
        (
            b"\x05\0\0\0\0\0\0\0llada",
            b"\x05\0\0\0\0\0\0\0mamba",
            "unknown architecture \"mamba\", expected one of llada",
        ),
        (b"llada.block_count", b"llada.block_kount", "the key \"llada.block_count\" is missing"),
        (b"llada.rope.freq_base", b"llada.rope.freq_baze", "the key \"llada.rope.freq_base\" is missing"),
        (b"blk.0.attn_q", b"blk.7.attn_q", "the tensor \"blk.0.attn_q.weight\" is missing"),
        (b"blk.0.ffn_up", b"blk.0.ffn_xx", "the tensor \"blk.0.ffn_xx.weight\" in a layer is not supported"),
        (b"llada-moe", b"llada-mow", "\"tokenizer.ggml.pre\" is \"llada-mow\", expected one of qwen2, llada-moe"),
        (b"\x04\0\0\0\0\0\0\0gpt2", b"\x04\0\0\0\0\0\0\0bert", "a tokenizer of the kind \"bert\" is not supported"),
        (b"<|mdm_mask|>", b"<|mdm_musk|>", "no mask token"),
        (b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz", "the key \"tokenizer.ggml.tokens\" is missing"),
        (b"hello", b"hullo", "the tokenizer is broken"),
    ];
    for (from, to, expected) in cases {
        let message = message(replaced(from, to));
        assert!(message.contains(expected), "{message}");
    }
    let mut wide = b"llada.embedding_length\x04\0\0\0".to_vec();
    let from = [&wide[..], &32u32.to_le_bytes()].concat();
    wide.extend(64u32.to_le_bytes());
    let message = message(replaced(&from, &wide));
    assert!(message.contains("has shape [288, 32], the metadata say [288, 64]"), "{message}");
}

#[test]
fn a_file_is_told_from_a_directory_and_a_hub_id() {
    let folder = std::env::temp_dir().join(format!("demask-gguf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["m.gguf", "blob"] {
        let path = folder.join(name);
        std::fs::write(&path, TINY).unwrap();
        assert_eq!(resolve(path.to_str().unwrap()).unwrap(), ModelLocation::Gguf(path.clone()));
        assert!(Checkpoint::open(ModelFiles::gguf(&path).unwrap()).is_ok());
    }
    assert!(resolve("org/missing.gguf").unwrap_err().to_string().starts_with("no model at \"org/missing.gguf\""));
    std::fs::write(folder.join("text"), "hello").unwrap();
    let text = folder.join("text");
    assert!(resolve(text.to_str().unwrap()).unwrap_err().to_string().contains("is a file: expected a GGUF file"));
    std::fs::remove_dir_all(&folder).unwrap();
}
