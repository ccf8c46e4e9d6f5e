//! `--device cuda` with a driver that pretends to have a GPU: what is measured, and what cannot be done in one line.

#[path = "../../cuda/tests/fake_driver/mod.rs"]
mod fake_driver;

use std::collections::BTreeSet;

use fake_driver::Fake;

use crate::harness::{Run, command, project};

/// Runs the program with a driver and a compiler that pretend.
fn pretending(fake: &Fake, arguments: &[&str]) -> Run {
    let mut command = command(arguments);
    command.env("DEMASK_CUDA_DRIVER", fake.driver()).env("DEMASK_NVRTC", fake.compiler());
    command.env("XDG_CACHE_HOME", fake.kernels()).output().unwrap().into()
}

/// What is told of every card that computes.
const EXPERIMENTAL: &str = "experimental: not all checks have passed on it";

/// Expects one line that begins and ends like this, beside that.
#[track_caller]
fn refused(run: &Run, code: i32, begin: &str, end: &str) {
    let stderr: String = run.stderr.split_inclusive('\n').filter(|line| !line.contains(EXPERIMENTAL)).collect();
    let line = stderr.strip_prefix("error: ").unwrap_or(&stderr);
    assert!(line.starts_with(begin) && line.trim_end().ends_with(end), "{}", run.stderr);
    assert_eq!((stderr.lines().count(), run.code, run.stdout.as_str()), (1, Some(code), ""), "{}", run.stderr);
}

#[test]
fn what_only_the_processor_has_is_refused() {
    let fake = Fake::new(&[], &[]);
    let (begin, end) = ("a number of threads (--threads) with device cuda:0, where ", "or use --device cpu");
    for single in ["linear", "attention"] {
        let run = pretending(&fake, &["bench", single, "--every-kernel"]);
        let every = "--every-kernel with device cpu, which has one kernel for everything: ";
        refused(&run, 2, every, "use --device cuda");
        refused(&pretending(&fake, &["bench", single, "--device", "cuda", "--threads", "2"]), 2, begin, end);
    }
}

/// Heads of 12 numbers: before the kernels are compiled, let alone weights read.
#[test]
fn a_model_whose_heads_no_kernel_takes_is_refused_with_what_would_run() {
    let fake = Fake::new(&[], &[]);
    let (model, out) = (project("golden/ckpt/toy-qwen2"), fake.kernels().with_extension("safetensors"));
    let logits = ["logits", "--causal", "--tokens", "1,2", "--model", &model, "--out", out.to_str().unwrap()];
    for flags in [&["--dtype", "bf16"][..], &["--dtype", "bf16", "--quantize", "q8"]] {
        let run = pretending(&fake, &[&logits, flags, &["--device", "cuda"]].concat());
        let begin = "toy-qwen2 cannot run on cuda:0: a head has 12 numbers, GPU kernels take multiples of 8 up to 256";
        refused(&run, 1, begin, " in bf16: use --dtype f32 or --device cpu");
        assert!(!out.exists() && !fake.kernels().exists());
    }
}

/// Single operations on emulated kernels. The driver's clock goes on by a quarter of a second whenever it is looked at,
/// which a run does before and behind sixteen launches.
#[test]
fn single_operations_are_measured_beside_the_ceilings_of_the_card() {
    let fake = Fake::emulated();
    fake.emulate_with(&["MEMORY=(4ul<<20)"]);
    let bench = |arguments: &[&str]| {
        let run = pretending(&fake, &[arguments, &["--device", "cuda", "--repeat", "1", "--json"]].concat());
        run.json().as_array().unwrap().clone()
    };
    let check = |report: &serde_json::Value, rows: u64| {
        assert_eq!((&report["rows"], &report["threads"]), (&rows.into(), &serde_json::Value::Null));
        for field in ["flops", "tflops", "gbs", "peak_tflops", "peak_gbs", "fraction"] {
            assert!(report[field].as_f64() > Some(0.0), "{field}: {report}");
        }
        assert_eq!(report["seconds"]["median"], 0.25 / 16.0, "{report}");
    };
    for (dtype, kernel) in [("f32", "gemm_f32_"), ("bf16", "gemm_bf16_"), ("q8", "gemm_q8_"), ("q4", "gemm_q4_")] {
        let reports = bench(&["bench", "linear", "--rows", "1,9", "--in", "64", "--out", "48", "--dtype", dtype]);
        assert_eq!(reports.len(), 2);
        for (report, rows) in reports.iter().zip([1, 9]) {
            check(report, rows);
            assert_eq!((&report["dtype"], &report["in"], &report["out"]), (&dtype.into(), &64.into(), &48.into()));
            assert!(report["kernel"].as_str().unwrap().starts_with(kernel), "{report}");
        }
    }
    for dtype in ["f32", "bf16"] {
        let shape = ["--rows", "3", "--keys", "40", "--heads", "2", "--head-dim", "16", "--dtype", dtype];
        let reports = bench(&[&["bench", "attention"], &shape[..]].concat());
        check(&reports[0], 3);
        assert_eq!((&reports[0]["keys"], &reports[0]["dtype"]), (&40.into(), &dtype.into()));
    }
    // Every kernel, the one that steps take first.
    let every = ["--dtype", "bf16", "--every-kernel"];
    let products = bench(&[&["bench", "linear", "--rows", "9", "--in", "64", "--out", "48"][..], &every].concat());
    let attention = ["bench", "attention", "--rows", "3", "--keys", "300", "--heads", "2", "--head-dim", "16"];
    let attention = bench(&[&attention[..], &every].concat());
    for (reports, kernels) in [(products, 6), (attention, 2)] {
        let chosen: Vec<_> = reports.iter().map(|report| report["chosen"].as_bool().unwrap()).collect();
        assert_eq!((chosen.len(), chosen[0], chosen.contains(&false)), (kernels, true, true));
        let names: BTreeSet<_> = reports.iter().map(|report| report["kernel"].as_str().unwrap()).collect();
        assert_eq!(names.len(), kernels, "{names:?}");
        for report in &reports {
            check(report, report["rows"].as_u64().unwrap());
        }
    }
    let arguments = ["bench", "attention", "--device", "cuda", "--head-dim", "300"];
    refused(&pretending(&fake, &arguments), 1, "a head has 300 numbers, GPU kernels take ", "use --device cpu");
    let arguments = ["bench", "linear", "--device", "cuda"];
    refused(&pretending(&fake, &arguments), 1, "packing a ", "MiB available");
}
