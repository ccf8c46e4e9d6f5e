//! Requests beside each other share prefixes, and whoever is given up leaves none held.

use std::{collections::HashMap, ops::ControlFlow};

use demask_decode::{ModelFacts, Session};
use demask_step::TokenId;

use super::{ALL, Bench, PAGE, commits, exactness::methods, session, tokens};
use crate::common::Dice;

/// The first one writes the prompt, and the others wait for that forward.
#[test]
fn requests_that_enter_together_compute_their_prompt_once() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let (mut plain, mut bench) = (Bench::of(kind, 0), Bench::of(kind, ALL));
            let prompt = tokens(2 * PAGE + 5);
            let make = |bench: &Bench| session(&bench.facts, &prompt, 24, method);
            let expected = commits(&mut plain.run(make(&plain)));
            for _ in 0..4 {
                bench.submit(make(&bench));
            }
            let (mut over, mut running) = (bench.step(), vec![bench.scheduler.running().count()]);
            while over.len() < 4 {
                over.extend(bench.step());
                running.push(bench.scheduler.running().count());
            }
            assert_eq!(running[..2], [1, 4], "{kind} {method:?}: they wait for one forward");
            let mut cached = Vec::new();
            for one in &mut over {
                assert_eq!(commits(&mut one.work), expected, "{kind} {method:?}");
                cached.push(one.work.counts().cached);
            }
            cached.sort_unstable();
            assert_eq!(cached, [0, 2 * PAGE, 2 * PAGE, 2 * PAGE], "{kind} {method:?}");
            bench.idle();
        }
    }
}

/// The wait must pay: of a prompt of which little is the same, it saves less than it takes.
#[test]
fn nothing_waits_for_a_prompt_that_is_mostly_another() {
    let mut bench = Bench::of("block", ALL);
    let mut other = tokens(6 * PAGE);
    other[2 * PAGE..].fill(5);
    bench.submit(session(&bench.facts, &tokens(6 * PAGE), 24, ("static", "block")));
    bench.submit(session(&bench.facts, &other, 24, ("static", "block")));
    let mut salted = session(&bench.facts, &tokens(6 * PAGE), 24, ("static", "block"));
    salted.set_salt(7);
    bench.submit(salted);
    bench.step();
    assert_eq!(bench.scheduler.running().count(), 3, "nor for another one's");
    while !bench.scheduler.is_idle() {
        bench.step();
    }
}

/// The observer ends the one that was to write the prompt before its first forward: the next one writes it.
#[test]
fn a_filler_that_is_cancelled_hands_over() {
    let mut bench = Bench::of("block", ALL);
    let make = |bench: &Bench| session(&bench.facts, &tokens(2 * PAGE), 24, ("static", "block"));
    let first = bench.submit(make(&bench));
    for _ in 0..2 {
        bench.submit(make(&bench));
    }
    let mut over = Vec::new();
    let mut look = |request: &mut demask::Request| {
        if request.id() == first { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    while !bench.scheduler.is_idle() {
        bench.scheduler.step(&mut look, &mut over);
    }
    let ends: Vec<_> = over.iter().map(|one| one.end().unwrap().is_ok()).collect();
    assert_eq!(ends, [false, true, true]);
    let mut cached: Vec<_> = over.iter().skip(1).map(|one| one.job_as::<Session>().unwrap().counts().cached).collect();
    cached.sort_unstable();
    assert_eq!(cached, [0, 2 * PAGE]);
    bench.idle();
}

/// A request that is given up at any time leaves what was right, and holds nothing: drafts that were run are no slots
/// before the next forward keeps them.
#[test]
fn whoever_is_given_up_leaves_no_page_held() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let mut plain = Bench::of(kind, 0);
            let first = |bench: &Bench| session(&bench.facts, &tokens(PAGE - 4), 4 * PAGE, method);
            let talk = plain.run(first(&plain)).canvas()[..4 * PAGE - 3].to_vec();
            let second = |bench: &Bench| session(&bench.facts, &talk, 8, method);
            let expected = commits(&mut plain.run(second(&plain)));
            let mut most = 0;
            for steps in [0, 1, 2, 3, 5, 8, 13, 40, 110] {
                let mut bench = Bench::of(kind, ALL);
                let id = bench.submit(first(&bench));
                let over = (0..steps).any(|_| !bench.step().is_empty());
                assert_eq!(bench.scheduler.cancel(id).is_some(), !over);
                let left = bench.idle();
                assert!(steps > 0 || left == 0, "before the first forward there is nothing to leave");
                most = most.max(left);
                let mut next = bench.run(second(&bench));
                assert_eq!(commits(&mut next), expected, "{kind} {method:?} behind {steps} steps of another");
                let cached = next.counts().cached;
                // The last page may be whole, or in part.
                let (least, most) = (left.saturating_sub(1).min(3) * PAGE, left * PAGE);
                assert!((least..=most).contains(&cached), "{kind} {method:?} {steps}: {cached} of {left} pages");
                assert_eq!(cached > 0, left > 0, "{kind} {method:?} {steps}");
            }
            assert!(most >= 3, "{kind} {method:?}");
        }
    }
}

