//! Models of a hub, against one of our own.

use std::{fs, path::Path, process::Command};

use demask_testkit::hub::{Behaviour, COMMIT, Hub, files_in};
use serde_json::Value;

use crate::harness::{command, project};

/// A hub that has a checkpoint.
fn hub_with(behaviour: Behaviour) -> Hub {
    Hub::start(files_in(project("golden/ckpt/tiny-qwen2")), behaviour)
}

/// A hub that has a GGUF file in two quantisations, as their names say.
fn gguf_hub() -> Hub {
    let file = fs::read(project("crates/checkpoint/tests/data/tiny.gguf")).unwrap();
    let files = ["tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"].map(|name| (name.to_owned(), file.clone()));
    Hub::start(files.to_vec(), Behaviour::default())
}

fn with_cache(arguments: &[&str], address: &str, cache: &Path) -> Command {
    let mut command = command(arguments);
    command.env("HF_ENDPOINT", address).env("HF_HOME", cache).env_remove("HF_HUB_OFFLINE");
    command
}

/// Exit code, standard output, standard error.
fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_pulled_model_is_listed_and_opens_without_the_hub() {
    let (cache, hub) = (tempfile::tempdir().unwrap(), hub_with(Behaviour::default()));
    let address = hub.endpoint.clone();
    let cache = cache.path();
    assert_eq!(run(with_cache(&["list", "--json"], &address, cache)).1, "[]\n");
    let (code, path, told) = run(with_cache(&["pull", "org/tiny"], &address, cache));
    assert_eq!((code, told.as_str()), (Some(0), ""));
    assert!(Path::new(path.trim_end()).join("config.json").exists(), "{path}");
    let (_, listed, _) = run(with_cache(&["list", "--json"], &address, cache));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let line = &listed[0];
    assert_eq!((&line["name"], &line["family"], &line["fits"]), (&"org/tiny".into(), &"Qwen2".into(), &true.into()));
    assert!(line["bytes"].as_u64() > Some(1000) && line["needs"].as_u64() > Some(1000), "{line}");
    let (_, text, _) = run(with_cache(&["list"], &address, cache));
    assert!(text.starts_with("org/tiny  ") && text.contains("  Qwen2, needs "), "{text}");
    let (code, ..) = run(with_cache(&["inspect", "org/tiny"], "http://127.0.0.1:9", cache));
    assert_eq!(code, Some(0));
}

#[test]
fn what_cannot_be_pulled_is_told_in_one_line() {
    let (cache, hub) = (tempfile::tempdir().unwrap(), hub_with(Behaviour::default()));
    let address = hub.endpoint.clone();
    let folder = project("golden/ckpt/tiny-qwen2");
    for (name, code, expected) in [
        ("org/other", 1, "org/other"),
        (&*folder, 2, "is on this machine: expected the id of a hub, org/name or org/name@REVISION"),
        ("nonsense", 2, "nonsense"),
    ] {
        let (found, printed, told) = run(with_cache(&["pull", name], &address, cache.path()));
        assert_eq!((found, printed.as_str(), told.lines().count()), (Some(code), "", 1), "{name}: {told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_download_that_broke_off_is_named_and_the_list_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let cut = hub_with(Behaviour { drops: vec![1000], leaves: true, ..Behaviour::default() });
    let (code, _, told) = run(with_cache(&["pull", "org/tiny"], &cut.endpoint, cache));
    assert_eq!((code, told.trim_end().lines().count()), (Some(1), 1), "{told}");
    // A model whose configuration is nonsense, and what is no model at all.
    let broken = cache.join("hub/models--org--broken");
    let snapshot = broken.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(broken.join("refs")).unwrap();
    fs::write(broken.join("refs/main"), COMMIT).unwrap();
    fs::write(snapshot.join("config.json"), "{").unwrap();
    fs::create_dir_all(cache.join("hub/datasets--org--data")).unwrap();
    let (code, text, _) = run(with_cache(&["list"], "http://127.0.0.1:9", cache));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 2), "{text}");
    assert!(lines[0].starts_with("org/broken") && lines[0].contains("broken: "), "{text}");
    assert!(lines[1].contains("its download did not end: demask pull org/tiny goes on with it"), "{text}");
    // Pulled again, it is whole.
    assert_eq!(run(with_cache(&["pull", "org/tiny"], &hub_with(Behaviour::default()).endpoint, cache)).0, Some(0));
    assert!(run(with_cache(&["list"], "http://127.0.0.1:9", cache)).1.contains("Qwen2, needs "));
}

