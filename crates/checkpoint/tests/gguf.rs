//! GGUF files: one that the format's own package wrote, and broken and hostile ones.

use demask_checkpoint::{
    Checkpoint, CheckpointError, HubOptions, Message, ModelFiles, ModelLocation, RenderOptions, check_gguf, resolve,
};
use demask_model::{LayerRole, Role, WeightSource};
use demask_tensor::Bytes;
use demask_testkit::gguf::split;

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
         again"
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
    assert!(
        of(&[("t", &[4], 4000, 0)], 64).contains("the tensor \"t\" has the type 4000, expected at most 255; fetch")
    );
    assert!(of(&[("t", &[33], 8, 0)], 64).contains("has rows of 33 in q8_0, expected a multiple of 32"));
    // Rows that are no whole number of blocks of 256 do not occur: converters fall back to formats of 32.
    for kind in [10, 11, 12, 13, 14, 23, 34, 35] {
        assert!(of(&[("t", &[256 + 32], kind, 0)], 512).contains(", expected a multiple of 256"));
    }
    assert!(of(&[("t", &[1, 1, 1, 1, 1], 0, 0)], 64).contains("has 5 dimensions, expected 1 to 4"));
    assert!(of(&[("t", &[], 0, 0)], 64).contains("has 0 dimensions, expected 1 to 4"));
    assert!(of(&[("t", &[1 << 40, 1 << 40], 0, 0)], 64).contains("the tensor \"t\" is larger than any file"));
    assert!(of(&[("t", &[8], 0, u64::MAX - 31)], 64).contains("the tensor \"t\" is larger than any file"));
    assert!(of(&[("a", &[16], 0, 0), ("b", &[8], 0, 32)], 64).contains("the tensors \"a\" and \"b\" overlap"));
    assert!(of(&[("a", &[8], 0, 0), ("a", &[8], 0, 32)], 64).contains("the tensor \"a\" is there twice"));
}

#[test]
fn a_type_that_is_not_read_is_unsupported_and_no_damage() {
    for (kind, name) in [(16, "IQ2_XXS"), (21, "IQ3_S"), (9, "Q8_1"), (40, "NVFP4"), (31, "Q4_0_4_4")] {
        assert_eq!(
            message(file(&[], &[("t", &[256], kind, 0)], 64)),
            format!(
                "m.gguf: the type {name} of the tensor \"t\" is not supported; use the model in another quantisation, Q4_K_M \
                 or Q8_0 for example"
            )
        );
    }
    let message = message(file(&[], &[("t", &[256], 77, 0)], 64));
    assert!(message.contains("the type with the number 77 of the tensor \"t\" is not supported; use"), "{message}");
}

