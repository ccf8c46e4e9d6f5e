//! Tests of the scheduler's promises under any behaviour of work and networks: a model of both, an injected clock, and
//! random calls.

mod job;
mod machine;
mod memory;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use demask_decode::Event;
use demask_step::{OpenError, OutOfMemory};
use demask_testkit::property;
use job::{Manner, Part, Steps, part, plain, reads};
use machine::{FREE, Log, Machine, PIECE};
use proptest::prelude::*;

use super::*;
use crate::{SchedulingParams, Spent};

/// A scheduler over two machines that share a memory, and the test's handles to it.
struct Bench {
    scheduler: Scheduler<Machine>,
    on: Vec<NetworkId>,
    log: Log,
    clock: Arc<AtomicU64>,
    over: Vec<Finished>,
}

/// A job that is over.
struct Finished {
    id: RequestId,
    work: Steps,
    end: Result<(), RequestError>,
    spent: Spent,
}

impl Finished {
    fn of(request: Box<Request>) -> Self {
        let (id, spent) = (request.id(), request.spent().clone());
        let end = request.end().cloned().expect("it is over");
        Self { id, work: request.into_job().expect("a job"), end, spent }
    }
}

/// A job that was refused.
#[derive(Debug)]
struct Refused {
    work: Box<Steps>,
    error: SubmitError,
}

impl Bench {
    fn new(memory: u64, capacity: usize, fails_after: [usize; 2]) -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&clock);
        let mut scheduler = Scheduler::new()
            .with_clock(move || Duration::from_micros(own.fetch_add(1, Ordering::Relaxed)))
            .with_patience(6)
            .with_leak(|leak| panic!("{leak}"));
        let mut log = None;
        let on = fails_after.map(|fails_after| {
            let machine = Machine { fails_after, ..Machine::new(memory, capacity, &clock) };
            log.get_or_insert_with(|| Arc::clone(&machine.log));
            scheduler.add(Box::new(machine))
        });
        scheduler.limit(DeviceId(0), memory);
        let log = log.unwrap_or_default();
        Self { scheduler, on: on.to_vec(), log, clock, over: Vec::new() }
    }

    fn submit(&mut self, job: Steps, scheduling: SchedulingParams) -> Result<RequestId, Refused> {
        let on = self.on.clone();
        self.submit_on(job, &on, scheduling)
    }

    fn submit_on(&mut self, job: Steps, on: &[NetworkId], scheduling: SchedulingParams) -> Result<RequestId, Refused> {
        let mut request = Request::new(job);
        request.set_scheduling(scheduling);
        let refused =
            |crate::Refused { request, error }| Refused { work: Box::new(request.into_job().expect("a job")), error };
        self.scheduler.submit(request, on).map_err(refused)
    }

    fn step(&mut self) -> (Ran, Vec<RequestId>) {
        let mut seen = Vec::new();
        let mut look = |request: &mut Request| {
            seen.push(request.id());
            ControlFlow::Continue(())
        };
        let mut over = Vec::new();
        let ran = self.scheduler.step(&mut look, &mut over);
        self.over.extend(over.into_iter().map(Finished::of));
        (ran, seen)
    }

    fn run(&mut self) {
        while !self.scheduler.is_idle() {
            self.step();
        }
    }

    /// End of each request, in words; `ok` if it was done.
    fn ends(&self) -> BTreeMap<u64, String> {
        let told = |finished: &Finished| match &finished.end {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        self.over.iter().map(|finished| (finished.id.0, told(finished))).collect()
    }

    /// End of the request of this name, in words; none before it.
    fn end(&self, name: u32) -> Option<String> {
        let place = self.over.iter().position(|finished| finished.work.name == name)?;
        self.ends().remove(&self.over[place].id.0)
    }
}

