//! Configurations as released, in every spelling that occurs.

use std::path::Path;

use demask_checkpoint::{Checkpoint, CheckpointError, ModelConfig, ModelFiles, parse_config};
use demask_model::{ArchSpec, RopeScaling, expected_tensors};
use demask_step::Mask;
use demask_tensor::Share;
use serde_json::{Value, json};

fn parse(config: &Value) -> ModelConfig {
    try_parse(config).unwrap()
}

fn try_parse(config: &Value) -> Result<ModelConfig, CheckpointError> {
    parse_config(config.to_string().as_bytes(), "config.json")
}

/// LLaDA-8B's, with the keys that only training reads.
fn llada() -> Value {
    json!({
        "activation_type": "silu", "alibi": false, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0, "attention_layer_norm": false, "attention_layer_norm_with_affine": true,
        "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig"}, "bias_for_layer_norm": false,
        "block_group_size": 1, "block_type": "llama", "d_model": 4096, "embedding_dropout": 0.0,
        "embedding_size": 126_464, "eos_token_id": 126_081, "flash_attention": false, "include_bias": false,
        "include_qkv_bias": false, "init_cutoff_factor": null, "init_device": "meta", "init_fn": "mitchell",
        "init_std": 0.02, "input_emb_norm": false, "layer_norm_type": "rms", "layer_norm_with_affine": true,
        "mask_token_id": 126_336, "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4,
        "model_type": "llada", "multi_query_attention": null, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32,
        "pad_token_id": 126_081, "precision": "amp_bf16", "residual_dropout": 0.0, "rms_norm_eps": 1e-05,
        "rope": true, "rope_full_precision": true, "rope_theta": 500_000.0, "scale_logits": false,
        "transformers_version": "4.46.3", "use_cache": false, "vocab_size": 126_464, "weight_tying": false,
    })
}

