//! Every mistake in the options gets one clear line, and what is not given always fits.

use crate::common::{MASK_ID, VOCAB, facts, options, run};
use demask_decode::{CanvasSpec, Schedule, Session, SessionOptions};
use demask_step::Mask;

const FULL: Mask = Mask::Full;
const BLOCKS: Mask = Mask::blocks(4);

/// The message for options that start right and are then changed.
fn refusal(mask: Mask, change: impl FnOnce(&mut SessionOptions)) -> String {
    let mut options = options(mask, 0, 5, 12);
    change(&mut options);
    Session::new(options).unwrap_err().to_string()
}

fn prompt(length: usize, gen_length: usize) -> CanvasSpec {
    CanvasSpec::Prompt { tokens: vec![1; length], gen_length }
}

#[test]
fn lengths() {
    assert_eq!(
        refusal(FULL, |options| options.canvas = prompt(3, 0)),
        "the generation length is 0, expected at least 1: ask for more tokens"
    );
    assert_eq!(
        refusal(FULL, |options| options.canvas = prompt(4000, 97)),
        "the canvas needs 4097 positions and the model's context holds 4096: \
         shorten the prompt or the generation length"
    );
    assert!(refusal(FULL, |options| options.canvas = prompt(3, usize::MAX)).contains("context"));
    assert!(refusal(BLOCKS, |options| options.canvas = prompt(3, usize::MAX - 1)).contains("context"));
    assert!(refusal(BLOCKS, |options| options.block_length = Some(usize::MAX)).contains("context"));
    assert_eq!(
        refusal(BLOCKS, |options| options.block_length = Some(5000)),
        "the canvas needs 5000 positions and the model's context holds 4096: \
         shorten the prompt or the generation length"
    );
    assert_eq!(
        refusal(FULL, |options| options.block_length = Some(0)),
        "the block length is 0, expected at least 1: omit it to have it chosen"
    );
    assert_eq!(
        refusal(FULL, |options| options.block_length = Some(5)),
        "block length 5 does not divide the generation length 12: try 4"
    );
    assert_eq!(
        refusal(FULL, |options| options.block_length = Some(32)),
        "block length 32 does not divide the generation length 12: try 12"
    );
}

#[test]
fn steps() {
    assert_eq!(
        refusal(FULL, |options| options.steps = Some(0)),
        "the number of steps is 0, expected at least 1: omit it for one token a step"
    );
    assert_eq!(
        refusal(FULL, |options| (options.steps, options.block_length) = (Some(7), Some(4))),
        "7 steps do not divide over 3 blocks: try 6, or another block length"
    );
    assert_eq!(
        refusal(BLOCKS, |options| options.steps = Some(6)),
        "6 steps do not divide over 4 blocks: try 8, or another block length"
    );
    assert_eq!(
        refusal(FULL, |options| {
            options.steps = Some(6);
            options.decoder = "static:steps=3".parse().unwrap();
        }),
        "steps is 6 and the decoder says steps=3, expected one number: give only one of them"
    );
}

#[test]
fn canvases() {
    assert_eq!(
        refusal(FULL, |options| options.canvas = CanvasSpec::Infill { tokens: vec![1, 2] }),
        "nothing to fill in, expected at least one mask (token 23): put masks where text is wanted"
    );
    assert_eq!(
        refusal(BLOCKS, |options| options.canvas = CanvasSpec::Infill { tokens: vec![1, MASK_ID] }),
        "infilling needs full attention, found a model with block-causal attention: use a LLaDA or Dream model"
    );
    assert_eq!(
        refusal(Mask::Causal, |options| options.canvas = CanvasSpec::Infill { tokens: vec![1, 2] }),
        "infilling needs full attention, found a model with causal attention: use a LLaDA or Dream model"
    );
    assert_eq!(
        refusal(FULL, |options| options.canvas = CanvasSpec::Prompt { tokens: vec![1, MASK_ID], gen_length: 4 }),
        "the prompt holds the mask token (23) at position 1, expected text only: remove it, or use infilling"
    );
    assert_eq!(
        refusal(Mask::Causal, |options| options.canvas = prompt(0, 4)),
        "the prompt is empty, expected at least one token for an autoregressive model: start with its bos token"
    );
    let outside = VOCAB as u32;
    assert_eq!(
        refusal(FULL, |options| options.canvas = CanvasSpec::Prompt { tokens: vec![outside], gen_length: 4 }),
        "token 24 is outside the vocabulary, expected ids below 24: check that the tokenizer is the model's"
    );
    assert_eq!(
        refusal(BLOCKS, |options| options.tail = vec![1]),
        "tokens behind the response are for models with full attention, found block-causal attention: leave the tail empty"
    );
    assert_eq!(
        refusal(FULL, |options| options.tail = vec![1, MASK_ID]),
        "the tokens behind the response hold the mask (token 23), expected fixed ones: ask for more tokens"
    );
    assert!(refusal(FULL, |options| options.tail = vec![99]).starts_with("token behind the response 99 is outside"));
    assert!(refusal(FULL, |options| options.suppress = vec![99]).starts_with("suppressed token 99 is outside"));
    assert!(refusal(FULL, |options| options.zero_confidence = vec![99]).starts_with("muted token 99 is outside"));
    assert!(refusal(FULL, |options| options.facts.mask_id = Some(99)).starts_with("mask id 99 is outside"));
    assert_eq!(
        refusal(FULL, |options| options.facts.mask_id = None),
        "the model names no mask token and full attention needs one: give the mask id in the model's configuration"
    );
}

