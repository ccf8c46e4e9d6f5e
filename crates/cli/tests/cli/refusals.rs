//! Every mistake gets one line that says what was found, what was expected and what to try, and an exit code: 2 for a
//! wrong call, 1 for a failure.

use std::fs;
#[cfg(target_os = "linux")]
use std::process::Command;

use demask::layers::{
    cpu::{
        cores,
        isa::{Isa, Tier},
    },
    decode::{caches::CACHES, methods::DECODERS},
};

use crate::harness::{Run, command, demask, demask_with_input, project, refused};

/// Expects `generate` with a prompt to be refused as a wrong call.
#[track_caller]
fn generate_refused(arguments: &[&str], message: &str) {
    refused(&demask(&[&["generate", "hi"], arguments].concat()), 2, message);
}

#[test]
fn what_shows_nothing_of_an_answer_refuses_what_is_told_of_it() {
    let told = "--top-logprobs is shown by generate and chat with --json: add --json there, or omit it";
    generate_refused(&["--top-logprobs", "3"], told);
    generate_refused(
        &["--trace-predictions"],
        "--trace-predictions says what --trace writes: give --trace FILE.jsonl, too",
    );
    let told = "--top-logprobs is 21, expected a whole number from 0 to 20";
    generate_refused(&["--top-logprobs", "21", "--json"], told);
    generate_refused(
        &["--stop-token-ids", "1,x"],
        "--stop-token-ids is \"1,x\", expected a token id or a list of them",
    );
}

#[test]
fn models_that_are_none() {
    let named = |model: &str| demask(&["generate", "hi", "--model", model]);
    let expected = "expected a directory with config.json and safetensors, a GGUF file, or a hub id org/name";
    refused(&named("nowhere"), 2, &format!("no model at \"nowhere\": {expected}"));
    refused(&named("../a/b/c"), 2, &format!("no model at \"../a/b/c\": {expected}"));
    let no_file = "there is no such file here, and a file of a hub is org/name/FILE.gguf";
    refused(&named("model.GGUF"), 2, &format!("no model at \"model.GGUF\": {no_file}"));
    let file = project("demo/wordmath-test.jsonl");
    refused(
        &named(&file),
        2,
        &format!(
            "{file} is a file: expected a GGUF file, or the directory that holds it, with config.json beside the weights"
        ),
    );
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    refused(
        &named(path),
        1,
        &format!(
            "{path}/config.json is missing: expected a model directory in Hugging Face layout, with config.json \
             beside the weights"
        ),
    );
    refused(&demask(&["inspect", path]), 1, named(path).stderr["error: ".len()..].trim_end());
    refused(
        &named("org/name"),
        1,
        "org/name is not (completely) in the cache /nowhere/huggingface/hub, and HF_HUB_OFFLINE is set: unset it to \
         fetch the model",
    );
}

#[test]
fn names_that_are_unknown() {
    let decoders: Vec<_> = DECODERS.iter().map(|method| method.about.name).collect();
    let caches: Vec<_> = CACHES.iter().map(|method| method.about.name).collect();
    generate_refused(
        &["--decoder", "quantum"],
        &format!("unknown decoder \"quantum\" (known: {})", decoders.join(", ")),
    );
    generate_refused(&["--decoder", "dual"], "dual is a cache: give it as --cache dual");
    generate_refused(&["--decoder", "threshold=0.8"], "unknown decoder \"threshold=0.8\": write threshold:tau=0.8");
    generate_refused(
        &["--cache", "nome"],
        &format!("unknown cache \"nome\", did you mean \"none\"? (known: {})", caches.join(", ")),
    );
    generate_refused(
        &["--decoder", "threshold:tau=7"],
        "threshold: tau is \"7\", expected a number from 0 to 1 (default: 0.9)",
    );
    let run = demask(&["generate", "hi", "--remasking", "lowconfidence"]);
    assert!(run.stderr.starts_with("error: unknown remasking \"lowconfidence\", did you mean \"low_confidence\"? "));
    assert_eq!(run.code, Some(2));
    generate_refused(
        &["--schedule", "dreamy"],
        "unknown schedule \"dreamy\", did you mean \"dream\"? (known: even, dream, dream_total, linear, rnd1)",
    );
    generate_refused(&["--dtype", "f64"], "dtype \"f64\" is unknown: use one of auto, f32, bf16");
    generate_refused(&["--device", "tpu"], "device \"tpu\" is unknown: use one of auto, cpu, cuda, cuda:N");
    let none = "is unknown: use one of none, q8, q4; without it a GGUF file keeps its own types";
    generate_refused(&["--quantize", "Q4_K_M"], &format!("quantisation \"Q4_K_M\" {none}"));
    generate_refused(
        &["--activations", "f8"],
        "activation format \"f8\" is unknown: use one of auto, plain (or bf16), int8",
    );
}

