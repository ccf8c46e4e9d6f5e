//! Batches of requests: each answer is the one that its request has alone, whatever becomes of the others.

use std::{collections::HashMap, ops::ControlFlow, path::Path, time::Instant};

use demask::{DeviceOptions, ModelByHand, Opened};
use demask::{Error, Generation, Model, Options, Prompt, Request};
use demask_checkpoint::ModelFiles;

pub fn load(name: &str) -> Model {
    let files = ModelFiles::directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name)).unwrap();
    alike(Model::load(files, &DeviceOptions::default(), &mut |_| true).unwrap())
}

/// Lets a model keep no prefixes, so that equal requests are computed alike.
fn alike(model: Model) -> Model {
    model.set_prefix_cache(0).unwrap();
    model
}

/// A model with guides, each with a name of its own or that of its model.
pub fn load_guided(name: &str, guides: &[Option<&str>]) -> Model {
    let open = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
        Opened::open(ModelFiles::directory(folder).unwrap()).unwrap()
    };
    let opened = guides.iter().fold(open(name), |opened, guide| match guide {
        Some(name) => opened.guided_by_named(*name, open("demo-qwen")).unwrap(),
        None => opened.guided_by(open("demo-qwen")).unwrap(),
    });
    alike(opened.load(&DeviceOptions::default(), &[], &mut |_| true).unwrap())
}

/// The model, to be driven by hand.
pub fn by_hand(name: &str) -> ModelByHand {
    load(name).by_hand().unwrap()
}

pub fn question(index: usize) -> Prompt {
    let counted = ["pears", "cards", "boxes of old books"][index % 3];
    Prompt::user(format!("Ada has {} {counted}. Ben gives Ada {index} more. How many in the end?", 3 + index), None)
}

fn options(index: usize, cache: &str) -> Options {
    Options {
        cache: Some(cache.parse().unwrap()),
        gen_length: Some([32, 48, 64][index % 3]),
        temperature: Some(if index % 4 == 3 { 0.5 } else { 0.0 }),
        stop: (index % 5 == 4).then(|| vec!["The final".to_owned()]),
        seed: Some(index as u64),
        ..Options::default()
    }
}

fn go_on(_: &mut Request) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Compares everything but the clock and the process's memory.
pub fn same(left: &Generation, right: &Generation) {
    assert_eq!((&left.text, &left.tokens, left.finish), (&right.text, &right.tokens, right.finish));
    assert_eq!(left.canvas, right.canvas);
    assert_eq!(left.receipt.decoding, right.receipt.decoding);
    assert_eq!(left.receipt.memory.cache, right.receipt.memory.cache);
    let guided = |one: &Generation| one.receipt.guide.as_ref().map(|guide| (guide.rows, guide.flops, guide.accepted));
    assert_eq!((left.receipt.guide_nfe, guided(left)), (right.receipt.guide_nfe, guided(right)));
}

/// All answers, `width` requests at a time, in the order of the requests.
pub fn together(model: &mut ModelByHand, requests: &[(Prompt, Options)], width: usize) -> Vec<Generation> {
    let mut answers: Vec<Option<Generation>> = requests.iter().map(|_| None).collect();
    let mut waiting = requests.iter().enumerate();
    let mut running = HashMap::new();
    loop {
        while running.len() < width
            && let Some((index, (prompt, options))) = waiting.next()
        {
            let prepared = model.prepare(prompt, options).unwrap();
            running.insert(model.submit(prepared).unwrap(), index);
        }
        if running.is_empty() {
            assert!(model.is_idle());
            return answers.into_iter().map(Option::unwrap).collect();
        }
        for (id, outcome) in model.step(&mut go_on) {
            answers[running.remove(&id).unwrap()] = Some(model.generation(outcome).unwrap());
        }
    }
}

#[test]
fn answers_are_those_of_one_request_after_the_other() {
    for (name, caches) in
        [("demo-llada", &["none", "dual"][..]), ("demo-dream", &["prefix"]), ("demo-sdar", &["block"])]
    {
        let mut model = by_hand(name);
        for cache in caches {
            let requests: Vec<_> = (0..6).map(|index| (question(index), options(index, cache))).collect();
            let alone: Vec<_> = requests
                .iter()
                .map(|(prompt, options)| model.generate_with(prompt.clone(), options).unwrap())
                .collect();
            let found = together(&mut model, &requests, 4);
            alone.iter().zip(&found).for_each(|(alone, found)| same(alone, found));
        }
    }
}

