//! RND1 without options: the sampler of its authors, and a canvas that ends with a fixed token (specs/families.md#6.7).

use std::path::{Path, PathBuf};

use demask::ModelInfo;
use demask::{DtypeChoice, Model, Options, Prompt};
use demask_checkpoint::ModelFiles;
use demask_decode::Session;
use demask_step::{ConfidenceOf, FilterOrder};
use demask_testkit::by_hand::ByHand;
use serde_json::Value;

/// The padding of the checkpoint.
const PAD: u32 = 227;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

fn info() -> ModelInfo {
    ModelInfo::open(ModelFiles::directory(golden("ckpt/moe-rnd1-sdar")).unwrap()).unwrap()
}

fn session(options: &Options) -> Result<Session, String> {
    let prompt = Prompt::Tokens(vec![1, 2, 3]);
    info().session(&prompt, options).map_err(|error| error.to_string())
}

/// The methods of a session, its steps and its length of blocks.
fn methods_of(options: &Options) -> (String, usize, usize) {
    let receipt = session(options).unwrap().receipt();
    (
        format!("{}, cache {}, {}", receipt.decoder, receipt.cache, receipt.exactness),
        receipt.steps,
        receipt.block_length,
    )
}

#[test]
fn the_authors_sampler_decodes_if_nobody_says_how() {
    let open = session(&Options::default()).unwrap();
    let canvas = open.canvas();
    assert_eq!((canvas.len(), open.masks(), canvas[canvas.len() - 1]), (3 + 256, 255, PAD));
    let sampling = open.requests()[0].ask.wanted.sampling;
    assert_eq!(
        (sampling.temperature, sampling.confidence, sampling.order),
        (0.1, ConfidenceOf::Drawn, FilterOrder::TopKFirst)
    );
    assert!(open.requests()[0].ask.wanted.entropy, "ranked by entropies");
    let static_ = "static, cache none, reference";
    assert_eq!(methods_of(&Options::default()), (static_.into(), 255, 255));
    let short = Options { gen_length: Some(31), ..Options::default() };
    assert_eq!(methods_of(&short), (static_.into(), 30, 30), "more steps than masks repeat forwards");
    assert_eq!(methods_of(&Options { steps: Some(8), ..short.clone() }), (static_.into(), 8, 30));
    assert_eq!(methods_of(&Options { block_length: Some(10), ..short.clone() }), (static_.into(), 30, 10));
    let steps = Options { decoder: Some("static:steps=6".parse().unwrap()), ..short.clone() };
    assert_eq!(methods_of(&steps), ("static:steps=6, cache none, reference".into(), 6, 30));
    // Another decoder is what it is for other families, but for the canvas.
    let other = Options { decoder: Some("threshold:tau=0.9".parse().unwrap()), ..short };
    let other = session(&other).unwrap();
    assert_eq!((other.masks(), other.canvas()[33]), (30, PAD));
    assert_eq!(other.requests()[0].ask.wanted.sampling.temperature, 0.0);
}

#[test]
fn a_length_without_room_for_an_end_is_refused() {
    let refusal = |gen_length| session(&Options { gen_length: Some(gen_length), ..Options::default() }).unwrap_err();
    assert_eq!(refusal(1), "`gen_length` is 1, expected at least 2: the last position of RND1 is kept for an end");
    assert_eq!(refusal(0), "the generation length is 0, expected at least 1: ask for more tokens");
    assert!(refusal(510).starts_with("3 prompt tokens and 510 to generate exceed the model's context of 512"));
}

/// The program's `greedy` at a temperature: its entropies would be of what top-k leaves.
#[test]
fn greedy_at_another_temperature_than_0_is_refused_by_name() {
    let greedy = Options { top_k: Some(1), gen_length: Some(31), ..Options::default() };
    let refusal = session(&Options { temperature: Some(0.5), ..greedy.clone() }).unwrap_err();
    assert!(refusal.starts_with("top_k is 1 at temperature 0.5, and schedule rnd1 ranks by the entropy"), "{refusal}");
    assert!(refusal.ends_with("use temperature 0, whose entropies are those at temperature 1, no other"), "{refusal}");
    assert!(session(&greedy).unwrap_err().starts_with("top_k is 1 at temperature 0.1"));
    session(&Options { temperature: Some(0.0), ..greedy.clone() }).unwrap();
    session(&Options { top_k: Some(2), temperature: Some(0.5), ..greedy }).unwrap();
}

/// A trace of the reference, asked for as a user asks.
#[test]
fn options_give_the_tokens_of_the_reference() {
    let text = std::fs::read_to_string(golden("decode/moe_rnd1_generate.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let case = &file["cases"][0];
    let tokens = |name: &str| case[name].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let (prompt, output): (Vec<u32>, Vec<u32>) = (tokens("prompt"), tokens("output"));
    let length = case["params"]["max_new_tokens"].as_u64().unwrap() as usize;
    let model = Model::builder().threads(2).dtype(DtypeChoice::F32).open(golden("ckpt/moe-rnd1-sdar")).unwrap();
    let options =
        Options { gen_length: Some(length), temperature: Some(0.0), ignore_eos: Some(true), ..Options::default() };
    let answer = model.generate_with(Prompt::Tokens(prompt.clone()), &options).unwrap();
    assert_eq!(answer.canvas, output);
    assert_eq!((answer.tokens.len(), answer.generated_tokens), (length - 1, length - 1));
    assert_eq!(answer.tokens[..], output[prompt.len()..output.len() - 1], "the end is no part of the answer");
    assert_eq!(answer.receipt.decoding.nfe, case["nfe"].as_u64().unwrap() as usize);
}