fn hugging_face(architecture: &str, model_type: &str, widths: [u64; 7], extra: &Value) -> Value {
    let [hidden, ffn, layers, heads, kv_heads, vocabulary, context] = widths;
    let mut config = json!({
        "architectures": [architecture], "model_type": model_type, "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary, "max_position_embeddings": context, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
        "max_window_layers": 28, "attention_dropout": 0.0,
    });
    for (key, value) in extra.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn dream() -> Value {
    let extra = json!({"mask_token_id": 151_666, "eos_token_id": 151_643, "sliding_window": null, "use_mrope": false});
    hugging_face("DreamModel", "Dream", [3584, 18944, 28, 28, 4, 152_064, 131_072], &extra)
}

fn sdar(hidden: u64, ffn: u64, layers: u64, heads: u64) -> Value {
    let extra = json!({
        "head_dim": 128, "attention_bias": false, "rope_scaling": null, "attn_implementation": "flex_attention",
        "fuse_cross_entropy": true, "debug": false, "ep_size": 1, "eos_token_id": 151_643,
    });
    hugging_face("SDARForCausalLM", "sdar", [hidden, ffn, layers, heads, 8, 151_936, 32768], &extra)
}

fn qwen(hidden: u64, ffn: u64, layers: u64, heads: u64, kv_heads: u64) -> Value {
    let vocabulary = if hidden == 3584 { 152_064 } else { 151_936 };
    let extra = json!({"tie_word_embeddings": hidden != 3584, "sliding_window": 131_072, "use_sliding_window": false});
    hugging_face("Qwen2ForCausalLM", "qwen2", [hidden, ffn, layers, heads, kv_heads, vocabulary, 32768], &extra)
}

#[test]
fn released_models_have_the_released_numbers_of_parameters_and_tensors() {
    let cases = [
        (llada(), 8_015_581_184, 291),
        (dream(), 7_615_616_512, 339),
        (sdar(2048, 6144, 28, 16), 2_031_739_904, 311),
        (sdar(2560, 9728, 36, 32), 4_411_424_256, 399),
        (sdar(4096, 12288, 36, 32), 8_190_735_360, 399),
        (qwen(896, 4864, 24, 14, 2), 494_032_768, 290),
        (qwen(1536, 8960, 28, 12, 2), 1_543_714_304, 338),
        (qwen(2048, 11008, 36, 16, 2), 3_085_938_688, 434),
        (qwen(3584, 18944, 28, 28, 4), 7_615_616_512, 339),
    ];
    for (config, parameters, tensors) in cases {
        let spec = parse(&config).spec;
        assert_eq!(spec.parameters(), parameters, "{spec:?}");
        assert_eq!(expected_tensors(&spec).len(), tensors, "{spec:?}");
    }
}

#[test]
fn llada_is_read_by_its_own_names() {
    let config = parse(&llada());
    let spec = &config.spec;
    assert_eq!((spec.family, spec.head_dim, spec.ffn, spec.context), ("LLaDA", 128, 12288, 4096));
    assert_eq!((spec.rope.theta, spec.rope.rotated, spec.rope.full_precision), (5e5, 128, true));
    assert_eq!((spec.attention, spec.shift, spec.tied, spec.norm_epsilon), (Mask::Full, 0, false, 1e-5));
    assert_eq!(
        (config.tokens.mask, config.tokens.eos, config.tokens.pad),
        (Some(126_336), vec![126_081], Some(126_081))
    );
    let with = |changes: Value| {
        let mut config = llada();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        parse(&config)
    };
    assert_eq!(with(json!({"mlp_hidden_size": null})).spec.ffn, 16384);
    assert_eq!(with(json!({"embedding_size": null})).spec.vocabulary, 126_464);
    assert_eq!(with(json!({"embedding_size": 126_592})).spec.vocabulary, 126_592);
    assert_eq!(with(json!({"n_kv_heads": null})).spec.kv_heads, 32);
    assert_eq!(with(json!({"n_kv_heads": null, "multi_query_attention": true})).spec.kv_heads, 1);
    assert!(with(json!({"include_qkv_bias": true})).spec.qkv_bias);
    let warned = with(json!({"rope_scaling_factor": 4.0, "_name_or_path": "x"})).warnings;
    assert_eq!(warned[0].to_string(), "config.json: \"rope_scaling_factor\" has no effect on this architecture");
    // iLLaDA-8B: fewer K/V heads, tied.
    let widths = json!({"n_kv_heads": 8, "mlp_hidden_size": 14336, "vocab_size": 155_136, "embedding_size": 155_136, "weight_tying": true, "max_sequence_length": 8192});
    let spec = with(widths).spec;
    assert_eq!((spec.kv_heads, spec.kv_width(), spec.tied, spec.context), (8, 1024, true, 8192));
}

#[test]
fn blocks_head_widths_and_shifts_follow_the_family() {
    let spec = parse(&sdar(2560, 9728, 36, 32)).spec;
    assert_eq!((spec.head_dim, spec.query_width(), spec.attention, spec.shift), (128, 4096, Mask::blocks(4), 0));
    assert!(spec.head_norms && !spec.qkv_bias);
    let mut config = sdar(2560, 9728, 36, 32);
    config["block_size"] = json!(16);
    assert_eq!(parse(&config).spec.attention, Mask::blocks(16));
    let spec = parse(&dream()).spec;
    assert_eq!((spec.head_dim, spec.attention, spec.shift, spec.qkv_bias), (128, Mask::Full, 1, true));
    let spec = parse(&qwen(896, 4864, 24, 14, 2)).spec;
    assert_eq!((spec.head_dim, spec.attention, spec.shift, spec.tied), (64, Mask::Causal, 1, true));
}

#[test]
fn both_spellings_of_transformers_are_read() {
    let old = parse(&qwen(1536, 8960, 28, 12, 2));
    let mut config = qwen(1536, 8960, 28, 12, 2);
    let map = config.as_object_mut().unwrap();
    map.remove("rope_theta");
    map.remove("torch_dtype");
    map.insert("dtype".to_owned(), json!("bfloat16"));
    map.insert("layer_types".to_owned(), json!(["full_attention", "full_attention"]));
    map.insert("rope_parameters".to_owned(), json!({"rope_type": "default", "rope_theta": 1_000_000.0}));
    assert_eq!(parse(&config), old);
    config["rope_parameters"]["partial_rotary_factor"] = json!(0.5);
    assert_eq!(parse(&config).spec.rope.rotated, 64);
    config["rope_parameters"]["partial_rotary_factor"] = json!(0.001);
    assert!(try_parse(&config).unwrap_err().to_string().contains("partial_rotary_factor"));
}

#[test]
fn llama_3_has_its_own_scaling() {
    let scaling = json!({
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let extra = json!({"rope_scaling": scaling, "rope_theta": 500_000.0, "head_dim": 64, "tie_word_embeddings": true,
        "attention_bias": false, "mlp_bias": false, "eos_token_id": [128_001, 128_008, 128_009], "rms_norm_eps": 1e-5});
    let config = hugging_face("LlamaForCausalLM", "llama", [2048, 8192, 16, 32, 8, 128_256, 131_072], &extra);
    let parsed = parse(&config);
    let ArchSpec { rope, head_dim, shift, .. } = parsed.spec;
    let expected = RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original_context: 8192.0 };
    assert_eq!((rope.scaling, head_dim, shift), (expected, 64, 1));
    assert_eq!(parsed.tokens.eos, [128_001, 128_008, 128_009]);
    let mut broken = config;
    broken["rope_scaling"].as_object_mut().unwrap().remove("low_freq_factor");
    let expected = "config.json: the key \"rope_scaling.low_freq_factor\" is missing, expected a positive number; add it to the file";
    assert_eq!(try_parse(&broken).unwrap_err().to_string(), expected);
}

/// What YaRN leaves open follows from the rest, as in transformers.
#[test]
fn yarn_says_little_and_means_more() {
    let yarn = |scaling: Value| {
        let extra = json!({"rope_scaling": scaling});
        let config = hugging_face("Qwen2ForCausalLM", "qwen2", [896, 4864, 24, 14, 2, 151_936, 32768], &extra);
        try_parse(&config).map(|parsed| parsed.spec.rope.scaling).map_err(|error| error.to_string())
    };
    let Ok(RopeScaling::Yarn { factor, amplitude, fast, slow, whole, .. }) =
        yarn(json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}))
    else {
        panic!("no YaRN");
    };
    assert_eq!((factor, fast, slow, whole), (4.0, 32.0, 1.0, true));
    assert!((amplitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    let Ok(RopeScaling::Yarn { factor, amplitude, .. }) =
        yarn(json!({"rope_type": "yarn", "original_max_position_embeddings": 16384, "attention_factor": 1.5}))
    else {
        panic!("no YaRN");
    };
    assert_eq!((factor, amplitude), (2.0, 1.5));
    let refused = yarn(json!({"type": "yarn", "factor": 4.0, "beta_fast": 1.0, "beta_slow": 2.0})).unwrap_err();
    assert_eq!(
        refused,
        "config.json: \"rope_scaling.beta_fast\" is 1.0, expected at least beta_slow, 2; correct the file or fetch it again"
    );
}

#[test]
fn what_no_code_computes_is_refused() {
    let refused = |change: Value| {
        let mut config = json!({
            "architectures": ["NemotronLabsDiffusionModel"], "hidden_size": 48, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "vocab_size": 224, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        });
        for (key, value) in change.as_object().unwrap() {
            config[key] = value.clone();
        }
        try_parse(&config).unwrap_err().to_string()
    };
    let paradigm = refused(json!({"dlm_paradigm": "autoregressive"}));
    assert!(paradigm.contains("dlm_paradigm \"autoregressive\" (only \"bidirectional\" is)"), "{paradigm}");
    let shifted = refused(json!({"dlm_type": "dream"}));
    assert!(shifted.contains("dlm_type \"dream\" (only \"llada\" is)"), "{shifted}");
    assert!(refused(json!({"sliding_window": 4096})).contains("a sliding window"));
}

/// `architectures` says Llama or Qwen2, and something else says more.
#[test]
fn relatives_are_told_by_their_signs() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let open = |name: &str, family: Option<&str>| {
        let files = ModelFiles::directory(golden.join(name)).unwrap();
        Checkpoint::open(files.of_family(family.map(|family| family.parse().unwrap()))).unwrap()
    };
    let told = |checkpoint: &Checkpoint| {
        checkpoint.warnings().iter().map(ToString::to_string).find(|told| told.contains("it is taken for"))
    };
    let open_dcoder = open("dense-opendcoder-toy", None);
    assert_eq!((open_dcoder.family().name(), open_dcoder.special().mask), ("Open-dCoder", Some(260)));
    assert_eq!(
        told(&open_dcoder).unwrap(),
        "it is taken for Open-dCoder, because its tokenizer names the mask token \"<M>\"; `--family` names another one"
    );
    let qwen = open("dense-opendcoder-toy", Some("qwen2"));
    assert_eq!((qwen.family().name(), qwen.special().mask, told(&qwen)), ("Qwen2", None, None));
    let blocks = open("dense-a2d-qwen3-bd3lm-toy", None);
    assert_eq!(blocks.spec().attention, Mask::blocks(32));
    assert!(told(&blocks).unwrap().contains("its name contains \"bd3lm\""));
    let whole = open("dense-a2d-qwen2-mdlm-toy", None);
    assert_eq!(whole.spec().attention, Mask::Full);
    assert!(told(&whole).unwrap().contains("its name does not contain \"bd3lm\""));
    let chosen = open("dense-a2d-qwen2-mdlm-toy", Some("a2d-qwen2:block=16"));
    assert_eq!((chosen.spec().attention, told(&chosen)), (Mask::blocks(16), None));
    let coder = open("dense-stablediffcoder-toy", None);
    assert_eq!((coder.family().name(), coder.special().mask), ("Stable-DiffCoder", Some(5)));
}

/// The signs of an I-DLM in their order: a key of its file, its name, its blocks.
#[test]
fn an_i_dlm_is_no_sdar_whose_class_it_bears() {
    let read = |changes: Value| {
        let mut config = sdar(4096, 12288, 36, 32);
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        let ModelConfig { family, spec, warnings, .. } = try_parse(&config).unwrap();
        assert_eq!((family.name(), spec.head_norms, spec.qkv_bias), (spec.family, true, false));
        let attention = (spec.attention, spec.shift);
        (family.name(), attention, warnings.first().map(ToString::to_string).unwrap_or_default())
    };
    for (changes, sign) in [
        (json!({"use_regular_causal": true, "block_size": 4}), "config.json says use_regular_causal true;"),
        (
            json!({"block_size": 3}),
            "its block_size is 3 and those of SDAR are multiples of 4, trained for decoder isd with stride 4;",
        ),
        (json!({"block_size": 7}), "with stride 8;"),
        (json!({"block_size": 1, "architectures": null}), "with stride 2;"),
    ] {
        let (family, attention, told) = read(changes.clone());
        assert_eq!((family, attention), ("I-DLM", (Mask::Causal, 1)), "{changes}");
        assert!(told.starts_with("it is taken for I-DLM, because ") && told.contains(sign), "{told}");
    }
    let own = json!({"block_size": 4, "max_position_embeddings": 40960, "eos_token_id": 151_645});
    for (changes, told) in [
        (json!({}), ""),
        (json!({"block_size": 8}), ""),
        (json!({"block_size": 4, "eos_token_id": 151_645}), ""),
        (json!({"block_size": 4, "max_position_embeddings": 40960}), ""),
        (json!({"use_regular_causal": false, "block_size": 3}), "config.json says use_regular_causal false;"),
        (own, "may be an I-DLM that was trained for stride 5: name I-DLM if it is one;"),
    ] {
        let (family, (attention, shift), warning) = read(changes.clone());
        assert_eq!((family, attention.kind(), shift), ("SDAR", Mask::blocks(4).kind(), 0), "{changes}");
        assert!(warning.is_empty() == told.is_empty() && warning.contains(told), "{changes}: {warning}");
    }
}

/// Names and the choice of a family, on the files of a trained one; and the mask of causal models.
#[test]
fn names_and_choices_tell_an_i_dlm_from_an_sdar() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let open = |folder: &str, name: &str, family: Option<&str>| {
        let files = ModelFiles::directory(golden.join(folder)).unwrap().named(name);
        Checkpoint::open(files.of_family(family.map(|family| family.parse().unwrap())))
    };
    let special = |folder: &str, name: &str, family: Option<&str>| {
        let checkpoint = open(folder, name, family).unwrap();
        (checkpoint.family().name(), checkpoint.special().mask)
    };
    for name in ["org/I-DLM-8B", "my-idlm", "toy"] {
        assert_eq!(special("idlm-toy", name, None), ("I-DLM", Some(93)), "{name}");
    }
    let named = open("toy-sdar", "org/I-DLM-8B", None).unwrap();
    assert_eq!((named.family().name(), named.spec().attention), ("I-DLM", Mask::Causal));
    let told = named.warnings()[0].to_string();
    assert!(told.contains("its name contains \"i-dlm\", trained for decoder isd with stride 5;"), "{told}");
    // The choice wins over every sign.
    let chosen = open("idlm-toy", "I-DLM-8B", Some("SDAR")).unwrap();
    assert_eq!((chosen.family().name(), chosen.spec().attention), ("SDAR", Mask::blocks(3)));
    assert_eq!(chosen.warnings(), []);
    assert_eq!(open("toy-sdar", "toy-sdar", Some("i-dlm")).unwrap().spec().attention, Mask::Causal);
    // A causal model that was not trained with masks has the mask that the user names.
    assert_eq!(special("idlm-base-toy", "base", None), ("Qwen3", None));
    assert_eq!(special("idlm-base-toy", "base", Some("Qwen3:mask=93")), ("Qwen3", Some(93)));
    assert_eq!(special("idlm-toy", "toy", Some("I-DLM:mask=90")), ("I-DLM", Some(90)));
    let refused = open("idlm-base-toy", "base", Some("Qwen3:mask=96")).err().unwrap().to_string();
    assert_eq!(
        refused,
        "`family` names the mask 96, expected an id below 96, the rows of the embedding: name one that no text has"
    );
}

