//! The decoding traces of the reference programs: fed with a trace's own commits as the sure predictions, a session
//! must commit them at the same forwards and run as many forwards. What is checked is everything but the network:
//! quotas, schedules, blocks, maintenance, stop rules.

use std::path::PathBuf;

use crate::common::{drive, predict};
use demask_decode::{CanvasSpec, ModelFacts, Session, SessionOptions, StopRule};
use demask_step::{Mask, TokenId};
use serde_json::Value;

/// The cases of one file, or nothing, with a message, where the files are absent.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn cases(file: &str) -> Vec<Value> {
    let root = std::env::var_os("DEMASK_GOLDEN")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden")), PathBuf::from);
    let path = root.join("decode").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no traces at {}", path.display());
        return Vec::new();
    };
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(cases) = file["cases"].take() else { panic!("a list of cases") };
    cases
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
}

fn tokens(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|token| number(token).unwrap() as TokenId).collect()
}

/// Commits of each forward, by position.
fn steps(case: &Value) -> Vec<Vec<(u32, TokenId)>> {
    let pair = |pair: &Value| (number(&pair[0]).unwrap() as u32, number(&pair[1]).unwrap() as TokenId);
    case["steps"].as_array().unwrap().iter().map(|step| step.as_array().unwrap().iter().map(pair).collect()).collect()
}

fn options(case: &Value, mask: Mask, shift: u32, gen_length: &str) -> SessionOptions {
    let mask_id = (mask != Mask::Causal).then(|| number(&case["mask_id"]).unwrap() as TokenId);
    let facts = ModelFacts {
        mask,
        shift,
        mask_id,
        vocab: 1000,
        context: 4096,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    };
    let gen_length = number(&case["params"][gen_length]).unwrap();
    let mut options = SessionOptions::new(facts, CanvasSpec::Prompt { tokens: tokens(&case["prompt"]), gen_length });
    options.block_length = number(&case["params"]["block_length"]);
    options.stop = StopRule::Never;
    options
}

/// Replays a trace with the forwards of its program, and with stores that ride along.
fn replay_blocks(case: &Value, mut options: SessionOptions) {
    let stored = "block:store=alone".parse().unwrap();
    replay(case, SessionOptions { cache: stored, ..options.clone() });
    options.cache = "block".parse().unwrap();
    replay(case, options);
}

fn replay(case: &Value, options: SessionOptions) {
    let id = case["id"].as_str().unwrap();
    let trace = steps(case);
    // Of prefill and stores only the rows remain, and what a stop rule fills comes a forward earlier.
    let rides = options.cache.to_string() == "block";
    let forwards: Vec<_> = trace.iter().filter(|step| !rides || !step.is_empty()).collect();
    let mut session = Session::new(options).unwrap_or_else(|error| panic!("{id}: {error}"));
    let run = drive(&mut session, |forward, requests| {
        let sure = forwards.get(forward).map_or(&[][..], |step| step.as_slice());
        let answers = requests.iter().map(|request| {
            predict(request, |position| match sure.iter().find(|commit| commit.0 == position) {
                Some(&(_, token)) => (token, 0.99),
                None => (0, 0.01),
            })
        });
        answers.collect()
    });
    let mut found = run.steps;
    for step in &mut found {
        step.sort_unstable();
    }
    if rides {
        assert!(found.len() < trace.len(), "{id}");
        assert_eq!(found.concat(), trace.concat(), "{id}");
    } else {
        assert_eq!(found, trace, "{id}");
    }
    assert_eq!(Some(session.counts().nfe), number(&case["nfe"]), "{id}");
    let output = tokens(&case["output"]);
    if session.layout().attention() == Mask::Causal {
        assert_eq!(run.output.canvas, output, "{id}");
    } else {
        assert_eq!(run.output.canvas[..output.len()], output, "{id}");
    }
}

#[test]
fn llada_generate() {
    for case in cases("llada_generate.json") {
        let mut options = options(&case, Mask::Full, 0, "gen_length");
        options.steps = number(&case["params"]["steps"]);
        options.cfg_scale = case["params"]["cfg_scale"].as_f64().unwrap() as f32;
        options.remasking = case["params"]["remasking"].as_str().unwrap().parse().unwrap();
        replay(&case, options);
    }
}

