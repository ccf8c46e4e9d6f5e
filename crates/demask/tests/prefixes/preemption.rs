//! Memory as it is used: requests enter with what they are likely to take, give it up where it does not suffice, and go on to
//! the bit.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask_decode::{Counts, Finish, ModelFacts, Session};
use demask_engine::RequestId;
use demask_step::{Job, SequenceLimits, TokenId};

use super::{ALL, Bench, Finished, PAGE, commits, exactness::methods, session, tokens};
use crate::common::Dice;

/// A bench whose sequences may have so many pages.
fn small(kind: &str, prefixes: u64, pages: u64) -> Bench {
    let mut bench = Bench::of(kind, prefixes);
    // Shared buffers grow with the first requests, which end early: that is likely from here on.
    for &method in methods(bench.facts.mask) {
        for _ in 0..3 {
            bench.submit(session(&bench.facts, &tokens(120), 5 * PAGE, method));
            bench.submit(session(&bench.facts, &tokens(240), 5 * PAGE, method));
        }
    }
    while !bench.scheduler.is_idle() {
        step_to(&mut bench, |_| Some(4));
    }
    let device = bench.scheduler.network(bench.network).unwrap().available().0;
    bench.scheduler.limit(device, (pages + 1) * bench.page_bytes());
    bench.scheduler.network_mut(bench.network).unwrap().evict(0);
    bench
}

/// One step, in which answers end once so many of their tokens are settled.
fn step_to(bench: &mut Bench, length: impl Fn(RequestId) -> Option<usize>) -> Vec<Finished> {
    let mut over = Vec::new();
    let mut look = |request: &mut demask::Request| {
        let length = length(request.id());
        if let (Some(length), Some(session)) = (length, request.session_mut())
            && session.settled() >= length
        {
            session.finish_at(length);
        }
        ControlFlow::Continue(())
    };
    bench.scheduler.step(&mut look, &mut over);
    over.into_iter().map(Finished::of).collect()
}

/// Runs a session alone, up to so many tokens.
fn run_to(bench: &mut Bench, session: Session, length: usize) -> Session {
    bench.submit(session);
    loop {
        if let Some(one) = step_to(bench, |_| Some(length)).pop() {
            one.end.unwrap();
            return one.work;
        }
    }
}

/// Pages are taken as the canvas fills, and the receipt has what was written.
#[test]
fn pages_are_taken_as_the_canvas_fills() {
    for (kind, method) in [("block", ("static", "block")), ("causal", ("ar", "causal"))] {
        let mut bench = Bench::of(kind, 0);
        bench.submit(session(&bench.facts, &tokens(PAGE), 6 * PAGE, method));
        let mut used = vec![0];
        while bench.step().is_empty() {
            used.push(bench.counters().pages.used);
        }
        assert!(used.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{kind}: {used:?}");
        assert_eq!((used[1], used.last()), (if kind == "block" { 2 } else { 1 }, Some(&7)), "{kind}: {used:?}");
    }
    // Under full attention every forward sees all of it.
    let mut bench = Bench::of("full", 0);
    bench.submit(session(&bench.facts, &tokens(PAGE), 6 * PAGE, ("static", "none")));
    bench.step();
    assert_eq!(bench.counters().pages.used, 7);
}

/// A request whose pages are gone before it goes on, with and without prefixes: no bit is another one.
#[test]
fn the_youngest_goes_on_to_the_bit() {
    for (kind, prefixes) in [("block", 0), ("block", ALL), ("causal", 0), ("causal", ALL)] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let make = |bench: &Bench, first: u32| {
                let mut prompt = tokens(PAGE + 7);
                prompt[0] = first;
                session(&bench.facts, &prompt, 5 * PAGE, method)
            };
            let mut plain = Bench::of(kind, 0);
            let needs = SequenceLimits { opens_with: None, ..make(&plain, 3).needs()[0].limits.clone() };
            let whole = plain.scheduler.network(plain.network).unwrap().memory_cost(&needs).unwrap().own;
            // Two of them have room, drafts included.
            let mut bench = small(kind, prefixes, 2 * whole / plain.page_bytes());
            let firsts = [3, 4, 5];
            let expected: Vec<_> = firsts.map(|first| commits(&mut plain.run(make(&plain, first)))).into();
            let ids = firsts.map(|first| bench.submit(make(&bench, first)));
            let mut over = HashMap::new();
            while over.len() < 3 {
                over.extend(bench.step().into_iter().map(|one| (one.id, one)));
            }
            let mut preempted = 0;
            for (id, expected) in ids.iter().zip(&expected) {
                let one = over.get_mut(id).unwrap();
                one.end.clone().unwrap();
                let Counts { preempted: times, recomputed, .. } = one.work.counts();
                assert_eq!(commits(&mut one.work), *expected, "{kind} {prefixes} {method:?}: preempted {times}");
                assert!(times > 0 || recomputed == 0);
                preempted += times;
            }
            assert!(preempted > 0, "{kind} {prefixes} {method:?}: the memory sufficed");
            assert_eq!(bench.scheduler.counters().preempted, preempted as u64);
            assert_eq!(over[&ids[0]].work.counts().preempted, 0, "the oldest goes on");
            bench.idle();
        }
    }
}

