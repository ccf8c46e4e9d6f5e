//! Adapters: what is read of them, and what each kind of bad input gets.

use demask_checkpoint::{AdapterChoice, AdapterFiles, Checkpoint, CheckpointError, ModelFiles, Warning};
use demask_model::{AdapterUse, LayerRole, Role, WeightSource};
use serde_json::json;

use crate::bad_input::Broken;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const QUERY_B: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

fn golden(name: &str) -> ModelFiles {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(name);
    ModelFiles::directory(path).unwrap()
}

fn lora(name: &str) -> Broken {
    Broken::of("golden/ckpt/idlm-base-toy-lora", name)
}

fn open(model: ModelFiles, adapter: ModelFiles, choice: AdapterChoice) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open(model.with_adapter(Some(AdapterFiles { files: adapter, choice })))
}

/// The model that the adapter is for, with its mask.
fn base() -> ModelFiles {
    golden("idlm-base-toy").of_family(Some("Qwen3:mask=93".parse().unwrap()))
}

/// The message of opening a broken adapter, without its directory.
fn message(adapter: &Broken) -> String {
    let error = open(base(), adapter.files(), AdapterChoice::All).err().expect("it should be refused").to_string();
    assert!(!error.contains('\n') && error.len() < 500, "{error}");
    error.replace(&format!("{}/", adapter.path().display()), "")
}

fn scale(checkpoint: &Checkpoint, part: LayerRole) -> f32 {
    checkpoint.weights().adapter(Role::Layer(0, part)).unwrap().scale
}

#[test]
fn an_adapter_is_named_counted_and_said_to_be_for_masks() {
    let opened = open(base(), golden("idlm-base-toy-lora"), AdapterChoice::Auto).unwrap();
    assert_eq!(opened.name(), "idlm-base-toy+idlm-base-toy-lora");
    let facts = opened.weights().adapter_facts().unwrap();
    assert_eq!((facts.usage, facts.ranks, facts.products()), (AdapterUse::Masks(93), [8, 8], 14));
    assert_eq!(scale(&opened, LayerRole::Down), 2.0);
    let said: Vec<String> = opened.warnings().iter().map(Warning::to_string).collect();
    assert!(
        said.iter().any(|said| said.contains("changes rows of masks alone") && said.contains("--adapter-use")),
        "{said:?}"
    );
    // A name that says nothing leaves the usual use.
    let other = lora("ordinary");
    let opened = open(base(), other.files(), AdapterChoice::Auto).unwrap();
    assert_eq!(opened.weights().adapter_use(), Some(AdapterUse::All));
}

#[test]
fn factors_are_of_modules_and_of_the_root_where_the_file_says_so() {
    let adapter = lora("factors");
    adapter.edit(CONFIG, |config| config["use_rslora"] = json!(true));
    let opened = open(base(), adapter.files(), AdapterChoice::All).unwrap();
    assert_eq!(scale(&opened, LayerRole::Query), 16.0 / 8f32.sqrt());
    adapter.edit(CONFIG, |config| {
        config["use_rslora"] = json!(false);
        config["alpha_pattern"] = json!({"q_proj": 4, "layers.1.self_attn.v_proj": 5});
    });
    let opened = open(base(), adapter.files(), AdapterChoice::All).unwrap();
    let scales = [LayerRole::Query, LayerRole::Key, LayerRole::Value].map(|part| scale(&opened, part));
    assert_eq!(scales, [0.5, 2.0, 2.0]);
    assert_eq!(opened.weights().adapter(Role::Layer(1, LayerRole::Value)).unwrap().scale, 0.625);
}