/// A configuration of a released shape with some keys changed.
fn changed(name: &str, changes: &Value) -> Result<ModelConfig, String> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(name).join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    try_parse(&config).map_err(|error| error.to_string())
}

#[test]
fn families_with_experts_answer_to_every_name_of_theirs() {
    let family = |name: &str, changes: Value| changed(name, &changes).unwrap().family.name();
    assert_eq!(family("moe-llada", json!({"architectures": ["LLaDAMoEModel"]})), "LLaDA-MoE");
    assert_eq!(family("moe-llada", json!({"architectures": null})), "LLaDA-MoE");
    assert_eq!(family("moe-llada", json!({"architectures": null, "model_type": "lladamoe"})), "LLaDA-MoE");
    assert_eq!(family("moe-sdar", json!({"architectures": null})), "SDAR-MoE");
    assert_eq!(family("moe-llada20", json!({"architectures": null, "model_type": "llada21_moe"})), "LLaDA2");
    let many = json!({"num_experts": null, "num_local_experts": 12});
    assert_eq!(changed("moe-sdar", &many), changed("moe-sdar", &json!({})));
}

#[test]
fn layers_without_experts_may_lie_anywhere() {
    let dense = |name: &str, changes: Value| changed(name, &changes).unwrap().spec.experts.unwrap().dense;
    assert_eq!(dense("moe-sdar", json!({"mlp_only_layers": [1]})), [1]);
    assert_eq!(dense("moe-sdar", json!({"num_hidden_layers": 6, "decoder_sparse_step": 2})), [0, 2, 4]);
    assert_eq!(dense("moe-llada", json!({"moe_layer_freq": [1, 0, 1]})), [1]);
    assert_eq!(dense("moe-llada20", json!({"first_k_dense_replace": 0})), [0; 0]);
    assert_eq!(dense("moe-llada20", json!({"first_k_dense_replace": 2})), [0, 1]);
    let alone = changed("moe-llada20", &json!({"num_experts_per_tok": 1})).unwrap().spec.experts.unwrap();
    assert_eq!(alone.rule.share, Share::Whole);
    let lonely = changed("moe-llada20", &json!({"num_shared_experts": null})).unwrap().spec.experts.unwrap();
    assert_eq!(lonely.shape.shared_ffn, 0);
}

