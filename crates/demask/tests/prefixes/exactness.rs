//! Exactness of shared prefixes: no bit of an answer changes, whatever the lengths, the device and the decoder.

use std::ops::ControlFlow;

use demask::{Generation, ModelByHand, Options, Prompt};
use demask_decode::{Session, SessionOptions};
use demask_step::{Mask, TokenId};

use super::{ALL, Bench, PAGE, commits, options, question, session, tokens};
use crate::{
    batch::by_hand,
    common::{Device, devices, specs},
};

/// Decoders and caches that share, by who sees whom.
pub(super) fn methods(mask: Mask) -> &'static [(&'static str, &'static str)] {
    match mask {
        Mask::Causal => &[("ar", "causal")],
        _ => &[
            ("static", "block"),
            ("threshold:tau=0.3", "block"),
            ("freedave", "block"),
            ("freedave:d=3,eager=false", "block"),
            ("freedave:d=3,mode=reference,eager=false", "block"),
        ],
    }
}

/// Number of leading positions of a prompt that a model can take: its whole blocks of 4, or all but the last row.
fn shared(mask: Mask, prompt: usize) -> usize {
    match mask {
        Mask::Causal => prompt - 1,
        _ => prompt / 4 * 4,
    }
}

/// Runs a prompt on a bench that keeps nothing, and twice on one that does, each time with the same result.
fn cold_and_warm(benches: [&mut Bench; 2], length: usize, method: (&str, &str)) {
    let [plain, keeping] = benches;
    let prompt = tokens(length);
    let make = |bench: &Bench| session(&bench.facts, &prompt, 12, method);
    let mut cold = plain.run(make(plain));
    let expected = commits(&mut cold);
    let facts = keeping.facts.clone();
    for round in 0..3 {
        let mut warm = keeping.run(make(keeping));
        let name = format!("{method:?} behind {length} tokens, run {round}");
        assert_eq!(commits(&mut warm), expected, "{name}");
        assert_eq!(warm.canvas(), cold.canvas(), "{name}");
        let cached = warm.counts().cached;
        if round > 0 {
            assert_eq!(cached, shared(facts.mask, length), "{name}");
        }
        // Of a fused prompt each draft has the rows.
        assert!(warm.counts().rows + cached <= cold.counts().rows, "{name}");
        assert!(warm.counts().cost.flops() <= cold.counts().cost.flops(), "{name}");
        assert_eq!(warm.receipt().cached_tokens, cached);
    }
    assert_eq!(plain.counters().pages.idle, 0);
    assert_eq!(plain.counters().prefixes, None, "nothing is counted where nothing is kept");
}

#[test]
fn what_is_not_computed_again_changes_no_bit_on_any_device() {
    for (name, spec) in specs().into_iter().filter(|(name, _)| ["block", "causal"].contains(name)) {
        for (device, dtype) in devices(name) {
            let slow = device == Device::EmulatedGpu;
            for &method in methods(spec.attention).iter().take(if slow { 1 } else { 9 }) {
                let mut plain = Bench::new(&spec, device, dtype, 0);
                let lengths = if slow { &[PAGE + 3][..] } else { &[PAGE, 2 * PAGE + 5] };
                for &length in lengths {
                    let mut keeping = Bench::new(&spec, device, dtype, ALL);
                    cold_and_warm([&mut plain, &mut keeping], length, method);
                    assert!(keeping.idle() > 0 || length < PAGE);
                }
            }
        }
    }
}

/// Block and page each one position off, for every decoder, with what earlier lengths left.
#[test]
fn lengths_around_blocks_and_pages_are_right() {
    for kind in ["block", "causal"] {
        let (mut plain, mut keeping) = (Bench::of(kind, 0), Bench::of(kind, ALL));
        let around = |edge: usize| [edge - 1, edge, edge + 1];
        let lengths = [2, 4, 28, 32, 36, 64].into_iter().flat_map(around);
        for length in lengths.collect::<Vec<_>>() {
            for &method in methods(plain.facts.mask) {
                let prompt = tokens(length);
                let expected = commits(&mut plain.run(session(&plain.facts, &prompt, 9, method)));
                let mut warm = keeping.run(session(&keeping.facts, &prompt, 9, method));
                assert_eq!(commits(&mut warm), expected, "{kind} {method:?} behind {length} tokens");
                let cached = warm.counts().cached;
                assert!(cached <= shared(plain.facts.mask, length), "{cached}");
            }
        }
        keeping.idle();
    }
}

