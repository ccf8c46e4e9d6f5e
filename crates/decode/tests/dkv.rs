//! dKV-Cache (specification caches, section 4.5) on scripted denoisers, whose answers show every stale slot.

mod common;

use common::{VOCAB, drive, drive_on, options};
use demask_decode::{Session, SessionOptions};
use demask_step::{Denoiser, Mask, Predictions};
use demask_testkit::scripted::Scripted;

fn with(shift: u32, cache: &str) -> SessionOptions {
    let mut options = options(Mask::Full, shift, 5, 16);
    options.cache = cache.parse().unwrap();
    options.block_length = Some(8);
    options
}

fn run(options: SessionOptions) -> common::Run {
    let mut script = Scripted::new(5, VOCAB, options.facts.shift);
    drive_on(&mut script, &mut Session::new(options).unwrap())
}

/// K1: refreshed in every step, nothing is stale. K5: nor in the greedy variant, which knows its steps in advance.
#[test]
fn caches_k1_k5_refreshed_in_each_step_is_no_cache() {
    for shift in [0, 1] {
        for (cache, remasking) in [
            ("dkv:refresh=1", "low_confidence"),
            ("dkv:refresh=1,shift=un_right", "entropy"),
            ("dkv:variant=greedy,refresh=1", "random"),
            ("dkv:variant=greedy,refresh=1", "left_to_right"),
        ] {
            for steps in [16, 6] {
                let mut options = with(shift, cache);
                (options.remasking, options.steps) = (remasking.parse().unwrap(), Some(steps));
                let cached = run(options.clone());
                options.cache = "none".parse().unwrap();
                assert_eq!(cached.steps, run(options).steps, "{cache} {remasking} shift {shift}");
            }
        }
        let stale = [run(with(shift, "dkv:refresh=4")).steps, run(with(shift, "none")).steps];
        assert_ne!(stale[0], stale[1], "a stale slot shows");
    }
}

/// K7: every mask has a live row that predicts it, in each variant and whatever decodes.
#[test]
fn caches_k7_masks_are_predicted_by_live_rows() {
    for shift in [0, 1] {
        for cache in ["dkv:refresh=3", "dkv:refresh=5,shift=un_right", "dkv:variant=prefill", "dkv:variant=pd"] {
            for decoder in ["static", "threshold:tau=0.3", "slowfast:explore=2,tau=0.4"] {
                let mut options = with(shift, cache);
                options.decoder = decoder.parse().unwrap();
                let mut session = Session::new(options).unwrap();
                let mut script = Scripted::new(9, VOCAB, shift);
                let id = script.open(&session.needs()[0]).unwrap();
                drive(&mut session, |_, requests| {
                    let plan = &requests[0].plan;
                    for (position, &token) in plan.live.iter().zip(&requests[0].tokens) {
                        let row = position.saturating_sub(shift);
                        assert!(token != common::MASK_ID || plan.live.contains(row), "{cache} {decoder} {plan}");
                    }
                    let mut out = [Predictions::default()];
                    script.step(&[requests[0].step(id, 0)], &mut out).unwrap();
                    out.to_vec()
                });
            }
        }
    }
}

/// K10, the control: kept at once instead of one step later, tokens stay what they were as masks, and that shows.
#[test]
fn caches_k10_the_delay_matters() {
    let delayed = run(with(0, "dkv:refresh=8"));
    let mut session = Session::new(with(0, "dkv:refresh=8")).unwrap();
    let mut script = Scripted::new(5, VOCAB, 0);
    let id = script.open(&session.needs()[0]).unwrap();
    let at_once = drive(&mut session, |_, requests| {
        let mut request = requests[0].clone();
        if request.plan.live.len() < 21 {
            let masked = |(_, token): &(u32, u32)| *token == common::MASK_ID;
            let rows: Vec<_> =
                request.plan.live.iter().zip(requests[0].tokens.iter().copied()).filter(masked).collect();
            assert!(rows.len() < request.tokens.len(), "what was just decoded is live");
            request.plan.live = rows.iter().map(|row| row.0).collect();
            request.tokens = rows.iter().map(|row| row.1).collect();
        }
        let mut out = [Predictions::default()];
        script.step(&[request.step(id, 0)], &mut out).unwrap();
        out.to_vec()
    });
    assert_eq!(at_once.steps[..2], delayed.steps[..2]);
    assert_ne!(at_once.steps, delayed.steps);
}
