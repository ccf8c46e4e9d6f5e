//! Any bytes as calls of the scheduler's owner: every work ends once, with its own answers or as it deserves, memory is
//! never exceeded, and nothing is left.
#![no_main]

#[path = "../../crates/engine/src/scheduler/tests/job.rs"]
#[allow(dead_code)]
mod job;
#[path = "../../crates/engine/src/scheduler/tests/machine.rs"]
#[allow(dead_code)]
mod machine;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use demask::{Request, SchedulingParams};
use demask_engine::{NetworkId, Refused, Scheduler};
use demask_step::DeviceId;
use job::{Manner, Part, Steps};
use libfuzzer_sys::fuzz_target;
use machine::Machine;

/// A script of bytes; zeros when it is over.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self, below: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first % below
    }

    fn part(&mut self) -> Part {
        let kind = match self.next(4) {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Part {
            network: usize::from(self.next(2)),
            groups: 1 + usize::from(self.next(3)),
            rows: 1 + usize::from(self.next(40)),
            kind,
            causal: self.next(3) == 0,
        }
    }

    /// Behaviour of a work; those that panic are left to the project's own tests, since a panic ends the fuzzer.
    fn manner(&mut self) -> Manner {
        match self.next(16) {
            0 => Manner::BadPlan,
            1 => Manner::NoGroup,
            2 => Manner::Stranger,
            3 => Manner::TwoNetworks,
            4 => Manner::Changes,
            _ => Manner::Good,
        }
    }
}

fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let clock = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&clock);
    let mut scheduler: Scheduler<Machine> = Scheduler::new()
        .with_clock(move || Duration::from_micros(own.fetch_add(1, Ordering::Relaxed)))
        .with_patience(u64::from(script.next(8)))
        .with_leak(|leak| panic!("{leak}"));
    let memory = 60 + 4 * u64::from(script.next(100));
    let capacity = 40 + usize::from(script.next(80));
    let fails = script.next(8) == 0;
    let on: Vec<NetworkId> = (0..2)
        .map(|_| {
            let fails_after = if fails { usize::from(script.next(20)) } else { usize::MAX };
            scheduler.add(Box::new(Machine { fails_after, ..Machine::new(memory, capacity, &clock) }))
        })
        .collect();
    scheduler.limit(DeviceId(0), memory);
    let (mut over, mut manners, mut ids, mut name) = (Vec::new(), BTreeMap::new(), Vec::new(), 0);
    let mut look = |_: &mut Request| ControlFlow::Continue(());
    for _ in 0..200 {
        if script.0.is_empty() {
            break;
        }
        match script.next(8) {
            0..=2 => {
                name += 1;
                let positions = 1 + usize::from(script.next(60));
                let count = 1 + script.next(5);
                let parts = (0..count).map(|_| script.part()).collect();
                let manner = script.manner();
                let job = Steps::new(name, positions, parts, manner);
                let scheduling = SchedulingParams {
                    priority: i32::from(script.next(2)),
                    weight: f64::from(1 + script.next(4)),
                    ..SchedulingParams::default()
                };
                let mut request = Request::new(job);
                request.set_scheduling(scheduling);
                match scheduler.submit(request, &on) {
                    Ok(id) => {
                        ids.push(id);
                        manners.insert(id, manner);
                    }
                    Err(Refused { request, .. }) => {
                        assert_eq!(request.job_as::<Steps>().expect("a job").name, name, "it is handed back");
                    }
                }
            }
            3 => {
                if let Some(id) = ids.get(usize::from(script.next(64))) {
                    let was = manners.contains_key(id) && !over.iter().any(|it: &Box<Request>| it.id() == *id);
                    assert_eq!(scheduler.cancel(*id).is_some(), was, "a late cancel hits nobody");
                    if was {
                        manners.remove(id);
                    }
                }
            }
            _ => {
                scheduler.step(&mut look, &mut over);
            }
        }
    }
    let mut turns = 0;
    while !scheduler.is_idle() {
        scheduler.step(&mut look, &mut over);
        turns += 1;
        assert!(turns < 100_000, "it comes to an end");
    }
    assert_eq!(over.len(), manners.len(), "each ends once");
    for finished in &over {
        let manner = manners[&finished.id()];
        match finished.end().expect("it is over") {
            Ok(()) => assert!(matches!(manner, Manner::Good | Manner::Changes), "{manner:?} is done"),
            Err(error) => {
                assert!(fails || manner != Manner::Good, "{error}");
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
    let counters = scheduler.counters();
    assert_eq!((counters.running, counters.waiting, counters.leaks), (0, 0, 0));
}

fuzz_target!(|bytes: &[u8]| run(bytes));
