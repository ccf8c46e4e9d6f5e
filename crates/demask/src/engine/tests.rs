//! Deadlines and the pulse of an engine, over a network that dawdles, stops or panics when a test says so.

use std::sync::mpsc::{Sender, channel};

use demask_decode::Finish;
use demask_step::{DeviceError, DeviceId};

use super::*;
use crate::{Mail, Outcome, faults::Faults};

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
    let engine = dawdles().into_engine().unwrap();
    let class = Class { deadline: Some(Instant::now() + Duration::from_secs(2)), ..Class::default() };
    let by_class = engine.handle().generate(QUESTION, &options(None), class).unwrap().wait().unwrap();
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
    let mut model = Model::demo().unwrap();
    let submit = |model: &mut Model, deadline| {
        let answer = model.prepare(&Prompt::from(QUESTION), &options(deadline)).unwrap();
        model.submit(answer, Class::default()).unwrap()
    };
    let first = submit(&mut model, None);
    model.step(&mut |_, _| ControlFlow::Continue(()));
    // From now on there is room for one such answer.
    model.scheduler.limit(DeviceId::default(), 0);
    let second = submit(&mut model, Some(1));
    thread::sleep(Duration::from_millis(5));
    let over = model.step(&mut |_, _| ControlFlow::Continue(()));
    let [(id, Err(error))] = &over[..] else { panic!("one is over, with an error") };
    assert_eq!(*id, second);
    assert!(error.is_expired() && !error.is_usage() && !error.is_cancelled());
    assert!(error.to_string().starts_with("the deadline passed while the request waited for memory"), "{error}");
    let counters = model.scheduler.counters();
    assert_eq!((counters.expired, counters.refused, counters.failed, counters.waiting), (1, 0, 0, 0));
    assert!(matches!(model.run_to_end(first, &mut |_| ControlFlow::Continue(())), Ok(Outcome::Answer(_))));
}

#[test]
fn the_pulse_tells_an_idle_engine_from_one_that_is_stuck() {
    let (model, hears, frees) = stopped_at(3);
    let engine = model.into_engine().unwrap();
    let handle = engine.handle();
    handle.look(|_| ()).unwrap();
    thread::sleep(Duration::from_millis(30));
    let idle = handle.pulse();
    assert!(idle.alive && handle.is_alive());
    assert!(!idle.busy, "nobody asks anything: {idle:?}");
    let ticket = handle.generate(QUESTION, &options(None), Class::default()).unwrap();
    hears.recv().unwrap();
    thread::sleep(Duration::from_millis(50));
    let stuck = handle.pulse();
    assert!(stuck.alive && stuck.busy && stuck.since >= Duration::from_millis(40), "{stuck:?}");
    frees.send(()).unwrap();
    ticket.wait().unwrap();
    engine.drain();
    let over = handle.pulse();
    assert!(!over.alive && !over.busy && !handle.is_alive());
}

#[test]
fn an_engine_whose_network_panics_is_not_alive() {
    let engine = haunted(|forward| assert!(forward < 2, "for a test")).into_engine().unwrap();
    let handle = engine.handle();
    let ask = || handle.generate(QUESTION, &options(None), Class::default()).unwrap().wait();
    let why = "its thread panicked (a bug, please report it): for a test";
    assert!(matches!(ask(), Err(Error::EngineFailed { why: told }) if told == why));
    assert!(!handle.is_alive() && handle.pulse().failed, "whoever was told finds it so");
    assert_eq!(handle.failure(), Some(why));
    assert!(matches!(ask(), Err(Error::EngineFailed { .. })), "and whoever comes later is told the same");
    drop(engine);
    assert!(!handle.is_alive());
}

#[test]
fn an_engine_whose_network_fails_says_so() {
    let engine = failing_at(2).into_engine().unwrap();
    let handle = engine.handle();
    let ask = || handle.generate(QUESTION, &options(None), Class::default()).unwrap();
    // One that runs, and one that runs beside it or comes too late.
    for ticket in [ask(), ask()] {
        let Err(Error::Device(error)) = ticket.wait() else { panic!("the device has failed") };
        assert_eq!(error.0, "it is on fire");
    }
    let pulse = handle.pulse();
    assert!(pulse.alive && pulse.failed, "its thread goes on: {pulse:?}");
    assert_eq!(handle.failure(), Some("the device failed: it is on fire"));
    assert!(matches!(ask().wait(), Err(Error::Device(_))));
    // Behind whatever the thread was about to write down.
    handle.look(|_| ()).unwrap();
    let (totals, mailboxes) = (handle.counters().totals, handle.counters().mailboxes);
    assert_eq!((totals.failed + totals.refused, mailboxes, totals.leaks), (3, 0, 0), "{totals:?}");
    engine.drain();
}

#[test]
fn an_engine_that_is_shut_down_has_not_failed() {
    let engine = Model::demo().unwrap().into_engine().unwrap();
    let handle = engine.handle();
    engine.shut_down();
    assert!(!handle.pulse().failed && handle.failure().is_none());
    assert!(matches!(
        handle.generate(QUESTION, &options(None), Class::default()).unwrap().wait(),
        Err(Error::ShutDown)
    ));
}