/// Kinds of tokens.
const ORDINARY: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// A Qwen2 of one layer, of these tokens and their kinds, with more keys of token ids.
fn causal(pre: &str, tokens: &[(String, i32)], ids: &[(&str, u32)]) -> Vec<u8> {
    let in_list = |kind: u32, count: usize| [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
    let of = |value: &str| {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        bytes
    };
    let (mut list, mut kinds) = (in_list(8, tokens.len()), in_list(5, tokens.len()));
    for (token, kind) in tokens {
        text(&mut list, token);
        kinds.extend(kind.to_le_bytes());
    }
    let count = |value: u32| value.to_le_bytes().to_vec();
    let mut keys = vec![
        ("general.architecture".to_owned(), 8, of("qwen2")),
        ("qwen2.attention.layer_norm_rms_epsilon".to_owned(), 6, 1e-6f32.to_le_bytes().to_vec()),
        ("qwen2.rope.freq_base".to_owned(), 6, 1e4f32.to_le_bytes().to_vec()),
        ("tokenizer.ggml.model".to_owned(), 8, of("gpt2")),
        ("tokenizer.ggml.pre".to_owned(), 8, of(pre)),
        ("tokenizer.ggml.tokens".to_owned(), 9, list),
        ("tokenizer.ggml.token_type".to_owned(), 9, kinds),
        ("tokenizer.ggml.merges".to_owned(), 9, in_list(8, 0)),
    ];
    let counts = [("block_count", 1), ("context_length", 64), ("embedding_length", 32), ("feed_forward_length", 32)];
    keys.extend(counts.iter().map(|(key, value)| (format!("qwen2.{key}"), 4, count(*value))));
    keys.push(("qwen2.attention.head_count".to_owned(), 4, count(1)));
    keys.extend(ids.iter().map(|(key, id)| (format!("tokenizer.ggml.{key}_token_id"), 4, count(*id))));
    let layer = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let matrices = layer.map(|part| (format!("blk.0.{part}.weight"), vec![32, 32]));
    let vectors = ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_norm.weight", "ffn_norm.weight"];
    let vectors = vectors.map(|part| (format!("blk.0.{part}"), vec![32]));
    let outer =
        [("token_embd.weight".to_owned(), vec![32, tokens.len() as u64]), ("output_norm.weight".to_owned(), vec![32])];
    let (mut tensors, mut end) = (Vec::new(), 0);
    for (name, shape) in matrices.into_iter().chain(vectors).chain(outer) {
        // Q4_0 for matrices, F32 for vectors.
        let (kind, bytes) = if shape.len() == 2 { (2, shape[1] * 18) } else { (0, 32 * 4) };
        tensors.push((name, shape, kind, end));
        end = (end + bytes).next_multiple_of(32);
    }
    let keys: Vec<_> = keys.iter().map(|(name, kind, value)| (name.as_str(), *kind, &value[..])).collect();
    let tensors: Vec<_> =
        tensors.iter().map(|(name, shape, kind, at)| (name.as_str(), &shape[..], *kind, *at)).collect();
    file(&keys, &tensors, end as usize)
}

/// The ends of a model with these tokens behind ten ordinary ones.
fn ends(tokens: &[(&str, i32)], ids: &[(&str, u32)]) -> Vec<(String, String)> {
    let ordinary = (0..10).map(|index| (format!("t{index}"), ORDINARY));
    let tokens: Vec<_> = ordinary.chain(tokens.iter().map(|(text, kind)| ((*text).to_owned(), *kind))).collect();
    let checkpoint = open(causal("qwen2", &tokens, ids)).unwrap();
    let special = checkpoint.special();
    let ends = special.stop.iter().zip(&special.stop_from);
    ends.map(|(&id, from)| (tokens[id as usize].0.clone(), from.clone())).collect()
}

fn texts(ends: &[(String, String)]) -> Vec<&str> {
    ends.iter().map(|(text, _)| text.as_str()).collect()
}

#[test]
fn an_answer_of_qwen_coder_ends_at_all_five_ids_that_its_vocabulary_has() {
    let specials = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
        "<|quad_start|>",
        "<|quad_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<tool_call>",
        "</tool_call>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    ];
    // Its ordinary tokens have "</s>", which is text.
    let ordinary = (0..151_643).map(|id| (if id == 522 { "</s>".to_owned() } else { format!("t{id}") }, ORDINARY));
    let kind = |text: &str| if text.ends_with("tool_call>") { USER_DEFINED } else { CONTROL };
    let tokens: Vec<_> = ordinary.chain(specials.map(|text| (text.to_owned(), kind(text)))).collect();
    let ids = [("eos", 151_645), ("padding", 151_643), ("bos", 151_643)];
    let checkpoint = open(causal("qwen2", &tokens, &ids)).unwrap();
    assert_eq!(checkpoint.special().stop, [151_645, 151_643, 151_662, 151_663, 151_664]);
    assert_eq!(checkpoint.special().stop_from[..2], ["tokenizer.ggml.eos_token_id", "its text"]);
}

#[test]
fn ends_are_named_by_keys_and_by_the_texts_of_tokens_that_are_no_ordinary_text() {
    let all = [("<|eot_id|>", CONTROL), ("<|eom_id|>", CONTROL), ("<|end_of_text|>", CONTROL), ("<EOT>", USER_DEFINED)];
    let named = ends(&all, &[("eos", 12), ("eot", 10)]);
    assert_eq!(texts(&named), ["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<EOT>"]);
    let from: Vec<_> = named.iter().map(|(_, from)| from.as_str()).collect();
    assert_eq!(from, ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "its text", "its text"]);
    // Keys alone, whatever the texts.
    assert_eq!(texts(&ends(&[], &[("eos", 1), ("eom", 3), ("fim_sep", 4), ("fim_pad", 5)])), ["t1", "t3", "t5", "t4"]);
    // The key of a part is taken instead of its text; an id behind the vocabulary is none.
    let parts = [("<|fim_pad|>", CONTROL), ("<PAD>", CONTROL), ("<|file_sep|>", CONTROL)];
    assert_eq!(texts(&ends(&parts, &[("eos", 1), ("fim_pad", 3), ("eot", 99)])), ["t1", "t3", "<|file_sep|>"]);
    assert_eq!(texts(&ends(&parts, &[("eos", 1)])), ["t1", "<|fim_pad|>", "<|file_sep|>"]);
    // Ordinary text that looks like an end.
    assert_eq!(texts(&ends(&[("</s>", ORDINARY), ("<|end|>", ORDINARY)], &[("eos", 1)])), ["t1"]);
}