/// One that is alone and has no memory for more ends with what is settled, for its length.
#[test]
fn one_without_memory_ends_with_what_is_settled() {
    let mut bench = small("block", 0, 20);
    let id = bench.submit(session(&bench.facts, &tokens(PAGE), 6 * PAGE, ("static", "block")));
    for _ in 0..40 {
        assert!(bench.step().is_empty());
    }
    // The system has less than the budget.
    let device = bench.scheduler.network(bench.network).unwrap().available().0;
    bench.scheduler.limit(device, 0);
    let one = loop {
        if let Some(one) = bench.step().pop() {
            break one;
        }
    };
    assert_eq!((one.id, one.end), (id, Ok(())));
    let (output, receipt) = (one.work.output(), one.work.receipt());
    assert_eq!(output.finish, Finish::Length);
    assert!(!output.tokens.is_empty() && output.tokens.len() < 6 * PAGE, "{}", output.tokens.len());
    assert!(receipt.out_of_memory && receipt.given_up.is_some_and(|masks| masks > 0));
    bench.idle();
}

/// One that waits with its work done so far ends at its deadline with what is settled.
#[test]
fn one_that_was_preempted_ends_at_its_deadline_with_what_is_settled() {
    let mut bench = small("block", 0, 9);
    let (now, hour) = (Instant::now(), Duration::from_hours(1));
    for _ in 0..2 {
        let mut request = demask::Request::new(session(&bench.facts, &tokens(PAGE), 5 * PAGE, ("static", "block")));
        request.set_deadline(Some(now + hour));
        bench.scheduler.submit(request, &[bench.network]).unwrap();
    }
    while bench.scheduler.counters().preempted == 0 {
        assert!(bench.step().is_empty());
    }
    let mut over = Vec::new();
    bench.scheduler.expire(now + 2 * hour, &mut over);
    let one = Finished::of(over.pop().unwrap());
    assert_eq!((one.end, over.len()), (Ok(()), 0));
    let output = one.work.output();
    assert_eq!(output.finish, Finish::Deadline);
    assert!(!output.tokens.is_empty() && output.tokens.len() < 5 * PAGE, "{}", output.tokens.len());
    while !bench.scheduler.is_idle() {
        bench.step();
    }
    bench.idle();
}

/// Many requests in little memory, prompts that have random beginnings in common, some given up, other salts, pages of others in
/// the cache: each is what it is alone.
fn random_pressure(seed: u64) -> usize {
    let mut preempted = 0;
    for kind in ["block", "causal"] {
        let mut dice = Dice::new(seed);
        let pages = 9 + dice.below(8) as u64;
        let (mut plain, mut bench) = (Bench::of(kind, 0), small(kind, 0, pages));
        let keeps = dice.below(8) as u64 * bench.page_bytes();
        bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(keeps);
        let methods = methods(plain.facts.mask);
        let make = |facts: &ModelFacts, index: u64| {
            let mut dice = Dice::new(seed ^ (index / 2));
            let mut prompt = tokens(120);
            let part = [0, 31, 40, 64, 100][dice.below(5)];
            prompt[part..].iter_mut().for_each(|token| *token = 3 + dice.below(60) as TokenId);
            prompt.truncate(4 + dice.below(100));
            let mut session = session(facts, &prompt, 134, methods[index as usize % methods.len()]);
            session.set_salt(u64::from(dice.chance(10)));
            (session, 4 + dice.below(130))
        };
        let alone = |index: u64, plain: &mut Bench| {
            let (session, length) = make(&plain.facts, index);
            commits(&mut run_to(plain, session, length))
        };
        let expected: Vec<_> = (0..6).map(|index| alone(index, &mut plain)).collect();
        let (mut next, mut running) = (0, HashMap::new());
        while next < expected.len() || !bench.scheduler.is_idle() {
            if next < expected.len() && dice.chance(30) {
                let (session, length) = make(&bench.facts, next as u64);
                let request = demask::Request::new(session);
                if let Ok(id) = bench.scheduler.submit(request, &[bench.network]) {
                    running.insert(id, (next, length));
                }
                next += 1;
            }
            if dice.chance(2)
                && let Some(&id) = running.keys().min()
            {
                bench.scheduler.cancel(id);
                running.remove(&id);
            }
            for mut one in step_to(&mut bench, |id| running.get(&id).map(|&(_, length)| length)) {
                let Some((index, _)) = running.remove(&one.id) else { continue };
                one.end.unwrap();
                preempted += one.work.counts().preempted;
                assert_eq!(commits(&mut one.work), expected[index], "{kind} request {index} of seed {seed}");
            }
        }
        bench.idle();
    }
    preempted
}

#[test]
fn random_requests_in_little_memory_are_what_they_are_alone() {
    let seeds = std::env::var("DEMASK_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(12);
    let preempted: usize = (0..seeds).map(random_pressure).sum();
    assert!(preempted > seeds as usize / 4, "{preempted} times in {seeds} schedules");
}

/// A session says what it needs before and after its memory was given up.
#[test]
fn what_is_given_up_is_needed_again_up_to_the_pending_forward() {
    let mut bench = Bench::of("block", 0);
    let mut session = session(&bench.facts, &tokens(PAGE), 4 * PAGE, ("static", "block"));
    assert_eq!(session.needs()[0].limits.opens_with, Some(PAGE + session.layout().block_length()));
    session = bench.run(session);
    assert_eq!(session.counts().preempted, 0);
    let full = Bench::of("full", 0);
    let whole = super::session(&full.facts, &tokens(PAGE), 4 * PAGE, ("static", "none"));
    assert_eq!(whole.needs()[0].limits.opens_with, None, "under full attention all is needed at once");
}
