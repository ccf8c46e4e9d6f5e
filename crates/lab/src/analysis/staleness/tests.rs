use demask::{Options, Prompt};

use super::*;
use crate::analysis::{tests::demo, write};

fn measured(model: &mut ModelByHand, prompt: &Prompt, cache: &str) -> OfCache {
    let options = Options {
        decoder: Some("static".parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        gen_length: Some(32),
        block_length: Some(16),
        ..Options::default()
    };
    let session = model.session(prompt, &options).unwrap();
    let mut found = OfCache::new(cache, model.info().spec().layers);
    measure(model, session, &mut found, &mut |_| true).unwrap();
    found
}

/// The mean over all slots, along the run and at the end.
fn means(cache: &OfCache) -> [f64; 2] {
    [&cache.layers, &cache.ends].map(|layers| {
        let sums = OfCache::total(layers);
        let mut all = Sum::default();
        sums.into_iter().flatten().for_each(|sum| all.join(sum));
        all.mean().unwrap()
    })
}

#[test]
fn without_a_cache_nothing_is_ever_stale() {
    let (mut model, prompt) = demo();
    let none = measured(&mut model, &prompt, "none");
    let [along, end] = means(&none);
    assert_eq!(along, 0.0, "every slot is that of a forward over the same canvas, bit by bit");
    assert_eq!(end, 0.0, "what the last forward committed was in no canvas that was run");
    assert_eq!(none.age(), Some((0.0, 1.0)));
    assert_eq!(none.ages.keys().copied().collect::<Vec<_>>(), [0]);
}

#[test]
fn cached_slots_age_and_drift() {
    let (mut model, prompt) = demo();
    let dual = measured(&mut model, &prompt, "dual");
    assert!(means(&dual)[0] > 0.0);
    // A block's first forward computes everything, those behind it the block.
    assert_eq!(dual.ages.keys().next_back(), Some(&15));
    let prompt_slots = |age: usize| dual.ages[&age][0][0].count;
    assert_eq!(prompt_slots(0), prompt_slots(15), "the prompt is computed once a block");
    assert!(dual.ages.values().skip(1).all(|sums| sums[0][1].count > 0));
    let drift = |age: usize| dual.ages[&age][1][0].mean().unwrap();
    assert!(drift(15) > drift(1) && drift(0) == 0.0, "V of the prompt drifts with its age");
    // V of layer 0 is a function of the token: it is right but where something was committed since.
    assert_eq!(dual.layers[0][1][0].largest, 0.0, "the prompt's tokens never change");

    // Every response row each step: nothing of the answer is older than a forward.
    let each_step = measured(&mut model, &prompt, "dllm:prompt=100,response=1,rho=0");
    let answers: usize = each_step.ages.iter().filter(|(age, _)| **age > 0).map(|(_, sums)| sums[0][1].count).sum();
    assert_eq!(answers, 0);
    // A quarter of them between refreshes: each forward computes some rows of each layer.
    let quarter = measured(&mut model, &prompt, "dllm:prompt=100,response=4,rho=0.25");
    let (age, fresh) = quarter.age().unwrap();
    assert!(age > each_step.age().unwrap().0 && fresh > 0.1 && fresh < each_step.age().unwrap().1, "{age} {fresh}");
    assert!(means(&quarter)[0] > means(&each_step)[0]);
}

#[test]
fn staleness_is_drawn() {
    let (mut model, prompt) = demo();
    let caches = ["none", "prefix"].map(|cache| measured(&mut model, &prompt, cache)).to_vec();
    let found = Staleness { model: "demo".into(), prompts: 1, caches, ..Staleness::default() };
    let table = found.table();
    assert_eq!((table.len(), table[1][0].as_str(), table[1][2].as_str()), (3, "none", "0.0000"));
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &found).unwrap();
    let page = std::fs::read_to_string(directory.path().join("staleness.html")).unwrap();
    assert_eq!(page.matches("<svg ").count(), 6);
    assert!(!page.contains("NaN"));
    let csv = std::fs::read_to_string(directory.path().join("plots/staleness_map1.csv")).unwrap();
    assert!(csv.lines().count() > 100);
}
