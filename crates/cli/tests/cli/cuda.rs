//! `--device cuda` where there is no GPU, or a driver that pretends to have one: what cannot be done is one line.

#[path = "../../../cuda/tests/fake_driver/mod.rs"]
mod fake_driver;

use fake_driver::Fake;

use crate::harness::{Run, command, demask, project};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// Runs the binary with a driver and a compiler that pretend.
fn pretending(fake: &Fake, arguments: &[&str]) -> Run {
    let mut command = command(arguments);
    command.env("DEMASK_CUDA_DRIVER", fake.driver()).env("DEMASK_NVRTC", fake.compiler());
    command.env("XDG_CACHE_HOME", fake.kernels()).output().unwrap().into()
}

fn generate(fake: &Fake, arguments: &[&str]) -> Run {
    pretending(fake, &[&["generate", QUESTION], arguments].concat())
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
fn a_gpu_that_is_not_there_is_explained() {
    let run = command(&["generate", "hi", "--device", "cuda"])
        .env("DEMASK_CUDA_DRIVER", "/nowhere/libcuda.so.1")
        .output()
        .unwrap();
    let begin = "device cuda:0 cannot be used: there is no NVIDIA driver: /nowhere/libcuda.so.1: ";
    refused(&run.into(), 1, begin, "; --device cpu runs without it");
}

#[test]
fn every_reason_is_one_line() {
    /// Case: definitions of driver and compiler, requested device, exit code, reason.
    type Case = (&'static [&'static str], &'static [&'static str], &'static str, i32, &'static str);
    let cases: [Case; 6] = [
        (&["VERSION=11040"], &[], "cuda", 1, "the NVIDIA driver is for CUDA 11.4, 11.8 or later is needed: update"),
        (&["cuGraphLaunch=left_out"], &[], "cuda", 1, "the NVIDIA driver for CUDA 12.4 lacks cuGraphLaunch: update"),
        (&["DEVICES=0"], &[], "cuda", 1, "the NVIDIA driver (CUDA 12.4) finds no GPU: look at nvidia-smi"),
        (&["CAPABILITY=75"], &[], "cuda", 1, "NVIDIA Pretence has compute capability 7.5, 8.0 or later is needed"),
        (&["DEVICES=2"], &[], "cuda:2", 2, "there is no GPU number 2, the NVIDIA driver finds 2, counted from 0"),
        (
            &[],
            &["MAJOR=13"],
            "cuda",
            1,
            "the kernels are not compiled for NVIDIA Pretence yet, and there is no compiler",
        ),
    ];
    for (driver, compiler, device, code, reason) in cases {
        let run = generate(&Fake::new(driver, compiler), &["--device", device]);
        let number = device.strip_prefix("cuda:").unwrap_or("0");
        refused(
            &run,
            code,
            &format!("device cuda:{number} cannot be used: {reason}"),
            "; --device cpu runs without it",
        );
    }
}

#[test]
fn what_only_the_processor_has_is_refused() {
    let fake = Fake::new(&[], &[]);
    let (begin, end) = ("activations of int8 with device cuda:0, where products take", "or use --device cpu");
    refused(&generate(&fake, &["--device", "cuda", "--quantize", "q8", "--activations", "int8"]), 2, begin, end);
    let begin = "a number of threads (--threads) with device cuda:0, where ";
    refused(&generate(&fake, &["--device", "cuda", "--threads", "2"]), 2, begin, end);
    let run = command(&["generate", "hi", "--device", "cuda"]).env("DEMASK_ISA", "portable").output().unwrap();
    refused(&run.into(), 2, "a tier of the processor (DEMASK_ISA) with device cuda:0, where ", end);
}

