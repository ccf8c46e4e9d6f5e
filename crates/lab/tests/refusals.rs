//! Every mistake gets one line that says what was found, what was expected and what to try, and an exit code: 2 for a
//! wrong call, 1 for a failure.

use std::fs;

use crate::harness::{lab, lab_with_input, refused};

#[test]
fn what_shows_nothing_of_an_answer_refuses_what_is_told_of_it() {
    let told = "--top-logprobs is shown by generate and chat with --json: add --json there, or omit it";
    refused(&lab(&["eval", "wordmath", "--top-logprobs", "3"]), 2, told);
    let told = "--deadline-ms ends answers by the clock, in generate and chat: omit it";
    refused(&lab(&["eval", "wordmath", "--deadline-ms", "3"]), 2, told);
    refused(&lab(&["bench", "generate", "--deadline-ms", "3"]), 2, told);
}

#[test]
fn places_that_cannot_be_written() {
    // Known before the model is read: the directory of the model is missing too.
    let missing = "cannot write /nowhere/x: No such file or directory (os error 2)";
    refused(&lab(&["logits", "--tokens", "1", "--model", "nowhere", "--out", "/nowhere/x"]), 2, missing);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("kept"), "x").unwrap();
    let path = directory.path().to_str().unwrap();
    refused(
        &lab(&["synth", "--like", "llada-8b", "--layers", "1", "--out", path]),
        2,
        &format!("{path} exists and is not an empty directory: give a new one, or remove it first"),
    );
}

#[test]
fn calls_that_are_not_understood() {
    let none = "no command given: --help lists them; demask-lab eval wordmath --limit 20 evaluates the built-in demo";
    refused(&lab(&[]), 2, none);
    refused(&lab(&["bench"]), 2, none);
    refused(&lab(&["bench", "gpu"]), 2, "unrecognized subcommand 'gpu' (--help lists what there is)");
    let gone = "bench serve was a command of demask 0.1.0: measure a server with a load generator such as aiperf, as \
                bench/run.py serve-load does";
    refused(&lab(&["bench", "serve", "--url", "http://127.0.0.1:8080", "--requests", "4"]), 2, gone);
    let gone = "bench step --drafts was a flag of demask 0.1.0: --branches says it, drafts side by side";
    refused(&lab(&["bench", "step", "--drafts", "4"]), 2, gone);
    let gone = "analyze stability --layers was a flag of demask 0.1.0: --drawn-layers says it, layers with pictures of their own";
    refused(&lab(&["analyze", "stability", "--layers=0,3"]), 2, gone);
    refused(&lab(&["trace", "x", "--json"]), 2, "--json has no meaning with trace: omit it");
    refused(&lab(&["--seed", "1", "bench", "linear"]), 2, "--seed has no meaning with bench linear: omit it");
    for name in ["generate", "chat", "serve", "pull", "list", "inspect", "doctor", "health"] {
        refused(&lab(&[name, "--help"]), 2, &format!("{name} is a command of demask: demask {name} ..."));
    }
}

