//! `inspect`, `doctor`, and what packages get.

use std::fs;
#[cfg(target_os = "linux")]
use std::process::Command;

use demask::layers::cpu::isa::Isa;

use crate::harness::{demask, project};

#[test]
fn packages_get_manual_pages_and_completions_of_every_command() {
    let directory = tempfile::tempdir().unwrap();
    demask(&["man", "--out", directory.path().to_str().unwrap()]).success();
    let help = demask(&["--help"]).success();
    let commands = help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| line.starts_with("  "));
    let commands: Vec<&str> = commands
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 4, "{commands:?}");
    let bash = demask(&["completions", "bash"]).success();
    for name in commands {
        let page = fs::read_to_string(directory.path().join(format!("demask-{name}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains(&format!("demask\\-{name}")), "{page}");
        assert!(bash.contains(&format!("demask,{name})")), "{name}");
    }
    let whole = fs::read_to_string(directory.path().join("demask.1")).unwrap();
    assert!(whole.contains("DEMASK_") && !whole.contains("completions"), "{whole}");
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        assert!(demask(&["completions", shell]).success().contains("generate"), "{shell}");
    }
    let refused = demask(&["completions", "csh"]);
    assert!(refused.stderr.contains("expected one of bash, elvish, fish, powershell, zsh"), "{}", refused.stderr);
}

#[test]
fn inspect_tells_of_experts() {
    let mini = project("golden/ckpt/moe-llada20");
    let text = demask(&["inspect", &mini]).success();
    let told = "experts     3 of 16 of 12 and one of 12 for all in 2 layers, 71504 parameters a row\n";
    assert!(text.contains(told), "{text}");
    let report = demask(&["inspect", &mini, "--json"]).json();
    let experts = &report["architecture"]["experts"];
    assert_eq!(["layers", "count", "taken", "shared_ffn"].map(|key| experts[key].as_u64().unwrap()), [2, 16, 3, 12]);
    assert_eq!(experts["active_parameters"], 71_504);
    // Fused q, k and v are one tensor each.
    assert_eq!(report["tensors"], 3 + 3 * 6 + 3 + 2 * (3 * 16 + 3 + 2));
    let dense = demask(&["inspect", &project("golden/ckpt/tiny-sdar"), "--json"]).json();
    assert!(dense["architecture"].get("experts").is_none());
}

#[test]
fn inspect_tells_what_is_in_a_checkpoint() {
    let text = demask(&["inspect", &project("golden/ckpt/tiny-sdar")]).success();
    assert!(text.starts_with("model       tiny-sdar\nfamily      SDAR, block-causal:"), "{text}");
    assert!(text.contains("tokenizer   none: prompts as --prompt-tokens only"), "{text}");
    let demo = demask(&["inspect", "--json"]).json();
    assert_eq!((&demo["name"], &demo["family"]), (&"demo-llada".into(), &"LLaDA".into()));
    assert_eq!((&demo["parameters"], &demo["tokenizer"]), (&2_844_480.into(), &true.into()));
    assert_eq!(demo["special"]["mask"], 488);
    assert_eq!(demo["template"], "checkpoint");
    let named = demask(&["inspect", "--model", &project("demo/demo-qwen"), "--json"]).json();
    assert_eq!(named["architecture"]["attention"], "causal");
    assert_eq!(named["special"]["mask"], serde_json::Value::Null);
    for directory in fs::read_dir(project("golden/ckpt")).unwrap() {
        let path = directory.unwrap().path();
        // An adapter is no model.
        if !path.join("config.json").exists() {
            continue;
        }
        assert!(demask(&["inspect", path.to_str().unwrap(), "--json"]).json()["tensors"].as_u64() > Some(0));
    }
}

/// An I-DLM is told by a sign, and its masks are trained; those of a causal model of another family are not.
#[test]
fn inspect_and_generate_tell_whether_masks_were_trained() {
    let model = project("golden/ckpt/idlm-toy");
    let text = demask(&["inspect", &model]).success();
    assert!(text.contains("family      I-DLM, causal attention\n") && text.contains("special     mask 93, "), "{text}");
    let sign = "warning     it is taken for I-DLM, because its name contains \"idlm\", trained for decoder isd with stride 4; \
                `--family` names another one";
    assert!(text.contains(sign), "{text}");
    let answer = |model: &str, more: &[&str]| {
        let prompt = ["--prompt-tokens", "3,4,5,6,7", "--gen-length", "24", "--ignore-eos", "--json"];
        demask(&[&["generate", "--model", model][..], &prompt, more].concat())
    };
    let [own, ar] = ["isd", "ar"].map(|decoder| answer(&model, &["--decoder", decoder]));
    assert!(!own.stderr.contains("note: "), "{}", own.stderr);
    let [own, ar] = [own.json(), ar.json()];
    assert_eq!(own["tokens"], ar["tokens"]);
    assert_eq!(own["receipt"]["against"], "ar, cache causal");
    assert!(own["receipt"]["forwards"].as_u64() < ar["receipt"]["forwards"].as_u64());
    let base = project("golden/ckpt/idlm-base-toy");
    let refused = answer(&base, &["--decoder", "isd"]);
    assert!(refused.stderr.contains("the model names no mask token: load it as"), "{}", refused.stderr);
    let named = answer(&base, &["--decoder", "isd", "--family", "qwen3:mask=93"]);
    assert!(named.stderr.contains("note: Qwen3 was not trained with masks"), "{}", named.stderr);
    let ar = answer(&base, &["--decoder", "ar", "--family", "qwen3:mask=93"]);
    assert_eq!(named.json()["tokens"], ar.json()["tokens"]);
}

/// With an adapter on masks the text is the base model's own, in fewer forwards, without a named decoder.
#[test]
fn an_adapter_is_named_shown_and_used() {
    let (base, adapter) = (project("golden/ckpt/idlm-base-toy"), project("golden/ckpt/idlm-base-toy-lora"));
    let model = ["--model", &base, "--family", "qwen3:mask=93"];
    let answer = |more: &[&str]| {
        let prompt = ["generate", "--prompt-tokens", "3,4,5,6,7", "--max-tokens", "24", "--ignore-eos", "--json"];
        demask(&[&prompt[..], &model, more].concat())
    };
    let plain = answer(&[]).json();
    let found = answer(&["--adapter", &adapter]);
    let said = "warning: the adapter idlm-base-toy-lora changes rows of masks alone, so that texts are the model's own; \
                `--adapter-use` all overrides this";
    assert!(found.stderr.contains(said), "{}", found.stderr);
    let found = found.json();
    assert_eq!((&found["tokens"], &found["receipt"]["against"]), (&plain["tokens"], &"ar, cache causal".into()));
    assert_eq!(found["receipt"]["model"], "idlm-base-toy+idlm-base-toy-lora");
    assert!(found["receipt"]["forwards"].as_u64().unwrap() * 13 < plain["receipt"]["forwards"].as_u64().unwrap() * 10);
    let [all, merged] = ["all", "merged"].map(|usage| {
        answer(&["--adapter", &adapter, "--adapter-use", usage, "--dtype", "f32"]).json()["tokens"].clone()
    });
    assert_eq!(all, merged);
    assert_ne!(all, plain["tokens"]);
    let shown =
        demask(&[&["inspect"][..], &model, &["--adapter", &adapter, "--adapter-use", "masks"]].concat()).success();
    let line = "adapter     idlm-base-toy-lora: masks, rank 8, 14 products, ";
    assert!(shown.contains(line) && shown.contains("trained for idlm-base-toy\n"), "{shown}");
    for (more, expected) in [
        (&["--adapter-use", "all"][..], "--adapter-use says how an adapter is used, and none is named: give --adapter"),
        (
            &["--adapter", &adapter, "--adapter-use", "most"],
            "adapter use \"most\": expected auto, masks, all or merged",
        ),
        (&["--adapter", &base], "adapter_config.json is missing: expected an adapter in PEFT's layout"),
        (
            &["--adapter", &adapter, "--adapter-use", "merged", "--quantize", "q8"],
            "give --adapter-use all, which computes it beside",
        ),
    ] {
        let refused = answer(more);
        assert!(refused.code != Some(0) && refused.stderr.contains(expected), "{}", refused.stderr);
    }
    let refused = demask(&["generate", "--adapter", &adapter, "hi"]);
    assert!(
        refused.stderr.contains("--adapter goes with a model, and no model is named: give --model"),
        "{}",
        refused.stderr
    );
}

#[test]
fn memory_is_what_a_loaded_model_takes() {
    let told = demask(&["inspect", "--json"]).json();
    for (index, dtype, format) in [(0, "f32", "none"), (1, "bf16", "none"), (2, "bf16", "q8"), (3, "bf16", "q4")] {
        let run =
            demask(
                &[
                    &[
                        "generate",
                        "--prompt-tokens",
                        "1",
                        "--gen-length",
                        "999",
                        "--steps",
                        "1",
                        "--block-length",
                        "999",
                    ][..],
                    &["--dtype", dtype, "--quantize", format, "--json"],
                ]
                .concat(),
            );
        let taken = &run.json()["receipt"]["memory"];
        let told = &told["memory"][index];
        assert_eq!(told["weights"], taken["weights"], "{dtype} {format}");
        assert_eq!(told["cache_per_1000_positions"], taken["cache"], "{dtype} {format}");
    }
}

/// The exit code and what is told by a call that may take so much memory.
#[cfg(target_os = "linux")]
fn limited(kibibytes: u64, arguments: &[&str]) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    let call = format!("ulimit -d {kibibytes}; exec \"$0\" \"$@\"");
    shell.args(["-c", &call, env!("CARGO_BIN_EXE_demask")]).args(arguments);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_beyond_the_limit_of_memory_is_refused_before_it_is_loaded() {
    let arguments = ["generate", "--prompt-tokens", "1", "--gen-length", "1", "--threads", "1", "--dtype", "f32"];
    let (code, told) = limited(14 << 10, &arguments);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.starts_with("error: demo-llada needs ") && told.lines().count() == 1, "{told}");
    assert!(told.contains("MiB are available: --quantize q8 needs "), "{told}");
    let (code, told) = limited(14 << 10, &[&arguments[..], &["--quantize", "q8"]].concat());
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = limited(1 << 20, &arguments);
    assert_eq!(code, Some(0), "{told}");
}

