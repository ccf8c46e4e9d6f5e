//! `logits`, `synth` and `bench`.

use std::fs;
#[cfg(target_os = "linux")]
use std::process::Command;

use safetensors::SafeTensors;

use crate::harness::{demask, lab, project};

#[test]
fn logits_are_written_for_any_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logits.safetensors");
    let (path, model) = (path.to_str().unwrap(), project("golden/ckpt/tiny-dream"));
    let run = lab(&["logits", "--model", &model, "--tokens", "1,2,3", "--layers", "--out", path, "--json"]);
    let json = run.json();
    assert_eq!(json["tensors"]["logits"]["shape"], serde_json::json!([3, 320]));
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = tensors.names();
    names.sort_unstable();
    assert_eq!(names, ["hidden.0", "hidden.1", "hidden.2", "hidden.embed", "hidden.final", "logits"]);
    let logits = tensors.tensor("logits").unwrap();
    assert_eq!(logits.shape(), [3, 320]);
    let value = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
    assert!(logits.data().chunks_exact(4).map(value).all(f32::is_finite));
}

#[test]
fn every_line_of_a_tokens_file_gets_its_tensors() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, out) = (directory.path().join("lines"), directory.path().join("out"));
    fs::write(&lines, "[1, 2, 3, 4, 5]\n\n[6]\n").unwrap();
    let (lines, out, model) = (lines.to_str().unwrap(), out.to_str().unwrap(), project("golden/ckpt/tiny-sdar"));
    let with = |mask: &[&str]| {
        let arguments = ["logits", "--model", &model, "--tokens-file", lines, "--out", out, "-q"];
        lab(&[&arguments[..], mask].concat()).success();
        fs::read(out).unwrap()
    };
    let (own, causal) = (with(&[]), with(&["--causal"]));
    let first = |bytes: &[u8]| SafeTensors::deserialize(bytes).unwrap().tensor("0.logits").unwrap().data().to_vec();
    assert_eq!(SafeTensors::deserialize(&own).unwrap().tensor("1.logits").unwrap().shape()[0], 1);
    assert_ne!(first(&own), first(&causal));
    assert_eq!(first(&own), first(&with(&["--block-causal", "4"])));
    assert_eq!(first(&causal), first(&with(&["--block-causal", "1"])));
}

#[test]
fn a_step_is_measured_for_each_number_of_rows() {
    let model = project("golden/ckpt/tiny-llada");
    let arguments = ["bench", "step", "--model", &model, "--rows", "4,16", "--head-rows", "2", "--repeat", "3"];
    let reports = lab(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(reports.as_array().unwrap().len(), 2);
    let report = &reports[1];
    assert_eq!((&report["rows"], &report["head_rows"]), (&16.into(), &2.into()));
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let seconds = ["min", "median", "max"].map(|key| number(&report["seconds"][key]));
    assert!(0.0 < seconds[0] && seconds[0] <= seconds[1] && seconds[1] <= seconds[2], "{seconds:?}");
    for part in ["linear", "attention", "head"] {
        assert!(number(&report["parts"][part]) > 0.0, "{part}");
    }
    assert!(number(&report["parts"]["other"]) >= 0.0);
    has_rates(report);
    assert_eq!(lab(&arguments).success().lines().count(), 2);
    let cached = lab(&[&arguments[..], &["--keys", "32", "--computed", "3", "--json"]].concat()).json();
    assert_eq!((&cached[1]["keys"], &cached[1]["computed"]), (&32.into(), &3.into()));
    // A layer that computes 3 of 16 rows does less, although each of these sees more keys.
    assert!(number(&cached[1]["flops"]) < number(&report["flops"]));
    let drafts = |count: &str| lab(&[&arguments[..], &["--keys", "32", "--branches", count, "--json"]].concat()).json();
    let (one, three) = (drafts("1"), drafts("3"));
    assert_eq!((&three[1]["rows"], &three[1]["drafts"]), (&16.into(), &3.into()));
    assert_eq!(number(&three[1]["flops"]), 3.0 * number(&one[1]["flops"]), "a draft costs what one costs alone");
}

/// A model of Dream's kind predicts a position in the row before it: these rows are live then, as many as were asked for.
#[test]
fn a_step_of_a_model_that_predicts_the_next_position_sees_slots_before_its_rows() {
    let model = project("golden/ckpt/tiny-dream");
    for flags in [&[][..], &["--branches", "2"], &["--computed", "3"], &["--head-rows", "2"]] {
        for keys in ["8", "9", "24"] {
            let step = ["bench", "step", "--model", &model, "--rows", "8", "--keys", keys, "--repeat", "1", "--json"];
            let reports = lab(&[&step, flags].concat()).json();
            assert_eq!((&reports[0]["rows"], reports[0]["keys"].as_u64()), (&8.into(), keys.parse().ok()));
        }
    }
}

fn has_rates(report: &serde_json::Value) {
    for key in ["flops", "tflops", "gbs", "peak_tflops", "peak_gbs", "fraction"] {
        assert!(report[key].as_f64() > Some(0.0), "{key}");
    }
    let seconds = ["min", "median", "max"].map(|key| report["seconds"][key].as_f64().unwrap());
    assert!(0.0 < seconds[0] && seconds[0] <= seconds[1] && seconds[1] <= seconds[2], "{seconds:?}");
}

#[test]
fn single_operations_are_measured_for_each_number_of_rows() {
    for dtype in ["f32", "bf16"] {
        let small = ["--rows", "1,5", "--repeat", "2", "--dtype", dtype];
        let linear = [&["bench", "linear", "--in", "96", "--out", "70"], &small[..]].concat();
        let attention = [
            &["bench", "attention", "--keys", "70", "--heads", "4", "--kv-heads", "2", "--head-dim", "16"],
            &small[..],
        ]
        .concat();
        for arguments in [linear, attention] {
            let reports = lab(&[&arguments[..], &["--json"]].concat()).json();
            assert_eq!(reports.as_array().unwrap().len(), 2);
            assert_eq!((&reports[0]["rows"], &reports[1]["rows"]), (&1.into(), &5.into()));
            assert_eq!(reports[1]["dtype"], dtype);
            reports.as_array().unwrap().iter().for_each(has_rates);
        }
    }
    let attention = ["bench", "attention", "--keys", "70", "--head-dim", "16", "--rows", "1,5"];
    assert_eq!(lab(&attention).success().lines().count(), 2);
}

#[test]
fn products_with_quantised_weights_are_measured() {
    let small = ["bench", "linear", "--rows", "2", "--repeat", "1", "--in", "96", "--out", "70", "--json"];
    let cases = [
        (&["--dtype", "q8", "--activations", "bf16"][..], "q8", "bf16xq8"),
        (&["--dtype", "q4", "--activations", "int8"], "q4", "i8xq4"),
        (&["--dtype", "f32", "--quantize", "q4"], "q4", "f32xq4"),
    ];
    for (flags, dtype, kernel) in cases {
        let reports = lab(&[&small[..], flags].concat()).json();
        has_rates(&reports[0]);
        assert_eq!(reports[0]["dtype"], dtype);
        assert!(reports[0]["kernel"].as_str().unwrap().contains(kernel), "{}", reports[0]["kernel"]);
        assert!(reports[0]["runs"].as_u64() >= Some(1));
    }
}

#[test]
fn whole_answers_are_measured() {
    let lengths = ["bench", "generate", "--prompt-length", "5", "--gen-length", "8", "--repeat", "2"];
    let arguments = [&lengths[..], &["--decoder", "static:steps=4", "--cache", "none", "--json"]].concat();
    let report = lab(&arguments).json();
    has_rates(&report);
    assert_eq!((&report["receipt"]["forwards"], &report["gen_length"]), (&4.into(), &8.into()));
    assert_eq!(lab(&lengths).success().lines().count(), 1);
}

#[test]
fn a_random_checkpoint_of_a_real_shape_can_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qwen");
    let path = path.to_str().unwrap();
    let made = lab(&["synth", "--like", "qwen2.5-1.5b", "--layers", "1", "--out", path, "--json"]).json();
    assert!(made["bytes"].as_u64() > Some(400 << 20));
    assert_eq!(demask(&["inspect", path, "--json"]).json()["family"], "Qwen2");
    lab(&["bench", "step", "--model", path, "--rows", "8", "--repeat", "1"]).success();
}

