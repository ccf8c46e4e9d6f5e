//! Deadlines and the heartbeat of an engine, over a network that dawdles, stops or panics when a test says so.

use std::{
    ops::ControlFlow,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use demask::{Error, Event, Finish, Model, Options, Prompt, SchedulingParams, methods::transfer};
use demask::{ModelByHand, trace::Tracer};
use demask_decode::transfer::OwnRule;
use demask_engine::Faults;
use demask_step::{DeviceError, DeviceId};

/// The demo model over a network that does something before each of its forwards, which are counted from 0.
fn haunted(mut before: impl FnMut(usize) + Send + 'static) -> Model {
    let step = move |forward| {
        before(forward);
        Ok(())
    };
    Model::demo().unwrap().with_faults(Faults::before_step(step))
}

/// The demo model over a network whose forward `at` fails.
fn failing_at(at: usize) -> Model {
    let burns = move |forward| if forward == at { Err(DeviceError("it is on fire".to_owned())) } else { Ok(()) };
    Model::demo().unwrap().with_faults(Faults::before_step(burns))
}

/// A network that waits before its forward `at` until the test lets it go on; the test hears that it does.
fn stopped_at(at: usize) -> (Model, Receiver<()>, Sender<()>) {
    let ((says, hears), (frees, waits)) = (channel(), channel());
    let model = haunted(move |forward| {
        if forward == at {
            says.send(()).unwrap();
            let _ = waits.recv();
        }
    });
    (model, hears, frees)
}

fn options(deadline_ms: Option<u64>) -> Options {
    let decoder = Some("static".parse().unwrap());
    Options { decoder, gen_length: Some(32), block_length: Some(8), deadline_ms, ..Options::default() }
}

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

#[test]
fn a_deadline_ends_an_answer_with_what_is_settled() {
    let whole = Model::demo().unwrap().generate_with(QUESTION, &options(None)).unwrap();
    assert_eq!(whole.receipt.decoding.given_up, None);
    // The tenth forward ends behind the deadline, and it is the last one.
    let dawdles = || haunted(|forward| thread::sleep(Duration::from_millis(if forward == 9 { 2500 } else { 0 })));
    let by_option = dawdles().generate_with(QUESTION, &options(Some(2000))).unwrap();
    let model = dawdles();
    let scheduling =
        SchedulingParams { deadline: Some(Instant::now() + Duration::from_secs(2)), ..SchedulingParams::default() };
    let mut request = model.prepare(&Prompt::from(QUESTION), &options(None)).unwrap();
    request.set_scheduling(scheduling);
    let by_class = model.submit(request).wait().unwrap();
    for cut in [by_option, by_class] {
        let (receipt, count) = (&cut.receipt.decoding, cut.tokens.len());
        assert_eq!((cut.finish, cut.end_token), (Finish::Deadline, None));
        assert!(receipt.forwards <= 10 && count < whole.tokens.len(), "{receipt:?}");
        assert_eq!(cut.tokens, whole.tokens[..count]);
        assert_eq!(receipt.given_up, Some(32 - receipt.forwards));
        assert!(whole.text.as_ref().unwrap().starts_with(cut.text.as_ref().unwrap()));
        assert_eq!(serde_json::to_value(&cut).unwrap()["finish"], "deadline");
    }
}

#[test]
fn a_deadline_that_is_not_reached_changes_nothing() {
    let answer = |deadline| Model::demo().unwrap().generate_with(QUESTION, &options(deadline)).unwrap();
    let (without, with) = (answer(None), answer(Some(u64::MAX)));
    assert_eq!((with.tokens, with.receipt.decoding), (without.tokens, without.receipt.decoding));
}

#[test]
fn who_still_waits_for_memory_by_the_deadline_is_refused() {
    let mut model = Model::demo().unwrap().by_hand().unwrap();
    let prepared = |model: &ModelByHand, deadline| model.prepare(&Prompt::from(QUESTION), &options(deadline)).unwrap();
    let first = model.submit(prepared(&model, None)).unwrap();
    model.step(&mut |_| ControlFlow::Continue(()));
    // From now on there is room for one such answer.
    model.scheduler().0.limit(DeviceId::default(), 0);
    let second = model.submit(prepared(&model, Some(1))).unwrap();
    thread::sleep(Duration::from_millis(5));
    let over = model.step(&mut |_| ControlFlow::Continue(()));
    let [(id, Err(error))] = &over[..] else { panic!("one is over, with an error") };
    assert_eq!(*id, second);
    assert!(error.is_expired() && !error.is_usage() && !error.is_cancelled());
    assert!(error.to_string().starts_with("the deadline passed while the request waited for memory"), "{error}");
    let counters = model.scheduler().0.counters();
    assert_eq!((counters.expired, counters.refused, counters.failed, counters.waiting), (1, 0, 0, 0));
    let ended = loop {
        if let Some(over) = model.step(&mut |_| ControlFlow::Continue(())).pop() {
            break over;
        }
    };
    assert!(ended.0 == first && model.generation(ended.1).is_ok());
}

#[test]
fn the_heartbeat_tells_an_idle_engine_from_one_that_is_stuck() {
    let (model, hears, frees) = stopped_at(3);
    let handle = model.handle();
    handle.with_network(|_| ()).unwrap();
    thread::sleep(Duration::from_millis(30));
    let idle = handle.heartbeat();
    assert!(idle.alive && handle.is_alive());
    assert!(!idle.busy, "nobody asks anything: {idle:?}");
    let ticket = handle.stream(QUESTION, &options(None)).unwrap();
    hears.recv().unwrap();
    thread::sleep(Duration::from_millis(50));
    let stuck = handle.heartbeat();
    assert!(stuck.alive && stuck.busy && stuck.since >= Duration::from_millis(40), "{stuck:?}");
    frees.send(()).unwrap();
    ticket.wait().unwrap();
    model.drain();
    let over = handle.heartbeat();
    assert!(!over.alive && !over.busy && !handle.is_alive());
}

#[test]
fn an_engine_whose_network_panics_is_not_alive() {
    let model = haunted(|forward| assert!(forward < 2, "for a test"));
    let handle = model.handle();
    let ask = || handle.generate_with(QUESTION, &options(None));
    let why = "its thread panicked (a bug, please report it): for a test";
    assert!(matches!(ask(), Err(Error::EngineFailed { why: told }) if told == why));
    assert!(!handle.is_alive() && handle.heartbeat().failed, "whoever was told finds it so");
    assert_eq!(handle.failure(), Some(why));
    assert!(matches!(ask(), Err(Error::EngineFailed { .. })), "and whoever comes later is told the same");
    drop(model);
    assert!(!handle.is_alive());
}

#[test]
fn an_engine_whose_network_fails_says_so() {
    let model = failing_at(2);
    let handle = model.handle();
    let ask = || handle.stream(QUESTION, &options(None)).unwrap();
    // One that runs, and one that runs beside it or comes too late.
    for ticket in [ask(), ask()] {
        let Err(Error::Device(error)) = ticket.wait().map_err(Error::from) else { panic!("the device has failed") };
        assert_eq!(error.0, "it is on fire");
    }
    let heartbeat = handle.heartbeat();
    assert!(heartbeat.alive && heartbeat.failed, "its thread goes on: {heartbeat:?}");
    assert_eq!(handle.failure(), Some("the device failed: it is on fire"));
    assert!(matches!(ask().wait().map_err(Error::from), Err(Error::Device(_))));
    // Behind whatever the thread was about to write down.
    handle.with_network(|_| ()).unwrap();
    let totals = handle.counters().totals;
    assert_eq!((totals.failed + totals.refused, totals.running, totals.leaks), (3, 0, 0), "{totals:?}");
    model.drain();
}

#[test]
fn an_engine_that_is_shut_down_has_not_failed() {
    let model = Model::demo().unwrap();
    let handle = model.handle();
    model.shut_down();
    assert!(!handle.heartbeat().failed && handle.failure().is_none());
    assert!(matches!(handle.generate_with(QUESTION, &options(None)), Err(Error::ShutDown)));
}

#[test]
fn an_event_says_when_the_first_forward_began() {
    let (model, hears, frees) = stopped_at(0);
    let asked = Instant::now();
    let ticket = model.handle().stream(QUESTION, &options(None)).unwrap();
    hears.recv().unwrap();
    let begun = Instant::now();
    // The forward itself takes so long, and is no part of the wait.
    thread::sleep(Duration::from_millis(80));
    frees.send(()).unwrap();
    let times: Vec<_> =
        ticket.filter_map(|event| if let Event::Began { at } = event { Some(at) } else { None }).collect();
    let [began] = times[..] else { panic!("it is reported once: {times:?}") };
    assert!((asked..=begun).contains(&began));
}

#[test]
fn a_request_that_reports_every_event_has_the_lines_of_its_trace() {
    let options = Options { decoder: Some("static".parse().unwrap()), ..Options::default() };
    let model = Model::demo().unwrap();
    let (alone, lines) = model.trace(QUESTION, &options).unwrap();
    let mut handle = model.submit_for_every_event(model.prepare(&QUESTION.into(), &options).unwrap());
    handle.wait_for_the_end();
    let (tracer, texts) = (Tracer::new(model.info(), 0), model.texts());
    let found: Vec<_> = handle.by_ref().filter_map(|event| tracer.line(&event, &texts)).collect();
    assert_eq!(handle.result().unwrap().tokens, alone.tokens);
    assert_eq!(found, lines);
}

#[test]
fn a_look_at_tokens_refuses_what_are_none() {
    let model = Model::demo().unwrap();
    let handle = model.handle();
    let found = handle.inspect(vec![1, 2, 3], true).unwrap();
    assert_eq!(found.logits.len(), 3 * handle.info().facts().vocab);
    assert!(matches!(handle.inspect(Vec::new(), false), Err(Error::NoTokens)));
    assert!(matches!(handle.inspect(vec![1 << 20], false), Err(Error::TokenOutOfRange { .. })));
    assert!(matches!(handle.inspect(vec![1; 5000], false), Err(Error::TooLong { .. })));
}

/// A rule of one's own that takes the best, and fails after so many choices.
#[derive(Debug)]
struct Rule {
    left: std::cell::Cell<usize>,
}

impl transfer::Transfer for Rule {
    fn choose(&self, _: &transfer::State, candidates: &mut [transfer::Candidate]) -> usize {
        self.left.set(self.left.get().saturating_sub(1));
        candidates.len().min(1)
    }

    fn fault(&self) -> Option<String> {
        (self.left.get() == 0).then(|| "the rule broke off".to_owned())
    }
}

#[test]
fn an_own_rule_decides_in_company_and_fails_alone() {
    let model = Model::demo().unwrap();
    let handle = model.handle();
    let rule = |choices: usize| OwnRule::new("best", move || Box::new(Rule { left: choices.into() }));
    let options = Options { gen_length: Some(32), block_length: Some(16), ..Options::default() };
    let ask = |choices| handle.prepare_by(rule(choices), &QUESTION.into(), &options).unwrap();
    let (good, bad) = (ask(1000), ask(3));
    let (good, bad) = (handle.submit(good), handle.submit(bad));
    let refused = Error::from(bad.wait().unwrap_err());
    assert_eq!(refused.to_string(), "the rule broke off");
    assert!(!refused.is_usage() && !refused.is_cancelled());
    let answer = good.wait().unwrap();
    let receipt = &answer.receipt.decoding;
    assert_eq!((receipt.decoder.as_str(), receipt.exactness.name()), ("custom:best", "approximate"));
    let own = Options { decoder: Some("static".parse().unwrap()), cache: Some("dual".parse().unwrap()), ..options };
    let alone = handle.stream(QUESTION, &own).unwrap().wait().unwrap();
    assert_eq!(answer.tokens, alone.tokens);
    let refused = handle.prepare_by(rule(1), &QUESTION.into(), &own).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("decoder static has its own rule: omit `decoder`"), "{refused}");
    assert_eq!(handle.counters().totals.leaks, 0);
}

