//! FreeDave on networks: bitwise the tokens and confidences of static decoding, on every tier and at any temperature
//! (specs/freedave.md#I1, specs/freedave.md#I6, specs/freedave.md#I8 and specs/freedave.md#I14); over caches whose
//! slots have a history, with one draft (I2).

use std::{io::Write, path::Path};

use crate::common::Device;
use demask::{DeviceOptions, ModelByHand};
use demask::{DtypeChoice, Model, Options, Prompt};
use demask_checkpoint::ModelFiles;
use demask_cpu::isa::Isa;
use demask_decode::{CanvasSpec, Event, Session, SessionOptions, StopRule};

/// Number of problems that the environment asks for, as the full gate does.
fn asked() -> Option<usize> {
    std::env::var("DEMASK_PROBLEMS").ok().and_then(|count| count.parse().ok())
}

/// Every tier that this machine has, and the kernels of GPUs; with it whether all cases run on it. Beside the best tier one
/// case has to do: that rows do not depend on what runs beside them is tested tier by tier, and what follows from it by the
/// suites of decoders. The full gate runs all cases on every tier.
fn devices() -> Vec<(Device, bool)> {
    let all = |isa: Isa| asked().is_some() || isa.tier() == Isa::best().tier();
    let tiers = Isa::available().into_iter().map(|isa| (Device::Cpu(isa), all(isa)));
    tiers.chain([(Device::EmulatedGpu, false)]).collect()
}

/// Position, token and the bits of the confidence in the order of the commits, and the forwards that it took and that a
/// published program takes.
fn run(model: &mut ModelByHand, options: &SessionOptions) -> (Vec<(u32, u32, u32)>, [usize; 2]) {
    let mut session = model.decode(Session::new(options.clone()).unwrap()).unwrap();
    let commit = |event| match event {
        Event::Commit { position, token, confidence, .. } => Some((position, token, confidence.to_bits())),
        _ => None,
    };
    let commits: Vec<_> = session.events().filter_map(commit).collect();
    assert_eq!(session.settled(), session.layout().gen_length(), "everything is decoded");
    (commits, [session.counts().forwards, session.counts().nfe])
}

#[test]
fn freedave_i1_i6_i8_i14_networks_give_the_tokens_of_static_decoding() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    for (device, all) in devices() {
        for (name, dtype) in [
            ("toy-llada", DtypeChoice::F32),
            ("toy-dream", DtypeChoice::F32),
            ("toy-sdar", DtypeChoice::F32),
            ("toy-sdar", DtypeChoice::Bf16),
            ("tiny-sdar", DtypeChoice::Bf16),
        ] {
            if !all && (name, dtype) != ("toy-sdar", DtypeChoice::Bf16) {
                continue;
            }
            let mut model = device.load(&checkpoints.join(name), dtype).unwrap();
            for temperature in [0.0, 0.4] {
                // What is played on the processor is slow.
                let gen_length = if device == Device::EmulatedGpu { 16 } else { 32 };
                let canvas = CanvasSpec::Prompt { tokens: (0..13).collect(), gen_length };
                let options = SessionOptions {
                    block_length: Some(8),
                    temperature,
                    seed: 7,
                    stop: StopRule::Never,
                    ..SessionOptions::new(model.info().facts().clone(), canvas)
                };
                let (expected, most) = run(&mut model, &options);
                for decoder in ["freedave:d=8", "freedave:d=3,eager=false", "freedave:d=4,mode=reference,eager=false"] {
                    // The released program stores in forwards of their own.
                    let most = most[usize::from(decoder.contains("reference"))];
                    let decoder = decoder.parse().unwrap();
                    let (found, [forwards, _]) = run(&mut model, &SessionOptions { decoder, ..options.clone() });
                    let what = format!("{name} {dtype} {device} temperature {temperature}");
                    assert_eq!(found, expected, "{what}");
                    assert!(forwards <= most, "{what}: {forwards} forwards, static decoding {most}");
                }
            }
        }
    }
}