/// A chat template takes more memory than the demo model: here its context is long.
#[cfg(target_os = "linux")]
#[test]
fn a_conversation_beyond_the_limit_of_memory_is_refused_before_it_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    for file in fs::read_dir(project("demo/demo-llada")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
    }
    let config = directory.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let longer = text.replace("\"max_sequence_length\": 1024", "\"max_sequence_length\": 400000");
    assert_ne!(text, longer);
    fs::write(&config, longer).unwrap();
    let model = directory.path().to_str().unwrap();
    let arguments = ["chat", "--model", model, "--threads", "1", "--dtype", "f32", "--gen-length"];
    let (code, told) = limited(600 << 10, &[&arguments[..], &["100000"]].concat());
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(" of K/V") && !told.contains(" 0 of K/V") && told.lines().count() == 1, "{told}");
    let (code, told) = limited(600 << 10, &[&arguments[..], &["1000"]].concat());
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("note: --gen-length 1000 is an input") && told.lines().count() == 1, "{told}");
}

#[test]
fn memory_of_blocks_is_that_of_the_blocks() {
    let model = project("crates/checkpoint/tests/data/tiny.gguf");
    let told = demask(&["inspect", &model, "--json"]).json();
    for (index, dtype) in [(0, "f32"), (1, "bf16")] {
        let told = &told["memory"][index];
        let arguments = ["generate", "--model", &model, "--prompt-tokens", "1", "--gen-length", "1", "--json"];
        let run = demask(&[&arguments[..], &["--dtype", dtype]].concat()).json();
        let (taken, weights) = (run["receipt"]["memory"]["weights"].as_f64(), told["weights"].as_f64());
        assert_eq!(taken, weights, "{dtype}");
        let device = run["receipt"]["device"].as_str().unwrap();
        // Gate and up are in different blocks: packed together, they leave them, for the inputs' type.
        let matrices = if device.contains("int8 activations") { vec!["q8"] } else { vec![dtype, "q8"] };
        assert_eq!((&told["dtype"], &told["matrices"]), (&dtype.into(), &matrices.clone().into()));
        assert!(device.ends_with(&format!("{} weights", matrices.join(" + "))), "{device}");
    }
}