fn parts(networks: usize) -> impl Strategy<Value = Vec<Part>> {
    let kind = prop_oneof![3 => Just(None), 1 => Just(Some(false)), 1 => Just(Some(true))];
    let part = (0..networks, 1..4usize, 1..40usize, kind, any::<bool>());
    let part = part.prop_map(|(network, groups, rows, kind, causal)| {
        // What can be cut is not partly computed.
        let kind = kind.filter(|_| !causal);
        Part { network, groups, rows, kind, causal }
    });
    prop::collection::vec(part, 1..6)
}

/// A call of the scheduler's owner.
#[derive(Debug, Clone)]
enum Call {
    Submit { positions: usize, parts: Vec<Part>, manner: Manner, priority: i32, weight: u8, grows: usize },
    Cancel(usize),
    Step,
}

fn call() -> impl Strategy<Value = Call> {
    let manner = prop_oneof![
        12 => Just(Manner::Good),
        1 => Just(Manner::Trips),
        1 => Just(Manner::Panics),
        1 => Just(Manner::BadPlan),
        1 => Just(Manner::NoGroup),
        1 => Just(Manner::Stranger),
    ];
    let submit = (1..60usize, parts(2), manner, 0..2i32, 1..4u8, prop_oneof![Just(0), 1..20usize]).prop_map(
        |(positions, parts, manner, priority, weight, grows)| Call::Submit {
            positions,
            parts,
            manner,
            priority,
            weight,
            grows,
        },
    );
    prop_oneof![3 => submit, 1 => (0..100usize).prop_map(Call::Cancel), 4 => Just(Call::Step)]
}