/// Self-speculation writes the tokens of `ar`, bit by bit, at any temperature: rows do not depend on what runs beside them, and
/// draws are keyed by the tokens before a position (specs/families.md#7.2).
#[test]
fn causal_self_speculation_writes_the_tokens_of_ar() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let (mut tokens, mut forwards) = (0, 0);
    for (device, all) in devices() {
        for (name, decoders) in [
            ("idlm-toy", ["isd", "isd:stride=7", "isd:stride=2"]),
            ("tiny-qwen3", ["isd", "isd:stride=7", "isd:stride=2"]),
            ("dense-nemotron-toy", ["selfspec", "selfspec:block=5", "selfspec:block=8,tau=0.4"]),
        ] {
            for dtype in [DtypeChoice::F32, DtypeChoice::Bf16] {
                if !all && (name, dtype) != ("idlm-toy", DtypeChoice::Bf16) {
                    continue;
                }
                let mut model = device.load(&checkpoints.join(name), dtype).unwrap();
                let mut facts = model.info().facts().clone();
                facts.mask_id = facts.mask_id.or(Some(facts.vocab as u32 - 9));
                for temperature in [0.0, 0.7, 1.0] {
                    let gen_length = if device == Device::EmulatedGpu { 12 } else { 60 };
                    let canvas = CanvasSpec::Prompt { tokens: (1..14).collect(), gen_length };
                    let options = |decoder: &str| SessionOptions {
                        temperature,
                        seed: 7,
                        top_p: 0.95,
                        stop: StopRule::Never,
                        decoder: decoder.parse().unwrap(),
                        cache: "causal".parse().unwrap(),
                        ..SessionOptions::new(facts.clone(), canvas.clone())
                    };
                    let (expected, _) = run(&mut model, &options("ar"));
                    for decoder in decoders {
                        let (found, [own, _]) = run(&mut model, &options(decoder));
                        assert_eq!(found, expected, "{name} {dtype} {device} {decoder} temperature {temperature}");
                        if name == "idlm-toy" {
                            (tokens, forwards) = (tokens + found.len(), forwards + own);
                        }
                    }
                }
            }
        }
    }
    assert!(tokens * 10 > forwards * 13, "guesses come true: {tokens} tokens in {forwards} forwards");
}

/// K/V of a block that is stored beside a prediction are the bits of a store of its own: so are all confidences that follow.
#[test]
fn stores_that_ride_along_change_no_bit() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let names =
        ["toy-sdar", "tiny-sdar", "moe-sdar", "moe-llada20", "dense-stablediffcoder-toy", "dense-a2d-qwen3-bd3lm-toy"];
    for ((device, all), name) in devices().into_iter().flat_map(|device| names.map(|name| (device, name))) {
        if !all && name != "toy-sdar" {
            continue;
        }
        for dtype in [DtypeChoice::F32, DtypeChoice::Bf16] {
            let mut model = device.load(&checkpoints.join(name), dtype).unwrap();
            for (decoder, temperature) in [("static", 0.0), ("threshold:tau=0.3", 0.0), ("static", 0.4)] {
                let mask = model.info().facts().mask_id;
                let tokens = (0..).filter(|&token| Some(token) != mask).take(13).collect();
                let canvas = CanvasSpec::Prompt { tokens, gen_length: 27 };
                let options = |cache: &str| SessionOptions {
                    temperature,
                    seed: 7,
                    stop: StopRule::Never,
                    decoder: decoder.parse().unwrap(),
                    cache: cache.parse().unwrap(),
                    ..SessionOptions::new(model.info().facts().clone(), canvas.clone())
                };
                let [fused, alone] = ["block", "block:store=alone"].map(options);
                let (expected, [most, published]) = run(&mut model, &alone);
                let (found, [forwards, nfe]) = run(&mut model, &fused);
                let what = format!("{name} {dtype} {device} {decoder} temperature {temperature}");
                assert_eq!(found, expected, "{what}");
                assert!(forwards < most, "{what}: {forwards} forwards, alone {most}");
                assert_eq!((nfe, published), (published, most), "{what}");
            }
        }
    }
}

/// Forwards that the demo model takes for each problem, and its answers.
fn solve(model: &mut ModelByHand, questions: &[String], decoder: &str) -> Vec<(usize, Vec<u32>)> {
    let options = Options { gen_length: Some(64), decoder: Some(decoder.parse().unwrap()), ..Options::default() };
    let mut answers = Vec::new();
    for question in questions {
        let session = model.info().session(&Prompt::user(question.as_str(), None), &options).unwrap();
        let session = model.decode(session).unwrap();
        answers.push((session.counts().nfe, session.output().tokens));
    }
    answers
}