#[test]
fn weights_that_take_more_memory_than_in_their_file_are_told_before_and_while_they_are_loaded() {
    let model = project("crates/checkpoint/tests/data/tiny.gguf");
    let told = "1 tensor of q4_0, 1.1 KiB in the file, as f32 in 8.0 KiB";
    let text = demask(&["inspect", &model]).success();
    assert!(text.contains(&format!("\nwidened     cpu f32: {told}\n")), "{text}");
    let report = demask(&["inspect", &model, "--json"]).json();
    let widened = &report["memory"][0]["widened"];
    assert_eq!((&widened[0]["stored"], &widened[1]["stored"]), (&"q4_0".into(), &"q5_0".into()));
    assert_eq!((&widened[0]["kept"], &widened[0]["bytes"]), (&"f32".into(), &8192.into()));
    let arguments = ["generate", "--model", &model, "--prompt-tokens", "1", "--gen-length", "1"];
    let with = |more: &[&str]| demask(&[&arguments[..], more].concat()).stderr;
    let line = "warning: weights take more memory than in their file: ";
    let loaded = with(&["--dtype", "f32"]);
    assert!(loaded.lines().any(|found| found.starts_with(&format!("{line}{told}; 1 tensor of q5_0, "))), "{loaded}");
    for more in [&["--dtype", "f32", "--quiet"][..], &["--quantize", "q8"]] {
        assert!(!with(more).contains(line), "{more:?}");
    }
}

