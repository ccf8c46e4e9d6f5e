//! The plans of each cache policy as text, on cases small enough to read.

mod common;

use common::{MASK_ID, drive, options, predict};
use demask_decode::{CanvasSpec, Session, SessionOptions};
use demask_step::{BlendWith, Mask};

/// The plans of a run in which position `p` is predicted as token 1, the leftmost the surest.
fn plans(options: SessionOptions) -> Vec<String> {
    let mut session = Session::new(options).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        plans.push(requests.iter().map(|request| request.plan.to_string()).collect::<Vec<_>>().join(" | "));
        requests.iter().map(|request| predict(request, |position| (1, 0.9 - position as f32 / 100.0))).collect()
    });
    plans
}

fn with(mut options: SessionOptions, decoder: &str, cache: &str, block_length: Option<usize>) -> SessionOptions {
    options.decoder = decoder.parse().unwrap();
    options.cache = cache.parse().unwrap();
    options.block_length = block_length;
    options
}

#[test]
fn none_on_full_attention_runs_everything_and_predicts_the_block() {
    let options = with(options(Mask::Full, 0, 3, 4), "static:steps=2", "none", Some(2));
    assert_eq!(
        plans(options),
        ["live 0..7 visible 7 full canvas predict 3..5", "live 0..7 visible 7 full canvas predict 5..7"]
    );
}

#[test]
fn none_predicts_only_masks() {
    let mut options = with(options(Mask::Full, 1, 0, 1), "static", "none", None);
    options.canvas = CanvasSpec::Infill { tokens: vec![1, MASK_ID, 2, MASK_ID, 3] };
    assert_eq!(
        plans(options),
        ["live 0..5 visible 5 full canvas predict 1,3", "live 0..5 visible 5 full canvas predict 3"]
    );
}

#[test]
fn none_on_block_causal_leaves_later_blocks_out() {
    let options = with(options(Mask::BlockCausal { block: 4 }, 0, 5, 5), "static:steps=4", "none", None);
    assert_eq!(
        plans(options),
        [
            "live 0..8 visible 8 block-causal:4 canvas predict 5..8",
            "live 0..8 visible 8 block-causal:4 canvas predict 7",
            "live 0..12 visible 12 block-causal:4 canvas predict 8..12",
            "live 0..12 visible 12 block-causal:4 canvas predict 10..12",
        ]
    );
}

#[test]
fn block_prefills_denoises_and_stores() {
    let options = with(options(Mask::BlockCausal { block: 4 }, 0, 9, 5), "static:steps=4", "block", None);
    assert_eq!(
        plans(options),
        [
            "live 0..8 visible 8 block-causal:4 canvas",
            "live 8..12 visible 12 block-causal:4 canvas predict 9..12",
            "live 8..12 visible 12 block-causal:4 canvas predict 11",
            "live 8..12 visible 12 block-causal:4 canvas",
            "live 12..16 visible 16 block-causal:4 canvas predict 12..16",
            "live 12..16 visible 16 block-causal:4 canvas predict 14..16",
            "live 12..16 visible 16 block-causal:4 canvas",
        ]
    );
}

#[test]
fn block_length_overrides_the_blocks_of_the_attention() {
    let options = with(options(Mask::BlockCausal { block: 4 }, 0, 1, 2), "static:steps=2", "block", Some(2));
    assert_eq!(
        plans(options),
        [
            "live 0..2 visible 2 block-causal:2 canvas predict 1",
            "live 0..2 visible 2 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas predict 2..4",
            "live 2..4 visible 4 block-causal:2 canvas",
        ]
    );
}

#[test]
fn causal_reads_each_token_once() {
    let options = with(options(Mask::Causal, 1, 3, 3), "ar", "causal", None);
    assert_eq!(
        plans(options),
        [
            "live 0..3 visible 3 causal canvas predict 3",
            "live 3 visible 4 causal canvas predict 4",
            "live 4 visible 5 causal canvas predict 5",
        ]
    );
}

#[test]
fn causal_without_a_cache_reads_everything_again() {
    let options = with(options(Mask::Causal, 1, 2, 2), "ar", "none", None);
    assert_eq!(
        plans(options),
        ["live 0..2 visible 2 causal canvas predict 2", "live 0..3 visible 3 causal canvas predict 3"]
    );
}

#[test]
fn guidance_runs_the_same_rows_twice_and_asks_once() {
    let mut options = with(options(Mask::BlockCausal { block: 2 }, 0, 2, 2), "static:steps=1", "block", None);
    options.cfg_scale = 1.5;
    assert_eq!(
        plans(options.clone()),
        [
            "live 0..2 visible 2 block-causal:2 canvas | live 0..2 visible 2 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas predict 2..4 | live 2..4 visible 4 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas | live 2..4 visible 4 block-causal:2 canvas",
        ]
    );
    let mut session = Session::new(options).unwrap();
    assert_eq!(session.needs().len(), 2);
    assert_eq!(session.needs()[1].predictions, 0);
    let mut blends = Vec::new();
    drive(&mut session, |_, requests| {
        blends.push(requests[0].blend.map(|blend| (blend.scale, blend.with)));
        assert_eq!((requests[1].sequence, requests[1].blend), (1, None));
        assert!(
            requests[1].tokens.iter().zip(requests[1].plan.live.iter()).all(|(&token, place)| token != 0 || place > 1)
        );
        requests.iter().map(|request| predict(request, |_| (1, 0.5))).collect()
    });
    assert_eq!(blends, [None, Some((1.5, BlendWith::Step(1))), None]);
    assert_eq!(session.counts().nfe, 3);
}