#[test]
fn logits_of_nothing() {
    refused(&lab(&["logits", "--tokens", "1"]), 2, "no output named: give --out FILE.safetensors");
    refused(&lab(&["logits", "--out", "x"]), 2, "no tokens: give --tokens 1,2,3 or --tokens-file FILE");
    refused(
        &lab(&["logits", "--tokens", "1", "--causal", "--block-causal", "2", "--out", "x"]),
        2,
        "--causal and --block-causal contradict each other: give one of them",
    );
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    refused(
        &lab(&["logits", "--tokens", "489", "--out", out]),
        2,
        "prompt token 489 is outside the vocabulary of 489: expected ids from 0 to 488",
    );
    refused(
        &lab_with_input(&["logits", "--tokens-file", "-", "--out", out], "[1]\n1,2\n"),
        2,
        "- line 2: expected a JSON array of token ids, [1, 2, 3]",
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn shapes_traces_and_rows_that_are_none() {
    refused(
        &lab(&["synth", "--out", "x"]),
        2,
        "no shape: give --like with one of llada-8b, dream-7b, sdar-1.7b, sdar-4b, sdar-8b, i-dlm-8b, qwen2.5-1.5b, qwen3-1.7b, qwen3-8b, \
         stable-diffcoder-8b, open-dcoder-0.5b, a2d-qwen2.5-coder-0.5b, a2d-qwen3-0.6b, \
         fast-dllm-v2-1.5b, fast-dllm-v2-7b, nemotron-labs-diffusion-3b, nemotron-labs-diffusion-8b, \
         llada-moe-7b-a1b, sdar-30b-a3b, llada2.0-mini, llada2.1-mini, rnd1-30b-a3b",
    );
    refused(
        &lab(&["synth", "--like", "gpt", "--out", "x"]),
        2,
        "unknown shape \"gpt\", expected one of llada-8b, dream-7b, sdar-1.7b, sdar-4b, sdar-8b, i-dlm-8b, qwen2.5-1.5b, qwen3-1.7b, qwen3-8b, \
         stable-diffcoder-8b, open-dcoder-0.5b, a2d-qwen2.5-coder-0.5b, a2d-qwen3-0.6b, \
         fast-dllm-v2-1.5b, fast-dllm-v2-7b, nemotron-labs-diffusion-3b, nemotron-labs-diffusion-8b, \
         llada-moe-7b-a1b, sdar-30b-a3b, llada2.0-mini, llada2.1-mini, rnd1-30b-a3b",
    );
    refused(&lab(&["synth", "--like", "llada-8b"]), 2, "no output named: give --out DIR");
    refused(
        &lab(&["synth", "--like", "llada-8b", "--layers", "0", "--out", "x"]),
        2,
        "0 layers cannot be made, expected 1 to 1024",
    );
    refused(
        &lab_with_input(&["trace", "-"], "{\"event\":\"step\"}\n"),
        1,
        "cannot replay -: line 1 of the trace is not a header, step, commit or prediction: expected what --trace writes",
    );
    refused(
        &lab_with_input(&["trace", "-"], ""),
        1,
        "cannot replay -: the trace does not start with a header line: expected what --trace writes",
    );
    refused(&lab(&["trace", "-", "--speed", "0"]), 2, "--speed is 0, expected steps a second, a number above 0");
    refused(
        &lab(&["bench", "step", "--rows", "2000"]),
        2,
        "2000 keys exceed the model's context of 1024: ask for fewer",
    );
    refused(
        &lab(&["bench", "step", "--rows", "4", "--keys", "3"]),
        2,
        "--keys is 3, expected at least 4, the rows of the forward",
    );
    refused(
        &lab(&["bench", "step", "--rows", "4", "--computed", "0"]),
        2,
        "--computed is 0, expected 1 to 4, the rows of the forward",
    );
    refused(
        &lab(&["bench", "step", "--rows", "4", "--head-rows", "5"]),
        2,
        "--head-rows is 5, expected 1 to 4, the rows of the forward",
    );
    refused(&lab(&["bench", "step", "--rows", "4", "--branches", "65"]), 2, "--branches is 65, expected 1 to 64");
    refused(&lab(&["bench", "step", "--repeat", "0"]), 2, "--repeat is 0, expected at least 1");
    refused(&lab(&["bench", "linear", "--in", "0"]), 2, "--in is 0, expected 1 to 262144");
    refused(
        &lab(&["bench", "linear", "--dtype", "q8", "--quantize", "q4"]),
        2,
        "--dtype q8 and --quantize q4 contradict each other: give one of them",
    );
    let dtypes = "dtype \"q8\" is unknown: use one of auto, f32, bf16";
    refused(&lab(&["bench", "step", "--dtype", "q8"]), 2, dtypes);
    refused(&lab(&["bench", "linear", "--rows", "0"]), 2, "--rows wants numbers from 1 on: --rows 32,256");
    refused(
        &lab(&["bench", "attention", "--heads", "4", "--kv-heads", "3"]),
        2,
        "--heads is 4, expected a multiple of --kv-heads, 3",
    );
    refused(&lab(&["bench", "generate", "--prompt-length", "0"]), 2, "--prompt-length is 0, expected at least 1");
    refused(
        &lab(&["bench", "generate", "--prompt-length", "1000", "--gen-length", "100"]),
        2,
        "1000 prompt tokens and 100 positions exceed the model's context of 1024",
    );
}
