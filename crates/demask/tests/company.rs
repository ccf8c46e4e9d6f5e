//! Requests that come and go at random times beside each other, over all decoders and caches, with a guide, with guidance,
//! with drafts and with likelihoods, on one thread and from many: each finished one is, to the bit, what it is alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use demask::LikelihoodTask;
use demask::{
    Error, Event, Generation, Handle, LikelihoodOptions, Model, Options, Prompt, RequestHandle, SchedulingParams,
};
use demask_step::TokenId;

use crate::{
    batch::{by_hand, load, load_guided, question, same},
    common::Dice,
};

/// Decoder, cache and scale of guidance.
const METHODS: [(&str, &str, f32); 21] = [
    ("static", "none", 0.0),
    ("static", "dllm:prompt=9,response=3", 0.0),
    ("guided", "none", 0.0),
    ("freedave:d=3", "none", 0.0),
    ("static", "dual", 1.5),
    ("threshold", "dual", 0.0),
    ("freedave", "dllm:prompt=5,response=2,cfg=2", 1.0),
    ("guided:verify=4", "freecache:block=8", 0.0),
    ("factor", "prefix", 0.0),
    ("entropy_bounded", "freecache:block=8,freeze=reference", 0.0),
    ("slowfast", "none", 0.0),
    ("static", "dkv:refresh=4", 0.5),
    ("guided:match=topk_relative,tau=0.3", "dkv", 0.0),
    ("static", "dllm:prompt=3,response=2,first_layer=same", 0.0),
    ("freedave:d=2,mode=reference", "dual", 0.0),
    ("slowfast", "dllm:rho=0.5,probe=k", 0.0),
    ("static", "freecache:block=8,freeze=prompt", 0.0),
    ("threshold:tau=0.8,quota", "dkv:variant=pd", 0.0),
    ("guided:match=topk", "dllm", 0.0),
    ("static", "dllm:probe=random,cfg=3", 1.0),
    ("static", "dkv:variant=decode", 0.0),
];

const REQUESTS: usize = 64;