#[test]
fn an_end_of_a_part_of_an_answer_is_none() {
    let of = |marks: &[&str]| -> Vec<String> {
        let marks: Vec<_> = marks.iter().map(|text| (*text, CONTROL)).collect();
        ends(&marks, &[]).into_iter().map(|(text, _)| text).collect()
    };
    assert_eq!(of(&["<|end|>", "<|return|>"]), ["<|end|>", "<|return|>"]);
    assert_eq!(of(&["<|end|>", "<|return|>", "<|call|>"]), ["<|return|>", "<|call|>"]);
    assert_eq!(of(&["<|end|>", "<|flush|>", "<|calls|>"]), ["<|calls|>", "<|flush|>"]);
    assert_eq!(of(&["</s>", "<|tool_response>"]), ["<|tool_response>"]);
    assert_eq!(of(&["</s>"]), ["</s>"]);
}

#[test]
fn a_model_that_fills_holes_ends_where_its_authors_programs_end() {
    // Its file has a pad and marks of parts that would be ends of a causal model.
    let bytes = replaced(b"<think>", b"[PAD]\0\0");
    let special = open(bytes).unwrap().special().clone();
    assert_eq!((special.stop, special.mask), (vec![262, 264], Some(263)));
    assert_eq!(special.stop_from, ["tokenizer.ggml.eos_token_id", "its text"]);
}

#[test]
fn names_of_ways_to_cut_text_that_amount_to_a_known_one() {
    let tokens = |extra: &[&str]| -> Vec<(String, i32)> {
        let bytes = ('!'..='~').map(String::from).chain(["Ġ".to_owned(), "Ċ".to_owned()]);
        bytes.chain(extra.iter().map(|text| (*text).to_owned())).map(|text| (text, ORDINARY)).collect()
    };
    for pre in ["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "smollm", "llama-bpe", "gpt-2", "tekken", "deepseek-v3"]
    {
        let checkpoint = open(causal(pre, &tokens(&[]), &[("bos", 0)])).unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let ids = tokenizer.encode("a 12\nb", true).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).trim_start_matches('!'), "a 12\nb", "{pre}");
        // Two of them begin a raw text where the file does not say.
        assert_eq!(ids[0] == 0, ["llama-bpe", "tekken"].contains(&pre), "{pre}");
    }
    let message = message(causal("kimi-k2", &tokens(&[]), &[]));
    assert!(message.starts_with("m.gguf: the way to cut text \"kimi-k2\""), "{message}");
    assert!(message.contains("is not supported; use the model's safetensors"), "{message}");
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
        (
            b"llada-moe",
            b"llada-mow",
            "the way to cut text \"llada-mow\" (\"tokenizer.ggml.pre\") is not supported; use the model's safetensors",
        ),
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
        assert_eq!(resolve(path.to_str().unwrap(), &hub()).unwrap(), ModelLocation::Gguf(path.clone()));
        assert!(Checkpoint::open(ModelFiles::gguf(&path).unwrap()).is_ok());
    }
    assert!(
        resolve("org/missing.gguf", &hub()).unwrap_err().to_string().starts_with("no model at \"org/missing.gguf\"")
    );
    std::fs::write(folder.join("text"), "hello").unwrap();
    let text = folder.join("text");
    assert!(
        resolve(text.to_str().unwrap(), &hub()).unwrap_err().to_string().contains("is a file: expected a GGUF file")
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A hub that is not asked.
fn hub() -> HubOptions {
    HubOptions::new("http://127.0.0.1:1", "/nowhere")
}

/// A folder of these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        std::fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

#[test]
fn a_split_file_opens_as_the_whole_one() {
    let parts = split(TINY, 3);
    let named = |number: usize| format!("m-{number:05}-of-00003.gguf");
    let names = [named(1), named(2), named(3)];
    let files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(parts.iter().map(Vec::as_slice)).collect();
    let folder = folder(&files);
    let whole = open(TINY).unwrap();
    // Each part names all of them.
    for name in &names {
        let checkpoint = Checkpoint::open(ModelFiles::gguf(folder.path().join(name)).unwrap()).unwrap();
        assert_eq!(checkpoint.spec(), whole.spec());
        assert_eq!(checkpoint.weights().dtypes(), whole.weights().dtypes());
        for role in [Role::Embedding, Role::FinalNorm, Role::Layer(0, LayerRole::Down), Role::Head] {
            let of = |checkpoint: &Checkpoint| checkpoint.weights().tensor(role).unwrap().to_f32().unwrap();
            assert_eq!(of(&checkpoint), of(&whole), "{role:?}");
        }
        assert_eq!(checkpoint.tokenizer().unwrap().encode("hello hello", true).unwrap(), [259, 260]);
    }
    let refusal = |name: &str| match ModelFiles::gguf(folder.path().join(name)).and_then(Checkpoint::open) {
        Err(error) => error.to_string().replace(folder.path().to_str().unwrap(), "DIR"),
        Ok(_) => "none".to_owned(),
    };
    // Two parts in each other's place, and one under the name of a whole file.
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place(&names[1]), &parts[2]).unwrap();
    assert_eq!(
        refusal(&names[0]),
        "DIR/m-00002-of-00003.gguf cannot be read as GGUF: it says that it is part 3 of 3, expected 2 of 3: parts are \
         named NAME-00001-of-00002.gguf, and all are in one folder; fetch it again"
    );
    std::fs::write(place("m.gguf"), &parts[0]).unwrap();
    assert!(refusal("m.gguf").contains("it says that it is part 1 of 3, expected 1 of 1"), "{}", refusal("m.gguf"));
    std::fs::remove_file(place(&names[1])).unwrap();
    assert_eq!(
        refusal(&names[2]),
        "DIR/m-00003-of-00003.gguf is a part of a split file, and m-00002-of-00003.gguf is not beside it: fetch all parts \
         into one folder"
    );
}