/// The demo's models in their own words, through the face.
#[test]
fn demo_models_answer_the_same_cold_and_warm() {
    let told = |options: &Options, model: &mut ModelByHand, index| -> Generation {
        model.generate_with(question(index), options).unwrap()
    };
    for (name, decoders) in [("demo-sdar", &["static", "freedave", "threshold:tau=0.9"][..]), ("demo-qwen", &["ar"])] {
        let (mut plain, mut keeping) = (by_hand(name), by_hand(name));
        keeping.set_prefix_cache(ALL);
        keeping.scheduler().0.set_leak(|leak| panic!("{leak}"));
        for decoder in decoders {
            let options = Options {
                decoder: Some(decoder.parse().unwrap()),
                gen_length: Some(32),
                temperature: Some(if *decoder == "static" { 0.5 } else { 0.0 }),
                ..Options::default()
            };
            for index in 0..4 {
                let cold = told(&options, &mut plain, index);
                for round in 0..2 {
                    let warm = told(&options, &mut keeping, index);
                    assert_eq!((&warm.text, &warm.canvas, warm.finish), (&cold.text, &cold.canvas, cold.finish));
                    let (cold, warm) = (&cold.receipt.decoding, &warm.receipt.decoding);
                    assert_eq!(cold.cached_tokens, 0);
                    if round > 0 {
                        assert!(warm.cached_tokens >= PAGE, "{name} {decoder} {index}: {}", warm.cached_tokens);
                        assert!(warm.rows < cold.rows && warm.flops < cold.flops, "{name} {decoder} {index}");
                    }
                }
            }
        }
        let prompt = Prompt::Tokens(tokens(4 * PAGE));
        let short = Options { gen_length: Some(8), ..Options::default() };
        let cached = |model: &mut ModelByHand, salt: &str| {
            let mut prepared = model.prepare(&prompt, &short).unwrap();
            prepared.set_cache_salt(salt);
            model.answer(prepared, &mut |_| ControlFlow::Continue(())).unwrap().receipt.decoding.cached_tokens
        };
        assert_eq!(["a", "b", "a", "b"].map(|salt| cached(&mut keeping, salt) > 0), [false, false, true, true]);
        assert!(told(&short, &mut keeping, 0).receipt.decoding.cached_tokens > 0);
    }
}

#[test]
fn other_block_lengths_and_other_salts_share_nothing() {
    let mut bench = Bench::of("block", ALL);
    let prompt = tokens(3 * PAGE + 1);
    let mut cached = |block_length: usize, salt: u64| {
        let options = options(&bench.facts, &prompt, 12, ("static", "block"));
        let mut session = Session::new(SessionOptions { block_length: Some(block_length), ..options }).unwrap();
        session.set_salt(salt);
        bench.run(session).counts().cached
    };
    for (block_length, salt, expected) in [
        (4, 0, 0),
        (8, 0, 0),
        (4, 1, 0),
        (4, 2, 0),
        (4, 0, 96),
        (8, 0, 96),
        (4, 1, 96),
        // Whole blocks of six and whole pages: 96 positions.
        (6, 0, 0),
        (6, 0, 96),
        // Five and 32 have nothing in common but 160: what is less is copied.
        (5, 0, 0),
        (5, 0, 95),
    ] {
        assert_eq!(cached(block_length, salt), expected, "blocks of {block_length}, salt {salt}");
    }
    bench.idle();
}

/// An answer's own blocks, and the next turn of a talk.
#[test]
fn the_next_turn_begins_with_the_answer_of_the_last_one() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let (mut plain, mut keeping) = (Bench::of(kind, 0), Bench::of(kind, ALL));
            let first = keeping.run(session(&keeping.facts, &tokens(20), 60, method));
            let second: Vec<TokenId> = first.canvas().iter().copied().chain(tokens(9)).collect();
            let expected = commits(&mut plain.run(session(&plain.facts, &second, 12, method)));
            let mut warm = keeping.run(session(&keeping.facts, &second, 12, method));
            assert_eq!(commits(&mut warm), expected, "{kind} {method:?}");
            // Of the last block who drafts leaves the K/V that its accepted draft had.
            let known = if kind == "block" { 76..=80 } else { 78..=79 };
            assert!(known.contains(&warm.counts().cached), "{kind} {method:?}: {} of 80", warm.counts().cached);
        }
    }
}

/// Under full attention what stands behind a token changes its K/V: there is nothing to share.
#[test]
fn models_with_full_attention_share_nothing() {
    let mut bench = Bench::of("full", ALL);
    for cache in ["none", "dual", "freecache:block=8", "dllm"] {
        for _ in 0..2 {
            let session = bench.run(session(&bench.facts, &tokens(70), 16, ("static", cache)));
            assert_eq!(session.counts().cached, 0);
        }
    }
    assert_eq!((bench.idle(), bench.counters().prefixes), (0, None));
}

/// Nobody who did not ask for it shares anything.
#[test]
fn nothing_is_shared_unless_somebody_asks() {
    let mut model = by_hand("demo-sdar");
    let options = Options { gen_length: Some(16), ..Options::default() };
    for _ in 0..2 {
        let prepared = model.prepare(&question(1), &options).unwrap();
        let id = model.submit(prepared).unwrap();
        let mut over = Vec::new();
        while over.is_empty() {
            over = model.step(&mut |_| ControlFlow::Continue(()));
        }
        let (found, outcome) = over.remove(0);
        assert_eq!(found, id);
        assert_eq!(model.generation(outcome).unwrap().receipt.decoding.cached_tokens, 0);
    }
    let (scheduler, networks) = model.scheduler();
    let counters = scheduler.network_counters(networks[0]).unwrap();
    assert_eq!((counters.pages.idle, counters.prefixes), (0, None));
}