#[test]
fn dream_generate() {
    for case in cases("dream_generate.json") {
        let mut options = options(&case, Mask::Full, 1, "max_new_tokens");
        options.steps = number(&case["params"]["steps"]);
        options.eps = case["params"]["eps"].as_f64().unwrap() as f32;
        options.schedule = demask_decode::Schedule::Dream;
        options.remasking = case["params"]["alg"].as_str().unwrap().parse().unwrap();
        replay(&case, options);
    }
}

fn sdar_options(case: &Value) -> SessionOptions {
    let params = &case["params"];
    let mut options = options(case, Mask::blocks(4), 0, "gen_length");
    let block = options.block_length.unwrap();
    let prompt = tokens(&case["prompt"]).len();
    let blocks = (prompt + number(&params["gen_length"]).unwrap()).div_ceil(block) - prompt / block;
    options.steps = Some(number(&params["denoising_steps"]).unwrap() * blocks);
    if params["stop"] == true {
        options.stop = StopRule::Block;
        options.end_ids = tokens(&case["stop_ids"]);
    }
    let tau = &params["confidence_threshold"];
    match params["remasking_strategy"].as_str().unwrap() {
        "low_confidence_static" => {}
        "sequential" => options.remasking = "sequential".parse().unwrap(),
        "low_confidence_dynamic" => {
            options.decoder = format!("threshold:tau={tau},strict,quota").parse().unwrap();
        }
        "entropy_bounded" => {
            options.decoder = format!("entropy_bounded:eb={}", params["eb_threshold"]).parse().unwrap();
        }
        other => panic!("{other}"),
    }
    options
}

#[test]
fn sdar_generate() {
    for case in cases("sdar_generate.json") {
        replay_blocks(&case, sdar_options(&case));
    }
}

#[test]
fn sdar_entropy_bounded() {
    for case in cases("sdar_entropy_bounded.json") {
        replay_blocks(&case, sdar_options(&case));
    }
}

#[test]
fn ar_greedy() {
    for case in cases("ar_greedy.json") {
        let mut options = options(&case, Mask::Causal, 1, "max_new_tokens");
        options.decoder = "ar".parse().unwrap();
        for cache in ["causal", "none"] {
            options.cache = cache.parse().unwrap();
            replay(&case, options.clone());
        }
    }
}

/// The cases of FreeDave's baselines: those without drafts.
fn undrafted(file: &str) -> impl Iterator<Item = Value> {
    cases(file).into_iter().filter(|case| case["params"]["draft_steps"].is_null())
}

fn freedave_options(case: &Value, mask: Mask) -> SessionOptions {
    let params = &case["params"];
    let mut options = options(case, mask, 0, "max_gen_length");
    if params["alg_temp"] == -1 {
        options.remasking = "left_to_right".parse().unwrap();
    }
    if !params["confidence_threshold"].is_null() {
        options.decoder = format!("threshold:tau={}", params["confidence_threshold"]).parse().unwrap();
    }
    if params["early_exit"] == true {
        let fill = number(&case["eos_id"]).unwrap() as TokenId;
        options.end_ids = vec![fill];
        (options.stop, options.fill) = (StopRule::WholeBlock, fill);
    }
    options
}

#[test]
fn freedave_block_static_and_threshold() {
    for case in undrafted("freedave_block.json") {
        replay_blocks(&case, freedave_options(&case, Mask::blocks(4)));
    }
}

/// The commits of FreeDave's full-attention baselines do not depend on their caches' forwards.
#[test]
fn freedave_full_static_and_threshold() {
    // A forward that only refreshes the cache, or does what the uncached loop would not, has no twin here.
    let alike = |case: &Value| !steps(case).iter().any(Vec::is_empty);
    for case in undrafted("freedave_full.json").filter(alike) {
        replay(&case, freedave_options(&case, Mask::Full));
    }
}