#[test]
fn parts_with_the_same_tensor_are_refused() {
    let parts = split(TINY, 2);
    let mut again = split(TINY, 1).remove(0);
    // The second part holds all tensors.
    let at = again.windows(13).position(|window| window == b"split.count\x02\0").map(|at| at + 15).unwrap();
    again[at..at + 2].copy_from_slice(&2u16.to_le_bytes());
    let at = again.windows(10).position(|window| window == b"split.no\x02\0").map(|at| at + 12).unwrap();
    again[at..at + 2].copy_from_slice(&1u16.to_le_bytes());
    let folder = folder(&[("m-00001-of-00002.gguf", &parts[0]), ("m-00002-of-00002.gguf", &again)]);
    let opened = ModelFiles::gguf(folder.path().join("m-00001-of-00002.gguf")).and_then(Checkpoint::open);
    let refused = opened.err().unwrap().to_string();
    assert!(refused.contains("another part has the tensor "), "{refused}");
}

#[test]
fn a_folder_of_one_gguf_file_is_that_file() {
    let parts = split(TINY, 2);
    let location = |folder: &tempfile::TempDir| match resolve(folder.path().to_str().unwrap(), &hub()) {
        Ok(ModelLocation::Gguf(path)) => path.file_name().unwrap().to_str().unwrap().to_owned(),
        Ok(ModelLocation::Directory(_)) => "directory".to_owned(),
        other => other.unwrap_err().to_string().replace(folder.path().to_str().unwrap(), "DIR"),
    };
    assert_eq!(location(&folder(&[("m.gguf", TINY), ("mmproj-m.gguf", TINY), ("README.md", b"")])), "m.gguf");
    let split = folder(&[("m-00001-of-00002.gguf", &parts[0]), ("m-00002-of-00002.gguf", &parts[1])]);
    assert_eq!(location(&split), "m-00001-of-00002.gguf");
    assert_eq!(location(&folder(&[("m.gguf", TINY), ("model.safetensors", b"")])), "directory");
    assert_eq!(location(&folder(&[("config.json", b"{}")])), "directory");
    let several = folder(&[("a-Q4_0.gguf", &TINY[..2000]), ("b-Q8_0.gguf", &TINY[..3000])]);
    assert_eq!(
        location(&several),
        "DIR has several GGUF files, a-Q4_0.gguf (2.0 KiB), b-Q8_0.gguf (2.9 KiB): name one of its files"
    );
}