proptest! {
    #![proptest_config(property::cases(400))]

    /// Every request ends once: done with every answer its own, cancelled, refused, or failed as it deserves; memory is
    /// never exceeded, and nothing is left.
    #[test]
    fn nothing_is_lost_and_nothing_is_answered_twice(
        calls in prop::collection::vec(call(), 1..120),
        memory in 60..400u64,
        capacity in 40..120usize,
    ) {
        let mut bench = Bench::new(memory, capacity, [usize::MAX; 2]);
        let (mut expected, mut ids, mut name) = (BTreeMap::new(), Vec::new(), 0);
        for call in calls {
            match call {
                Call::Submit { positions, parts, manner, priority, weight, grows } => {
                    name += 1;
                    let job = Steps::new(name, positions, parts, manner).growing(grows);
                    let needed = (job.needs.len() * positions) as u64;
                    let weight = f64::from(weight);
                    let scheduling = SchedulingParams { priority, weight, ..SchedulingParams::default() };
                    match bench.submit(job, scheduling) {
                        Ok(id) => {
                            prop_assert!(needed <= memory);
                            ids.push(id);
                            expected.insert(id.0, manner);
                        }
                        Err(Refused { work, error }) => {
                            prop_assert_eq!(work.name, name);
                            prop_assert_eq!(error, OpenError::from(OutOfMemory { needed, available: memory }).into());
                        }
                    }
                }
                Call::Cancel(which) => {
                    if let Some(&id) = ids.get(which) {
                        let there = expected.contains_key(&id.0) && !bench.ends().contains_key(&id.0);
                        prop_assert_eq!(bench.scheduler.cancel(id).is_some(), there, "a late cancel hits nobody");
                        if there {
                            expected.remove(&id.0);
                        }
                    }
                }
                Call::Step => drop(bench.step()),
            }
        }
        bench.run();
        let ends = bench.ends();
        prop_assert_eq!(ends.len(), bench.over.len(), "once each");
        prop_assert_eq!(ends.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (id, end) in ends {
            let wanted = match expected[&id] {
                Manner::Good => "ok",
                Manner::Trips => "the work panicked (a bug, please report it): this job trips",
                Manner::Panics => "the work panicked (a bug, please report it): this job panics",
                Manner::BadPlan => "step plan refused (a bug, please report it): sequence",
                Manner::NoGroup => "a contract between work and network is broken (a bug, please report it): what is \
                                    pending is no whole number of groups",
                _ => "a contract between work and network is broken (a bug, please report it): what is pending names a \
                      sequence that was not needed",
            };
            prop_assert!(end.starts_with(wanted), "{end}");
        }
        let counters = bench.scheduler.counters();
        prop_assert_eq!((counters.running, counters.waiting, counters.leaks), (0, 0, 0));
    }

    /// Fairness: between two turns of a request, another one is served at most its share of the first turn's rows and
    /// one group, and two groups more where launch kinds differ or long groups wait for each other; beside these it may be
    /// ahead by the rows that are nearly free.
    #[test]
    fn shares_are_fair(
        jobs in prop::collection::vec((parts(1), 1..4u8, 0..20usize), 2..12),
        capacity in 40..120usize,
        kinds in any::<bool>(),
    ) {
        let mut bench = Bench::new(u64::MAX, capacity, [usize::MAX; 2]);
        let mut known: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let (mut late, mut longs): (Vec<(usize, Steps, SchedulingParams)>, usize) = (Vec::new(), 0);
        for (name, (mut parts, weight, after)) in (1..).zip(jobs) {
            if !kinds {
                for part in &mut parts {
                    part.kind = None;
                }
            }
            let job = Steps::new(name, 1, parts.repeat(4), Manner::Good);
            let scheduling = SchedulingParams { weight: f64::from(weight), ..SchedulingParams::default() };
            known.insert(name, (scheduling.weight, job.largest() as f64));
            longs += usize::from(job.parts.iter().any(|part| part.causal && part.rows > PIECE));
            late.push((after, job, scheduling));
        }
        for turn in 0.. {
            while let Some(place) = late.iter().position(|(after, ..)| *after <= turn) {
                let (_, job, scheduling) = late.swap_remove(place);
                bench.submit(job, scheduling).unwrap();
            }
            bench.step();
            if bench.scheduler.is_idle() && late.is_empty() {
                break;
            }
        }
        let log = bench.log.lock().unwrap();
        let served = |forward: &Vec<(u32, usize)>, name: u32| -> f64 {
            forward.iter().filter(|(token, _)| token >> 16 == name).map(|(_, rows)| *rows as f64).sum()
        };
        for (&own, &(own_weight, _)) in &known {
            let turns: Vec<usize> = (0..log.len()).filter(|&at| served(&log[at], own) > 0.0).collect();
            for pair in turns.windows(2) {
                for (&other, &(weight, largest)) in known.iter().filter(|(other, _)| **other != own) {
                    let between: f64 = log[pair[0] + 1..pair[1]].iter().map(|forward| served(forward, other)).sum();
                    let groups = if kinds || longs > 1 { 3.0 } else { 1.0 };
                    let ahead = if longs > 1 { FREE as f64 } else { 0.0 };
                    let most = weight * (served(&log[pair[0]], own) + ahead) / own_weight + groups * largest;
                    let told: Vec<Vec<_>> = log[pair[0]..=pair[1]]
                        .iter()
                        .map(|forward| forward.iter().map(|(token, rows)| (token >> 16, *rows)).collect())
                        .collect();
                    prop_assert!(between <= most + 1e-6, "{other}: {between} rows beside {own}, at most {most}: {told:?}");
                }
            }
        }
    }

    /// Patience: a request that waits for memory is overtaken during less than its patience in forwards.
    #[test]
    fn overtaking_is_bounded(sizes in prop::collection::vec((1..30usize, 1..6usize), 2..40), memory in 30..60u64) {
        let mut bench = Bench::new(memory, 64, [usize::MAX; 2]);
        let mut entered: BTreeMap<u64, u64> = BTreeMap::new();
        let mut waiting = sizes.into_iter().enumerate();
        loop {
            for (name, (positions, steps)) in waiting.by_ref().take(2) {
                let job = Steps::new(name as u32 + 1, positions, vec![part(0, 1, 4); steps], Manner::Good);
                bench.submit(job, SchedulingParams::default()).unwrap();
            }
            let before = bench.scheduler.counters().forwards;
            let (_, seen) = bench.step();
            for id in seen {
                entered.entry(id.0).or_insert(before);
            }
            if bench.scheduler.is_idle() && waiting.len() == 0 {
                break;
            }
        }
        for (&id, &at) in &entered {
            // Arrival is the order of the ids.
            let overtakers = entered.range(id + 1..).map(|(_, &other)| other).filter(|&other| other < at);
            let (first, last) = overtakers.fold((u64::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
            prop_assert!(first == u64::MAX || last - first < 6, "{id} was overtaken from {first} to {last}");
        }
    }
}

#[test]
fn a_failing_device_fails_its_own_requests_once() {
    let mut bench = Bench::new(1000, 64, [usize::MAX, 3]);
    let guided = |name| Steps::new(name, 10, [part(0, 1, 4), part(1, 1, 4)].repeat(4), Manner::Good);
    bench.submit(guided(1), SchedulingParams::default()).unwrap();
    bench.submit(plain(2, 20, 4), SchedulingParams::default()).unwrap();
    bench.submit(guided(3), SchedulingParams::default()).unwrap();
    bench.run();
    let ends = [1, 2, 3].map(|name| bench.end(name).unwrap());
    assert_eq!(ends[0], "the device failed: it is on fire");
    assert_eq!(ends[1], "ok", "unguided requests outlive a dead guide");
    assert_eq!(ends[2], ends[0]);
    assert_eq!(bench.over.len(), 3);
    let refused = bench.submit(guided(4), SchedulingParams::default()).unwrap_err();
    assert_eq!((refused.work.name, refused.error.to_string().as_str()), (4, "the device failed: it is on fire"));
    bench.submit(plain(5, 2, 4), SchedulingParams::default()).unwrap();
    bench.run();
    assert_eq!(bench.end(5).unwrap(), "ok");
}

#[test]
fn what_waits_when_its_device_fails_ends_with_that_error() {
    let mut bench = Bench::new(10, 64, [1, usize::MAX]);
    bench.submit(plain(1, 3, 4), SchedulingParams::default()).unwrap();
    bench.submit(plain(2, 3, 4), SchedulingParams::default()).unwrap();
    bench.run();
    assert_eq!(bench.ends().into_values().collect::<Vec<_>>(), ["the device failed: it is on fire"; 2]);
}

#[test]
fn work_that_breaks_its_contract_fails_alone() {
    for (manner, told) in [
        (Manner::Changes, "what is pending changed before it was fed"),
        (Manner::TwoNetworks, "what is pending runs on two networks"),
        (Manner::NoGroup, "what is pending is no whole number of groups"),
        (Manner::Stranger, "what is pending names a sequence that was not needed"),
    ] {
        let mut bench = Bench::new(1000, 64, [usize::MAX; 2]);
        let parts = vec![part(1, 1, 4), part(0, 1, 4), part(0, 1, 4)];
        bench.submit(Steps::new(1, 10, parts, manner), SchedulingParams::default()).unwrap();
        bench.submit(plain(2, 6, 4), SchedulingParams::default()).unwrap();
        bench.run();
        let end = bench.end(1).unwrap();
        let found = end.rsplit(": ").next().unwrap();
        assert!(found == told || manner == Manner::Changes && found.starts_with("what is pending"), "{end}");
        assert_eq!(bench.end(2).unwrap(), "ok", "{manner:?}");
    }
}

#[test]
fn an_answer_of_another_length_fails_its_request() {
    let mut bench = Bench::new(1000, 64, [usize::MAX; 2]);
    let mut job = plain(1, 2, 4);
    // The machine answers `predict` alone.
    job.requests[0].plan.hint = (7..9).into();
    bench.submit(job, SchedulingParams::default()).unwrap();
    bench.submit(plain(2, 2, 4), SchedulingParams::default()).unwrap();
    bench.run();
    assert!(bench.end(1).unwrap().ends_with("the network's answer has another length than what was asked"));
    assert_eq!(bench.end(2).unwrap(), "ok");
}

#[test]
fn work_that_can_never_fit_is_handed_back_with_both_numbers() {
    let mut bench = Bench::new(100 << 20, 64, [usize::MAX; 2]);
    let job = Steps::new(1, 200 << 20, vec![part(0, 1, 1)], Manner::Good);
    let Refused { work, error } = bench.submit(job, SchedulingParams::default()).unwrap_err();
    assert_eq!(work.name, 1);
    assert_eq!(
        error.to_string(),
        "the sequence needs 200 MiB of memory and 100 MiB are available: shorten it or free memory"
    );
    assert_eq!(bench.scheduler.counters().refused, 1);
}

/// Each job has one sequence of 10 positions: the first runs, the second waits for its memory.
#[test]
fn rows_are_counted_of_what_runs_and_of_what_waits() {
    let mut bench = Bench::new(15, 64, [usize::MAX; 2]);
    let count = |bench: &Bench| {
        let counters = bench.scheduler.counters();
        (counters.running, counters.waiting, counters.waiting_rows)
    };
    assert_eq!(count(&bench), (0, 0, 0));
    for name in 1..=2 {
        bench.submit(plain(name, 1, 1), SchedulingParams::default()).unwrap();
    }
    assert_eq!(count(&bench), (0, 2, 20));
    bench.step();
    assert_eq!(count(&bench), (0, 1, 10));
    bench.step();
    assert_eq!(count(&bench), (0, 0, 0));
}

#[test]
fn a_weight_that_is_none_is_refused() {
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut bench = Bench::new(100, 64, [usize::MAX; 2]);
        let refused =
            bench.submit(plain(1, 1, 1), SchedulingParams { weight, ..SchedulingParams::default() }).unwrap_err();
        assert_eq!(refused.error.to_string(), format!("a weight of {weight}: expected a number above 0"));
    }
}

#[test]
fn work_without_its_network_is_refused() {
    let mut bench = Bench::new(100, 64, [usize::MAX; 2]);
    let job = Steps::new(1, 10, vec![part(0, 1, 1), part(1, 1, 1)], Manner::Good);
    let on = bench.on.clone();
    let refused = bench.submit_on(job, &on[..1], SchedulingParams::default()).unwrap_err();
    let told = "the work needs its network 1, found none or one that was removed: name a network of this scheduler";
    assert_eq!(refused.error.to_string(), told);
    bench.scheduler.remove(bench.on[1]).unwrap();
    assert_eq!(bench.submit(*refused.work, SchedulingParams::default()).unwrap_err().error.to_string(), told);
    bench.submit(plain(2, 1, 1), SchedulingParams::default()).unwrap();
    let busy = bench.scheduler.remove(bench.on[0]).err().unwrap();
    assert_eq!(busy.open, 1, "whoever waits for it counts");
}

#[test]
fn a_stream_of_large_requests_leaves_a_small_one_half_of_the_time() {
    let mut bench = Bench::new(u64::MAX, 1000, [usize::MAX; 2]);
    bench.submit(plain(1, 400, 32), SchedulingParams::default()).unwrap();
    let mut large = None;
    let started = bench.clock.load(Ordering::Relaxed);
    for name in 2.. {
        if large.is_none_or(|id: RequestId| bench.ends().contains_key(&id.0)) {
            large = Some(bench.submit(plain(name, 3, 1000), SchedulingParams::default()).unwrap());
        }
        bench.step();
        if bench.end(1).is_some() {
            break;
        }
    }
    let alone = 400.0 * f64::from(1000 + 50 * 32);
    let ratio = (bench.clock.load(Ordering::Relaxed) - started) as f64 / alone;
    assert!((1.4..2.2).contains(&ratio), "{ratio} times as long as alone");
}

#[test]
fn shares_of_the_time_are_the_time() {
    let mut bench = Bench::new(1000, 64, [usize::MAX; 2]);
    let started = bench.clock.load(Ordering::Relaxed);
    for name in 1..4 {
        bench.submit(plain(name, 5, name as usize * 7), SchedulingParams::default()).unwrap();
    }
    bench.run();
    let all = bench.clock.load(Ordering::Relaxed) - started;
    let sum: Duration = bench.over.iter().map(|finished| finished.spent.total).sum();
    // What lies between two calls belongs to nobody.
    assert!(sum.as_micros() as u64 <= all && sum.as_micros() as f64 >= 0.9 * all as f64, "{sum:?} of {all}");
    for finished in &bench.over {
        let Spent { networks, total, wall, .. } = &finished.spent;
        assert!(networks[0] <= *total && total <= wall);
    }
}

/// A tenant with one request is not after all requests of another one.
#[test]
fn tenants_share_first_however_many_requests_each_has() {
    for (weight, most) in [(1.0, 1), (4.0, 1)] {
        let mut bench = Bench::new(u64::MAX, 64, [usize::MAX; 2]);
        for name in 1..=60 {
            bench
                .submit(Steps::new(name, 1, vec![part(0, 1, 40); 50], Manner::Good), SchedulingParams::default())
                .unwrap();
        }
        for _ in 0..7 {
            bench.step();
        }
        let ben = SchedulingParams { tenant: Tenant { id: 1, weight }, ..SchedulingParams::default() };
        bench.submit(Steps::new(100, 1, vec![part(0, 1, 40); 20], Manner::Good), ben).unwrap();
        for _ in 0..100 {
            bench.step();
        }
        let log = bench.log.lock().unwrap();
        let names = |forward: &Vec<(u32, usize)>| forward.iter().map(|(token, _)| token >> 16).collect::<Vec<_>>();
        let turns: Vec<usize> = (0..log.len()).filter(|&at| names(&log[at]).contains(&100)).collect();
        assert_eq!(turns.len(), 20, "it is done");
        assert!(turns[0] <= 8, "its first turn comes with the next forward but one: {turns:?}");
        let between = |pair: &[usize]| pair[1] - pair[0] - 1;
        assert!(turns.windows(2).all(|pair| between(pair) <= most), "{turns:?}");
        // The others go on as well, by their share.
        let others = (turns[0]..turns[19]).filter(|&at| names(&log[at]).iter().any(|&name| name != 100)).count();
        assert!(others as f64 >= 20.0 / weight - 2.0, "{others} of {turns:?}");
        let bad = SchedulingParams { tenant: Tenant { id: 1, weight: 0.0 }, ..SchedulingParams::default() };
        drop(log);
        assert!(bench.submit(plain(1, 1, 1), bad).is_err());
    }
}

/// Rows of each job in each forward.
fn rows_by_job(bench: &Bench) -> Vec<BTreeMap<u32, usize>> {
    let log = bench.log.lock().unwrap();
    log.iter().map(|forward| forward.iter().map(|&(token, rows)| (token >> 16, rows)).collect()).collect()
}

#[test]
fn a_long_prompt_leaves_a_short_request_its_time() {
    // The short request comes while prompts are read, or is there before them.
    for (longs, comes_first) in [(1, false), (1, true), (3, false), (3, true)] {
        let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
        let short = 100;
        if comes_first {
            bench.submit(plain(short, 5, 1), SchedulingParams::default()).unwrap();
            bench.step();
        }
        for name in 1..=longs {
            bench.submit(reads(name, 4000, 3), SchedulingParams::default()).unwrap();
        }
        if !comes_first {
            (0..7).for_each(|_| drop(bench.step()));
            bench.submit(plain(short, 5, 1), SchedulingParams::default()).unwrap();
        }
        let (before, started) = (rows_by_job(&bench).len(), bench.clock.load(Ordering::Relaxed));
        let ended = |bench: &Bench| bench.over.iter().any(|finished| finished.work.name == short);
        while !ended(&bench) {
            bench.step();
        }
        let took = bench.clock.load(Ordering::Relaxed) - started;
        let steps = rows_by_job(&bench).split_off(before);
        assert_eq!(steps.len(), 5 - usize::from(comes_first), "it takes part in each forward");
        for step in &steps {
            let beside: usize = step.iter().filter(|(name, _)| **name != short).map(|(_, rows)| rows).sum();
            assert!(step.contains_key(&short) && beside == FREE, "{step:?}");
        }
        let alone = 5 * (1000 + 50);
        assert!(took <= 2 * alone, "{took} beside prompts, {alone} alone");
        bench.run();
        for name in 1..=longs {
            let all: usize = rows_by_job(&bench).iter().filter_map(|step| step.get(&name)).sum();
            assert_eq!(all, 4000 + 3, "each row runs once");
        }
        assert!(bench.ends().into_values().all(|end| end == "ok"));
    }
}

#[test]
fn a_prompt_alone_is_read_in_the_longest_pieces() {
    let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
    bench.submit(reads(1, 5 * PIECE + 3, 1), SchedulingParams::default()).unwrap();
    bench.run();
    let rows: Vec<_> = rows_by_job(&bench).iter().map(|step| step[&1]).collect();
    assert_eq!(rows, [PIECE, PIECE, PIECE, PIECE, PIECE, 3, 1]);
    // What is no longer than a piece, or cannot be cut, is one forward.
    for job in [reads(2, PIECE, 0), plain(2, 1, 7 * PIECE)] {
        let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
        bench.submit(job, SchedulingParams::default()).unwrap();
        bench.run();
        assert_eq!(rows_by_job(&bench).len(), 1);
    }
}

#[test]
fn a_prompt_that_is_read_in_pieces_says_how_far_it_is() {
    let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
    bench.submit(reads(1, 2 * PIECE + 3, 1), SchedulingParams::default()).unwrap();
    let (mut told, mut over) = (Vec::new(), Vec::new());
    while !bench.scheduler.is_idle() {
        let report = &mut |request: &mut Request| {
            request.report(&mut |event| {
                if let Event::Progress { done, all } = event {
                    told.push((done, all));
                }
            });
            ControlFlow::Continue(())
        };
        bench.scheduler.step(report, &mut over);
    }
    // The last piece says itself that there is none left.
    assert_eq!(told, [(PIECE, 2 * PIECE + 3), (2 * PIECE, 2 * PIECE + 3)]);
}

#[test]
fn prompts_that_come_together_share_the_rows_of_a_piece() {
    let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
    for name in 1..=4 {
        bench.submit(reads(name, PIECE / 2 + 2, 1), SchedulingParams::default()).unwrap();
    }
    bench.run();
    let rows: Vec<usize> = rows_by_job(&bench).iter().map(|step| step.values().sum()).collect();
    assert!(rows.iter().all(|&rows| rows <= PIECE + FREE), "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), 4 * (PIECE / 2 + 3));
}

#[test]
fn a_request_that_is_given_up_between_two_pieces_leaves_nothing() {
    let mut bench = Bench::new(u64::MAX, 5000, [usize::MAX; 2]);
    let id = bench.submit(reads(1, 4000, 3), SchedulingParams::default()).unwrap();
    (0..3).for_each(|_| drop(bench.step()));
    assert!(bench.scheduler.cancel(id).is_some());
    assert_eq!(bench.scheduler.counters().leaks, 0);
    bench.submit(reads(2, 40, 1), SchedulingParams::default()).unwrap();
    bench.run();
    assert_eq!(bench.ends().into_values().collect::<Vec<_>>(), ["ok"]);
}