#[test]
fn inspect_lists_ends_with_their_texts_and_what_names_them() {
    let model = project("crates/checkpoint/tests/data/tiny.gguf");
    let text = demask(&["inspect", &model]).success();
    let told = "\nstop        262 \"<|endoftext|>\" (tokenizer.ggml.eos_token_id), 264 \"<|eot_id|>\" (its text)\n";
    assert!(text.contains(told), "{text}");
    let report = demask(&["inspect", &model, "--json"]).json();
    assert_eq!(report["ends"][1], serde_json::json!({"id": 264, "text": "<|eot_id|>", "from": "its text"}));
    assert_eq!(report["stop"], serde_json::json!([262, 264]));
}

#[test]
fn receipts_tell_what_activations_are_rounded_to() {
    let arguments = ["generate", "--prompt-tokens", "1", "--gen-length", "1", "--dtype", "bf16", "--json"];
    for weights in ["q8", "q4"] {
        for (activations, told) in [("int8", true), ("bf16", false)] {
            let run = demask(&[&arguments[..], &["--quantize", weights, "--activations", activations]].concat()).json();
            let device = run["receipt"]["device"].as_str().unwrap();
            assert!(device.ends_with(&format!("{weights} weights")), "{device}");
            assert_eq!(device.contains(", int8 activations"), told, "{device}");
        }
    }
}

#[test]
fn doctor_knows_the_machine() {
    let report = demask(&["doctor", "--json"]).json();
    assert_eq!(report["cpu"]["tier"], Isa::best().tier().name());
    let reason = report["gpu"]["reason"].as_str().unwrap();
    let reasons = ["there is no NVIDIA driver: ", "this build runs on the CPU only", "the NVIDIA driver (CUDA "];
    assert!(reasons.iter().any(|known| reason.starts_with(known)), "{reason}");
    assert_eq!(report["defaults"].as_array().unwrap().len(), 6);
    for ceiling in ["read_gbs", "f32_tflops", "bf16_tflops", "int8_tflops"] {
        assert!(report["ceilings"][ceiling].as_f64() > Some(0.0), "{ceiling}");
    }
    let text = demask(&["doctor", "--threads", "1"]).success();
    assert!(
        text.contains("threads   1\n")
            && text.contains("I-DLM: decoder isd:stride=4, cache causal (lossless)")
            && text.contains("SDAR, Stable-DiffCoder, A2D-Qwen2-bd3lm, A2D-Qwen3-bd3lm, Fast-dLLM-v2, SDAR-MoE, LLaDA2: decoder threshold:tau=0.9, cache block (approximate)"),
        "{text}"
    );
}