/// The observer ends it in the very forward whose prefill is published.
#[test]
fn whoever_ends_while_it_publishes_leaves_no_page_held() {
    let mut bench = Bench::of("block", ALL);
    let make = |bench: &Bench| session(&bench.facts, &tokens(2 * PAGE), 20, ("static", "block"));
    bench.submit(make(&bench));
    let (mut over, mut seen) = (Vec::new(), 0);
    let mut look = |_: &mut demask::Request| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    bench.scheduler.step(&mut look, &mut over);
    assert_eq!((over.len(), over[0].end().unwrap().is_err()), (1, true));
    assert_eq!(bench.idle(), 2);
    assert_eq!(bench.run(make(&bench)).counts().cached, 2 * PAGE);
}

/// Random requests whose prompts have random beginnings in common, beside each other, some given up, in too little memory:
/// every finished one is what it is alone.
#[test]
fn random_company_shares_and_stays_right() {
    for kind in ["block", "causal"] {
        let (mut plain, mut bench) = (Bench::of(kind, 0), Bench::of(kind, 0));
        let methods = methods(plain.facts.mask);
        let page = bench.page_bytes();
        bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(9 * page);
        let make = |facts: &ModelFacts, index: usize| {
            let mut dice = Dice::new(index as u64 / 2);
            let mut prompt = tokens(120);
            // Prompts part at one of few places.
            let part = [0, 31, 40, 64, 100][dice.below(5)];
            prompt[part..].iter_mut().for_each(|token| *token = 3 + dice.below(60) as TokenId);
            prompt.truncate(20 + dice.below(100));
            let mut session = session(facts, &prompt, 4 + dice.below(30), methods[index % methods.len()]);
            session.set_salt(u64::from(dice.chance(10)));
            session
        };
        let expected: Vec<_> = (0..40).map(|index| commits(&mut plain.run(make(&plain.facts, index)))).collect();
        bench.run(make(&bench.facts, 0));
        let device = bench.scheduler.network(bench.network).unwrap().available().0;
        bench.scheduler.limit(device, 60 * page + (4 << 20));
        let (mut dice, mut next, mut running, mut cached) = (Dice::new(5), 0, HashMap::new(), 0);
        while next < expected.len() || !bench.scheduler.is_idle() {
            if next < expected.len() && dice.chance(40) {
                running.insert(bench.submit(make(&bench.facts, next)), next);
                next += 1;
            }
            if dice.chance(4)
                && let Some(&id) = running.keys().min()
            {
                bench.scheduler.cancel(id);
                running.remove(&id);
            }
            for mut one in bench.step() {
                let Some(index) = running.remove(&one.id) else { continue };
                one.end.unwrap();
                cached += one.work.counts().cached;
                assert_eq!(commits(&mut one.work), expected[index], "{kind} request {index}");
            }
        }
        assert!(cached > 10 * PAGE, "{kind}: {cached} tokens were not computed again");
        assert!(bench.idle() <= 9);
    }
}