#[test]
fn numbers() {
    assert_eq!(
        refusal(FULL, |options| options.temperature = -1.0),
        "`temperature` is -1, expected a number from 0 on; 0 is greedy"
    );
    assert!(refusal(FULL, |options| options.temperature = f32::NAN).starts_with("`temperature` is NaN"));
    assert!(refusal(FULL, |options| options.alg_temp = f32::INFINITY).starts_with("`alg_temp` is inf"));
    assert_eq!(
        refusal(FULL, |options| options.top_p = 0.0),
        "`top_p` is 0, expected a number above 0 up to 1; 1 keeps all"
    );
    assert!(refusal(FULL, |options| options.top_p = 1.5).starts_with("`top_p` is 1.5"));
    assert!(refusal(FULL, |options| options.eps = 1.0).starts_with("`eps` is 1"));
    assert!(refusal(FULL, |options| options.cfg_scale = -0.5).starts_with("`cfg_scale` is -0.5"));
}

#[test]
fn methods() {
    assert_eq!(
        refusal(FULL, |options| options.cache = "block".parse().unwrap()),
        "cache block cannot run a model with full attention: use none, prefix, dual, freecache, dkv, dllm"
    );
    assert_eq!(
        refusal(Mask::Causal, |options| options.decoder = "static".parse().unwrap()),
        "decoder static cannot run a model with causal attention: use ar, isd"
    );
    assert_eq!(
        refusal(BLOCKS, |options| options.cache = "causal".parse().unwrap()),
        "cache causal cannot run a model with block-causal attention: use none, block"
    );
    assert!(
        refusal(FULL, |options| {
            options.decoder = "threshold".parse().unwrap();
            options.remasking = "origin".parse().unwrap();
        })
        .contains("use origin with decoder static")
    );
    assert_eq!(
        refusal(Mask::Causal, |options| options.steps = Some(3)),
        "the number of steps has no meaning for autoregressive decoding (one token a forward): omit it"
    );
    assert!(
        refusal(Mask::Causal, |options| options.block_length = Some(4)).starts_with("the block length has no meaning")
    );
    assert!(refusal(Mask::Causal, |options| options.cfg_scale = 1.0).starts_with("classifier-free guidance hides"));
}

#[test]
fn what_is_not_given_always_fits() {
    let end = if cfg!(miri) { 6 } else { 100 };
    for gen_length in 1..end {
        for (mask, prompt) in [(FULL, 3), (BLOCKS, 6), (Mask::Causal, 3)] {
            let run = run(options(mask, u32::from(mask == Mask::Causal), prompt, gen_length));
            assert_eq!(run.output.tokens.len(), gen_length, "{mask} {gen_length}");
        }
        for steps in [1, 5, gen_length, gen_length + 3] {
            let mut options = options(FULL, 0, 3, gen_length);
            options.steps = Some(steps);
            assert_eq!(run(options).output.tokens.len(), gen_length, "{steps} steps for {gen_length}");
        }
    }
}

#[test]
fn dream_has_one_region_unless_told_otherwise() {
    let mut options = options(FULL, 1, 3, 64);
    options.schedule = Schedule::Dream;
    let session = Session::new(options).unwrap();
    assert_eq!((session.layout().blocks(), session.receipt().steps), (1, 64));
}

#[test]
fn infill_blocks_may_be_short_and_steps_count_blocks_with_masks() {
    let mut tokens = vec![1; 11];
    tokens[2] = MASK_ID;
    tokens[9] = MASK_ID;
    let mut options = SessionOptions::new(facts(FULL, 0), CanvasSpec::Infill { tokens });
    options.block_length = Some(4);
    let session = Session::new(options.clone()).unwrap();
    assert_eq!((session.layout().blocks(), session.receipt().steps), (3, 2));
    options.steps = Some(3);
    assert!(Session::new(options).unwrap_err().to_string().contains("2 blocks"));
}