fn options(index: usize) -> Options {
    let (decoder, cache, cfg_scale) = METHODS[index % METHODS.len()];
    Options {
        decoder: Some(decoder.parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        cfg_scale: (cfg_scale > 0.0).then_some(cfg_scale),
        gen_length: Some([16, 24, 32][index % 3]),
        block_length: Some(8),
        temperature: (index % 4 == 3).then_some(0.5),
        stop: (index % 5 == 4).then(|| vec!["The final".to_owned()]),
        seed: Some(index as u64),
        ..Options::default()
    }
}

fn model() -> Model {
    let model = load_guided("demo-llada", &[None]);
    // What a guide has read of a prompt it does not read again: rows are compared here.
    model.set_prefix_cache(0).unwrap();
    model.engine().with_scheduler(|scheduler| scheduler.set_leak(|leak| panic!("{leak}"))).unwrap();
    model
}

fn alone(model: &Model) -> Vec<Generation> {
    (0..REQUESTS).map(|index| model.generate_with(question(index), &options(index)).unwrap()).collect()
}

/// Context and continuation of a likelihood.
fn texts(index: usize) -> (Vec<TokenId>, Vec<TokenId>) {
    let token = |at: usize| (200 + 7 * at + 13 * index) as TokenId;
    ((0..20).map(token).collect(), (20..29).map(token).collect())
}

fn draws(index: usize) -> LikelihoodOptions {
    let cfg_scale = if index % 2 == 1 { 0.5 } else { 0.0 };
    LikelihoodOptions { draws: 12, cfg_scale, seed: index as u64, top: None }
}

#[test]
fn answers_are_their_own_whoever_comes_and_goes() {
    let model = model();
    let expected = alone(&model);
    let judged: Vec<_> = (0..4)
        .map(|index| {
            let (context, text) = texts(index);
            model.log_likelihood(&context, &text, &draws(index)).unwrap().log_probability
        })
        .collect();
    let mut model = model.by_hand().unwrap();
    let (mut dice, mut next, mut running) = (Dice::new(3), 0, HashMap::new());
    let (mut finished, mut cancelled, mut company) = (0, 0, BTreeSet::new());
    while next < REQUESTS || !model.is_idle() {
        while next < REQUESTS && dice.chance(40) {
            let scheduling = SchedulingParams {
                priority: (next % 3) as i32,
                weight: 1.0 + (next % 2) as f64,
                ..SchedulingParams::default()
            };
            let mut prepared = model.prepare(&question(next), &options(next)).unwrap();
            prepared.set_scheduling(scheduling);
            running.insert(model.submit(prepared).unwrap(), next);
            if next % 16 == 5 {
                let (context, text) = texts(next / 16);
                let rows = model.network().rows().capacity;
                let task = model.info().likelihoods(&[(context, text)], &draws(next / 16), rows).unwrap();
                running.insert(model.submit(task).unwrap(), REQUESTS + next / 16);
            }
            next += 1;
        }
        if dice.chance(3)
            && let Some((&id, &index)) = running.iter().min_by_key(|(_, index)| (**index * 7) % 11)
            && index < REQUESTS
        {
            model.cancel(id);
            running.remove(&id);
            cancelled += 1;
        }
        let mut together = BTreeSet::new();
        let over = model.step(&mut |request| {
            together.insert(request.id());
            ControlFlow::Continue(())
        });
        let methods = together.iter().filter_map(|id| running.get(id)).map(|index| match index {
            index if *index >= REQUESTS => "likelihood",
            index => match METHODS[index % METHODS.len()] {
                (_, _, scale) if scale > 0.0 => "guidance",
                (decoder, ..) if decoder.starts_with("guided") => "guide",
                (decoder, ..) if decoder.starts_with("freedave") => "drafts",
                (_, cache, _) if cache.starts_with("dllm") => "dllm",
                _ => "other",
            },
        });
        company.insert(methods.collect::<BTreeSet<_>>());
        for (id, outcome) in over {
            let index = running.remove(&id).unwrap();
            if index < REQUESTS {
                same(&model.generation(outcome).unwrap(), &expected[index]);
            } else {
                let found = outcome.unwrap().job_as::<LikelihoodTask>().unwrap().likelihoods(0.0);
                assert_eq!(found[0].log_probability.to_bits(), judged[index - REQUESTS].to_bits());
            }
            finished += 1;
        }
    }
    assert_eq!(finished + cancelled, REQUESTS + 4);
    assert!(cancelled > 0 && running.is_empty());
    let wanted = BTreeSet::from(["guidance", "guide", "drafts", "dllm"]);
    assert!(company.iter().any(|methods| wanted.is_subset(methods)), "{company:?}");
    assert!(company.iter().any(|methods| methods.contains("likelihood") && methods.len() > 1), "draws share forwards");
}

/// Reads a request to its end: its text, and its result.
fn read(mut handle: RequestHandle<Generation>) -> (String, Result<Generation, Error>) {
    let (mut text, mut commits) = (String::new(), BTreeMap::new());
    for event in handle.by_ref() {
        match event {
            Event::Text(more) => text.push_str(&more),
            Event::Commit { position, token, .. } => drop(commits.insert(position, token)),
            _ => {}
        }
    }
    let end = handle.result().map_err(Error::from);
    if let Ok(answer) = &end {
        let told = commits.iter().all(|(&place, &token)| answer.canvas[place as usize] == token);
        assert!(told, "commits are those of the canvas");
    }
    (text, end)
}

#[test]
fn ten_threads_have_the_answers_that_each_has_alone() {
    let model = model();
    let expected = alone(&model);
    thread::scope(|scope| {
        for thread in 0..10 {
            let (handle, expected) = (model.handle(), &expected);
            scope.spawn(move || {
                let mut dice = Dice::new(100 + thread as u64);
                let mut open = Vec::new();
                for index in (thread..REQUESTS).step_by(10) {
                    thread::sleep(Duration::from_millis(dice.below(30) as u64));
                    let ticket = handle.stream(question(index), &options(index)).unwrap();
                    if dice.chance(20) {
                        // Nobody waits for this one.
                        drop(ticket);
                    } else {
                        open.push((index, ticket));
                    }
                }
                for (index, ticket) in open {
                    let (text, end) = read(ticket);
                    let answer = end.unwrap();
                    assert_eq!(Some(text), answer.text);
                    same(&answer, &expected[index]);
                }
            });
        }
    });
    idle(&model);
    model.drain();
}

/// Nothing is open, held or told of any more.
fn idle(handle: &Handle) {
    // After everything that was sent before.
    handle.with_network(|_| ()).unwrap();
    let started = Instant::now();
    while handle.counters().totals.running + handle.counters().totals.waiting > 0 {
        assert!(started.elapsed() < Duration::from_mins(1), "it comes to rest");
        thread::yield_now();
    }
    let counters = handle.counters();
    let totals = counters.totals;
    assert_eq!((totals.running, totals.waiting, totals.leaks), (0, 0, 0));
    for network in counters.networks {
        assert_eq!((network.open, network.pages.used), (0, 0));
    }
}

#[test]
fn a_dropped_ticket_cancels_its_request() {
    let model = load("demo-llada");
    let handle = model.handle();
    // So many forwards that it is not over before this thread has its turn.
    let options = Options { decoder: Some("static".parse().unwrap()), gen_length: Some(64), ..options(0) };
    let mut ticket = handle.stream(question(0), &options).unwrap();
    assert!(ticket.next().is_some());
    drop(ticket);
    idle(&handle);
    assert_eq!(handle.counters().totals.cancelled, 1);
}

#[test]
fn a_drained_engine_finishes_what_it_was_given_and_takes_no_more() {
    let model = load("demo-llada");
    let handle = model.handle();
    let tickets: Vec<_> = (0..4).map(|index| handle.stream(question(index), &options(0)).unwrap()).collect();
    model.drain();
    for ticket in tickets {
        assert!(ticket.wait().is_ok());
    }
    let late = handle.stream(question(0), &options(0)).unwrap().wait().unwrap_err();
    assert_eq!(late.to_string(), "the engine is shut down: start another one");
    assert!(handle.with_network(|_| ()).is_err());
}

#[test]
fn an_engine_that_is_shut_down_tells_those_who_wait() {
    let model = load("demo-llada");
    let handle = model.handle();
    let tickets: Vec<_> = (0..4).map(|index| handle.stream(question(index), &options(0)).unwrap()).collect();
    model.shut_down();
    let ends: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().map_err(Error::from)).collect();
    assert!(ends.iter().any(|end| matches!(end, Err(Error::ShutDown))), "it did not wait for all of them");
}

