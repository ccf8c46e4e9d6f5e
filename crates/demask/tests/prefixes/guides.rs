//! Sequences beside the canvas: the twin of guidance shares nothing, a causal guide shares what it has read.

use std::{collections::HashMap, ops::ControlFlow};

use demask::{ModelByHand, Options, Request};
use demask_decode::{GuideOptions, ModelFacts, Session, SessionOptions};
use demask_engine::Scheduler;
use demask_step::Mask;
use demask_tensor::Dtype;

use super::{ALL, Bench, PAGE, best, commits, options, question, tokens};
use crate::{
    batch::by_hand,
    common::{runner, specs},
};

/// Plans of the canvas are those of the unconditional sequence too: it begins with nothing, and only the canvas leaves
/// anything.
#[test]
fn guidance_shares_nothing_of_its_twin() {
    let (mut plain, mut bench) = (Bench::of("block", 0), Bench::of("block", ALL));
    let make = |bench: &Bench, cfg_scale| {
        let options = options(&bench.facts, &tokens(70), 12, ("static", "block"));
        Session::new(SessionOptions { cfg_scale, ..options }).unwrap()
    };
    let expected = [1.0, 0.0].map(|scale| commits(&mut plain.run(make(&plain, scale))));
    for round in 0..2 {
        let mut guided = bench.run(make(&bench, 1.0));
        assert_eq!((commits(&mut guided), guided.counts().cached), (expected[0].clone(), 0));
        let mut alone = bench.run(make(&bench, 0.0));
        assert_eq!((commits(&mut alone), alone.counts().cached), (expected[1].clone(), 68), "round {round}");
    }
    // What both canvases have, and nothing of masks.
    assert_eq!(bench.idle(), 3);
}

/// A causal guide does not read a prompt again, whoever drafts.
#[test]
fn a_guide_shares_what_it_has_read() {
    let models = || {
        let mut model = by_hand("demo-llada");
        model.set_guide(by_hand("demo-qwen")).unwrap();
        model.scheduler().0.set_leak(|leak| panic!("{leak}"));
        model
    };
    let (mut plain, mut keeping) = (models(), models());
    keeping.set_prefix_cache(ALL);
    let options = Options { decoder: Some("guided".parse().unwrap()), gen_length: Some(32), ..Options::default() };
    let told = |model: &mut ModelByHand, index| model.generate_with(question(index), &options).unwrap();
    for index in 0..3 {
        let cold = told(&mut plain, index);
        let _ = told(&mut keeping, index);
        let warm = told(&mut keeping, index);
        assert_eq!((&warm.text, &warm.canvas), (&cold.text, &cold.canvas), "{index}");
        let [cold, warm] = [cold, warm].map(|one| one.receipt.guide.unwrap());
        assert_eq!((cold.accepted, cold.rejected), (warm.accepted, warm.rejected), "{index}");
        assert!(warm.cached_tokens >= PAGE && cold.cached_tokens == 0, "{}", warm.cached_tokens);
        assert_eq!(warm.rows + warm.cached_tokens, cold.rows, "{index}");
    }
    let (scheduler, networks) = keeping.scheduler();
    let idle = |network: usize| scheduler.network_counters(networks[network]).unwrap().pages;
    assert_eq!((idle(0).used, idle(0).idle, idle(1).used), (0, 0, 0));
    assert!(idle(1).idle > 0);
}

/// A block-causal model and a causal guide of one vocabulary: both share, each its own.
#[test]
fn canvas_and_guide_both_share() {
    let specs: HashMap<_, _> = specs().into_iter().collect();
    let facts = |mask, shift, mask_id| ModelFacts {
        mask,
        shift,
        mask_id,
        vocab: 70,
        context: 512,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    };
    let run = |bytes: u64, rounds: usize| {
        let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
        let on = ["block", "causal"].map(|kind| {
            let mut network = runner(&specs[kind], best(), Dtype::Bf16, 1);
            network.keep_prefixes(bytes);
            scheduler.add(network)
        });
        let one = |_: usize| {
            let guide = GuideOptions {
                facts: facts(Mask::Causal, 1, None),
                end_ids: Vec::new(),
                shared_vocabulary: true,
                text: None,
            };
            let own = options(&facts(Mask::blocks(4), 0, Some(69)), &tokens(70), 40, ("guided", "block"));
            let session = Session::new(SessionOptions { guide: Some(guide), ..own }).unwrap();
            scheduler.submit(Request::new(session), &on).unwrap();
            let mut over = Vec::new();
            while over.is_empty() {
                scheduler.step(&mut |_| ControlFlow::Continue(()), &mut over);
            }
            let mut session = over.remove(0).into_job::<Session>().unwrap();
            (commits(&mut session), session.counts().cached, session.counts().guide.cached)
        };
        (0..rounds).map(one).collect::<Vec<_>>()
    };
    let (expected, ..) = run(0, 1).remove(0);
    for (round, (found, canvas, guide)) in run(ALL, 2).into_iter().enumerate() {
        assert_eq!(found, expected);
        assert_eq!((canvas, guide), if round == 0 { (0, 0) } else { (68, 69) });
    }
}
