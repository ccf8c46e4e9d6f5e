use demask_checkpoint::{AdapterChoice, AdapterFiles, Checkpoint, ModelFiles, Warning};
use demask_model::WeightSource;

use super::*;

/// A new path that nothing is at.
fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("demask-synth-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn qwen() -> Like {
    "qwen2.5-1.5b".parse().unwrap()
}

/// A released configuration with small dimensions.
fn small(like: Like) -> (Value, Value) {
    let (mut config, generation) = (like.config(None).unwrap(), like.generation().clone());
    let olmo = config.get("d_model").is_some();
    let widths = if olmo {
        vec![("d_model", 64), ("n_layers", 2), ("n_heads", 4), ("n_kv_heads", 4)]
    } else {
        vec![("hidden_size", 64), ("num_hidden_layers", 2), ("num_attention_heads", 4)]
    };
    for (key, value) in widths {
        config[key] = value.into();
    }
    if olmo {
        config["mlp_hidden_size"] = 96.into();
    } else {
        config["num_key_value_heads"] = 2.into();
        config["intermediate_size"] = 96.into();
    }
    if config.get("num_experts").is_some() {
        config["num_experts"] = 16.into();
        for key in ["moe_intermediate_size", "expert_intermediate_size", "dense_intermediate_size"] {
            if config.get(key).is_some() {
                config[key] = 24.into();
            }
        }
    }
    (config, generation)
}

#[test]
fn released_shapes_have_the_released_numbers_of_parameters_and_tensors() {
    let cases = [
        ("llada-8b", 8_015_581_184, 291),
        ("dream-7b", 7_615_616_512, 339),
        ("sdar-1.7b", 2_031_739_904, 311),
        ("sdar-4b", 4_411_424_256, 399),
        ("sdar-8b", 8_190_735_360, 399),
        ("i-dlm-8b", 8_190_735_360, 399),
        ("qwen2.5-1.5b", 1_543_714_304, 338),
        ("qwen3-1.7b", 1_720_574_976, 310),
        ("qwen3-8b", 8_190_735_360, 399),
        ("stable-diffcoder-8b", 8_250_462_208, 291),
        ("open-dcoder-0.5b", 494_032_768, 290),
        ("a2d-qwen2.5-coder-0.5b", 494_032_768, 290),
        ("a2d-qwen3-0.6b", 596_049_920, 310),
        ("fast-dllm-v2-1.5b", 1_543_714_304, 338),
        ("fast-dllm-v2-7b", 7_615_616_512, 339),
        ("nemotron-labs-diffusion-3b", 3_831_659_520, 237),
        ("nemotron-labs-diffusion-8b", 8_489_553_920, 309),
        ("llada-moe-7b-a1b", 7_356_880_896, 3219),
        ("sdar-30b-a3b", 30_532_122_624, 18_867),
        ("llada2.0-mini", 16_255_643_392, 14_813),
        ("llada2.1-mini", 16_255_643_392, 14_813),
        ("rnd1-30b-a3b", 30_532_122_624, 18_867),
    ];
    assert_eq!(Like::names(), cases.map(|(name, ..)| name).join(", "));
    for (like, parameters, tensors) in cases {
        let config = like.parse::<Like>().unwrap().config(None).unwrap();
        let ModelConfig { family, spec, .. } = parse_config(config.to_string().as_bytes(), "config.json").unwrap();
        assert_eq!(spec.parameters(), parameters, "{like}");
        assert_eq!(family.tensors(&spec), tensors, "{like}");
        let shards = plan(family, &spec, SHARD);
        assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), tensors, "{like}");
        let bytes = |shard: &Vec<Planned>| shard.iter().map(|tensor| tensor.bytes).sum::<u64>();
        assert!(shards.iter().all(|shard| bytes(shard) <= SHARD));
        assert_eq!(shards.iter().map(bytes).sum::<u64>(), parameters * 2);
    }
}

