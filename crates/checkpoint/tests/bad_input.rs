//! Broken and hostile files: each is one line that says what is wrong, and never a panic.

use std::{fs, path::PathBuf, time::Instant};

use demask_checkpoint::{
    Checkpoint, CheckpointError, HubOptions, Message, ModelFiles, ModelLocation, RenderOptions, ShardIndex, Warning,
    resolve,
};
use serde_json::{Map, Value, json};

/// A copy of a checkpoint that a test may break; it is removed at the end.
pub struct Broken(PathBuf);

impl Broken {
    pub fn of(folder: &str, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("demask-bad-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap().path();
            fs::write(path.join(entry.file_name().unwrap()), fs::read(&entry).unwrap()).unwrap();
        }
        Self(path)
    }

    pub fn write(&self, file: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), contents).unwrap();
    }

    pub fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.0.join(file)).unwrap()).unwrap();
        change(&mut value);
        self.write(file, value.to_string());
    }

    /// Changes the header of a safetensors file and leaves its data.
    pub fn edit_header(&self, file: &str, change: impl FnOnce(&mut Map<String, Value>)) {
        let bytes = fs::read(self.0.join(file)).unwrap();
        let length = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..length]).unwrap();
        change(&mut header);
        let text = Value::from(header).to_string();
        let prefix = (text.len() as u64).to_le_bytes();
        self.write(file, [&prefix, text.as_bytes(), &bytes[length..]].concat());
    }

    /// The files.
    pub fn files(&self) -> ModelFiles {
        ModelFiles::directory(&self.0).unwrap()
    }

    /// The directory.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    fn open(&self) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::open(ModelFiles::directory(&self.0)?)
    }

    /// The message of opening it, without the directory.
    fn message(&self) -> String {
        let message = self.open().err().expect("it should be refused").to_string();
        assert!(!message.contains('\n') && message.len() < 700, "{message}");
        message.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const EMBEDDING: &str = "model.transformer.wte.weight";

fn llada(name: &str) -> Broken {
    Broken::of("golden/ckpt/tiny-llada", name)
}

fn qwen(name: &str) -> Broken {
    Broken::of("golden/ckpt/tiny-qwen2", name)
}

/// The meaning of an argument; no hub is asked.
fn resolved(argument: &str) -> Result<ModelLocation, CheckpointError> {
    resolve(argument, &HubOptions::new("http://127.0.0.1:1", "/nowhere"))
}

#[test]
fn no_such_model() {
    let expected = "no model at \"nowhere\": expected a directory with config.json and safetensors, a GGUF file, or a hub id org/name";
    assert_eq!(resolved("nowhere").unwrap_err().to_string(), expected);
    assert_eq!(ModelFiles::directory("nowhere").unwrap_err().to_string(), expected);
    for argument in ["", "/no/where", "../x/y", "a/b/c", "a b/c", "a/.b", "a/b@", "a/b@../x"] {
        assert!(matches!(resolved(argument), Err(CheckpointError::NoSuchModel { .. })), "{argument}");
    }
    assert!(format!("{:?}", resolved("org/name@v1").unwrap()).contains("v1"));
    assert!(matches!(resolved("m.GGUF"), Err(CheckpointError::NoSuchModel { .. })));
    let broken = llada("file");
    let path = broken.0.join(WEIGHTS);
    assert!(resolved(path.to_str().unwrap()).unwrap_err().to_string().contains("or the directory that holds it"));
}

#[test]
fn directory_without_config_or_weights() {
    let broken = llada("no-config");
    fs::remove_file(broken.0.join("config.json")).unwrap();
    let expected = "config.json is missing: expected a model directory in Hugging Face layout, with config.json beside the weights";
    assert_eq!(broken.message(), expected);
    let broken = llada("no-weights");
    fs::remove_file(broken.0.join(WEIGHTS)).unwrap();
    assert!(broken.message().starts_with("model.safetensors is missing: expected it, or model.safetensors.index.json"));
}

#[test]
fn unknown_and_foreign_architectures() {
    let known = "LLaDAModelLM, DreamModel, SDARForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM, \
                 StableDiffcoderForCausalLM, A2DQwen2LMHeadModel, A2DQwen3LMHeadModel, Fast_dLLM_QwenForCausalLM, \
                 NemotronLabsDiffusionModel, LLaDAMoEModelLM, SDARMoeForCausalLM, LLaDA2MoeModelLM, RND1LM";
    for (architectures, model_type, expected) in [
        (json!(["GPT2LMHeadModel"]), json!("llada"), format!("config.json: unknown architecture \"GPT2LMHeadModel\", expected one of {known}; use a model of one of these")),
        (Value::Null, json!("gpt\n2"), format!("config.json: unknown architecture \"gpt\\n2\", expected one of {known}; use a model of one of these")),
        (json!(["LLaDAMoEModelLM"]), json!("llada"), "config.json: the key \"dense_intermediate_size\" is missing, expected a positive whole number; add it to the file".to_owned()),
        (Value::Null, json!("llada2_moe"), "config.json: the key \"partial_rotary_factor\" is missing, expected the part of each head that is turned, such as 0.5; add it to the file".to_owned()),
        (Value::Null, Value::Null, "config.json: the key \"architectures\" is missing, expected a list with the name of the architecture; add it to the file".to_owned()),
        (json!([7]), Value::Null, "config.json: \"architectures\" is 7, expected the name of an architecture; correct the file or fetch it again".to_owned()),
    ] {
        let broken = llada("architecture");
        broken.edit("config.json", |config| {
            config["architectures"] = architectures;
            config["model_type"] = model_type;
        });
        assert_eq!(broken.message(), expected);
    }
    let broken = llada("type-only");
    broken.edit("config.json", |config| config["architectures"] = Value::Null);
    broken.open().unwrap();
}

#[test]
fn config_that_is_not_json() {
    for text in ["", "{", "{\"d_model\": 64", "not json", "\u{0}\u{1}", "{\"a\": NaN}"] {
        let broken = llada("json");
        broken.write("config.json", text);
        let message = broken.message();
        assert!(
            message.starts_with("config.json is not valid JSON (") && message.ends_with("fetch it again"),
            "{message}"
        );
    }
    let broken = llada("list");
    broken.write("config.json", "[1]");
    assert_eq!(
        broken.message(),
        "config.json is not valid JSON (expected an object): the download may be cut off; fetch it again"
    );
    broken.write("config.json", "[".repeat(100_000));
    assert!(broken.message().contains("recursion limit"));
}

#[test]
fn config_with_a_key_missing_or_absurd() {
    let missing =
        |key: &str, what: &str| format!("config.json: the key {key:?} is missing, expected {what}; add it to the file");
    for key in ["d_model", "n_layers", "n_heads", "vocab_size", "max_sequence_length"] {
        let broken = llada("missing");
        broken.edit("config.json", |config| drop(config.as_object_mut().unwrap().remove(key)));
        assert_eq!(broken.message(), missing(key, "a positive whole number"));
    }
    for (key, what) in
        [("rope_theta", "a positive number"), ("rms_norm_eps", "a positive number"), ("weight_tying", "true or false")]
    {
        let broken = llada("missing");
        broken.edit("config.json", |config| drop(config.as_object_mut().unwrap().remove(key)));
        assert_eq!(broken.message(), missing(key, what));
    }
    let bad = |key: &str, found: &str, what: &str| {
        format!("config.json: {key:?} is {found}, expected {what}; correct the file or fetch it again")
    };
    for (key, value, expected) in [
        ("d_model", json!(0), bad("d_model", "0", "a whole number from 1 to 1048576")),
        ("d_model", json!(-4), bad("d_model", "-4", "a whole number from 1 to 1048576")),
        ("d_model", json!("64"), bad("d_model", "\"64\"", "a whole number from 1 to 1048576")),
        ("n_layers", json!(u64::MAX), bad("n_layers", "18446744073709551615", "a whole number from 1 to 1024")),
        ("n_layers", json!(1e300), bad("n_layers", "1e+300", "a whole number from 1 to 1024")),
        ("vocab_size", json!(1_u64 << 40), bad("vocab_size", "1099511627776", "a whole number from 1 to 16777216")),
        ("n_heads", json!(5), bad("n_heads", "5", "a divisor of the hidden width 64")),
        ("n_heads", json!(64), bad("n_kv_heads", "4", "")),
        ("n_kv_heads", json!(3), bad("n_kv_heads", "3", "a divisor of the 4 query heads")),
        ("rope_theta", json!(0.0), bad("rope_theta", "0.0", "a positive number")),
        ("embedding_size", json!(300), bad("embedding_size", "300", "at least vocab_size, 320")),
        ("mask_token_id", json!(-1), bad("mask_token_id", "-1", "a token id")),
        ("weight_tying", json!(1), bad("weight_tying", "1", "true or false")),
    ] {
        let broken = llada("absurd");
        broken.edit("config.json", |config| config[key] = value.clone());
        let message = broken.message();
        // 64 heads of one number each: refused for the width of a head.
        let expected =
            if value == json!(64) { bad("head_dim", "1", "an even head width of at most 1024") } else { expected };
        assert_eq!(message, expected, "{key}");
    }
    let broken = qwen("divide");
    broken.edit("config.json", |config| config["num_attention_heads"] = json!(6));
    assert_eq!(broken.message(), bad("num_attention_heads", "6", "a divisor of the hidden width 64"));
}

#[test]
fn variants_that_are_not_computed_are_refused_by_name() {
    let llada_cases = [
        ("activation_type", json!("swiglu")),
        ("block_type", json!("sequential")),
        ("layer_norm_type", json!("default")),
        ("alibi", json!(true)),
        ("rope", json!(false)),
        ("input_emb_norm", json!(true)),
        ("scale_logits", json!(true)),
        ("attention_layer_norm", json!(true)),
        ("include_bias", json!(true)),
        ("bias_for_layer_norm", json!(true)),
        ("layer_norm_with_affine", json!(false)),
        ("block_group_size", json!(2)),
        ("clip_qkv", json!(8)),
    ];
    let qwen_cases = [
        ("hidden_act", json!("gelu")),
        ("use_sliding_window", json!(true)),
        ("layer_types", json!(["sliding_attention"])),
        ("rope_scaling", json!({"type": "longrope", "factor": 4.0})),
        ("rope_parameters", json!({"rope_type": "dynamic", "rope_theta": 1e6})),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("mlp_bias", json!(true)),
    ];
    let check = |broken: Broken, key: &str, value: Value| {
        broken.edit("config.json", |config| {
            config[key] = value;
            if key == "use_sliding_window" {
                config["sliding_window"] = json!(4096);
            }
        });
        let message = broken.message();
        assert!(message.starts_with("config.json: ") && message.contains(" is not supported; "), "{key}: {message}");
    };
    for (key, value) in llada_cases {
        check(llada("variant"), key, value);
    }
    for (key, value) in qwen_cases {
        check(qwen("variant"), key, value);
    }
}

#[test]
fn missing_tensor() {
    let broken = llada("tensor");
    broken.edit_header(WEIGHTS, |header| drop(header.remove("model.transformer.blocks.1.ff_out.weight")));
    let expected = "model.safetensors: the tensor \"model.transformer.blocks.1.ff_out.weight\" is missing, which config.json's architecture needs; fetch the weights again";
    assert_eq!(broken.message(), expected);
}

#[test]
fn misshapen_tensor() {
    let broken = llada("shape");
    broken.edit_header(WEIGHTS, |header| header[EMBEDDING]["shape"] = json!([64, 320]));
    let expected = "model.safetensors: the tensor \"model.transformer.wte.weight\" has shape [64, 320], config.json says [320, 64]; are both of the same model?";
    assert_eq!(broken.message(), expected);
    let broken = llada("layers");
    broken.edit("config.json", |config| config["mlp_hidden_size"] = json!(128));
    assert!(broken.message().contains("has shape [160, 64], config.json says [128, 64]"));
}

#[test]
fn wrongly_typed_tensor() {
    for (dtype, shown) in [("I32", "I32"), ("NEW\nTYPE", "NEW\\nTYPE")] {
        let broken = llada("type");
        broken.edit_header(WEIGHTS, |header| header[EMBEDDING]["dtype"] = json!(dtype));
        let expected = format!(
            "model.safetensors: the tensor \"model.transformer.wte.weight\" has type \"{shown}\", expected F32, F16 or BF16; use an unquantised checkpoint"
        );
        assert_eq!(broken.message(), expected);
    }
}

#[test]
fn unexpected_tensors_are_named_once_and_known_buffers_not_at_all() {
    let broken = llada("unexpected");
    broken.edit_header(WEIGHTS, |header| {
        for name in ["extra.weight", "model.transformer.blocks.0.rotary_emb.inv_freq"] {
            header.insert(name.to_owned(), json!({"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}));
        }
    });
    let checkpoint = broken.open().unwrap();
    assert_eq!(checkpoint.weights().unexpected(), ["extra.weight"]);
    assert_eq!(checkpoint.warnings(), [Warning::UnexpectedTensors { names: vec!["extra.weight".to_owned()] }]);
    let expected = "the tensor \"extra.weight\" is not part of the architecture and is not read";
    assert_eq!(checkpoint.warnings()[0].to_string(), expected);
}

#[test]
fn names_without_the_outer_prefix_are_read_too() {
    let broken = qwen("prefix");
    broken.edit_header(WEIGHTS, |header| {
        *header =
            header.iter().map(|(name, info)| (name.trim_start_matches("model.").to_owned(), info.clone())).collect();
    });
    broken.open().unwrap();
}

#[test]
fn a_config_that_does_not_say_tied_is_settled_by_the_weights() {
    let broken = qwen("tied");
    broken.edit("config.json", |config| drop(config.as_object_mut().unwrap().remove("tie_word_embeddings")));
    assert!(broken.open().unwrap().spec().tied);
}

#[test]
fn truncated_safetensors() {
    let broken = llada("truncated");
    let whole = fs::read(broken.0.join(WEIGHTS)).unwrap();
    for length in [0, 1, 7, 8, 9, 100, 5000, whole.len() / 2, whole.len() - 1] {
        broken.write(WEIGHTS, &whole[..length]);
        let message = broken.message();
        assert!(message.starts_with("model.safetensors is not a whole safetensors file: it"), "{length}: {message}");
        assert!(message.ends_with("; fetch it again"), "{message}");
    }
    assert!(broken.message().contains("it is cut off: the tensor "));
}

#[test]
fn overlapping_and_reversed_offsets() {
    let broken = llada("overlap");
    broken.edit_header(WEIGHTS, |header| {
        let place = header["model.transformer.ln_f.weight"]["data_offsets"].clone();
        header["model.transformer.blocks.0.attn_norm.weight"]["data_offsets"] = place;
    });
    let message = broken.message();
    assert!(
        message
            .contains("\"model.transformer.blocks.0.attn_norm.weight\" and \"model.transformer.ln_f.weight\" overlap"),
        "{message}"
    );
    let broken = llada("reversed");
    broken.edit_header(WEIGHTS, |header| header[EMBEDDING]["data_offsets"] = json!([100, 8]));
    assert!(broken.message().contains("starts at 100 and ends before, at 8"));
    let broken = llada("size");
    broken.edit_header(WEIGHTS, |header| header[EMBEDDING]["shape"] = json!([u64::MAX, u64::MAX]));
    assert!(broken.message().contains("bytes, which is not what its shape needs"));
}

#[test]
fn header_of_absurd_size_or_not_json() {
    let broken = llada("header");
    let cases: [(&[u8], &str); 6] = [
        (&[0xff; 16], "its header claims 18446744073709551615 bytes, expected at most 100000000"),
        (b"\xff\xff\0\0\0\0\0\0{}", "its header claims 65535 bytes, but the file has only 10"),
        (b"\x05\0\0\0\0\0\0\0hello", "its header is not the JSON that was expected ("),
        (b"\x02\0\0\0\0\0\0\0[]", "its header is not the JSON that was expected ("),
        (b"\x0a\0\0\0\0\0\0\0{\"a\": 123}", "its header is not the JSON that was expected (tensor \"a\": "),
        (b"\x04\0\0\0\0\0\0\0\xff\xfe{}", "its header is not the JSON that was expected ("),
    ];
    for (bytes, expected) in cases {
        broken.write(WEIGHTS, bytes);
        let message = broken.message();
        assert!(
            message.starts_with(&format!("model.safetensors is not a whole safetensors file: {expected}")),
            "{message}"
        );
    }
    let twice =
        br#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    broken.write(WEIGHTS, [&(twice.len() as u64).to_le_bytes(), twice.as_slice()].concat());
    assert!(broken.message().contains("the tensor \"a\" occurs twice"));
}

#[test]
fn shards_that_are_not_there_or_elsewhere() {
    let sharded = |name: &str| Broken::of("golden/ckpt/tiny-llada-sharded", name);
    let broken = sharded("shard");
    fs::remove_file(broken.0.join("model-00002-of-00002.safetensors")).unwrap();
    let expected = "model.safetensors.index.json names the shard \"model-00002-of-00002.safetensors\", which is not there; fetch it, or the whole model, again";
    assert_eq!(broken.message(), expected);
    let broken = sharded("outside");
    broken.edit(INDEX, |index| index["weight_map"][EMBEDDING] = json!("../../secret.safetensors"));
    let expected = format!(
        "model.safetensors.index.json: \"weight_map.{EMBEDDING}\" is \"../../secret.safetensors\", expected the name of a safetensors file beside the index; correct the file or fetch it again"
    );
    assert_eq!(broken.message(), expected);
    let broken = sharded("swapped");
    let mut other = String::new();
    broken.edit(INDEX, |index| {
        let number = if index["weight_map"][EMBEDDING].as_str().unwrap().contains("00001-of") { 2 } else { 1 };
        other = format!("model-0000{number}-of-00002.safetensors");
        index["weight_map"][EMBEDDING] = other.as_str().into();
    });
    assert!(broken.message().starts_with(&format!("{other}: the tensor \"{EMBEDDING}\" is missing")));
    let broken = sharded("no-map");
    broken.write(INDEX, "{}");
    assert!(broken.message().contains("the key \"weight_map\" is missing"));
    assert!(ShardIndex::parse(b"{\"weight_map\": {}}", "index").unwrap().shards().is_empty());
    broken.write(INDEX, r#"{"weight_map": {}}"#);
    assert!(broken.message().contains("model.transformer.wte.weight\" is missing"));
}

#[test]
fn mask_out_of_range_or_absent() {
    let broken = llada("mask");
    broken.edit("config.json", |config| config["mask_token_id"] = json!(320));
    assert_eq!(
        broken.message(),
        "config.json: the mask token is 320, expected an id below 320, the rows of the embedding; correct it"
    );
    broken.edit("config.json", |config| config["mask_token_id"] = Value::Null);
    assert_eq!(
        broken.message(),
        "config.json: no mask token: expected \"mask_token_id\" there or in the tokenizer; add it to config.json"
    );
    broken.edit("generation_config.json", |config| config["mask_token_id"] = json!(311));
    assert_eq!(broken.open().unwrap().special().mask, Some(311));
    broken.edit("config.json", |config| config["eos_token_id"] = json!(9999));
    let checkpoint = broken.open().unwrap();
    assert_eq!(
        checkpoint.warnings()[0].to_string(),
        "the end-of-text token 9999 has no row in the embedding and is not used"
    );
    assert_eq!(checkpoint.special().stop, [307]);
}

/// An I-DLM needs its mask, and what tells it from an SDAR must be readable.
#[test]
fn an_i_dlm_without_a_mask_or_with_unreadable_signs() {
    let broken = Broken::of("golden/ckpt/idlm-toy", "i-dlm");
    for (key, value, told) in [
        (
            "mask_token_id",
            json!(96),
            "the mask token is 96, expected an id below 96, the rows of the embedding; correct it",
        ),
        ("mask_token_id", Value::Null, "no mask token: expected \"mask_token_id\" there or in the tokenizer; add it"),
        ("use_regular_causal", json!("yes"), "\"use_regular_causal\" is \"yes\", expected true or false"),
        ("block_size", json!(0), "\"block_size\" is 0, expected a whole number from 1 to 65536"),
        ("eos_token_id", json!("end"), "\"eos_token_id\" is \"end\", expected a token id"),
    ] {
        let broken = Broken::of("golden/ckpt/idlm-toy", &format!("i-dlm-{key}"));
        broken.edit("config.json", |config| config[key] = value);
        let message = broken.message();
        assert!(message.starts_with("config.json: ") && message.contains(told), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    assert_eq!(broken.open().unwrap().special().mask, Some(93));
}

#[test]
fn vocabulary_larger_than_the_embedding() {
    let broken = Broken::of("golden/ckpt/tiny-llada", "vocabulary");
    let demo = Broken::of("demo/demo-llada", "vocabulary-source");
    broken.write("tokenizer.json", fs::read(demo.0.join("tokenizer.json")).unwrap());
    let expected =
        "tokenizer.json: the tokenizer has ids up to 488, the embedding only 320 rows; are both of the same model?";
    assert_eq!(broken.message(), expected);
}

#[test]
fn broken_tokenizers() {
    let demo = |name: &str| Broken::of("demo/demo-llada", name);
    for (index, text) in
        ["", "{}", "[]", "{\"model\": 7}", "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}"]
            .iter()
            .enumerate()
    {
        let broken = demo(&format!("tokenizer-{index}"));
        broken.write("tokenizer.json", text);
        let message = broken.message();
        assert!(
            message.starts_with("tokenizer.json: the tokenizer is broken: ") && message.ends_with("; fetch it again"),
            "{message}"
        );
    }
    let changes: [fn(&mut Value); 5] = [
        |tokenizer| tokenizer["model"]["merges"] = json!(["no such"]),
        |tokenizer| tokenizer["added_tokens"][0]["id"] = json!(4_000_000_000_u32),
        |tokenizer| tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("(unclosed"),
        |tokenizer| tokenizer["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        |tokenizer| tokenizer["model"]["vocab"] = json!({"a": -1}),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let broken = demo(&format!("tokenizer-change-{index}"));
        broken.edit("tokenizer.json", change);
        let message = broken.message();
        assert!(message.starts_with("tokenizer.json: the tokenizer is broken: "), "{index}: {message}");
    }
    // Padding to an absurd length is not obeyed.
    let broken = demo("padding");
    broken.edit("tokenizer.json", |tokenizer| {
        tokenizer["padding"] = json!({"strategy": {"Fixed": 1_000_000_000_000_u64}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"});
    });
    let ids = broken.open().unwrap().tokenizer().unwrap().encode("1 2", false).unwrap();
    assert!(ids.len() < 10);
    // vocab.json without its merges.
    let broken = demo("merges");
    fs::remove_file(broken.0.join("tokenizer.json")).unwrap();
    broken.write("vocab.json", "{\"a\": 0}");
    assert_eq!(broken.message(), "merges.txt is missing: vocab.json needs it; fetch it, or a tokenizer.json");
    for (vocabulary, merges) in [("[]", "a b"), ("{\"a\": 0}", "a b"), ("{\"a\": 0}", "a"), ("{\"a\": \"x\"}", "")] {
        broken.write("vocab.json", vocabulary);
        broken.write("merges.txt", merges);
        let message = broken.message();
        assert!(message.starts_with("vocab.json: the tokenizer is broken: "), "{message}");
    }
    let broken = demo("settings");
    broken.write("tokenizer_config.json", "{");
    assert!(broken.message().starts_with("tokenizer_config.json is not valid JSON ("));
}

/// The message of rendering with a template, without the directory.
fn rendering(source: &str) -> String {
    let broken = Broken::of("demo/demo-llada", &format!("template-{}", source.len()));
    broken.write("chat_template.jinja", source);
    let checkpoint = broken.open().unwrap();
    let result = checkpoint.template().render(&[Message::new("user", "Hi")], &RenderOptions::default());
    let message = result.expect_err(source).to_string();
    assert!(!message.contains(&*broken.0.to_string_lossy()), "{message}");
    assert!(!message.contains('\n') && message.len() < 700, "{message}");
    message
}

/// The message of opening a model with a template.
fn opening(source: &str) -> String {
    let broken = Broken::of("demo/demo-llada", &format!("opened-{}", source.len()));
    broken.write("chat_template.jinja", source);
    broken.message()
}

#[test]
fn template_that_loops_for_ever_ends_the_load() {
    let start = Instant::now();
    let source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    let fault = "the chat template runs for ever or takes too much memory in line 1";
    let end = "correct the template, or omit it: the family has one";
    assert_eq!(opening(source), format!("chat_template.jinja: {fault}; {end}"));
    assert_eq!(opening("{{ 'a' * 100000000000 }}"), format!("chat_template.jinja: {fault}; {end}"));
    // What loops for one conversation alone is an error of that one.
    let rare = format!("{{% if messages[0].content == 'Hi' and not messages[1] %}}{source}{{% endif %}}");
    let rare = rare.replace("'Hi'", "'Hi!'");
    let broken = Broken::of("demo/demo-llada", "template-rare");
    broken.write("chat_template.jinja", rare);
    let opened = broken.open().unwrap();
    let result = opened.template().render(&[Message::new("user", "Hi!")], &RenderOptions::default());
    let expected = "the model's chat template runs for ever or takes too much memory in line 1; correct the conversation, or give the prompt raw";
    assert_eq!(result.unwrap_err().to_string(), expected);
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn template_that_raises_an_exception() {
    let expected = "the model's chat template refuses the conversation: roles must alternate";
    assert_eq!(rendering("\n{{ raise_exception('roles must\n alternate') }}"), expected);
    assert!(rendering("{{ messages[0].content.no_such() }}").contains("the model's chat template fails: "));
    assert!(rendering("{% include 'other' %}").contains("does not parse: unknown statement include"));
}

#[test]
fn template_that_does_not_parse() {
    let message = rendering("{% for %}");
    assert!(
        message.starts_with("the model's chat template does not parse: ") && message.contains("in line 1"),
        "{message}"
    );
    rendering(&format!("{{{{ {} }}}}", "(".repeat(100_000)));
    rendering(&"{% if a %}".repeat(20_000));
    // It opens all the same, with a warning: a raw prompt needs no template.
    let broken = Broken::of("demo/demo-llada", "template-warning");
    broken.write("chat_template.jinja", "{% for %}");
    let checkpoint = broken.open().unwrap();
    assert!(checkpoint.warnings()[0].to_string().contains("does not parse"));
}

#[test]
fn template_that_nests_without_end_does_not_overflow_the_stack() {
    for body in ["[ns.x]", "{'a': ns.x}", "ns.x + [1]", "(ns.x, 1)"] {
        let source = format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(99999) %}}{{% set ns.x = {body} %}}{{% endfor %}}{{{{ ns.x | tojson }}}}"
        );
        assert!(opening(&source).contains("runs for ever"), "{body}");
        let broken = Broken::of("demo/demo-llada", "nested");
        broken.write("chat_template.jinja", source.replace("99999", "9000"));
        // Whatever it answers, it answers.
        let _ = broken.open();
    }
}

#[test]
fn templates_of_a_wrong_kind() {
    let broken = Broken::of("demo/demo-llada", "template-kind");
    broken.edit("tokenizer_config.json", |settings| settings["chat_template"] = json!(7));
    let expected = "tokenizer_config.json: \"chat_template\" is 7, expected a text, or a list of objects with name and template; correct the file or fetch it again";
    assert_eq!(broken.message(), expected);
    broken.edit("tokenizer_config.json", |settings| {
        settings["chat_template"] =
            json!([{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}x"}]);
    });
    let checkpoint = broken.open().unwrap();
    assert_eq!(checkpoint.template().render(&[], &RenderOptions::default()).unwrap(), "<|startoftext|>x");
}

#[test]
fn normalizers_that_grow_without_bound() {
    let broken = Broken::of("demo/demo-llada", "normalizer");
    broken.edit("tokenizer.json", |tokenizer| {
        let step = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"});
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [step, step, step, step, step, step]});
    });
    let message = broken.message();
    let expected =
        "tokenizer.json: the tokenizer is broken: its normalizer can make 1000000 bytes of one, expected at most 64: ";
    assert!(message.starts_with(expected) && !message.contains('\n'), "{message}");
}

#[test]
#[cfg(unix)]
fn things_that_are_not_files() {
    let broken = llada("links");
    fs::remove_file(broken.0.join("config.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", broken.0.join("config.json")).unwrap();
    assert!(broken.message().contains("cannot read config.json: it is not a regular file"));
    assert!(std::path::Path::new("/dev/zero").exists());
}

#[test]
#[cfg(unix)]
fn links_that_lead_out_of_the_folder_are_refused() {
    use std::os::unix::fs::symlink;

    let outside = std::env::temp_dir().join(format!("demask-outside-{}", std::process::id()));
    let _ = fs::remove_dir_all(&outside);
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "the secret of this user").unwrap();
    for file in ["chat_template.jinja", "config.json", "tokenizer.json", "model.safetensors", "generation_config.json"]
    {
        let broken = Broken::of("demo/demo-llada", "links");
        let _ = fs::remove_file(broken.0.join(file));
        let up = PathBuf::from("..").join(outside.file_name().unwrap()).join("secret");
        symlink(outside.join("secret"), broken.0.join("inner")).unwrap();
        symlink(&outside, broken.0.join("folder")).unwrap();
        for target in [outside.join("secret"), up, PathBuf::from("inner"), PathBuf::from("folder/secret")] {
            let _ = fs::remove_file(broken.0.join(file));
            symlink(target, broken.0.join(file)).unwrap();
            let (message, secret) = (broken.message(), outside.canonicalize().unwrap().join("secret"));
            let expected = format!("{file} is a link to {}, out of the model's folder", secret.display());
            assert!(message.starts_with(&expected), "{message}");
        }
    }
    let _ = fs::remove_dir_all(&outside);
}

#[test]
#[cfg(unix)]
fn links_inside_a_folder_to_it_and_to_a_hubs_contents_are_followed() {
    use std::os::unix::fs::symlink;

    let inside = Broken::of("demo/demo-llada", "inside");
    fs::create_dir(inside.0.join("data")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::rename(inside.0.join(file), inside.0.join("data").join(file)).unwrap();
        symlink(PathBuf::from("data").join(file), inside.0.join(file)).unwrap();
    }
    inside.open().unwrap();
    // The cache of a hub, its contents on another disk, and a link to the snapshot: each as people have it.
    let cache = Broken::of("demo/demo-llada", "cache");
    let (repository, blobs) = (cache.0.join("models--org--name"), cache.0.join("disk"));
    let snapshot = repository.join("snapshots/0123");
    for folder in [&snapshot, &blobs, &cache.0.join("models--org--other/blobs")] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(&blobs, repository.join("blobs")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::rename(cache.0.join(file), blobs.join(file)).unwrap();
        symlink(PathBuf::from("../../blobs").join(file), snapshot.join(file)).unwrap();
    }
    symlink(&snapshot, cache.0.join("mine")).unwrap();
    for folder in [&snapshot, &cache.0.join("mine")] {
        Checkpoint::open(ModelFiles::directory(folder).unwrap()).unwrap();
    }
    // Those of another repository are none of it.
    let other = cache.0.join("models--org--other/blobs/config.json");
    fs::copy(blobs.join("config.json"), &other).unwrap();
    fs::remove_file(snapshot.join("config.json")).unwrap();
    symlink("../../../models--org--other/blobs/config.json", snapshot.join("config.json")).unwrap();
    let message = Checkpoint::open(ModelFiles::directory(&snapshot).unwrap()).err().unwrap().to_string();
    assert!(message.contains("is a link to"), "{message}");
}

#[test]
#[cfg(unix)]
fn a_folder_that_cannot_be_read_says_so_and_not_that_its_files_are_missing() {
    use std::os::unix::fs::PermissionsExt;

    let broken = Broken::of("demo/demo-llada", "rights");
    // What was a folder when it was named is a file when it is read.
    let files = ModelFiles::directory(&broken.0).unwrap();
    fs::remove_dir_all(&broken.0).unwrap();
    fs::write(&broken.0, "").unwrap();
    let message = Checkpoint::open(files).err().unwrap().to_string();
    assert!(message.starts_with("cannot read ") && message.contains("Not a directory"), "{message}");
    fs::remove_file(&broken.0).unwrap();

    let broken = Broken::of("demo/demo-llada", "no-rights");
    fs::set_permissions(&broken.0, fs::Permissions::from_mode(0o000)).unwrap();
    let is_all_powerful = fs::read_dir(&broken.0).is_ok();
    let opened = broken.open();
    fs::set_permissions(&broken.0, fs::Permissions::from_mode(0o755)).unwrap();
    match opened {
        Ok(_) => assert!(is_all_powerful),
        Err(error) => assert!(error.to_string().contains("config.json: Permission denied"), "{error}"),
    }
}