/// Submitting what waits takes linear time, and the first forward does not wait for the last prompt.
#[test]
#[allow(clippy::print_stdout)]
fn thousands_of_prompts_at_once_keep_no_forward_waiting() {
    let options = Options { gen_length: Some(16), block_length: Some(16), ..Options::default() };
    let submit = |count: usize| {
        let model = Model::demo().unwrap();
        let prepared: Vec<_> =
            (0..count).map(|_| model.prepare(&Prompt::from("Ada has 3 pears."), &options).unwrap()).collect();
        let started = Instant::now();
        let mut handles: Vec<_> = prepared.into_iter().map(|request| model.submit(request)).collect();
        let submitted = started.elapsed();
        let began = handles[0].find_map(|event| if let Event::Began { at } = event { Some(at) } else { None });
        (submitted, began.unwrap().saturating_duration_since(started))
    };
    let (few, first_of_few) = submit(1_000);
    let (many, first_of_many) = submit(10_000);
    println!("1,000 in {few:?}, first forward after {first_of_few:?}; 10,000 in {many:?}, after {first_of_many:?}");
    // Work that is quadratic in what waits takes 100 times as long.
    assert!(many < 50 * few.max(Duration::from_millis(5)), "{few:?} and {many:?}");
    assert!(first_of_many < Duration::from_secs(1), "{first_of_many:?}");
}