#[test]
fn a_ticket_can_be_polled_and_what_is_wrong_is_its_end() {
    let model = load("demo-llada");
    let handle = model.handle();
    let too_long = Options { gen_length: Some(1 << 20), ..Options::default() };
    assert!(handle.stream(question(0), &too_long).is_err(), "known before it is submitted");
    let nothing = SchedulingParams { weight: f64::NAN, ..SchedulingParams::default() };
    let mut weightless = handle.prepare(&question(0), &options(0)).unwrap();
    weightless.set_scheduling(nothing);
    let refused = handle.submit(weightless).wait().unwrap_err();
    assert!(refused.to_string().starts_with("a weight of NaN"), "{refused}");
    let (context, text) = texts(0);
    let mut judged =
        handle.submit_likelihoods(&[(context, text)], &draws(0), SchedulingParams::default(), None).unwrap();
    let started = Instant::now();
    loop {
        match judged.poll_events(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(None) => break,
            Poll::Ready(Some(_)) | Poll::Pending => thread::yield_now(),
        }
        assert!(started.elapsed() < Duration::from_mins(1), "it ends");
    }
    assert!(judged.result().unwrap()[0].log_probability < 0.0 && judged.next().is_none());
}

#[test]
fn an_infilled_prompt_has_its_answer_in_company() {
    let mut model = by_hand("demo-llada");
    let prompt = Prompt::Infill("Ada has <mask:2> pears and <mask:3> cards.".to_owned());
    let plain = Options::default();
    let expected = model.generate_with(prompt.clone(), &plain).unwrap();
    for index in 0..3 {
        let prepared = model.prepare(&question(index), &options(0)).unwrap();
        model.submit(prepared).unwrap();
    }
    let found = model.generate_with(prompt.clone(), &plain).unwrap();
    same(&found, &expected);
    // Those that ended meanwhile are still handed over.
    let mut others = 0;
    while !model.is_idle() {
        others += model.step(&mut |_| ControlFlow::Continue(())).len();
    }
    assert_eq!(others, 3);
}