/// Routers that no code computes are named, in one line.
#[test]
fn routers_that_no_code_computes_are_refused() {
    let cases = [
        (
            "moe-llada",
            json!({"moe_router_enable_expert_bias": true}),
            "moe_router_enable_expert_bias true (only false is)",
        ),
        (
            "moe-llada",
            json!({"moe_router_score_function": "sigmoid"}),
            "moe_router_score_function \"sigmoid\" (only \"softmax\" is)",
        ),
        (
            "moe-llada",
            json!({"shared_expert_intermediate_size": 64}),
            "shared_expert_intermediate_size \"64\" (only null is)",
        ),
        ("moe-llada", json!({"clip_qkv": 8}), "clip_qkv"),
        ("moe-llada", json!({"qk_layernorm": false}), "qk_layernorm false (only true is)"),
        ("moe-llada", json!({"router_num_group": 4}), "router_num_group 4 (only none is)"),
        ("moe-llada", json!({"router_topk_group": 2}), "router_topk_group 2 (only none is)"),
        ("moe-llada", json!({"attention_bias": true}), "attention_bias true (only false is)"),
        (
            "moe-llada",
            json!({"moe_layer_freq": [1, 1]}),
            "\"moe_layer_freq\" is \"2 values\", expected 0 or 1 for each of the 3 layers",
        ),
        (
            "moe-llada",
            json!({"num_experts_per_tok": 9}),
            "\"num_experts_per_tok\" is 9, expected at most num_experts, 8",
        ),
        ("moe-llada", json!({"num_experts": null}), "the key \"num_experts\" is missing"),
        ("moe-sdar", json!({"norm_topk_prob": null}), "the key \"norm_topk_prob\" is missing"),
        (
            "moe-sdar",
            json!({"mlp_only_layers": "all"}),
            "\"mlp_only_layers\" is \"all\", expected a list of whole numbers",
        ),
        ("moe-sdar", json!({"use_sliding_window": true, "sliding_window": 9}), "a sliding window"),
        (
            "moe-sdar",
            json!({"num_experts": 4096, "num_hidden_layers": 1000}),
            "\"num_experts\" is 4096, expected at most 21 experts in each of 1000 layers",
        ),
        (
            "moe-sdar",
            json!({"num_experts": 1 << 20}),
            "\"num_experts\" is 1048576, expected a whole number from 1 to 4096",
        ),
        ("moe-llada20", json!({"score_function": "softmax"}), "score_function \"softmax\" (only \"sigmoid\" is)"),
        (
            "moe-llada20",
            json!({"moe_router_enable_expert_bias": false}),
            "moe_router_enable_expert_bias false (only true is)",
        ),
        ("moe-llada20", json!({"use_qk_norm": false}), "use_qk_norm false (only true is)"),
        ("moe-llada20", json!({"use_qkv_bias": true}), "use_qkv_bias true (only false is)"),
        ("moe-llada20", json!({"use_bias": true}), "use_bias true (only false is)"),
        ("moe-llada20", json!({"norm_head": true}), "norm_head true (only false is)"),
        ("moe-llada20", json!({"expert_capacity": 1.5}), "expert_capacity"),
        ("moe-llada20", json!({"n_group": 3}), "\"n_group\" is 3, expected a divisor of the 16 experts"),
        (
            "moe-llada20",
            json!({"n_group": 16}),
            "\"n_group\" is 16, expected a divisor of the 16 experts with two of them in a group",
        ),
        ("moe-llada20", json!({"topk_group": 5}), "\"topk_group\" is 5, expected at most n_group, 4"),
        (
            "moe-llada20",
            json!({"topk_group": 1, "num_experts_per_tok": 5}),
            "\"topk_group\" is 1, expected at most n_group, 4, and groups with 5 experts",
        ),
        (
            "moe-llada20",
            json!({"routed_scaling_factor": 0}),
            "\"routed_scaling_factor\" is 0, expected a positive number",
        ),
        ("moe-llada20", json!({"partial_rotary_factor": null}), "the key \"partial_rotary_factor\" is missing"),
    ];
    for (name, change, told) in cases {
        let refused = changed(name, &change).unwrap_err();
        assert!(refused.starts_with("config.json: ") && refused.contains(told), "{change}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
    let mut rnd1: Value = serde_json::from_str(RND1).unwrap();
    assert_eq!(try_parse(&rnd1).unwrap().family.name(), "RND1");
    rnd1["is_causal"] = true.into();
    assert!(try_parse(&rnd1).unwrap_err().to_string().contains("is_causal true (only false is)"));
}

/// RND1's file, which says false where others say null.
const RND1: &str = r#"{
    "architectures": ["RND1LM"], "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 16, "hidden_act": "silu",
    "hidden_size": 40, "intermediate_size": 80, "is_causal": false, "mask_token_id": 231, "max_position_embeddings": 512,
    "mlp_only_layers": [], "model_type": "rnd1", "moe_intermediate_size": 24, "norm_topk_prob": true,
    "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 3,
    "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": false, "rope_theta": 1000000.0,
    "sliding_window": false, "use_sliding_window": false, "vocab_size": 240
}"#;