#[test]
fn auto_is_the_processor_until_a_card_has_passed_the_checks() {
    let fake = Fake::emulated();
    let auto = generate(&fake, &["--dtype", "f32", "--gen-length", "32", "--json"]);
    assert!(!auto.stderr.contains("experimental"), "{}", auto.stderr);
    let report = auto.json();
    assert!(!report["receipt"]["device"].as_str().unwrap().contains("Pretence"), "{report}");
    // Nobody asks a driver that nobody asked for.
    let old = generate(&Fake::new(&["VERSION=11040"], &[]), &[]);
    assert!(!old.stderr.contains("CUDA"), "{}", old.stderr);
    assert!(old.success().contains("The final answer is 7"));
    let doctor = pretending(&fake, &["doctor"]).success();
    assert!(doctor.contains("standing  experimental: device auto is the processor"), "{doctor}");
}

#[test]
fn a_card_that_is_asked_for_is_said_to_be_experimental_in_one_line() {
    let fake = Fake::emulated();
    let run = generate(&fake, &["--dtype", "f32", "--gen-length", "16", "--json", "--device", "cuda"]);
    let told =
        run.stderr.lines().filter(|line| line.contains("experimental: not all checks have passed on it")).count();
    // The emulated compiler may say things of its own.
    let lines = run.stderr.lines().filter(|line| !line.contains("#pragma once")).count();
    assert_eq!((told, lines), (1, 1), "{}", run.stderr);
    run.success();
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_numbers() {
    let fake = Fake::new(&["MEMORY=(8ul<<20)"], &[]);
    let model = project("demo/demo-llada");
    let run = generate(&fake, &["--device", "cuda", "--model", &model, "--dtype", "f32"]);
    let begin = "demo-llada needs ";
    refused(&run, 1, begin, "and 8 MiB are available: no --quantize makes it fit");
    assert!(run.stderr.contains(" MiB of memory on cuda:0 NVIDIA Pretence ("), "{}", run.stderr);
}

#[test]
fn memory_that_runs_out_while_weights_are_loaded_is_one_line() {
    let run = generate(&Fake::new(&["FAIL_ALLOCATION=9"], &[]), &["--device", "cuda"]);
    refused(&run, 1, "demo-llada cannot be loaded: ", "MiB available");
}

#[test]
fn spoiled_kernels_are_a_warning() {
    let fake = Fake::new(&["MEMORY=(8ul<<20)"], &[]);
    let arguments = ["--device", "cuda", "--dtype", "f32"];
    assert_eq!(generate(&fake, &arguments).stderr.lines().count(), 1);
    let folder = fake.kernels().join("demask/kernels");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    std::fs::write(file, "something else").unwrap();
    let run = generate(&fake, &arguments);
    assert!(run.stderr.contains("holds no kernels: it is made anew"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 2, "{}", run.stderr);
    assert_eq!(generate(&fake, &arguments).stderr.lines().count(), 1);
}

#[test]
fn doctor_tells_the_card_and_what_belongs_to_it() {
    let fake = Fake::new(&["DEVICES=2", "CAPABILITY=75"], &[]);
    let report = pretending(&fake, &["doctor", "--json"]).json();
    let gpu = &report["gpu"];
    assert_eq!((&gpu["driver"], &gpu["cards"][1]["name"]), (&"12.4".into(), &"NVIDIA Pretence".into()));
    assert_eq!(gpu["cards"][0]["capability"], "7.5");
    assert!(gpu["cards"][0]["refused"].as_str().unwrap().contains("8.0 or later is needed"));
    assert_eq!(gpu["nvrtc"], format!("12.4 ({})", fake.compiler().display()));
    assert_eq!(gpu["kernels"], fake.kernels().join("demask/kernels").display().to_string());
    let fake = Fake::new(&[], &["MAJOR=13"]);
    let text = pretending(&fake, &["doctor"]).success();
    assert!(
        text.contains("gpu       cuda:0 NVIDIA Pretence, capability 9.0, 1.0 GiB\ndriver    CUDA 12.4\n"),
        "{text}"
    );
    assert!(text.contains("nvrtc     none: ") && text.contains("expected NVRTC 12 or earlier\n"), "{text}");
}

#[test]
fn inspect_tells_what_a_gpu_would_need_without_one() {
    let report = demask(&["inspect", "--json"]).json();
    let memory = report["memory"].as_array().unwrap();
    let of = |device: &str| memory.iter().filter(|entry| entry["device"] == device).collect::<Vec<_>>();
    assert_eq!((of("cpu").len(), of("cuda").len()), (4, 4));
    for entry in of("cuda") {
        assert!(
            entry["weights"].as_u64() > Some(1 << 20) && entry["cache_per_1000_positions"].as_u64() > Some(1 << 20)
        );
    }
}

/// The whole way of a command on a GPU: the driver's calls, the backend's launches, the kernels' own text; and what becomes
/// of a device that fails in the middle of it.
#[test]
fn emulated_kernels_answer_as_the_processor_does_until_they_fail() {
    let fake = Fake::emulated();
    let arguments = ["--dtype", "f32", "--gen-length", "32", "--json"];
    let on_gpu = generate(&fake, &[&arguments[..], &["--device", "cuda"]].concat()).json();
    let on_cpu = generate(&fake, &[&arguments[..], &["--device", "cpu"]].concat()).json();
    assert_eq!(on_gpu["tokens"], on_cpu["tokens"]);
    assert_eq!(on_gpu["receipt"]["nfe"], on_cpu["receipt"]["nfe"]);
    assert_eq!(on_gpu["receipt"]["memory"]["cache"], on_cpu["receipt"]["memory"]["cache"]);
    assert!(on_gpu["text"].as_str().unwrap().contains("The final answer is 7"));
    let memory = &on_gpu["receipt"]["memory"];
    let [current, peak, in_use] = ["current", "peak", "in_use"].map(|name| memory["device"][name].as_u64().unwrap());
    let kept = memory["weights"].as_u64().unwrap() + memory["cache"].as_u64().unwrap();
    assert!(kept < current && current <= peak && peak < 1 << 30, "{memory}");
    assert_eq!(in_use, current, "the driver that pretends keeps nothing for itself");
    assert_eq!(on_cpu["receipt"]["memory"].get("device"), None);
    for (fault, end) in [
        ("FAIL_LAUNCH=40", "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure"),
        ("FAIL_WAIT=2", "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"),
    ] {
        fake.emulate_with(&[fault]);
        let run = generate(&fake, &["--dtype", "f32", "--gen-length", "32", "--json", "--device", "cuda"]);
        refused(&run, 1, "the device failed: ", end);
    }
}

#[test]
fn graphs_that_the_driver_refuses_are_one_warning_and_change_nothing() {
    let fake = Fake::emulated();
    // Three forwards of the same bucket: the second is replayed where it can be.
    let short = ["--dtype", "f32", "--gen-length", "16", "--decoder", "static", "--steps", "3", "--cache", "none"];
    let arguments = [&short[..], &["--json", "--device", "cuda"]].concat();
    let usual = generate(&fake, &arguments).json();
    assert_eq!(usual["receipt"]["nfe"], 3);
    for (call, refusal, message) in [
        ("cuStreamBeginCapture_v2", "BEGIN_CAPTURE=801", "CUDA_ERROR_NOT_SUPPORTED (801): operation not supported"),
        ("cuStreamEndCapture", "END_CAPTURE=801", "CUDA_ERROR_NOT_SUPPORTED (801): operation not supported"),
        ("cuGraphInstantiateWithFlags", "INSTANTIATE=2", "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"),
        ("cuGraphLaunch", "REPLAY=2", "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"),
    ] {
        fake.emulate_with(&[refusal]);
        let run = generate(&fake, &arguments);
        let warning = format!("steps run without CUDA graphs, which takes longer: {call}: {message}");
        assert!(run.stderr.contains(&warning) && run.stderr.lines().count() == 2, "{refusal}: {}", run.stderr);
        let report = run.json();
        assert_eq!((&report["tokens"], &report["receipt"]["nfe"]), (&usual["tokens"], &usual["receipt"]["nfe"]));
    }
    fake.emulate_with(&["INSTANTIATE=700"]);
    refused(&generate(&fake, &arguments), 1, "the device failed: ", "an illegal memory access was encountered");
}