#[test]
fn inputs_of_quantised_products_are_rounded_as_asked() {
    let arguments = ["bench", "linear", "--rows", "1", "--in", "64", "--out", "64", "--quantize", "q8", "--json"];
    let report = lab(&[&arguments[..], &["--activations", "int8"]].concat()).json();
    assert!(report[0]["kernel"].as_str().unwrap().ends_with("_i8xq8_f32"), "{report}");
}

/// Whatever loads a model counts the K/V of its first canvas.
#[cfg(target_os = "linux")]
#[test]
fn a_model_beyond_the_limit_of_memory_is_refused_before_it_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("refused.safetensors");
    for command in [
        &["logits", "--tokens", "1,2,3", "--out", out.to_str().unwrap()][..],
        &["bench", "step", "--rows", "8"],
        &["bench", "generate", "--gen-length", "8"],
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -d 14336; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_demask-lab")]);
        let output = shell.args(command).args(["--threads", "1", "--dtype", "f32"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {told}");
        assert!(told.contains(" of K/V") && !told.contains(" 0 of K/V") && told.lines().count() == 1, "{told}");
        assert!(!out.exists());
    }
}

#[test]
fn packages_get_manual_pages_and_completions_of_every_command() {
    let directory = tempfile::tempdir().unwrap();
    lab(&["man", "--out", directory.path().to_str().unwrap()]).success();
    let page = |name: &str| fs::read_to_string(directory.path().join(format!("{name}.1"))).unwrap();
    assert!(page("demask-lab").contains("DEMASK_ISA") && page("demask-lab-bench-step").contains("\\-\\-rows"));
    let bash = lab(&["completions", "bash"]).success();
    for name in ["eval", "recipe", "report", "tune", "bench", "analyze", "trace", "synth", "logits", "cost"] {
        assert!(page(&format!("demask-lab-{name}")).contains(".TH") && bash.contains(name), "{name}");
    }
}

/// Neither shapes nor rows of other models have a place for the adapter of --model.
#[test]
fn an_adapter_is_refused_where_it_would_be_ignored() {
    let (base, adapter) = (project("golden/ckpt/idlm-base-toy"), project("golden/ckpt/idlm-base-toy-lora"));
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs.toml");
    fs::write(&runs, "[[task]]\ntask = \"wordmath\"\nlimit = 1\n[[row]]\nname = \"r\"\nmodel = \"demo\"\n").unwrap();
    let of_model = ["--model", &base, "--family", "qwen3:mask=93"];
    let rows = [&["eval", "--runs", runs.to_str().unwrap()][..], &of_model].concat();
    for (command, expected) in [
        (vec!["cost", "--like", "qwen3-1.7b"], "--adapter goes with a model, and no model is named"),
        (rows, "and a row names another model: omit one"),
    ] {
        let run = lab(&[&command[..], &["--adapter", &adapter]].concat());
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    }
}