#[test]
fn what_this_version_lacks() {
    generate_refused(
        &["--activations", "int8"],
        "activations of int8 need quantised weights, found plain ones: add --quantize q8 or q4",
    );
    generate_refused(&["--guide", "x"], "--guide goes with --decoder guided: omit it or name that decoder");
    #[cfg(not(feature = "cuda"))]
    refused(
        &demask(&["generate", "hi", "--device", "cuda:1"]),
        1,
        "device cuda:1 was asked for, and this build runs on the CPU only: use --device cpu or auto",
    );
}

#[test]
fn guides() {
    let guided = |guide: &str, more: &[&str], message: &str| {
        let arguments = ["--decoder", "guided", "--guide", guide];
        generate_refused(&[&arguments[..], more].concat(), message);
    };
    generate_refused(
        &["--decoder", "guided"],
        "decoder guided needs an autoregressive model that judges its drafts: load one with the model, as --guide",
    );
    guided(
        &project("demo/demo-dream"),
        &[],
        "the guide demo-dream is a Dream model, expected an autoregressive one: use a Qwen2.5, Qwen3 or Llama model",
    );
    guided(
        &project("golden/ckpt/toy-qwen2"),
        &[],
        "the guide toy-qwen2 has another vocabulary and toy-qwen2 has no tokenizer to go through: \
         add tokenizer.json, or use a guide with the model's vocabulary",
    );
    guided(
        &project("demo/demo-qwen"),
        &["--steps", "4"],
        "--steps has no meaning with a guide, which takes drafts from left to right: omit it",
    );
    let decoded = |decoder: &str, more: &[&str], message: &str| {
        let guide = project("demo/demo-qwen");
        let arguments = ["--decoder", decoder, "--guide", &guide];
        generate_refused(&[&arguments[..], more].concat(), message);
    };
    decoded(
        "guided:target=guide",
        &[],
        "guided: target=guide writes tokens of the guide, which has another vocabulary: omit it",
    );
    decoded(
        "guided:target=guide",
        &["--temperature", "0.5", "--model", &project("demo/demo-dream")],
        "guided: target=guide gives the guide's greedy output, expected temperature 0: omit the temperature",
    );
    decoded(
        "guided:align=ids",
        &[],
        "guided: align=ids, and the guide has another vocabulary: omit align, or use align=bytes",
    );
}

#[test]
fn prompts_that_are_none_or_two() {
    refused(
        &demask(&["generate"]),
        2,
        "no prompt: give it as an argument, with --prompt-file FILE (-: standard input) or with --prompt-tokens 1,2,3",
    );
    refused(&demask(&["generate", ""]), 2, "the prompt is empty: expected a text");
    generate_refused(
        &["--prompt-file", "x", "--prompt-tokens", "1"],
        "found prompts in the argument and in --prompt-file and in --prompt-tokens, expected one: omit the others",
    );
    refused(
        &demask(&["generate", "--prompt-file", "/nowhere/x"]),
        2,
        "cannot read /nowhere/x: No such file or directory (os error 2)",
    );
    let model = project("golden/ckpt/tiny-llada");
    refused(
        &demask(&["generate", "hi", "--model", &model]),
        1,
        "the model tiny-llada has no tokenizer: give the prompt as ids with --prompt-tokens, or add tokenizer.json",
    );
    generate_refused(
        &["--raw", "--system", "x"],
        "--system is put into words by the chat template: omit it, or --raw, --infill and --prompt-tokens",
    );
}

