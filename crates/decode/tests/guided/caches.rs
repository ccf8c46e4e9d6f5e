//! Guided decoding over caches, on scripts whose stale slots show.

use demask_decode::{Event, Session, SessionOptions};
use demask_step::{Job, Network, Predictions, TokenId};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

use super::{Guide, guided, ranked};
use crate::common::{MASK_ID, VOCAB};

/// Record of a run of two scripts: the tokens drafted and committed in each step.
#[derive(Debug, PartialEq)]
struct Scripts {
    drafted: Vec<Vec<(u32, TokenId)>>,
    committed: Vec<Vec<(u32, TokenId)>>,
    canvas: Vec<TokenId>,
    exactness: &'static str,
}

/// Runs a session on a script of slots, which checks every plan, with another one as its guide. Both predict the same
/// token at a share of the positions.
fn on_scripts(seed: u64, options: SessionOptions) -> Scripts {
    let mut model = Scripted::new(seed, VOCAB, options.facts.shift).with_easy(0.6);
    let mut guide = Scripted::new(seed, VOCAB, 1).with_easy(0.6);
    let mut session = Session::new(options).unwrap();
    let ids: Vec<_> = session.needs().iter().map(|needs| model.open(&needs.limits).unwrap()).collect();
    let reader = guide.open(&session.needs_of(1)[0]).unwrap();
    let (mut drafted, mut committed, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    while session.wants().is_some() {
        let requests = session.requests();
        let mut out = vec![Predictions::default(); requests.len()];
        if session.wants() == Some(1) {
            guide.step(&[requests[0].step(reader)], &mut out).unwrap();
        } else {
            let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
            model.step(&batch, &mut out).unwrap();
            drafted.push(out[0].positions.iter().zip(out[0].tokens.iter().copied()).collect());
        }
        session.feed(&out);
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => commits.push((position, token)),
                Event::Step { .. } => committed.push(std::mem::take(&mut commits)),
                _ => {}
            }
        }
    }
    Scripts { drafted, committed, canvas: session.canvas().to_vec(), exactness: session.exactness().name() }
}

/// Caches that compute only some rows, or show old ones, with the parameters that matter.
const INEXACT: &[&str] = &[
    "dkv:refresh=3",
    "dkv:refresh=4,shift=un_right",
    "dkv:variant=prefill",
    "dkv:variant=pd,refresh=3",
    "dllm:prompt=5,response=3",
    "dllm:prompt=3,response=2,rho=0.5,first_layer=same,boundary=before",
    "dllm:response=4,probe=k,rho=0.4",
    "dllm:response=4,rows=block,count=tokens",
    "dllm:response=4,probe=random,rho=0",
    "dllm:response=5,rows=drift,count=forwards,rho=0.4",
    "dllm:response=4,rows=drift,rho=0.5",
    "freecache:block=3",
    "freecache:block=4,freeze=reference,lookahead=6,lag=1",
];

/// They are caches: what they leave out shows.
#[test]
fn inexact_caches_draft_other_tokens() {
    for cache in INEXACT {
        let differs = (0..40).any(|seed| {
            let run = |cache: &str| {
                let mut options = guided("guided", 0, 4, 24);
                options.cache = cache.parse().unwrap();
                on_scripts(seed, options).canvas
            };
            run(cache) != run("none")
        });
        assert!(differs, "{cache}");
    }
}

/// specs/caches.md#K1 and specs/caches.md#T1: refreshed in each forward, they are no cache.
#[test]
fn guided_over_caches_that_are_always_fresh_is_guided_over_none() {
    for (seed, shift) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        for rule in ["guided", "guided:match=topk,k=4", "guided:fallback=ar"] {
            let run = |cache: &str| {
                let mut options = guided(rule, shift, 4, 24);
                options.cache = cache.parse().unwrap();
                on_scripts(seed, options)
            };
            let reference = run("none");
            for cache in ["dkv:refresh=1", "dllm:prompt=1,response=1", "dllm:prompt=1,response=5,rho=1"] {
                assert_eq!(run(cache), reference, "{rule} {cache}");
            }
        }
    }
}

/// G9 on a model whose stale slots show: as the target the guide writes one text whatever the cache, as the judge it
/// may get other drafts.
#[test]
fn flashdlm_g9_caches_change_drafts_only() {
    let caches = ["none", "prefix", "dual", "freecache:block=4", "freecache:block=2,freeze=reference", "dkv"];
    let mut differing = 0;
    for seed in 0..property::count(20).into() {
        let run = |target: &str, cache: &str| {
            let mut options = guided(&format!("guided:match=topk,k=3,{target}"), 0, 4, 16);
            if target == "target=guide" {
                options.decoder = "guided:target=guide".parse().unwrap();
            }
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(8));
            let mut session = Session::new(options).unwrap();
            let mut script = Scripted::new(seed, VOCAB, 0);
            let id = script.open(&session.needs()[0].limits).unwrap();
            let mut guide = Guide::new(|before: &[TokenId]| ranked(seed, 20, &before[before.len() - 1..]));
            while session.wants().is_some() {
                let mut out = [Predictions::default()];
                match session.wants() {
                    Some(1) => out[0] = guide.answer(&session.requests()[0]),
                    _ => script.step(&[session.requests()[0].step(id)], &mut out).unwrap(),
                }
                session.feed(&out);
            }
            (session.output().canvas, session.counts().forwards)
        };
        let (own, _) = run("target=guide", "none");
        let reference = run("target=dlm", "none");
        for cache in caches {
            assert_eq!(run("target=guide", cache).0, own, "{cache}");
            differing += usize::from(run("target=dlm", cache) != reference);
        }
    }
    assert!(differing > 20, "stale slots change {differing} of 100 guided runs");
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// G3, G7, G11 over caches that are not exact: each step commits a run of what the model drafted in it, the first of
    /// it always, in order and without a mask.
    #[test]
    fn flashdlm_g3_g7_g11_over_inexact_caches(seed in any::<u64>(), shift in 0u32..2, gen_length in 1usize..30) {
        for cache in INEXACT {
            let mut options = guided("guided:match=topk,k=3,verify=5", shift, 4, gen_length);
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(gen_length));
            let run = on_scripts(seed, options);
            prop_assert_eq!(run.exactness, "approximate");
            prop_assert_eq!(run.committed.len(), run.drafted.len());
            for (commits, drafts) in run.committed.iter().zip(&run.drafted) {
                prop_assert!(!commits.is_empty() && commits[..] == drafts[..commits.len()], "{}", cache);
            }
            let positions: Vec<u32> = run.committed.iter().flatten().map(|commit| commit.0).collect();
            prop_assert_eq!(positions, (4..4 + gen_length as u32).collect::<Vec<_>>());
            prop_assert!(!run.canvas.contains(&MASK_ID));
        }
    }

    /// G8, G9: what the model keeps changes its drafts, and never the output if that is the guide's.
    #[test]
    fn flashdlm_g8_g9_the_guides_output_over_any_cache(
        (seed, shift, gen_length) in (any::<u64>(), 0u32..2, 1usize..30),
    ) {
        let run = |cache: &str, decoder: &str| {
            let mut options = guided(decoder, shift, 4, gen_length);
            options.cache = cache.parse().unwrap();
            on_scripts(seed, options)
        };
        let reference = run("none", "guided:target=guide,verify=1");
        for cache in INEXACT.iter().chain(&["prefix", "dual"]) {
            let found = run(cache, "guided:target=guide,verify=7");
            prop_assert_eq!((&found.canvas, found.exactness), (&reference.canvas, "lossless"), "{}", cache);
        }
    }
}
