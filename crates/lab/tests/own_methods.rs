//! Methods that are not ours, those of the examples of `demask`, are rehearsed as our own.

#[path = "../../demask/examples/own_cache.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod own_cache;
#[path = "../../demask/examples/own_decoder.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod own_decoder;

use demask::internals::decode::{CanvasSpec, Session, SessionOptions, StopRule};
use demask_lab::rehearsal::{Assumed, explain};
use own_cache::Sliding;
use own_decoder::MarginDrop;

use crate::common::opened;

#[test]
fn their_plans_are_told_without_a_network() {
    let facts = opened("demo-llada").info().facts().clone();
    let canvas = CanvasSpec::Prompt { tokens: (10..23).collect(), gen_length: 24 };
    let options = SessionOptions {
        block_length: Some(8),
        stop: StopRule::Never,
        decoder: MarginDrop::default().into(),
        cache: Sliding { every: 2, reach: 1 }.into(),
        ..SessionOptions::new(facts.clone(), canvas)
    };
    let mut lines = Vec::new();
    let mut session = Session::new(options).unwrap();
    let mut stand_in = Assumed::with_tokens(&facts, [10, 11], 0.0, 0);
    explain(&mut session, &mut stand_in, &mut |line| lines.push(line), &mut |_, _| {}).unwrap();
    assert_eq!(lines[0], "step 0 sequence 0: live 0..37 visible 37 full canvas predict 13..21");
    assert!(lines[1].starts_with("step 1 sequence 0: live "), "{}", lines[1]);
    assert!(!lines[1].contains("live 0..37"), "{}", lines[1]);
}