/// What rolling is for: on a trained model it writes what static decoding writes, in fewer forwards than the released
/// program's. The figures are printed; `docs/invariants.md` states them.
#[test]
fn freedave_i1_i3_rolling_on_the_demo_takes_no_more_forwards_than_reference() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo");
    let lines = std::fs::read_to_string(demo.join("wordmath-dev.jsonl")).unwrap();
    let question =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["question"].as_str().unwrap().to_owned();
    let questions: Vec<String> = lines.lines().take(40).map(question).collect();
    let device = DeviceOptions { dtype: DtypeChoice::F32, ..DeviceOptions::default() };
    let mut model = Model::load(ModelFiles::directory(demo.join("demo-sdar")).unwrap(), &device, &mut |_| true)
        .unwrap()
        .by_hand()
        .unwrap();
    let expected = solve(&mut model, &questions, "static");
    let total = |answers: &[(usize, Vec<u32>)]| answers.iter().map(|answer| answer.0).sum::<usize>();
    for d in [4, 8, 16] {
        let rolling = solve(&mut model, &questions, &format!("freedave:d={d}"));
        let reference = solve(&mut model, &questions, &format!("freedave:d={d},mode=reference,eager=true"));
        for (found, expected) in rolling.iter().chain(&reference).zip(expected.iter().cycle()) {
            assert_eq!(found.1, expected.1, "d {d}");
        }
        let [stepwise, reference, rolling] = [&expected, &reference, &rolling].map(|answers| total(answers));
        let ratio = reference as f64 / rolling as f64;
        let figures = format!("static {stepwise}, reference {reference}, rolling {rolling}: {ratio:.2} times fewer");
        let _ = writeln!(std::io::stdout(), "demo-sdar, {} problems, d {d}, forwards: {figures}", questions.len());
        assert!(rolling <= reference && reference <= stepwise, "d {d}");
    }
}

/// I2 over caches with a history: one draft in each forward, on a copy of the slots and kept, is static decoding over the
/// same cache to the bit, and computes as many rows.
#[test]
fn freedave_i2_networks_give_the_tokens_of_static_decoding_over_the_same_cache() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let (mut drafted, mut static_forwards) = (0, 0);
    for (name, (device, all)) in
        ["toy-llada", "toy-dream"].into_iter().flat_map(|name| devices().into_iter().map(move |device| (name, device)))
    {
        if !all && name != "toy-dream" {
            continue;
        }
        let mut model = device.load(&checkpoints.join(name), DtypeChoice::F32).unwrap();
        for (cache, cfg_scale) in [
            ("dkv:refresh=4", 0.0),
            ("dkv:variant=pd,refresh=3", 0.0),
            ("dllm:prompt=7,response=4", 0.0),
            ("dllm:response=5,rho=0.4,probe=k,first_layer=same", 0.0),
            ("dllm:response=5,rho=0.4,count=forwards,rows=drift", 0.0),
            ("dllm:prompt=5,response=3,cfg=3", 0.8),
            ("freecache:block=3,freeze=reference", 0.0),
        ] {
            if !all && !cache.contains("cfg") {
                continue;
            }
            let canvas = CanvasSpec::Prompt { tokens: (0..13).collect(), gen_length: 24 };
            let options = SessionOptions {
                block_length: Some(8),
                cache: cache.parse().unwrap(),
                cfg_scale,
                stop: StopRule::Never,
                ..SessionOptions::new(model.info().facts().clone(), canvas)
            };
            let (expected, counts) = run(&mut model, &options);
            let [forwards, _] = counts;
            let what = format!("{name} {device} {cache}");
            for decoder in ["freedave:d=1,mode=reference", "freedave:d=1"] {
                let decoder = decoder.parse().unwrap();
                let found = run(&mut model, &SessionOptions { decoder, ..options.clone() });
                assert_eq!(found, (expected.clone(), counts), "{what}");
            }
            for decoder in ["freedave:d=4", "freedave:d=3,mode=reference"] {
                let decoder = decoder.parse().unwrap();
                let (found, [most, _]) = run(&mut model, &SessionOptions { decoder, ..options.clone() });
                assert!(found.len() == expected.len() && most <= forwards, "{what}: {most} forwards");
                drafted += most;
                static_forwards += forwards;
            }
        }
    }
    assert!(drafted < static_forwards, "{drafted} forwards with drafts, {static_forwards} without");
}