#[test]
fn a_quantisation_is_fetched_answers_and_is_listed() {
    let (cache, hub) = (tempfile::tempdir().unwrap(), gguf_hub());
    let (cache, address) = (cache.path(), &hub.endpoint);
    let generate = |model: &str| {
        let call = ["generate", "--model", model, "--gen-length", "8", "--seed", "1", "--json", "hello"];
        run(with_cache(&call, address, cache))
    };
    let (code, first, told) = generate("org/tiny:q4_k_m");
    // Nobody waits at a pipe: no line about the download.
    assert!(code == Some(0) && !told.contains("needs"), "{told}");
    let tokens = |json: &str| serde_json::from_str::<Value>(json).unwrap()["tokens"].clone();
    let again = generate(&format!("{address}/org/tiny/blob/main/tiny-Q4_K_M.gguf"));
    assert_eq!(tokens(&again.1), tokens(&first));
    assert!(
        hub.ranges("Q8_0.gguf").is_empty()
            && hub.ranges("Q4_K_M.gguf").iter().filter(|range| *range == "0-").count() == 1
    );
    let (code, path, _) = run(with_cache(&["pull", "hf.co/org/tiny:Q8_0"], address, cache));
    assert!(code == Some(0) && path.trim_end().ends_with("tiny-Q8_0.gguf"), "{path}");
    let (_, listed, _) = run(with_cache(&["list"], "http://127.0.0.1:9", cache));
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("org/tiny:Q4_K_M ") && lines[1].starts_with("org/tiny:Q8_0 "),
        "{listed}"
    );
    assert!(lines.iter().all(|line| line.contains("LLaDA, needs ")), "{listed}");
}

#[test]
fn models_that_a_hub_does_not_have_are_refused_in_one_line() {
    let (cache, hub) = (tempfile::tempdir().unwrap(), gguf_hub());
    for (name, expected) in [
        ("org/tiny", "org/tiny has several GGUF files: Q4_K_M ("),
        ("org/tiny:Q2_K", "org/tiny has no Q2_K: it has Q4_K_M ("),
        ("org/tiny/b.gguf", "org/tiny has no b.gguf: it has Q4_K_M ("),
        ("https://example.com/a/b", "is no address of a hub: expected https://huggingface.co/org/name"),
    ] {
        for verb in [&["generate", "hi", "--model", name][..], &["pull", name], &["inspect", name]] {
            let (code, printed, told) = run(with_cache(verb, &hub.endpoint, cache.path()));
            assert_eq!((code, printed.as_str(), told.lines().count()), (Some(2), "", 1), "{name}: {told}");
            assert!(told.contains(expected), "{told}");
        }
    }
    let (_, _, told) = run(with_cache(&["pull", "org/tiny"], &hub.endpoint, cache.path()));
    assert!(told.contains("KiB, fits), Q8_0 (") && told.contains("; name one, as in org/tiny:Q4_K_M"), "{told}");
}

#[test]
fn inspect_fetches_no_weights() {
    let (cache, hub) = (tempfile::tempdir().unwrap(), hub_with(Behaviour::default()));
    let (code, printed, told) = run(with_cache(&["inspect", "org/tiny"], &hub.endpoint, cache.path()));
    assert_eq!((code, told.as_str()), (Some(0), ""));
    let local = run(command(&["inspect", &project("golden/ckpt/tiny-qwen2")])).1;
    assert_eq!(printed, local.replace("model       tiny-qwen2", "model       org/tiny"));
    let ranges = hub.ranges("model.safetensors");
    assert!(
        ranges.len() == 2 && ranges[0] == "0-7" && ranges[1].starts_with("8-") && !ranges[1].ends_with('-'),
        "{ranges:?}"
    );
    // What was only looked at is no download that did not end.
    assert_eq!(run(with_cache(&["list", "--json"], &hub.endpoint, cache.path())).1, "[]\n");
}