#[test]
fn pipes_that_are_no_prompt() {
    let empty = "standard input is empty, expected a prompt there: pipe one, or give it as an argument";
    for arguments in [["generate", "-"], ["generate", "--prompt=-"], ["generate", "--prompt-file=-"]] {
        refused(&demask(&arguments), 2, empty);
    }
    refused(
        &demask_with_input(&["generate", "--prompt-tokens", "1,2"], "text"),
        2,
        "a text on standard input cannot follow --prompt-tokens: omit one, or add < /dev/null",
    );
    refused(
        &demask_with_input(&["generate", "--infill", "a <mask:2>"], "text"),
        2,
        "--infill fills one text, found the prompt and another one on standard input: omit one, or add < /dev/null",
    );
    let binary = tempfile::NamedTempFile::new().unwrap();
    for (bytes, why) in [
        (&b"a\0b"[..], "byte 1 is 0, expected text"),
        (b"\x7fELF\xff", "invalid utf-8 sequence of 1 bytes from index 4, expected UTF-8: save it as UTF-8"),
    ] {
        fs::write(binary.path(), bytes).unwrap();
        let piped = || fs::File::open(binary.path()).unwrap();
        for arguments in [&["generate"][..], &["generate", "hi"], &["generate", "-"]] {
            let run = Run::from(command(arguments).stdin(piped()).output().unwrap());
            refused(&run, 1, &format!("cannot read standard input: {why}"));
        }
    }
}

