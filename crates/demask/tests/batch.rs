//! Many requests at once: each answer is what it would be alone, whatever becomes of the others.

use std::{collections::HashMap, ops::ControlFlow, path::Path, time::Instant};

use demask::{
    DeviceOptions, GenerateError, GenerateOptions, Generation, JobId, Model, Progress, Prompt, checkpoint::ModelFiles,
};

fn load(name: &str) -> Model {
    let files = ModelFiles::directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name)).unwrap();
    Model::load(files, &DeviceOptions::default(), &mut |_, _| true).unwrap()
}

fn question(index: usize) -> Prompt {
    let counted = ["pears", "cards", "boxes of old books"][index % 3];
    Prompt::user(format!("Ada has {} {counted}. Ben gives Ada {index} more. How many in the end?", 3 + index), None)
}

fn options(index: usize, cache: &str) -> GenerateOptions {
    GenerateOptions {
        cache: Some(cache.parse().unwrap()),
        gen_length: Some([32, 48, 64][index % 3]),
        temperature: Some(if index % 4 == 3 { 0.5 } else { 0.0 }),
        stop: if index % 5 == 4 { vec!["The final".to_owned()] } else { Vec::new() },
        seed: index as u64,
        ..GenerateOptions::default()
    }
}

fn go_on(_: JobId, _: Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Everything but the clock and the process's memory.
fn same(left: &Generation, right: &Generation) {
    assert_eq!((&left.text, &left.tokens, left.finish), (&right.text, &right.tokens, right.finish));
    assert_eq!(left.canvas, right.canvas);
    assert_eq!(left.receipt.decoding, right.receipt.decoding);
    assert_eq!(left.receipt.memory.cache, right.receipt.memory.cache);
}

/// All answers, `width` requests at a time, in the order of the requests.
fn together(model: &mut Model, requests: &[(Prompt, GenerateOptions)], width: usize) -> Vec<Generation> {
    let mut answers: Vec<Option<Generation>> = requests.iter().map(|_| None).collect();
    let mut waiting = requests.iter().enumerate();
    let mut running = HashMap::new();
    let mut batch = model.batch();
    loop {
        while batch.len() < width
            && let Some((index, (prompt, options))) = waiting.next()
        {
            running.insert(batch.submit(prompt, options).unwrap(), index);
        }
        if batch.is_empty() {
            return answers.into_iter().map(Option::unwrap).collect();
        }
        for (job, answer) in batch.step(&mut go_on).unwrap() {
            answers[running.remove(&job).unwrap()] = Some(answer.unwrap());
        }
    }
}

#[test]
fn answers_are_those_of_one_request_after_the_other() {
    for (name, caches) in
        [("demo-llada", &["none", "dual"][..]), ("demo-dream", &["prefix"]), ("demo-sdar", &["block"])]
    {
        let mut model = load(name);
        for cache in caches {
            let requests: Vec<_> = (0..6).map(|index| (question(index), options(index, cache))).collect();
            let alone: Vec<_> = requests
                .iter()
                .map(|(prompt, options)| model.generate(prompt, options, &mut |_| ControlFlow::Continue(())).unwrap())
                .collect();
            let found = together(&mut model, &requests, 4);
            alone.iter().zip(&found).for_each(|(alone, found)| same(alone, found));
        }
    }
}

#[test]
fn shares_are_the_time_of_the_clock() {
    let mut model = load("demo-llada");
    let requests: Vec<_> = (0..6).map(|index| (question(index), options(index, "none"))).collect();
    let before = model.engine().model_time();
    let started = Instant::now();
    let answers = together(&mut model, &requests, 6);
    let (wall, network) = (started.elapsed(), model.engine().model_time().saturating_sub(before));
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
    let mut model = load("demo-llada");
    let expected = model.generate(&question(0), &options(0, "dual"), &mut |_| ControlFlow::Continue(())).unwrap();
    let mut batch = model.batch();
    let stays = batch.submit(&question(0), &options(0, "dual")).unwrap();
    let leaves = batch.submit(&question(1), &options(1, "dual")).unwrap();
    let (mut steps, mut left) = (0, Vec::new());
    while !batch.is_empty() {
        steps += 1;
        let finished = batch.step(&mut |job, _| {
            if job == leaves && steps > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        left.extend(finished.unwrap());
    }
    assert!(matches!(&left[0], (job, Err(GenerateError::Interrupted)) if *job == leaves));
    assert_eq!((left.len(), left[1].0), (2, stays));
    same(left[1].1.as_ref().unwrap(), &expected);
}

#[test]
fn a_dropped_batch_gives_its_memory_back() {
    let mut model = load("demo-llada");
    let mut batch = model.batch();
    let job = batch.submit(&question(0), &options(0, "dual")).unwrap();
    batch.step(&mut go_on).unwrap();
    drop(batch);
    assert!(model.engine().session(job).is_none());
    assert_eq!(model.engine_mut().tick().unwrap(), 0);
}