#[test]
fn what_has_no_room_is_refused_before_its_weights_are_fetched() {
    let cache = tempfile::tempdir().unwrap();
    // As a file of a size that no disk has.
    let hub = hub_with(Behaviour { claims: vec![("model.safetensors", 1 << 40)], ..Behaviour::default() });
    for verb in [&["generate", "--quiet", "hi", "--model", "org/tiny"][..], &["pull", "org/tiny"]] {
        let (code, printed, told) = run(with_cache(verb, &hub.endpoint, cache.path()));
        assert_eq!((code, printed.as_str(), told.lines().count()), (Some(1), "", 1), "{told}");
        assert!(
            told.starts_with("error: org/tiny takes 1.0 TiB of disk and ") && told.contains(" are free in "),
            "{told}"
        );
    }
    assert!(!hub.ranges("model.safetensors").contains(&"0-".to_owned()));
}

/// The header and the configuration of a model of 1 layer that no machine has the memory for; weights are not there.
fn enormous() -> Vec<(String, Vec<u8>)> {
    const HIDDEN: u64 = 1 << 16;
    const FFN: u64 = 1 << 20;
    let mut files = files_in(project("golden/ckpt/tiny-qwen2"));
    files.retain(|(name, _)| name != "model.safetensors");
    let config = files.iter_mut().find(|(name, _)| name == "config.json").unwrap();
    let mut numbers: Value = serde_json::from_slice(&config.1).unwrap();
    for (key, number) in
        [("hidden_size", HIDDEN), ("intermediate_size", FFN), ("num_attention_heads", 64), ("num_hidden_layers", 1)]
    {
        numbers[key] = number.into();
    }
    config.1 = numbers.to_string().into_bytes();
    let (attention, mlp, kv) = ("model.layers.0.self_attn", "model.layers.0.mlp", 2 * 1024);
    let tensors: [(String, Vec<u64>); 14] = [
        ("model.embed_tokens.weight".to_owned(), vec![320, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ("model.layers.0.input_layernorm.weight".to_owned(), vec![HIDDEN]),
        ("model.layers.0.post_attention_layernorm.weight".to_owned(), vec![HIDDEN]),
        (format!("{attention}.q_proj.weight"), vec![HIDDEN, HIDDEN]),
        (format!("{attention}.q_proj.bias"), vec![HIDDEN]),
        (format!("{attention}.k_proj.weight"), vec![kv, HIDDEN]),
        (format!("{attention}.k_proj.bias"), vec![kv]),
        (format!("{attention}.v_proj.weight"), vec![kv, HIDDEN]),
        (format!("{attention}.v_proj.bias"), vec![kv]),
        (format!("{attention}.o_proj.weight"), vec![HIDDEN, HIDDEN]),
        (format!("{mlp}.gate_proj.weight"), vec![FFN, HIDDEN]),
        (format!("{mlp}.up_proj.weight"), vec![FFN, HIDDEN]),
        (format!("{mlp}.down_proj.weight"), vec![HIDDEN, FFN]),
    ];
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 2 * shape.iter().product::<u64>();
        header.insert(name, serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}));
    }
    let header = Value::from(header).to_string().into_bytes();
    files.push(("model.safetensors".to_owned(), [&(header.len() as u64).to_le_bytes()[..], &header].concat()));
    files
}

#[test]
fn what_does_not_fit_in_the_memory_is_refused_before_its_weights_are_fetched() {
    let cache = tempfile::tempdir().unwrap();
    let claims = vec![("model.safetensors", 1 << 39)];
    let hub = Hub::start(enormous(), Behaviour { claims, ..Behaviour::default() });
    let refused = |verb: &[&str]| {
        let (code, printed, told) = run(with_cache(verb, &hub.endpoint, cache.path()));
        assert_eq!((code, printed.as_str(), told.lines().count()), (Some(1), "", 1), "{told}");
        told
    };
    let told = refused(&["generate", "--quiet", "hi", "--model", "org/tiny"]);
    assert!(
        told.starts_with("error: org/tiny needs ")
            && told.contains(" MiB of memory (")
            && told.contains(" MiB are available: "),
        "{told}"
    );
    // `pull` fetches what another machine may have the memory for, if the disk has room.
    let told = refused(&["pull", "org/tiny"]);
    assert!(told.starts_with("error: org/tiny takes 512.0 GiB of disk and "), "{told}");
    assert!(!hub.ranges("model.safetensors").contains(&"0-".to_owned()));
    let (code, printed, _) = run(with_cache(&["inspect", "org/tiny"], &hub.endpoint, cache.path()));
    assert!(code == Some(0) && printed.contains("memory      cpu q4: "), "{printed}");
}