#[test]
fn every_shape_is_written_and_opens_again_single_and_sharded() {
    for (like, shard) in Like::all().flat_map(|like| [(like, SHARD), (like, 9_000_000)]) {
        // A name that says nothing of the family.
        let out = place(&format!("{}-{shard}", like.name().len()));
        let (config, generation) = small(like);
        let mut last = SynthProgress { done: 0, total: 0 };
        write(&config, &generation, like.family(), 7, shard, &out, &mut |progress| {
            last = progress;
            true
        })
        .unwrap();
        assert_eq!(last.done, last.total);
        let checkpoint = Checkpoint::open(ModelFiles::directory(&out).unwrap()).unwrap();
        // What config.json leaves open is named.
        let odd = |warning: &&Warning| !matches!(warning, Warning::FamilyBySign { .. });
        assert_eq!(checkpoint.warnings().iter().find(odd), None);
        assert_eq!(checkpoint.family().name(), like.family().name(), "{like} decodes as the model that it imitates");
        assert_eq!(checkpoint.weights().stored_bytes(), last.total);
        assert_eq!(out.join(INDEX).exists(), shard < SHARD);
        let norm = checkpoint.weights().tensor(Role::FinalNorm).unwrap().to_f32().unwrap();
        assert!(norm.iter().all(|value| (value - 1.0).abs() < 0.2));
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn values_follow_from_the_seed_and_are_spread_as_at_initialisation() {
    let (config, generation) = small(qwen());
    let embedding = |seed: u64| {
        let out = place(&format!("seed-{seed}"));
        write(&config, &generation, qwen().family(), seed, SHARD, &out, &mut |_| true).unwrap();
        let checkpoint = Checkpoint::open(ModelFiles::directory(&out).unwrap()).unwrap();
        let values = checkpoint.weights().tensor(Role::Embedding).unwrap().to_f32().unwrap();
        fs::remove_dir_all(out).unwrap();
        values
    };
    let values = embedding(1);
    assert_eq!(values, embedding(1));
    assert_ne!(values, embedding(2));
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let square = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / count;
    assert!(mean.abs() < 1e-3 && (square.sqrt() - DEVIATION).abs() < 1e-3, "{mean} {square}");
}

#[test]
fn what_exists_is_not_overwritten_and_failure_leaves_nothing() {
    let spec = SynthSpec { like: qwen(), layers: Some(1), adapter: None, seed: 0 };
    let out = place("exists");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("keep"), "me").unwrap();
    let error = synthesise(&spec, &out, &mut |_| true).unwrap_err().to_string();
    let path = out.display();
    assert_eq!(error, format!("{path} exists and is not an empty directory: give a new one, or remove it first"));
    let inside = out.join("keep").join("below");
    let error = synthesise(&spec, &inside, &mut |_| true).unwrap_err().to_string();
    assert!(error.starts_with("cannot write ") && error.contains("keep") && !error.contains('\n'), "{error}");
    fs::remove_dir_all(&out).unwrap();
    assert!("llama-9b".parse::<Like>().unwrap_err().to_string().contains("expected one of llada-8b"));
    let none = SynthSpec { layers: Some(0), ..spec };
    assert_eq!(
        synthesise(&none, &out, &mut |_| true).unwrap_err().to_string(),
        "0 layers cannot be made, expected 1 to 1024"
    );
    assert!(!out.exists());
}

/// A disk with room for a number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_full_in_the_middle_ends_the_work() {
    let (config, _) = small(qwen());
    let ModelConfig { family, spec, .. } = parse_config(config.to_string().as_bytes(), "").unwrap();
    let shards = plan(family, &spec, SHARD);
    for room in [100, 10_000, 9 << 20, 17 << 20] {
        let error = write_tensors(&mut Full(room), &shards[0], 0, &Table::new(), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let out = place("full");
    let partial = Partial::create(&out).unwrap();
    partial.text("config.json", "{}").unwrap();
    let path = partial.path.clone();
    drop(partial);
    assert!(!path.exists() && !out.exists());
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let out = place("interrupted");
    let (config, generation) = small(qwen());
    let error = write(&config, &generation, qwen().family(), 7, SHARD, &out, &mut |_| false).unwrap_err();
    assert_eq!(error.to_string(), "writing was interrupted: nothing is left behind");
    let name = out.file_name().unwrap().to_str().unwrap().to_owned();
    let siblings = fs::read_dir(out.parent().unwrap()).unwrap();
    let left = siblings.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(&name));
    assert_eq!(left.count(), 0);
}

#[test]
fn an_adapter_is_read_for_its_shape_and_has_its_numbers() {
    let out = place("adapter");
    let spec = SynthSpec { like: qwen(), layers: Some(2), adapter: Some(4), seed: 3 };
    synthesise(&spec, &out, &mut |_| true).unwrap();
    let base = place("adapted");
    let (config, generation) = (spec.like.config(spec.layers).unwrap(), spec.like.generation());
    write(&config, generation, spec.like.family(), 0, SHARD, &base, &mut |_| true).unwrap();
    let adapter = AdapterFiles { files: ModelFiles::directory(&out).unwrap(), choice: AdapterChoice::All };
    let opened = Checkpoint::open(ModelFiles::directory(&base).unwrap().with_adapter(Some(adapter))).unwrap();
    let facts = opened.weights().adapter_facts().unwrap();
    // Qwen2.5-1.5B: hidden 1536, K/V 256, MLP 8960.
    let layer = 4 * (1536 + 1536 + 2 * (1536 + 256) + 1536 + 1536 + 3 * (1536 + 8960)) as u64;
    assert_eq!((facts.ranks, facts.products(), facts.parameters()), ([4, 4], 14, 2 * layer));
    let refused = SynthSpec { adapter: Some(0), ..spec };
    let error = synthesise(&refused, &place("none"), &mut |_| true).unwrap_err().to_string();
    assert_eq!(error, "an adapter of rank 0 cannot be made, expected 1 to 1536");
    fs::remove_dir_all(out).unwrap();
    fs::remove_dir_all(base).unwrap();
}