#[test]
fn commands_of_a_conversation_in_a_pipe() {
    let unknown = "/foo is no command (/help lists them; //foo sends /foo)";
    refused(&demask_with_input(&["chat", "-q"], "/foo bar\nnever read\n"), 2, unknown);
    refused(
        &demask_with_input(&["chat", "-q"], "/set steps x\n"),
        2,
        "--steps is \"x\", expected a whole number from 0 on",
    );
    refused(
        &demask_with_input(&["chat", "-q"], "/read /nowhere/x\n"),
        2,
        "cannot read /nowhere/x: No such file or directory (os error 2)",
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.json");
    fs::write(&path, "[{\"role\": \"tool\", \"content\": \"\"}]").unwrap();
    let load = demask_with_input(&["chat", "-q"], &format!("/load {}\n", path.display()));
    let told = format!("{} is no conversation: message 1 is of role \"tool\", expected user", path.display());
    refused(&load, 2, &told);
    let long = demask_with_input(&["chat", "-q"], &format!("{}\n", "pears ".repeat(1100)));
    assert_eq!((long.code, long.stderr.lines().count()), (Some(2), 1), "{}", long.stderr);
}

#[test]
fn prompt_tokens_that_cannot_be() {
    let tokens = |tokens: &str| demask(&["generate", "--prompt-tokens", tokens]);
    refused(&tokens("1,two"), 2, "--prompt-tokens: \"two\" is not a token id: expected 1,2,3 or the like");
    refused(&tokens("1,-2"), 2, "--prompt-tokens: \"-2\" is not a token id: expected 1,2,3 or the like");
    refused(&tokens("1,489"), 2, "prompt token 489 is outside the vocabulary of 489: expected ids from 0 to 488");
    let masked = "the prompt contains the model's mask token: remove it, or write holes as <mask:N> and use --infill";
    refused(&tokens("1,488,2"), 2, masked);
}

#[test]
fn lengths_that_do_not_fit() {
    let long = demask(&["generate", "--raw", &"word ".repeat(2000)]);
    assert_eq!(long.code, Some(2));
    assert!(long.stderr.contains("exceed the model's context of 1024: shorten the prompt or lower --gen-length\n"));
    refused(
        &demask(&["generate", "--prompt-tokens", "1,2", "--gen-length", "1023"]),
        2,
        "2 prompt tokens and 1023 to generate exceed the model's context of 1024: shorten the prompt or lower \
         --gen-length",
    );
    generate_refused(&["--gen-length", "0"], "the generation length is 0, expected at least 1: ask for more tokens");
    generate_refused(
        &["--gen-length", "60", "--block-length", "32"],
        "block length 32 does not divide the generation length 60: try 30",
    );
    generate_refused(&["--block-length", "0"], "the block length is 0, expected at least 1: omit it to have it chosen");
    generate_refused(
        &["--gen-length", "64", "--block-length", "16", "--steps", "7"],
        "7 steps do not divide over 4 blocks: try 8, or another block length",
    );
    generate_refused(&["--steps", "0"], "the number of steps is 0, expected at least 1: omit it for one token a step");
    generate_refused(&["--temperature", "-1"], "--temperature is -1, expected a number from 0 on; 0 is greedy");
    let known = "(known: prefix, prefix-fill, block, whole-block, fill, end-run, never)";
    for (typed, message) in [
        (&["--stop-rule", "blok"][..], format!("unknown stop rule \"blok\", did you mean \"block\"? {known}")),
        (
            &["--stop-rule", "end-run:0"],
            "stop rule end-run has \"0\", expected run=N with a whole number from 1 on".to_owned(),
        ),
        (
            &["--stop-rule", "fill:run=2"],
            "stop rule fill takes no parameter, found \"run=2\": only end-run takes one, run=N".to_owned(),
        ),
        (
            &["--stop-rule", "block", "--no-early-stop"],
            "--no-early-stop has no meaning beside --stop-rule: omit it".to_owned(),
        ),
        (
            &["--stop-rule", "block", "--ignore-eos"],
            "--stop-rule has no meaning with --ignore-eos, where no token ends anything: omit it".to_owned(),
        ),
        (
            &["--stop-rule", "block", "--model", &project("demo/demo-qwen")],
            "--stop-rule has no meaning for autoregressive decoding, which takes one token after the other: omit it"
                .to_owned(),
        ),
    ] {
        generate_refused(typed, &message);
    }
    generate_refused(&["--top-p", "0"], "--top-p is 0, expected a number above 0 up to 1; 1 keeps all");
    generate_refused(&["--gen-length", "-1"], "--gen-length is \"-1\", expected a whole number from 0 on");
    generate_refused(
        &["--gen-length", "999999999999999999999"],
        "--gen-length is \"999999999999999999999\", expected a whole number from 0 on",
    );
    generate_refused(&["--temperature", "warm"], "--temperature is \"warm\", expected a number");
}

#[test]
fn holes_that_cannot_be_filled() {
    generate_refused(&["--infill"], "the text to fill has no hole: write <mask:N> where N tokens are missing");
    refused(
        &demask(&["generate", "a <mask:many> b", "--infill"]),
        2,
        "\"many\" is not the size of a hole: write <mask:N> with N from 1 to the model's context",
    );
    refused(
        &demask(&["generate", "a <mask:2>", "--infill", "--gen-length", "4"]),
        2,
        "--gen-length goes with a prompt, not with --infill: the holes say how many tokens are decoded",
    );
    for (model, family) in [("demo-sdar", "SDAR"), ("demo-qwen", "Qwen2")] {
        let path = project(&format!("demo/{model}"));
        let run = demask(&["generate", "a <mask:2>", "--infill", "--model", &path]);
        assert_eq!(run.code, Some(2));
        let start = format!("error: {family} models cannot fill holes, they do not see what follows: ");
        assert!(run.stderr.starts_with(&start), "{}", run.stderr);
    }
    refused(
        &demask(&["generate", "--prompt-tokens", "1", "--infill"]),
        2,
        "--infill needs text with <mask:N> holes: give the prompt as text, not as tokens",
    );
}

#[test]
fn methods_that_do_not_suit_the_model() {
    let run = demask(&["generate", "hi", "--decoder", "ar"]);
    assert!(run.stderr.starts_with("error: decoder ar cannot run a model with full attention: use static, "));
    assert_eq!(run.code, Some(2));
    let run = demask(&["generate", "hi", "--cache", "causal"]);
    assert!(run.stderr.starts_with("error: cache causal cannot run a model with full attention: use none"));
    assert_eq!(run.code, Some(2));
}

#[test]
fn places_that_cannot_be_written() {
    let missing = "cannot write /nowhere/x: No such file or directory (os error 2)";
    // Known before the model is read: the directory of the model is missing too.
    for file in ["--trace", "--svg"] {
        refused(&demask(&["generate", "hi", "--model", "nowhere", file, "/nowhere/x"]), 2, missing);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    refused(
        &demask(&["generate", "hi", "--trace", path]),
        2,
        &format!("cannot write {path}: it is a directory, expected the name of a file"),
    );
    fs::write(directory.path().join("kept"), "x").unwrap();
    // Every write to this device fails.
    #[cfg(target_os = "linux")]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let run = Run::from(command(&["inspect", &project("demo/demo-llada")]).stdout(full).output().unwrap());
        refused(&run, 1, "cannot write to standard output: No space left on device (os error 28)");
    }
    // A run that fails after its file was opened leaves nothing there.
    let trace = directory.path().join("trace");
    generate_refused(
        &["--top-p", "2", "--trace", trace.to_str().unwrap()],
        "--top-p is 2, expected a number above 0 up to 1; 1 keeps all",
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn machines_that_are_not_like_that() {
    let usual = cores::fast_cores();
    let threads = |count: usize| {
        let most = 4 * cores::available_threads();
        format!("{count} threads were asked for, expected 1 to {most}: omit --threads to use {usual}")
    };
    generate_refused(&["--threads", "0"], &threads(0));
    generate_refused(&["--threads", "100000"], &threads(100_000));
    let with_isa = |tier: &str| Run::from(command(&["doctor"]).env("DEMASK_ISA", tier).output().unwrap());
    let other = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    for unknown in ["sse", other] {
        let expected = format!("DEMASK_ISA \"{unknown}\" is unknown: use one of {}", Tier::names());
        refused(&with_isa(unknown), 2, &expected);
    }
    let names: Vec<_> = Isa::available().into_iter().map(|isa| isa.tier().name()).collect();
    for tier in Tier::ALL.into_iter().filter(|tier| Isa::force(*tier).is_err()) {
        let expected = format!("this machine cannot run the tier {tier}: it has {}", names.join(", "));
        refused(&with_isa(tier.name()), 1, &expected);
    }
    let portable = Run::from(command(&["doctor", "--json"]).env("DEMASK_ISA", "portable").output().unwrap());
    assert_eq!(portable.json()["cpu"]["tier"], "portable");
}

/// The stack that templates run on is small enough for a process with little room for addresses.
#[cfg(target_os = "linux")]
#[test]
fn long_templates_run_where_there_is_little_room() {
    let directory = tempfile::tempdir().unwrap();
    let model = std::path::PathBuf::from(project("demo/demo-llada"));
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(model.join(name), directory.path().join(name)).unwrap();
    }
    let text = fs::read_to_string(model.join("tokenizer_config.json")).unwrap();
    let mut settings: serde_json::Value = serde_json::from_str(&text).unwrap();
    let template = settings["chat_template"].as_str().unwrap();
    settings["chat_template"] = format!("{{% for i in range(1000) %}}{{% endfor %}}{template}").into();
    fs::write(directory.path().join("tokenizer_config.json"), settings.to_string()).unwrap();

    let call = command(&["generate", "hi", "-q", "--model", directory.path().to_str().unwrap(), "--threads", "1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 220000; exec \"$0\" \"$@\""]).arg(call.get_program()).args(call.get_args());
    for (name, value) in call.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let run = Run::from(limited.output().unwrap());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
}

#[test]
fn calls_that_are_not_understood() {
    let none = "no command given: --help lists them; demask generate \"PROMPT\" answers a prompt";
    refused(&demask(&[]), 2, none);
    refused(&demask(&["zebra"]), 2, "unrecognized subcommand 'zebra' (--help lists what there is)");
    refused(&demask(&["doctor", "-x"]), 2, "unexpected argument '-x' found (--help lists what there is)");
    for (typed, name) in [
        (&["eval", "wordmath", "--limit", "2"][..], "eval"),
        (&["recipe", "list"], "recipe"),
        (&["report", "a", "--out", "b"], "report"),
        (&["tune", "--help"], "tune"),
        (&["bench", "step", "--json"], "bench"),
        (&["analyze"], "analyze"),
        (&["-q", "trace", "run.jsonl"], "trace"),
        (&["synth"], "synth"),
        (&["--model", "x", "logits"], "logits"),
        (&["cost", "--like", "llada-8b"], "cost"),
    ] {
        let told = format!("{name} is a command of demask-lab: demask-lab {name} ...");
        refused(&demask(typed), 2, &told);
    }
    let unknown = demask(&["generate", "hi", "--stepz", "4"]);
    assert!(unknown.stderr.starts_with("error: unexpected argument '--stepz' found"), "{}", unknown.stderr);
    assert_eq!((unknown.code, unknown.stderr.lines().count()), (Some(2), 1));
    refused(&demask(&["--model", "x", "man", "--out", "y"]), 2, "--model has no meaning with man: omit it");
    refused(&demask(&["serve", "--seed", "1"]), 2, "--seed has no meaning with serve: omit it");
    generate_refused(&["-p", "hi"], "found prompts in the argument and in --prompt, expected one: omit the others");
}

#[test]
fn names_of_other_programs_are_answered_with_our_own() {
    for (typed, told) in [
        (&["--max-new-tokens", "9"][..], "'--max-new-tokens', a name of transformers: use --max-tokens"),
        (&["--stream"], "'--stream', a name of OpenAI and ollama: omit it, text is shown as it settles"),
        (
            &["--threshold=0.8"],
            "'--threshold', a name of Fast-dLLM and dInfer: use --decoder threshold:tau=0.9 with the confidence that you want",
        ),
        (&["-ngl", "99"], "'-ngl', a name of llama.cpp and ollama: use --device: all layers are on one"),
        (&["-hf", "a/b"], "'-hf', a name of llama.cpp: use --model ORG/NAME, ORG/NAME:Q4_K_M or ORG/NAME/FILE.gguf"),
        (
            &["-c", "4096"],
            "'-c', a name of llama.cpp, ollama and vLLM: omit it, the context is the model's own; --max-tokens bounds an answer",
        ),
        (&["--host", "0.0.0.0"], "'--host', a flag of serve"),
    ] {
        generate_refused(typed, &format!("unexpected argument {told}"));
    }
    refused(&demask(&["chat", "--raw"]), 2, "unexpected argument '--raw', a flag of generate");
    refused(&demask(&["serve", "-n", "9"]), 2, "unexpected argument '-n', a flag of generate, chat");
    for (typed, told) in [
        ("ls", "'ls', a name of other programs: use demask list"),
        ("show", "'show', a name of ollama: use demask inspect MODEL"),
        (
            "run",
            "'run', a name of ollama: use demask chat --model MODEL to talk, demask generate --model MODEL \"PROMPT\" for one answer",
        ),
    ] {
        refused(&demask(&[typed, "x"]), 2, &format!("unrecognized subcommand {told}"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "port = 0\nctx_size = 4096\n").unwrap();
    let path = file.path().to_str().unwrap();
    refused(
        &demask(&["serve", "--config", path]),
        2,
        &format!(
            "{path}, line 2: unknown key \"ctx_size\" of a server, a name of llama.cpp, ollama and vLLM: omit it, the context is \
             the model's own; --max-tokens bounds an answer"
        ),
    );
}

#[test]
fn a_model_is_an_argument_where_there_is_no_prompt() {
    let model = project("demo/demo-sdar");
    let chat = |model: &[&str]| {
        demask_with_input(&[&["chat", "--no-history", "-q"], model].concat(), "Ada has 3 pears.\n").success()
    };
    assert_eq!(chat(&[&model]), chat(&["--model", &model]));
    assert!(demask(&["serve", &model, "--print-config"]).success().contains(&format!("model = {model:?}  # flag")));
    for name in ["chat", "serve", "inspect"] {
        let both = "found a model in the argument and in --model, expected one: omit the other";
        refused(&demask(&[name, &model, "--model", &model]), 2, both);
    }
    let told = format!("the prompt {model} is a model: demask generate --model {model} \"PROMPT\" asks it");
    refused(&demask(&["generate", &model]), 2, &told);
    refused(
        &demask(&["generate", &model, "hi"]),
        2,
        "unexpected argument 'hi' beside the prompt: quote a text of several words, and name a model by --model",
    );
}

#[test]
fn help_is_short_and_long() {
    let flags = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('-')).count();
    let whole = demask(&["--help"]).success();
    assert!(whole.lines().count() <= 24, "one screen: {whole}");
    let short = demask(&["generate", "-h"]).success();
    assert!(
        short.lines().count() <= 25 && flags(&short) <= 12,
        "{} lines, {} flags",
        short.lines().count(),
        flags(&short)
    );
    let long = demask(&["generate", "--help"]).success();
    for heading in ["Options:", "Model:", "Prompt:", "Answer:", "Method:"] {
        assert!(long.lines().any(|line| line == heading), "{heading}\n{long}");
    }
    assert!(long.contains("--prompt-tokens <IDS>") && long.contains("--eps <E>") && flags(&long) > 40, "{long}");
    for name in ["chat", "serve", "inspect", "doctor", "health"] {
        assert!(flags(&demask(&[name, "-h"]).success()) <= 12, "{name}");
    }
    assert!(!demask(&["doctor", "--help"]).success().contains("--model"));
}

#[test]
fn short_forms_are_those_of_the_long_ones() {
    let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let (model, arguments) = (project("demo/demo-sdar"), ["generate", "-q", "--json"]);
    let short = ["-m", &model, "-n", "16", "-t", "1", "-p", question];
    let long = ["--model", &model, "--gen-length", "16", "--threads", "1", question];
    let [short, long] =
        [&short[..], &long].map(|more| demask(&[&arguments[..], more].concat()).json()["tokens"].clone());
    assert_eq!(short, long);
}
