//! Tests of memory as it is used: promises, growth and preemption.

use std::time::{Duration, Instant};

use demask_testkit::property;
use proptest::prelude::*;

use super::{
    Bench, Finished,
    job::{Manner, Steps, part},
};
use crate::{RequestError, SchedulingParams};

proptest! {
    #![proptest_config(property::cases(400))]

    /// Requests that are likely to take less than they may enter together, and one that comes short goes on later: the oldest is
    /// never preempted, and all end as they would alone.
    #[test]
    fn the_oldest_goes_on_and_all_end(
        jobs in prop::collection::vec((10..60usize, 1..20usize, 1..12usize), 2..12),
        memory in 60..120u64,
    ) {
        let mut bench = Bench::new(memory, 64, [usize::MAX; 2]);
        for (name, &(positions, steps, grows)) in (1..).zip(&jobs) {
            let job = Steps::new(name, positions, vec![part(0, 1, 4); steps], Manner::Good).growing(grows);
            bench.submit(job, SchedulingParams::default()).unwrap();
        }
        bench.run();
        for (name, _) in (1..).zip(&jobs) {
            prop_assert_eq!(bench.end(name), Some("ok".to_owned()));
        }
        let preempted = |finished: &Finished| finished.work.preempted;
        let oldest = bench.over.iter().min_by_key(|finished| finished.id).map(preempted);
        prop_assert_eq!(oldest, Some(0));
        let times: usize = bench.over.iter().map(preempted).sum();
        prop_assert_eq!(times as u64, bench.scheduler.counters().preempted);
    }
}

/// Two requests that may take all of the memory, and take a third of it.
fn two_that_may_take_all(bench: &mut Bench) {
    for name in 1..=2 {
        bench
            .submit(Steps::new(name, 100, vec![part(0, 1, 4); 6], Manner::Good).growing(5), SchedulingParams::default())
            .unwrap();
    }
}

#[test]
fn what_is_likely_is_promised_and_not_all_that_may_be_taken() {
    let mut bench = Bench::new(100, 64, [usize::MAX; 2]);
    // Nothing is known of such requests yet: they enter one after the other.
    two_that_may_take_all(&mut bench);
    bench.step();
    assert_eq!(bench.scheduler.counters().running, 1);
    bench.run();
    two_that_may_take_all(&mut bench);
    bench.step();
    assert_eq!(bench.scheduler.counters().running, 2);
    bench.run();
    assert_eq!(bench.scheduler.counters().preempted, 0);
    bench.scheduler.set_preemption(false);
    two_that_may_take_all(&mut bench);
    bench.step();
    assert_eq!(bench.scheduler.counters().running, 1, "without preemption all that may be taken is promised");
    bench.run();
    assert!(bench.over.iter().all(|finished| finished.end == Ok(())));
}

/// A job that is no answer has no part that is settled.
#[test]
fn one_that_was_preempted_expires_at_its_deadline() {
    let mut bench = Bench::new(100, 64, [usize::MAX; 2]);
    two_that_may_take_all(&mut bench);
    bench.run();
    let (now, hour) = (Instant::now(), Duration::from_hours(1));
    let scheduling = SchedulingParams { deadline: Some(now + hour), ..SchedulingParams::default() };
    for name in 3..=4 {
        bench.submit(Steps::new(name, 100, vec![part(0, 1, 4); 18], Manner::Good).growing(5), scheduling).unwrap();
    }
    while bench.scheduler.counters().preempted == 0 {
        bench.step();
    }
    let mut over = Vec::new();
    bench.scheduler.expire(now + 2 * hour, &mut over);
    let ends: Vec<_> = over.iter().map(|request| request.end().cloned()).collect();
    assert_eq!(ends, [Some(Err(RequestError::Expired))], "the other one runs");
    bench.run();
    let counters = bench.scheduler.counters();
    assert_eq!((counters.expired, counters.failed, counters.done), (1, 0, 3));
}

#[test]
fn the_youngest_gives_its_memory_up_and_nothing_overtakes_it() {
    let mut bench = Bench::new(100, 64, [usize::MAX; 2]);
    two_that_may_take_all(&mut bench);
    bench.run();
    // Longer than the last ones.
    for name in 3..=4 {
        let job = Steps::new(name, 100, vec![part(0, 1, 4); 18], Manner::Good).growing(5);
        bench.submit(job, SchedulingParams::default()).unwrap();
    }
    while bench.scheduler.counters().preempted == 0 {
        bench.step();
    }
    assert_eq!((bench.scheduler.counters().running, bench.scheduler.counters().waiting), (1, 1));
    // One that would fit waits for it: it is asked before, whatever its priority.
    let scheduling = SchedulingParams { priority: 1, ..SchedulingParams::default() };
    bench.submit(Steps::new(5, 10, vec![part(0, 1, 4)], Manner::Good), scheduling).unwrap();
    bench.run();
    let ends: Vec<u32> = bench.over.iter().map(|finished| finished.work.name).collect();
    assert_eq!(ends[2], 3, "the oldest goes on");
    assert!(bench.over.iter().all(|finished| finished.end == Ok(())));
    assert_eq!(bench.over.iter().map(|finished| finished.work.preempted).sum::<usize>(), 1);
}