#[test]
fn other_kinds_are_refused_by_name() {
    let adapter = lora("kinds");
    for (key, value, expected) in [
        ("peft_type", json!("IA3"), "an adapter of kind \"IA3\" is not supported; use one of kind LORA"),
        ("use_dora", json!(true), "an adapter with use_dora is not supported; train or export one without it"),
        ("modules_to_save", json!(["lm_head"]), "an adapter with modules_to_save is not supported"),
        ("fan_in_fan_out", json!(true), "an adapter with fan_in_fan_out is not supported"),
        ("bias", json!("all"), "an adapter with bias \"all\" is not supported; train one with bias \"none\""),
        ("init_lora_weights", json!("pissa_niter_4"), "weights that init_lora_weights \"pissa_niter_4\" has changed"),
        ("rank_pattern", json!({".*q_proj": 4}), "rank_pattern with the expression \".*q_proj\" is not supported"),
        ("alpha_pattern", json!({"q_proj": 0}), "\"alpha_pattern.q_proj\" is 0, expected a number above 0"),
        ("r", json!(0), "\"r\" is 0, expected a whole number from 1"),
        ("lora_alpha", json!(-1), "\"lora_alpha\" is -1"),
        ("a_key_of_later_versions", json!({"a": 1}), "an adapter with a_key_of_later_versions is not supported"),
    ] {
        let whole = std::fs::read(adapter.path().join(CONFIG)).unwrap();
        adapter.edit(CONFIG, |config| config[key] = value);
        let message = message(&adapter);
        assert!(message.starts_with(CONFIG) && message.contains(expected), "{message}");
        adapter.write(CONFIG, whole);
    }
}

#[test]
fn missing_files_and_halves() {
    let adapter = lora("halves");
    adapter.edit_header(WEIGHTS, |header| drop(header.remove(QUERY_B)));
    let found = message(&adapter);
    assert!(
        found.contains("q_proj.lora_A.weight\" has no \"base_model.model.model.layers.0.self_attn.q_proj.lora_B"),
        "{found}"
    );
    std::fs::remove_file(adapter.path().join(WEIGHTS)).unwrap();
    assert!(
        message(&adapter).starts_with("adapter_model.safetensors is missing: expected an adapter in PEFT's layout")
    );
    std::fs::remove_file(adapter.path().join(CONFIG)).unwrap();
    assert!(message(&adapter).starts_with("adapter_config.json is missing: expected an adapter in PEFT's layout"));
}

#[test]
fn adapters_of_other_models_and_modules() {
    let refused = |adapter| open(base(), adapter, AdapterChoice::All).err().unwrap().to_string();
    assert!(refused(golden("idlm-tiny-lora")).contains("has shape"), "{}", refused(golden("idlm-tiny-lora")));
    let adapter = lora("modules");
    adapter.edit_header(WEIGHTS, |header| {
        let tensor = header[QUERY_B].clone();
        header.insert("base_model.model.lm_head.lora_A.weight".to_owned(), tensor);
        header.remove(QUERY_B);
        header.remove(&QUERY_B.replace("lora_B", "lora_A"));
    });
    let found = message(&adapter);
    assert!(
        found.contains("base_model.model.lm_head.lora_A.weight\" is for no product that takes an adapter"),
        "{found}"
    );
}

#[test]
fn numbers_that_are_none() {
    let adapter = lora("numbers");
    let mut bytes = std::fs::read(adapter.path().join(WEIGHTS)).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    adapter.write(WEIGHTS, bytes);
    assert!(message(&adapter).contains("has numbers that are infinite or not numbers (NaN)"), "{}", message(&adapter));
}

#[test]
fn an_adapter_of_masks_needs_a_mask() {
    let refused =
        open(golden("idlm-base-toy"), golden("idlm-base-toy-lora"), AdapterChoice::Masks).err().unwrap().to_string();
    assert!(refused.ends_with("give `adapter_use` all") && refused.contains("NAME:mask=ID"), "{refused}");
}

/// Its rows would read those of masks: texts would change where it says that they do not.
#[test]
fn an_adapter_of_masks_beside_a_model_whose_texts_see_masks() {
    let seeing = || golden("idlm-base-toy").of_family(Some("SDAR:block=4,mask=93".parse().unwrap()));
    let adapter = || golden("idlm-base-toy-lora");
    let refused = open(seeing(), adapter(), AdapterChoice::Masks).err().unwrap().to_string();
    assert!(refused.contains("a model whose texts see masks") && refused.contains("`adapter_use` all"), "{refused}");
    open(seeing(), adapter(), AdapterChoice::All).unwrap();
}
