//! dKV-Cache (specs/caches.md#4.5) on scripted networks, whose answers show every stale slot.

use crate::common::{self, VOCAB, drive, drive_on, options};
use demask_decode::{Session, SessionOptions};
use demask_step::{Job, Mask, Network, Positions, Predictions};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

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

proptest! {
    #![proptest_config(property::cases(100))]

    /// K1: refreshed in every step, nothing is stale. K5: nor in the greedy variant, which knows its steps in advance.
    #[test]
    fn caches_k1_k5_refreshed_in_each_step_is_no_cache(
        (shift, prompt, block, blocks) in (0u32..2, 1usize..7, 1usize..9, 1usize..4),
        (seed, per_block) in (any::<u64>(), 1usize..9),
    ) {
        for (cache, remasking) in [
            ("dkv:refresh=1", "low_confidence"),
            ("dkv:refresh=1,shift=un_right", "entropy"),
            ("dkv:variant=greedy,refresh=1", "random"),
            ("dkv:variant=greedy,refresh=1", "left_to_right"),
        ] {
            let mut options = options(Mask::Full, shift, prompt, block * blocks);
            (options.block_length, options.steps, options.seed) = (Some(block), Some(per_block * blocks), seed);
            (options.remasking, options.cache) = (remasking.parse().unwrap(), cache.parse().unwrap());
            let run = |options: SessionOptions| {
                drive_on(&mut Scripted::new(seed, VOCAB, shift), &mut Session::new(options).unwrap())
            };
            let cached = run(options.clone());
            options.cache = "none".parse().unwrap();
            prop_assert_eq!(cached.steps, run(options).steps, "{} {}", cache, remasking);
        }
    }

    /// K7: every mask has a live row that predicts it, in each variant and whatever decodes.
    #[test]
    fn caches_k7_masks_are_predicted_by_live_rows(
        (shift, prompt, block, blocks) in (0u32..2, 1usize..7, 1usize..9, 1usize..4),
        (seed, refresh, tau) in (any::<u64>(), 1usize..9, 0.02f32..0.9),
    ) {
        let variants = [format!("refresh={refresh}"), format!("refresh={refresh},shift=un_right"),
            "variant=prefill".into(), format!("variant=pd,refresh={refresh}")];
        let decoders = ["static".into(), format!("threshold:tau={tau}"), format!("slowfast:explore=2,tau={tau}")];
        for (variant, decoder) in variants.iter().flat_map(|variant| decoders.iter().map(move |of| (variant, of))) {
            let mut options = options(Mask::Full, shift, prompt, block * blocks);
            (options.block_length, options.cache) = (Some(block), format!("dkv:{variant}").parse().unwrap());
            options.decoder = decoder.parse().unwrap();
            let mut session = Session::new(options).unwrap();
            let mut script = Scripted::new(seed, VOCAB, shift);
            let id = script.open(&session.needs()[0].limits).unwrap();
            while session.wants() == Some(0) {
                let request = session.requests()[0].clone();
                let plan = &request.plan;
                for position in session.layout().response() as u32..plan.kv_len {
                    let masked = session.canvas()[position as usize] == common::MASK_ID;
                    let row = position.saturating_sub(shift);
                    prop_assert!(!masked || plan.query.contains(row), "{} {} {}", variant, decoder, plan);
                }
                let mut out = [Predictions::default()];
                script.step(&[request.step(id)], &mut out).unwrap();
                session.feed(&out);
            }
        }
    }
}

/// The control of K1: a stale slot shows.
#[test]
fn refreshed_more_rarely_it_is_another_run() {
    for shift in [0, 1] {
        assert_ne!(run(with(shift, "dkv:refresh=4")).steps, run(with(shift, "none")).steps);
    }
}

/// K10, the control: kept at once instead of one step later, tokens stay what they were as masks, and that shows.
#[test]
fn caches_k10_the_delay_matters() {
    let delayed = run(with(0, "dkv:refresh=8"));
    let mut session = Session::new(with(0, "dkv:refresh=8")).unwrap();
    let mut script = Scripted::new(5, VOCAB, 0);
    let id = script.open(&session.needs()[0].limits).unwrap();
    let at_once = drive(&mut session, |_, requests| {
        let mut request = requests[0].clone();
        if request.plan.query.len() < 21 {
            let masked = |(_, token): &(u32, u32)| *token == common::MASK_ID;
            let rows: Vec<_> =
                request.plan.query.iter().zip(requests[0].tokens.iter().copied()).filter(masked).collect();
            assert!(rows.len() < request.tokens.len(), "what was just decoded is live");
            request.plan.query = rows.iter().map(|row| row.0).collect();
            request.tokens = rows.iter().map(|row| row.1).collect();
        }
        let mut out = [Predictions::default()];
        script.step(&[request.step(id)], &mut out).unwrap();
        out.to_vec()
    });
    assert_eq!(at_once.steps[..2], delayed.steps[..2]);
    assert_ne!(at_once.steps, delayed.steps);
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// K3: but for refreshes, what is kept at a step is the prompt and what was decoded by the end of the last step but
    /// one. K2: the first two steps of a block keep nothing.
    #[test]
    fn caches_k2_k3_what_was_decoded_two_steps_ago_is_kept(
        (prompt, block, blocks, refresh) in (0usize..7, 1usize..9, 1usize..4, 1usize..12),
        (seed, tau, steps) in (any::<u64>(), 0.02f32..0.9, 0usize..5),
    ) {
        let mut options = options(Mask::Full, 0, prompt, block * blocks);
        (options.cache, options.block_length) = (format!("dkv:refresh={refresh}").parse().unwrap(), Some(block));
        match steps {
            0 => options.decoder = format!("threshold:tau={tau}").parse().unwrap(),
            1 => {}
            steps => options.steps = Some(steps * blocks),
        }
        let mut session = Session::new(options).unwrap();
        let mut script = Scripted::new(seed, VOCAB, 0);
        let id = script.open(&session.needs()[0].limits).unwrap();
        let length = session.layout().len() as u32;
        let masks = |session: &Session| -> Positions {
            (0..length).filter(|&position| session.canvas()[position as usize] == common::MASK_ID).collect()
        };
        // The canvas before the last step: what was not a mask there was decoded before it.
        let (mut before, mut of, mut step) = (masks(&session), usize::MAX, 0);
        while session.wants() == Some(0) {
            let request = session.requests()[0].clone();
            let current = session.layout().block_of(request.plan.predict.first().unwrap());
            if std::mem::replace(&mut of, current) != current {
                step = 0;
            }
            let whole = step < 2 || step % refresh == 0;
            prop_assert_eq!(&request.plan.query, if whole { &Positions::from(0..length) } else { &before });
            before = masks(&session);
            let mut out = [Predictions::default()];
            script.step(&[request.step(id)], &mut out).unwrap();
            session.feed(&out);
            step += 1;
        }
    }
}