#[test]
fn an_update_says_when_the_first_forward_began() {
    let (model, hears, frees) = stopped_at(0);
    let engine = model.into_engine().unwrap();
    let asked = Instant::now();
    let mut ticket = engine.handle().generate(QUESTION, &options(None), Class::default()).unwrap();
    hears.recv().unwrap();
    let begun = Instant::now();
    // The forward itself takes so long, and is no part of the wait.
    thread::sleep(Duration::from_millis(80));
    frees.send(()).unwrap();
    let Some(Mail::Update(update)) = ticket.next() else { panic!("there is an update") };
    let began = update.began.unwrap();
    assert!(update.started.is_some() && (asked..=begun).contains(&began));
    let others = ticket.filter_map(|mail| if let Mail::Update(update) = mail { update.began } else { None });
    assert_eq!(others.count(), 0, "it is told once");
}

#[test]
fn a_traced_request_leaves_the_lines_that_a_model_alone_writes() {
    let options = Options { decoder: Some("static".parse().unwrap()), ..Options::default() };
    let mut model = Model::demo().unwrap();
    let (alone, lines) = model.trace(QUESTION, &options).unwrap();
    let engine = model.into_engine().unwrap();
    let handle = engine.handle();
    let answer = handle.prepare(&QUESTION.into(), &options).unwrap();
    let mut ticket = handle.submit_traced(answer, Class::default());
    ticket.wait_for_the_end();
    let over = ticket.find_map(|mail| if let Mail::Over(over) = mail { Some(over) } else { None });
    assert_eq!(over.unwrap().unwrap().tokens, alone.tokens);
    assert_eq!(ticket.take_trace(), lines);
    assert!(ticket.take_trace().is_empty());
}

#[test]
fn a_look_at_tokens_refuses_what_are_none() {
    let engine = Model::demo().unwrap().into_engine().unwrap();
    let handle = engine.handle();
    let found = handle.inspect(vec![1, 2, 3], true).unwrap();
    assert_eq!(found.logits.len(), 3 * handle.prompter().facts().vocab);
    assert!(matches!(handle.inspect(Vec::new(), false), Err(Error::NoTokens)));
    assert!(matches!(handle.inspect(vec![1 << 20], false), Err(Error::TokenOutOfRange { .. })));
    assert!(matches!(handle.inspect(vec![1; 5000], false), Err(Error::TooLong { .. })));
}

/// A rule of one's own that takes the best, and fails after so many choices.
#[derive(Debug)]
struct Rule {
    left: std::cell::Cell<usize>,
}

impl demask_decode::transfer::Transfer for Rule {
    fn choose(
        &self,
        _: &demask_decode::transfer::State,
        candidates: &mut [demask_decode::transfer::Candidate],
    ) -> usize {
        self.left.set(self.left.get().saturating_sub(1));
        candidates.len().min(1)
    }

    fn fault(&self) -> Option<String> {
        (self.left.get() == 0).then(|| "the rule broke off".to_owned())
    }
}

#[test]
fn an_own_rule_decides_in_company_and_fails_alone() {
    let mut model = Model::demo().unwrap();
    let (entered, inside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, now) = (Arc::clone(&entered), Arc::clone(&inside));
    model.set_attendant(Box::new(move |feed| {
        count.fetch_add(1, Ordering::Relaxed);
        now.store(true, Ordering::Relaxed);
        feed();
        now.store(false, Ordering::Relaxed);
    }));
    let engine = model.into_engine().unwrap();
    let handle = engine.handle();
    let rule = |choices: usize| OwnRule::new("best", move || Box::new(Rule { left: choices.into() })).attended();
    let options = Options { gen_length: Some(32), block_length: Some(16), ..Options::default() };
    let ask = |choices| handle.prepare_by(rule(choices), &QUESTION.into(), &options).unwrap();
    let (good, bad) = (ask(1000), ask(3));
    let (good, bad): (Ticket<Generation>, Ticket<Generation>) =
        (handle.submit(good, Class::default()), handle.submit(bad, Class::default()));
    let refused = bad.wait().unwrap_err();
    assert_eq!(refused.to_string(), "the rule broke off");
    assert!(!refused.is_usage() && !refused.is_cancelled());
    let answer = good.wait().unwrap();
    let receipt = &answer.receipt.decoding;
    assert_eq!((receipt.decoder.as_str(), receipt.exactness.name()), ("custom:best", "approximate"));
    let own = Options { decoder: Some("static".parse().unwrap()), cache: Some("dual".parse().unwrap()), ..options };
    let alone = handle.generate(QUESTION, &own, Class::default()).unwrap().wait().unwrap();
    assert_eq!(answer.tokens, alone.tokens);
    // Once a forward in which a rule decides, however many do.
    assert!((receipt.forwards as u64..=receipt.forwards as u64 + 3).contains(&entered.load(Ordering::Relaxed)));
    assert!(!inside.load(Ordering::Relaxed));
    let refused = handle.prepare_by(rule(1), &QUESTION.into(), &own).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("decoder static has its own rule: omit `decoder`"), "{refused}");
    assert_eq!(handle.counters().totals.leaks, 0);
}