#[test]
fn receipts_do_not_depend_on_partly_computed_neighbours() {
    let mut model = by_hand("demo-llada");
    let caches = ["none", "dllm:prompt=9,response=3", "dual", "dllm:first_layer=same,prompt=4,response=2"];
    let requests: Vec<_> = caches.iter().enumerate().map(|(i, cache)| (question(i), options(i, cache))).collect();
    let alone: Vec<_> = requests.iter().map(|request| together(&mut model, std::slice::from_ref(request), 1)).collect();
    let found = together(&mut model, &requests, 4);
    alone.iter().zip(&found).for_each(|(alone, found)| same(&alone[0], found));
}

#[test]
fn shares_are_the_time_of_the_clock() {
    let mut model = by_hand("demo-llada");
    let requests: Vec<_> = (0..6).map(|index| (question(index), options(index, "none"))).collect();
    let started = Instant::now();
    let answers = together(&mut model, &requests, 6);
    let wall = started.elapsed();
    let (scheduler, networks) = model.scheduler();
    let network = scheduler.network_counters(networks[0]).unwrap().time;
    let sum = |of: fn(&Generation) -> f64| answers.iter().map(of).sum::<f64>();
    let (shares, total) = (sum(|one| one.receipt.seconds.model), sum(|one| one.receipt.seconds.total));
    assert!((shares / network.as_secs_f64() - 1.0).abs() < 1e-3, "{shares} of {network:?}");
    assert!(total >= shares && total <= wall.as_secs_f64() * 1.001, "{total} of {wall:?}");
    for answer in &answers {
        let seconds = answer.receipt.seconds;
        assert!(seconds.model <= seconds.total && seconds.total <= seconds.wall, "{seconds:?}");
    }
}

#[test]
fn whoever_leaves_leaves_the_others_alone() {
    let mut model = by_hand("demo-llada");
    let expected = model.generate_with(question(0), &options(0, "dual")).unwrap();
    let mut submit = |index| {
        let prepared = model.prepare(&question(index), &options(index, "dual")).unwrap();
        model.submit(prepared).unwrap()
    };
    let (stays, leaves) = (submit(0), submit(1));
    let (mut steps, mut left) = (0, Vec::new());
    while !model.is_idle() {
        steps += 1;
        left.extend(model.step(&mut |request| {
            if request.id() == leaves && steps > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
    }
    assert!(matches!(&left[0], (id, Err(Error::Interrupted)) if *id == leaves));
    assert_eq!((left.len(), left[1].0), (2, stays));
    same(&model.generation(left.remove(1).1).unwrap(), &expected);
    // Nobody of that name is there any more, nor ever was of another one's.
    model.cancel(leaves);
    model.cancel(stays);
}

#[test]
fn a_cancelled_request_gives_its_memory_back() {
    let mut model = by_hand("demo-llada");
    let prepared = model.prepare(&question(0), &options(0, "dual")).unwrap();
    let id = model.submit(prepared).unwrap();
    model.step(&mut go_on);
    model.cancel(id);
    assert!(model.is_idle() && model.step(&mut go_on).is_empty());
    let (scheduler, networks) = model.scheduler();
    let counters = scheduler.network_counters(networks[0]).unwrap();
    assert_eq!((counters.open, counters.pages.used, scheduler.counters().leaks), (0, 0, 0));
    assert!(counters.pages.free > 0);
}

#[test]
fn a_guide_is_not_replaced_while_requests_run_on_it() {
    let mut model = by_hand("demo-llada");
    model.set_guide(by_hand("demo-qwen")).unwrap();
    let guided = Options { gen_length: Some(32), decoder: Some("guided".parse().unwrap()), ..Options::default() };
    let prepared = model.prepare(&question(0), &guided).unwrap();
    let id = model.submit(prepared).unwrap();
    model.step(&mut go_on);
    let refused = model.set_guide(by_hand("demo-qwen")).unwrap_err().to_string();
    assert_eq!(refused, "1 sequences are open on the network: wait until their requests are over, or cancel them");
    model.cancel(id);
    model.set_guide(by_hand("demo-qwen")).unwrap();
    model.generate_with(question(0), &guided).unwrap();
}
